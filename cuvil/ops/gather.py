"""Elements picked by indices that may come from the run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np

from cuvil.errors import ModelError
from cuvil.ir.dims import Extent
from cuvil.ir.graph import Node, Value
from cuvil.ir.op import Attrs, OpDef
from cuvil.ir.types import INT64, Array, TensorType
from cuvil.loops.build import KernelBuilder
from cuvil.loops.kernel import Const, Expr, LoopKind, cast, compare, maximum, minimum, select
from cuvil.ops.axes import one_axis
from cuvil.ops.context import LowerContext
from cuvil.ops.elementwise import check_arity
from cuvil.ops.foreign import ForeignNode, Importer


def _infer(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    check_arity(types, 2)
    data, indices = types
    axis = attrs["axis"]
    if indices.dtype.kind != "int":
        raise ModelError(f"indices have the wrong element type; expected int32 or int64, got {indices}")
    if not 0 <= axis < data.rank:
        raise ModelError(f"axis is out of range; expected 0 <= axis < {data.rank}, got {axis}")
    if data.shape[axis] == 0 and indices.count:
        raise ModelError(f"nothing to gather from; expected elements at axis {axis}, got {data}")
    return (TensorType(data.dtype, data.shape[:axis] + indices.shape + data.shape[axis + 1 :]),)


def _evaluate(arrays: Sequence[Array], attrs: Attrs) -> tuple[Array, ...]:
    data, indices = arrays
    extent = data.shape[attrs["axis"]]
    wrapped = np.where(indices < 0, indices + extent, indices)
    return (np.take(data, np.clip(wrapped, 0, max(0, extent - 1)), axis=attrs["axis"]),)


def _lower(ctx: LowerContext, node: Node) -> None:
    """Loops over the axes before, the indices, and the axes behind; one-element loops are left out."""
    data, indices = node.operands
    axis, shape = node.attrs["axis"], data.type.shape
    outer, extent, inner = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
    count = indices.type.count
    if outer * count * inner == 0:
        return
    b = KernelBuilder("gather")
    x = b.input("x", data.type.dtype, (outer, extent, inner))
    at = b.input("indices", indices.type.dtype, (count,))
    y = b.output("y", data.type.dtype, (outer, count, inner))
    with ExitStack() as stack:
        o = stack.enter_context(b.loop("o", outer, parallel=True)) if outer != 1 else Const(0, INT64)
        kind: LoopKind = "vector" if inner == 1 else "serial"
        i = stack.enter_context(b.loop("i", count, kind, parallel=outer == 1))
        picked = b.let("picked", _in_range(cast(b.load(at, (i,)), INT64), extent))
        j = stack.enter_context(b.loop("j", inner, "vector")) if inner != 1 else Const(0, INT64)
        b.store(y, (o, i, j), b.load(x, (o, picked, j)))
    ctx.call(b.finish(), [data, indices, node.result], flops=outer * count * inner)


def _in_range(index: Expr, extent: Extent) -> Expr:
    wrapped = select(compare("lt", index, 0), index + extent, index)
    return minimum(maximum(wrapped, 0), extent - 1)


GATHER = OpDef("gather", _infer, _evaluate, lower=_lower, exact=True)
"""Operands: data and int32 or int64 indices. Attributes: `axis`, counted from the front.

A negative index counts from the end. One that is still out of range, which ONNX calls an error, reads the
nearest element in range: generated code never reads outside of its operand.
"""

OPERATORS = (GATHER,)


def gathered(node: ForeignNode, value: Value, indices: Array, axis: int) -> Value:
    """The elements of `value` at constant indices along an axis."""
    at = node.builder.constant(indices.astype(np.int64), "indices")
    return node.emit(GATHER, [value, at], {"axis": axis})


def _import_gather(node: ForeignNode) -> list[Value]:
    data, indices = node.operand(0), node.operand(1)
    axis = one_axis(node, node.attrs.get("axis", 0), data.type.rank)
    known = node.builder.constant_of(indices)
    extent = data.type.shape[axis]
    if known is not None and known.size and not (-extent <= int(known.min()) and int(known.max()) < extent):
        raise ModelError(
            f"{node.loc}: an index is out of range; expected {-extent} <= index < {extent}, "
            f"got {known.min()} to {known.max()}"
        )
    return [node.emit(GATHER, [data, indices], {"axis": axis})]


ONNX: dict[str, Importer] = {"Gather": _import_gather}
