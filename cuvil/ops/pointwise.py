"""Elementwise operators as loops: alone, in groups, and as the epilogue of another operator's kernel."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from cuvil.ir.dims import Extent
from cuvil.ir.graph import Node, Value
from cuvil.ir.types import Array, Shape
from cuvil.loops.build import KernelBuilder
from cuvil.loops.kernel import Buffer, Const, Expr, Operand
from cuvil.ops.context import LowerContext

Mask = tuple[bool, ...]
"""For each dimension of a kernel, whether an operand varies along it."""


@dataclass(frozen=True, eq=False)
class Pointwise:
    """Elementwise nodes that run together.

    `operands` maps the values that the nodes read from outside to the values that hold them; `source` is
    the result of the operator whose epilogue they are, if they are one; `yields` is what they compute and
    `result` the value that receives it.
    """

    nodes: tuple[Node, ...]
    operands: Mapping[Value, Value]
    yields: Value
    result: Value
    source: Value | None = None

    def emit(self, b: KernelBuilder, known: Mapping[Value, Expr]) -> Expr:
        """What is stored, given the elements of the operands and of the source.

        Each node's result is named, so that expressions stay as small as one operator's.
        """
        values = dict(known)
        for node in self.nodes:
            assert node.op.scalar is not None
            value = node.op.scalar([values[operand] for operand in node.operands], node.attrs)
            values[node.result] = value if node is self.nodes[-1] else b.let("v", value)
        return values[self.yields]


def mask_of(shape: Shape, full: Shape, view: Shape) -> Mask | None:
    """How an operand of `shape`, broadcast to `full`, varies along the dimensions of `view`.

    `view` is `full` with neighbouring dimensions merged; None where the operand varies along one part of a
    merged dimension and not along another.
    """
    padded = (1,) * (len(full) - len(shape)) + shape
    mask: list[bool] = []
    position = 0
    for extent in view:
        start = position
        size: Extent = 1
        while position < len(full) and (size != extent or full[position] == 1):
            size *= full[position]
            position += 1
        varying = {padded[d] != 1 for d in range(start, position) if full[d] != 1}
        if len(varying) > 1:
            return None
        mask.append(varying == {True})
    return tuple(mask)


def collapse(full: Shape, shapes: Sequence[Shape]) -> Shape:
    """`full` with every run of dimensions merged along which all of `shapes` vary or none does."""
    merged: list[Extent] = []
    previous: tuple[bool, ...] | None = None
    for axis, extent in enumerate(full):
        if extent == 1:
            continue
        pattern = tuple(_varies(shape, len(full) - axis) for shape in shapes)
        if pattern == previous:
            merged[-1] *= extent
        else:
            merged.append(extent)
        previous = pattern
    return tuple(merged) or (1,)


def _varies(shape: Shape, from_the_end: int) -> bool:
    return from_the_end <= len(shape) and shape[-from_the_end] != 1


@dataclass(eq=False)
class Writer:
    """Stores a kernel's results, through the elementwise nodes that were fused behind it, if any."""

    builder: KernelBuilder
    buffer: Buffer
    pointwise: Pointwise | None
    operands: list[Value] = field(default_factory=list)
    """The values of the parameters that the writer added, in order."""
    _loads: list[tuple[Value, Buffer | Const, Mask]] = field(default_factory=list)

    def store(self, index: Sequence[Operand], value: Expr) -> None:
        """Stores `value`, or what the fused nodes make of it, at `index` of the view."""
        if self.pointwise is None:
            self.builder.store(self.buffer, index, value)
            return
        known = {inner: self._load(source, mask, index) for inner, source, mask in self._loads}
        if self.pointwise.source is not None:
            known[self.pointwise.source] = value
        self.builder.store(self.buffer, index, self.pointwise.emit(self.builder, known))

    def _load(self, source: Buffer | Const, mask: Mask, index: Sequence[Operand]) -> Expr:
        if isinstance(source, Const):
            return source
        return self.builder.load(source, [i for i, varies in zip(index, mask, strict=True) if varies])


def make_writer(
    ctx: LowerContext, b: KernelBuilder, value: Value, view: Shape, pointwise: Pointwise | None
) -> Writer:
    """A writer for `value`, or for what `pointwise` computes from it, seen under the shape `view`."""
    if pointwise is None:
        return Writer(b, b.output("y", value.type.dtype, view), None, [value])
    result = pointwise.result
    operands: list[Value] = []
    loads: list[tuple[Value, Buffer | Const, Mask]] = []
    for inner, outer in pointwise.operands.items():
        scalar = scalar_constant(ctx.constant_of(outer), outer)
        mask = mask_of(outer.type.shape, result.type.shape, view)
        assert mask is not None, "the fuse pass admits only operands that fit the view"
        if scalar is not None:
            loads.append((inner, scalar, mask))
            continue
        shape = tuple(extent for extent, varies in zip(view, mask, strict=True) if varies)
        loads.append((inner, b.input(f"e{len(operands)}", outer.type.dtype, shape), mask))
        operands.append(outer)
    buffer = b.output("y", result.type.dtype, view)
    return Writer(b, buffer, pointwise, [*operands, result], loads)


def scalar_constant(array: Array | None, value: Value) -> Const | None:
    """A constant of one element as an expression."""
    if array is None or array.size != 1:
        return None
    return Const(array.reshape(()).item(), value.type.dtype)


def lower_pointwise(ctx: LowerContext, pointwise: Pointwise, name: str) -> None:
    """One kernel for a group of elementwise nodes."""
    full = pointwise.result.type.shape
    if math.prod(full) == 0:
        return
    view = collapse(full, [outer.type.shape for outer in pointwise.operands.values()])
    b = KernelBuilder(name)
    writer = make_writer(ctx, b, pointwise.result, view, pointwise)
    with ExitStack() as stack:
        last = len(view) - 1
        index = [
            stack.enter_context(
                b.loop("i", extent, "vector" if axis == last else "serial", parallel=axis == 0)
            )
            for axis, extent in enumerate(view)
        ]
        writer.store(index, Const(0.0, pointwise.result.type.dtype))
    ctx.call(b.finish(), writer.operands, flops=len(pointwise.nodes) * math.prod(full))


def pointwise_of_node(node: Node) -> Pointwise:
    """A single elementwise node as a group."""
    operands = {operand: operand for operand in node.operands}
    return Pointwise((node,), operands, node.result, node.result)
