"""The same elements in the same order under another shape: no code runs."""

from __future__ import annotations

import math
from collections.abc import Sequence

from cuvil.errors import ModelError
from cuvil.ir.dims import Extent, agree
from cuvil.ir.graph import Value
from cuvil.ir.op import Attrs, OpDef
from cuvil.ir.types import Array, Shape, TensorType
from cuvil.ops.axes import all_axes, integers, one_axis
from cuvil.ops.elementwise import check_arity
from cuvil.ops.foreign import ForeignNode, Importer


def _infer(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    check_arity(types, 1)
    shape: Shape = attrs["shape"]
    if not agree(math.prod(shape), types[0].count):
        raise ModelError(
            f"shape does not hold the operand's elements; expected {types[0].count} elements, "
            f"got {list(shape)}"
        )
    return (TensorType(types[0].dtype, shape),)


def _evaluate(arrays: Sequence[Array], attrs: Attrs) -> tuple[Array, ...]:
    return (arrays[0].reshape(attrs["shape"]),)


RESHAPE = OpDef("reshape", _infer, _evaluate, view=True, exact=True)
"""Attributes: `shape`."""

OPERATORS = (RESHAPE,)


def reshaped(node: ForeignNode, value: Value, shape: Sequence[Extent]) -> Value:
    """`value` under `shape`; itself where it has that shape already."""
    target = tuple(shape)
    return value if value.type.shape == target else node.emit(RESHAPE, [value], {"shape": target})


def _import_reshape(node: ForeignNode) -> list[Value]:
    x = node.operand(0)
    wanted = list(node.extents(1, "shape"))
    if not node.attrs.get("allowzero", 0):
        wanted = [_kept(node, x, axis) if extent == 0 else extent for axis, extent in enumerate(wanted)]
    return [reshaped(node, x, _with_inferred(node, x, wanted))]


def _kept(node: ForeignNode, x: Value, axis: int) -> Extent:
    if axis >= x.type.rank:
        raise ModelError(f"{node.loc}: shape has a 0 at axis {axis}, which the operand {x.type} lacks")
    return x.type.shape[axis]


def _with_inferred(node: ForeignNode, x: Value, wanted: list[Extent]) -> list[Extent]:
    """`wanted` with its -1 replaced by what the number of elements leaves."""
    if -1 not in wanted:
        return wanted
    rest = math.prod(extent for extent in wanted if extent != -1)
    if wanted.count(-1) > 1 or rest == 0 or not agree(x.type.count % rest, 0):
        raise ModelError(
            f"{node.loc}: shape can't be completed; expected at most one -1 and a divisor of "
            f"{x.type.count} elements, got {wanted}"
        )
    return [x.type.count // rest if extent == -1 else extent for extent in wanted]


def _import_flatten(node: ForeignNode) -> list[Value]:
    x = node.operand(0)
    axis, rank = node.attrs.get("axis", 1), x.type.rank
    split = rank if axis == rank else one_axis(node, axis, rank)
    return [reshaped(node, x, (math.prod(x.type.shape[:split]), math.prod(x.type.shape[split:])))]


def _import_squeeze(node: ForeignNode) -> list[Value]:
    x = node.operand(0)
    given = integers(node, "axes", 1, since=13)
    shape = x.type.shape
    axes = [a for a, n in enumerate(shape) if n == 1] if given is None else all_axes(node, given, x.type.rank)
    for axis in axes:
        if shape[axis] != 1:
            raise ModelError(f"{node.loc}: axis {axis} can't be squeezed; expected extent 1, got {x.type}")
    return [reshaped(node, x, [extent for axis, extent in enumerate(shape) if axis not in axes])]


def _import_unsqueeze(node: ForeignNode) -> list[Value]:
    x = node.operand(0)
    given = integers(node, "axes", 1, since=13)
    if given is None:
        raise ModelError(f"{node.loc}: axes are missing")
    axes = all_axes(node, given, x.type.rank + len(given))
    shape = list(x.type.shape)
    for axis in sorted(axes):
        shape.insert(axis, 1)
    return [reshaped(node, x, shape)]


def _import_identity(node: ForeignNode) -> list[Value]:
    return [node.operand(0)]


ONNX: dict[str, Importer] = {
    "Reshape": _import_reshape,
    "Flatten": _import_flatten,
    "Squeeze": _import_squeeze,
    "Unsqueeze": _import_unsqueeze,
    "Identity": _import_identity,
}
