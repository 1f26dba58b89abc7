"""Axes as ONNX writes them: counted from either end, as attributes or as operands."""

from __future__ import annotations

from collections.abc import Iterable

from cuvil.errors import ModelError
from cuvil.ir.dims import Extent
from cuvil.ops.foreign import ForeignNode


def one_axis(node: ForeignNode, axis: int, rank: int) -> int:
    """`axis` counted from the front.

    Raises:
        ModelError: it lies outside of the rank.
    """
    if not -rank <= axis < rank:
        raise ModelError(f"{node.loc}: axis is out of range; expected {-rank} <= axis < {rank}, got {axis}")
    return axis % rank


def all_axes(node: ForeignNode, axes: Iterable[int], rank: int) -> tuple[int, ...]:
    """`axes` counted from the front, each at most once.

    Raises:
        ModelError: one lies outside of the rank, or occurs twice.
    """
    result = tuple(one_axis(node, int(axis), rank) for axis in axes)
    if len(set(result)) != len(result):
        raise ModelError(f"{node.loc}: an axis occurs twice; expected distinct axes, got {list(result)}")
    return result


def integers(node: ForeignNode, name: str, position: int, since: int) -> tuple[Extent, ...] | None:
    """A list of integers that is an attribute before opset `since` and a known operand from then on."""
    if node.opset < since:
        value = node.attrs.get(name)
        return None if value is None else tuple(value)
    return node.optional_extents(position, name)
