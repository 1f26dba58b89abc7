"""Elementwise arithmetic, and how elementwise operators of all families are defined.

The operands of an elementwise operator broadcast to one shape. The operator is given by a scalar
expression, from which loops are made, and by a NumPy function of whole arrays, its independent meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np

from cuvil.errors import ModelError, UnsupportedError
from cuvil.ir.dims import agree
from cuvil.ir.graph import Value
from cuvil.ir.op import Attrs, OpDef
from cuvil.ir.types import FLOAT32, FLOAT64, INT32, INT64, Array, DType, Shape, TensorType
from cuvil.loops.kernel import Expr, absolute, as_expr, compare, logical, maximum, minimum, select, sqrt
from cuvil.ops.foreign import ForeignNode, Importer

FLOATS = (FLOAT32, FLOAT64)
INTS = (INT32, INT64)
NUMBERS = FLOATS + INTS


def broadcast_shape(shapes: Sequence[Shape]) -> Shape:
    """The common shape by ONNX's (and NumPy's) multidirectional rule.

    Raises:
        ModelError: two extents differ and neither is 1.
        UnsupportedError: named dimensions leave it open whether they do.
    """
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    result = []
    for axis, extents in enumerate(zip(*padded, strict=True)):
        others = list(dict.fromkeys(extent for extent in extents if extent != 1))
        if not all(agree(others[0], other) for other in others[1:]):
            got = " and ".join(str(list(shape)) for shape in shapes)
            raise ModelError(
                f"shapes do not broadcast; expected equal extents, or 1, at axis {axis} of {rank}, got {got}"
            )
        result.append(others[0] if others else 1)
    return tuple(result)


def check_arity(types: Sequence[TensorType], arity: int) -> None:
    if len(types) != arity:
        raise ModelError(f"wrong number of operands; expected {arity}, got {len(types)}")


def check_dtype(dtype: DType, supported: Collection[DType]) -> None:
    if dtype not in supported:
        expected = " or ".join(each.name for each in supported)
        raise UnsupportedError(f"element type is not supported; expected {expected}, got {dtype.name}")


def common_dtype(types: Sequence[TensorType]) -> DType:
    dtypes = {operand.dtype for operand in types}
    if len(dtypes) != 1:
        got = ", ".join(operand.dtype.name for operand in types)
        raise ModelError(f"operands have different element types; expected one type, got {got}")
    return types[0].dtype


def elementwise(
    name: str,
    arity: int,
    dtypes: Collection[DType],
    meaning: Callable[..., Array],
    scalar: Callable[..., Expr],
    *,
    result: DType | None = None,
    exact: bool = True,
) -> OpDef:
    """An operator without attributes on operands of one element type.

    Args:
        dtypes: the element types that it takes.
        meaning: the result from whole arrays.
        scalar: the result from one expression an operand.
        result: the element type of the result where it is not the operands'.
    """

    def infer(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        check_arity(types, arity)
        dtype = common_dtype(types)
        check_dtype(dtype, dtypes)
        return (TensorType(result or dtype, broadcast_shape([operand.shape for operand in types])),)

    def evaluate(arrays: Sequence[Array], attrs: Attrs) -> tuple[Array, ...]:
        with np.errstate(all="ignore"):
            value = meaning(*arrays)
        return (np.asarray(value, (result.numpy if result else arrays[0].dtype)),)

    return OpDef(name, infer, evaluate, scalar=lambda args, attrs: scalar(*args), exact=exact)


def importer(op: OpDef, arity: int) -> Importer:
    """Imports a foreign operator that is exactly `op`."""
    return lambda node: [node.emit(op, [node.operand(i) for i in range(arity)])]


def _quotient(a: Array, b: Array) -> Array:
    """Division; on integers truncated, 0 where the divisor is 0, MIN for MIN / -1."""
    if a.dtype.kind == "f":
        return np.asarray(a / b)
    trivial = (b == 0) | (b == -1)
    divisor = np.where(trivial, 1, b).astype(a.dtype)
    floor = np.floor_divide(a, divisor)
    inexact = floor * divisor != a
    truncated = floor + (inexact & ((a < 0) != (divisor < 0)))
    return np.where(b == 0, 0, np.where(b == -1, -a, truncated))


def _remainder(a: Array, b: Array) -> Array:
    """The remainder of truncated division, with the dividend's sign; the dividend where the divisor is 0."""
    return np.where(b == 0, a, a - _quotient(a, b) * b)


def _modulus(a: Array, b: Array) -> Array:
    """The remainder with the divisor's sign; the dividend where the divisor is 0."""
    rest = _remainder(a, b)
    return np.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)


def _modulus_scalar(a: Expr, b: Expr) -> Expr:
    rest = a % b
    differs = logical("xor", compare("lt", rest, 0), compare("lt", b, 0))
    return select(logical("and", compare("ne", rest, 0), differs), rest + b, rest)


def _larger(a: Array, b: Array) -> Array:
    return np.where((b > a) | (b != b), b, a)


def _smaller(a: Array, b: Array) -> Array:
    return np.where((b < a) | (b != b), b, a)


ADD = elementwise("add", 2, NUMBERS, lambda a, b: a + b, lambda a, b: a + b)
SUB = elementwise("sub", 2, NUMBERS, lambda a, b: a - b, lambda a, b: a - b)
MUL = elementwise("mul", 2, NUMBERS, lambda a, b: a * b, lambda a, b: a * b)
DIV = elementwise("div", 2, NUMBERS, _quotient, lambda a, b: a / b)
REM = elementwise("rem", 2, INTS, _remainder, lambda a, b: a % b)
MOD = elementwise("mod", 2, INTS, _modulus, _modulus_scalar)
NEG = elementwise("neg", 1, NUMBERS, lambda x: -x, lambda x: -x)
ABS = elementwise("abs", 1, NUMBERS, np.abs, absolute)
SQRT = elementwise("sqrt", 1, FLOATS, np.sqrt, sqrt)
RECIPROCAL = elementwise("reciprocal", 1, FLOATS, lambda x: 1 / x, lambda x: as_expr(1.0, x.dtype) / x)
MAXIMUM = elementwise("maximum", 2, NUMBERS, _larger, maximum)
MINIMUM = elementwise("minimum", 2, NUMBERS, _smaller, minimum)

OPERATORS = (ADD, SUB, MUL, DIV, REM, MOD, NEG, ABS, SQRT, RECIPROCAL, MAXIMUM, MINIMUM)


def _variadic(op: OpDef) -> Importer:
    """Combines any number of operands from the left."""

    def load(node: ForeignNode) -> list[Value]:
        return [_fold(node, op)]

    return load


def _fold(node: ForeignNode, op: OpDef) -> Value:
    total = node.operand(0)
    for position in range(1, len(node.operands)):
        total = node.emit(op, [total, node.operand(position)])
    return total


def scalar_constant(node: ForeignNode, like: Value, value: float) -> Value:
    """A constant without axes, of the element type of `like`."""
    return node.builder.constant(np.asarray(value, like.type.dtype.numpy))


def _import_mean(node: ForeignNode) -> list[Value]:
    total = _fold(node, ADD)
    return [node.emit(DIV, [total, scalar_constant(node, total, len(node.operands))])]


def _import_mod(node: ForeignNode) -> list[Value]:
    return [node.emit(REM if node.attrs.get("fmod", 0) else MOD, [node.operand(0), node.operand(1)])]


ONNX: dict[str, Importer] = {
    "Add": importer(ADD, 2),
    "Sub": importer(SUB, 2),
    "Mul": importer(MUL, 2),
    "Div": importer(DIV, 2),
    "Neg": importer(NEG, 1),
    "Abs": importer(ABS, 1),
    "Sqrt": importer(SQRT, 1),
    "Reciprocal": importer(RECIPROCAL, 1),
    "Mod": _import_mod,
    "Sum": _variadic(ADD),
    "Max": _variadic(MAXIMUM),
    "Min": _variadic(MINIMUM),
    "Mean": _import_mean,
}
