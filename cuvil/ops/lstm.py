"""The recurrent part of an LSTM layer; its input product is an ordinary matrix product before it.

Numerics: gates = chain(h * R) + x, where x holds the input product and the biases; c' = f * c + i * g and
h' = o * tanh(c') with one rounding an operation.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cuvil.errors import ModelError
from cuvil.ir.graph import Node, Value
from cuvil.ir.op import Attrs, OpDef
from cuvil.ir.types import FLOAT32, Array, TensorType
from cuvil.loops.build import KernelBuilder
from cuvil.loops.kernel import Buffer, Expr
from cuvil.ops.context import LowerContext
from cuvil.ops.elementary import sigmoid, tanh
from cuvil.ops.elementwise import ADD, check_dtype, common_dtype
from cuvil.ops.foreign import ForeignNode, Importer
from cuvil.ops.matmul import multiplied
from cuvil.ops.movement import sliced, transposed
from cuvil.ops.recurrent import (
    RecurrentProduct,
    chained_product,
    emit_copy,
    import_layer,
    initial_state,
    of_direction,
)

GATES = 4
"""In ONNX's order: input, output, forget, cell."""


def _infer(operands: Sequence[TensorType], _: Attrs) -> tuple[TensorType, ...]:
    check_dtype(common_dtype(operands), (FLOAT32,))
    x, recurrent, hidden, cell = operands
    steps, batch, gates = x.shape
    size = gates // GATES
    if recurrent.shape != (size, gates) or {hidden.shape, cell.shape} != {(batch, size)}:
        raise ModelError(f"lstm: shapes do not fit; got {x}, {recurrent}, {hidden} and {cell}")
    state = TensorType(FLOAT32, (batch, size))
    return (TensorType(FLOAT32, (steps, batch, size)), state, state)


def _evaluate(operands: Sequence[Array], attrs: Attrs) -> tuple[Array, ...]:
    x, recurrent, hidden, cell = operands
    outputs = np.empty((*x.shape[:2], x.shape[2] // GATES), np.float32)
    steps = range(len(x))
    with np.errstate(all="ignore"):
        for t in reversed(steps) if attrs["reverse"] else steps:
            product = chained_product(hidden, recurrent)
            gates = np.split((product + x[t]).astype(np.float64), GATES, axis=1)
            i, o, f = ((1 / (1 + np.exp(-gate))).astype(np.float32) for gate in gates[:3])
            g = np.tanh(gates[3]).astype(np.float32)
            cell = f * cell + i * g
            hidden = o * np.tanh(cell.astype(np.float64)).astype(np.float32)
            outputs[t] = hidden
    return (outputs, hidden, cell)


def _lower(ctx: LowerContext, node: Node) -> None:
    x_value, r_value, h_value, c_value = node.operands
    steps, batch, columns = x_value.type.shape
    size = columns // GATES
    b = KernelBuilder("lstm")
    x = b.input("x", FLOAT32, (steps, batch, columns))
    h0, c0 = b.input("h0", FLOAT32, (batch, size)), b.input("c0", FLOAT32, (batch, size))
    product = RecurrentProduct(ctx, b, r_value, batch, "r")
    y = b.output("y", FLOAT32, (steps, batch, size))
    h, c = b.output("h", FLOAT32, (batch, size)), b.output("c", FLOAT32, (batch, size))
    gates = b.scratch("gates", FLOAT32, (batch, columns))
    scratch = ctx.temporary(TensorType(FLOAT32, gates.shape), "gates")

    emit_copy(b, h0, h)
    emit_copy(b, c0, c)
    with b.loop("step", steps) as step:
        t = b.let("t", (steps - 1) - step) if node.attrs["reverse"] else step
        product.emit(h, gates)
        _emit_cell(b, (x, gates, h, c, y), t)
    operands = [x_value, h_value, c_value, *product.operands, *node.results, scratch]
    ctx.call(b.finish(), operands, flops=2 * steps * batch * columns * size)


def _emit_cell(b: KernelBuilder, buffers: tuple[Buffer, Buffer, Buffer, Buffer, Buffer], t: Expr) -> None:
    x, gates, h, c, y = buffers
    batch, size = h.shape
    with b.loop("i", batch) as i, b.loop("j", size, "vector") as j:

        def gate(number: int) -> Expr:
            column = j + number * size
            return b.load(gates, (i, column)) + b.load(x, (t, i, column))

        i_gate, o_gate, f_gate = (sigmoid(gate(number)) for number in range(3))
        cell = b.let("cell", f_gate * b.load(c, (i, j)) + i_gate * tanh(gate(3)))
        hidden = b.let("hidden", o_gate * tanh(cell))
        b.store(c, (i, j), cell)
        b.store(h, (i, j), hidden)
        b.store(y, (t, i, j), hidden)


LSTM = OpDef("lstm", _infer, _evaluate, lower=_lower)
"""Operands: the input product with all biases, the recurrent matrix, the initial hidden and cell states.
Attributes: `reverse`."""

OPERATORS = (LSTM,)


def _import_lstm(node: ForeignNode) -> list[Value]:
    if node.optional(7) is not None:
        raise node.unsupported("the peephole operand P")
    return import_layer(node, ("Sigmoid", "Tanh", "Tanh"), _import_direction)


def _import_direction(node: ForeignNode, x: Value, number: int, reverse: bool) -> Sequence[Value]:
    """The input product of all steps is a single matrix product."""
    weights, recurrent = (of_direction(node, node.operand(position), number) for position in (1, 2))
    size, batch = recurrent.type.shape[1], x.type.shape[1]
    gates = multiplied(node, x, transposed(node, weights, (1, 0)))
    bias = node.optional(3)
    if bias is not None:
        both = of_direction(node, bias, number)
        halves = [sliced(node, both, 0, start, GATES * size) for start in (0, GATES * size)]
        gates = node.emit(ADD, [gates, node.emit(ADD, halves)])
    hidden, cell = (initial_state(node, position, number, batch, size) for position in (5, 6))
    operands = [gates, transposed(node, recurrent, (1, 0)), hidden, cell]
    return node.builder.node(LSTM, operands, {"reverse": reverse}, loc=node.loc, names=["y", "h", "c"])


ONNX: dict[str, Importer] = {"LSTM": _import_lstm}
