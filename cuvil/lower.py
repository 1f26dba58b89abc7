"""Graphs to programs: every node becomes kernel calls, or another view of its operand's memory."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

from cuvil.errors import UnsupportedError
from cuvil.ir.dims import Extent, highest
from cuvil.ir.graph import Graph, Node, Value
from cuvil.ir.types import FLOAT32, Array, Shape, TensorType, type_of
from cuvil.loops.build import KernelBuilder
from cuvil.loops.contraction import Tile
from cuvil.loops.kernel import Kernel
from cuvil.ops.context import LowerContext
from cuvil.ops.pointwise import Pointwise, Writer, lower_pointwise, make_writer, pointwise_of_node
from cuvil.plan import Call, Program
from cuvil.schedules.tile import choose_tile
from cuvil.targets.target import Target


def lower_graph(graph: Graph, target: Target) -> Program:
    """Lowers every node for `target`, in order, and copies outputs that are not a kernel's own result."""
    lowering = _Lowering(graph, target)
    for node in graph.nodes:
        lowering.lower(node)
    outputs = lowering.own_outputs(graph.outputs)
    return Program(
        graph.name,
        graph.inputs,
        outputs,
        tuple(lowering.calls),
        lowering.constants,
        lowering.roots,
    )


class _Lowering:
    """The `LowerContext` of one graph."""

    def __init__(self, graph: Graph, target: Target) -> None:
        self.calls: list[Call] = []
        self.constants: dict[Value, Array] = dict(graph.constants)
        self.roots: dict[Value, Value] = {}
        self._inputs = frozenset(graph.inputs)
        self._target = target
        self._repacked: dict[tuple[str, TensorType], Value] = {}
        self._loc = ""

    def lower(self, node: Node) -> None:
        self._loc = node.loc
        try:
            self._lower(node)
        except UnsupportedError as error:
            if str(error).startswith(node.loc):
                raise
            raise UnsupportedError(f"{node.loc}: {error}", hint=error.hint) from None

    def _lower(self, node: Node) -> None:
        if node.op.view:
            self.roots[node.result] = node.operands[0]
        elif not any(result.type.count for result in node.results):
            pass  # nothing to compute, and no tile or trip count fits
        elif node.op.scalar is not None:
            lower_pointwise(self, pointwise_of_node(node), node.op.name)
        elif node.op.lower is not None:
            node.op.lower(self, node)
        else:
            raise UnsupportedError(f"{node.loc}: {node.op.name} has no native code yet")

    def own_outputs(self, outputs: Sequence[Value]) -> tuple[Value, ...]:
        """The graph's outputs, each in memory of its own: what shares it with another value is copied."""
        taken: set[Value] = set()
        own: list[Value] = []
        for output in outputs:
            root = self._root(output)
            if root in taken or root in self._inputs or root in self.constants:
                output = root = self._copied(output)
            taken.add(root)
            own.append(output)
        return tuple(own)

    def _root(self, value: Value) -> Value:
        while value in self.roots:
            value = self.roots[value]
        return value

    def _copied(self, value: Value) -> Value:
        copy = self.temporary(value.type, value.name)
        if value.type.count:
            b = KernelBuilder("copy")
            count, dtype = value.type.count, value.type.dtype
            source, target = b.input("x", dtype, (count,)), b.output("y", dtype, (count,))
            with b.loop("i", count, "vector", parallel=True) as i:
                b.store(target, (i,), b.load(source, (i,)))
            self.call(b.finish(), (value, copy), flops=count)
        return copy

    # LowerContext

    @property
    def lanes(self) -> int:
        return self._target.lanes(FLOAT32)

    @property
    def l2_bytes(self) -> int:
        return self._target.l2_bytes

    def constant_of(self, value: Value) -> Array | None:
        return self.constants.get(self._root(value))

    def constant(self, array: Array, name: str) -> Value:
        key = (hashlib.sha256(array.tobytes()).hexdigest(), type_of(array))
        if key not in self._repacked:
            value = Value(name, key[1])
            self.constants[value] = array
            self._repacked[key] = value
        return self._repacked[key]

    def temporary(self, tensor_type: TensorType, name: str) -> Value:
        return Value(name, tensor_type)

    def call(self, kernel: Kernel, operands: Sequence[Value], flops: Extent) -> None:
        for buffer, value in zip(kernel.params, operands, strict=True):
            same = math.prod(buffer.shape) == value.type.count and buffer.dtype == value.type.dtype
            assert same, f"{kernel.name}: {buffer.name} {buffer.shape} is bound to {value!r}"
        self.calls.append(Call(kernel, tuple(operands), flops, self._loc))

    def writer(self, b: KernelBuilder, value: Value, view: Shape) -> Writer:
        return make_writer(self, b, value, view, None)

    def behind(self, pointwise: Pointwise) -> LowerContext:
        return _Behind(self, pointwise)

    def tile(self, rows: Extent, columns: Extent) -> Tile:
        return choose_tile(self._target, highest(rows), highest(columns))


class _Behind:
    """The context of an operator whose results run through elementwise nodes before they are stored."""

    def __init__(self, inner: LowerContext, pointwise: Pointwise) -> None:
        self._inner = inner
        self._pointwise = pointwise
        self.constant_of = inner.constant_of
        self.constant = inner.constant
        self.temporary = inner.temporary
        self.call = inner.call
        self.tile = inner.tile
        self.lanes = inner.lanes
        self.l2_bytes = inner.l2_bytes

    def writer(self, b: KernelBuilder, value: Value, view: Shape) -> Writer:
        fused = self._pointwise if value is self._pointwise.source else None
        return make_writer(self, b, value, view, fused)

    def behind(self, pointwise: Pointwise) -> LowerContext:
        return _Behind(self._inner, pointwise)
