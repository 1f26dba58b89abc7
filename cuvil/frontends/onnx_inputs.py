"""The types of an ONNX model's inputs, with open dimensions fixed or bounded by the user."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence

import onnx

from cuvil.errors import ModelError, UnsupportedError, UsageError
from cuvil.ir.dims import IDENTIFIER, Extent, Symbol, dim_of
from cuvil.ir.types import BY_ONNX_CODE, DTYPES, DType, Shape, TensorType

DeclaredDim = int | str | None
"""A fixed extent, a name, or nothing at all."""

UserShape = tuple[int | str, ...]
"""Extents, and names of dimensions that stay open."""

Bounds = tuple[int, int]
"""The least and the greatest value of a named dimension."""


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
    inputs: Iterable[onnx.ValueInfoProto],
    shapes: Mapping[str, UserShape],
    bounds: Mapping[str, Bounds],
    where: str,
) -> dict[str, TensorType]:
    """The type of every input.

    Args:
        shapes: inputs whose dimensions the user fixes or names.
        bounds: the least and the greatest value of each named dimension that stays open.

    Raises:
        UsageError: a shape of the user fits no input, or contradicts the model; bounds fit no dimension.
        UnsupportedError: an input has an open shape without bounds, or is no tensor of a supported type.
    """
    declared: dict[str, tuple[DType, tuple[DeclaredDim, ...] | None]] = {}
    for value in inputs:
        if value.name in declared:
            raise ModelError(f"input {value.name!r}: name is defined twice; expected distinct names")
        declared[value.name] = _declared(value)
    _check_names(declared, shapes, where)
    given: dict[str, int | str] = {}
    for name, shape in shapes.items():
        _bind(name, declared[name][1], shape, given)
    dims = {
        name: shapes[name] if name in shapes else _resolved(name, dims, given)
        for name, (_, dims) in declared.items()
    }
    extents = _extents(dims, bounds, where)
    return {
        name: TensorType(dtype, _shape(name, dims[name], extents)) for name, (dtype, _) in declared.items()
    }


def _extents(
    dims: Mapping[str, Sequence[DeclaredDim]], bounds: Mapping[str, Bounds], where: str
) -> dict[str, Extent]:
    """What each named dimension with bounds is in the graph."""
    names = dict.fromkeys(dim for shape in dims.values() for dim in shape if isinstance(dim, str))
    for name, (least, most) in bounds.items():
        if name not in names:
            expected = ", ".join(map(repr, names)) or "none, all dimensions are fixed"
            raise UsageError(f"{where}: no open dimension is named {name!r}; expected one of {expected}")
        if not 1 <= least <= most:
            raise UsageError(
                f"{where}: bounds of dimension {name!r} are wrong; expected 1 <= least <= most, "
                f"got {least}..{most}"
            )
    extents: dict[str, Extent] = {}
    for name, (least, most) in bounds.items():
        symbol = Symbol(_identifier(name, extents), least, most)
        extents[name] = least if least == most else dim_of(symbol)
    return extents


def _identifier(name: str, taken: Mapping[str, Extent]) -> str:
    """A name that expressions can be written with."""
    plain = re.sub(r"\W", "_", name, flags=re.ASCII)
    plain = plain if IDENTIFIER.fullmatch(plain) else f"_{plain}"
    others = set(map(str, taken.values()))
    return next(text for i in itertools.count() if (text := f"{plain}_{i}" if i else plain) not in others)


def _shape(name: str, dims: Sequence[DeclaredDim], extents: Mapping[str, Extent]) -> Shape:
    shape = [extents.get(dim, dim) if isinstance(dim, str) else dim for dim in dims]
    named = [dim for dim in shape if isinstance(dim, str)]
    if named or None in shape:
        example = ",".join("1" if dim is None or isinstance(dim, str) else str(dim) for dim in shape)
        bound = (
            f", or bound it, as in `--dim {named[0]}=1..16`"
            if named
            else f", or name it, as in `--shape {name}={example.replace('1', 'n', 1)} --dim n=1..16`"
        )
        raise UnsupportedError(
            f"input {name!r}: shape is open; expected fixed or bounded dimensions, got {_text(dims)}",
            hint=f"fix it, as in `--shape {name}={example}`{bound}",
        )
    return tuple(extent for extent in shape if extent is not None and not isinstance(extent, str))


def _declared(value: onnx.ValueInfoProto) -> tuple[DType, tuple[DeclaredDim, ...] | None]:
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


def _dim(dim: onnx.TensorShapeProto.Dimension, where: str) -> DeclaredDim:
    if not dim.HasField("dim_value"):
        return str(dim.dim_param) or None
    if dim.dim_value < 0:
        raise ModelError(f"{where}: dimension is negative; expected 0 or more, got {dim.dim_value}")
    return int(dim.dim_value)


def _check_names(declared: Mapping[str, object], shapes: Mapping[str, UserShape], where: str) -> None:
    for name in shapes:
        if name not in declared:
            expected = ", ".join(map(repr, declared)) or "none, the model has no inputs"
            raise UsageError(f"{where}: no input is named {name!r}; expected one of {expected}")


def _bind(
    name: str, dims: tuple[DeclaredDim, ...] | None, shape: UserShape, given: dict[str, int | str]
) -> None:
    """Checks a shape of the user against the model and learns what its symbols stand for."""
    if min((extent for extent in shape if isinstance(extent, int)), default=0) < 0:
        raise UsageError(
            f"input {name!r}: shape is negative; expected extents of 0 or more, got {_text(shape)}"
        )
    if dims is None:
        return
    fits = len(shape) == len(dims) and all(
        dim is None or (given.setdefault(dim, extent) if isinstance(dim, str) else dim) == extent
        for dim, extent in zip(dims, shape, strict=True)
    )
    if not fits:
        known = f" with {given}" if given else ""
        raise UsageError(
            f"input {name!r}: shape does not fit the model; expected {_text(dims)}{known}, got {_text(shape)}"
        )


def _resolved(
    name: str, dims: tuple[DeclaredDim, ...] | None, given: Mapping[str, int | str]
) -> tuple[DeclaredDim, ...]:
    if dims is None:
        raise UnsupportedError(
            f"input {name!r}: has no shape; expected a fixed one", hint=f"pass `--shape {name}=...`"
        )
    return tuple(given.get(dim, dim) if isinstance(dim, str) else dim for dim in dims)


def _text(dims: Sequence[DeclaredDim]) -> str:
    return f"[{', '.join('?' if dim is None else str(dim) for dim in dims)}]"
