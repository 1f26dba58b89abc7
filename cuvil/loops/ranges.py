"""Affine integer expressions of loop variables, whose range is known exactly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cuvil.ir.dims import value_of
from cuvil.ir.types import INT64
from cuvil.loops.kernel import Const, Expr, Op, Size, Var


@dataclass(frozen=True)
class Affine:
    """`offset` plus the sum of `factors[var] * var`; no factor is 0."""

    factors: Mapping[Var, int]
    offset: int

    def bounds(self, extents: Mapping[Var, int]) -> tuple[int, int]:
        """The smallest and the largest value over loops of these trip counts, all above 0.

        Both are taken on: the variables run independently of each other.
        """
        ends = [factor * (extents[var] - 1) for var, factor in self.factors.items()]
        return self.offset + sum(min(0, end) for end in ends), self.offset + sum(max(0, end) for end in ends)

    def plus(self, other: Affine, sign: int = 1) -> Affine:
        names = {**self.factors, **other.factors}
        factors = {v: self.factors.get(v, 0) + sign * other.factors.get(v, 0) for v in names}
        return Affine({v: f for v, f in factors.items() if f}, self.offset + sign * other.offset)

    def times(self, factor: int) -> Affine:
        return Affine({v: f * factor for v, f in self.factors.items() if factor}, self.offset * factor)


def affine_of(expr: Expr, known: Mapping[Expr, Affine], symbols: Mapping[str, int]) -> Affine | None:
    """The affine form of an int64 expression whose parts are in `known`; None where it has none.

    `symbols` has the values of the named dimensions.
    """
    if expr.dtype != INT64:
        return None
    if isinstance(expr, Const):
        return Affine({}, int(expr.value))
    if isinstance(expr, Size):
        return Affine({}, value_of(expr.extent, symbols))
    if isinstance(expr, Var):
        return known.get(expr)
    return _combine(expr, [known.get(arg) for arg in expr.args]) if isinstance(expr, Op) else None


def _combine(op: Op, args: list[Affine | None]) -> Affine | None:
    parts = [arg for arg in args if arg is not None]
    if len(parts) != len(args):
        return None
    if op.opcode == "neg":
        return parts[0].times(-1)
    if op.opcode == "add":
        return parts[0].plus(parts[1])
    if op.opcode == "sub":
        return parts[0].plus(parts[1], -1)
    return _product(*parts) if op.opcode == "mul" else None


def _product(left: Affine, right: Affine) -> Affine | None:
    if not right.factors:
        return left.times(right.offset)
    return None if left.factors else right.times(left.offset)
