"""Walks over expressions. They share parts, so that a plain recursion could take exponential time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cuvil.loops.kernel import Expr, Let, Load, Op, Stmt, Store


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
