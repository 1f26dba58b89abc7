"""Elements written to places that indices name, and read from them: the ONNX Elements and ND forms.

Both forms become one operator over flat positions. Every slice of `indices` names an element, or a block of
elements, of the data; negative indices count from the end, and one that is still out of range, which ONNX
calls an error, means the nearest in range.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cuvil.errors import ModelError
from cuvil.ir.graph import Node, Value
from cuvil.ir.op import Attrs, OpDef
from cuvil.ir.types import BOOL, DTYPES, INT64, Array, DType, Shape, TensorType
from cuvil.loops.build import KernelBuilder
from cuvil.loops.kernel import Buffer, Const, Expr, cast, compare, maximum, minimum, select
from cuvil.ops.axes import one_axis
from cuvil.ops.context import LowerContext
from cuvil.ops.elementwise import ADD, MUL, check_arity, check_dtype
from cuvil.ops.foreign import ForeignNode, Importer
from cuvil.ops.movement import sliced, transposed
from cuvil.ops.reshape import reshaped

Combine = Callable[[Expr, Expr], Expr]

_REDUCTIONS: dict[str, tuple[Combine | None, Callable[[Any, Any], Any] | None]] = {
    "none": (None, None),
    "add": (lambda a, b: a + b, np.add),
    "mul": (lambda a, b: a * b, np.multiply),
    "max": (maximum, np.maximum),
    "min": (minimum, np.minimum),
}
"""What is done with an element and its update, in loops and in NumPy."""


def _check_indices(indices: TensorType) -> None:
    if indices.dtype.kind != "int":
        raise ModelError(f"indices have the wrong element type; expected int32 or int64, got {indices}")


def _in_range(index: Expr, extent: int) -> Expr:
    wrapped = select(compare("lt", index, 0), index + extent, index)
    return minimum(maximum(wrapped, 0), extent - 1)


def _clipped(indices: Array, extent: int) -> Array:
    return np.clip(np.where(indices < 0, indices + extent, indices), 0, extent - 1)


# Blocks: data [batch, places, block], indices [batch, count, depth] into the extents `places`


def _infer_places(data: TensorType, indices: TensorType, attrs: Attrs) -> tuple[int, int, int]:
    """The number of batches, of indices in each, and of elements in a block."""
    _check_indices(indices)
    places: Shape = attrs["places"]
    if data.rank != 3 or indices.rank != 3 or data.shape[1] != math.prod(places):
        raise ModelError(f"data and indices do not fit; expected [batch, {list(places)}, block], got {data}")
    if indices.shape[0] != data.shape[0] or indices.shape[2] != len(places):
        raise ModelError(f"indices do not fit {data}; expected {len(places)} numbers each, got {indices}")
    if indices.count and data.count == 0:
        raise ModelError(f"nothing to index; expected elements, got {data}")
    return data.shape[0], indices.shape[1], data.shape[2]


def _positions(indices: Array, places: Shape) -> Array:
    flat = np.zeros(indices.shape[:2], np.int64)
    for axis, extent in enumerate(places):
        flat = flat * extent + _clipped(indices[..., axis], extent)
    return flat


def _position(b: KernelBuilder, at: Buffer, where: Sequence[Expr], places: Shape) -> Expr:
    flat: Expr = Const(0, INT64)
    for axis, extent in enumerate(places):
        index = cast(b.load(at, (*where, Const(axis, INT64))), INT64)
        flat = flat * extent + _in_range(index, extent)
    return b.let("place", flat)


def _infer_gather(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    check_arity(types, 2)
    shape = _infer_places(types[0], types[1], attrs)
    return (TensorType(types[0].dtype, shape),)


def _evaluate_gather(arrays: Sequence[Array], attrs: Attrs) -> tuple[Array, ...]:
    data, indices = arrays
    flat = _positions(indices, attrs["places"])
    return (np.take_along_axis(data, flat[..., None], axis=1),)


def _lower_gather(ctx: LowerContext, node: Node) -> None:
    data, indices = node.operands
    batch, count, block = node.result.type.shape
    b = KernelBuilder("gather_places")
    x = b.input("x", data.type.dtype, data.type.shape)
    at = b.input("indices", indices.type.dtype, indices.type.shape)
    y = b.output("y", data.type.dtype, node.result.type.shape)
    with b.loop("n", batch * count, parallel=True) as n:
        i, j = b.let("i", n // count), b.let("j", n % count)
        place = _position(b, at, (i, j), node.attrs["places"])
        with b.loop("k", block, "vector") as k:
            b.store(y, (i, j, k), b.load(x, (i, place, k)))
    ctx.call(b.finish(), [data, indices, node.result], flops=node.result.type.count)


def _infer_scatter(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    check_arity(types, 3)
    data, indices, updates = types
    if attrs["reduction"] not in _REDUCTIONS:
        raise ModelError(
            f"reduction is unknown; expected {', '.join(_REDUCTIONS)}, got {attrs['reduction']!r}"
        )
    if attrs["reduction"] != "none":
        check_dtype(data.dtype, [dtype for dtype in DTYPES if dtype != BOOL])
    shape = _infer_places(data, indices, attrs)
    if updates != TensorType(data.dtype, shape):
        raise ModelError(f"updates do not fit; expected {TensorType(data.dtype, shape)}, got {updates}")
    return (data,)


def _evaluate_scatter(arrays: Sequence[Array], attrs: Attrs) -> tuple[Array, ...]:
    data, indices, updates = arrays
    flat, result = _positions(indices, attrs["places"]), data.copy()
    combine = _REDUCTIONS[attrs["reduction"]][1]
    with np.errstate(all="ignore"):
        for i, j in np.ndindex(*flat.shape):
            place, update = (i, flat[i, j]), updates[i, j]
            result[place] = update if combine is None else combine(result[place], update)
    return (result,)


def _lower_scatter(ctx: LowerContext, node: Node) -> None:
    """Copies the data, then writes the updates in their order, batch by batch."""
    data, indices, updates = node.operands
    dtype: DType = data.type.dtype
    batch, places, block = data.type.shape
    count = indices.type.shape[1]
    combine = _REDUCTIONS[node.attrs["reduction"]][0]
    b = KernelBuilder("scatter_places")
    x = b.input("x", dtype, data.type.shape)
    at = b.input("indices", indices.type.dtype, indices.type.shape)
    u = b.input("updates", dtype, updates.type.shape)
    y = b.output("y", dtype, data.type.shape)
    with b.loop("i", batch, parallel=True) as i:
        with b.loop("p", places) as p, b.loop("k", block, "vector") as k:
            b.store(y, (i, p, k), b.load(x, (i, p, k)))
        with b.loop("j", count) as j:
            place = _position(b, at, (i, j), node.attrs["places"])
            with b.loop("k", block, "vector") as k:
                update = b.load(u, (i, j, k))
                b.store(y, (i, place, k), combine(b.load(y, (i, place, k)), update) if combine else update)
    operands = [data, indices, updates, node.result]
    ctx.call(b.finish(), operands, flops=data.type.count + updates.type.count)


GATHER_PLACES = OpDef("gather_places", _infer_gather, _evaluate_gather, lower=_lower_gather, exact=True)
"""Operands: data [batch, places, block], indices [batch, count, depth]. Attributes: `places`, the extents
that an index goes into, whose product is the middle extent."""

SCATTER_PLACES = OpDef("scatter_places", _infer_scatter, _evaluate_scatter, lower=_lower_scatter, exact=True)
"""Operands: those of `gather_places`, and updates [batch, count, block]. Attributes: `places`, `reduction`.

Updates are applied one after the other, in the order of the indices: of two to one place the later one wins,
and sums are rounded in that order.
"""

OPERATORS = (GATHER_PLACES, SCATTER_PLACES)


def _import_gather_nd(node: ForeignNode) -> list[Value]:
    data, indices = node.operand(0), node.operand(1)
    batch_axes = int(node.attrs.get("batch_dims", 0))
    view, at, places, block = _nd_views(node, data, indices, batch_axes)
    value = node.emit(GATHER_PLACES, [view, at], {"places": places})
    return [reshaped(node, value, (*indices.type.shape[:-1], *block))]


def _import_scatter_nd(node: ForeignNode) -> list[Value]:
    data, indices, updates = (node.operand(i) for i in range(3))
    view, at, places, block = _nd_views(node, data, indices, 0)
    expected = (*indices.type.shape[:-1], *block)
    if updates.type.shape != expected:
        raise ModelError(f"{node.loc}: updates do not fit; expected {list(expected)}, got {updates.type}")
    flat = reshaped(node, updates, (1, at.type.shape[1], view.type.shape[2]))
    attrs = {"places": places, "reduction": node.attrs.get("reduction", "none")}
    return [reshaped(node, node.emit(SCATTER_PLACES, [view, at, flat], attrs), data.type.shape)]


def _nd_views(
    node: ForeignNode, data: Value, indices: Value, batch_axes: int
) -> tuple[Value, Value, Shape, Shape]:
    """Data and indices as batches of blocks; the extents that are indexed, and those of a block."""
    if indices.type.rank < 1 or not 0 <= batch_axes < min(data.type.rank + 1, indices.type.rank):
        raise ModelError(f"{node.loc}: batch_dims={batch_axes} does not fit {data.type} and {indices.type}")
    depth = indices.type.shape[-1]
    if not 1 <= depth <= data.type.rank - batch_axes:
        raise ModelError(f"{node.loc}: indices do not fit; got {depth} numbers each for {data.type}")
    lead, rest = data.type.shape[:batch_axes], data.type.shape[batch_axes:]
    if indices.type.shape[:batch_axes] != lead:
        raise ModelError(f"{node.loc}: batch extents differ; got {data.type} and {indices.type}")
    places, block = rest[:depth], rest[depth:]
    batch, size = math.prod(lead), math.prod(block)
    view = reshaped(node, data, (batch, math.prod(places), size))
    count = math.prod(indices.type.shape[batch_axes:-1])
    return view, reshaped(node, indices, (batch, count, depth)), places, block


# The Elements forms: an index replaces the position along one axis. With that axis last, each of the other
# positions is a batch with indices of its own.


def _import_gather_elements(node: ForeignNode) -> list[Value]:
    data, indices = node.operand(0), node.operand(1)
    axis = _element_axis(node, data, indices)
    for other, size in enumerate(indices.type.shape):
        if other != axis and size < data.type.shape[other]:
            data = sliced(node, data, other, 0, size)
    rows = [_as_rows(node, value, axis) for value in (data, indices)]
    value = node.emit(GATHER_PLACES, rows, {"places": (data.type.shape[axis],)})
    return [_from_rows(node, value, indices.type.shape, axis)]


def _import_scatter_elements(node: ForeignNode) -> list[Value]:
    data, indices, updates = (node.operand(i) for i in range(3))
    axis = _element_axis(node, data, indices)
    if updates.type.shape != indices.type.shape:
        raise ModelError(
            f"{node.loc}: updates do not fit; expected {list(indices.type.shape)}, got {updates.type}"
        )
    attrs: dict[str, Any] = {"reduction": node.attrs.get("reduction", "none")}
    pairs = enumerate(zip(indices.type.shape, data.type.shape, strict=True))
    if all(size == extent for other, (size, extent) in pairs if other != axis):
        rows = [_as_rows(node, value, axis) for value in (data, indices, updates)]
        value = node.emit(SCATTER_PLACES, rows, attrs | {"places": (data.type.shape[axis],)})
        return [_from_rows(node, value, data.type.shape, axis)]
    view, at = _element_views(node, data, indices, axis)
    flat = reshaped(node, updates, (1, updates.type.count, 1))
    value = node.emit(SCATTER_PLACES, [view, at, flat], attrs | {"places": data.type.shape})
    return [reshaped(node, value, data.type.shape)]


def _element_axis(node: ForeignNode, data: Value, indices: Value) -> int:
    """The axis that indices go along, counted from the front.

    Raises:
        ModelError: the shapes do not fit.
    """
    axis = one_axis(node, node.attrs.get("axis", 0), data.type.rank)
    if indices.type.rank != data.type.rank:
        raise ModelError(f"{node.loc}: ranks differ; got {data.type} and {indices.type}")
    for other, (size, extent) in enumerate(zip(indices.type.shape, data.type.shape, strict=True)):
        if other != axis and size > extent:
            raise ModelError(
                f"{node.loc}: indices do not fit axis {other}; expected at most {extent}, got {indices.type}"
            )
    _check_indices(indices.type)
    return axis


def _axis_last(rank: int, axis: int) -> list[int]:
    return [*(other for other in range(rank) if other != axis), axis]


def _as_rows(node: ForeignNode, value: Value, axis: int) -> Value:
    """`value` as [rows, extent, 1] along `axis`."""
    extent = value.type.shape[axis]
    rows = math.prod(n for other, n in enumerate(value.type.shape) if other != axis)
    return reshaped(node, transposed(node, value, _axis_last(value.type.rank, axis)), (rows, extent, 1))


def _from_rows(node: ForeignNode, value: Value, shape: Shape, axis: int) -> Value:
    perm = _axis_last(len(shape), axis)
    moved = reshaped(node, value, [shape[other] for other in perm])
    return transposed(node, moved, [perm.index(other) for other in range(len(shape))])


def _element_views(node: ForeignNode, data: Value, indices: Value, axis: int) -> tuple[Value, Value]:
    """Data as one batch of single elements, and for each index the whole place [1, count, rank].

    For indices that leave a part of the other axes alone: those positions become constants.
    """
    rank = data.type.rank
    own = np.arange(rank) == axis
    grid = np.moveaxis(np.indices(indices.type.shape, np.int64), 0, -1)
    rest = np.where(own, 0, grid).reshape(1, -1, rank).astype(indices.type.dtype.numpy)
    column = reshaped(node, indices, (1, indices.type.count, 1))
    chosen = node.emit(MUL, [column, node.builder.constant(own.astype(rest.dtype))])
    at = node.emit(ADD, [chosen, node.builder.constant(rest)])
    return reshaped(node, data, (1, data.type.count, 1)), at


ONNX: dict[str, Importer] = {
    "GatherND": _import_gather_nd,
    "ScatterND": _import_scatter_nd,
    "GatherElements": _import_gather_elements,
    "ScatterElements": _import_scatter_elements,
    "Scatter": _import_scatter_elements,
}
