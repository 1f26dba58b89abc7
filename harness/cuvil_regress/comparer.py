"""Compares a tensor with its golden, element by element, in plain numpy and bounded memory.

The judge knows nothing of what it judges. Dtype and shape come first; nothing is broadcast; integers and
booleans are compared exactly in their own dtype. Errors are formed in float64; where that is too coarse to
tell on which side of the limit an element lies, exact rationals decide.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cuvil_regress.errors import HarnessError
from cuvil_regress.policy import Policy

CHUNK_ELEMENTS = 1 << 16
"""Elements that are looked at together; temporaries stay below some megabytes."""

ComparisonVerdict = Literal["identical", "within-tolerance", "mismatch", "nan-policy", "shape", "dtype"]
Array = NDArray[Any]
Number = float | int

_SURE = 1e-12
"""Relative distance from the limit beyond which a float64 comparison is certain (it errs by a few 2**-53)."""
_COARSE = 1e-290
"""Below this, products may have lost bits to underflow, and no float64 comparison is certain."""


@dataclass(frozen=True)
class ElementDifference:
    """One element that differs, and the error that the policy allows it."""

    index: tuple[int, ...]
    actual: Number
    golden: Number
    allowed: float


@dataclass(frozen=True)
class TensorComparison:
    """What a comparison found.

    `compared` counts all elements looked at, `finite` those where both sides are finite: the errors are
    over the latter. `max_rel_error` leaves out elements whose golden is zero. `max_ulp` is None for dtypes
    without rounding. `worst` has the greatest share of its allowance, whether or not it is a violation.
    """

    verdict: ComparisonVerdict
    message: str = ""
    compared: int = 0
    finite: int = 0
    differing_bits: int = 0
    violations: int = 0
    nan_mismatches: int = 0
    inf_mismatches: int = 0
    max_abs_error: Number = 0
    max_rel_error: float = 0.0
    max_ulp: int | None = None
    ulp_histogram: tuple[int, ...] | None = None
    """Finite elements by ULP distance: 0, then 1, 2 to 3, 4 to 7 and so on, up to the last that has any."""
    max_share_of_allowed: float = 0.0
    first: ElementDifference | None = None
    worst: ElementDifference | None = None

    @property
    def violation_share(self) -> float:
        return self.violations / self.compared if self.compared else 0.0

    @property
    def passed(self) -> bool:
        return self.verdict in ("identical", "within-tolerance")


def compare_tensor(
    actual: Array, golden: Array, policy: Policy, *, model_dtype: str | None = None
) -> TensorComparison:
    """Judges `actual` by `golden`.

    Args:
        model_dtype: the dtype that the model gives, where the golden holds it in a wider one (a float64
            oracle of a float32 model). Bits and ULP are then judged by the golden rounded to it.
    """
    expected = np.dtype(model_dtype) if model_dtype else _native(golden.dtype)
    if _native(actual.dtype) != expected:
        return TensorComparison("dtype", f"dtype differs; expected {expected.name}, got {actual.dtype.name}")
    if actual.shape != golden.shape:
        message = f"shape differs; expected {list(golden.shape)}, got {list(actual.shape)}"
        return TensorComparison("shape", message)
    _require_comparable(expected, golden.dtype)
    if actual.size == 0:
        return _compared_nothing(policy)
    if expected.kind == "f":
        return _compare_floats(actual, golden, policy, expected)
    return _compare_exactly(actual, golden)


def _native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtype.newbyteorder("=")


def _require_comparable(expected: np.dtype[Any], golden: np.dtype[Any]) -> None:
    for dtype in (expected, golden):
        if dtype.kind not in "fiub" or dtype.itemsize > 8:
            raise HarnessError(f"compare: unsupported dtype; expected float, int or bool, got {dtype.name!r}")
    if expected.kind != golden.kind or expected.itemsize > golden.itemsize:
        raise HarnessError(
            f"compare: the golden can't hold the model's dtype; expected {expected.name!r} or wider, "
            f"got {golden.name!r}"
        )


def _compared_nothing(policy: Policy) -> TensorComparison:
    if policy.allow_empty:
        return TensorComparison("identical", "the tensor has no elements, as the policy allows")
    message = "nothing was compared; expected at least one element, got an empty tensor"
    return TensorComparison("mismatch", message)


def _chunks(*arrays: Array) -> Iterator[tuple[int, tuple[Array, ...]]]:
    """Row-major chunks in native byte order, each with the flat index of its first element."""
    flat = [array.reshape(-1) for array in arrays]
    for start in range(0, flat[0].size, CHUNK_ELEMENTS):
        parts = (array[start : start + CHUNK_ELEMENTS] for array in flat)
        yield start, tuple(part.astype(_native(part.dtype), copy=False) for part in parts)


@dataclass
class _Tally:
    """Running totals over the chunks."""

    finite: int = 0
    differing_bits: int = 0
    violations: int = 0
    nan_mismatches: int = 0
    inf_mismatches: int = 0
    max_abs_error: Number = 0
    max_rel_error: float = 0.0
    max_ulp: int | None = None
    ulp_counts: NDArray[np.int64] | None = None
    max_share_of_allowed: float = 0.0
    first: int | None = None
    worst: int | None = None
    worst_rank: tuple[float, Number] = (0.0, 0)

    def add_violations(self, start: int, violations: NDArray[np.bool_]) -> None:
        self.violations += int(violations.sum())
        if self.first is None and violations.any():
            self.first = start + int(violations.argmax())

    def offer_worst(self, index: int, share: float, error: Number) -> None:
        if (share, error) > self.worst_rank:
            self.worst, self.worst_rank = index, (share, error)
            self.max_share_of_allowed = share


def _compare_floats(actual: Array, golden: Array, policy: Policy, dtype: np.dtype[Any]) -> TensorComparison:
    largest = _largest_finite(golden)
    tally = _Tally(max_ulp=0, ulp_counts=np.zeros(_POWERS_OF_TWO.size + 1, np.int64))
    with np.errstate(all="ignore"):
        for start, (left, right) in _chunks(actual, golden):
            tally.differing_bits += _count_differing_bits(left, right.astype(dtype))
            _tally_floats(tally, start, left, right, policy, largest, dtype)

    def allowed(value: float) -> float:
        return _allowed(value, policy, largest) if math.isfinite(value) else 0.0

    return _conclude(tally, actual, golden, allowed)


def _largest_finite(golden: Array) -> float:
    largest = 0.0
    for _, (chunk,) in _chunks(golden):
        magnitudes = np.abs(chunk[np.isfinite(chunk)])
        largest = max(largest, float(magnitudes.max(initial=0)))
    return largest


def _allowed(golden: Any, policy: Policy, largest: float) -> Any:
    return policy.rtol * abs(golden) + (policy.atol + policy.atol_of_largest * largest)


def _tally_floats(
    tally: _Tally, start: int, left: Array, right: Array, policy: Policy, largest: float, dtype: np.dtype[Any]
) -> None:
    """Adds one chunk: NaN and infinities by their places, the finite rest by its errors."""
    nan = np.isnan(left) != np.isnan(right)
    if policy.nan == "forbidden":
        nan |= np.isnan(left)
    infinite = (np.isinf(left) | np.isinf(right)) & (left != right) & ~nan
    finite = np.isfinite(left) & np.isfinite(right)
    wide, reference = left.astype(np.float64), right.astype(np.float64)
    error = np.where(finite, np.abs(wide - reference), 0.0)
    allowed = _allowed(reference, policy, largest)
    beyond = _beyond(wide, reference, np.where(finite, error, 0.0), allowed, policy, largest)
    tally.finite += int(finite.sum())
    tally.nan_mismatches += int(nan.sum())
    tally.inf_mismatches += int(infinite.sum())
    tally.add_violations(start, nan | infinite | beyond)
    tally.max_abs_error = max(tally.max_abs_error, float(error.max()))
    relative = np.where(finite & (reference != 0), error / np.abs(reference), 0.0)
    tally.max_rel_error = max(tally.max_rel_error, float(relative.max()))
    _tally_ulp(tally, _ulp_distance(left[finite], right[finite].astype(dtype)))
    share = _shares(wide, reference, error, allowed, policy, largest)
    _offer_worst(tally, start, nan | infinite, error, share)


def _beyond(
    actual: Array, golden: Array, error: Array, allowed: Array, policy: Policy, largest: float
) -> NDArray[np.bool_]:
    """Where the error exceeds what is allowed, decided exactly where float64 can't."""
    beyond = np.asarray(error > allowed)
    clear = (error < allowed * (1 - _SURE)) | (error > allowed * (1 + _SURE))
    unsure = ~clear | (np.maximum(error, allowed) < _COARSE)
    for index in np.flatnonzero(unsure & (error != 0)):
        beyond[index] = _exceeds(float(actual[index]), float(golden[index]), policy, largest)
    return beyond


def _exceeds(actual: float, golden: float, policy: Policy, largest: float) -> bool:
    error, allowed = _exactly(actual, golden, policy, largest)
    return error > allowed


def _exactly(actual: float, golden: float, policy: Policy, largest: float) -> tuple[Fraction, Fraction]:
    """The error of an element, and what it is allowed."""
    exact = Fraction(golden)
    allowed = Fraction(policy.rtol) * abs(exact) + Fraction(policy.atol)
    allowed += Fraction(policy.atol_of_largest) * Fraction(largest)
    return abs(Fraction(actual) - exact), allowed


def _shares(
    actual: Array, golden: Array, error: Array, allowed: Array, policy: Policy, largest: float
) -> Array:
    """Each error as a share of what is allowed, formed exactly where a float64 underflows or overflows."""
    share = np.where(error > 0, error / allowed, 0.0)
    same_for_all = policy.atol > 0 or (policy.atol_of_largest > 0 and largest > 0)
    tiny = (allowed < _COARSE) & (((golden != 0) & (policy.rtol > 0)) | same_for_all)
    coarse = (error != 0) & (tiny | ~np.isfinite(error) | ~np.isfinite(allowed))
    for index in np.flatnonzero(coarse):
        share[index] = _exact_share(float(actual[index]), float(golden[index]), policy, largest)
    return share


def _exact_share(actual: float, golden: float, policy: Policy, largest: float) -> float:
    error, allowed = _exactly(actual, golden, policy, largest)
    try:
        return float(error / allowed) if allowed else math.inf
    except OverflowError:
        return math.inf


def _offer_worst(tally: _Tally, start: int, misplaced: Array, error: Array, share: Array) -> None:
    """The element with the greatest share of its allowance; a misplaced NaN or Inf outranks any error."""
    share, error = np.where(misplaced, np.inf, share), np.where(misplaced, np.inf, error)
    candidates = np.flatnonzero(share == share.max())
    index = int(candidates[error[candidates].argmax()])
    tally.offer_worst(start + index, float(share[index]), float(error[index]))


_WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def _ordered(values: Array) -> NDArray[np.uint64]:
    """Maps floats to unsigned integers in the same order and one ULP apart; both zeros meet."""
    bits = np.ascontiguousarray(values).view(_WORDS[values.dtype.itemsize]).astype(np.uint64)
    sign = np.uint64(1 << (8 * values.dtype.itemsize - 1))
    middle = np.uint64(1 << 63)
    magnitude = bits & (sign - np.uint64(1))
    return np.where(bits & sign, middle - magnitude, middle + magnitude)


def _ulp_distance(left: Array, right: Array) -> NDArray[np.uint64]:
    """The distances in ULP; a golden that overflows its model dtype counts as infinity."""
    ours, theirs = _ordered(left), _ordered(right)
    return np.maximum(ours, theirs) - np.minimum(ours, theirs)


_POWERS_OF_TWO = np.uint64(1) << np.arange(64, dtype=np.uint64)


def _tally_ulp(tally: _Tally, distance: NDArray[np.uint64]) -> None:
    assert tally.ulp_counts is not None
    tally.max_ulp = max(tally.max_ulp or 0, int(distance.max(initial=0)))
    buckets = np.searchsorted(_POWERS_OF_TWO, distance, side="right")
    tally.ulp_counts += np.bincount(buckets, minlength=tally.ulp_counts.size)


def _histogram(counts: NDArray[np.int64] | None) -> tuple[int, ...] | None:
    """The counts up to the last bucket that has any."""
    return None if counts is None else tuple(np.trim_zeros(counts, "b").tolist())


def _compare_exactly(actual: Array, golden: Array) -> TensorComparison:
    tally = _Tally(finite=actual.size)
    for start, (left, right) in _chunks(actual, golden):
        differs = np.asarray(left != right)
        tally.add_violations(start, differs)
        if differs.any():
            distance = _distance(left, right)
            index = int(distance.argmax())
            tally.offer_worst(start + index, float("inf"), int(distance[index]))
            tally.max_abs_error = max(tally.max_abs_error, int(distance[index]))
            tally.max_rel_error = max(tally.max_rel_error, _max_relative(distance, right))
    tally.differing_bits = tally.violations
    return _conclude(tally, actual, golden, lambda _: 0.0)


def _distance(left: Array, right: Array) -> NDArray[np.uint64]:
    """|left - right| without wrapping: the difference of two int64 always fits into a uint64."""
    with np.errstate(all="ignore"):
        ours, theirs = (values.astype(np.uint64) for values in (left, right))
        return np.where(left > right, ours - theirs, theirs - ours)


def _max_relative(distance: Array, golden: Array) -> float:
    nonzero = golden != 0
    relative = distance[nonzero].astype(np.float64) / np.abs(golden[nonzero].astype(np.float64))
    return float(relative.max(initial=0))


def _conclude(
    tally: _Tally, actual: Array, golden: Array, allowed: Callable[[float], float]
) -> TensorComparison:
    def element(flat: int | None) -> ElementDifference | None:
        if flat is None:
            return None
        index = tuple(int(part) for part in np.unravel_index(flat, golden.shape))
        value = golden[index].item()
        return ElementDifference(index, actual[index].item(), value, allowed(value))

    verdict = _verdict(tally)
    return TensorComparison(
        verdict,
        _describe(verdict, tally, actual.size),
        actual.size,
        tally.finite,
        tally.differing_bits,
        tally.violations,
        tally.nan_mismatches,
        tally.inf_mismatches,
        tally.max_abs_error,
        tally.max_rel_error,
        tally.max_ulp,
        _histogram(tally.ulp_counts),
        tally.max_share_of_allowed,
        element(tally.first),
        element(tally.worst),
    )


def _verdict(tally: _Tally) -> ComparisonVerdict:
    if tally.nan_mismatches:
        return "nan-policy"
    if tally.violations:
        return "mismatch"
    return "within-tolerance" if tally.differing_bits else "identical"


def _describe(verdict: ComparisonVerdict, tally: _Tally, size: int) -> str:
    if verdict in ("mismatch", "nan-policy"):
        kinds = f"{tally.nan_mismatches} NaN, {tally.inf_mismatches} Inf"
        return f"{tally.violations} of {size} elements violate the policy ({kinds})"
    return f"{tally.differing_bits} of {size} elements differ in bits"


def masked_bits(array: Array) -> Array:
    """The integer view of an array, with every NaN replaced by the positive quiet one without payload."""
    contiguous = np.array(array, dtype=_native(array.dtype), order="C")
    if contiguous.dtype.kind == "f":
        contiguous[np.isnan(contiguous)] = np.nan
    return contiguous.view(_WORDS[contiguous.dtype.itemsize])


def masked_bits_sha256(array: Array) -> str:
    """The SHA-256 of the masked bits, row-major and little-endian: equal where all but NaN payloads are."""
    sha = hashlib.sha256()
    for _, (chunk,) in _chunks(array):
        bits = masked_bits(chunk)
        sha.update(bits.astype(bits.dtype.newbyteorder("<")).tobytes())
    return sha.hexdigest()


def bit_identical(left: Array, right: Array) -> tuple[bool, int]:
    """Whether two arrays have the same dtype, shape and masked bits, and how many elements differ.

    Arrays of different dtype or shape differ in every element.
    """
    if _native(left.dtype) != _native(right.dtype) or left.shape != right.shape:
        return False, max(left.size, right.size)
    count = sum(_count_differing_bits(ours, theirs) for _, (ours, theirs) in _chunks(left, right))
    return count == 0, count


def _count_differing_bits(left: Array, right: Array) -> int:
    return int((masked_bits(left) != masked_bits(right)).sum())
