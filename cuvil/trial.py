"""Inputs to try a model on, and what another implementation makes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from cuvil.errors import ToolchainError, UsageError
from cuvil.ir.dims import symbols_of
from cuvil.ir.graph import Value
from cuvil.ir.types import Array, TensorType, type_of

SEED = 0

_USUAL_EXTENT = 3
"""Of a named dimension that no input determines."""


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
    symbols = _choose_symbols(wanted, given)
    rng = np.random.default_rng(SEED)
    return [
        _checked(value.name, value.type.at(symbols), given[value.name])
        if value.name in given
        else _generate(rng, value.type.at(symbols))
        for value in wanted
    ]


def _choose_symbols(wanted: Sequence[Value], given: Mapping[str, Array]) -> dict[str, int]:
    """Values of the named dimensions: those of the given inputs; else small ones, but more than 1."""
    found: dict[str, int] = {}
    for value in wanted:
        sizes = given[value.name].shape if value.name in given else ()
        for extent, size in zip(value.type.shape, sizes, strict=False):
            if str(extent) in symbols_of([extent]):
                found.setdefault(str(extent), size)
    symbols = symbols_of(extent for value in wanted for extent in value.type.shape)
    for symbol in symbols.values():
        size = found.setdefault(symbol.name, min(max(symbol.minimum, _USUAL_EXTENT), symbol.maximum))
        if not symbol.minimum <= size <= symbol.maximum:
            expected = f"{symbol.minimum} to {symbol.maximum}"
            raise UsageError(f"dimension {symbol.name!r}: out of bounds; expected {expected}, got {size}")
    return found


def _checked(name: str, wanted: TensorType, array: Array) -> Array:
    got = f"{array.dtype.name}{list(array.shape)}"
    expected = f"{wanted.dtype.name}{list(wanted.shape)}"
    if got != expected:
        raise UsageError(f"input {name!r}: does not fit the model; expected {expected}, got {got}")
    assert type_of(array) == wanted
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
