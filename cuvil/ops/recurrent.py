"""The recurrent part of an LSTM layer; its input product is an ordinary matrix product before it.

Numerics: gates = chain(h * R) + x, where x holds the input product and the biases; c' = f * c + i * g and
h' = o * tanh(c') with one rounding an operation.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cuvil.errors import ModelError
from cuvil.exact import fma32
from cuvil.ir.graph import Node, Value
from cuvil.ir.op import Attrs, OpDef
from cuvil.ir.types import FLOAT32, Array, TensorType
from cuvil.loops.build import KernelBuilder
from cuvil.loops.contraction import Contraction, Span, Tile, emit_tile, split_columns, split_rows
from cuvil.loops.kernel import Buffer, Expr
from cuvil.ops.context import LowerContext
from cuvil.ops.elementary import sigmoid, tanh
from cuvil.ops.elementwise import ADD, check_dtype, common_dtype
from cuvil.ops.foreign import ForeignNode, Importer
from cuvil.ops.matmul import multiplied
from cuvil.ops.movement import CONCAT, sliced, transposed
from cuvil.ops.reshape import reshaped
from cuvil.ops.tiled import pack_panels

GATES = 4
"""In ONNX's order: input, output, forget, cell."""

_ACTIVATIONS = ("Sigmoid", "Tanh", "Tanh")


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
            product = np.zeros(x.shape[1:], np.float32)
            for k in range(len(recurrent)):
                product = fma32(hidden[:, k, None], recurrent[k], product)
            gates = np.split((product + x[t]).astype(np.float64), GATES, axis=1)
            i, o, f = ((1 / (1 + np.exp(-gate))).astype(np.float32) for gate in gates[:3])
            g = np.tanh(gates[3]).astype(np.float32)
            cell = f * cell + i * g
            hidden = o * np.tanh(cell.astype(np.float64)).astype(np.float32)
            outputs[t] = hidden
    return (outputs, hidden, cell)


def _lower(ctx: LowerContext, node: Node) -> None:
    x_value, r_value, h_value, c_value = node.operands
    steps, batch, gate_columns = x_value.type.shape
    size = gate_columns // GATES
    tile = ctx.tile(batch, gate_columns)
    constant = ctx.constant_of(r_value)
    spans = split_columns(gate_columns, tile.columns, ctx.lanes if constant is not None else 1)

    b = KernelBuilder("lstm")
    x = b.input("x", FLOAT32, (steps, batch, gate_columns))
    h0, c0 = b.input("h0", FLOAT32, (batch, size)), b.input("c0", FLOAT32, (batch, size))
    operands = [x_value, h_value, c_value]
    weights: list[Buffer] = []
    for span in spans if constant is not None else spans[:1]:
        value = r_value if constant is None else ctx.constant(pack_panels(constant, span), "panels")
        weights.append(b.input(f"r{len(weights)}", FLOAT32, value.type.shape))
        operands.append(value)
    y = b.output("y", FLOAT32, (steps, batch, size))
    h, c = b.output("h", FLOAT32, (batch, size)), b.output("c", FLOAT32, (batch, size))
    gates = b.scratch("gates", FLOAT32, (batch, gate_columns))
    scratch = ctx.temporary(TensorType(FLOAT32, gates.shape), "gates")

    _emit_copy(b, h0, h)
    _emit_copy(b, c0, c)
    with b.loop("step", steps) as step:
        t = b.let("t", (steps - 1) - step) if node.attrs["reverse"] else step
        for number, span in enumerate(spans):
            right = weights[number] if constant is not None else weights[0]
            _emit_gates(
                b, span, split_rows(batch, tile.rows), (x, h, right, gates), t, packed=constant is not None
            )
        _emit_cell(b, (gates, h, c, y), t)
    flops = 2 * steps * batch * gate_columns * size
    ctx.call(b.finish(), [*operands, *node.results, scratch], flops=flops)


def _emit_copy(b: KernelBuilder, source: Buffer, target: Buffer) -> None:
    rows, columns = source.shape
    with b.loop("i", rows) as i, b.loop("j", columns, "vector") as j:
        b.store(target, (i, j), b.load(source, (i, j)))


def _emit_gates(
    b: KernelBuilder,
    columns: Span,
    row_spans: Sequence[Span],
    buffers: tuple[Buffer, Buffer, Buffer, Buffer],
    t: Expr,
    *,
    packed: bool,
) -> None:
    for rows in row_spans:
        with b.loop("n", columns.count) as panel, b.loop("m", rows.count) as m:
            first = panel * columns.size + columns.start
            spec = _gate_product(b, buffers, t, first, panel if packed else None)
            emit_tile(b, spec, Tile(rows.size, columns.size), m * rows.size + rows.start, 0, columns.padding)


def _gate_product(
    b: KernelBuilder,
    buffers: tuple[Buffer, Buffer, Buffer, Buffer],
    t: Expr,
    first: Expr,
    panel: Expr | None,
) -> Contraction:
    """The columns from `first` on; `panel` numbers the packed weights that hold them."""
    x, h, right, gates = buffers

    def weight(column: Expr, k: Sequence[Expr]) -> Expr:
        if panel is None:
            return b.load(right, (k[0], column + first))
        return b.load(right, (panel, k[0], column))

    def finish(row: Expr, column: Expr, value: Expr) -> None:
        b.store(gates, (row, column + first), value + b.load(x, (t, row, column + first)))

    return Contraction((h.shape[1],), lambda row, k: b.load(h, (row, k[0])), weight, finish)


def _emit_cell(b: KernelBuilder, buffers: tuple[Buffer, Buffer, Buffer, Buffer], t: Expr) -> None:
    gates, h, c, y = buffers
    batch, size = h.shape
    with b.loop("i", batch) as i, b.loop("j", size, "vector") as j:
        i_gate, o_gate, f_gate = (sigmoid(b.load(gates, (i, j + gate * size))) for gate in range(3))
        g_gate = tanh(b.load(gates, (i, j + 3 * size)))
        cell = b.let("cell", f_gate * b.load(c, (i, j)) + i_gate * g_gate)
        hidden = b.let("hidden", o_gate * tanh(cell))
        b.store(c, (i, j), cell)
        b.store(h, (i, j), hidden)
        b.store(y, (t, i, j), hidden)


LSTM = OpDef("lstm", _infer, _evaluate, lower=_lower)

OPERATORS = (LSTM,)


def _import_lstm(node: ForeignNode) -> list[Value]:
    """One pass for each direction; the input product of all steps is a single matrix product."""
    _check_lstm(node)
    x = node.operand(0)
    directions = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
    order = directions[node.attrs.get("direction", "forward")]
    runs = [_import_direction(node, x, number, reverse) for number, reverse in enumerate(order)]
    results = [
        [reshaped(node, value, (*value.type.shape[:-2], 1, *value.type.shape[-2:])) for value in run]
        for run in runs
    ]
    return [_joined(node, parts) for parts in zip(*results, strict=True)][: len(node.result_names)]


def _joined(node: ForeignNode, parts: Sequence[Value]) -> Value:
    if len(parts) == 1:
        return parts[0]
    return node.emit(CONCAT, parts, {"axis": parts[0].type.rank - 3})


def _check_lstm(node: ForeignNode) -> None:
    x, lengths = node.operand(0), node.optional_constant(4, "sequence_lens")
    if lengths is not None and np.any(lengths != x.type.shape[0]):
        raise node.unsupported("sequence_lens shorter than the sequence")
    defaults = {"layout": 0, "input_forget": 0, "clip": None}
    for name, default in defaults.items():
        if node.attrs.get(name, default) != default:
            raise node.unsupported(f"the attribute {name}={node.attrs[name]!r}")
    activations = tuple(node.attrs.get("activations", ()))
    if activations not in ((), _ACTIVATIONS, _ACTIVATIONS * 2):
        raise node.unsupported(f"the activations {list(activations)}")
    if node.optional(7) is not None:
        raise node.unsupported("the peephole operand P")
    if node.attrs.get("direction", "forward") not in ("forward", "reverse", "bidirectional"):
        raise ModelError(f"{node.loc}: unknown direction {node.attrs['direction']!r}")


def _import_direction(node: ForeignNode, x: Value, number: int, reverse: bool) -> tuple[Value, ...]:
    """The op's three results for direction `number`."""
    weights, recurrent = (_direction(node, node.operand(position), number) for position in (1, 2))
    size, batch = recurrent.type.shape[1], x.type.shape[1]
    gates = multiplied(node, x, transposed(node, weights, (1, 0)))
    bias = node.optional(3)
    if bias is not None:
        both = _direction(node, bias, number)
        halves = [sliced(node, both, 0, start, GATES * size) for start in (0, GATES * size)]
        gates = node.emit(ADD, [gates, node.emit(ADD, halves)])
    zero = node.builder.constant(np.zeros((batch, size), np.float32))
    states = [node.optional(position) for position in (5, 6)]
    hidden, cell = (zero if state is None else _direction(node, state, number) for state in states)
    operands = [gates, transposed(node, recurrent, (1, 0)), hidden, cell]
    return node.builder.node(LSTM, operands, {"reverse": reverse}, loc=node.loc, names=["y", "h", "c"])


def _direction(node: ForeignNode, value: Value, number: int) -> Value:
    return reshaped(node, sliced(node, value, 0, number, 1), value.type.shape[1:])


ONNX: dict[str, Importer] = {"LSTM": _import_lstm}
