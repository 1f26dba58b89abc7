"""The text of kernels."""

from __future__ import annotations

from cuvil.ir.types import BOOL, FLOAT32, INT32, INT64
from cuvil.loops.build import KernelBuilder
from cuvil.loops.kernel import Expr, bitcast, cast, compare, fma, logical, negate, select, shift_left
from cuvil.loops.text import format_kernel


def test_loops_locals_and_lets() -> None:
    b = KernelBuilder("sum")
    x, y = b.input("x", FLOAT32, (8, 4)), b.output("y", FLOAT32, (8,))
    with b.loop("i", 8, parallel=True) as i:
        total = b.local("total", FLOAT32)
        b.store(total, (), 0.0)
        with b.loop("j", 4, "unroll") as j:
            value = b.let("value", b.load(x, (i, j)))
            b.store(total, (), b.load(total) + value)
        b.store(y, (i,), b.load(total))
    assert format_kernel(b.finish()) == (
        "kernel sum(x: input f32[8, 4], y: output f32[8]) {\n"
        "  parallel for i.1 in 8 {\n"
        "    local total.2: f32[]\n"
        "    total.2[] = 0.0\n"
        "    unroll for j.3 in 4 {\n"
        "      value.4: f32 = x[i.1, j.3]\n"
        "      total.2[] = total.2[] + value.4\n"
        "    }\n"
        "    y[i.1] = total.2[]\n"
        "  }\n"
        "}\n"
    )


def _stored(value: Expr, b: KernelBuilder) -> list[str]:
    """The lines of a kernel that stores `value`."""
    b.store(b.output("y", value.dtype, ()), (), value)
    return [line.strip() for line in format_kernel(b.finish()).splitlines()[1:-1]]


def test_parentheses_show_the_order_of_operations() -> None:
    b = KernelBuilder("k")
    a, c, d = (b.load(b.input(name, INT64, ())) for name in "acd")
    assert _stored((a - (c - d)) - d * (a + c), b) == ["y[] = a[] - (c[] - d[]) - d[] * (a[] + c[])"]


def test_shared_parts_are_named_once() -> None:
    b = KernelBuilder("k")
    value = b.load(b.input("x", FLOAT32, ()))
    for _ in range(100):
        value = value * value
    lines = _stored(value, b)
    assert lines[:2] == ["%0: f32 = x[] * x[]", "%1: f32 = %0 * %0"]
    assert lines[-1] == "y[] = %98 * %98"


def test_long_parts_get_their_own_line() -> None:
    b = KernelBuilder("k")
    x = b.load(b.input("x", FLOAT32, ()))
    value: Expr = x
    for step in range(300):
        value = value + float(step)
    lines = _stored(value, b)
    assert all(len(line) < 80 for line in lines)
    assert lines[-1].endswith(" + 299.0")


def test_every_kind_of_operation() -> None:
    b = KernelBuilder("k")
    x, n = b.load(b.input("x", FLOAT32, ())), b.load(b.input("n", INT32, ()))
    bits = shift_left(bitcast(x, INT32), n)
    flag = logical("and", compare("lt", x, -1.5), negate(b.load(b.input("p", BOOL, ()))))
    value = select(flag, fma(x, 2.0, -x), cast(bits, FLOAT32))
    assert _stored(value, b) == [
        "y[] = select((x[] < -1.5) & ~p[], fma(x[], 2.0, -x[]), cast<f32>(bitcast<i32>(x[]) << n[]))"
    ]
