"""Convolution: channels last, and without padding (a pad operator goes before it).

Numerics: each result is one chain of float32 fused multiply-adds from +0, in ascending order of
(ky, kx, channel within the group). A padding tap multiplies +0 by its weight, which must be finite.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cuvil.errors import ModelError
from cuvil.exact import fma32
from cuvil.ir.graph import Node, Value
from cuvil.ir.op import Attrs, OpDef
from cuvil.ir.types import FLOAT32, Array, Shape, TensorType
from cuvil.loops.build import KernelBuilder
from cuvil.loops.contraction import Contraction, Span, split_columns, split_rows
from cuvil.loops.kernel import Expr, fma
from cuvil.ops.context import LowerContext
from cuvil.ops.elementwise import ADD, DIV, MUL, SQRT, SUB, check_dtype, common_dtype, scalar_constant
from cuvil.ops.foreign import ForeignNode, Importer
from cuvil.ops.movement import transposed
from cuvil.ops.padding import PAD
from cuvil.ops.reshape import reshaped
from cuvil.ops.tiled import Tiled, emit_tiled, pack_panels
from cuvil.ops.window import window_attrs


def _infer_conv(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    image, weights = operands
    groups = attrs["groups"]
    n, height, width, channels = image.shape
    outputs, ky, kx, per_group = weights.shape
    check_dtype(common_dtype(operands), (FLOAT32,))
    if groups < 1 or channels != per_group * groups or outputs % groups:
        raise ModelError(
            f"conv: groups must divide the channels; expected {per_group} * groups input channels, "
            f"got {channels} input and {outputs} output channels with groups={groups}"
        )
    extents = [
        (size - dilation * (taps - 1) - 1) // stride + 1
        for size, taps, stride, dilation in zip(
            (height, width), (ky, kx), attrs["strides"], attrs["dilations"], strict=True
        )
    ]
    if min(extents) < 1:
        raise ModelError(f"conv: the kernel is larger than the image; got {image} and {weights}")
    return (TensorType(FLOAT32, (n, *extents, outputs)),)


def _evaluate_conv(operands: Sequence[Array], attrs: Attrs) -> tuple[Array, ...]:
    image, weights = operands
    (result_type,) = _infer_conv(
        [TensorType(FLOAT32, image.shape), TensorType(FLOAT32, weights.shape)], attrs
    )
    n, rows, columns, outputs = result_type.shape
    groups = attrs["groups"]
    _, taps_y, taps_x, per_group = weights.shape
    (sy, sx), (dy, dx) = attrs["strides"], attrs["dilations"]
    result = np.zeros((n, rows, columns, groups, outputs // groups), np.float32)
    grouped = weights.reshape(groups, outputs // groups, taps_y, taps_x, per_group)
    for ky in range(taps_y):
        for kx in range(taps_x):
            window = image[:, ky * dy :, kx * dx :][:, : rows * sy : sy, : columns * sx : sx]
            parts = window.reshape(n, rows, columns, groups, per_group)
            for c in range(per_group):
                result = fma32(parts[..., c, None], grouped[:, :, ky, kx, c], result)
    return (result.reshape(result_type.shape),)


def _lower_conv(ctx: LowerContext, node: Node) -> None:
    _, weights = node.operands
    channels, groups = node.operands[0].type.shape[3], node.attrs["groups"]
    if groups == channels == weights.type.shape[0] and groups > 1:
        _lower_depthwise(ctx, node)
    else:
        _lower_implicit_product(ctx, node)


def _lower_implicit_product(ctx: LowerContext, node: Node) -> None:
    """Convolution as a matrix product whose left operand is read straight from the image."""
    image, weights = node.operands
    groups = node.attrs["groups"]
    outputs = weights.type.shape[0]
    n, height, width, _ = node.result.type.shape
    geometry = _Geometry(node)
    outer, rows = (n * height, width) if not geometry.is_pointwise else (1, n * height * width)
    columns = outputs // groups
    tile = ctx.tile(rows, columns)
    constant = ctx.constant_of(weights)
    for span in split_columns(columns, tile.columns, ctx.lanes, padded=constant is not None):

        def build(b: KernelBuilder, span: Span = span) -> Tiled:
            x = b.input("x", FLOAT32, geometry.image_shape)
            if constant is None:
                filters = weights
                w = b.input("w", FLOAT32, (groups, columns, geometry.depth))
            else:
                filters = ctx.constant(_filter_panels(constant, groups, span), "filters")
                w = b.input("w", FLOAT32, (span.count, groups, geometry.depth, span.size))
            view = (outer, rows, outputs) if not geometry.is_pointwise else (rows, outputs)
            writer = ctx.writer(b, node.result, view)

            def spec(flat: Expr, panel: Expr) -> Contraction:
                group = b.let("group", flat % groups)
                line = b.let("line", flat // groups)
                column0 = panel * span.size + span.start
                where = () if geometry.is_pointwise else (line,)

                def right(column: Expr, k: Sequence[Expr]) -> Expr:
                    depth = geometry.tap(k)
                    if constant is None:
                        return b.load(w, (group, column + column0, depth))
                    return b.load(w, (panel, group, depth, column))

                return Contraction(
                    geometry.reduction,
                    lambda row, k: b.load(x, geometry.image_index(line, row, group, k)),
                    right,
                    lambda row, column, value: writer.store(
                        (*where, row, group * columns + column0 + column), value
                    ),
                )

            return [image, filters], writer, spec

        emit_tiled(ctx, "conv", outer * groups, split_rows(rows, tile.rows), span, geometry.depth, build)


class _Geometry:
    """How a convolution's output pixels and taps address its image.

    Taps that lie next to each other in memory are merged into one loop: a pointwise convolution runs over
    the channels of a list of pixels, any other one without groups and horizontal dilation over (ky, kx and
    channel).
    """

    def __init__(self, node: Node) -> None:
        image, weights = (operand.type.shape for operand in node.operands)
        self._n, self._height, self._width, self._channels = image
        _, self._ky, self._kx, self._per_group = weights
        (self._sy, self._sx), (self._dy, self._dx) = node.attrs["strides"], node.attrs["dilations"]
        _, self._rows, _, _ = node.result.type.shape
        plain = node.attrs["groups"] == 1
        single = self._ky == self._kx == self._sy == self._sx == 1
        self.is_pointwise = single and plain
        self._merged = plain and (self._dx == 1 or self._kx == 1)
        self.depth = self._ky * self._kx * self._per_group

    @property
    def image_shape(self) -> Shape:
        if self.is_pointwise:
            return (self._n * self._height * self._width, self._channels)
        return (self._n, self._height, self._width * self._channels)

    @property
    def reduction(self) -> tuple[int, ...]:
        if self.is_pointwise:
            return (self._channels,)
        if self._merged:
            return (self._ky, self._kx * self._channels)
        return (self._ky, self._kx, self._per_group)

    def tap(self, k: Sequence[Expr]) -> Expr:
        """The position of reduction index `k` among the weights of one output channel."""
        position = k[0]
        for index, extent in zip(k[1:], self.reduction[1:], strict=True):
            position = position * extent + index
        return position

    def image_index(self, line: Expr, row: Expr, group: Expr, k: Sequence[Expr]) -> tuple[Expr, ...]:
        """The element that pixel `row` of output line `line` meets at reduction index `k`."""
        if self.is_pointwise:
            return (row, k[0])
        y = line % self._rows * self._sy + k[0] * self._dy
        x = row * (self._sx * self._channels)
        if self._merged:
            return (line // self._rows, y, x + k[1])
        return (
            line // self._rows,
            y,
            x + k[1] * (self._dx * self._channels) + group * self._per_group + k[2],
        )


def _filter_panels(weights: Array, groups: int, span: Span) -> Array:
    """Weights [outputs, ky, kx, c] as [panel, group, ky * kx * c, size]."""
    outputs = weights.shape[0]
    matrices = weights.reshape(groups, outputs // groups, -1).transpose(0, 2, 1)
    return pack_panels(matrices, span)


def _lower_depthwise(ctx: LowerContext, node: Node) -> None:
    """One chain for each channel, channels side by side in vectors."""
    image, weights = node.operands
    (sy, sx), (dy, dx) = node.attrs["strides"], node.attrs["dilations"]
    n, rows, columns, channels = node.result.type.shape
    _, taps_y, taps_x, _ = weights.type.shape
    constant = ctx.constant_of(weights)
    if constant is not None:
        weights = ctx.constant(np.ascontiguousarray(constant.transpose(1, 2, 3, 0)), "filters")
    b = KernelBuilder("depthwise_conv")
    x = b.input("x", FLOAT32, image.type.shape)
    w_shape = (taps_y, taps_x, channels) if constant is not None else (channels, taps_y, taps_x)
    w = b.input("w", FLOAT32, w_shape)
    writer = ctx.writer(b, node.result, (n * rows, columns, channels))
    with b.loop("line", n * rows, parallel=True) as line, b.loop("x", columns) as ox:
        i, oy = b.let("i", line // rows), b.let("oy", line % rows)
        with b.loop("c", channels, "vector") as c:
            acc = b.local("acc", FLOAT32)
            b.store(acc, (), 0.0)
            with b.loop("ky", taps_y, "unroll") as ky, b.loop("kx", taps_x, "unroll") as kx:
                pixel = b.load(x, (i, oy * sy + ky * dy, ox * sx + kx * dx, c))
                tap = b.load(w, (ky, kx, c) if constant is not None else (c, ky, kx))
                b.store(acc, (), fma(pixel, tap, b.load(acc)))
            writer.store((line, ox, c), b.load(acc))
    flops = 2 * taps_y * taps_x * node.result.type.count
    ctx.call(b.finish(), [image, weights, *writer.operands], flops=flops)


CONV = OpDef("conv", _infer_conv, _evaluate_conv, lower=_lower_conv)

OPERATORS = (CONV,)


def _import_conv(node: ForeignNode) -> list[Value]:
    """Brings the channels last, pads the image, and gives back the caller's layout."""
    x, weights, bias = node.operand(0), node.operand(1), node.optional(2)
    if x.type.rank not in (3, 4) or weights.type.rank != x.type.rank:
        raise node.unsupported(f"a convolution of {x.type} with {weights.type}")
    n, c, *spatial = x.type.shape
    attrs = window_attrs(node, spatial, weights.type.shape[2:])
    if len(spatial) == 1:
        x = reshaped(node, x, (n, c, 1, *spatial))
        weights = reshaped(node, weights, (*weights.type.shape[:2], 1, *weights.type.shape[2:]))
    image = _padded(node, transposed(node, x, (0, 2, 3, 1)), weights, attrs["pads"])
    chosen = {name: attrs[name] for name in ("strides", "dilations")} | {"groups": node.attrs.get("group", 1)}
    value = node.emit(CONV, [image, transposed(node, weights, (0, 2, 3, 1))], chosen)
    if bias is not None:
        value = node.emit(ADD, [value, bias])
    result = transposed(node, value, (0, 3, 1, 2))
    return [reshaped(node, result, (n, result.type.shape[1], *result.type.shape[4 - len(spatial) :]))]


def _padded(node: ForeignNode, image: Value, weights: Value, pads: Sequence[int]) -> Value:
    if not any(pads):
        return image
    array = node.builder.constant_of(weights)
    if array is None or not np.isfinite(array).all():
        raise node.unsupported("padding with weights that are not constant or not finite")
    top, left, bottom, right = pads
    attrs = {"before": (0, top, left, 0), "after": (0, bottom, right, 0), "value": 0.0}
    return node.emit(PAD, [image], attrs)


def _import_batch_norm(node: ForeignNode) -> list[Value]:
    """y = x * factor + offset; factor = scale / sqrt(variance + epsilon), offset = bias - mean * factor."""
    if node.attrs.get("training_mode", 0) or len(node.result_names) > 1:
        raise node.unsupported("training mode")
    x = node.operand(0)
    if x.type.rank < 2:
        raise ModelError(f"{node.loc}: expected an operand with a channel axis, got {x.type}")
    shape = (x.type.shape[1], *(1,) * (x.type.rank - 2))
    scale, bias, mean, variance = (reshaped(node, node.operand(i), shape) for i in range(1, 5))
    epsilon = scalar_constant(node, x, node.attrs.get("epsilon", 1e-5))
    deviation = node.emit(SQRT, [node.emit(ADD, [variance, epsilon])])
    factor = node.emit(DIV, [scale, deviation])
    offset = node.emit(SUB, [bias, node.emit(MUL, [mean, factor])])
    return [node.emit(ADD, [node.emit(MUL, [x, factor]), offset])]


ONNX: dict[str, Importer] = {"Conv": _import_conv, "BatchNormalization": _import_batch_norm}
