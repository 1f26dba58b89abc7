"""The register-tiled micro-kernel: every matrix product and convolution is built here.

Each result starts at +0 and runs one chain `acc = fma(left, right, acc)` over the reduction in ascending
order, whatever the tile; tiles only choose which results are computed side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from cuvil.ir.types import FLOAT32, DType
from cuvil.loops.build import KernelBuilder
from cuvil.loops.kernel import Expr, Operand, fma


@dataclass(frozen=True)
class Tile:
    """Results that a micro-kernel holds in registers: `rows` x `columns`."""

    rows: int
    columns: int


@dataclass(frozen=True)
class Contraction:
    """`result[row, column] = sum over the reduction of left[row, ...] * right[..., column]`.

    `left(row, reduction)` and `right(column, reduction)` give the operands, `finish(row, column, result)`
    stores what becomes of a result.
    """

    reduction: tuple[int, ...]
    left: Callable[[Expr, Sequence[Expr]], Expr]
    right: Callable[[Expr, Sequence[Expr]], Expr]
    finish: Callable[[Expr, Expr, Expr], None]
    dtype: DType = FLOAT32


@dataclass(frozen=True)
class Span:
    """`count` tiles of `size`, one after the other, from `start`; the last `padding` are not stored."""

    start: int
    count: int
    size: int
    padding: int = 0


def split_rows(rows: int, most: int) -> tuple[Span, ...]:
    """Covers `rows` with tiles of at most `most` rows that differ by at most one."""
    tiles = -(-rows // most)
    size, larger = divmod(rows, tiles)
    spans = (Span(0, larger, size + 1), Span(larger * (size + 1), tiles - larger, size))
    return tuple(span for span in spans if span.count)


def split_columns(columns: int, panel: int, lanes: int) -> tuple[Span, ...]:
    """Covers `columns` with panels; the last one is as many vectors wide as its columns need."""
    full, rest = divmod(columns, panel)
    width = -(-rest // lanes) * lanes
    spans = (Span(0, full, panel), Span(full * panel, 1, width, width - rest))
    return tuple(span for span in spans if span.count and span.size)


def emit_tile(
    b: KernelBuilder, spec: Contraction, tile: Tile, row: Operand, column: Operand, padding: int = 0
) -> None:
    """Computes the results from (`row`, `column`) on; `padding` columns at the end are not finished."""
    acc = b.local("acc", spec.dtype, (tile.rows, tile.columns))
    with b.loop("r", tile.rows, "unroll") as r, b.loop("c", tile.columns, "vector") as c:
        b.store(acc, (r, c), 0.0)
    with ExitStack() as stack:
        reduction = [stack.enter_context(b.loop("k", extent)) for extent in spec.reduction]
        with b.loop("r", tile.rows, "unroll") as r, b.loop("c", tile.columns, "vector") as c:
            left, right = spec.left(r + row, reduction), spec.right(c + column, reduction)
            b.store(acc, (r, c), fma(left, right, b.load(acc, (r, c))))
    with b.loop("r", tile.rows, "unroll") as r, b.loop("c", tile.columns - padding, "vector") as c:
        spec.finish(r + row, c + column, b.load(acc, (r, c)))
