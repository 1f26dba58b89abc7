"""Brings nodes into one form each: fewer views and transposes, and none that do nothing."""

from __future__ import annotations

from collections.abc import Sequence

from cuvil.ir.graph import Graph, Node, Value
from cuvil.ir.rewrite import Rewriter, rewrite
from cuvil.ir.types import Shape
from cuvil.ops.movement import TRANSPOSE
from cuvil.ops.reshape import RESHAPE


def canonicalize(graph: Graph) -> Graph:
    """Merges chains of reshapes and of transposes, turns transposes that move no data into reshapes, and
    removes what is left of them when nothing changes.
    """
    producers: dict[Value, Node] = {}

    def replace(builder: Rewriter, node: Node, operands: tuple[Value, ...]) -> Sequence[Value] | None:
        if node.op is RESHAPE:
            return [_reshape(builder, producers, node, operands[0], node.result.type.shape)]
        if node.op is TRANSPOSE:
            return [_transpose(builder, producers, node, operands[0])]
        return None

    return rewrite(graph, replace)


def _reshape(
    builder: Rewriter, producers: dict[Value, Node], node: Node, operand: Value, shape: Shape
) -> Value:
    before = producers.get(operand)
    if before is not None and before.op is RESHAPE:
        operand = before.operands[0]
    if operand.type.shape == shape:
        return operand
    return _record(builder, producers, node, Node(RESHAPE, (operand,), (), {"shape": shape}, node.loc))


def _transpose(builder: Rewriter, producers: dict[Value, Node], node: Node, operand: Value) -> Value:
    perm: tuple[int, ...] = node.attrs["perm"]
    before = producers.get(operand)
    if before is not None and before.op is TRANSPOSE:
        inner: tuple[int, ...] = before.attrs["perm"]
        perm = tuple(inner[axis] for axis in perm)
        operand = before.operands[0]
    moved = [axis for axis in perm if operand.type.shape[axis] != 1]
    if moved == sorted(moved):
        return _reshape(builder, producers, node, operand, node.result.type.shape)
    return _record(builder, producers, node, Node(TRANSPOSE, (operand,), (), {"perm": perm}, node.loc))


def _record(builder: Rewriter, producers: dict[Value, Node], node: Node, new: Node) -> Value:
    """Adds `new` in place of `node` and remembers what it is made of."""
    value = builder.one(new.op, new.operands, new.attrs, loc=node.loc, name=node.result.name)
    producers[value] = new
    return value
