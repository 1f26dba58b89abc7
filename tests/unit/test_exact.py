"""The exact primitives against rational arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuvil import exact
from cuvil.ir.types import Array

FORMATS: dict[Any, tuple[int, int]] = {np.float32: (24, -149), np.float64: (53, -1074)}
"""Precision and exponent of the smallest subnormal."""


def rounded(value: Fraction, kind: Any) -> float:
    """The nearest number of a float type, ties to even, by integer arithmetic alone."""
    precision, smallest = FORMATS[kind]
    if value == 0:
        return 0.0
    exponent = abs(value.numerator).bit_length() - value.denominator.bit_length()
    if abs(value) < Fraction(2) ** exponent:
        exponent -= 1
    unit = Fraction(2) ** max(exponent - precision + 1, smallest)
    result = round(value / unit) * unit  # round() of a Fraction ties to even
    if abs(result) > Fraction(float(np.finfo(kind).max)):
        return math.inf if value > 0 else -math.inf
    return float(result) or (0.0 if value > 0 else -0.0)


def same_bits(actual: Array, expected: Array) -> bool:
    """Equal bits, all NaNs being alike."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.dtype == expected.dtype
    alike = (np.isnan(actual) & np.isnan(expected)) | (
        (actual == expected) & (np.signbit(actual) == np.signbit(expected))
    )
    return bool(np.all(alike))


def random_floats(kind: Any, count: int, seed: int) -> Array:
    """Finite values of all exponents, with few and with many significant bits."""
    word: Any = {np.float32: np.uint32, np.float64: np.uint64}[kind]
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, np.iinfo(word).max, count, dtype=word, endpoint=True)
    short = rng.integers(0, 2, count, dtype=bool)
    bits = np.where(short, bits & ~word((1 << (FORMATS[kind][0] - 5)) - 1), bits)
    values: Array = bits.view(kind)
    return np.where(np.isfinite(values), values, kind(1.5))


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_fma_of_any_finite_values_rounds_once(kind: Any) -> None:
    a, b, c = (random_floats(kind, 3000, seed) for seed in (1, 2, 3))
    check_fma(kind, a, b, c)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_fma_of_cancelling_values_rounds_once(kind: Any) -> None:
    rng = np.random.default_rng(4)
    a, b = rng.standard_normal((2, 3000)).astype(kind)
    c = -(a * b) * (1 + rng.integers(-2, 3, 3000) * np.finfo(kind).eps).astype(kind)
    check_fma(kind, a, b, c)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_fma_next_to_a_tie_rounds_once(kind: Any) -> None:
    """`c` plus half a unit in its last place, give or take a tiny product."""
    precision, _ = FORMATS[kind]
    c = np.ldexp(kind(1), np.arange(-60, 60)).astype(kind)
    half = np.ldexp(c, -precision)
    sticky = np.array([-1, 0, 1], kind)[:, None] * kind(np.finfo(kind).eps)
    one = np.ones_like(c)
    check_fma(kind, *(x.ravel() for x in np.broadcast_arrays(half, 1 + sticky, c)))
    check_fma(kind, *(x.ravel() for x in np.broadcast_arrays(one, half * (1 + sticky), c * kind(1.5))))


def check_fma(kind: Any, a: Array, b: Array, c: Array) -> None:
    actual = exact.fma(a, b, c)
    rows = zip(a.tolist(), b.tolist(), c.tolist(), strict=True)
    expected = [rounded(Fraction(x) * Fraction(y) + Fraction(z), kind) for x, y, z in rows]
    nonzero = np.array(expected) != 0
    assert same_bits(actual[nonzero], np.array(expected, kind)[nonzero])
    assert not np.any(actual[~nonzero])


@given(*[st.floats(width=64)] * 3)
def test_fma64_of_single_values_rounds_once(a: float, b: float, c: float) -> None:
    actual = exact.fma64(np.array(a), np.array(b), np.array(c))
    if all(map(math.isfinite, (a, b, c))):
        assert float(actual) == rounded(Fraction(a) * Fraction(b) + Fraction(c), np.float64)
    elif math.isinf(c) and math.isfinite(a) and math.isfinite(b):
        assert actual == c
    else:
        with np.errstate(invalid="ignore", over="ignore"):
            assert same_bits(actual, np.array(a) * np.array(b) + np.array(c))


INF, NAN = math.inf, math.nan


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("a", "b", "c", "expected"),
    [
        (0.0, -1.0, 0.0, 0.0),
        (0.0, -1.0, -0.0, -0.0),
        (2.0, 3.0, -6.0, 0.0),
        (0.0, INF, 1.0, NAN),
        (0.0, INF, NAN, NAN),
        (INF, 1.0, -INF, NAN),
        (INF, -1.0, 5.0, -INF),
        (2.0, 3.0, -INF, -INF),
        (3e38, -3e38, INF, INF),
        (NAN, 0.0, 1.0, NAN),
    ],
)
def test_fma_of_special_values(kind: Any, a: float, b: float, c: float, expected: float) -> None:
    actual = exact.fma(np.array([a], kind), np.array([b], kind), np.array([c], kind))
    assert same_bits(actual, np.array([expected], kind))


def test_fma64_keeps_the_sign_of_a_product_that_vanishes() -> None:
    a, b = np.array([1e-300, -1e-300]), np.array([1e-300, 1e-300])
    assert same_bits(exact.fma64(a, b, np.array([-0.0, 0.0])), np.array([0.0, -0.0]))


def test_fma64_with_an_overflowing_product_is_exact() -> None:
    a, c = np.array([2.0**1000] * 2), np.array([-(2.0**1023), -INF])
    assert same_bits(exact.fma64(a, np.array([2.0**24, 2.0**100]), c), np.array([2.0**1023, -INF]))


@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_integer_division_is_defined_everywhere(kind: Any) -> None:
    low, high = np.iinfo(kind).min, np.iinfo(kind).max
    values = [low, low + 1, -7, -2, -1, 0, 1, 2, 7, high - 1, high]
    for a in values:
        for b in values:
            x, y = np.array([a], kind), np.array([b], kind)
            quotient, rest = exact.divide(x, y), exact.remainder(x, y)
            assert quotient.dtype == rest.dtype == kind
            assert (quotient.item(), rest.item()) == divided(a, b, low)


def divided(a: int, b: int, low: int) -> tuple[int, int]:
    if b == 0:
        return 0, a
    if (a, b) == (low, -1):
        return low, 0
    quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return quotient, a - quotient * b


@pytest.mark.parametrize("target", [np.int32, np.int64])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_float_to_integer_saturates(kind: Any, target: Any) -> None:
    edges = [s * 2.0**e for e in (31, 32, 63, 64) for s in (-1, 1)] + [0.5, 2.5, -0.5, -2.5, INF, -INF, 0.0]
    exacts = np.array(edges, kind)
    values = np.concatenate([exacts, np.nextafter(exacts, kind(INF)), np.nextafter(exacts, kind(-INF))])
    limits = np.iinfo(target)
    actual = exact.cast(values, np.dtype(target))
    assert actual.dtype == target
    for value, result in zip(values.tolist(), actual.tolist(), strict=True):
        truncated = int(value) if math.isfinite(value) else (limits.max if value > 0 else limits.min)
        assert result == min(max(truncated, limits.min), limits.max), value
    assert exact.cast(np.array([NAN], kind), np.dtype(target)) == 0


@pytest.mark.parametrize("target", [np.float32, np.float64])
def test_integer_to_float_rounds_once(target: Any) -> None:
    rng = np.random.default_rng(5)
    values = rng.integers(-(2**63), 2**63, 5000) >> rng.integers(0, 64, 5000)
    ties = (1 << np.arange(25, 62)) + (1 << np.arange(1, 38))
    values = np.concatenate([values, ties, ties - 1, ties + 1, -ties])
    expected = np.array([rounded(Fraction(value), target) for value in values.tolist()], target)
    assert same_bits(exact.cast(values, np.dtype(target)), expected)


def test_float64_to_float32_rounds_once() -> None:
    rng = np.random.default_rng(6)
    values = np.ldexp(rng.standard_normal(5000), rng.integers(-160, 130, 5000))
    singles = random_floats(np.float32, 2000, 7).astype(np.float64)
    ties = (singles + np.nextafter(singles.astype(np.float32), np.float32(0)).astype(np.float64)) / 2
    values = np.concatenate([values, ties, np.nextafter(ties, 0), [2.0**-150, -(2.0**-150), 2.0**128]])
    expected = np.array([rounded(Fraction(value), np.float32) for value in values.tolist()], np.float32)
    assert same_bits(exact.cast(values, np.dtype(np.float32)), expected)


def test_other_casts() -> None:
    wide = np.array([2**32 + 5, -1, 2**31], np.int64)
    assert exact.cast(wide, np.dtype(np.int32)).tolist() == [5, -1, -(2**31)]
    assert exact.cast(np.array([0.0, -0.0, NAN, 1e-40], np.float32), np.dtype(bool)).tolist() == [0, 0, 1, 1]
    assert exact.cast(np.array([True, False]), np.dtype(np.float32)).tolist() == [1.0, 0.0]


@settings(max_examples=50)
@given(st.integers(-(2**31), 2**31 - 1), st.integers(0, 31))
def test_shifts(value: int, bits: int) -> None:
    x, n = np.array([value], np.int32), np.array([bits], np.int32)
    assert exact.shift_right(x, n).item() == value >> bits
    assert (exact.shift_left(x, n).item() - (value << bits)) % 2**32 == 0


@pytest.mark.parametrize("bits", [-1, 32])
def test_a_shift_by_the_width_is_refused(bits: int) -> None:
    with pytest.raises(ValueError, match="amount out of range"):
        exact.shift_left(np.array([1], np.int32), np.array([bits], np.int32))


def test_bitcast_keeps_bits_and_refuses_other_sizes() -> None:
    value = np.array([-0.0, NAN], np.float32)
    assert exact.bitcast(value, np.dtype(np.int32))[0] == -(2**31)
    assert same_bits(exact.bitcast(exact.bitcast(value, np.dtype(np.int32)), value.dtype), value)
    with pytest.raises(TypeError, match="sizes differ"):
        exact.bitcast(value, np.dtype(np.int64))


def test_comparisons_with_nan_are_false_but_ne() -> None:
    nan, one = np.array([NAN], np.float32), np.array([1], np.float32)
    truths = {name: bool(exact.BINARY[name](nan, one)[0]) for name in ("eq", "ne", "lt", "le", "gt", "ge")}
    assert truths == {"eq": False, "ne": True, "lt": False, "le": False, "gt": False, "ge": False}


def test_square_root_rounds_once() -> None:
    values = np.abs(random_floats(np.float32, 2000, 8))
    roots = exact.UNARY["sqrt"](values)
    for value, root in zip(values.tolist(), roots, strict=True):
        below, above = np.nextafter(root, np.float32(0)), np.nextafter(root, np.float32(INF))
        low = (Fraction(float(below)) + Fraction(float(root))) / 2
        high = (Fraction(float(above)) + Fraction(float(root))) / 2
        assert low**2 <= Fraction(value) <= high**2
