"""Judges an operator three ways: its NumPy meaning, its loops in the interpreter, another implementation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from cuvil.frontends.onnx import load_onnx
from cuvil.interp import Order, run_graph, run_program
from cuvil.ir.graph import Graph, GraphBuilder
from cuvil.ir.op import Attrs, OpDef
from cuvil.ir.types import BY_NUMPY_NAME, Array, type_of
from cuvil.lower import lower_graph
from cuvil.targets.target import find_target

TARGET = find_target("x86_64-linux")


def f32(*values: float) -> Array:
    return np.array(values, np.float32)


def random(shape: Sequence[int], dtype: type[Any] = np.float32, seed: int = 0) -> Array:
    """Numbers around zero; small integers for integer types."""
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    if dtype is np.bool_:
        return rng.integers(0, 2, shape).astype(dtype)
    return rng.integers(-9, 10, shape).astype(dtype)


def assert_same_bits(actual: Array, expected: Array) -> None:
    """Equal types, shapes and bits; any NaN equals any other."""
    assert type_of(actual) == type_of(expected)
    if actual.dtype.kind == "f":
        np.testing.assert_array_equal(np.isnan(actual), np.isnan(expected))
        np.testing.assert_array_equal(_bits(actual), _bits(expected))
    else:
        np.testing.assert_array_equal(actual, expected)


def _bits(array: Array) -> Array:
    clean = np.where(np.isnan(array), 0, array).astype(array.dtype)
    return clean.view(f"i{array.dtype.itemsize}")


def graph_of(op: OpDef, operands: Sequence[Array], attrs: Attrs) -> Graph:
    """A graph with one node."""
    builder = GraphBuilder("test")
    values = [builder.input(f"x{i}", type_of(array)) for i, array in enumerate(operands)]
    return builder.finish(builder.node(op, values, attrs, loc="test"))


def interpret(graph: Graph, operands: Sequence[Array]) -> list[Array]:
    """The outputs of the graph's loops, after checking that every order of running them gives the same."""
    program = lower_graph(graph, TARGET)
    orders: tuple[Order, ...] = get_args(Order)
    inputs = [np.ascontiguousarray(array).reshape(array.shape) for array in operands]
    results = [run_program(program, inputs, order=order) for order in orders]
    for other in results[1:]:
        for actual, expected in zip(other, results[0], strict=True):
            assert_same_bits(actual, expected)
    pairs = zip(results[0], graph.outputs, strict=True)
    return [result.reshape(output.type.shape) for result, output in pairs]


def check(op: OpDef, operands: Sequence[Array], attrs: Attrs | None = None) -> Array:
    """The operator's result, after checking that its type, its meaning and its loops agree bit by bit."""
    graph = graph_of(op, operands, attrs or {})
    (meant,) = run_graph(graph, operands)
    (looped,) = interpret(graph, operands)
    assert op.exact
    assert_same_bits(looped, meant)
    return meant


def model_of(
    op_type: str,
    inputs: Mapping[str, Array],
    attrs: Mapping[str, Any] | None = None,
    *,
    constants: Mapping[str, Array] | None = None,
    opset: int = 17,
    operands: Sequence[str] | None = None,
    results: Sequence[str] = ("y",),
) -> onnx.ModelProto:
    """An ONNX model with one node; its operands are the inputs and then the constants, if not given."""
    constants = constants or {}
    names = [*inputs, *constants] if operands is None else operands
    node = onnx.helper.make_node(op_type, names, results, name="node", **(attrs or {}))
    graph = onnx.helper.make_graph(
        [node],
        "test",
        [
            onnx.helper.make_tensor_value_info(name, BY_NUMPY_NAME[array.dtype.name].onnx_code, array.shape)
            for name, array in inputs.items()
        ],
        [onnx.ValueInfoProto(name=name) for name in results],
        [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=8)


def run_model(model: onnx.ModelProto, inputs: Mapping[str, Array]) -> list[Array]:
    """The outputs by the graph's NumPy meaning, after checking the loops against them."""
    graph = load_onnx(model).graph
    arrays = [inputs[value.name] for value in graph.inputs]
    meant = run_graph(graph, arrays)
    exact = all(node.op.exact for node in graph.nodes)
    for actual, expected in zip(interpret(graph, arrays), meant, strict=True):
        if exact:
            assert_same_bits(actual, expected)
        else:
            np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-7)
    return meant


def run_reference(model: onnx.ModelProto, inputs: Mapping[str, Array]) -> list[Array]:
    """The outputs by ONNX's own reference implementation."""
    outputs = ReferenceEvaluator(model).run(None, dict(inputs))
    return [np.asarray(output) for output in outputs]


def check_model(
    op_type: str,
    inputs: Mapping[str, Array],
    attrs: Mapping[str, Any] | None = None,
    **options: Any,
) -> list[Array]:
    """The outputs of a one-node model, after comparing them with ONNX's reference."""
    model = model_of(op_type, inputs, attrs, **options)
    results = run_model(model, inputs)
    for actual, expected in zip(results, run_reference(model, inputs), strict=True):
        assert actual.shape == expected.shape
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)
    return results
