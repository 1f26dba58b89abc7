"""The comparer against a slow definition in exact rationals, one element at a time."""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from cuvil_regress import comparer
from cuvil_regress.comparer import bit_identical, compare_tensor, masked_bits_sha256
from cuvil_regress.errors import HarnessError
from cuvil_regress.policy import Policy

Array = NDArray[Any]
EXACT = Policy("exact", "", rtol=0.0)
LOOSE = Policy("loose", "", rtol=1e-3)
POLICIES = [
    EXACT,
    LOOSE,
    Policy("scaled", "", 1e-6, atol=1e-30, atol_of_largest=3e-6),
    Policy("a", "", 0.0, 0.5),
]
DTYPES = ["float16", "float32", "float64"]


@pytest.fixture(params=[1, 3, comparer.CHUNK_ELEMENTS])
def _chunk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same results whatever the size of a chunk."""
    monkeypatch.setattr(comparer, "CHUNK_ELEMENTS", request.param)


@st.composite
def float_pairs(draw: st.DrawFn) -> tuple[Array, Array]:
    """Goldens with every special value, and actual values that are equal, near, or anything."""
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=3, max_side=4))
    elements = hnp.from_dtype(dtype, allow_nan=True, allow_infinity=True, allow_subnormal=True)
    golden = draw(hnp.arrays(dtype, shape, elements=elements))
    anything = draw(hnp.arrays(dtype, shape, elements=elements))
    with np.errstate(all="ignore"):
        near = (golden * dtype.type(draw(st.sampled_from([1 + 1e-3, 1 - 1e-3, 1 + 1e-6, -1])))).astype(dtype)
        next_up = np.nextafter(golden, dtype.type(np.inf))
    choice = draw(hnp.arrays(np.int8, shape, elements=st.integers(0, 3)))
    return np.choose(choice, (golden, near, next_up, anything)).astype(dtype), golden


def exact_allowed(golden: float, policy: Policy, largest: Fraction) -> Fraction:
    scaled = Fraction(policy.rtol) * abs(Fraction(golden)) + Fraction(policy.atol)
    return scaled + Fraction(policy.atol_of_largest) * largest


def slow_violation(actual: float, golden: float, policy: Policy, largest: Fraction) -> bool:
    if math.isnan(actual) or math.isnan(golden):
        return math.isnan(actual) != math.isnan(golden)
    if math.isinf(actual) or math.isinf(golden):
        return actual != golden
    return abs(Fraction(actual) - Fraction(golden)) > exact_allowed(golden, policy, largest)


def pairs(actual: Array, golden: Array) -> Iterator[tuple[float, float]]:
    return zip(
        (float(value) for value in actual.reshape(-1)),
        (float(value) for value in golden.reshape(-1)),
        strict=True,
    )


def slow_largest(golden: Array) -> Fraction:
    finite = (float(value) for value in golden.reshape(-1) if math.isfinite(float(value)))
    return max((abs(Fraction(value)) for value in finite), default=Fraction(0))


def rounded(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


@given(float_pairs(), st.sampled_from(POLICIES))
def test_violations_and_errors_are_those_of_the_definition(both: tuple[Array, Array], policy: Policy) -> None:
    actual, golden = both
    found = compare_tensor(actual, golden, policy)
    largest = slow_largest(golden)
    bad = [slow_violation(a, g, policy, largest) for a, g in pairs(actual, golden)]
    finite = [(a, g) for a, g in pairs(actual, golden) if math.isfinite(a) and math.isfinite(g)]
    errors = [abs(Fraction(a) - Fraction(g)) for a, g in finite]
    assert found.violations == sum(bad)
    assert found.compared == golden.size
    assert found.finite == len(finite)
    assert found.max_abs_error == rounded(max(errors, default=Fraction(0)))
    assert found.nan_mismatches == sum(math.isnan(a) != math.isnan(g) for a, g in pairs(actual, golden))
    if any(bad):
        assert found.first is not None
        assert found.first.index == tuple(np.unravel_index(bad.index(True), golden.shape))
    else:
        assert found.first is None
    assert found.passed == (not any(bad))


@given(float_pairs())
def test_relative_error_is_that_of_the_definition(both: tuple[Array, Array]) -> None:
    found = compare_tensor(*both, EXACT)
    finite = [(a, g) for a, g in pairs(*both) if math.isfinite(a) and math.isfinite(g) and g != 0]
    relative = (abs(Fraction(a) - Fraction(g)) / abs(Fraction(g)) for a, g in finite)
    expected = rounded(max(relative, default=Fraction(0)))
    assert found.max_rel_error == pytest.approx(expected, rel=1e-15) or math.isinf(found.max_rel_error)


TINY = np.float64(2.22729893237e-313), np.array(2.22507386e-313)
HUGE = np.array([1.7e308, 1.0]), np.array([-1.7e308, 1.0])


@given(float_pairs(), st.sampled_from(POLICIES))
@example(TINY, LOOSE)
@example(HUGE, LOOSE)
@example(HUGE, Policy("wide", "", 0.9))
def test_the_worst_element_has_the_greatest_share(both: tuple[Array, Array], policy: Policy) -> None:
    actual, golden = both
    found = compare_tensor(actual, golden, policy)
    shares = list(slow_shares(actual, golden, policy))
    greatest = max(shares)
    assert found.max_share_of_allowed == pytest.approx(greatest, rel=1e-9, abs=1e-12)
    assert (found.worst is None) == (greatest == 0)
    if found.worst is not None:
        flat = int(np.ravel_multi_index(found.worst.index, golden.shape)) if golden.shape else 0
        assert shares[flat] == pytest.approx(greatest, rel=1e-9)
        assert same(found.worst.golden, golden[found.worst.index].item())
        assert same(found.worst.actual, actual[found.worst.index].item())


def same(left: float, right: float) -> bool:
    return struct.pack("d", left) == struct.pack("d", right)


def slow_shares(actual: Array, golden: Array, policy: Policy) -> Iterator[float]:
    largest = slow_largest(golden)
    for a, g in pairs(actual, golden):
        if math.isfinite(a) and math.isfinite(g):
            error, allowed = abs(Fraction(a) - Fraction(g)), exact_allowed(g, policy, largest)
            yield (rounded(error / allowed) if allowed else math.inf) if error else 0.0
        else:
            yield math.inf if slow_violation(a, g, policy, largest) else 0.0


@given(float_pairs())
def test_ulp_is_the_number_of_steps_between(both: tuple[Array, Array]) -> None:
    actual, golden = both
    finite = [(a, g) for a, g in pairs(*both) if math.isfinite(a) and math.isfinite(g)]
    expected = max((abs(rank(a, golden.dtype) - rank(g, golden.dtype)) for a, g in finite), default=0)
    assert compare_tensor(actual, golden, EXACT).max_ulp == expected


def rank(value: float, dtype: np.dtype[Any]) -> int:
    """How many values of `dtype` lie between zero and `value`, with its sign."""
    letter, word = {2: ("e", "H"), 4: ("f", "I"), 8: ("d", "Q")}[dtype.itemsize]
    (bits,) = struct.unpack(word, struct.pack(letter, abs(value)))
    return int(math.copysign(1, value)) * int(bits)


@pytest.mark.usefixtures("_chunk")
def test_chunks_change_nothing() -> None:
    golden = np.linspace(-1, 1, 11, dtype=np.float32)
    actual = golden.copy()
    actual[[4, 7]] += np.float32(0.25)
    actual[9] = np.nan
    found = compare_tensor(actual, golden, LOOSE)
    assert (found.verdict, found.violations, found.nan_mismatches) == ("nan-policy", 3, 1)
    assert found.first is not None
    assert found.first.index == (4,)
    assert found.first.allowed == pytest.approx(1e-3 * 0.2)
    assert found.worst is not None
    assert found.worst.index == (9,)
    assert found.violation_share == 3 / 11


@pytest.mark.parametrize(
    ("offset", "verdict"),
    [(0.5, "within-tolerance"), (0.5000000000000001, "mismatch"), (0.25, "within-tolerance")],
)
def test_the_limit_itself_is_allowed_and_one_ulp_more_is_not(offset: float, verdict: str) -> None:
    """At 0.5 a float64 comparison alone could not be trusted; the decision is exact."""
    found = compare_tensor(np.array([offset]), np.array([0.0]), Policy("a", "", 0.0, atol=0.5))
    assert found.verdict == verdict


@pytest.mark.parametrize(("golden", "rtol", "actual"), [(2.5, 0.3, 3.25), (1.7, 0.3, 2.21), (3.1, 0.1, 3.41)])
def test_a_limit_that_float64_rounds_the_wrong_way_is_decided_exactly(
    golden: float, rtol: float, actual: float
) -> None:
    assert abs(actual - golden) <= rtol * golden, "float64 alone would let it pass"
    assert abs(Fraction(actual) - Fraction(golden)) > Fraction(rtol) * Fraction(golden)
    assert compare_tensor(np.array([actual]), np.array([golden]), Policy("r", "", rtol)).violations == 1


def test_an_allowance_of_halves_of_the_least_subnormal_adds_up() -> None:
    """Each half rounds to zero in float64; together they allow one step."""
    least = math.ulp(0.0)
    policy = Policy("h", "", rtol=0.5, atol_of_largest=0.5)
    for actual, verdict in ((2 * least, "within-tolerance"), (3 * least, "mismatch")):
        assert compare_tensor(np.array([actual]), np.array([least]), policy).verdict == verdict


def test_an_error_beyond_the_range_of_float64_is_decided_exactly() -> None:
    actual, golden = np.array([1e308]), np.array([-1e308])
    for share, verdict in ((3.0, "within-tolerance"), (1.9, "mismatch")):
        found = compare_tensor(actual, golden, Policy("o", "", 0.0, atol_of_largest=share))
        assert (found.verdict, found.max_abs_error) == (verdict, math.inf)
        assert found.worst is not None


def test_of_equal_shares_the_greater_error_is_the_worst() -> None:
    found = compare_tensor(np.array([0.5, 3.0, 1.0]), np.zeros(3), EXACT)
    assert found.first is not None
    assert found.worst is not None
    assert (found.first.index, found.worst.index) == ((0,), (1,))


def test_verdicts_of_special_values() -> None:
    inf, nan = math.inf, math.nan
    cases = [
        (0.0, 0.0, "identical"),
        (-0.0, 0.0, "within-tolerance"),
        (nan, nan, "identical"),
        (inf, inf, "identical"),
        (inf, -inf, "mismatch"),
        (inf, 1.0, "mismatch"),
        (1.0, inf, "mismatch"),
        (nan, inf, "nan-policy"),
        (1.0, nan, "nan-policy"),
    ]
    for actual, golden, verdict in cases:
        found = compare_tensor(np.array([actual]), np.array([golden]), LOOSE)
        assert found.verdict == verdict, (actual, golden)
    forbidden = Policy("f", "", 0.0, nan="forbidden")
    assert compare_tensor(np.array([nan]), np.array([nan]), forbidden).verdict == "nan-policy"


def test_infinities_are_counted() -> None:
    found = compare_tensor(np.array([np.inf, 1.0, np.nan]), np.array([-np.inf, np.inf, np.inf]), LOOSE)
    assert (found.inf_mismatches, found.nan_mismatches, found.violations) == (2, 1, 3)


def test_dtype_comes_first_then_shape_and_nothing_is_broadcast() -> None:
    golden = np.zeros((2, 3), dtype=np.float32)
    assert compare_tensor(np.zeros((2, 4)), golden, LOOSE).verdict == "dtype"
    for shape in [(3, 2), (6,), (1, 2, 3), (1, 3), ()]:
        found = compare_tensor(np.zeros(shape, dtype=np.float32), golden, LOOSE)
        assert (found.verdict, found.compared) == ("shape", 0)
    assert compare_tensor(golden.astype(">f4"), golden, LOOSE).verdict == "identical"


def test_a_wider_golden_with_a_model_dtype_is_no_dtype_finding() -> None:
    golden = np.array([0.1, 1 / 3, 2.0])
    actual = golden.astype(np.float32)
    found = compare_tensor(actual, golden, LOOSE, model_dtype="float32")
    assert (found.verdict, found.max_ulp, found.differing_bits) == ("identical", 0, 0)
    assert 0 < found.max_abs_error < 1e-7
    assert compare_tensor(golden, golden, LOOSE, model_dtype="float32").verdict == "dtype"
    with pytest.raises(HarnessError, match="can't hold"):
        compare_tensor(golden, actual, LOOSE, model_dtype="float64")


def test_comparing_nothing_is_no_success_unless_the_policy_allows_it() -> None:
    empty = np.zeros((0, 3), dtype=np.float32)
    found = compare_tensor(empty, empty, LOOSE)
    assert (found.verdict, found.passed) == ("mismatch", False)
    assert "nothing was compared" in found.message
    assert compare_tensor(empty, empty, Policy("e", "", 0.0, allow_empty=True)).passed


INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool"]


@given(st.data(), st.sampled_from(INTEGERS))
def test_integers_are_exact_and_never_wrap(data: st.DataObject, dtype: str) -> None:
    shape = data.draw(hnp.array_shapes(max_dims=2, max_side=4))
    left, right = (data.draw(hnp.arrays(dtype, shape)) for _ in range(2))
    found = compare_tensor(left, right, Policy("a", "", 0.9, atol=1e6))
    errors = [abs(int(a) - int(g)) for a, g in zip(left.flat, right.flat, strict=True)]
    assert found.violations == sum(error != 0 for error in errors)
    assert found.max_abs_error == max(errors)
    assert isinstance(found.max_abs_error, int)
    assert found.max_ulp is None
    assert found.verdict == ("mismatch" if any(errors) else "identical")
    if found.worst is not None:
        assert abs(int(found.worst.actual) - int(found.worst.golden)) == max(errors)


def test_neighbours_that_float64_can_not_tell_apart_differ() -> None:
    big = np.array([2**63 - 1, -(2**63)], dtype=np.int64)
    found = compare_tensor(big - np.array([1, 0]), big, LOOSE)
    assert (found.verdict, found.max_abs_error) == ("mismatch", 1)
    assert compare_tensor(big, big[::-1].copy(), LOOSE).max_abs_error == 2**64 - 1


def test_complex_tensors_are_refused() -> None:
    with pytest.raises(HarnessError, match="unsupported dtype"):
        compare_tensor(np.array([1j]), np.array([1j]), LOOSE)


def test_masked_bits_ignore_only_the_sign_and_payload_of_nan() -> None:
    nans = np.array([0x7FC00000, 0xFFC00000, 0x7F800001, 0xFFFFFFFF], dtype=np.uint32).view(np.float32)
    assert len({masked_bits_sha256(nans[i : i + 1]) for i in range(4)}) == 1
    canonical = hashlib.sha256(struct.pack("<f", 1.5) + b"\0\0\xc0\x7f").hexdigest()
    assert masked_bits_sha256(np.array([1.5, -math.nan], dtype=np.float32)) == canonical
    assert masked_bits_sha256(np.array([0.0])) != masked_bits_sha256(np.array([-0.0]))


@pytest.mark.usefixtures("_chunk")
def test_masked_bits_depend_on_values_and_not_on_layout() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    expected = hashlib.sha256(array.tobytes()).hexdigest()
    for layout in (array, np.asfortranarray(array), array.astype(">f4"), np.repeat(array, 2, axis=0)[::2]):
        assert masked_bits_sha256(layout) == expected
    assert np.array_equal(array, np.arange(6).reshape(2, 3))


@given(float_pairs())
def test_bit_identity_counts_the_differing_elements(both: tuple[Array, Array]) -> None:
    actual, golden = both
    differing = sum(
        not (math.isnan(a) and math.isnan(g)) and not same(a, g) for a, g in pairs(actual, golden)
    )
    assert bit_identical(actual, golden) == (differing == 0, differing)
    assert compare_tensor(actual, golden, EXACT).differing_bits == differing
    assert (masked_bits_sha256(actual) == masked_bits_sha256(golden)) == (differing == 0)


def test_bit_identity_of_other_shapes_and_dtypes_is_none() -> None:
    one = np.ones(3, dtype=np.float32)
    assert bit_identical(one, one.astype(np.float64)) == (False, 3)
    assert bit_identical(one, one.reshape(3, 1)) == (False, 3)
    assert bit_identical(one == 1, one == 1) == (True, 0)
