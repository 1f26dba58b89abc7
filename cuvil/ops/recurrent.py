"""What LSTM and GRU layers share: the product of the hidden state, the directions, and their import."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from cuvil.errors import ModelError
from cuvil.exact import fma32
from cuvil.ir.graph import Value
from cuvil.ir.types import FLOAT32, Array
from cuvil.loops.build import KernelBuilder
from cuvil.loops.contraction import Contraction, Span, Tile, emit_tile, split_columns, split_rows
from cuvil.loops.kernel import Buffer, Expr
from cuvil.ops.context import LowerContext
from cuvil.ops.foreign import ForeignNode
from cuvil.ops.movement import CONCAT, sliced, transposed
from cuvil.ops.reshape import reshaped
from cuvil.ops.tiled import pack_panels

_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}

Direction = Callable[[ForeignNode, Value, int, bool], Sequence[Value]]
"""Adds one direction of a layer: its number, and whether it runs backwards; returns the states of all steps
[steps, batch, size] and the last ones [batch, size]."""


class RecurrentProduct:
    """A state [batch, size] times a matrix [size, columns], each result one chain over the size.

    Adds the matrix to the kernel's parameters, packed into panels where it is constant; `operands` are the
    values to be bound to them.
    """

    def __init__(self, ctx: LowerContext, b: KernelBuilder, matrix: Value, batch: int, name: str) -> None:
        self._builder = b
        self._size, columns = matrix.type.shape
        self._tile = ctx.tile(batch, columns)
        self._row_spans = split_rows(batch, self._tile.rows)
        constant = ctx.constant_of(matrix)
        self._packed = constant is not None
        self._spans = split_columns(columns, self._tile.columns, ctx.lanes, padded=self._packed)
        if constant is None:
            self.operands = [matrix]
        else:
            self.operands = [ctx.constant(pack_panels(constant, span), "panels") for span in self._spans]
        self._weights = [
            b.input(f"{name}{i}", FLOAT32, value.type.shape) for i, value in enumerate(self.operands)
        ]

    def emit(self, state: Buffer, result: Buffer) -> None:
        """Stores the product of `state` in `result` [batch, columns]."""
        b = self._builder
        for number, span in enumerate(self._spans):
            weights = self._weights[number if self._packed else 0]
            for rows in self._row_spans:
                with b.loop("n", span.count) as panel, b.loop("m", rows.count) as m:
                    spec = self._contraction(span, panel, weights, state, result)
                    tile = Tile(rows.size, span.size)
                    emit_tile(b, spec, tile, m * rows.size + rows.start, 0, span.padding)

    def _contraction(
        self, span: Span, panel: Expr, weights: Buffer, state: Buffer, result: Buffer
    ) -> Contraction:
        b = self._builder
        first = panel * span.size + span.start

        def weight(column: Expr, k: Sequence[Expr]) -> Expr:
            where = (panel, k[0], column) if self._packed else (k[0], column + first)
            return b.load(weights, where)

        def finish(row: Expr, column: Expr, value: Expr) -> None:
            b.store(result, (row, column + first), value)

        return Contraction((self._size,), lambda row, k: b.load(state, (row, k[0])), weight, finish)


def chained_product(state: Array, matrix: Array) -> Array:
    """What `RecurrentProduct` computes, in NumPy."""
    product = np.zeros((len(state), matrix.shape[1]), np.float32)
    for k in range(len(matrix)):
        product = fma32(state[:, k, None], matrix[k], product)
    return product


def emit_copy(b: KernelBuilder, source: Buffer, target: Buffer) -> None:
    rows, columns = source.shape
    with b.loop("i", rows) as i, b.loop("j", columns, "vector") as j:
        b.store(target, (i, j), b.load(source, (i, j)))


def import_layer(node: ForeignNode, activations: Sequence[str], direction: Direction) -> list[Value]:
    """One pass for each direction.

    Args:
        activations: the only ones of a direction that are compiled.
        direction: adds one direction; it finds operands by `of_direction` and `initial_state`.

    Raises:
        UnsupportedError: the layer has a form that is not compiled.
    """
    _check(node, activations)
    x = node.operand(0)
    batch_first = bool(node.attrs.get("layout", 0))
    if batch_first:
        x = transposed(node, x, (1, 0, 2))
    order = _DIRECTIONS[node.attrs.get("direction", "forward")]
    runs = [direction(node, x, number, reverse) for number, reverse in enumerate(order)]
    results = [_joined(node, parts) for parts in zip(*runs, strict=True)][: len(node.result_names)]
    if batch_first:
        results = [
            transposed(node, value, (2, 0, 1, 3) if position == 0 else (1, 0, 2))
            for position, value in enumerate(results)
        ]
    return results


def _joined(node: ForeignNode, parts: Sequence[Value]) -> Value:
    """The directions as an axis before batch and size."""
    shape = parts[0].type.shape
    single = [reshaped(node, part, (*shape[:-2], 1, *shape[-2:])) for part in parts]
    return single[0] if len(parts) == 1 else node.emit(CONCAT, single, {"axis": len(shape) - 2})


def of_direction(node: ForeignNode, value: Value, number: int) -> Value:
    """The part of an operand [directions, ...] that belongs to one direction."""
    return reshaped(node, sliced(node, value, 0, number, 1), value.type.shape[1:])


def initial_state(node: ForeignNode, position: int, number: int, batch: int, size: int) -> Value:
    """The initial state [batch, size] of one direction, zeros where the model has none."""
    state = node.optional(position)
    if state is None:
        return node.builder.constant(np.zeros((batch, size), np.float32))
    if node.attrs.get("layout", 0):
        state = transposed(node, state, (1, 0, 2))
    return of_direction(node, state, number)


def _check(node: ForeignNode, expected: Sequence[str]) -> None:
    x, lengths = node.operand(0), node.optional_constant(4, "sequence_lens")
    steps = x.type.shape[1 if node.attrs.get("layout", 0) else 0]
    if lengths is not None and np.any(lengths != steps):
        raise node.unsupported("sequence_lens shorter than the sequence")
    for name, default in (("input_forget", 0), ("clip", None)):
        if node.attrs.get(name, default) != default:
            raise node.unsupported(f"the attribute {name}={node.attrs[name]!r}")
    activations = tuple(node.attrs.get("activations", ()))
    if activations not in ((), (*expected,), (*expected, *expected)):
        raise node.unsupported(f"the activations {list(activations)}")
    if node.attrs.get("direction", "forward") not in _DIRECTIONS:
        raise ModelError(f"{node.loc}: unknown direction {node.attrs['direction']!r}")
