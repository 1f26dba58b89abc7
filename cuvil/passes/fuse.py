"""Groups elementwise nodes into the kernel of the node that feeds them."""

from __future__ import annotations

from dataclasses import dataclass, field

from cuvil.ir.graph import Graph, GraphBuilder, Node, Value
from cuvil.ir.rewrite import Rewriter
from cuvil.ops.conv import CONV
from cuvil.ops.fused import FUSED
from cuvil.ops.matmul import MATMUL

ANCHORS = (MATMUL, CONV)
"""Operators that can run elementwise nodes on each result before they store it."""

_MAX_NODES = 24


@dataclass(eq=False)
class _Group:
    """Nodes that become one kernel; the last one's result is the group's."""

    nodes: list[Node] = field(default_factory=list)

    @property
    def result(self) -> Value:
        return self.nodes[-1].results[0]


def fuse(graph: Graph) -> Graph:
    """Makes a `fused` node of every chain of elementwise nodes, with a product or convolution before it."""
    groups = _grow_groups(graph)
    inside = {node for group in groups.values() for node in group.nodes}
    last = {group.nodes[-1]: group for group in groups.values() if len(group.nodes) > 1}
    builder = Rewriter(graph)
    for node in graph.nodes:
        group = last.get(node)
        if group is not None:
            builder.mapping[group.result] = _emit(builder, group)
        elif node not in inside or len(groups[node.results[0]].nodes) == 1:
            operands = [builder.mapping[operand] for operand in node.operands]
            builder.mapping.update(zip(node.results, builder.copy(node, operands), strict=True))
    return builder.finish([builder.mapping[value] for value in graph.outputs], graph.output_names)


def _grow_groups(graph: Graph) -> dict[Value, _Group]:
    """Groups by every result inside them."""
    uses = graph.use_counts()
    groups: dict[Value, _Group] = {}
    for node in graph.nodes:
        if node.op in ANCHORS:
            groups[node.result] = _Group([node])
        elif node.op.scalar is not None:
            group = _group_to_join(node, groups, uses, graph) or _Group()
            group.nodes.append(node)
            groups[node.result] = group
    return groups


def _group_to_join(
    node: Node, groups: dict[Value, _Group], uses: dict[Value, int], graph: Graph
) -> _Group | None:
    """The group of an operand that only this node reads; the latest one, since its kernel runs last."""
    for operand in reversed(node.operands):
        group = groups.get(operand)
        if group is None or operand is not group.result or uses[operand] > 1:
            continue
        fits = operand.type.shape == node.result.type.shape and len(group.nodes) < _MAX_NODES
        if fits and (group.nodes[0].op not in ANCHORS or _suits_epilogue(node, operand, graph)):
            return group
    return None


def _suits_epilogue(node: Node, source: Value, graph: Graph) -> bool:
    """Whether the other operands vary like the whole result, along its last axis only, or not at all."""
    shape = source.type.shape
    return all(
        operand.type.shape == shape
        or operand.type.count == 1
        or (operand.type.count == shape[-1] == operand.type.shape[-1])
        for operand in node.operands
        if operand is not source
    )


def _emit(builder: Rewriter, group: _Group) -> Value:
    """A `fused` node whose body is the group, on the operands that it reads from outside."""
    inside = {result for node in group.nodes for result in node.results}
    outside = dict.fromkeys(o for node in group.nodes for o in node.operands if o not in inside)
    body = GraphBuilder("body")
    mapping = {value: body.input(value.name, value.type) for value in outside}
    for node in group.nodes:
        operands = [mapping[operand] for operand in node.operands]
        names = [result.name for result in node.results]
        results = body.node(node.op, operands, node.attrs, loc=node.loc, names=names)
        mapping.update(zip(node.results, results, strict=True))
    attrs = {"body": body.finish([mapping[group.result]])}
    operands = [builder.mapping[value] for value in outside]
    loc = "; ".join(dict.fromkeys(node.loc for node in group.nodes))
    return builder.one(FUSED, operands, attrs, loc=loc, name=group.result.name)
