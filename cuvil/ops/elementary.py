"""Elementary functions as expressions of the loop IR: one source for all targets, vector body and remainder.

Each takes and gives float32. It is evaluated in float64, by a fixed polynomial with fused steps, and rounded
to float32 once; so its error is half a unit in the last place (ULP) plus little more than the polynomial's.
There are no tables, no branches, at most one division, and only such integer operations as every vector
unit has on 64-bit lanes. An argument of another type is refused with `UnsupportedError`.

`tests/numerics/fit_elementary.py` computes the coefficients; each list states its largest relative error.
The stated bounds hold for all 2^32 arguments, as `tests/numerics/compiled.py` shows; that of `power`, which
has two arguments and a series instead of a fitted polynomial, is held to samples.
"""

from __future__ import annotations

import math

from cuvil.errors import UnsupportedError
from cuvil.ir.types import FLOAT32, FLOAT64, INT32, INT64
from cuvil.loops.kernel import (
    Const,
    Expr,
    absolute,
    bitcast,
    cast,
    compare,
    fma,
    logical,
    maximum,
    minimum,
    negate,
    select,
    shift_left,
    shift_right,
)

LN2 = float.fromhex("0x1.62e42fefa39efp-1")
LOG2_E = float.fromhex("0x1.71547652b82fep+0")

EXPONENT_BIAS = 1023
FRACTION_BITS = 52
EXPONENT_MASK = 0x7FF0_0000_0000_0000
FRACTION_MASK = 0x000F_FFFF_FFFF_FFFF
SIGN_OF_FLOAT32 = -(2**31)

INTEGER_SHIFT = 1.5 * 2.0**52
"""Adding it rounds a small float64 to an integer, which then stands in the low bits of the sum."""

COUNTER = 2.0**52
COUNTER_BITS = 0x4330_0000_0000_0000
"""2^52 as a float64: putting an integer below 2^52 into its low bits adds that integer."""


def coefficients(*hexadecimal: str) -> tuple[float, ...]:
    return tuple(map(float.fromhex, hexadecimal))


EXP2 = coefficients(
    "0x1.0000000260c95p+0",
    "0x1.62e430c7ea6d0p-1",
    "0x1.ebfbdadcafe71p-3",
    "0x1.c6aed4b89c3d1p-5",
    "0x1.3b2dbbe1fbffcp-7",
    "0x1.5f456af89f731p-10",
    "0x1.41d3181b5566fp-13",
)
"""2^f for |f| <= 1/2, relative error 2^-29.0."""

EXP2_SLOPE = coefficients(
    "0x1.62e42fefd33c5p-1",
    "0x1.ebfbe0452fa06p-3",
    "0x1.c6b08cb145bcap-5",
    "0x1.3b2a1c36a7b11p-7",
    "0x1.5d88bddff479dp-10",
    "0x1.443f620185182p-13",
    "0x1.ffcb9f3ab5929p-17",
)
"""(2^f - 1) / f for |f| <= 1/2, relative error 2^-32.0."""

LOG1P_SLOPE = coefficients(
    "0x1.00000000265d3p+0",
    "-0x1.0000001c65e43p-1",
    "0x1.5555541d04547p-2",
    "-0x1.ffffa6b6f747bp-3",
    "0x1.999a31b613fb6p-3",
    "-0x1.55695241e07f6p-3",
    "0x1.24912f6cbc544p-3",
    "-0x1.fc5674e554746p-4",
    "0x1.c36d06bb225bap-4",
    "-0x1.bdb16cc469663p-4",
    "0x1.b7a94bd1245fap-4",
    "-0x1.ea4be20af0ab2p-5",
)
"""log(1 + f) / f for 1/sqrt(2) <= 1 + f <= sqrt(2), relative error 2^-33.2."""

ERF_LIMIT = 3.9375
"""From 3.92 on erf rounds to 1."""

ERF_CENTRE = ERF_LIMIT**2 / 2

ERF_SLOPE = coefficients(
    "0x1.6fc14a09f5897p-2",
    "-0x1.7b02842e3057fp-6",
    "0x1.234d714827045p-9",
    "-0x1.ea1a56b05556ap-13",
    "0x1.a4b0c3757fc64p-16",
    "-0x1.63bf7b528c0cap-19",
    "0x1.21de015cd2020p-22",
    "-0x1.c0c6d081e8934p-26",
    "0x1.47ab52ea30670p-29",
    "-0x1.c247488c894f3p-33",
    "0x1.20af6d32790cap-36",
    "-0x1.55a2598b262e7p-40",
    "0x1.8845132ce0a16p-44",
    "-0x1.cda241d028e8bp-48",
    "0x1.b8b78662fa841p-52",
    "-0x1.ead3b120ba894p-57",
    "0x1.14a124dbb82bep-60",
    "-0x1.33987b001407bp-63",
    "0x1.bea212eef1c9dp-68",
)
"""erf(x) / x as a polynomial in x^2 - ERF_CENTRE, for |x| <= ERF_LIMIT, relative error 2^-32.2."""

EXP_LOWEST = -104.0
"""Here exp rounds to 0; the least argument that does not, -103.97, is left to the rounding."""

EXP_HIGHEST = 89.0
"""Here exp rounds to infinity; the least argument that does, 88.723, is left to the rounding."""

TANH_LIMIT = 10.0
"""From 9.02 on tanh rounds to 1."""

LOG_TERMS = 11
"""Of the series in `_accurate_log`; the first one left out is below 2^-58."""

ROOT_HALF_BITS = 0x3FE6_A09E_667F_3BCD
"""1/sqrt(2) as a float64."""


def exp(x: Expr) -> Expr:
    """e^x.

    Numerics: at most 0.53 ULP; exp(-inf) = 0, exp(inf) = inf, NaN for NaN; subnormal results are kept.
    """
    _check_float32("exp", x)
    bounded = maximum(minimum(x, EXP_HIGHEST), EXP_LOWEST)
    f, scale = _split_power(cast(bounded, FLOAT64), LOG2_E)
    return cast(_horner(EXP2, f) * scale, FLOAT32)


def sigmoid(x: Expr) -> Expr:
    """1 / (1 + e^-x).

    Numerics: at most 0.53 ULP, down to the subnormal results of its left tail; sigmoid(-inf) = 0,
    sigmoid(inf) = 1, NaN for NaN.
    """
    _check_float32("sigmoid", x)
    bounded = maximum(minimum(x, -EXP_LOWEST), EXP_LOWEST)
    f, scale = _split_power(cast(bounded, FLOAT64), -LOG2_E)
    return cast(1.0 / fma(_horner(EXP2, f), scale, 1.0), FLOAT32)


def tanh(x: Expr) -> Expr:
    """(e^2x - 1) / (e^2x + 1).

    Numerics: at most 0.51 ULP; odd to the last bit, so tanh(-0) = -0; tanh(inf) = 1, NaN for NaN.
    """
    _check_float32("tanh", x)
    size = minimum(absolute(x), TANH_LIMIT)
    f, scale = _split_power(cast(size, FLOAT64), 2 * LOG2_E)
    # e^2x - 1 without cancellation: at small x, where the difference is small, the scale is exactly 1.
    difference = fma(_horner(EXP2_SLOPE, f) * f, scale, scale - 1.0)
    return _with_sign_of(x, cast(difference / (difference + 2.0), FLOAT32))


def erf(x: Expr) -> Expr:
    """The error function, 2/sqrt(pi) times the integral of e^(-t^2) from 0 to x.

    Numerics: at most 0.51 ULP; odd to the last bit, so erf(-0) = -0; erf(inf) = 1, NaN for NaN.
    """
    _check_float32("erf", x)
    bounded = cast(maximum(minimum(x, ERF_LIMIT), -ERF_LIMIT), FLOAT64)
    return cast(_two_chains(ERF_SLOPE, fma(bounded, bounded, -ERF_CENTRE)) * bounded, FLOAT32)


def log(x: Expr) -> Expr:
    """The natural logarithm.

    Numerics: at most 0.51 ULP, subnormal arguments included; log(1) = +0, log(0) = log(-0) = -inf,
    log(inf) = inf; NaN for NaN and below zero.
    """
    _check_float32("log", x)
    exponent, f = _split_logarithm(cast(x, FLOAT64))
    value = cast(fma(exponent, LN2, _two_chains(LOG1P_SLOPE, f) * f), FLOAT32)
    value = select(compare("lt", x, math.inf), value, x)
    outside = select(compare("eq", x, 0.0), Const(-math.inf, FLOAT32), Const(math.nan, FLOAT32))
    return select(compare("le", x, 0.0), outside, value)


def power(x: Expr, y: Expr) -> Expr:
    """x^y, with the special cases of IEEE 754's pow.

    Numerics: at most 0.54 ULP; x^0 and 1^y are 1, NaN or not; a finite x below zero needs a whole y,
    whose oddness gives the sign, also that of zeros and infinities.
    """
    _check_float32("pow", x)
    size, big = absolute(x), compare("ge", absolute(y), 2.0**24)
    value = _exp_of(cast(y, FLOAT64) * _accurate_log(cast(size, FLOAT64)))
    ordered_one = logical("and", compare("eq", size, 1.0), compare("eq", y, y))
    value = select(ordered_one, Const(1.0, FLOAT32), value)
    whole = logical("or", big, compare("eq", cast(cast(y, INT64), FLOAT32), y))
    odd = compare("eq", logical("and", cast(y, INT64), 1), 1)
    odd = logical("and", logical("and", odd, whole), negate(big))
    value = select(odd, _with_sign_of(x, value), value)
    below = logical("and", compare("lt", x, 0.0), compare("gt", x, -math.inf))
    undefined = logical("and", below, negate(whole))
    value = select(undefined, Const(math.nan, FLOAT32), value)
    one = logical("or", compare("eq", x, 1.0), compare("eq", y, 0.0))
    return select(one, Const(1.0, FLOAT32), value)


def _exp_of(x: Expr) -> Expr:
    """e^x of a float64, as a float32."""
    f, scale = _split_power(maximum(minimum(x, EXP_HIGHEST), EXP_LOWEST), LOG2_E)
    return cast(_horner(EXP2, f) * scale, FLOAT32)


def _accurate_log(x: Expr) -> Expr:
    """The logarithm of a float64 that was a float32 of 0 or more, to 2^-49.

    It is for a product, which multiplies its error.

    log(1 + f) = 2 * (s + s^3 / 3 + s^5 / 5 + ...) with s = f / (2 + f), which is at most 0.172.
    """
    exponent, f = _split_logarithm(x)
    s = f / (f + 2.0)
    series = _horner(tuple(2.0 / (2 * k + 1) for k in range(LOG_TERMS)), s * s)
    value = fma(exponent, LN2, series * s)
    value = select(compare("lt", x, math.inf), value, x)
    return select(compare("eq", x, 0.0), Const(-math.inf, FLOAT64), value)


def _check_float32(function: str, x: Expr) -> None:
    if x.dtype != FLOAT32:
        raise UnsupportedError(f"{function}: no version for this type; expected f32, got {x.dtype}")


def _horner(polynomial: tuple[float, ...], x: Expr) -> Expr:
    value: Expr = Const(polynomial[-1], FLOAT64)
    for coefficient in reversed(polynomial[:-1]):
        value = fma(value, x, coefficient)
    return value


def _two_chains(polynomial: tuple[float, ...], x: Expr) -> Expr:
    """Even and odd powers apart: half the latency of one long chain, for one more multiplication."""
    square = x * x
    return fma(_horner(polynomial[1::2], square), x, _horner(polynomial[::2], square))


def _split_power(x: Expr, factor: float) -> tuple[Expr, Expr]:
    """f and 2^n such that 2^(x * factor) = 2^f * 2^n, with |f| <= 1/2 and n an integer.

    The integer appears in the low bits of a sum, already biased: shifted to the exponent they are 2^n.
    """
    shift = INTEGER_SHIFT + EXPONENT_BIAS
    shifted = fma(x, factor, shift)
    f = fma(x, factor, shift - shifted)
    return f, bitcast(shift_left(bitcast(shifted, INT64), FRACTION_BITS), FLOAT64)


def _split_logarithm(x: Expr) -> tuple[Expr, Expr]:
    """n and f such that x = 2^n * (1 + f), for a normal x > 0, with 1 + f between 1/sqrt(2) and sqrt(2)."""
    offset = (EXPONENT_BIAS << FRACTION_BITS) - ROOT_HALF_BITS
    bits = bitcast(x, INT64) + offset
    biased = shift_right(logical("and", bits, EXPONENT_MASK), FRACTION_BITS)
    exponent = bitcast(logical("or", biased, COUNTER_BITS), FLOAT64) - (COUNTER + EXPONENT_BIAS)
    mantissa = bitcast(logical("and", bits, FRACTION_MASK) + ROOT_HALF_BITS, FLOAT64)
    return exponent, mantissa - 1.0


def _with_sign_of(x: Expr, size: Expr) -> Expr:
    """`size`, which is not negative, with the sign of `x`."""
    sign = logical("and", bitcast(x, INT32), SIGN_OF_FLOAT32)
    return bitcast(logical("or", bitcast(size, INT32), sign), FLOAT32)
