"""Inputs to try a model on, and what another implementation makes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from cuvil.errors import ToolchainError, UsageError
from cuvil.ir.graph import Value
from cuvil.ir.types import Array, TensorType, type_of

SEED = 0


def complete_inputs(wanted: Sequence[Value], given: Mapping[str, Array]) -> list[Array]:
    """The inputs in order; those that are not given are generated, the same ones every time.

    Raises:
        UsageError: an input is unknown, or of another type or shape than the model's.
    """
    names = [value.name for value in wanted]
    for name in given:
        if name not in names:
            expected = ", ".join(map(repr, names)) or "none, the model has no inputs"
            raise UsageError(f"inputs: no such input; expected {expected}, got {name!r}")
    rng = np.random.default_rng(SEED)
    return [
        _checked(value, given[value.name]) if value.name in given else _generate(rng, value.type)
        for value in wanted
    ]


def _checked(value: Value, array: Array) -> Array:
    got = f"{array.dtype.name}{list(array.shape)}"
    expected = f"{value.type.dtype.name}{list(value.type.shape)}"
    if got != expected:
        raise UsageError(f"input {value.name!r}: does not fit the model; expected {expected}, got {got}")
    assert type_of(array) == value.type
    return np.ascontiguousarray(array).reshape(array.shape)


def _generate(rng: np.random.Generator, tensor: TensorType) -> Array:
    """Ordinary numbers; integers are 0 and 1, which almost every table can be indexed with."""
    if tensor.dtype.kind == "float":
        return np.asarray(rng.standard_normal(tensor.shape), tensor.dtype.numpy)
    return np.asarray(rng.integers(0, 2, tensor.shape), tensor.dtype.numpy)


def run_onnxruntime(model: Path, inputs: Mapping[str, Array]) -> list[Array]:
    """What ONNX Runtime computes, without its optimizations.

    Raises:
        ToolchainError: it is not installed.
        UsageError: it can't run the model.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise ToolchainError(
            "onnxruntime: is not installed, and --against onnxruntime needs it",
            hint="pip install onnxruntime",
        ) from error
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        return [np.asarray(array) for array in session.run(None, dict(inputs))]
    except Exception as error:  # the peer raises types of its own, which are not public
        words = " ".join(str(error).split())
        raise UsageError(f"onnxruntime: can't run {model.name!r}: {words}") from error
