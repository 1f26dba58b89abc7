"""The kernel verifier: every rule, broken once; and indices at the edges of their buffers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuvil.errors import InternalError
from cuvil.ir.types import BOOL, FLOAT32, FLOAT64, INT32, INT64, DType
from cuvil.loops.build import KernelBuilder
from cuvil.loops.contraction import Contraction, Tile, emit_tile
from cuvil.loops.kernel import (
    Buffer,
    Const,
    Declare,
    Expr,
    For,
    Kernel,
    Let,
    Load,
    Op,
    Opcode,
    Stmt,
    Store,
    Var,
    as_expr,
    compare,
    select,
)
from cuvil.loops.verify import verify_kernel

X = Buffer("x", FLOAT32, (4,), "input")
Y = Buffer("y", FLOAT32, (4,), "output")
I = Var("i")  # noqa: E741  # a loop index
ONE = Const(1.0, FLOAT32)
ZERO = Const(0, INT64)


def _kernel(*body: Stmt, params: tuple[Buffer, ...] = (X, Y)) -> Kernel:
    return Kernel("k", params, body)


def _loop(*body: Stmt, extent: int = 4, var: Var = I, parallel: bool = False) -> For:
    return For(var, extent, body, "serial", parallel)


def _message(kernel: Kernel) -> str:
    with pytest.raises(InternalError) as caught:
        verify_kernel(kernel)
    return str(caught.value)


def _copy_at(index: Expr, extent: int = 4) -> Kernel:
    return _kernel(_loop(Store(Y, (I,), Load(X, (index,))), extent=extent))


def test_sound_kernels_pass() -> None:
    verify_kernel(_copy_at(I))
    b = KernelBuilder("matmul")
    a, w = b.input("a", FLOAT32, (6, 5)), b.input("w", FLOAT32, (5, 16))
    y = b.output("y", FLOAT32, (6, 13))
    with b.loop("i", 2, parallel=True) as i:
        spec = Contraction(
            (5,),
            lambda row, k: b.load(a, (row, k[0])),
            lambda column, k: b.load(w, (k[0], column)),
            lambda row, column, value: b.store(y, (row, column), value),
        )
        emit_tile(b, spec, Tile(3, 16), i * 3, 0, padding=3)
    verify_kernel(b.finish())


LOCAL = Buffer("t", FLOAT32, (), "local")
INNER = Var("j")


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (_kernel(Store(Y, (I,), ONE)), "store to y: variable i is not in scope"),
        (_kernel(_loop(), Store(Y, (I,), ONE)), "store to y: variable i is not in scope"),
        (_kernel(_loop(), _loop()), "loop i: the variable is bound twice"),
        (
            _kernel(Let(Var("v", INT32), ONE)),
            "let v: the variable has another type than its value; expected f32, got i32",
        ),
        (
            _kernel(_loop(var=Var("v", INT32))),
            "loop v: the loop's variable has another type; expected i64, got i32",
        ),
        (_kernel(_loop(extent=-1)), "loop i: the trip count is negative; expected 0 or more, got -1"),
        (_kernel(_loop(_loop(var=INNER, parallel=True))), "loop j: an inner loop is parallel"),
        (_kernel(Store(X, (ZERO,), ONE)), "store to x: an input is stored to"),
        (_kernel(Store(Y, (ZERO,), ZERO)), "store to y: the value has another type; expected f32, got i64"),
        (_kernel(Store(Y, (), ONE)), "store to y: y has another rank; expected 1 indices, got 0"),
        (
            _kernel(Store(Y, (Const(0, INT32),), ONE)),
            "store to y: an index of y has another type; expected i64, got i32",
        ),
        (_kernel(Store(LOCAL, (), ONE), Declare(LOCAL)), "store to t: buffer t is not in scope"),
        (_kernel(_loop(Declare(LOCAL)), Store(LOCAL, (), ONE)), "store to t: buffer t is not in scope"),
        (_kernel(Declare(LOCAL), Declare(LOCAL)), "local t: the buffer is defined twice"),
        (_kernel(Declare(X)), "local x: only locals are declared; expected local, got input"),
        (_kernel(params=(X, X)), "parameter x: the buffer is defined twice"),
        (_kernel(params=(LOCAL,)), "parameter t: a parameter can't be local"),
        (_kernel(Store(Y, (ZERO,), Const(0.1, FLOAT32))), "store to y: a constant is not exact in its type"),
    ],
)
def test_broken_rules_are_named(kernel: Kernel, message: str) -> None:
    assert _message(kernel).startswith(f"kernel k, {message}")


def test_indices_at_the_edges() -> None:
    verify_kernel(_copy_at(as_expr(3, INT64) - I))
    assert "index 0 of x leaves its buffer; expected 0 to 3, got 1 to 4" in _message(_copy_at(I + 1))
    assert "index 0 of x leaves its buffer; expected 0 to 3, got -1 to 2" in _message(_copy_at(I - 1))
    assert "index 0 of x leaves its buffer; expected 0 to 3, got -3 to 0" in _message(_copy_at(-I))
    verify_kernel(_copy_at(I * 2 - I))
    verify_kernel(_copy_at(I + 100, extent=0))


def test_indices_behind_a_let() -> None:
    offset = Var("offset")
    store = Store(Y, (I,), Load(X, (offset,)))
    verify_kernel(_kernel(_loop(Let(offset, as_expr(3, INT64) - I), store)))
    assert "got 2 to 5" in _message(_kernel(_loop(Let(offset, I + 2), store)))


def test_clamped_indices_are_not_judged() -> None:
    verify_kernel(_copy_at(select(compare("gt", I - 1, 0), I - 1, 0)))


@given(
    st.lists(st.tuples(st.integers(-3, 3), st.integers(1, 4)), max_size=3),
    st.integers(-5, 5),
    st.integers(1, 12),
)
def test_affine_indices_are_judged_as_running_them_would(
    terms: list[tuple[int, int]], offset: int, size: int
) -> None:
    source = Buffer("x", FLOAT32, (size,), "input")
    loops = [Var(f"v{n}") for n in range(len(terms))]
    index: Expr = Const(offset, INT64)
    for var, (factor, _) in zip(loops, terms, strict=True):
        index = index + var * factor
    body: Stmt = Store(Y, (ZERO,), Load(source, (index,)))
    for var, (_, extent) in zip(loops, terms, strict=True):
        body = For(var, extent, (body,))
    values = {
        offset + sum(factor * i for (factor, _), i in zip(terms, position, strict=True))
        for position in np.ndindex(*[extent for _, extent in terms])
    }
    kernel = _kernel(body, params=(source, Y))
    if all(0 <= value < size for value in values):
        verify_kernel(kernel)
    else:
        assert f"got {min(values)} to {max(values)}" in _message(kernel)


def _op(opcode: Opcode, result: DType, *args: DType) -> Kernel:
    values = tuple(Const(1 if dtype.kind != "bool" else True, dtype) for dtype in args)
    return _kernel(Let(Var("v", result), Op(opcode, values, result)))


@pytest.mark.parametrize(
    ("opcode", "result", "args"),
    [
        ("add", FLOAT32, (FLOAT32, FLOAT32)),
        ("fma", FLOAT64, (FLOAT64, FLOAT64, FLOAT64)),
        ("rem", INT32, (INT32, INT32)),
        ("xor", BOOL, (BOOL, BOOL)),
        ("not", INT64, (INT64,)),
        ("eq", BOOL, (BOOL, BOOL)),
        ("lt", BOOL, (FLOAT32, FLOAT32)),
        ("select", INT32, (BOOL, INT32, INT32)),
        ("bitcast", INT32, (FLOAT32,)),
        ("cast", BOOL, (FLOAT32,)),
    ],
)
def test_operations_that_fit(opcode: Opcode, result: DType, args: tuple[DType, ...]) -> None:
    verify_kernel(_op(opcode, result, *args))


@pytest.mark.parametrize(
    ("opcode", "result", "args"),
    [
        ("add", FLOAT32, (FLOAT32, FLOAT64)),
        ("add", FLOAT64, (FLOAT32, FLOAT32)),
        ("add", BOOL, (BOOL, BOOL)),
        ("add", INT32, (INT32,)),
        ("fma", INT32, (INT32, INT32, INT32)),
        ("rem", FLOAT32, (FLOAT32, FLOAT32)),
        ("sqrt", INT32, (INT32,)),
        ("and", FLOAT32, (FLOAT32, FLOAT32)),
        ("shl", BOOL, (BOOL, BOOL)),
        ("eq", INT32, (INT32, INT32)),
        ("lt", BOOL, (BOOL, BOOL)),
        ("lt", BOOL, (INT32, INT64)),
        ("select", INT32, (INT32, INT32, INT32)),
        ("select", INT32, (BOOL, INT32, INT64)),
        ("bitcast", INT64, (FLOAT32,)),
        ("cast", INT32, ()),
    ],
)
def test_operations_that_do_not_fit(opcode: Opcode, result: DType, args: tuple[DType, ...]) -> None:
    assert _message(_op(opcode, result, *args)).startswith(
        f"kernel k, let v: types of {opcode} do not go together"
    )


@pytest.mark.parametrize("value", [0.5, math.inf, -math.inf, math.nan, 1, -0.0])
def test_exact_constants(value: float) -> None:
    verify_kernel(_kernel(Store(Y, (ZERO,), Const(value, FLOAT32))))


@pytest.mark.parametrize(
    ("value", "dtype"), [(0.1, FLOAT32), (1e39, FLOAT32), (1.0, INT64), (1 << 31, INT32), (2, BOOL)]
)
def test_inexact_constants(value: float, dtype: DType) -> None:
    message = _message(_kernel(Let(Var("v", dtype), Const(value, dtype))))
    assert "a constant is not exact in its type" in message
