"""Errors of the elementary functions, through the loop interpreter, against their promised bounds."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from cuvil.errors import UnsupportedError
from cuvil.interp import run_kernel
from cuvil.ir.types import FLOAT64, Array
from cuvil.loops.kernel import Const
from cuvil.ops import elementary
from tests.numerics.compiled import compiled, this_machine
from tests.numerics.sweep import SUBJECTS, Subject, kernel_of, patterns, sweep, ulp_errors, worst_error

INF, NAN = math.inf, math.nan
SAMPLE_STEP = 2039
"""Prime, so that the low bits of the sample differ; gives 2.1 million of the 2^32 arguments."""
COLUMNS = 1 << 14


def interpreted(subject: Subject) -> Callable[[Array], Array]:
    """The function as the interpreter runs it; the last row is filled up with zeros."""

    def run(arguments: Array) -> Array:
        rows = -(-len(arguments) // COLUMNS)
        x = np.zeros((rows, COLUMNS), np.float32)
        x.ravel()[: len(arguments)] = arguments
        y = np.empty_like(x)
        run_kernel(kernel_of(subject, rows, COLUMNS), [x, y])
        results: Array = y.ravel()[: len(arguments)]
        return results

    return run


def values_of(name: str, *arguments: float) -> Array:
    x = np.array([arguments], np.float32)
    y = np.empty_like(x)
    run_kernel(kernel_of(SUBJECTS[name], 1, len(arguments)), [x, y])
    row: Array = y[0]
    return row


@pytest.mark.parametrize("name", SUBJECTS)
def test_errors_over_all_exponents_stay_below_the_bound(name: str) -> None:
    subject = SUBJECTS[name]
    worst = sweep(interpreted(subject), subject.reference, patterns(step=SAMPLE_STEP))
    assert worst.error_ulp <= subject.bound_ulp, worst


@pytest.mark.parametrize("name", SUBJECTS)
def test_errors_where_results_vary_stay_below_the_bound(name: str) -> None:
    """Most exponents have trivial results: sample those that have not, evenly."""
    subject = SUBJECTS[name]
    rng = np.random.default_rng(11)
    arguments = np.concatenate([rng.uniform(-limit, limit, 40_000) for limit in (0.5, 2, 4, 11, 110)]).astype(
        np.float32
    )
    worst = worst_error(interpreted(subject), subject.reference, arguments)
    assert worst.error_ulp <= subject.bound_ulp, worst


@pytest.mark.parametrize("name", SUBJECTS)
def test_errors_around_every_boundary_stay_below_the_bound(name: str) -> None:
    """All neighbours, on both sides of zero, of constants, limits and changes of the reduced range."""
    subject = SUBJECTS[name]
    halves = (np.arange(-310, 310) / 2) * math.log(2)
    centres = [
        0.0, 1.0, 2.0**-126, 2.0**-149, float(np.finfo(np.float32).max), math.sqrt(0.5), math.sqrt(2),
        88.722839, 87.336548, 103.97208, 103.27893, elementary.EXP_HIGHEST, elementary.EXP_LOWEST,
        elementary.TANH_LIMIT, 9.0109, elementary.ERF_LIMIT, 3.9192059, *halves, *(halves / 2),
    ]  # fmt: skip
    bits = np.array(centres, np.float32).view(np.int32)[:, None] + np.arange(-20, 21, dtype=np.int32)
    positive = np.ravel(bits).view(np.float32)
    arguments = np.concatenate([positive, -positive])
    worst = worst_error(interpreted(subject), subject.reference, arguments)
    assert worst.error_ulp <= subject.bound_ulp, worst


@pytest.mark.parametrize(
    ("name", "argument", "expected"),
    [
        *[(name, NAN, NAN) for name in SUBJECTS],
        ("exp", 0.0, 1.0), ("exp", -0.0, 1.0), ("exp", INF, INF), ("exp", -INF, 0.0), ("exp", 1e38, INF),
        ("exp", 88.72283, 3.4027985e38), ("exp", 88.72284, INF), ("exp", -103.97207, 2.0**-149),
        ("exp", -103.97209, 0.0), ("exp", -3e38, 0.0),
        ("sigmoid", 0.0, 0.5), ("sigmoid", -0.0, 0.5), ("sigmoid", INF, 1.0), ("sigmoid", -INF, 0.0),
        ("sigmoid", -103.97207, 2.0**-149), ("sigmoid", -103.97209, 0.0), ("sigmoid", 104.0, 1.0),
        ("tanh", 0.0, 0.0), ("tanh", -0.0, -0.0), ("tanh", INF, 1.0), ("tanh", -INF, -1.0),
        ("tanh", 2.0**-149, 2.0**-149), ("tanh", -(2.0**-149), -(2.0**-149)), ("tanh", 1e-20, 1e-20),
        ("erf", 0.0, 0.0), ("erf", -0.0, -0.0), ("erf", INF, 1.0), ("erf", -INF, -1.0),
        ("erf", 2.0**-149, 2.0**-149), ("erf", 3.92, 1.0), ("erf", -3.92, -1.0), ("erf", 3e38, 1.0),
        ("log", 0.0, -INF), ("log", -0.0, -INF), ("log", 1.0, 0.0), ("log", INF, INF), ("log", -INF, NAN),
        ("log", -1.0, NAN), ("log", -(2.0**-149), NAN), ("log", 2.0**-149, -103.27893),
        ("log", 3.4028235e38, 88.72284),
    ],
)  # fmt: skip
def test_special_values(name: str, argument: float, expected: float) -> None:
    actual, wanted = values_of(name, argument)[0], np.float32(expected)
    assert np.array_equal(actual, wanted, equal_nan=True)
    assert np.isnan(wanted) or np.signbit(actual) == np.signbit(wanted)


@pytest.mark.parametrize("name", ["tanh", "erf"])
def test_odd_functions_are_odd_to_the_last_bit(name: str) -> None:
    run = interpreted(SUBJECTS[name])
    arguments = np.concatenate(list(patterns(0, 0x7F80_0000, step=20_011)))
    np.testing.assert_array_equal(run(-arguments), -run(arguments))


@pytest.mark.parametrize("name", ["exp", "sigmoid", "tanh", "erf", "log"])
def test_neighbours_are_in_order(name: str) -> None:
    """Monotonic across the changes of the reduced range, where polynomials meet."""
    halves = np.abs(np.arange(1, 290, 2) / 4) * math.log(2)
    places = np.concatenate([halves, halves / 2, 2.0 ** (np.arange(-40, 40) + 0.5)]).astype(np.float32)
    bits = places.view(np.int32)[:, None] + np.arange(-50, 51, dtype=np.int32)
    results = interpreted(SUBJECTS[name])(bits.ravel().view(np.float32)).reshape(bits.shape)
    assert np.all(results[:, 1:] >= results[:, :-1])


@pytest.mark.parametrize("name", SUBJECTS)
def test_machine_code_computes_the_same_bits(name: str) -> None:
    """Arguments of all exponents, by whole vectors and in the remainder; NaNs are alike."""
    arguments = np.concatenate(list(patterns(step=40_009)))
    actual = compiled(SUBJECTS[name], this_machine(), columns=15)(arguments)
    expected = interpreted(SUBJECTS[name])(arguments)
    both_nan = np.isnan(actual) & np.isnan(expected)
    np.testing.assert_array_equal(actual.view(np.int32)[~both_nan], expected.view(np.int32)[~both_nan])


def horner(polynomial: tuple[float, ...], x: Array) -> Array:
    value = np.full_like(x, polynomial[-1])
    for coefficient in reversed(polynomial[:-1]):
        value = value * x + coefficient
    return value


def erf_slope(u: Array) -> Array:
    roots = np.sqrt(u + elementary.ERF_CENTRE)
    return np.array([math.erf(x) / x if x else 2 / math.sqrt(math.pi) for x in roots])


@pytest.mark.parametrize(
    ("polynomial", "function", "low", "high", "stated"),
    [
        (elementary.EXP2, np.exp2, -0.5, 0.5, -29.0),
        (elementary.EXP2_SLOPE, lambda f: np.expm1(f * math.log(2)) / f, -0.5, 0.5, -32.0),
        (elementary.LOG1P_SLOPE, lambda f: np.log1p(f) / f, 0.5**0.5 - 1, 2**0.5 - 1, -33.2),
        (elementary.ERF_SLOPE, erf_slope, -elementary.ERF_CENTRE, elementary.ERF_CENTRE, -32.2),
    ],
)
def test_polynomials_are_as_good_as_stated(
    polynomial: tuple[float, ...], function: Callable[[Array], Array], low: float, high: float, stated: float
) -> None:
    x = np.linspace(low, high, 100_000)  # an even number: f = 0 is not among them
    error = np.abs(horner(polynomial, x) / function(x) - 1).max()
    assert math.log2(error) == pytest.approx(stated, abs=0.05)


def test_the_measure_counts_what_matters() -> None:
    actual = np.array([1.0, 1.0, 0.0, NAN, 1.0, INF, 2.0**-149, INF], np.float32)
    expected = np.array([1 + 2.0**-24, 1 - 2.0**-24, -0.0, 1.0, NAN, 1e300, 2.0**-150, 1.0])
    errors = ulp_errors(actual, expected)
    assert errors[:7].tolist() == [0.5, 1.0, INF, INF, INF, 0.0, 0.5]
    assert errors[7] > 1e30
    assert ulp_errors(np.array([NAN], np.float32), np.array([NAN])) == 0


@pytest.mark.parametrize(("wrong", "error"), [(NAN, INF), (-0.0, INF), (2.0**-147, 1.0)])
def test_the_measure_finds_the_worst_argument(wrong: float, error: float) -> None:
    """The identity with one result spoilt."""
    arguments = np.array([NAN, -1.0, 0.0, 2.0**-149 * 3, INF], np.float32)

    def spoilt(x: Array) -> Array:
        place = 3 if wrong > 0 else 2
        return np.where(np.arange(5) == place, np.float32(wrong), x)

    worst = worst_error(spoilt, lambda x: x, arguments)
    assert worst.error_ulp == error
    assert worst.argument in (0.0, arguments[3])
    assert worst_error(lambda x: x, lambda x: x, arguments).error_ulp == 0.5


@pytest.mark.parametrize("function", [subject.expression for subject in SUBJECTS.values()])
def test_other_types_are_refused(function: Callable[[Const], object]) -> None:
    with pytest.raises(UnsupportedError, match="expected f32, got f64"):
        function(Const(1.0, FLOAT64))
