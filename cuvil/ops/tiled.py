"""Contractions as kernels: packing of constant operands, and the loops over tiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from cuvil.ir.dims import Extent, highest
from cuvil.ir.graph import Value
from cuvil.ir.types import Array
from cuvil.loops.build import KernelBuilder
from cuvil.loops.contraction import Contraction, Span, Tile, emit_tile
from cuvil.loops.kernel import Expr, Var
from cuvil.ops.context import LowerContext
from cuvil.ops.pointwise import Writer

Tiled = tuple[list[Value], Writer, Callable[[Expr, Expr], Contraction]]
"""A kernel's operands, the writer of its results, and the contraction of (outer index, panel)."""


def pack_panels(matrix: Array, span: Span) -> Array:
    """Columns of `matrix` [..., depth, columns] as [count, ..., depth, size], zeros in the padding."""
    lead = matrix.shape[:-1]
    wanted = matrix[..., span.start : span.start + span.count * span.size - span.padding]
    padded = np.zeros((*lead, span.count * span.size), np.float32)
    padded[..., : wanted.shape[-1]] = wanted
    panels = np.moveaxis(padded.reshape(*lead, span.count, span.size), -2, 0)
    return np.ascontiguousarray(panels)


def emit_tiled(
    ctx: LowerContext,
    name: str,
    outer: Extent,
    row_spans: Sequence[Span],
    columns: Span,
    depth: Extent,
    build: Callable[[KernelBuilder], Tiled],
) -> None:
    """One kernel for each row span: its parallel loop runs over (outer, row tile, panel).

    A panel stays innermost while all panels fit the second-level cache; beyond that each panel is used
    for all rows before the next one is read.
    """
    panels_first = highest(columns.count * columns.size * depth * 4) > ctx.l2_bytes // 2
    for rows in row_spans:
        b = KernelBuilder(name)
        operands, writer, spec = build(b)
        count = outer * rows.count * columns.count
        with b.loop("t", count, parallel=True) as t:
            o, m, n = _decode(b, t, rows.count, columns.count, panels_first)
            tile = Tile(rows.size, columns.size)
            emit_tile(b, spec(o, n), tile, m * rows.size + rows.start, 0, columns.padding)
        ctx.call(
            b.finish(), [*operands, *writer.operands], flops=2 * depth * rows.size * columns.size * count
        )


def _decode(
    b: KernelBuilder, t: Var, rows: Extent, panels: Extent, panels_first: bool
) -> tuple[Expr, Expr, Expr]:
    """(outer, row tile, panel) of iteration `t`."""
    inner = rows if panels_first else panels
    fast = b.let("fast", t % inner)
    slow = b.let("slow", t // inner % (panels if panels_first else rows))
    outer = b.let("outer", t // (rows * panels))
    return (outer, fast, slow) if panels_first else (outer, slow, fast)
