"""The recurrent part of a GRU layer; its input product is an ordinary matrix product before it.

Numerics: z and r = sigmoid(chain(h * R) + x), where x holds the input product and the biases. The candidate
n is tanh(x + chain((r * h) * R)), and with `linear_before_reset` tanh(x + r * (chain(h * R) + Rb));
h' = (1 - z) * n + z * h. One rounding an operation.
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
from cuvil.ops.movement import CONCAT, sliced, transposed
from cuvil.ops.recurrent import (
    RecurrentProduct,
    chained_product,
    emit_copy,
    import_layer,
    initial_state,
    of_direction,
)

GATES = 3
"""In ONNX's order: update (z), reset (r), candidate (n)."""


def _infer(operands: Sequence[TensorType], _: Attrs) -> tuple[TensorType, ...]:
    check_dtype(common_dtype(operands), (FLOAT32,))
    x, gate_matrix, candidate_matrix, bias, hidden = operands
    steps, batch, columns = x.shape
    size = columns // GATES
    shapes = (gate_matrix.shape, candidate_matrix.shape, bias.shape, hidden.shape)
    if shapes != ((size, 2 * size), (size, size), (size,), (batch, size)):
        raise ModelError(f"gru: shapes do not fit; got {', '.join(map(str, operands))}")
    return (TensorType(FLOAT32, (steps, batch, size)), TensorType(FLOAT32, (batch, size)))


def _evaluate(operands: Sequence[Array], attrs: Attrs) -> tuple[Array, ...]:
    x, gate_matrix, candidate_matrix, bias, hidden = operands
    size = hidden.shape[1]
    outputs = np.empty((*x.shape[:2], size), np.float32)
    steps = range(len(x))
    with np.errstate(all="ignore"):
        for t in reversed(steps) if attrs["reverse"] else steps:
            gates = (chained_product(hidden, gate_matrix) + x[t, :, : 2 * size]).astype(np.float64)
            z, r = np.split((1 / (1 + np.exp(-gates))).astype(np.float32), 2, axis=1)
            if attrs["linear_before_reset"]:
                term = r * (chained_product(hidden, candidate_matrix) + bias)
            else:
                term = chained_product(r * hidden, candidate_matrix)
            n = np.tanh((x[t, :, 2 * size :] + term).astype(np.float64)).astype(np.float32)
            hidden = (np.float32(1) - z) * n + z * hidden
            outputs[t] = hidden
    return (outputs, hidden)


def _lower(ctx: LowerContext, node: Node) -> None:
    x_value, gate_matrix, candidate_matrix, bias_value, h_value = node.operands
    steps, batch, columns = x_value.type.shape
    size = columns // GATES
    linear = node.attrs["linear_before_reset"]
    b = KernelBuilder("gru")
    x, h0 = b.input("x", FLOAT32, (steps, batch, columns)), b.input("h0", FLOAT32, (batch, size))
    bias = b.input("bias", FLOAT32, (size,))
    gate_product = RecurrentProduct(ctx, b, gate_matrix, batch, "r")
    candidate_product = RecurrentProduct(ctx, b, candidate_matrix, batch, "q")
    y, h = b.output("y", FLOAT32, (steps, batch, size)), b.output("h", FLOAT32, (batch, size))
    gates = b.scratch("gates", FLOAT32, (batch, 2 * size))
    reset, candidate = (b.scratch(name, FLOAT32, (batch, size)) for name in ("reset", "candidate"))
    scratch = [ctx.temporary(TensorType(FLOAT32, s.shape), s.name) for s in (gates, reset, candidate)]

    emit_copy(b, h0, h)
    with b.loop("step", steps) as step:
        t = b.let("t", (steps - 1) - step) if node.attrs["reverse"] else step
        gate_product.emit(h, gates)
        _emit_gates(b, (x, gates, h, reset), t, linear)
        candidate_product.emit(h if linear else reset, candidate)
        _emit_state(b, (x, gates, reset, candidate, bias, h, y), t, linear)
    weights = [*gate_product.operands, *candidate_product.operands]
    operands = [x_value, h_value, bias_value, *weights, *node.results, *scratch]
    ctx.call(b.finish(), operands, flops=2 * steps * batch * columns * size)


def _emit_gates(
    b: KernelBuilder, buffers: tuple[Buffer, Buffer, Buffer, Buffer], t: Expr, linear: bool
) -> None:
    """Turns sums into gates in place: z in `gates`, and in `reset` r, or r * h where that is what counts."""
    x, gates, h, reset = buffers
    batch, size = h.shape
    with b.loop("i", batch) as i, b.loop("j", size, "vector") as j:
        z, r = (
            sigmoid(b.load(gates, (i, column)) + b.load(x, (t, i, column))) for column in (j + 0, j + size)
        )
        r = b.let("r", r)
        b.store(gates, (i, j), z)
        b.store(reset, (i, j), r if linear else r * b.load(h, (i, j)))


def _emit_state(b: KernelBuilder, buffers: tuple[Buffer, ...], t: Expr, linear: bool) -> None:
    x, gates, reset, candidate, bias, h, y = buffers
    batch, size = h.shape
    with b.loop("i", batch) as i, b.loop("j", size, "vector") as j:
        term = b.load(candidate, (i, j))
        if linear:
            term = b.load(reset, (i, j)) * (term + b.load(bias, (j,)))
        n = b.let("n", tanh(b.load(x, (t, i, j + 2 * size)) + term))
        z = b.let("z", b.load(gates, (i, j)))
        hidden = b.let("hidden", (1.0 - z) * n + z * b.load(h, (i, j)))
        b.store(h, (i, j), hidden)
        b.store(y, (t, i, j), hidden)


GRU = OpDef("gru", _infer, _evaluate, lower=_lower)
"""Operands: the input product with its biases, the recurrent matrices of the gates and of the candidate, the
recurrent bias of the candidate (used with `linear_before_reset` alone), and the initial state. Attributes:
`reverse`, `linear_before_reset`."""

OPERATORS = (GRU,)


def _import_gru(node: ForeignNode) -> list[Value]:
    return import_layer(node, ("Sigmoid", "Tanh"), _import_direction)


def _import_direction(node: ForeignNode, x: Value, number: int, reverse: bool) -> Sequence[Value]:
    """The input product of all steps is a single matrix product."""
    weights, recurrent = (of_direction(node, node.operand(position), number) for position in (1, 2))
    size, batch = recurrent.type.shape[1], x.type.shape[1]
    linear = bool(node.attrs.get("linear_before_reset", 0))
    gates = multiplied(node, x, transposed(node, weights, (1, 0)))
    rest = node.builder.constant(np.zeros(size, np.float32))
    if node.optional(3) is not None:
        added, rest = _biases(node, number, size, linear)
        gates = node.emit(ADD, [gates, added])
    matrix = transposed(node, recurrent, (1, 0))
    matrices = [sliced(node, matrix, 1, 0, 2 * size), sliced(node, matrix, 1, 2 * size, size)]
    operands = [gates, *matrices, rest, initial_state(node, 5, number, batch, size)]
    attrs = {"reverse": reverse, "linear_before_reset": linear}
    return node.builder.node(GRU, operands, attrs, loc=node.loc, names=["y", "h"])


def _biases(node: ForeignNode, number: int, size: int, linear: bool) -> tuple[Value, Value]:
    """What is added to the input product, and the candidate's recurrent bias."""
    both = of_direction(node, node.operand(3), number)
    rest = sliced(node, both, 0, 5 * size, size)
    if not linear:
        halves = [sliced(node, both, 0, start, GATES * size) for start in (0, GATES * size)]
        return node.emit(ADD, halves), rest
    halves = [sliced(node, both, 0, start, 2 * size) for start in (0, GATES * size)]
    candidate = sliced(node, both, 0, 2 * size, size)
    return node.emit(CONCAT, [node.emit(ADD, halves), candidate], {"axis": 0}), rest


ONNX: dict[str, Importer] = {"GRU": _import_gru}
