"""Rebuilds a graph node by node: the one way in which passes change graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cuvil.ir.graph import Graph, GraphBuilder, Node, Value

Replace = Callable[["Rewriter", Node, tuple[Value, ...]], Sequence[Value] | None]
"""Called with a node and its already rewritten operands.

Returns the replacements of its results, or None to keep it.
"""


class Rewriter(GraphBuilder):
    """A builder that knows the graph it is rebuilding."""

    def __init__(self, source: Graph) -> None:
        super().__init__(source.name)
        self.source = source
        self.mapping: dict[Value, Value] = {}
        for value in source.inputs:
            self.mapping[value] = self.input(value.name, value.type)
        for value, array in source.constants.items():
            self.mapping[value] = self.constant(array, value.name)

    def copy(self, node: Node, operands: Sequence[Value]) -> tuple[Value, ...]:
        names = [result.name for result in node.results]
        return self.node(node.op, operands, node.attrs, loc=node.loc, names=names)


def rewrite(graph: Graph, replace: Replace) -> Graph:
    """The graph with every node offered to `replace`, in order."""
    builder = Rewriter(graph)
    for node in graph.nodes:
        operands = tuple(builder.mapping[operand] for operand in node.operands)
        results = replace(builder, node, operands)
        if results is None:
            results = builder.copy(node, operands)
        builder.mapping.update(zip(node.results, results, strict=True))
    return builder.finish([builder.mapping[value] for value in graph.outputs], graph.output_names)
