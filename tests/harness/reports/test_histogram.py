"""ULP histograms: counted by the comparer, drawn by the report."""

from __future__ import annotations

import numpy as np
import pytest

from cuvil_regress.comparer import compare_tensor
from cuvil_regress.policy import load
from cuvil_regress.reports.histogram import HEIGHT, MARGIN, draw


def histogram(actual: list[float], golden: list[float], dtype: str = "float32") -> tuple[int, ...] | None:
    ours, theirs = np.array(actual, dtype), np.array(golden, dtype)
    return compare_tensor(ours, theirs, load("release")).ulp_histogram


def stepped(value: float, steps: int) -> float:
    bits = np.float32(value).view(np.int32) + np.int32(steps)
    return float(bits.view(np.float32))


def test_buckets_are_powers_of_two() -> None:
    steps = [0, 0, 1, -1, 2, 3, 4, 7, 8, -15, 16, 1 << 20]
    found = histogram([stepped(1.5, step) for step in steps], [1.5] * len(steps))
    assert found == (2, 2, 2, 2, 2, 1, *[0] * 15, 1)


def test_only_finite_elements_count_and_zeros_meet() -> None:
    assert histogram([0.0, np.nan, np.inf, 1.0], [-0.0, np.nan, np.inf, np.nan]) == (1,)
    assert histogram([np.nan], [np.nan]) == ()


def test_the_greatest_distance_is_in_the_last_bucket() -> None:
    largest = float(np.finfo(np.float64).max)
    found = histogram([-largest], [largest], "float64")
    assert found is not None
    assert len(found) == 65
    assert sum(found) == 1


def test_integers_have_none() -> None:
    assert histogram([1, 2], [1, 3], "int64") is None


def test_chunks_add_up() -> None:
    golden = np.ones(200_000, np.float32)
    actual = golden.copy()
    actual[::2] = np.nextafter(np.float32(1), np.float32(2))
    assert compare_tensor(actual, golden, load("release")).ulp_histogram == (100_000, 100_000)


def test_the_bars() -> None:
    drawn = draw([400, 60, 0, 1])
    assert [bar.label for bar in drawn.bars] == ["0", "1", "2", "4"]
    assert [bar.count for bar in drawn.bars] == ["400", "60", "", "1"]
    assert [bar.title for bar in drawn.bars][1:] == [
        "1 ULP: 60 elements",
        "2 to 3 ULP: 0 elements",
        "4 to 7 ULP: 1 element",
    ]
    assert drawn.summary == "400 of 461 finite elements exact, the farthest 4 to 7 ULP away"
    heights = [bar.height for bar in drawn.bars]
    assert heights[0] == HEIGHT > heights[1] > heights[3] > 5 > heights[2] == 0
    assert all(bar.y + bar.height == pytest.approx(HEIGHT + MARGIN) for bar in drawn.bars)


@pytest.mark.parametrize(
    ("count", "text"), [(1, "1"), (999, "999"), (1_640, "1.6k"), (24_500, "24k"), (5_550_000, "5.5M")]
)
def test_counts_above_the_bars_are_short(count: int, text: str) -> None:
    assert [bar.count for bar in draw([count]).bars] == [text]


@pytest.mark.parametrize("length", [0, 1, 12, 33, 65])
def test_bars_stay_inside_and_apart(length: int) -> None:
    drawn = draw([1] * length)
    edges = [edge for bar in drawn.bars for edge in (bar.x, bar.x + bar.width)]
    assert edges == sorted(edges)
    assert all(0 < edge < drawn.width for edge in edges)
    assert len(drawn.bars) == length
