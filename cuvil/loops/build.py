"""Builds kernels statement by statement."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from cuvil.ir.dims import Extent
from cuvil.ir.types import INT64, DType, Shape
from cuvil.loops.kernel import (
    Buffer,
    BufferRole,
    Declare,
    Expr,
    For,
    Kernel,
    Let,
    Load,
    LoopKind,
    Operand,
    Stmt,
    Store,
    Var,
    as_expr,
)

Index = Sequence[Operand]


class KernelBuilder:
    """Collects the parameters and statements of one kernel; `finish` returns it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._params: list[Buffer] = []
        self._blocks: list[list[Stmt]] = [[]]
        self._names = 0

    def input(self, name: str, dtype: DType, shape: Shape) -> Buffer:
        return self._param(name, dtype, shape, "input")

    def output(self, name: str, dtype: DType, shape: Shape) -> Buffer:
        return self._param(name, dtype, shape, "output")

    def scratch(self, name: str, dtype: DType, shape: Shape) -> Buffer:
        """Memory in the arena that holds nothing before or after the kernel."""
        return self._param(name, dtype, shape, "scratch")

    def _param(self, name: str, dtype: DType, shape: Shape, role: BufferRole) -> Buffer:
        buffer = Buffer(name, dtype, shape, role)
        self._params.append(buffer)
        return buffer

    def local(self, name: str, dtype: DType, shape: Shape = ()) -> Buffer:
        """A local buffer, declared here."""
        buffer = Buffer(self._fresh(name), dtype, shape, "local")
        self._blocks[-1].append(Declare(buffer))
        return buffer

    def let(self, name: str, value: Expr) -> Var:
        var = Var(self._fresh(name), value.dtype)
        self._blocks[-1].append(Let(var, value))
        return var

    def load(self, buffer: Buffer, index: Index = ()) -> Expr:
        return Load(buffer, _exprs(buffer, index))

    def store(self, buffer: Buffer, index: Index, value: Operand) -> None:
        self._blocks[-1].append(Store(buffer, _exprs(buffer, index), as_expr(value, buffer.dtype)))

    @contextmanager
    def loop(
        self, name: str, extent: Extent, kind: LoopKind = "serial", *, parallel: bool = False
    ) -> Iterator[Var]:
        var = Var(self._fresh(name))
        self._blocks.append([])
        yield var
        body = tuple(self._blocks.pop())
        self._blocks[-1].append(For(var, extent, body, kind, parallel))

    def _fresh(self, name: str) -> str:
        self._names += 1
        return f"{name}.{self._names}"

    def finish(self) -> Kernel:
        return Kernel(self._name, tuple(self._params), tuple(self._blocks[0]))


def _exprs(buffer: Buffer, index: Index) -> tuple[Expr, ...]:
    assert len(index) == len(buffer.shape), (buffer.name, buffer.shape, len(index))
    return tuple(as_expr(i, INT64) for i in index)
