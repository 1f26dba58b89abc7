"""Elements moved to other places: transpose, slice, concat and expand, and what is made of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from cuvil.errors import ModelError
from cuvil.ir.dims import Extent, agree
from cuvil.ir.graph import Node, Value
from cuvil.ir.op import Attrs, OpDef
from cuvil.ir.types import Array, Shape, TensorType
from cuvil.ops.axes import all_axes, integers, one_axis
from cuvil.ops.context import LowerContext
from cuvil.ops.elementwise import broadcast_shape, check_arity, common_dtype
from cuvil.ops.foreign import ForeignNode, Importer
from cuvil.ops.reshape import reshaped
from cuvil.ops.strided import Axis, Place, call_copy


def strides_of(shape: Shape) -> tuple[Extent, ...]:
    """Row-major strides, in elements."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def _infer_transpose(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    check_arity(types, 1)
    perm: tuple[int, ...] = attrs["perm"]
    if sorted(perm) != list(range(types[0].rank)):
        raise ModelError(f"perm does not fit the operand; expected {types[0].rank} axes, got {list(perm)}")
    return (TensorType(types[0].dtype, tuple(types[0].shape[axis] for axis in perm)),)


def _evaluate_transpose(arrays: Sequence[Array], attrs: Attrs) -> tuple[Array, ...]:
    return (np.transpose(arrays[0], attrs["perm"]),)


def _lower_transpose(ctx: LowerContext, node: Node) -> None:
    source, result = node.operands[0], node.result
    strides = strides_of(source.type.shape)
    moved = [strides[axis] for axis in node.attrs["perm"]]
    axes = map(Axis, result.type.shape, moved, strides_of(result.type.shape))
    call_copy(ctx, "transpose", Place(source), Place(result), tuple(axes))


TRANSPOSE = OpDef("transpose", _infer_transpose, _evaluate_transpose, lower=_lower_transpose, exact=True)
"""Attributes: `perm`; axis i of the result is axis perm[i] of the operand."""


def _infer_expand(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    check_arity(types, 1)
    shape: Shape = attrs["shape"]
    if broadcast_shape([types[0].shape, shape]) != shape:
        raise ModelError(f"operand can't be expanded; expected a part of {list(shape)}, got {types[0]}")
    return (TensorType(types[0].dtype, shape),)


def _evaluate_expand(arrays: Sequence[Array], attrs: Attrs) -> tuple[Array, ...]:
    return (np.broadcast_to(arrays[0], attrs["shape"]),)


def _lower_expand(ctx: LowerContext, node: Node) -> None:
    source, result = node.operands[0], node.result
    shape = (1,) * (result.type.rank - source.type.rank) + source.type.shape
    kept = [0 if n == 1 else stride for n, stride in zip(shape, strides_of(shape), strict=True)]
    axes = map(Axis, result.type.shape, kept, strides_of(result.type.shape))
    call_copy(ctx, "expand", Place(source), Place(result), tuple(axes))


EXPAND = OpDef("expand", _infer_expand, _evaluate_expand, lower=_lower_expand, exact=True)
"""Attributes: `shape`, which the operand broadcasts to."""


def _infer_slice(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    check_arity(types, 1)
    for name in ("starts", "steps", "sizes"):
        if len(attrs[name]) != types[0].rank:
            raise ModelError(
                f"{name} does not fit; expected {types[0].rank} numbers, got {list(attrs[name])}"
            )
    bounds = zip(types[0].shape, attrs["starts"], attrs["steps"], attrs["sizes"], strict=True)
    for axis, (extent, start, step, size) in enumerate(bounds):
        last = start + step * (size - 1)
        if size and not (0 <= start < extent and 0 <= last < extent):
            raise ModelError(
                f"slice leaves the operand; expected 0 <= index < {extent} at axis {axis}, "
                f"got {start} to {last}"
            )
    return (TensorType(types[0].dtype, tuple(attrs["sizes"])),)


def _evaluate_slice(arrays: Sequence[Array], attrs: Attrs) -> tuple[Array, ...]:
    indices = [
        start + step * np.arange(size)
        for start, step, size in zip(attrs["starts"], attrs["steps"], attrs["sizes"], strict=True)
    ]
    return (arrays[0][np.ix_(*indices)] if indices else arrays[0],)


def _lower_slice(ctx: LowerContext, node: Node) -> None:
    source, result = node.operands[0], node.result
    strides = strides_of(source.type.shape)
    first = sum(start * stride for start, stride in zip(node.attrs["starts"], strides, strict=True))
    stepped = [step * stride for step, stride in zip(node.attrs["steps"], strides, strict=True)]
    axes = map(Axis, result.type.shape, stepped, strides_of(result.type.shape))
    call_copy(ctx, "slice", Place(source, first), Place(result), tuple(axes))


SLICE = OpDef("slice", _infer_slice, _evaluate_slice, lower=_lower_slice, exact=True)
"""Attributes: `starts`, `steps` (not 0, may be negative) and `sizes`, one number an axis."""


def _infer_concat(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    dtype, axis = common_dtype(types), attrs["axis"]
    first = types[0].shape
    for other in types[1:]:
        same = other.rank == len(first) and all(
            agree(a, b) for i, (a, b) in enumerate(zip(other.shape, first, strict=True)) if i != axis
        )
        if not same:
            raise ModelError(
                f"operands do not fit; expected equal extents except at axis {axis}, "
                f"got {types[0]} and {other}"
            )
    total = sum(operand.shape[axis] for operand in types)
    return (TensorType(dtype, (*first[:axis], total, *first[axis + 1 :])),)


def _evaluate_concat(arrays: Sequence[Array], attrs: Attrs) -> tuple[Array, ...]:
    return (np.concatenate(arrays, axis=attrs["axis"]),)


def _lower_concat(ctx: LowerContext, node: Node) -> None:
    """One copy an operand, each to its own part of the result."""
    strides = strides_of(node.result.type.shape)
    axis: int = node.attrs["axis"]
    offset: Extent = 0
    for operand in node.operands:
        shape = operand.type.shape
        axes = tuple(map(Axis, shape, strides_of(shape), strides))
        call_copy(ctx, "concat", Place(operand), Place(node.result, offset), axes)
        offset += shape[axis] * strides[axis]


CONCAT = OpDef("concat", _infer_concat, _evaluate_concat, lower=_lower_concat, exact=True)
"""Attributes: `axis`."""

OPERATORS = (TRANSPOSE, EXPAND, SLICE, CONCAT)


def transposed(node: ForeignNode, value: Value, perm: Sequence[int]) -> Value:
    return node.emit(TRANSPOSE, [value], {"perm": tuple(perm)})


def sliced(node: ForeignNode, value: Value, axis: int, start: Extent, size: Extent) -> Value:
    """The part of `value` from `start` along one axis."""
    starts, sizes = [0] * value.type.rank, list(value.type.shape)
    starts[axis], sizes[axis] = start, size
    attrs = {"starts": tuple(starts), "steps": (1,) * value.type.rank, "sizes": tuple(sizes)}
    return node.emit(SLICE, [value], attrs)


def _import_transpose(node: ForeignNode) -> list[Value]:
    x = node.operand(0)
    perm = node.attrs.get("perm")
    if perm is None:
        perm = tuple(reversed(range(x.type.rank)))
    return [transposed(node, x, all_axes(node, perm, x.type.rank))]


def _import_expand(node: ForeignNode) -> list[Value]:
    x = node.operand(0)
    wanted = node.extents(1, "shape")
    shape = broadcast_shape([x.type.shape, wanted])
    return [x if shape == x.type.shape else node.emit(EXPAND, [x], {"shape": shape})]


def _import_tile(node: ForeignNode) -> list[Value]:
    """Every axis n repeated r times is a new axis r in front of it."""
    x = node.operand(0)
    repeats = node.extents(1, "repeats")
    if len(repeats) != x.type.rank or min(repeats, default=0) < 0:
        raise ModelError(
            f"{node.loc}: repeats do not fit; expected {x.type.rank} numbers, got {list(repeats)}"
        )
    pairs = list(zip(repeats, x.type.shape, strict=True))
    single = reshaped(node, x, [extent for _, n in pairs for extent in (1, n)])
    repeated = node.emit(EXPAND, [single], {"shape": tuple(extent for pair in pairs for extent in pair)})
    return [reshaped(node, repeated, [repeat * n for repeat, n in pairs])]


def _import_concat(node: ForeignNode) -> list[Value]:
    operands = [node.operand(i) for i in range(len(node.operands))]
    axis = one_axis(node, node.attrs["axis"], operands[0].type.rank)
    return [operands[0] if len(operands) == 1 else node.emit(CONCAT, operands, {"axis": axis})]


def _import_split(node: ForeignNode) -> list[Value]:
    x = node.operand(0)
    axis = one_axis(node, node.attrs.get("axis", 0), x.type.rank)
    sizes = _split_sizes(node, x.type.shape[axis])
    starts = np.cumsum([0, *sizes])[:-1]
    return [sliced(node, x, axis, int(start), size) for start, size in zip(starts, sizes, strict=True)]


def _split_sizes(node: ForeignNode, extent: int) -> tuple[int, ...]:
    """Explicit sizes, or as many equal ones as there are results; a last one may be smaller."""
    sizes = integers(node, "split", 1, since=13)
    parts = len(node.result_names)
    if sizes is None:
        if node.attrs.get("num_outputs", parts) != parts:
            raise ModelError(
                f"{node.loc}: num_outputs is wrong; expected {parts}, as many as there are results, "
                f"got {node.attrs['num_outputs']}"
            )
        size = -(-extent // parts)
        sizes = tuple(max(0, min(size, extent - i * size)) for i in range(parts))
    if sum(sizes) != extent or len(sizes) != len(node.result_names) or min(sizes) < 0:
        raise ModelError(
            f"{node.loc}: split does not fit; expected {len(node.result_names)} sizes whose sum is {extent}, "
            f"got {list(sizes)}"
        )
    return sizes


def _import_slice(node: ForeignNode) -> list[Value]:
    x = node.operand(0)
    starts, ends = integers(node, "starts", 1, since=10), integers(node, "ends", 2, since=10)
    if starts is None or ends is None or len(starts) != len(ends):
        raise ModelError(f"{node.loc}: starts and ends must be there and equally long")
    given = integers(node, "axes", 3, since=10)
    axes = all_axes(node, range(len(starts)) if given is None else given, x.type.rank)
    steps = (integers(node, "steps", 4, since=10) if node.opset >= 10 else None) or (1,) * len(starts)
    if not len(axes) == len(steps) == len(starts) or 0 in steps:
        raise ModelError(f"{node.loc}: axes and steps must be as long as starts, and no step may be 0")
    full: list[tuple[Extent, Extent, Extent]] = [(0, 1, extent) for extent in x.type.shape]
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        full[axis] = slice_of(x.type.shape[axis], start, end, step)
    starts, steps, sizes = zip(*full, strict=True)
    return [node.emit(SLICE, [x], {"starts": starts, "steps": steps, "sizes": sizes})]


def slice_of(extent: Extent, start: Extent, end: Extent, step: int) -> tuple[Extent, int, Extent]:
    """Start, step and size of `[start:end:step]` of so many elements, by the rules of Python's slices."""
    low, high = (0, extent) if step > 0 else (-1, extent - 1)

    def clamped(position: Extent) -> Extent:
        return min(max(position + extent if position < 0 else position, low), high)

    first, last = clamped(start), clamped(end)
    distance = last - first if step > 0 else first - last
    size = max(0, -(-distance // abs(step)))
    return first if size != 0 else 0, step, size


def _import_depth_to_space(node: ForeignNode) -> list[Value]:
    x, block = node.operand(0), node.attrs["blocksize"]
    n, c, h, w = _image_shape(node, x)
    if c % (block * block):
        raise ModelError(f"{node.loc}: channels must divide by {block * block}, got {x.type}")
    depth = c // (block * block)
    if node.attrs.get("mode", "DCR") == "DCR":
        split, perm = (n, block, block, depth, h, w), (0, 3, 4, 1, 5, 2)
    else:
        split, perm = (n, depth, block, block, h, w), (0, 1, 4, 2, 5, 3)
    moved = transposed(node, reshaped(node, x, split), perm)
    return [reshaped(node, moved, (n, depth, h * block, w * block))]


def _import_space_to_depth(node: ForeignNode) -> list[Value]:
    x, block = node.operand(0), node.attrs["blocksize"]
    n, c, h, w = _image_shape(node, x)
    if h % block or w % block:
        raise ModelError(f"{node.loc}: height and width must divide by {block}, got {x.type}")
    perm = (0, 3, 5, 1, 2, 4) if node.attrs.get("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    split = reshaped(node, x, (n, c, h // block, block, w // block, block))
    return [reshaped(node, transposed(node, split, perm), (n, c * block * block, h // block, w // block))]


def _image_shape(node: ForeignNode, x: Value) -> tuple[int, int, int, int]:
    if x.type.rank != 4:
        raise ModelError(f"{node.loc}: operand has the wrong rank; expected [N, C, H, W], got {x.type}")
    n, c, h, w = x.type.shape
    return n, c, h, w


ONNX: dict[str, Importer] = {
    "Transpose": _import_transpose,
    "Expand": _import_expand,
    "Tile": _import_tile,
    "Concat": _import_concat,
    "Split": _import_split,
    "Slice": _import_slice,
    "DepthToSpace": _import_depth_to_space,
    "SpaceToDepth": _import_space_to_depth,
}
