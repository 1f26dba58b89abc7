"""Maximum and average over sliding windows. Inside the graph IR, the channels are always the last axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cuvil.errors import ModelError
from cuvil.ir.graph import Node, Value
from cuvil.ir.op import Attrs, Infer, OpDef
from cuvil.ir.types import FLOAT32, FLOAT64, Array, DType, TensorType, type_of
from cuvil.loops.build import KernelBuilder
from cuvil.loops.kernel import (
    Buffer,
    Const,
    Expr,
    LoopKind,
    compare,
    maximum,
    minimum,
    select,
)
from cuvil.loops.reduce import LANES, TREE
from cuvil.ops.context import LowerContext
from cuvil.ops.elementwise import NUMBERS, check_arity, check_dtype
from cuvil.ops.foreign import ForeignNode, Importer
from cuvil.ops.movement import transposed
from cuvil.ops.reshape import reshaped
from cuvil.ops.window import Window, window_attrs, windows_of

_MAX_UNROLLED_TAPS = 64


def _infer(dtypes: Sequence[DType]) -> Infer:
    def infer(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        check_arity(types, 1)
        check_dtype(types[0].dtype, dtypes)
        height, width = windows_of(types[0].shape, attrs)
        batch, channels = types[0].shape[0], types[0].shape[3]
        return (TensorType(types[0].dtype, (batch, height.count, width.count, channels)),)

    return infer


def _lowest(dtype: np.dtype[Any]) -> int | float:
    return -np.inf if dtype.kind == "f" else int(np.iinfo(dtype).min)


def _taps(x: Array, attrs: Attrs, border: int | float) -> list[Array]:
    """Every tap of all windows as an array of the result's shape, in row-major order of the window."""
    height, width = windows_of(x.shape, attrs)
    widths = [(0, 0), (height.before, height.overhang), (width.before, width.overhang), (0, 0)]
    padded = np.pad(x, widths, constant_values=x.dtype.type(border))
    rows, columns = height.taps() + height.before, width.taps() + width.before
    return [padded[:, row][:, :, column] for row in rows.T for column in columns.T]


def _evaluate_max(arrays: Sequence[Array], attrs: Attrs) -> tuple[Array, ...]:
    (x,) = arrays
    first, *rest = _taps(x, attrs, _lowest(x.dtype))
    for tap in rest:
        first = np.where((tap > first) | (tap != tap), tap, first)
    return (first,)


def _evaluate_average(arrays: Sequence[Array], attrs: Attrs) -> tuple[Array, ...]:
    (x,) = arrays
    taps = _taps(x, attrs, 0)
    lanes = np.zeros((LANES, *taps[0].shape), x.dtype)
    for number, tap in enumerate(taps):
        lanes[number % LANES] += tap
    for step in TREE:
        lanes[:step] += lanes[step : 2 * step]
    return (lanes[0] / _tap_counts(x.shape, attrs)[..., None].astype(x.dtype),)


def _tap_counts(shape: Sequence[int], attrs: Attrs) -> Array:
    """What each window's sum is divided by, [OH, OW]."""
    height, width = windows_of(shape, attrs)
    include = attrs["count_include_pad"]
    return np.outer(height.tap_counts(include), width.tap_counts(include))


def _lower_max(ctx: LowerContext, node: Node) -> None:
    def emit(b: KernelBuilder, taps: _Taps) -> Expr:
        best = b.local("best", taps.source.dtype)
        b.store(best, (), taps.border)
        taps.emit(b, lambda _, tap: b.store(best, (), maximum(b.load(best), tap)))
        return b.let("result", b.load(best))

    border = Const(_lowest(node.result.type.dtype.numpy), node.result.type.dtype)
    _lower(ctx, node, "max_pool", border, emit, None)


def _lower_average(ctx: LowerContext, node: Node) -> None:
    """Numerics: tap k of the window, in row-major order, goes to accumulator k modulo 16."""
    dtype = node.result.type.dtype

    def emit(b: KernelBuilder, taps: _Taps) -> Expr:
        lanes = b.local("lanes", dtype, (LANES,))
        with b.loop("l", LANES, "unroll") as lane:
            b.store(lanes, (lane,), 0.0)
        taps.emit(b, lambda k, tap: b.store(lanes, (k % LANES,), b.load(lanes, (k % LANES,)) + tap))
        for step in TREE:
            with b.loop("l", step, "unroll") as lane:
                b.store(lanes, (lane,), b.load(lanes, (lane,)) + b.load(lanes, (lane + step,)))
        return b.let("sum", b.load(lanes, (0,)))

    counts = _tap_counts(node.operands[0].type.shape, node.attrs).astype(dtype.numpy)
    _lower(ctx, node, "average_pool", Const(0.0, dtype), emit, counts)


@dataclass(frozen=True, eq=False)
class _Taps:
    """The operand's elements under one window, in a kernel over [rows, columns, channels]."""

    source: Buffer
    border: Const
    windows: tuple[Window, Window]
    image: Expr
    row: Expr
    column: Expr
    channel: Expr

    def emit(self, b: KernelBuilder, use: Callable[[Expr, Expr], None]) -> None:
        """Calls `use` with the number of every tap and its value, in row-major order."""
        height, width = self.windows
        kind: LoopKind = "unroll" if height.kernel * width.kernel <= _MAX_UNROLLED_TAPS else "serial"
        with b.loop("ky", height.kernel, kind) as ky:
            y, y_inside = _tap_position(b, height, self.row, ky)
            with b.loop("kx", width.kernel, kind) as kx:
                x, x_inside = _tap_position(b, width, self.column, kx)
                value = b.load(self.source, (self.image, y, x, self.channel))
                for inside in (y_inside, x_inside):
                    value = select(inside, value, self.border) if inside else value
                use(ky * width.kernel + kx, b.let("tap", value))


def _tap_position(b: KernelBuilder, window: Window, index: Expr, tap: Expr) -> tuple[Expr, Expr | None]:
    """A position that is safe to read, and whether it is the tap's own."""
    position = index * window.stride + tap * window.dilation - window.before
    if not window.leaves:
        return position, None
    nearest = minimum(maximum(position, 0), window.extent - 1)
    return b.let("nearest", nearest), b.let("inside", compare("eq", position, nearest))


def _lower(
    ctx: LowerContext,
    node: Node,
    name: str,
    border: Const,
    emit: Callable[[KernelBuilder, _Taps], Expr],
    counts: Array | None,
) -> None:
    """Threads share the rows of all images, vectors the channels; `counts` divides the results."""
    source = node.operands[0]
    windows = windows_of(source.type.shape, node.attrs)
    batch, rows, columns, channels = node.result.type.shape
    if node.result.type.count == 0:
        return
    b = KernelBuilder(name)
    x = b.input("x", source.type.dtype, source.type.shape)
    divisor = _Divisor(ctx, b, counts)
    writer = ctx.writer(b, node.result, (batch * rows, columns, channels))
    with b.loop("row", batch * rows, parallel=True) as row, b.loop("column", columns) as column:
        image, y = b.let("image", row // rows), b.let("y", row % rows)
        by = divisor.at(b, y, column)
        with b.loop("c", channels, "vector") as c:
            value = emit(b, _Taps(x, border, windows, image, y, column, c))
            writer.store((row, column, c), value / by if by else value)
    taps = windows[0].kernel * windows[1].kernel
    ctx.call(b.finish(), [source, *divisor.operands, *writer.operands], flops=taps * node.result.type.count)


class _Divisor:
    """What the results are divided by: nothing, one number, or one number a window."""

    def __init__(self, ctx: LowerContext, b: KernelBuilder, counts: Array | None) -> None:
        self.operands: list[Value] = []
        self._number: Const | None = None
        self._buffer: Buffer | None = None
        if counts is None:
            return
        dtype = type_of(counts).dtype
        if np.all(counts == counts[0, 0]):
            self._number = Const(float(counts[0, 0]), dtype)
        else:
            self._buffer = b.input("counts", dtype, counts.shape)
            self.operands.append(ctx.constant(np.ascontiguousarray(counts), "counts"))

    def at(self, b: KernelBuilder, row: Expr, column: Expr) -> Expr | None:
        return b.let("count", b.load(self._buffer, (row, column))) if self._buffer else self._number


MAX_POOL = OpDef("max_pool", _infer(NUMBERS), _evaluate_max, lower=_lower_max, exact=True)
"""Operand and result: [N, H, W, C]. Attributes: `kernel`, `strides`, `dilations` (two numbers each), `pads`
(top, left, bottom, right) and `ceil`, whether the number of windows is rounded up.

Numerics: padding never wins; NaN if any tap is NaN; the first one of equal taps.
"""

AVERAGE_POOL = OpDef(
    "average_pool", _infer((FLOAT32, FLOAT64)), _evaluate_average, lower=_lower_average, exact=True
)
"""As `max_pool`; `count_include_pad` says whether padding counts as elements.

Numerics: the taps are summed by the rule for reductions and divided by their number.
"""

OPERATORS = (MAX_POOL, AVERAGE_POOL)


def _importer(op: OpDef) -> Importer:
    def load(node: ForeignNode) -> list[Value]:
        x = node.operand(0)
        if x.type.rank not in (3, 4):
            raise node.unsupported(f"pooling over {x.type.rank - 2} axes")
        kernel = node.attrs.get("kernel_shape")
        if kernel is None:
            raise ModelError(f"{node.loc}: the attribute kernel_shape is missing")
        attrs = window_attrs(node, x.type.shape[2:], kernel)
        if op is AVERAGE_POOL:
            attrs["count_include_pad"] = bool(node.attrs.get("count_include_pad", 0))
        n, c, *spatial = x.type.shape
        image = reshaped(node, x, (n, c, 1, *spatial)) if len(spatial) == 1 else x
        pooled = node.emit(op, [transposed(node, image, (0, 2, 3, 1))], attrs)
        result = transposed(node, pooled, (0, 3, 1, 2))
        return [reshaped(node, result, (n, c, *result.type.shape[4 - len(spatial) :]))]

    return load


ONNX: dict[str, Importer] = {"MaxPool": _importer(MAX_POOL), "AveragePool": _importer(AVERAGE_POOL)}
