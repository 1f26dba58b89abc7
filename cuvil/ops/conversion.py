"""Conversions between element types."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cuvil.ir.graph import Value
from cuvil.ir.op import Attrs, OpDef
from cuvil.ir.types import BY_NUMPY_NAME, BY_ONNX_CODE, Array, DType, TensorType
from cuvil.loops.kernel import Expr, cast
from cuvil.ops.elementwise import check_arity
from cuvil.ops.foreign import ForeignNode, Importer


def _infer_cast(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    check_arity(types, 1)
    return (TensorType(BY_NUMPY_NAME[attrs["to"]], types[0].shape),)


def _evaluate_cast(arrays: Sequence[Array], attrs: Attrs) -> tuple[Array, ...]:
    (array,) = arrays
    dtype = BY_NUMPY_NAME[attrs["to"]]
    if array.dtype.kind == "f" and dtype.kind == "int":
        return (_saturated(array, dtype),)
    with np.errstate(all="ignore"):
        return (array.astype(dtype.numpy),)


def _saturated(array: Array, dtype: DType) -> Array:
    """Floats truncated to integers: out-of-range values become the nearest integer, NaN becomes 0."""
    whole = np.trunc(array.astype(np.float64))
    limit = 2.0 ** (dtype.bits - 1)
    limits = np.iinfo(dtype.numpy)
    inside = np.where((whole >= -limit) & (whole < limit), whole, 0).astype(dtype.numpy)
    return np.asarray(
        np.where(whole >= limit, limits.max, np.where(whole < -limit, limits.min, inside)), dtype.numpy
    )


def _scalar_cast(args: Sequence[Expr], attrs: Attrs) -> Expr:
    return cast(args[0], BY_NUMPY_NAME[attrs["to"]])


CAST = OpDef("cast", _infer_cast, _evaluate_cast, scalar=_scalar_cast, exact=True)
"""Attributes: `to`, the name of the element type.

Numerics: float to integer truncates and saturates, NaN gives 0; wider to narrower integers wrap; every
other conversion rounds to nearest even; anything but zero is true.
"""

OPERATORS = (CAST,)


def convert(node: ForeignNode, value: Value, dtype: DType) -> Value:
    """`value` with another element type; itself where it has it already."""
    return value if value.type.dtype == dtype else node.emit(CAST, [value], {"to": dtype.name})


def _import_cast(node: ForeignNode) -> list[Value]:
    dtype = BY_ONNX_CODE.get(node.attrs["to"])
    if dtype is None:
        raise node.unsupported(f"conversion to ONNX element type {node.attrs['to']}")
    return [convert(node, node.operand(0), dtype)]


def _import_cast_like(node: ForeignNode) -> list[Value]:
    return [convert(node, node.operand(0), node.operand(1).type.dtype)]


ONNX: dict[str, Importer] = {"Cast": _import_cast, "CastLike": _import_cast_like}
