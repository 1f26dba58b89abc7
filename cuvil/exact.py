"""The primitive operations of the loop IR on NumPy arrays, defined down to the last bit.

Every function takes arrays or NumPy scalars of one element type, works element by element with the usual
broadcasting, and gives the same bits on any machine: NumPy is used only for operations that IEEE 754 or
integer arithmetic define completely.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from cuvil.ir.types import Array


def fma(a: Array, b: Array, c: Array) -> Array:
    """`a * b + c` with one rounding, to nearest even; float32 or float64."""
    return fma32(a, b, c) if a.dtype == np.float32 else fma64(a, b, c)


@np.errstate(all="ignore")
def fma32(a: Array, b: Array, c: Array) -> Array:
    """`a * b + c` of float32 values with one rounding.

    Numerics: the product is exact in float64. The sum is rounded to odd there, which keeps enough of its
    tail (53 >= 2 * 24 + 2 bits) for the second rounding, to float32, to be the only one that shows.
    """
    product = a.astype(np.float64) * b.astype(np.float64)
    return _sum_to_odd(product, c.astype(np.float64)).astype(np.float32)


@np.errstate(all="ignore")
def fma64(a: Array, b: Array, c: Array) -> Array:
    """`a * b + c` of float64 values with one rounding.

    Numerics: exact for all inputs. Elements whose error terms would overflow or underflow are computed
    with rational arithmetic, about a thousand times slower.

    Source: Boldo and Melquiond, "Emulation of a FMA and Correctly Rounded Sums: Proved Algorithms Using
    Rounding to Odd", IEEE Transactions on Computers 57 (2008).
    """
    product = a * b
    size = np.abs(product)
    regular = (size > 2.0**-900) & (size < 2.0**1000)
    regular &= (np.abs(a) < 2.0**990) & (np.abs(b) < 2.0**990) & (np.abs(c) < 2.0**1000)
    if np.all(regular):
        return _fma_by_error_terms(a, b, c)
    return _fma_by_cases(*np.broadcast_arrays(a, b, c, regular))[()]


def _fma_by_error_terms(a: Array, b: Array, c: Array) -> Array:
    high, low = _two_product(a, b)
    tail_high, tail_low = _two_sum(c, low)
    head, middle = _two_sum(high, tail_high)
    return head + _sum_to_odd(middle, tail_low)


def _fma_by_cases(a: Array, b: Array, c: Array, regular: Array) -> Array:
    finite = np.isfinite(a) & np.isfinite(b)
    exact = (a == 0) | (b == 0) | ~finite | ~np.isfinite(c)
    result = np.where(finite & np.isinf(c), c, a * b + c)
    result = np.where(regular, _fma_by_error_terms(a, b, c), result)
    rest = ~(regular | exact)
    if rest.any():
        rows = np.stack([a[rest], b[rest], c[rest]], axis=-1).tolist()
        result[rest] = [_rational_fma(*row) for row in rows]
    return result


def _rational_fma(a: float, b: float, c: float) -> float:
    """`a * b + c` of finite numbers, `a * b` not zero."""
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return 0.0
    try:
        size = float(abs(exact))
    except OverflowError:
        size = math.inf
    return size if exact > 0 else -size


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """The rounded sum and its error, which together equal `a + b` (Knuth)."""
    total = a + b
    b_part = total - a
    return total, (a - (total - b_part)) + (b - b_part)


def _two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """The rounded product and its error, which together equal `a * b` (Dekker)."""
    product = a * b
    (a_high, a_low), (b_high, b_low) = _split(a), _split(b)
    return product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


def _split(a: Array) -> tuple[Array, Array]:
    """Two halves of at most 26 bits each."""
    scaled = a * 134217729.0  # 2^27 + 1
    high = scaled - (scaled - a)
    return high, a - high


def _sum_to_odd(a: Array, b: Array) -> Array:
    """`a + b` in float64, rounded to odd: if inexact, to the neighbour whose last bit is 1."""
    total, error = _two_sum(a, b)
    inexact = np.abs(error) > 0  # false where the sum is NaN or infinite: the error is NaN then
    rounded_up = (error > 0) != (total > 0)
    truncated = total.view(np.int64) - (inexact & rounded_up)
    odd: Array = (truncated | inexact).view(np.float64)
    return odd


def divide(a: Array, b: Array) -> Array:
    """The quotient. Integers truncate towards zero; x / 0 is 0 and MIN / -1 is MIN."""
    if a.dtype.kind == "f":
        with np.errstate(all="ignore"):
            return np.divide(a, b)
    divisor = _harmless_divisor(b)
    with np.errstate(over="ignore"):
        quotient = np.where(b == -1, np.negative(a), (a - np.fmod(a, divisor)) // divisor)
    return np.where(b == 0, a.dtype.type(0), quotient)[()]


def remainder(a: Array, b: Array) -> Array:
    """The remainder of the truncating division, with the sign of `a`; the remainder by integer 0 is `a`."""
    if a.dtype.kind == "f":
        with np.errstate(all="ignore"):
            return np.fmod(a, b)
    return np.where(b == 0, a, np.fmod(a, _harmless_divisor(b)))[()]


def _harmless_divisor(b: Array) -> Array:
    return np.where((b == 0) | (b == -1), b.dtype.type(1), b)


def shift_left(value: Array, bits: Array) -> Array:
    """Raises: ValueError where `bits` is outside 0 <= bits < width."""
    _check_shift(value, bits)
    return np.left_shift(value, bits)


def shift_right(value: Array, bits: Array) -> Array:
    """The arithmetic shift. Raises: ValueError where `bits` is outside 0 <= bits < width."""
    _check_shift(value, bits)
    return np.right_shift(value, bits)


def _check_shift(value: Array, bits: Array) -> None:
    width = value.dtype.itemsize * 8
    if np.any((bits < 0) | (bits >= width)):
        raise ValueError(f"shift: amount out of range; expected 0 to {width - 1}, got {bits!r}")


def select(condition: Array, then: Array, otherwise: Array) -> Array:
    return np.where(condition, then, otherwise)[()]


def bitcast(value: Array, dtype: np.dtype[Any]) -> Array:
    """The same bits as another type of the same size."""
    if value.dtype.itemsize != dtype.itemsize:
        raise TypeError(f"bitcast: sizes differ; expected a type like {value.dtype}, got {dtype}")
    view: Array = value.view(dtype)
    return view


@np.errstate(all="ignore")
def cast(value: Array, dtype: np.dtype[Any]) -> Array:
    """Converts as the numerics contract says.

    Numerics: float to integer truncates towards zero and saturates, NaN gives 0. Integers to narrower ones
    wrap. Integers to float, and float64 to float32, round once, to nearest even; subnormal results are
    kept. To bool: whether it differs from zero, so NaN gives true.
    """
    if dtype.kind == "b":
        differs: Array = value != value.dtype.type(0)
        return differs
    if value.dtype.kind == "f" and dtype.kind == "i":
        return _saturate(value, dtype)
    return value.astype(dtype)


def _saturate(value: Array, dtype: np.dtype[Any]) -> Array:
    limits = np.iinfo(dtype)
    low, beyond = float(limits.min), -float(limits.min)
    inside = (value >= low) & (value < beyond)
    truncated = np.where(inside, value, 0.0).astype(dtype)
    outside = np.where(value < low, limits.min, np.where(value >= beyond, limits.max, 0)).astype(dtype)
    return np.where(inside, truncated, outside)[()]


BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": divide,
    "rem": remainder,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "shl": shift_left,
    "shr": shift_right,
}
UNARY: dict[str, Callable[[Array], Array]] = {
    "neg": operator.neg,
    "abs": operator.abs,
    "sqrt": np.sqrt,
    "not": operator.invert,
}
"""Opcodes of the loop IR that need nothing but their arguments; NumPy scalars are fastest with operators."""
