"""Reductions in an order that no target, vector width or thread count changes.

Element i goes to accumulator i modulo 16; the sixteen accumulators start at the neutral element and are
combined by the tree 8, 4, 2, 1.
"""

from __future__ import annotations

from collections.abc import Callable

from cuvil.ir.types import DType
from cuvil.loops.build import KernelBuilder
from cuvil.loops.kernel import Expr, Operand

LANES = 16
TREE = (8, 4, 2, 1)

Combine = Callable[[Expr, Expr], Expr]


def emit_reduction(
    b: KernelBuilder,
    dtype: DType,
    extent: int,
    neutral: Operand,
    combine: Combine,
    element: Callable[[Expr], Expr],
) -> Expr:
    """Reduces element(0), ..., element(extent - 1) and returns the result, named in the current block."""
    lanes = b.local("lanes", dtype, (LANES,))
    full, rest = divmod(extent, LANES)
    with b.loop("l", LANES, "vector") as lane:
        b.store(lanes, (lane,), neutral)
    with b.loop("k", full) as block, b.loop("l", LANES, "vector") as lane:
        b.store(lanes, (lane,), combine(b.load(lanes, (lane,)), element(block * LANES + lane)))
    with b.loop("l", rest, "vector") as lane:
        b.store(lanes, (lane,), combine(b.load(lanes, (lane,)), element(lane + full * LANES)))
    for step in TREE:
        with b.loop("l", step, "vector") as lane:
            b.store(lanes, (lane,), combine(b.load(lanes, (lane,)), b.load(lanes, (lane + step,))))
    return b.let("total", b.load(lanes, (0,)))
