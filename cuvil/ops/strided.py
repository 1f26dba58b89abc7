"""Copies between dense tensors whose axes run with any stride: how all data movement becomes loops."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from cuvil.ir.dims import Extent, highest, is_fixed
from cuvil.ir.graph import Value
from cuvil.ir.types import INT64
from cuvil.loops.build import KernelBuilder
from cuvil.loops.kernel import Expr, LoopKind, as_expr
from cuvil.ops.context import LowerContext

_SHORT_AXIS = 8
"""Below this extent, another axis makes a better inner loop."""

_BLOCK = (64, 16)
"""Rows and columns that a transpose reads at once: few enough for its cache lines to stay until used up."""


@dataclass(frozen=True)
class Axis:
    """One loop of a copy: how far neighbours lie apart on both sides, in elements; negative or 0 is fine."""

    extent: Extent
    source: Extent
    result: Extent


def collapse(axes: Sequence[Axis]) -> tuple[Axis, ...]:
    """The same copy with as few loops as possible, the outermost first."""
    merged: list[Axis] = []
    for axis in axes:
        outer = merged[-1] if merged else None
        if axis.extent == 1:
            continue
        if outer and (outer.source, outer.result) == (axis.extent * axis.source, axis.extent * axis.result):
            merged[-1] = Axis(outer.extent * axis.extent, axis.source, axis.result)
        else:
            merged.append(axis)
    return tuple(merged) or (Axis(1, 0, 0),)


@dataclass(frozen=True)
class Place:
    """A tensor and the element of it where a copy begins."""

    value: Value
    offset: Extent = 0


def call_copy(ctx: LowerContext, name: str, source: Place, result: Place, axes: Sequence[Axis]) -> None:
    """Calls a kernel that copies elements from `source` to `result` along `axes`."""
    b = KernelBuilder(name)
    x = b.input("x", source.value.type.dtype, (source.value.type.count,))
    if emit_nest(b, result, axes, lambda at: b.load(x, (at + source.offset,))):
        ctx.call(b.finish(), [source.value, result.value], flops=count(axes))


def call_fill(
    ctx: LowerContext, name: str, result: Place, number: int | float | bool, axes: Sequence[Axis]
) -> None:
    """Calls a kernel that sets the elements of `result` along `axes` to `number`."""
    b = KernelBuilder(name)
    constant = as_expr(number, result.value.type.dtype)
    if emit_nest(b, result, axes, lambda _: constant):
        ctx.call(b.finish(), [result.value], flops=count(axes))


def count(axes: Sequence[Axis]) -> Extent:
    """The number of elements that a copy along `axes` moves."""
    return math.prod(axis.extent for axis in axes)


def emit_nest(b: KernelBuilder, result: Place, axes: Sequence[Axis], element: Callable[[Expr], Expr]) -> bool:
    """Builds loops along `axes` that store `element(source offset)`; False if there is nothing to store."""
    if count(axes) == 0:
        return False
    y = b.output("y", result.value.type.dtype, (result.value.type.count,))
    nest = _blocked(_inner_last(collapse(axes)))
    source, target = as_expr(0, INT64), as_expr(result.offset, INT64)
    with ExitStack() as stack:
        for depth, axis in enumerate(nest):
            kind: LoopKind = "vector" if depth == len(nest) - 1 else "serial"
            i = stack.enter_context(b.loop("i", axis.extent, kind, parallel=depth == 0))
            source, target = source + i * axis.source, target + i * axis.result
        b.store(y, (target,), element(source))
    return True


def _inner_last(nest: tuple[Axis, ...]) -> tuple[Axis, ...]:
    """The axis that makes the best vectors last: contiguous in the result, or else long."""
    if highest(nest[-1].extent) >= _SHORT_AXIS:
        return nest
    inner = max(
        nest, key=lambda axis: (min(highest(axis.extent), _SHORT_AXIS), axis.source == 1, axis.result == 1)
    )
    return (*(axis for axis in nest if axis is not inner), inner)


def _blocked(nest: tuple[Axis, ...]) -> tuple[Axis, ...]:
    """A nest whose inner loop strides through the source: in blocks with the axis that does not."""
    *outer, inner = nest
    near = next((axis for axis in outer if axis.source == 1), None)
    if near is None or inner.source in (-1, 0, 1) or not (is_fixed(near.extent) and is_fixed(inner.extent)):
        return nest
    rest = [axis for axis in outer if axis is not near]
    (rows, row), (columns, column) = _split(inner, _BLOCK[0]), _split(near, _BLOCK[1])
    return tuple(axis for axis in (*rest, rows, columns, column, row) if axis.extent != 1)


def _split(axis: Axis, limit: int) -> tuple[Axis, Axis]:
    """`axis` as equal blocks: the loop over them, and the largest one of at most `limit`."""
    size = max(n for n in range(1, limit + 1) if axis.extent % n == 0)
    return Axis(axis.extent // size, axis.source * size, axis.result * size), Axis(
        size, axis.source, axis.result
    )
