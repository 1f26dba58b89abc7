"""Fits the polynomials of `cuvil.ops.elementary`: prints their coefficients and relative errors.

Run it as a script, with the names of polynomials or none for all of them. The coefficients are the minimax
ones (Remez exchange, 60 digits), rounded to float64.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath as mp

mp.mp.dps = 60
Real = Any  # mpmath carries no types


@dataclass(frozen=True)
class Target:
    """What a polynomial approximates: `function` on [low, high], with the least relative error."""

    function: Callable[[Real], Real]
    low: Real
    high: Real
    degree: int


def exp2_slope(f: Real) -> Real:
    return mp.expm1(f * mp.log(2)) / f if f else mp.log(2)


def log1p_slope(f: Real) -> Real:
    return mp.log1p(f) / f if f else mp.mpf(1)


def erf_slope(u: Real) -> Real:
    x = mp.sqrt(u + ERF_CENTRE)
    return mp.erf(x) / x if x else 2 / mp.sqrt(mp.pi)


HALF = mp.mpf("0.5")
ERF_LIMIT = mp.mpf("3.9375")
ERF_CENTRE = ERF_LIMIT**2 / 2

TARGETS = {
    "exp2": Target(lambda f: mp.power(2, f), -HALF, HALF, 6),
    "exp2_slope": Target(exp2_slope, -HALF, HALF, 6),
    "log1p_slope": Target(log1p_slope, mp.sqrt(HALF) - 1, mp.sqrt(2) - 1, 11),
    "erf_slope": Target(erf_slope, -ERF_CENTRE, ERF_CENTRE, 18),
}


def fit(target: Target, *, rounds: int = 6) -> tuple[list[float], float]:
    """The minimax coefficients, constant first, and the largest relative error of the rounded ones."""
    points = chebyshev_points(target, target.degree + 2)
    grid = chebyshev_points(target, 40 * (target.degree + 2))
    values = [target.function(x) for x in grid]
    for _ in range(rounds):
        coefficients = equioscillating(target, points)
        errors = relative_errors(coefficients, grid, values)
        points = alternating_extrema(grid, errors, len(points))
    rounded = [float(c) for c in coefficients]
    return rounded, float(max(map(abs, relative_errors(rounded, grid, values))))


def chebyshev_points(target: Target, count: int) -> list[Real]:
    """Extrema of a Chebyshev polynomial, ascending, both ends included."""
    middle, half = (target.low + target.high) / 2, (target.high - target.low) / 2
    return [middle - half * mp.cos(mp.pi * k / (count - 1)) for k in range(count)]


def equioscillating(target: Target, points: list[Real]) -> list[Real]:
    """The polynomial whose relative errors at the points are equal, with alternating signs."""
    matrix, right = mp.matrix(len(points)), mp.matrix(len(points), 1)
    for row, x in enumerate(points):
        value = target.function(x)
        for column in range(target.degree + 1):
            matrix[row, column] = x**column
        matrix[row, target.degree + 1] = (-1) ** row * value
        right[row] = value
    return list(mp.lu_solve(matrix, right))[:-1]


def relative_errors(coefficients: list[Any], grid: list[Real], values: list[Real]) -> list[Real]:
    backwards = coefficients[::-1]
    return [mp.polyval(backwards, x) / value - 1 for x, value in zip(grid, values, strict=True)]


def alternating_extrema(grid: list[Real], errors: list[Real], count: int) -> list[Real]:
    """The point of largest error from each run of errors with one sign."""
    best: list[int] = []
    for k, error in enumerate(errors):
        if best and (errors[best[-1]] > 0) == (error > 0):
            if abs(error) > abs(errors[best[-1]]):
                best[-1] = k
        else:
            best.append(k)
    while len(best) > count:
        best.pop(0 if abs(errors[best[0]]) < abs(errors[best[-1]]) else -1)
    assert len(best) == count, "the error does not oscillate enough: the degree is too high for the digits"
    return [grid[k] for k in best]


def main(names: list[str]) -> None:
    for name in names or TARGETS:
        coefficients, error = fit(TARGETS[name])
        print(f"{name}: relative error 2^{float(mp.log(error, 2)):.2f}")
        print("".join(f'    "{c.hex()}",\n' for c in coefficients), end="")


if __name__ == "__main__":
    main(sys.argv[1:])
