"""The register-tiled micro-kernel: every matrix product and convolution is built here.

Each result starts at +0 and runs one chain `acc = fma(left, right, acc)` over the reduction in ascending
order, whatever the tile; tiles only choose which results are computed side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from cuvil.ir.dims import Extent, is_fixed
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

    reduction: tuple[Extent, ...]
    left: Callable[[Expr, Sequence[Expr]], Expr]
    right: Callable[[Expr, Sequence[Expr]], Expr]
    finish: Callable[[Expr, Expr, Expr], None]
    dtype: DType = FLOAT32


@dataclass(frozen=True)
class Span:
    """`count` tiles of `size`, one after the other, from `start`; the last `padding` are not stored."""

    start: Extent
    count: Extent
    size: int
    padding: int = 0


def split_rows(rows: Extent, most: int) -> tuple[Span, ...]:
    """Covers `rows` with tiles of at most `most` rows that differ by at most one.

    Where the number of rows depends on named dimensions, full tiles are followed by single rows.
    """
    if not is_fixed(rows):
        return _descending(rows, (most, 1))
    tiles = -(-rows // most)
    size, larger = divmod(rows, tiles)
    spans = (Span(0, larger, size + 1), Span(larger * (size + 1), tiles - larger, size))
    return tuple(span for span in spans if span.count)


def split_columns(columns: Extent, panel: int, lanes: int, *, padded: bool) -> tuple[Span, ...]:
    """Covers `columns` with panels of `panel` columns and narrower ones for the rest.

    The last one is as wide as the rest; where the right operand can be `padded`, whole vectors of `lanes`.
    Where the number of columns depends on named dimensions, panels of one vector follow, then single columns.
    """
    if not is_fixed(columns):
        return _descending(columns, (panel, lanes, 1))
    if not padded:
        lanes = 1
    full, rest = divmod(columns, panel)
    width = -(-rest // lanes) * lanes
    spans = (Span(0, full, panel), Span(full * panel, 1, width, width - rest))
    return tuple(span for span in spans if span.count and span.size)


def _descending(count: Extent, sizes: Sequence[int]) -> tuple[Span, ...]:
    """Tiles of each of these sizes, as many as fit into what the larger ones leave."""
    spans: list[Span] = []
    start: Extent = 0
    for size in dict.fromkeys(sizes):
        tiles = (count - start) // size if size == sizes[0] else count % spans[-1].size // size
        spans.append(Span(start, tiles, size))
        start = start + tiles * size
    return tuple(span for span in spans if span.count != 0)


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
