"""Differences of arrays: what counts as equal bits, and how far is far."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cuvil.differences import difference
from cuvil.ir.types import Array


def floats(*values: float) -> Array:
    return np.array(values, np.float32)


def test_equal_arrays_do_not_differ_and_all_nans_are_one() -> None:
    other_nan = np.array([0x7FC00001, 0x3F800000], np.uint32).view(np.float32)
    found = difference(other_nan, floats(math.nan, 1.0))
    assert (found.differing, found.share) == (0, 0.0)
    assert found.within(0.0)


def test_a_zero_of_the_other_sign_has_other_bits() -> None:
    found = difference(floats(-0.0, 1.0), floats(0.0, 1.0))
    assert (found.differing, found.share) == (1, 0.0)
    assert not found.within(0.0)
    assert found.within(1e-9)


def test_the_worst_element_is_measured_by_the_largest() -> None:
    found = difference(floats(8.0, 1.5, 2.0), floats(8.0, 1.0, 2.25))
    assert (found.elements, found.differing, found.share) == (3, 2, 0.5 / 8)
    assert found.worst == "[1]: expected 1.0, got 1.5"
    assert found.within(0.0625)
    assert not found.within(0.0624)


@pytest.mark.parametrize(
    ("actual", "reference"),
    [
        (floats(math.nan), floats(1.0)),
        (floats(1.0), floats(math.nan)),
        (floats(math.inf), floats(3e38)),
        (floats(math.inf), floats(-math.inf)),
        (np.array([1], np.int64), np.array([2], np.int64)),
        (np.array([True]), np.array([False])),
        (floats(1.0), np.array([1.0])),
        (floats(1.0), floats(1.0, 1.0)),
    ],
)
def test_what_no_number_tells_is_infinitely_far(actual: Array, reference: Array) -> None:
    found = difference(actual, reference)
    assert found.share == math.inf
    assert not found.within(0.9)
    assert "expected" in found.worst


@given(hnp.arrays(np.float32, hnp.array_shapes(max_dims=3, max_side=4)), st.data())
def test_one_changed_bit_is_found(reference: Array, data: st.DataObject) -> None:
    actual = reference.copy()
    place = data.draw(st.integers(0, reference.size - 1))
    words = actual.reshape(-1).view(np.uint32)
    words[place] ^= np.uint32(1 << data.draw(st.integers(0, 31)))
    changed = not (np.isnan(actual.reshape(-1)[place]) and np.isnan(reference.reshape(-1)[place]))
    assert difference(actual, reference).differing == changed
