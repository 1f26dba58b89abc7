"""Walks over expressions. They share parts, so that a plain recursion could take exponential time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cuvil.ir.dims import Extent, Symbol, symbols_of
from cuvil.loops.kernel import Expr, For, Kernel, Let, Load, Op, Size, Stmt, Store, walk


def children(expr: Expr) -> tuple[Expr, ...]:
    """The expressions that `expr` is computed from."""
    if isinstance(expr, Load):
        return expr.index
    return expr.args if isinstance(expr, Op) else ()


def roots(stmt: Stmt) -> tuple[Expr, ...]:
    """The expressions that a statement itself evaluates, in order."""
    if isinstance(stmt, Store):
        return (*stmt.index, stmt.value)
    return (stmt.value,) if isinstance(stmt, Let) else ()


def postorder(exprs: Sequence[Expr]) -> Iterator[Expr]:
    """Every distinct expression once, after the ones that it is computed from."""
    done: set[int] = set()
    stack: list[tuple[Expr, bool]] = [(expr, False) for expr in reversed(exprs)]
    while stack:
        expr, ready = stack.pop()
        if id(expr) in done:
            continue
        if ready or not children(expr):
            done.add(id(expr))
            yield expr
        else:
            stack.append((expr, True))
            stack.extend((child, False) for child in reversed(children(expr)))


def symbols_in(kernel: Kernel) -> dict[str, Symbol]:
    """The named dimensions that a kernel's trip counts, buffers and expressions depend on, by name."""
    return symbols_of(_extents(kernel))


def _extents(kernel: Kernel) -> Iterator[Extent]:
    for param in kernel.params:
        yield from param.shape
    for stmt in walk(kernel.body):
        if isinstance(stmt, For):
            yield stmt.extent
        for expr in postorder(roots(stmt)):
            if isinstance(expr, Size):
                yield expr.extent
