"""Resizing along axes, as gathers at constant positions and weighted sums of what they bring.

Numerics: axes are resized one after the other, the last one first. Along an axis, a result is the sum of
its taps times their weights from the left, `((x0 * w0 + x1 * w1) + x2 * w2) + x3 * w3`, each operation
rounded; weights are computed in float64 at compile time, by basic arithmetic, and rounded once to the
element type. A linear result has two taps, a cubic one four, even where a weight is 0. Nearest copies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cuvil.errors import ModelError
from cuvil.ir.dims import Extent
from cuvil.ir.graph import Value
from cuvil.ir.types import Array
from cuvil.ops.axes import all_axes
from cuvil.ops.comparison import WHERE
from cuvil.ops.elementwise import ADD, MUL, scalar_constant
from cuvil.ops.foreign import ForeignNode, Importer
from cuvil.ops.gather import gathered
from cuvil.ops.movement import transposed


@dataclass(frozen=True)
class _Axis:
    """One axis: its extents before and after, the scale that coordinates go by, and the region of `roi`."""

    extent: Extent
    result: Extent
    scale: float
    start: float = 0.0
    end: float = 1.0

    @property
    def is_rounded(self) -> bool:
        """Whether the scale gives no whole extent, up to the rounding of float32 scales."""
        if self.is_identity:
            return False
        return abs(self.extent * self.scale - self.result) > 1e-6 * self.result

    @property
    def is_identity(self) -> bool:
        return self.extent == self.result and self.scale == 1 and (self.start, self.end) == (0, 1)


def _half_pixel(i: int, axis: _Axis) -> float:
    return (i + 0.5) / axis.scale - 0.5


def _half_pixel_symmetric(i: int, axis: _Axis) -> float:
    """Keeps the centre where a scale does not give a whole extent."""
    adjustment = axis.result / (axis.scale * axis.extent)
    return axis.extent / 2 * (1 - adjustment) + (i + 0.5) / axis.scale - 0.5


def _align_corners(i: int, axis: _Axis) -> float:
    return 0.0 if axis.result == 1 else i * (axis.extent - 1) / (axis.result - 1)


def _crop_and_resize(i: int, axis: _Axis) -> float:
    last = axis.extent - 1
    if axis.result == 1:
        return 0.5 * (axis.start + axis.end) * last
    return axis.start * last + i * (axis.end - axis.start) * last / (axis.result - 1)


_COORDINATES: dict[str, Callable[[int, _Axis], float]] = {
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _half_pixel_symmetric,
    "pytorch_half_pixel": lambda i, axis: _half_pixel(i, axis) if axis.result > 1 else 0.0,
    "align_corners": _align_corners,
    "asymmetric": lambda i, axis: i / axis.scale,
    "tf_half_pixel_for_nn": lambda i, axis: (i + 0.5) / axis.scale,
    "tf_crop_and_resize": _crop_and_resize,
}
"""Where in the operand an element of the result lies, in elements."""

_NEAREST: dict[str, Callable[[float], int]] = {
    "round_prefer_floor": lambda x: math.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: math.floor(x + 0.5),
    "floor": math.floor,
    "ceil": math.ceil,
}


@dataclass(frozen=True)
class _Form:
    """How one Resize node reads its operand."""

    mode: str
    coordinates: str
    nearest: str
    cubic_a: float
    exclude_outside: bool
    extrapolation: float

    def positions(self, axis: _Axis) -> list[float]:
        return [_COORDINATES[self.coordinates](i, axis) for i in range(axis.result)]

    def taps(self, axis: _Axis) -> tuple[Array, Array | None]:
        """Positions in the operand [taps, result] and their weights; nearest has one tap and no weights."""
        at = self.positions(axis)
        if self.mode == "nearest":
            found = np.array([[_NEAREST[self.nearest](x) for x in at]])
            return np.clip(found, 0, axis.extent - 1), None
        rows = [self._linear(x, axis) if self.mode == "linear" else self._cubic(x, axis) for x in at]
        indices, weights = np.array([row[0] for row in rows]).T, np.array([row[1] for row in rows]).T
        return np.clip(indices, 0, axis.extent - 1), weights

    def _linear(self, x: float, axis: _Axis) -> tuple[list[int], list[float]]:
        x = min(max(x, 0.0), axis.extent - 1.0)
        left = math.floor(x)
        return [left, left + 1], [1 - (x - left), x - left]

    def _cubic(self, x: float, axis: _Axis) -> tuple[list[int], list[float]]:
        left = math.floor(x)
        indices = [left - 1, left, left + 1, left + 2]
        weights = [_cubic_weight(abs(x - i), self.cubic_a) for i in indices]
        if self.exclude_outside:
            pairs = zip(indices, weights, strict=True)
            weights = [w if 0 <= i < axis.extent else 0.0 for i, w in pairs]
            weights = [weight / sum(weights) for weight in weights]
        return indices, weights


def _cubic_weight(distance: float, a: float) -> float:
    """Keys' convolution kernel."""
    d = distance
    if d <= 1:
        return ((a + 2) * d - (a + 3)) * d * d + 1
    return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a if d < 2 else 0.0


def _resized(node: ForeignNode, x: Value, axes: Sequence[_Axis], form: _Form) -> Value:
    """Channels go last where they and the batch stay as they are, so that gathers move whole rows."""
    rank = x.type.rank
    moves = rank > 2 and axes[0].is_identity and axes[1].is_identity
    if moves:
        x = transposed(node, x, (0, *range(2, rank), 1))
        axes = [axes[0], *axes[2:], axes[1]]
    for number in reversed(range(rank)):
        if not axes[number].is_identity:
            x = _resized_axis(node, x, number, axes[number], form)
    if form.coordinates == "tf_crop_and_resize":
        x = _extrapolated(node, x, axes, form)
    return transposed(node, x, (0, rank - 1, *range(1, rank - 1))) if moves else x


def _resized_axis(node: ForeignNode, x: Value, number: int, axis: _Axis, form: _Form) -> Value:
    indices, weights = form.taps(axis)
    parts = [gathered(node, x, row, number) for row in indices]
    if weights is None:
        return parts[0]
    shape = (axis.result, *(1,) * (x.type.rank - number - 1))
    factors = [node.builder.constant(row.astype(x.type.dtype.numpy).reshape(shape)) for row in weights]
    products = [node.emit(MUL, [part, factor]) for part, factor in zip(parts, factors, strict=True)]
    total = products[0]
    for product in products[1:]:
        total = node.emit(ADD, [total, product])
    return total


def _extrapolated(node: ForeignNode, x: Value, axes: Sequence[_Axis], form: _Form) -> Value:
    """The fill value where the region reaches beyond the operand."""
    outside = np.zeros(x.type.shape, np.bool_)
    for number, axis in enumerate(axes):
        at = np.array(form.positions(axis))
        beyond = (at < 0) | (at > axis.extent - 1)
        outside |= beyond.reshape(-1, *(1,) * (x.type.rank - number - 1))
    fill = scalar_constant(node, x, form.extrapolation)
    return node.emit(WHERE, [node.builder.constant(outside), fill, x]) if outside.any() else x


def _form(node: ForeignNode) -> _Form:
    """The attributes; before opset 11 there was only the mode."""
    asymmetric = node.opset < 11
    form = _Form(
        node.attrs.get("mode", "nearest"),
        "asymmetric" if asymmetric else node.attrs.get("coordinate_transformation_mode", "half_pixel"),
        "floor" if asymmetric else node.attrs.get("nearest_mode", "round_prefer_floor"),
        float(node.attrs.get("cubic_coeff_a", -0.75)),
        bool(node.attrs.get("exclude_outside", 0)),
        float(node.attrs.get("extrapolation_value", 0.0)),
    )
    if form.mode not in ("nearest", "linear", "cubic") or form.nearest not in _NEAREST:
        raise ModelError(f"{node.loc}: mode is unknown; got {form.mode!r}, {form.nearest!r}")
    if form.coordinates not in _COORDINATES:
        known = ", ".join(_COORDINATES)
        raise ModelError(
            f"{node.loc}: coordinate mode is unknown; expected {known}, got {form.coordinates!r}"
        )
    return form


def _import_resize(node: ForeignNode) -> list[Value]:
    x, form = node.operand(0), _form(node)
    if form.mode != "nearest" and x.type.dtype.kind != "float":
        raise node.unsupported(f"mode {form.mode} on {x.type.dtype.name}")
    axes = _axes(node, x)
    if node.attrs.get("antialias", 0) and form.mode != "nearest" and any(axis.scale < 1 for axis in axes):
        raise node.unsupported("antialias when an axis shrinks")
    if form.coordinates == "align_corners" and any(axis.is_rounded for axis in axes):
        # ONNX's tests divide by the fraction that `scales` give, the runtimes by the extent that comes of it.
        raise node.unsupported("align_corners with scales that give no whole extent")
    if x.type.count == 0 or any(axis.result == 0 for axis in axes):
        raise node.unsupported(f"resizing {x.type} from or to nothing")
    if all(axis.is_identity for axis in axes):
        return [x]
    return [_resized(node, x, axes, form)]


def _axes(node: ForeignNode, x: Value) -> list[_Axis]:
    """Every axis of the operand; those that the node does not name stay as they are."""
    rank = x.type.rank
    chosen = all_axes(node, node.attrs.get("axes", range(rank)), rank)
    extents = [x.type.shape[axis] for axis in chosen]
    sizes = node.optional_extents(3, "sizes") if node.opset >= 11 else None
    if sizes:
        _check_count(node, "sizes", len(chosen), len(sizes))
        changed = _by_sizes(node, extents, sizes)
    else:
        scales = _scales(node, len(chosen))
        if min(scales, default=1) <= 0:
            raise ModelError(f"{node.loc}: scales must be positive, got {list(scales)}")
        results = [n if s == 1 else math.floor(n * s) for n, s in zip(extents, scales, strict=True)]
        changed = [_Axis(*axis) for axis in zip(extents, results, scales, strict=True)]
    if node.attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        region = _numbers(node, 1, "roi", 2 * len(chosen))
        if region is None:
            raise ModelError(f"{node.loc}: roi is missing; expected {2 * len(chosen)} numbers")
        ends = zip(changed, region[: len(chosen)], region[len(chosen) :], strict=True)
        changed = [replace(axis, start=start, end=end) for axis, start, end in ends]
    axes = [_Axis(extent, extent, 1.0) for extent in x.type.shape]
    for number, axis in zip(chosen, changed, strict=True):
        axes[number] = axis
    return axes


def _scales(node: ForeignNode, count: int) -> Sequence[float]:
    """Scales: an attribute in the first form of Upsample, operand 1 in the next ones, operand 2 since 11."""
    if "scales" in node.attrs:
        return tuple(float(np.float32(scale)) for scale in node.attrs["scales"])
    scales = _numbers(node, 1 if node.opset < 11 else 2, "scales", count)
    if scales is None:
        raise ModelError(f"{node.loc}: scales and sizes are both missing")
    return scales


def _numbers(node: ForeignNode, position: int, what: str, count: int) -> tuple[float, ...] | None:
    """A constant list; an empty one is a missing one."""
    array = node.optional_constant(position, what)
    if array is None or array.size == 0:
        return None
    _check_count(node, what, count, array.size)
    return tuple(float(number) for number in array.reshape(-1))


def _check_count(node: ForeignNode, what: str, expected: int, got: int) -> None:
    if got != expected:
        raise ModelError(f"{node.loc}: {what} do not fit; expected {expected} numbers, got {got}")


def _by_sizes(node: ForeignNode, extents: Sequence[Extent], sizes: Sequence[Extent]) -> list[_Axis]:
    policy = node.attrs.get("keep_aspect_ratio_policy", "stretch")
    pairs = list(zip(extents, sizes, strict=True))
    ratios = [1.0 if size == extent or extent == 0 else size / extent for extent, size in pairs]
    if policy == "stretch":
        return [_Axis(*axis) for axis in zip(extents, sizes, ratios, strict=True)]
    if policy not in ("not_larger", "not_smaller"):
        raise ModelError(f"{node.loc}: keep_aspect_ratio_policy is unknown, got {policy!r}")
    scale = min(ratios) if policy == "not_larger" else max(ratios)
    return [_Axis(extent, math.floor(scale * extent + 0.5), scale) for extent in extents]


ONNX: dict[str, Importer] = {"Resize": _import_resize, "Upsample": _import_resize}
