"""The rules that every graph keeps, checked between passes."""

from __future__ import annotations

from typing import NoReturn

from cuvil.errors import InternalError
from cuvil.ir.dims import Dim
from cuvil.ir.graph import Graph, Node, Value
from cuvil.ir.text import format_value
from cuvil.ir.types import Array, DType


def verify_graph(graph: Graph) -> None:
    """Checks that a graph is well formed, graphs in its attributes included.

    Every operand is defined before its use, every value once and under a name of its own; results have the
    types that their operator infers; constants have the types of their contents; every output is defined
    and has one name.

    Raises:
        InternalError: a rule is broken; the message names the node and the rule.
    """
    _Verifier(graph).verify()


class _Verifier:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._where = f"graph {graph.name!r}"
        self._defined: set[Value] = set()
        self._names: set[str] = set()

    def verify(self) -> None:
        for value in self._graph.inputs:
            self._define(value, "an input")
        for value, array in self._graph.constants.items():
            self._constant(value, array)
        for node in self._graph.nodes:
            self._node(node)
        self._outputs()

    def _constant(self, value: Value, array: Array) -> None:
        self._define(value, "a constant")
        if array.dtype.name != value.type.dtype.name or array.shape != value.type.shape:
            got = f"{array.dtype.name}{list(array.shape)}"
            self._fail(
                f"constant {format_value(value)} has other contents than its type", str(value.type), got
            )

    def _node(self, node: Node) -> None:
        self._where = f"{node.loc}: {node.op.name}"
        for operand in node.operands:
            if operand not in self._defined:
                self._fail(
                    f"operand {format_value(operand)} is used before it is defined", "a definition", "none"
                )
        for name, attr in node.attrs.items():
            self._attr(name, attr)
        self._result_types(node)
        for result in node.results:
            self._define(result, "a result")

    def _attr(self, name: str, attr: object) -> None:
        if isinstance(attr, Graph):
            verify_graph(attr)
        elif isinstance(attr, tuple):
            for item in attr:
                self._attr(name, item)
        elif type(attr) not in (bool, int, float, str, DType, Dim):
            self._fail(
                f"attribute {name!r} has a foreign type",
                "a number, string, dtype, tuple or graph",
                repr(attr),
            )

    def _result_types(self, node: Node) -> None:
        try:
            types = node.op.infer([operand.type for operand in node.operands], node.attrs)
        except Exception as error:  # whatever an operator trips over, this node is at fault
            raise InternalError(f"{self._where}: operands do not fit the operator; {error}") from error
        if tuple(result.type for result in node.results) != types:
            got = ", ".join(f"{format_value(result)}: {result.type}" for result in node.results)
            expected = ", ".join(map(str, types)) or "none"
            self._fail("result types are not what the operator infers", expected, got or "none")

    def _define(self, value: Value, role: str) -> None:
        name = format_value(value)
        if value in self._defined:
            self._fail(
                f"{name} is defined twice", "one definition a value", f"{role} that is defined already"
            )
        if value.name in self._names:
            self._fail(f"two values are named {name}", "names that differ", f"{role} of that name")
        self._defined.add(value)
        self._names.add(value.name)

    def _outputs(self) -> None:
        self._where = f"graph {self._graph.name!r}"
        for value in self._graph.outputs:
            if value not in self._defined:
                self._fail(
                    f"output {format_value(value)} is not defined", "an input, a constant or a result", "none"
                )
        count, names = len(self._graph.outputs), self._graph.output_names
        if names and len(names) != count:
            self._fail("outputs and their names differ in number", f"{count} names", str(len(names)))

    def _fail(self, rule: str, expected: str, got: str) -> NoReturn:
        raise InternalError(f"{self._where}: {rule}; expected {expected}, got {got}")
