"""The loop interpreter: values, private locals, order, and what it refuses."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from cuvil import interp
from cuvil.interp import Order, run_kernel
from cuvil.ir.types import FLOAT32, FLOAT64, INT32, INT64, Array
from cuvil.loops.build import KernelBuilder
from cuvil.loops.kernel import (
    COMPARISONS,
    Const,
    Expr,
    Kernel,
    Load,
    LoopKind,
    Op,
    Opcode,
    absolute,
    binary,
    bitcast,
    cast,
    compare,
    fma,
    maximum,
    select,
    sqrt,
)

ORDERS: tuple[Order, ...] = get_args(Order)


def random(*shape: int) -> Array:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def matmul(m: int, n: int, k: int) -> Kernel:
    """Rows in parallel, columns as vector lanes, one private accumulator a column."""
    b = KernelBuilder("matmul")
    x, y = b.input("x", FLOAT32, (m, k)), b.input("y", FLOAT32, (k, n))
    out = b.output("out", FLOAT32, (m, n))
    with b.loop("i", m, parallel=True) as i, b.loop("j", n, "vector") as j:
        acc = b.local("acc", FLOAT32)
        b.store(acc, (), 0.0)
        with b.loop("k", k) as kk:
            b.store(acc, (), fma(b.load(x, (i, kk)), b.load(y, (kk, j)), b.load(acc)))
        b.store(out, (i, j), b.load(acc))
    return b.finish()


@pytest.mark.parametrize("order", ORDERS)
def test_matmul_is_one_chain_of_fused_steps(order: Order) -> None:
    x, y = random(3, 5), random(5, 7)
    out = np.zeros((3, 7), np.float32)
    run_kernel(matmul(3, 7, 5), {"x": x, "y": y, "out": out}, order=order)
    chain = np.zeros((3, 7), np.float64)
    for k in range(5):
        exact = x[:, k, None].astype(np.float64) * y[k].astype(np.float64)
        chain = (exact + chain).astype(np.float32).astype(np.float64)
    np.testing.assert_array_equal(out, chain.astype(np.float32))


def nested_lanes(rows: int, columns: int) -> Kernel:
    """A vector loop within a vector loop, with locals of both levels and a serial loop between."""
    b = KernelBuilder("nested")
    x = b.input("x", FLOAT32, (rows, columns))
    out = b.output("out", FLOAT32, (columns, rows))
    with b.loop("i", rows, "vector") as i:
        tile = b.local("tile", FLOAT32, (2, columns))
        with b.loop("j", columns, "vector") as j:
            own = b.local("own", FLOAT32, (2,))
            with b.loop("s", 2, "unroll") as s:
                b.store(own, (s,), b.load(x, (i, j)) * cast(s + 1, FLOAT32))
                b.store(tile, (s, columns - 1 - j), b.load(own, (s,)))
            b.store(tile, (0, columns - 1 - j), b.load(own, (j % 2,)))
        with b.loop("j", columns, "vector") as j:
            b.store(out, (j, i), b.load(tile, (0, j)) + b.load(tile, (1, j)) + b.load(tile, (1, i % columns)))
    return b.finish()


@pytest.mark.parametrize("most", [1, 2, 3, 8])
def test_loops_longer_than_the_most_lanes_run_in_parts(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, x, results = nested_lanes(5, 4), random(5, 4), np.zeros((2, 4, 5), np.float32)
    run_kernel(kernel, [x, results[0]])
    monkeypatch.setattr(interp, "_MOST_LANES", most)
    run_kernel(kernel, [x, results[1]])
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("shape", [(3, 4), (1, 3), (4, 1), (1, 1), (0, 3), (3, 0)])
def test_vector_loops_nest(order: Order, shape: tuple[int, int]) -> None:
    x = random(*shape)
    out = np.zeros(shape[::-1], np.float32)
    run_kernel(nested_lanes(*shape), [x, out], order=order)
    rows, columns = shape
    for i in range(rows):
        tile = [[0.0] * columns, [0.0] * columns]
        for j in range(columns):
            tile[1][columns - 1 - j] = 2 * x[i, j]
            tile[0][columns - 1 - j] = x[i, j] * (j % 2 + 1)
        for j in range(columns):
            assert out[j, i] == np.float32(tile[0][j] + tile[1][j]) + np.float32(tile[1][i % columns])


@pytest.mark.parametrize("order", ORDERS)
def test_a_let_keeps_its_value_when_its_source_changes(order: Order) -> None:
    b = KernelBuilder("swap")
    x, out = b.input("x", FLOAT32, (4, 2)), b.output("out", FLOAT32, (4, 2))
    with b.loop("i", 4, "vector") as i:
        pair = b.local("pair", FLOAT32, (2,))
        b.store(pair, (0,), b.load(x, (i, 0)))
        b.store(pair, (1,), b.load(x, (i, 1)))
        first = b.let("first", b.load(pair, (0,)))
        b.store(pair, (0,), b.load(pair, (1,)))
        b.store(pair, (1,), first)
        b.store(out, (i, 0), b.load(pair, (0,)))
        b.store(out, (i, 1), b.load(pair, (1,)))
    result = np.zeros((4, 2), np.float32)
    run_kernel(b.finish(), [random(4, 2), result], order=order)
    np.testing.assert_array_equal(result, random(4, 2)[:, ::-1])


def test_shared_expressions_are_evaluated_once() -> None:
    b = KernelBuilder("doubling")
    out = b.output("out", FLOAT64, (1,))
    value: Expr = Const(1.0, FLOAT64)
    for _ in range(200):
        value = value + value
    b.store(out, (0,), value)
    result = np.zeros(1)
    run_kernel(b.finish(), [result])
    assert result[0] == 2.0**200


def running_sum(kind: LoopKind, *, parallel: bool = False) -> Kernel:
    """Each iteration needs the one before."""
    b = KernelBuilder("running_sum")
    out = b.output("out", INT32, (5,))
    with b.loop("i", 4, kind, parallel=parallel) as i:
        b.store(out, (i + 1,), b.load(out, (i,)) + 1)
    return b.finish()


def test_serial_loops_run_in_ascending_order() -> None:
    for order in ORDERS:
        out = np.zeros(5, np.int32)
        run_kernel(running_sum("serial"), [out], order=order)
        assert out.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("kind", "parallel"), [("vector", False), ("serial", True)])
def test_orders_tell_a_broken_promise(kind: LoopKind, parallel: bool) -> None:
    results = set()
    for order in ORDERS:
        out = np.zeros(5, np.int32)
        run_kernel(running_sum(kind, parallel=parallel), [out], order=order)
        results.add(tuple(out.tolist()))
    assert len(results) == 2


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("offset", [-1, 1])
@pytest.mark.parametrize("kind", ["serial", "vector", "unroll"])
def test_an_index_outside_its_buffer_is_an_error(order: Order, offset: int, kind: LoopKind) -> None:
    b = KernelBuilder("copy")
    x, out = b.input("x", FLOAT32, (4,)), b.output("out", FLOAT32, (4,))
    with b.loop("i", 4, kind) as i:
        b.store(out, (i,), b.load(x, (i + offset,)))
    with pytest.raises(IndexError, match=r"kernel 'copy': index 0 leaves buffer 'x'; .* < 4, got (-1|4)"):
        run_kernel(b.finish(), [random(4), np.zeros(4, np.float32)], order=order)


@pytest.mark.parametrize("by_value", [True, False])
def test_lanes_that_store_to_one_element_are_an_error(by_value: bool) -> None:
    b = KernelBuilder("race")
    out = b.output("out", INT64, (4,))
    with b.loop("i", 4, "vector") as i:
        b.store(out, (0 if by_value else Op("div", (i, Const(2, INT64)), INT64),), i)
    with pytest.raises(ValueError, match="independent iterations store to one element of 'out'"):
        run_kernel(b.finish(), [np.zeros(4, np.int64)])


def test_a_vector_loop_of_one_iteration_may_store_to_a_fixed_element() -> None:
    b = KernelBuilder("single")
    out = b.output("out", INT64, (2,))
    with b.loop("i", 1, "vector") as i:
        b.store(out, (1,), i + 7)
    result = np.zeros(2, np.int64)
    run_kernel(b.finish(), [result])
    assert result.tolist() == [0, 7]


def test_what_was_never_stored_is_not_a_number() -> None:
    b = KernelBuilder("undefined")
    out = b.output("out", FLOAT32, (2,))
    scratch = b.scratch("scratch", FLOAT32, (2,))
    local = b.local("local", FLOAT32)
    b.store(out, (0,), b.load(local))
    b.store(out, (1,), b.load(scratch, (0,)))
    result = np.zeros(2, np.float32)
    run_kernel(b.finish(), [result])
    assert np.isnan(result).all()


def test_given_scratch_is_used() -> None:
    b = KernelBuilder("scratch")
    b.output("out", FLOAT32, (1,))
    scratch = b.scratch("scratch", FLOAT32, (1,))
    b.store(scratch, (0,), 3.0)
    memory = np.zeros(1, np.float32)
    run_kernel(b.finish(), {"out": np.zeros(1, np.float32), "scratch": memory})
    assert memory[0] == 3.0


def test_buffers_must_fit() -> None:
    kernel, x, y = matmul(2, 3, 4), random(2, 4), random(4, 3)
    out = np.zeros((2, 3), np.float32)
    with pytest.raises(ValueError, match="expected 3 buffers, got 2"):
        run_kernel(kernel, [x, y])
    with pytest.raises(ValueError, match="buffer 'out' is missing"):
        run_kernel(kernel, {"x": x, "y": y})
    with pytest.raises(ValueError, match=r"no such buffers \['z'\]"):
        run_kernel(kernel, {"x": x, "y": y, "out": out, "z": x})
    with pytest.raises(ValueError, match=r"buffer 'y': expected f32\[4, 3\], got float32\[3, 4\]"):
        run_kernel(kernel, [x, y.T, out])
    with pytest.raises(ValueError, match=r"buffer 'out': expected f32\[2, 3\], got float64\[2, 3\]"):
        run_kernel(kernel, [x, y, out.astype(np.float64)])


def test_inputs_are_not_written() -> None:
    b = KernelBuilder("vandal")
    b.store(b.input("x", FLOAT32, (1,)), (0,), 1.0)
    with pytest.raises(ValueError, match="read-only"):
        run_kernel(b.finish(), [np.zeros(1, np.float32)])


def test_types_do_not_change_silently() -> None:
    b = KernelBuilder("mixed")
    out = b.output("out", FLOAT64, (1,))
    b.store(out, (0,), Op("add", (Const(1.0, FLOAT32), Const(1.0, FLOAT32)), FLOAT64))
    with pytest.raises(TypeError, match="kernel 'mixed': add: expected f64, got float32"):
        run_kernel(b.finish(), [np.zeros(1)])


@pytest.mark.parametrize("order", ORDERS)
def test_every_opcode_runs_on_lanes_and_on_scalars(order: Order) -> None:
    b = KernelBuilder("opcodes")
    x = b.input("x", INT32, (6,))
    out = b.output("out", INT32, (len(get_args(Opcode)), 6))
    used: set[str] = set()
    with b.loop("i", 6, "vector") as i:
        for row, (name, expr) in enumerate(samples(Load(x, (i,)))):
            used.add(name)
            b.store(out, (row, i), cast(expr, INT32))
    assert used == set(get_args(Opcode))
    values, result = np.array([-9, -1, 0, 1, 7, 2**31 - 1], np.int32), np.zeros((len(used), 6), np.int32)
    run_kernel(b.finish(), [values, result], order=order)
    expected = [[expected_sample(name, v) for v in values.tolist()] for name, _ in samples(Load(x, ()))]
    np.testing.assert_array_equal(result, expected)


def samples(x: Expr) -> list[tuple[Opcode, Expr]]:
    """Each opcode once, applied to an integer."""
    real = cast(x, FLOAT64)
    binaries: list[Opcode] = [
        op
        for op in get_args(Opcode)
        if op in COMPARISONS | {"add", "sub", "mul", "div", "rem", "and", "or", "xor"}
    ]
    return [
        *[(op, binary(op, x, 3)) for op in binaries],
        ("shl", binary("shl", x, 2)),
        ("shr", binary("shr", x, 2)),
        ("neg", -x),
        ("abs", absolute(x)),
        ("not", Op("not", (x,), INT32)),
        ("fma", fma(real, 2.0, 1.0)),
        ("sqrt", sqrt(absolute(real))),
        ("select", select(compare("lt", x, 0), 5, x)),
        ("bitcast", bitcast(bitcast(x, FLOAT32), INT32)),
        ("cast", cast(maximum(real, 0.5), INT32)),
    ]


def expected_sample(name: str, x: int) -> int:
    quotient = abs(x) // 3 * (1 if x > 0 else -1)
    values = {
        "add": x + 3, "sub": x - 3, "mul": x * 3, "div": quotient, "rem": x - 3 * quotient,
        "and": x & 3, "or": x | 3, "xor": x ^ 3, "shl": x << 2, "shr": x >> 2,
        "eq": x == 3, "ne": x != 3, "lt": x < 3, "le": x <= 3, "gt": x > 3, "ge": x >= 3,
        "neg": -x, "abs": abs(x), "not": ~x, "fma": min(2 * x + 1, 2**31 - 1), "sqrt": int(abs(x) ** 0.5),
        "select": 5 if x < 0 else x, "bitcast": x, "cast": max(x, 0),
    }  # fmt: skip
    return (int(values[name]) + 2**31) % 2**32 - 2**31
