"""Reductions in an order that no target, vector width or thread count changes.

Element i goes to accumulator i modulo 16; the sixteen accumulators start at the neutral element and are
combined by the tree 8, 4, 2, 1.
"""

from __future__ import annotations

from collections.abc import Callable

from cuvil.ir.dims import Extent, is_fixed
from cuvil.ir.types import DType
from cuvil.loops.build import KernelBuilder
from cuvil.loops.kernel import Buffer, Expr, Operand, compare, minimum, select

LANES = 16
TREE = (8, 4, 2, 1)

Combine = Callable[[Expr, Expr], Expr]


def emit_reduction(
    b: KernelBuilder,
    dtype: DType,
    extent: Extent,
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
    if is_fixed(rest):
        with b.loop("l", rest, "vector") as lane:
            b.store(lanes, (lane,), combine(b.load(lanes, (lane,)), element(lane + full * LANES)))
    else:
        _emit_rest(b, lanes, extent, combine, element)
    for step in TREE:
        with b.loop("l", step, "vector") as lane:
            b.store(lanes, (lane,), combine(b.load(lanes, (lane,)), b.load(lanes, (lane + step,))))
    return b.let("total", b.load(lanes, (0,)))


def _emit_rest(
    b: KernelBuilder, lanes: Buffer, extent: Extent, combine: Combine, element: Callable[[Expr], Expr]
) -> None:
    """The elements behind the last full block, where their number depends on named dimensions.

    Lanes without an element stay as they are: a loop over the others would need the accumulators in memory.
    """
    full, rest = divmod(extent, LANES)
    with b.loop("k", (rest + LANES - 1) // LANES), b.loop("l", LANES, "vector") as lane:
        position = lane + full * LANES
        before = b.load(lanes, (lane,))
        after = combine(before, element(minimum(position, extent - 1)))
        b.store(lanes, (lane,), select(compare("lt", position, extent), after, before))
