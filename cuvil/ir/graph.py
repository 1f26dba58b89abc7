"""Graphs: values, nodes and constants. A graph never changes; passes build new ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from cuvil.ir.op import Attrs, OpDef
from cuvil.ir.types import Array, TensorType, type_of


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor in a graph: an input, a constant, or the result of exactly one node."""

    name: str
    type: TensorType

    def __repr__(self) -> str:
        return f"%{self.name}: {self.type}"


@dataclass(frozen=True, eq=False)
class Node:
    """One application of an operator. `loc` says where in the user's model it comes from."""

    op: OpDef
    operands: tuple[Value, ...]
    results: tuple[Value, ...]
    attrs: Attrs
    loc: str

    @property
    def result(self) -> Value:
        """The only result."""
        (result,) = self.results
        return result


@dataclass(frozen=True, eq=False)
class Graph:
    """Nodes in an order in which every operand comes before its use."""

    name: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    nodes: tuple[Node, ...]
    constants: Mapping[Value, Array] = field(default_factory=dict)
    output_names: tuple[str, ...] = ()
    """The outputs' names in the user's model, where one value may stand for several."""

    def producers(self) -> dict[Value, Node]:
        return {result: node for node in self.nodes for result in node.results}

    def use_counts(self) -> dict[Value, int]:
        """How often each value is read, outputs of the graph included."""
        counts: dict[Value, int] = {}
        for value in [operand for node in self.nodes for operand in node.operands] + list(self.outputs):
            counts[value] = counts.get(value, 0) + 1
        return counts


class GraphBuilder:
    """Builds a graph node by node; result types are inferred and names kept unique."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._inputs: list[Value] = []
        self._nodes: list[Node] = []
        self._constants: dict[Value, Array] = {}
        self._contents: dict[Value, Array] = {}
        self._names: dict[str, int] = {}

    def input(self, name: str, tensor_type: TensorType) -> Value:
        value = Value(self._unique(name), tensor_type)
        self._inputs.append(value)
        return value

    def constant(self, array: Array, name: str = "c") -> Value:
        data = np.ascontiguousarray(array).reshape(array.shape)
        data.flags.writeable = False
        value = Value(self._unique(name), type_of(data))
        self._constants[value] = data
        return value

    def constant_of(self, value: Value) -> Array | None:
        """The contents of a constant; None for a value that is only known at run time."""
        return self._constants.get(value)

    def note(self, value: Value, contents: Array) -> None:
        """Remembers what a value holds in terms of named dimensions: an array of Python objects."""
        self._contents[value] = contents

    def known(self, value: Value) -> Array | None:
        """The contents of a constant, or of a value that was noted; None for anything else."""
        return self._constants.get(value, self._contents.get(value))

    def node(
        self,
        op: OpDef,
        operands: Sequence[Value],
        attrs: Attrs | None = None,
        *,
        loc: str,
        names: Sequence[str] = (),
    ) -> tuple[Value, ...]:
        """Adds a node and returns its results."""
        frozen: Attrs = MappingProxyType(dict(attrs or {}))
        types = op.infer([operand.type for operand in operands], frozen)
        hints = [*names, *[op.name] * (len(types) - len(names))]
        results = tuple(Value(self._unique(hint), t) for hint, t in zip(hints, types, strict=True))
        self._nodes.append(Node(op, tuple(operands), results, frozen, loc))
        return results

    def one(
        self, op: OpDef, operands: Sequence[Value], attrs: Attrs | None = None, *, loc: str, name: str = ""
    ) -> Value:
        """Adds a node that has one result."""
        (result,) = self.node(op, operands, attrs, loc=loc, names=[name] if name else ())
        return result

    def finish(self, outputs: Sequence[Value], output_names: Sequence[str] = ()) -> Graph:
        """The graph, without nodes and constants that no output needs."""
        needed = set(outputs)
        nodes: list[Node] = []
        for node in reversed(self._nodes):
            if needed.intersection(node.results):
                nodes.append(node)
                needed.update(node.operands)
        constants = {value: array for value, array in self._constants.items() if value in needed}
        names = tuple(output_names) or tuple(value.name for value in outputs)
        return Graph(self.name, tuple(self._inputs), tuple(outputs), tuple(reversed(nodes)), constants, names)

    def _unique(self, name: str) -> str:
        count = self._names.get(name, 0)
        self._names[name] = count + 1
        return self._unique(f"{name}.{count}") if count else name
