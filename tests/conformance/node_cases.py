"""The node tests that the onnx package makes, for the operators that are compiled."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx.backend.test.case.node import collect_testcases

from cuvil.ir.types import BY_NUMPY_NAME, Array
from cuvil.ops.registry import onnx_importers

_CONSTANT_OPERANDS = {
    "Reshape": (1,),
    "Expand": (1,),
    "Tile": (1,),
    "Pad": (1, 2, 3),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "Squeeze": (1,),
    "Unsqueeze": (1,),
    "Range": (0, 1, 2),
    "ConstantOfShape": (0,),
    "Dropout": (1, 2),
    "TopK": (1,),
    "Resize": (1, 2, 3),
    "Upsample": (1,),
    "OneHot": (1,),
    "CumSum": (1,),
    "ConvTranspose": (1,),
    "Trilu": (1,),
    "GRU": (4,),
    "LSTM": (4,),
}
"""Operands that a static graph must know. The node tests feed them at run time; here they are initializers.

All reductions since opset 18 have their axes as operand 1.
"""


@dataclass(frozen=True, eq=False)
class NodeCase:
    """One test: a model, its inputs by name, and the outputs that ONNX expects."""

    name: str
    model: onnx.ModelProto
    inputs: dict[str, Array]
    outputs: tuple[Array, ...]


@cache
def node_cases() -> dict[str, NodeCase]:
    """Every test of the onnx package that uses compiled operators and element types alone, by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the cases overflow on purpose while onnx makes them
        found = collect_testcases(None)
    cases = [_node_case(case) for case in found if _is_covered(case)]
    return {case.name: case for case in cases}


def _is_covered(case: Any) -> bool:
    inputs, outputs = case.data_sets[0]
    return all(
        node.op_type in onnx_importers() and node.domain == "" for node in case.model.graph.node
    ) and all(_has_supported_type(value) for value in (*inputs, *outputs))


def _has_supported_type(value: Any) -> bool:
    return not isinstance(value, onnx.TensorProto | list) and np.asarray(value).dtype.name in BY_NUMPY_NAME


def _node_case(case: Any) -> NodeCase:
    inputs, outputs = case.data_sets[0]
    names = [value.name for value in case.model.graph.input]
    arrays = {
        name: np.ascontiguousarray(a).reshape(np.shape(a)) for name, a in zip(names, inputs, strict=True)
    }
    model, fixed = _with_initializers(case.model, arrays)
    run = {name: array for name, array in arrays.items() if name not in fixed}
    return NodeCase(case.name, model, run, tuple(np.asarray(output) for output in outputs))


def _with_initializers(model: onnx.ModelProto, arrays: dict[str, Array]) -> tuple[onnx.ModelProto, set[str]]:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    fixed = {
        node.input[position]
        for node in model.graph.node
        for position in _constant_positions(node)
        if position < len(node.input) and node.input[position] in arrays
    }
    for name in sorted(fixed):
        copy.graph.initializer.append(onnx.numpy_helper.from_array(arrays[name], name))
    return copy, fixed


def _constant_positions(node: onnx.NodeProto) -> Sequence[int]:
    if node.op_type.startswith("Reduce"):
        return (1,)
    return _CONSTANT_OPERANDS.get(node.op_type, ())
