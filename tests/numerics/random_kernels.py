"""Random elementwise kernels over all types and opcodes, and inputs full of special values."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import numpy as np

from cuvil.ir.types import BOOL, DTYPES, FLOAT32, FLOAT64, INT32, INT64, Array, DType
from cuvil.loops.build import KernelBuilder
from cuvil.loops.kernel import (
    Const,
    Expr,
    Kernel,
    Opcode,
    absolute,
    binary,
    bitcast,
    cast,
    fma,
    negate,
    select,
    sqrt,
)

EXTENT = 53
"""Neither a multiple of a vector width nor prime to all: vectors and every remainder run."""

_MOST_STEPS = 14
_CONSTANT_SHARE = 0.2
_FLOATS, _INTEGERS = (FLOAT32, FLOAT64), (INT32, INT64)
_SAME_SIZE = ((FLOAT32, INT32), (INT32, FLOAT32), (FLOAT64, INT64), (INT64, FLOAT64))
_SPECIAL: dict[DType, list[float]] = {
    FLOAT32: [0.0, -0.0, 0.1, -1.5, 2.5, 1e-45, 3.4e38, 2.0**31, -(2.0**63), math.inf, -math.inf, math.nan],
    FLOAT64: [0.0, -0.0, 0.1, -1.5, 2.5, 5e-324, 1e-40, 1.7e308, 2.0**63, math.inf, -math.inf, math.nan],
    INT32: [0, 1, -1, 2, 7, -7, 100, 2**31 - 1, 2**31 - 2, -(2**31)],
    INT64: [0, 1, -1, 2, 7, -7, 100, 2**31, 2**53 + 1, 2**63 - 1, -(2**63)],
    BOOL: [False, True],
}


class _Generator:
    """Grows a pool of expressions, each an operation on earlier ones."""

    def __init__(self, rng: random.Random, pool: list[Expr]) -> None:
        self._rng = rng
        self.pool = pool

    def grow(self) -> Expr:
        steps = (self._arithmetic, self._comparison, self._selection, self._conversion, self._unary,
                 self._fused, self._shift, self._logic, self._bitcast)  # fmt: skip
        expr = self._rng.choice(steps)()
        self.pool.append(expr)
        return expr

    def last(self, dtype: DType) -> Expr:
        return [expr for expr in self.pool if expr.dtype == dtype][-1]

    def _pick(self, dtype: DType) -> Expr:
        if self._rng.random() < _CONSTANT_SHARE:
            return Const(dtype.numpy.type(self._rng.choice(_SPECIAL[dtype])).item(), dtype)
        return self._rng.choice([expr for expr in self.pool if expr.dtype == dtype])

    def _arithmetic(self) -> Expr:
        dtype = self._rng.choice(_FLOATS + _INTEGERS)
        opcodes: list[Opcode] = ["add", "sub", "mul", "div"]
        opcode = self._rng.choice(opcodes if dtype.kind == "float" else [*opcodes, "rem"])
        return binary(opcode, self._pick(dtype), self._pick(dtype))

    def _comparison(self) -> Expr:
        dtype = self._rng.choice(_FLOATS + _INTEGERS)
        opcodes: list[Opcode] = ["eq", "ne", "lt", "le", "gt", "ge"]
        return binary(self._rng.choice(opcodes), self._pick(dtype), self._pick(dtype))

    def _selection(self) -> Expr:
        dtype = self._rng.choice(DTYPES)
        return select(self._pick(BOOL), self._pick(dtype), self._pick(dtype))

    def _conversion(self) -> Expr:
        return cast(self._pick(self._rng.choice(DTYPES)), self._rng.choice(DTYPES))

    def _unary(self) -> Expr:
        dtype = self._rng.choice(_FLOATS + _INTEGERS)
        own: Callable[[Expr], Expr] = sqrt if dtype.kind == "float" else negate
        return self._rng.choice((own, absolute, lambda expr: -expr))(self._pick(dtype))

    def _fused(self) -> Expr:
        dtype = self._rng.choice(_FLOATS)
        return fma(self._pick(dtype), self._pick(dtype), self._pick(dtype))

    def _shift(self) -> Expr:
        dtype = self._rng.choice(_INTEGERS)
        opcodes: list[Opcode] = ["shl", "shr"]
        return binary(self._rng.choice(opcodes), self._pick(dtype), self._rng.randrange(dtype.bits))

    def _logic(self) -> Expr:
        dtype = self._rng.choice((*_INTEGERS, BOOL))
        opcodes: list[Opcode] = ["and", "or", "xor"]
        return binary(self._rng.choice(opcodes), self._pick(dtype), self._pick(dtype))

    def _bitcast(self) -> Expr:
        """A NaN's own bits are not part of the contract, so it is made a number before."""
        source, target = self._rng.choice(_SAME_SIZE)
        value = self._pick(source)
        if source.kind == "float":
            value = select(binary("eq", value, value), value, 0.0)
        return bitcast(value, target)


def random_kernel(seed: int) -> Kernel:
    """Two inputs and one output of each type, with up to `_MOST_STEPS` operations between them."""
    rng = random.Random(seed)
    b = KernelBuilder("random")
    inputs = [b.input(f"{dtype}{n}", dtype, (EXTENT,)) for dtype in DTYPES for n in range(2)]
    outputs = [b.output(f"out_{dtype}", dtype, (EXTENT,)) for dtype in DTYPES]
    with b.loop("i", EXTENT, "vector") as i:
        generator = _Generator(rng, [*(b.load(buffer, (i,)) for buffer in inputs), i])
        for _ in range(rng.randint(1, _MOST_STEPS)):
            expr = generator.grow()
            if rng.random() < 0.2:
                generator.pool.append(b.let("t", expr))
        for output in outputs:
            b.store(output, (i,), generator.last(output.dtype))
    return b.finish()


def special_inputs(kernel: Kernel, seed: int) -> list[Array]:
    """Arrays for all parameters; inputs hold special values, outputs zeros."""
    rng = np.random.default_rng(seed)
    return [
        rng.choice(np.array(_SPECIAL[param.dtype], param.dtype.numpy), param.shape)
        if param.role == "input"
        else np.zeros(param.shape, param.dtype.numpy)
        for param in kernel.params
    ]
