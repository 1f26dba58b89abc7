"""How far one array is from another."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from cuvil.ir.types import Array


@dataclass(frozen=True)
class Difference:
    """What separates an array from its reference.

    Attributes:
        elements: Number of elements.
        differing: How many have other bits; all NaNs count as one.
        share: The largest difference, as a share of the reference's largest finite element. It is infinite
            where no number tells it: shapes or types differ, a NaN or an infinity is misplaced, an integer
            or a boolean is another one.
        worst: Where that difference is, and what is there.
    """

    elements: int
    differing: int
    share: float
    worst: str = ""

    def within(self, rtol: float) -> bool:
        """Whether the difference is allowed; with `rtol` 0 the bits must be the same."""
        return self.differing == 0 or (rtol > 0 and self.share <= rtol)


def difference(actual: Array, reference: Array) -> Difference:
    """Measure one array against its reference."""
    if (actual.dtype, actual.shape) != (reference.dtype, reference.shape):
        expected = f"{reference.dtype.name}{list(reference.shape)}"
        worst = f"expected {expected}, got {actual.dtype.name}{list(actual.shape)}"
        return Difference(actual.size, actual.size, math.inf, worst)
    unequal = _unequal_bits(actual, reference)
    count = int(np.count_nonzero(unequal))
    if count == 0:
        return Difference(actual.size, 0, 0.0)
    distances = np.where(unequal, _distances(actual, reference), -1.0)
    place = tuple(map(int, np.unravel_index(int(np.argmax(distances)), distances.shape)))
    worst = f"{list(place)}: expected {reference[place]}, got {actual[place]}"
    return Difference(actual.size, count, float(distances[place]), worst)


def _unequal_bits(actual: Array, reference: Array) -> Array:
    if actual.dtype.kind != "f":
        return np.asarray(actual != reference)
    word = f"u{actual.itemsize}"
    same = np.ascontiguousarray(actual).view(word) == np.ascontiguousarray(reference).view(word)
    both_nan = np.isnan(actual) & np.isnan(reference)
    unequal: Array = ~(same.reshape(actual.shape) | both_nan)
    return unequal


def _distances(actual: Array, reference: Array) -> Array:
    """Of each element, in units of the reference's largest finite one."""
    if actual.dtype.kind != "f":
        return np.full(actual.shape, math.inf)
    with np.errstate(invalid="ignore"):  # signaling NaNs are NaNs, and inf - inf is sorted out below
        wide, wanted = actual.astype(np.float64), reference.astype(np.float64)
        finite = np.isfinite(wanted)
        largest = float(np.abs(wanted[finite]).max(initial=0.0)) or 1.0
        distances = np.abs(wide - wanted) / largest
    return np.where(finite & np.isfinite(wide), distances, math.inf)
