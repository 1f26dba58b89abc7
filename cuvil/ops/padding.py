"""Borders around a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from cuvil.errors import ModelError
from cuvil.ir.graph import Node, Value
from cuvil.ir.op import Attrs, OpDef
from cuvil.ir.types import Array, TensorType
from cuvil.loops.build import KernelBuilder
from cuvil.loops.kernel import Const, Expr, compare, logical, maximum, minimum, select
from cuvil.ops.axes import all_axes
from cuvil.ops.context import LowerContext
from cuvil.ops.elementwise import check_arity
from cuvil.ops.foreign import ForeignNode, Importer
from cuvil.ops.gather import gathered
from cuvil.ops.movement import sliced
from cuvil.ops.strided import Axis, Place, call_copy, call_fill


def _infer(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    check_arity(types, 1)
    before, after = attrs["before"], attrs["after"]
    if not len(before) == len(after) == types[0].rank or min((*before, *after), default=0) < 0:
        raise ModelError(
            f"padding does not fit; expected {types[0].rank} numbers of 0 or more on both sides, "
            f"got {list(before)} and {list(after)}"
        )
    extents = zip(before, types[0].shape, after, strict=True)
    return (TensorType(types[0].dtype, tuple(map(sum, extents))),)


def _evaluate(arrays: Sequence[Array], attrs: Attrs) -> tuple[Array, ...]:
    (x,) = arrays
    widths = list(zip(attrs["before"], attrs["after"], strict=True))
    return (np.pad(x, widths, constant_values=x.dtype.type(attrs["value"])) if widths else x,)


@dataclass(frozen=True)
class _Side:
    """One axis: `before` elements of border, `extent` of the operand, `after` of border."""

    before: int
    extent: int
    after: int

    @property
    def total(self) -> int:
        return self.before + self.extent + self.after

    @property
    def padded(self) -> bool:
        return self.before + self.after > 0


def _collapse(sides: Sequence[_Side]) -> list[_Side]:
    """The same borders with as few axes as possible: only the first may be without any."""
    merged = [_Side(0, 1, 0)]
    for side in sides:
        outer = merged[-1]
        if side.padded and (outer.padded or outer.extent != 1):
            merged.append(side)
        elif side.padded:
            merged[-1] = side
        else:
            n = side.extent
            merged[-1] = _Side(outer.before * n, outer.extent * n, outer.after * n)
    return merged


def _lower(ctx: LowerContext, node: Node) -> None:
    """Rows of the innermost axis: border, operand, border.

    A row that lies in the border of an outer axis reads a row of the operand and drops it, so that one loop
    nest, which threads can share, does it all.
    """
    source, result = node.operands[0], node.result
    extents = zip(node.attrs["before"], source.type.shape, node.attrs["after"], strict=True)
    sides = _collapse([_Side(*side) for side in extents])
    if source.type.count == 0:
        call_fill(ctx, "fill", Place(result), node.attrs["value"], [Axis(result.type.count, 0, 1)])
    elif len(sides) == 1:
        _lower_row(ctx, source, result, sides[0], node.attrs["value"])
    else:
        _lower_rows(ctx, source, result, sides, Const(node.attrs["value"], source.type.dtype))


def _lower_row(
    ctx: LowerContext, source: Value, result: Value, side: _Side, number: int | float | bool
) -> None:
    call_fill(ctx, "fill", Place(result), number, [Axis(side.before, 0, 1)])
    call_copy(ctx, "pad", Place(source), Place(result, side.before), [Axis(side.extent, 1, 1)])
    call_fill(ctx, "fill", Place(result, side.before + side.extent), number, [Axis(side.after, 0, 1)])


def _lower_rows(ctx: LowerContext, source: Value, result: Value, sides: list[_Side], border: Const) -> None:
    b = KernelBuilder("pad")
    x = b.input("x", source.type.dtype, tuple(side.extent for side in sides))
    y = b.output("y", source.type.dtype, tuple(side.total for side in sides))
    *outer, inner = sides
    with ExitStack() as stack:
        index = [
            stack.enter_context(b.loop("i", side.total, parallel=depth == 0))
            for depth, side in enumerate(outer)
        ]
        row, inside = _source_row(b, outer, index)
        for start, extent in ((0, inner.before), (inner.before + inner.extent, inner.after)):
            with b.loop("j", extent, "vector") as j:
                b.store(y, (*index, j + start), border)
        with b.loop("j", inner.extent, "vector") as j:
            element = b.load(x, (*row, j))
            b.store(y, (*index, j + inner.before), select(inside, element, border) if inside else element)
    ctx.call(b.finish(), [source, result], flops=result.type.count)


def _source_row(
    b: KernelBuilder, sides: Sequence[_Side], index: Sequence[Expr]
) -> tuple[list[Expr], Expr | None]:
    """The row of the operand that lies nearest to a row of the result, and whether it is the same row."""
    row: list[Expr] = []
    inside: Expr | None = None
    for side, i in zip(sides, index, strict=True):
        if not side.padded:
            row.append(i)
            continue
        position = b.let("position", i - side.before)
        nearest = b.let("nearest", minimum(maximum(position, 0), side.extent - 1))
        here = compare("eq", position, nearest)
        inside = here if inside is None else logical("and", inside, here)
        row.append(nearest)
    return row, b.let("inside", inside) if inside else None


PAD = OpDef("pad", _infer, _evaluate, lower=_lower, exact=True)
"""Attributes: `before` and `after`, one number an axis, and `value`, what the border holds."""

OPERATORS = (PAD,)


def _import_pad(node: ForeignNode) -> list[Value]:
    """Attributes up to opset 10, operands after. Negative padding cuts off; it comes first."""
    x = node.operand(0)
    before, after = _widths(node, x)
    mode = node.attrs.get("mode", "constant")
    for axis, (low, high) in enumerate(zip(before, after, strict=True)):
        cut_low, cut_high = max(0, -low), max(0, -high)
        if cut_low or cut_high:
            x = sliced(node, x, axis, cut_low, max(0, x.type.shape[axis] - cut_low - cut_high))
    before, after = [max(0, width) for width in before], [max(0, width) for width in after]
    if mode != "constant" and mode not in _SOURCES:
        raise node.unsupported(f"mode {mode!r}")
    if mode != "constant":
        return [_pad_from_operand(node, x, before, after, mode)]
    attrs = {"before": tuple(before), "after": tuple(after), "value": _value(node, x)}
    return [node.emit(PAD, [x], attrs) if any(before + after) else x]


def _widths(node: ForeignNode, x: Value) -> tuple[list[int], list[int]]:
    rank = x.type.rank
    pads = node.attrs["pads"] if node.opset < 11 else node.constant(1, "pads").reshape(-1)
    given = node.optional_constant(3, "axes") if node.opset >= 18 else None
    axes = range(rank) if given is None else all_axes(node, given.reshape(-1), rank)
    if len(pads) != 2 * len(axes):
        raise ModelError(f"{node.loc}: pads do not fit; expected {2 * len(axes)} numbers, got {list(pads)}")
    before, after = [0] * rank, [0] * rank
    for position, axis in enumerate(axes):
        before[axis], after[axis] = int(pads[position]), int(pads[position + len(axes)])
    return before, after


def _value(node: ForeignNode, x: Value) -> int | float | bool:
    if node.opset < 11:
        return float(np.float32(node.attrs.get("value", 0)))
    given = node.optional_constant(2, "constant_value")
    value: int | float | bool = x.type.dtype.numpy.type(0 if given is None else given.reshape(())).item()
    return value


def _pad_from_operand(node: ForeignNode, x: Value, before: list[int], after: list[int], mode: str) -> Value:
    """Borders that repeat elements of the operand: one gather an axis."""
    for axis, (low, high) in enumerate(zip(before, after, strict=True)):
        extent = x.type.shape[axis]
        if low or high:
            if extent == 0:
                raise ModelError(f"{node.loc}: mode {mode!r} needs elements at axis {axis}, got {x.type}")
            x = gathered(node, x, _SOURCES[mode](np.arange(-low, extent + high), extent), axis)
    return x


def _reflected(positions: Array, extent: int) -> Array:
    period = max(1, 2 * (extent - 1))
    return np.asarray((extent - 1) - np.abs(positions % period - (extent - 1)))


def _clamped(positions: Array, extent: int) -> Array:
    return np.clip(positions, 0, extent - 1)


def _wrapped(positions: Array, extent: int) -> Array:
    return np.asarray(positions % extent)


_SOURCES = {"edge": _clamped, "reflect": _reflected, "wrap": _wrapped}

ONNX: dict[str, Importer] = {"Pad": _import_pad}
