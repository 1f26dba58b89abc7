"""The types of an ONNX model's inputs, with open shapes fixed by the user."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import onnx

from cuvil.errors import ModelError, UnsupportedError, UsageError
from cuvil.ir.types import BY_ONNX_CODE, DTYPES, DType, Shape, TensorType

Dim = int | str | None
"""A fixed extent, a symbol, or nothing at all."""


def dtype_of(code: int, where: str) -> DType:
    """The element type with this number in ONNX.

    Raises:
        UnsupportedError: it is not compiled.
    """
    if code in BY_ONNX_CODE:
        return BY_ONNX_CODE[code]
    known = code in onnx.TensorProto.DataType.values()
    name = onnx.TensorProto.DataType.Name(code).lower() if known else str(code)
    expected = ", ".join(dtype.name for dtype in DTYPES)
    raise UnsupportedError(f"{where}: element type is not supported; expected one of {expected}, got {name}")


def input_types(
    inputs: Iterable[onnx.ValueInfoProto], shapes: Mapping[str, Shape], where: str
) -> dict[str, TensorType]:
    """The type of every input; `shapes` has those that the user fixes.

    Raises:
        UsageError: a shape of the user fits no input, or contradicts the model.
        UnsupportedError: an input has an open shape, or is no tensor of a supported type.
    """
    declared: dict[str, tuple[DType, tuple[Dim, ...] | None]] = {}
    for value in inputs:
        if value.name in declared:
            raise ModelError(f"input {value.name!r}: name is defined twice; expected distinct names")
        declared[value.name] = _declared(value)
    _check_names(declared, shapes, where)
    symbols: dict[str, int] = {}
    for name, shape in shapes.items():
        _bind(name, declared[name][1], shape, symbols)
    return {
        name: TensorType(dtype, shapes[name] if name in shapes else _fixed(name, dims, symbols))
        for name, (dtype, dims) in declared.items()
    }


def _declared(value: onnx.ValueInfoProto) -> tuple[DType, tuple[Dim, ...] | None]:
    where = f"input {value.name!r}"
    kind = value.type.WhichOneof("value")
    if kind is None:
        raise ModelError(f"{where}: has no type; expected a tensor type")
    if kind != "tensor_type":
        raise UnsupportedError(f"{where}: type is not supported; expected a tensor, got {kind}")
    tensor = value.type.tensor_type
    dtype = dtype_of(tensor.elem_type, where)
    if not tensor.HasField("shape"):
        return dtype, None
    return dtype, tuple(_dim(dim, where) for dim in tensor.shape.dim)


def _dim(dim: onnx.TensorShapeProto.Dimension, where: str) -> Dim:
    if not dim.HasField("dim_value"):
        return str(dim.dim_param) or None
    if dim.dim_value < 0:
        raise ModelError(f"{where}: dimension is negative; expected 0 or more, got {dim.dim_value}")
    return int(dim.dim_value)


def _check_names(declared: Mapping[str, object], shapes: Mapping[str, Shape], where: str) -> None:
    for name in shapes:
        if name not in declared:
            expected = ", ".join(map(repr, declared)) or "none, the model has no inputs"
            raise UsageError(f"{where}: no input is named {name!r}; expected one of {expected}")


def _bind(name: str, dims: tuple[Dim, ...] | None, shape: Shape, symbols: dict[str, int]) -> None:
    """Checks a shape of the user against the model and learns what its symbols stand for."""
    if min(shape, default=0) < 0:
        raise UsageError(
            f"input {name!r}: shape is negative; expected extents of 0 or more, got {list(shape)}"
        )
    if dims is None:
        return
    fits = len(shape) == len(dims) and all(
        dim is None or (symbols.setdefault(dim, extent) if isinstance(dim, str) else dim) == extent
        for dim, extent in zip(dims, shape, strict=True)
    )
    if not fits:
        known = f" with {symbols}" if symbols else ""
        raise UsageError(
            f"input {name!r}: shape does not fit the model; expected {_text(dims)}{known}, got {list(shape)}"
        )


def _fixed(name: str, dims: tuple[Dim, ...] | None, symbols: Mapping[str, int]) -> Shape:
    if dims is None:
        raise UnsupportedError(
            f"input {name!r}: has no shape; expected a fixed one", hint=f"pass `--shape {name}=...`"
        )
    shape = [symbols.get(dim, dim) if isinstance(dim, str) else dim for dim in dims]
    extents = [extent for extent in shape if isinstance(extent, int)]
    if len(extents) < len(shape):
        example = ",".join(str(extent) if isinstance(extent, int) else "1" for extent in shape)
        raise UnsupportedError(
            f"input {name!r}: shape is open; expected fixed dimensions, got {_text(dims)}",
            hint=f"fix it, as in `--shape {name}={example}`",
        )
    return tuple(extents)


def _text(dims: tuple[Dim, ...]) -> str:
    return f"[{', '.join('?' if dim is None else str(dim) for dim in dims)}]"
