"""Measures the error of float32 functions of one argument, in units in the last place.

Whatever maps an array to an array can be measured: the loop interpreter, or a function of a compiled
library.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from cuvil.ir.types import FLOAT32, Array
from cuvil.loops.build import KernelBuilder
from cuvil.loops.kernel import Expr, Kernel
from cuvil.ops import elementary

Function = Callable[[Array], Array]

ALL_PATTERNS = 2**32
LEAST_SUBNORMAL_EXPONENT = -149
BEYOND_LARGEST = 2.0**128


@dataclass(frozen=True)
class Subject:
    """A function as the compiler has it, its definition in float64, and the error that it promises."""

    expression: Callable[[Expr], Expr]
    reference: Function
    bound_ulp: float


@dataclass(frozen=True)
class Worst:
    """The largest error that was found, and for which input."""

    error_ulp: float
    argument: float


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _erf(x: Array) -> Array:
    """The C library's, called only where neither the limit nor the first terms of the series will do."""
    size = np.abs(x)
    result = np.where(size < 2.0**-15, 2 / math.sqrt(math.pi) * x * (1 - x * x / 3), np.copysign(1.0, x))
    rest = np.flatnonzero(~((size < 2.0**-15) | (size > 6.0)))
    result[rest] = np.fromiter(map(math.erf, x[rest].tolist()), np.float64, len(rest))
    return result


SUBJECTS = {
    "exp": Subject(elementary.exp, np.exp, 0.53),
    "sigmoid": Subject(elementary.sigmoid, _sigmoid, 0.53),
    "tanh": Subject(elementary.tanh, np.tanh, 0.51),
    "erf": Subject(elementary.erf, _erf, 0.51),
    "log": Subject(elementary.log, np.log, 0.51),
}


def kernel_of(subject: Subject, rows: int, columns: int) -> Kernel:
    """Applies a function to every element of a matrix."""
    b = KernelBuilder("elementary")
    x, y = b.input("x", FLOAT32, (rows, columns)), b.output("y", FLOAT32, (rows, columns))
    with b.loop("i", rows, parallel=True) as i, b.loop("j", columns, "vector") as j:
        b.store(y, (i, j), subject.expression(b.load(x, (i, j))))
    return b.finish()


def ulp_errors(actual: Array, expected: Array) -> Array:
    """Distance of float32 values from float64 ones, in float32 units in the last place of the expected.

    A NaN on one side only, or another sign (of zeros, too), counts as infinite. Infinity stands for 2^128,
    the number that it is rounded from.
    """
    limit = BEYOND_LARGEST
    with np.errstate(invalid="ignore"):
        near = np.clip(expected, -limit, limit)
        difference = np.abs(np.clip(actual.astype(np.float64), -limit, limit) - near)
        exponent = np.maximum(np.frexp(near)[1] - 24, LEAST_SUBNORMAL_EXPONENT)
    errors: Array = np.ldexp(difference, -exponent)
    both_nan = np.isnan(actual) & np.isnan(expected)
    wrong = (np.isnan(actual) != np.isnan(expected)) | (np.signbit(actual) != np.signbit(expected))
    return np.where(both_nan, 0.0, np.where(wrong, np.inf, errors))


def worst_error(function: Function, reference: Function, arguments: Array) -> Worst:
    """The largest error of `function` on float32 `arguments`; `reference` is given them as float64.

    Where the result is the float32 next to the reference, the error is at most 0.5, and counts as that.
    """
    actual = function(arguments)
    with np.errstate(all="ignore"):
        expected = reference(arguments.astype(np.float64))
        nearest = expected.astype(np.float32)
    nan = np.isnan(actual) & np.isnan(nearest)
    other = np.flatnonzero((actual.view(np.int32) != nearest.view(np.int32)) & ~nan)
    if len(other) == 0:
        return Worst(0.5, float(arguments[0]))
    errors = ulp_errors(actual[other], expected[other])
    at = int(np.argmax(errors))
    return Worst(float(errors[at]), float(arguments[other[at]]))


def patterns(
    first: int = 0, last: int = ALL_PATTERNS, *, step: int = 1, chunk: int = 1 << 20
) -> Iterator[Array]:
    """The float32 values whose bits are first, first + step, ... below last."""
    for start in range(first, last, chunk * step):
        stop = min(last, start + chunk * step)
        yield np.arange(start, stop, step, dtype=np.int64).astype(np.uint32).view(np.float32)


def sweep(function: Function, reference: Function, arguments: Iterator[Array]) -> Worst:
    """The largest error over all chunks of arguments."""
    results = (worst_error(function, reference, chunk) for chunk in arguments)
    return max(results, key=lambda worst: worst.error_ulp)
