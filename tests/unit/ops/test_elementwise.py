"""Arithmetic, comparisons, logic, selection and conversions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from cuvil.errors import ModelError, UnsupportedError
from cuvil.ir.op import OpDef
from cuvil.ir.types import BOOL, FLOAT32, TensorType
from cuvil.ops import comparison, conversion, elementwise
from tests.unit.ops.support import assert_same_bits, check, check_model, f32, model_of, random, run_model

NAN, INF = math.nan, math.inf
SPECIAL = f32(NAN, -INF, -3.5, -1.0, -1e-45, -0.0, 0.0, 1e-45, 0.5, 1.0, 2.0, 3.4e38, INF)
INT_EDGES = (0, 1, -1, 2, -2, 7, -7, 2**31 - 1, -(2**31))

BINARY = (elementwise.ADD, elementwise.SUB, elementwise.MUL, elementwise.DIV)
ORDERED = (comparison.EQUAL, comparison.LESS, comparison.LESS_OR_EQUAL, comparison.GREATER)
EXTREMA = (elementwise.MAXIMUM, elementwise.MINIMUM)


@pytest.mark.parametrize("op", [*BINARY, *ORDERED, comparison.GREATER_OR_EQUAL, *EXTREMA], ids=repr)
def test_pairs_of_special_floats(op: OpDef) -> None:
    check(op, [SPECIAL[:, None], SPECIAL[None, :]])


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("op", [*BINARY, elementwise.REM, elementwise.MOD, *ORDERED, *EXTREMA], ids=repr)
def test_pairs_of_integers(op: OpDef, dtype: type[Any]) -> None:
    edges = np.array([*INT_EDGES, np.iinfo(dtype).min, np.iinfo(dtype).max], dtype)
    check(op, [edges[:, None], edges[None, :]])


@pytest.mark.parametrize(
    "op", [elementwise.NEG, elementwise.ABS, elementwise.SQRT, elementwise.RECIPROCAL], ids=repr
)
def test_special_floats(op: OpDef) -> None:
    check(op, [SPECIAL])


def test_integer_division_truncates_and_never_traps() -> None:
    a = np.array([7, -7, 7, -7, 5, -(2**31)], np.int32)
    b = np.array([2, 2, -2, -2, 0, -1], np.int32)
    np.testing.assert_array_equal(check(elementwise.DIV, [a, b]), [3, -3, -3, 3, 0, -(2**31)])
    np.testing.assert_array_equal(check(elementwise.REM, [a, b]), [1, -1, 1, -1, 5, 0])
    np.testing.assert_array_equal(check(elementwise.MOD, [a, b]), [1, 1, -1, -1, 5, 0])


def test_extrema_give_nan_and_keep_the_left_zero() -> None:
    assert_same_bits(check(elementwise.MAXIMUM, [f32(-0.0, NAN, 1), f32(0.0, 1, NAN)]), f32(-0.0, NAN, NAN))
    assert_same_bits(check(elementwise.MINIMUM, [f32(0.0, NAN, 1), f32(-0.0, 1, NAN)]), f32(0.0, NAN, NAN))


@pytest.mark.parametrize(
    "shapes", [((2, 3), (3,)), ((4, 1, 3), (2, 1)), ((), (2, 2)), ((0, 3), (1, 3)), ((1,), (5, 1, 1))]
)
def test_broadcasting(shapes: tuple[tuple[int, ...], ...]) -> None:
    a, b = (random(shape, seed=i) for i, shape in enumerate(shapes))
    assert_same_bits(check(elementwise.ADD, [a, b]), np.asarray(a + b))


def test_shapes_that_do_not_broadcast() -> None:
    with pytest.raises(ModelError, match=r"equal extents, or 1, at axis 1 of 2, got \[2, 3\] and \[2\]"):
        elementwise.ADD.infer([TensorType(FLOAT32, (2, 3)), TensorType(FLOAT32, (2,))], {})


def test_operands_of_two_types() -> None:
    with pytest.raises(ModelError, match="different element types; expected one type, got float32, bool"):
        elementwise.ADD.infer([TensorType(FLOAT32, ()), TensorType(BOOL, ())], {})


def test_type_without_arithmetic() -> None:
    with pytest.raises(UnsupportedError, match="expected float32 or float64 or int32 or int64, got bool"):
        elementwise.ADD.infer([TensorType(BOOL, ()), TensorType(BOOL, ())], {})


@pytest.mark.parametrize("op", [comparison.AND, comparison.OR, comparison.XOR, comparison.EQUAL], ids=repr)
def test_pairs_of_booleans(op: OpDef) -> None:
    values = np.array([False, True])
    check(op, [values[:, None], values[None, :]])


def test_not() -> None:
    np.testing.assert_array_equal(check(comparison.NOT, [np.array([True, False])]), [False, True])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64, np.bool_])
def test_where(dtype: type[Any]) -> None:
    condition = random((3, 1), np.bool_)
    a, b = random((1, 4), dtype), random((3, 4), dtype, seed=1)
    assert_same_bits(check(comparison.WHERE, [condition, a, b]), np.where(condition, a, b))


def test_where_needs_a_boolean_condition() -> None:
    types = [TensorType(FLOAT32, ())] * 3
    with pytest.raises(ModelError, match="condition has the wrong element type; expected bool, got float32"):
        comparison.WHERE.infer(types, {})


@pytest.mark.parametrize("to", ["float32", "float64", "int32", "int64", "bool"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64, np.bool_])
def test_cast(dtype: type[Any], to: str) -> None:
    if np.dtype(dtype).kind == "f":
        edges = np.array([*SPECIAL, 2.0**31, -(2.0**31), 2.0**63, -(2.0**63), 1e30, -1e30, 16777217], dtype)
    else:
        edges = np.array([0, 1, *([] if dtype is np.bool_ else [-1, np.iinfo(dtype).max])], dtype)
    check(conversion.CAST, [edges], {"to": to})


def test_cast_to_integer_saturates() -> None:
    x = f32(NAN, INF, -INF, 2147483648, -2147483904, 1.9, -1.9)
    got = check(conversion.CAST, [x], {"to": "int32"})
    np.testing.assert_array_equal(got, [0, 2**31 - 1, -(2**31), 2**31 - 1, -(2**31), 1, -1])


@pytest.mark.parametrize("op_type", ["Add", "Sub", "Mul", "Div", "Equal", "Less", "Greater", "Max", "Min"])
def test_import_of_pairs(op_type: str) -> None:
    check_model(op_type, {"a": random((2, 3)), "b": random((3,), seed=1)})


@pytest.mark.parametrize("op_type", ["Neg", "Abs", "Reciprocal", "Identity", "Dropout"])
def test_import_of_one_operand(op_type: str) -> None:
    check_model(op_type, {"x": random((2, 3))})


@pytest.mark.parametrize("op_type", ["Sum", "Max", "Min", "Mean"])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_import_of_any_number_of_operands(op_type: str, count: int) -> None:
    check_model(op_type, {f"x{i}": random((2, 3), seed=i) for i in range(count)})


@pytest.mark.parametrize("fmod", [0, 1])
def test_import_of_integer_mod(fmod: int) -> None:
    a, b = np.array([7, -7, 7, -7]), np.array([3, 3, -3, -3])
    check_model("Mod", {"a": a, "b": b}, {"fmod": fmod})


@pytest.mark.parametrize("exponent", [1.0, 2.0, 3.0, 0.5, -1.0])
def test_import_of_pow(exponent: float) -> None:
    check_model("Pow", {"x": np.abs(random((4,)))}, constants={"e": f32(exponent)})


@pytest.mark.parametrize("to", [1, 6, 7, 9, 11])
def test_import_of_cast(to: int) -> None:
    check_model("Cast", {"x": f32(-1.5, 0, 2.75)}, {"to": to})


def test_cast_to_float16_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="conversion to ONNX element type 10 is not supported"):
        run_model(model_of("Cast", {"x": f32(1)}, {"to": 10}), {})
