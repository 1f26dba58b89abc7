"""The operator that the fuse pass makes: a graph that is compiled into one kernel.

Its body is a chain of elementwise nodes, behind one other operator (the anchor) or on its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from cuvil.ir.graph import Graph, Node, Value
from cuvil.ir.op import Attrs, OpDef
from cuvil.ir.types import Array, TensorType
from cuvil.ops.context import LowerContext
from cuvil.ops.pointwise import Pointwise, lower_pointwise


def _infer(_: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    body: Graph = attrs["body"]
    return tuple(output.type for output in body.outputs)


def _evaluate(operands: Sequence[Array], attrs: Attrs) -> tuple[Array, ...]:
    body: Graph = attrs["body"]
    values: dict[Value, Array] = dict(zip(body.inputs, operands, strict=True))
    for node in body.nodes:
        results = node.op.evaluate([values[operand] for operand in node.operands], node.attrs)
        values.update(zip(node.results, results, strict=True))
    return tuple(values[output] for output in body.outputs)


def _lower(ctx: LowerContext, node: Node) -> None:
    body: Graph = node.attrs["body"]
    outside = dict(zip(body.inputs, node.operands, strict=True))
    anchor = body.nodes[0] if body.nodes[0].op.scalar is None else None
    rest = body.nodes[1:] if anchor else body.nodes
    read = {operand for member in rest for operand in member.operands}
    operands = {inner: outer for inner, outer in outside.items() if inner in read}
    source = anchor.result if anchor else None
    pointwise = Pointwise(rest, operands, body.outputs[0], node.result, source)
    if anchor is None:
        lower_pointwise(ctx, pointwise, "_".join(member.op.name for member in rest))
        return
    assert anchor.op.lower is not None
    inner = Node(
        anchor.op, tuple(outside[value] for value in anchor.operands), anchor.results, anchor.attrs, node.loc
    )
    anchor.op.lower(ctx.behind(pointwise), inner)


FUSED = OpDef("fused", _infer, _evaluate, lower=_lower)

OPERATORS = (FUSED,)
