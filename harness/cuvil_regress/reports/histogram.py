"""How far an output lies from its golden, as a picture: elements by ULP distance, in powers of two."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from cuvil_regress.reports.terminal import counted

HEIGHT = 96
"""Height of the tallest bar."""
MARGIN = 14
"""Room above the bars for their counts, and below them for their labels."""
_WIDTH, _WIDEST, _LABEL_WIDTH = 420, 38, 28
_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Bar:
    """One bucket; lengths are in the picture's units."""

    x: float
    y: float
    width: float
    height: float
    label: str
    """Below the bar; empty where there is no room."""
    count: str
    """Above the bar; empty where there is no room, or nothing to count."""
    title: str


@dataclass(frozen=True)
class Histogram:
    """A picture, and what it shows in words."""

    width: float
    height: float
    bars: tuple[Bar, ...]
    summary: str


def draw(counts: Sequence[int]) -> Histogram:
    """Bars for 0, 1, 2 to 3, 4 to 7, ... ULP; heights are logarithmic, so that one element shows."""
    slot = min(_WIDEST, _WIDTH / max(len(counts), 1))
    every = math.ceil(_LABEL_WIDTH / slot)
    tallest = math.log1p(max(counts, default=0)) or 1.0
    bars = []
    for bucket, count in enumerate(counts):
        height = round(HEIGHT * math.log1p(count) / tallest, 1)
        label = _lowest(bucket) if bucket % every == 0 else ""
        shown = _compact(count) if count and every == 1 else ""
        title = f"{_range(bucket)} ULP: {counted(count, 'element')}"
        x, y = round(bucket * slot + 1, 1), round(MARGIN + HEIGHT - height, 1)
        bars.append(Bar(x, y, round(slot - 2, 1), height, label, shown, title))
    width = round(max(slot * len(counts), _WIDEST), 1)
    return Histogram(width, HEIGHT + 2 * MARGIN, tuple(bars), _summary(counts))


def _summary(counts: Sequence[int]) -> str:
    total = sum(counts)
    if not total:
        return "no finite element"
    exact = counts[0]
    farthest = "" if len(counts) == 1 else f", the farthest {_range(len(counts) - 1)} ULP away"
    return f"{exact} of {counted(total, 'finite element')} exact{farthest}"


def _lowest(bucket: int) -> str:
    """The least distance in a bucket, short enough for a label."""
    power = bucket - 1
    if power < 10:
        return str(1 << power) if bucket else "0"
    return f"2{str(power).translate(_SUPERSCRIPTS)}"


def _range(bucket: int) -> str:
    if bucket < 2:
        return str(bucket)
    lowest = 1 << (bucket - 1)
    return f"{lowest} to {2 * lowest - 1}" if bucket <= 20 else f"{lowest:.1e} to {2.0 * lowest:.1e}"


def _compact(count: int) -> str:
    for unit, size in (("M", 1_000_000), ("k", 1_000)):
        if count >= size:
            return f"{count / size:.{int(count < 10 * size)}f}{unit}"
    return str(count)
