"""Reductions, softmax, layer normalization and the LSTM."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cuvil.ir.types import Array
from cuvil.ops.lstm import LSTM
from cuvil.ops.reduction import LAYER_NORM, REDUCTION_OPS, SOFTMAX
from tests.judging import judge, one_node, random, special


def lane_sum(row: Array) -> np.float32:
    """The contract's order, one element at a time."""
    lanes = [np.float32(0)] * 16
    for position, value in enumerate(row):
        lanes[position % 16] += value
    for step in (8, 4, 2, 1):
        for lane in range(step):
            lanes[lane] += lanes[lane + step]
    return lanes[0]


@pytest.mark.parametrize("extent", [1, 2, 15, 16, 17, 64, 100])
def test_sum_is_in_the_contract_s_order(extent: int) -> None:
    x = random(extent, 3, extent)
    (result,) = judge(one_node(REDUCTION_OPS["reduce_sum"], [x], {"axes": (1,), "keepdims": False}))
    np.testing.assert_array_equal(result, [lane_sum(row) for row in x])


@pytest.mark.parametrize("op", REDUCTION_OPS.values(), ids=REDUCTION_OPS)
@pytest.mark.parametrize(
    ("shape", "axes", "keepdims"),
    [((3, 37), (1,), True), ((3, 37, 9), (1,), False), ((5, 4, 6), (0, 1), True), ((40,), (0,), False)],
)
def test_reductions(op: object, shape: tuple[int, ...], axes: tuple[int, ...], keepdims: bool) -> None:
    attrs = {"axes": axes, "keepdims": keepdims}
    judge(one_node(op, [random(1, *shape)], attrs))  # type: ignore[arg-type]  # parametrized
    judge(one_node(op, [special(2, *shape)], attrs))  # type: ignore[arg-type]  # parametrized


@pytest.mark.parametrize("name", REDUCTION_OPS)
def test_integer_reductions(name: str) -> None:
    x = np.random.default_rng(3).integers(-(2**31), 2**31, (4, 33)).astype(np.int32)
    judge(one_node(REDUCTION_OPS[name], [x], {"axes": (1,), "keepdims": True}))


def test_maximum_is_nan_if_any_element_is() -> None:
    x = np.array([[1, np.nan, 3], [1, -np.inf, 3], [-np.inf] * 3], np.float32)
    (result,) = judge(one_node(REDUCTION_OPS["reduce_max"], [x], {"axes": (1,), "keepdims": False}))
    np.testing.assert_array_equal(result, np.array([np.nan, 3, -np.inf], np.float32))


@pytest.mark.parametrize("shape", [(5, 33), (1, 1), (2, 3, 16), (7,)], ids=str)
def test_softmax(shape: tuple[int, ...]) -> None:
    (result,) = judge(one_node(SOFTMAX, [random(1, *shape)]), ulp=2)
    np.testing.assert_allclose(result.sum(axis=-1), 1, rtol=1e-6)


def test_softmax_of_special_values() -> None:
    x = np.array(
        [[0, np.inf, 1], [0, -np.inf, 1], [np.nan, 0, 1], [-np.inf] * 3, [3e38, -3e38, 0]], np.float32
    )
    (result,) = judge(one_node(SOFTMAX, [x]), ulp=2)
    assert np.isnan(result[[0, 2, 3]]).all()
    np.testing.assert_array_equal(result[4], [1, 0, 0])


@pytest.mark.parametrize("shape", [(5, 33), (2, 3, 64)], ids=str)
def test_layer_norm(shape: tuple[int, ...]) -> None:
    operands = [random(1, *shape), random(2, shape[-1]), random(3, shape[-1])]
    (result,) = judge(one_node(LAYER_NORM, operands, {"axes": 1, "epsilon": 1e-5}))
    wide = operands[0].astype(np.float64)
    centered = wide - wide.mean(-1, keepdims=True)
    scaled = centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(result, scaled * operands[1] + operands[2], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("constants", [(), (1,)], ids=["run time", "packed"])
@pytest.mark.parametrize(("steps", "batch", "size"), [(5, 3, 7), (2, 1, 16), (1, 9, 3)])
def test_lstm(steps: int, batch: int, size: int, constants: tuple[int, ...], reverse: bool) -> None:
    operands = [
        random(1, steps, batch, 4 * size),
        random(2, size, 4 * size) / np.float32(math.sqrt(size)),
        random(3, batch, size),
        random(4, batch, size),
    ]
    judge(one_node(LSTM, operands, {"reverse": reverse}, constants), ulp=64)
