"""Sliding windows over the height and width of [N, H, W, C] tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cuvil.errors import LimitError, ModelError
from cuvil.ir.op import Attrs
from cuvil.ir.types import Array
from cuvil.ops.foreign import ForeignNode

LARGEST_SPAN = 2**24
"""Of a window, in elements along one axis; what is larger is damage, and would take forever."""


@dataclass(frozen=True)
class Window:
    """The windows along one axis: window o has taps at `o * stride - before + k * dilation`."""

    extent: int
    kernel: int
    stride: int
    dilation: int
    before: int
    after: int
    ceil: bool

    @property
    def span(self) -> int:
        """From the first tap to the last."""
        return (self.kernel - 1) * self.dilation + 1

    @property
    def count(self) -> int:
        """How many windows there are; rounded up, the last one must begin before the operand ends."""
        room = self.extent + self.before + self.after - self.span
        if room < 0:
            return 0
        if not self.ceil:
            return room // self.stride + 1
        count = -(-room // self.stride) + 1
        return count - ((count - 1) * self.stride >= self.extent + self.before)

    @property
    def leaves(self) -> bool:
        """Whether any tap lies outside of the operand."""
        return self.before > 0 or self.overhang > 0

    @property
    def overhang(self) -> int:
        """How far the last window reaches behind the operand."""
        return max(0, (self.count - 1) * self.stride - self.before + self.span - self.extent)

    def taps(self) -> Array:
        """Positions in the operand, [count, kernel]."""
        starts = np.arange(self.count)[:, None] * self.stride - self.before
        return np.asarray(starts + np.arange(self.kernel) * self.dilation)

    def tap_counts(self, include_padding: bool) -> Array:
        """How many taps of each window lie in the operand, or in the operand and its padding."""
        low, high = (-self.before, self.extent + self.after) if include_padding else (0, self.extent)
        taps = self.taps()
        return np.asarray(((taps >= low) & (taps < high)).sum(axis=1))


def windows_of(shape: Sequence[int], attrs: Attrs) -> tuple[Window, Window]:
    """The windows along height and width of an operand of shape [N, H, W, C].

    Raises:
        ModelError: the operand has another rank, or no window fits.
        LimitError: a window is too large.
    """
    if len(shape) != 4:
        raise ModelError(f"operand has the wrong rank; expected [N, H, W, C], got {list(shape)}")
    height, width = (
        Window(
            shape[axis + 1],
            attrs["kernel"][axis],
            attrs["strides"][axis],
            attrs["dilations"][axis],
            attrs["pads"][axis],
            attrs["pads"][axis + 2],
            attrs["ceil"],
        )
        for axis in (0, 1)
    )
    for window in (height, width):
        _check(window)
    return height, width


def _check(window: Window) -> None:
    if min(window.kernel, window.stride, window.dilation) < 1 or min(window.before, window.after) < 0:
        raise ModelError(f"window is not valid; expected positive sizes and strides, got {window}")
    if window.span > LARGEST_SPAN:
        raise LimitError(f"window is too large; expected a span of at most {LARGEST_SPAN}, got {window.span}")
    if max(window.before, window.after) >= window.span:
        raise ModelError(
            f"padding is as large as the window; expected less than {window.span}, "
            f"got {window.before} and {window.after}"
        )
    if window.count < 1:
        raise ModelError(
            f"window does not fit; expected a span of at most "
            f"{window.extent + window.before + window.after}, got {window.span}"
        )


def _same_padding(node: ForeignNode, extents: Sequence[int], attrs: Attrs) -> tuple[int, ...] | None:
    """ONNX's `auto_pad` as explicit padding (before each axis, then after each); None where it is not set."""
    auto = node.attrs.get("auto_pad", "NOTSET")
    if auto == "NOTSET":
        return None
    if auto == "VALID":
        return (0,) * (2 * len(extents))
    if auto not in ("SAME_UPPER", "SAME_LOWER"):
        raise ModelError(f"{node.loc}: auto_pad is unknown; expected SAME_UPPER or SAME_LOWER, got {auto!r}")
    totals = []
    for extent, kernel, stride, dilation in zip(
        extents, attrs["kernel"], attrs["strides"], attrs["dilations"], strict=True
    ):
        reach = (-(-extent // stride) - 1) * stride + (kernel - 1) * dilation + 1
        totals.append(max(0, reach - extent))
    halves = [total // 2 if auto == "SAME_UPPER" else total - total // 2 for total in totals]
    return (*halves, *(total - half for total, half in zip(totals, halves, strict=True)))


def window_attrs(node: ForeignNode, extents: Sequence[int], kernel: Sequence[int]) -> dict[str, Any]:
    """`kernel`, `strides`, `dilations`, `pads` and `ceil` for two axes; a single one gets a height of 1.

    Raises:
        ModelError: an attribute has the wrong number of entries.
    """
    axes = len(extents)
    attrs: dict[str, Any] = {
        "kernel": tuple(kernel),
        "strides": tuple(node.attrs.get("strides", (1,) * axes)),
        "dilations": tuple(node.attrs.get("dilations", (1,) * axes)),
    }
    for name, values in attrs.items():
        if len(values) != axes:
            raise ModelError(f"{node.loc}: {name} does not fit; expected {axes} numbers, got {list(values)}")
    pads = _same_padding(node, extents, attrs) or tuple(node.attrs.get("pads", (0,) * (2 * axes)))
    if len(pads) != 2 * axes:
        raise ModelError(f"{node.loc}: pads do not fit; expected {2 * axes} numbers, got {list(pads)}")
    if axes == 1:
        attrs = {name: (1, *values) for name, values in attrs.items()}
        pads = (0, pads[0], 0, pads[1])
    return attrs | {"pads": pads, "ceil": bool(node.attrs.get("ceil_mode", 0))}
