"""Transposed convolution, as an ordinary one over an image with zeros between its pixels.

Numerics: each result is one chain of float32 fused multiply-adds from +0 in the order of a convolution with
the filter turned by 180 degrees: descending ky, kx of the model's filter, ascending channel. The zeros take
part, as padding does, so weights must be finite.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cuvil.errors import ModelError
from cuvil.ir.graph import Value
from cuvil.ops.conv import CONV
from cuvil.ops.elementwise import ADD
from cuvil.ops.foreign import ForeignNode, Importer
from cuvil.ops.movement import SLICE, transposed
from cuvil.ops.padding import PAD
from cuvil.ops.reshape import reshaped
from cuvil.ops.window import window_attrs

Pair = Sequence[int]


def _import_conv_transpose(node: ForeignNode) -> list[Value]:
    x, weights, bias = node.operand(0), node.operand(1), node.optional(2)
    if x.type.rank not in (3, 4) or weights.type.rank != x.type.rank:
        raise node.unsupported(f"a transposed convolution of {x.type} with {weights.type}")
    n, c, *spatial = x.type.shape
    groups = int(node.attrs.get("group", 1))
    if groups < 1 or weights.type.shape[0] != c or c % groups:
        raise ModelError(f"{node.loc}: channels do not fit; got {x.type} and {weights.type}, {groups} groups")
    before, after, strides, dilations = _geometry(node, spatial, weights.type.shape[2:])
    if len(spatial) == 1:
        x = reshaped(node, x, (n, c, 1, *spatial))
        weights = reshaped(node, weights, (*weights.type.shape[:2], 1, *weights.type.shape[2:]))
    image = _spread(node, transposed(node, x, (0, 2, 3, 1)), strides)
    image = _bordered(node, image, before, after)
    attrs = {"strides": (1, 1), "dilations": dilations, "groups": groups}
    value = node.emit(CONV, [image, _turned(node, weights, groups)], attrs)
    if bias is not None:
        value = node.emit(ADD, [value, bias])
    result = transposed(node, value, (0, 3, 1, 2))
    return [reshaped(node, result, (n, result.type.shape[1], *result.type.shape[4 - len(spatial) :]))]


def _geometry(
    node: ForeignNode, spatial: Sequence[int], kernel: Sequence[int]
) -> tuple[Pair, Pair, tuple[int, ...], tuple[int, ...]]:
    """Borders before and after each of two axes (negative ones cut), strides and dilations.

    Raises:
        ModelError: an attribute does not fit.
    """
    given = {name: value for name, value in node.attrs.items() if name not in ("auto_pad", "pads")}
    plain = window_attrs(replace(node, attrs=given), spatial, kernel)
    extents = [1] * (2 - len(spatial)) + list(spatial)
    extra = _pair(node, "output_padding", len(spatial), 0)
    axes = zip(extents, plain["kernel"], plain["strides"], plain["dilations"], extra, strict=True)
    full = [(n - 1) * stride + dilation * (taps - 1) + 1 + more for n, taps, stride, dilation, more in axes]
    starts, ends = _pads(node, len(spatial), full, extents, plain["strides"])
    reach = [d * (taps - 1) for taps, d in zip(plain["kernel"], plain["dilations"], strict=True)]
    before = [far - pad for far, pad in zip(reach, starts, strict=True)]
    after = [far - pad + more for far, pad, more in zip(reach, ends, extra, strict=True)]
    return before, after, plain["strides"], plain["dilations"]


def _pair(node: ForeignNode, name: str, axes: int, default: int) -> list[int]:
    values = list(node.attrs.get(name, (default,) * axes))
    if len(values) != axes or min(values) < 0:
        raise ModelError(f"{node.loc}: {name} does not fit; expected {axes} numbers, got {values}")
    return [default] * (2 - axes) + values


def _pads(
    node: ForeignNode, axes: int, full: Sequence[int], extents: Sequence[int], strides: Sequence[int]
) -> tuple[list[int], list[int]]:
    """What is cut from the full result at both ends: `pads`, or what `output_shape` or `auto_pad` ask for."""
    auto = node.attrs.get("auto_pad", "NOTSET")
    if "output_shape" in node.attrs:
        wanted = [1] * (2 - axes) + [int(n) for n in node.attrs["output_shape"][-axes:]]
    elif auto in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [extent * stride for extent, stride in zip(extents, strides, strict=True)]
    elif auto in ("NOTSET", "VALID"):
        pads = list(node.attrs.get("pads", (0,) * (2 * axes))) if auto == "NOTSET" else [0] * (2 * axes)
        if len(pads) != 2 * axes:
            raise ModelError(f"{node.loc}: pads do not fit; expected {2 * axes} numbers, got {pads}")
        lead = [0] * (2 - axes)
        return lead + pads[:axes], lead + pads[axes:]
    else:
        raise ModelError(f"{node.loc}: auto_pad is unknown; got {auto!r}")
    totals = [size - target for size, target in zip(full, wanted, strict=True)]
    if auto == "SAME_UPPER":
        starts = [total // 2 for total in totals]
    else:
        starts = [total - total // 2 for total in totals]
    return starts, [total - start for total, start in zip(totals, starts, strict=True)]


def _spread(node: ForeignNode, image: Value, strides: Sequence[int]) -> Value:
    """The pixels of [N, H, W, C] `strides` apart, zeros between."""
    n, height, width, c = image.type.shape
    down, right = strides
    if (down, right) == (1, 1):
        return image
    split = reshaped(node, image, (n, height, 1, width, 1, c))
    after = (0, 0, down - 1, 0, right - 1, 0)
    wide = node.emit(PAD, [split], {"before": (0,) * 6, "after": after, "value": 0.0})
    spread = reshaped(node, wide, (n, height * down, width * right, c))
    sizes = (n, (height - 1) * down + 1, (width - 1) * right + 1, c)
    return node.emit(SLICE, [spread], {"starts": (0,) * 4, "steps": (1,) * 4, "sizes": sizes})


def _bordered(node: ForeignNode, image: Value, before: Sequence[int], after: Sequence[int]) -> Value:
    """Zeros around height and width; where a border is negative, pixels are cut."""
    cut_before, cut_after = ([max(0, -width) for width in side] for side in (before, after))
    n, height, width, c = image.type.shape
    sizes = (n, height - cut_before[0] - cut_after[0], width - cut_before[1] - cut_after[1], c)
    if any(size < 1 for size in sizes):
        raise ModelError(f"{node.loc}: nothing is left of the image; expected smaller pads, got {node.attrs}")
    if sizes != image.type.shape:
        starts = (0, *cut_before, 0)
        image = node.emit(SLICE, [image], {"starts": starts, "steps": (1,) * 4, "sizes": sizes})
    borders = [(0, *(max(0, width) for width in side), 0) for side in (before, after)]
    if not any((*borders[0], *borders[1])):
        return image
    return node.emit(PAD, [image], {"before": borders[0], "after": borders[1], "value": 0.0})


def _turned(node: ForeignNode, weights: Value, groups: int) -> Value:
    """Weights [inputs, outputs of a group, ky, kx] as those of a convolution [outputs, ky, kx, inputs]."""
    array = node.builder.constant_of(weights)
    if array is None or not np.isfinite(array).all():
        raise node.unsupported("weights that are not constant or not finite")
    inputs, outputs, ky, kx = array.shape
    grouped = array.reshape(groups, inputs // groups, outputs, ky, kx)[..., ::-1, ::-1]
    filters = grouped.transpose(0, 2, 3, 4, 1).reshape(groups * outputs, ky, kx, inputs // groups)
    return node.builder.constant(np.ascontiguousarray(filters), weights.name)


ONNX: dict[str, Importer] = {"ConvTranspose": _import_conv_transpose}
