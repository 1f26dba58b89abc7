"""Rounding to whole numbers, signs, and what kind of number an element is.

Numerics: exact. Zeros keep the sign of what was rounded; `sign` of NaN is NaN, of -0 it is +0.
"""

from __future__ import annotations

import numpy as np

from cuvil.ir.graph import Value
from cuvil.ir.types import BOOL, FLOAT32, INT32, INT64, Array
from cuvil.loops.kernel import Expr, absolute, bitcast, compare, logical, select
from cuvil.ops.comparison import EQUAL, OR
from cuvil.ops.elementwise import FLOATS, NUMBERS, elementwise, importer, scalar_constant
from cuvil.ops.foreign import ForeignNode, Importer


def _with_sign_of(x: Expr, size: Expr) -> Expr:
    """`size`, which is not negative, with the sign of `x`."""
    kind = INT32 if x.dtype == FLOAT32 else INT64
    sign = logical("and", bitcast(x, kind), -(2 ** (kind.bits - 1)))
    return bitcast(logical("or", bitcast(size, kind), sign), x.dtype)


def _shift(x: Expr) -> float:
    """From here on every float is a whole number, and below it adding this much rounds to one."""
    return 2.0**23 if x.dtype == FLOAT32 else 2.0**52


def _round(x: Expr) -> Expr:
    """To the nearest whole number, halves to the even one; NaN and infinities stay."""
    shift = _shift(x)
    rounded = _with_sign_of(x, (absolute(x) + shift) - shift)
    return select(compare("lt", absolute(x), shift), rounded, x)


def _floor(x: Expr) -> Expr:
    rounded = _round(x)
    return select(compare("gt", rounded, x), rounded - 1.0, rounded)


def _ceil(x: Expr) -> Expr:
    rounded = _round(x)
    return select(compare("lt", rounded, x), _with_sign_of(x, absolute(rounded + 1.0)), rounded)


def _sign(x: Expr) -> Expr:
    zero = select(compare("eq", x, 0), 0, x)
    return select(compare("gt", x, 0), 1, select(compare("lt", x, 0), -1, zero))


ROUND = elementwise("round", 1, FLOATS, np.rint, _round)
FLOOR = elementwise("floor", 1, FLOATS, np.floor, _floor)
CEIL = elementwise("ceil", 1, FLOATS, np.ceil, _ceil)
SIGN = elementwise("sign", 1, NUMBERS, np.sign, _sign)
IS_NAN = elementwise("is_nan", 1, FLOATS, np.isnan, lambda x: compare("ne", x, x), result=BOOL)

OPERATORS = (ROUND, FLOOR, CEIL, SIGN, IS_NAN)


def _import_is_inf(node: ForeignNode) -> list[Value]:
    x = node.operand(0)
    wanted = [
        value
        for name, value in (("detect_positive", np.inf), ("detect_negative", -np.inf))
        if node.attrs.get(name, 1)
    ]
    if not wanted:
        return [node.builder.constant(_all_false(x))]
    found = [node.emit(EQUAL, [x, scalar_constant(node, x, value)]) for value in wanted]
    return [found[0] if len(found) == 1 else node.emit(OR, found)]


def _all_false(x: Value) -> Array:
    return np.zeros(x.type.shape, np.bool_)


ONNX: dict[str, Importer] = {
    "Round": importer(ROUND, 1),
    "Floor": importer(FLOOR, 1),
    "Ceil": importer(CEIL, 1),
    "Sign": importer(SIGN, 1),
    "IsNaN": importer(IS_NAN, 1),
    "IsInf": _import_is_inf,
}
