"""Evaluates nodes whose operands are all constants."""

from __future__ import annotations

from collections.abc import Sequence

from cuvil.interp import run_program
from cuvil.ir.graph import Graph, GraphBuilder, Node, Value
from cuvil.ir.op import is_symbolic
from cuvil.ir.rewrite import Rewriter, rewrite
from cuvil.ir.types import Array
from cuvil.lower import lower_graph
from cuvil.targets.target import find_target

_REFERENCE_TARGET = "riscv64-linux"
"""Any target would do: they all compute the same bits. This one's kernels have the fewest statements."""


def fold_constants(graph: Graph) -> Graph:
    """Replaces constant nodes by their values.

    Where NumPy is exact it computes them; everything else runs through the loop interpreter, so that the
    compiler's own machine has no influence on the bits.
    """
    return rewrite(graph, _fold)


def _fold(builder: Rewriter, node: Node, operands: tuple[Value, ...]) -> Sequence[Value] | None:
    arrays = [builder.constant_of(operand) for operand in operands]
    known = [array for array in arrays if array is not None]
    if not operands or len(known) < len(operands) or is_symbolic(node.attrs):
        return None
    results = node.op.evaluate(known, node.attrs) if node.op.exact else _interpret(node, known)
    names = [result.name for result in node.results]
    return [builder.constant(array, name) for array, name in zip(results, names, strict=True)]


def _interpret(node: Node, operands: Sequence[Array]) -> list[Array]:
    b = GraphBuilder("fold")
    inputs = [b.input(value.name, value.type) for value in node.operands]
    graph = b.finish(b.node(node.op, inputs, node.attrs, loc=node.loc))
    return run_program(lower_graph(graph, find_target(_REFERENCE_TARGET)), operands)
