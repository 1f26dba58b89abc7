"""Maximum and average over windows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from cuvil.errors import ModelError, UnsupportedError
from cuvil.frontends.onnx import load_onnx
from cuvil.ir.op import OpDef
from cuvil.ir.types import FLOAT32, TensorType
from cuvil.ops import pooling
from cuvil.ops.window import Window
from tests.unit.ops.support import assert_same_bits, check, check_model, f32, model_of, random

NAN, INF = math.nan, math.inf


def pool_attrs(
    kernel: tuple[int, int],
    strides: tuple[int, int] = (1, 1),
    pads: tuple[int, ...] = (0, 0, 0, 0),
    dilations: tuple[int, int] = (1, 1),
    *,
    ceil: bool = False,
    count_include_pad: bool = False,
) -> dict[str, Any]:
    return {
        "kernel": kernel,
        "strides": strides,
        "dilations": dilations,
        "pads": pads,
        "ceil": ceil,
        "count_include_pad": count_include_pad,
    }


CASES = [
    pool_attrs((2, 2), (2, 2)),
    pool_attrs((3, 3), (2, 2), (1, 1, 1, 1)),
    pool_attrs((3, 2), (2, 1), (1, 0, 0, 1)),
    pool_attrs((3, 3), (2, 2), (0, 0, 0, 0), ceil=True),
    pool_attrs((2, 3), (1, 2), (1, 2, 1, 2), (2, 2), ceil=True),
    pool_attrs((3, 3), (1, 1), (2, 2, 2, 2), count_include_pad=True),
]


@pytest.mark.parametrize("op", [pooling.MAX_POOL, pooling.AVERAGE_POOL], ids=repr)
@pytest.mark.parametrize("attrs", CASES, ids=str)
def test_pools(op: OpDef, attrs: dict[str, Any]) -> None:
    x = random((2, 4, 5, 2))
    x[0, 0, 0, 0], x[1, 3, 4, -1] = NAN, -INF
    check(op, [x], attrs)


@pytest.mark.parametrize("op", [pooling.MAX_POOL, pooling.AVERAGE_POOL], ids=repr)
def test_window_that_is_too_large_to_unroll(op: OpDef) -> None:
    check(op, [random((1, 9, 9, 3))], pool_attrs((8, 9)))


def test_max_pool_of_integers() -> None:
    check(pooling.MAX_POOL, [random((1, 5, 4, 2), np.int64)], CASES[1])


def test_max_pool_keeps_nan_and_the_first_of_equals() -> None:
    x = f32(-0.0, 0.0, NAN, 1, -INF, -INF, 0.0, -0.0).reshape(1, 1, 8, 1)
    got = check(pooling.MAX_POOL, [x], pool_attrs((1, 2), (1, 2)))
    assert_same_bits(got.ravel(), f32(-0.0, NAN, -INF, 0.0))


def test_average_sums_in_sixteen_lanes() -> None:
    """In row-major order, 1 + 1e8 - 1e8 + ... would lose the ones; tap k goes to lane k modulo 16."""
    x = np.zeros((1, 1, 18, 1), np.float32)
    x[0, 0, [0, 1, 8, 16, 17], 0] = 1e8, 1, -1e8, 1, 1
    got = check(pooling.AVERAGE_POOL, [x], pool_attrs((1, 18)))
    lanes = [np.float32(0)] * 16
    for k, value in enumerate(x.ravel()):
        lanes[k % 16] = lanes[k % 16] + value
    for step in (8, 4, 2, 1):
        lanes = [lanes[i] + lanes[i + step] for i in range(step)]
    assert_same_bits(got.ravel(), np.array([lanes[0] / np.float32(18)]))


def test_last_window_begins_inside() -> None:
    assert Window(extent=5, kernel=2, stride=3, dilation=1, before=0, after=1, ceil=True).count == 2
    assert Window(extent=4, kernel=1, stride=3, dilation=1, before=1, after=0, ceil=True).count == 2
    assert Window(extent=1, kernel=2, stride=3, dilation=1, before=0, after=3, ceil=True).count == 1


@pytest.mark.parametrize("kernel", [(12, 1), (1, 12)])
def test_window_that_does_not_fit(kernel: tuple[int, int]) -> None:
    with pytest.raises(ModelError, match="window does not fit; expected a span of at most"):
        pooling.MAX_POOL.infer([TensorType(FLOAT32, (1, 9, 11, 2))], pool_attrs(kernel))


def test_padding_as_large_as_the_window() -> None:
    with pytest.raises(ModelError, match="padding is as large as the window; expected less than 2"):
        pooling.MAX_POOL.infer([TensorType(FLOAT32, (1, 9, 9, 2))], pool_attrs((2, 2), pads=(2, 0, 0, 0)))


@pytest.mark.parametrize("op_type", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize(
    "attrs",
    [
        {"kernel_shape": [2, 2]},
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
        {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"},
        {"kernel_shape": [2, 2], "strides": [1, 1], "auto_pad": "SAME_LOWER"},
        {"kernel_shape": [2, 2], "strides": [2, 2], "auto_pad": "VALID"},
        {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
        {"kernel_shape": [2, 2], "dilations": [2, 2]},
    ],
    ids=str,
)
def test_import(op_type: str, attrs: dict[str, Any]) -> None:
    check_model(op_type, {"x": random((1, 2, 5, 4))}, attrs, opset=19)


@pytest.mark.parametrize("include", [0, 1])
def test_import_of_counted_padding(include: int) -> None:
    attrs = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": include}
    check_model("AveragePool", {"x": random((1, 2, 5, 4))}, attrs, opset=19)


@pytest.mark.parametrize("op_type", ["MaxPool", "AveragePool"])
def test_import_of_one_axis(op_type: str) -> None:
    attrs = {"kernel_shape": [3], "strides": [2], "pads": [1, 0]}
    check_model(op_type, {"x": random((2, 3, 8))}, attrs, opset=19)


def test_three_axes_are_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"MaxPool 'node' \(opset 17\): pooling over 3 axes"):
        load_onnx(model_of("MaxPool", {"x": random((1, 1, 4, 4, 4))}, {"kernel_shape": [2, 2, 2]}))


def test_indices_are_refused() -> None:
    model = model_of(
        "MaxPool", {"x": random((1, 1, 4, 4))}, {"kernel_shape": [2, 2]}, results=["y", "indices"]
    )
    with pytest.raises(UnsupportedError, match="result 1 \\('indices'\\) is not supported"):
        load_onnx(model)
