"""Moves transposes towards the outputs, so that convolutions meet without any between them.

Importers wrap every convolution and pooling in transposes, since these operators keep channels last.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cuvil.ir.graph import Graph, Node, Value
from cuvil.ir.rewrite import Rewriter, rewrite
from cuvil.ops.movement import CONCAT, TRANSPOSE

Perm = tuple[int, ...]


def choose_layouts(graph: Graph) -> Graph:
    """Sinks transposes through elementwise operators and concatenations whose operands share one.

    `canonicalize` then merges those that meet.
    """
    transposed: dict[Value, tuple[Value, Perm]] = {}

    def replace(builder: Rewriter, node: Node, operands: tuple[Value, ...]) -> Sequence[Value] | None:
        if node.op is TRANSPOSE:
            perm: Perm = node.attrs["perm"]
            (result,) = builder.copy(node, operands)
            transposed[result] = (operands[0], perm)
            return [result]
        if node.op.scalar is None and node.op is not CONCAT:
            return None
        shared = {transposed[operand][1] for operand in operands if operand in transposed}
        if len(shared) != 1:
            return None
        (perm,) = shared
        same_rank = node.result.type.rank == len(perm)
        return _sink(builder, node, operands, perm, transposed) if same_rank else None

    return rewrite(graph, replace)


def _sink(
    builder: Rewriter,
    node: Node,
    operands: Sequence[Value],
    perm: Perm,
    transposed: dict[Value, tuple[Value, Perm]],
) -> Sequence[Value] | None:
    inverse = tuple(int(axis) for axis in np.argsort(perm))
    inner = [_undo(builder, operand, inverse, transposed) for operand in operands]
    known = [value for value in inner if value is not None]
    if len(known) < len(inner):
        return None
    attrs = dict(node.attrs)
    if node.op is CONCAT:
        attrs["axis"] = perm[attrs["axis"]]
    value = builder.one(node.op, known, attrs, loc=node.loc)
    result = builder.one(TRANSPOSE, (value,), {"perm": perm}, loc=node.loc, name=node.result.name)
    transposed[result] = (value, perm)
    return [result]


def _undo(
    builder: Rewriter, operand: Value, inverse: Perm, transposed: dict[Value, tuple[Value, Perm]]
) -> Value | None:
    """The operand before its transpose; constants are transposed back, anything else stops the sinking."""
    if operand in transposed:
        return transposed[operand][0]
    if operand.type.count == 1 and operand.type.rank <= len(inverse):
        return operand
    array = builder.constant_of(operand)
    if array is None:
        return None
    full = array.reshape((1,) * (len(inverse) - array.ndim) + array.shape)
    return builder.constant(np.ascontiguousarray(full.transpose(inverse)), operand.name)
