"""The best elements along an axis: order of equals and of NaN, element types, ArgMax and ArgMin."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cuvil.errors import ModelError
from cuvil.frontends.onnx import load_onnx
from cuvil.ops.top_k import TOP_K
from tests.judging import judge, one_node, special
from tests.unit.ops.support import check_model, f32, model_of, random


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("k", [1, 3, 20])
def test_special_values(largest: bool, k: int) -> None:
    operands = [special(1, 4, 20)]
    judge(one_node(TOP_K, operands, {"k": k, "largest": largest, "nan_first": False}))


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float64])
@pytest.mark.parametrize("largest", [False, True])
def test_element_types(dtype: type[Any], largest: bool) -> None:
    x = random((3, 12), dtype)
    if np.dtype(dtype).kind == "i":
        x[0, 3], x[0, 5] = np.iinfo(dtype).min, np.iinfo(dtype).max
    judge(one_node(TOP_K, [x], {"k": 5, "largest": largest, "nan_first": False}))


def test_equal_elements_keep_their_order_and_nan_is_the_largest() -> None:
    x = f32(0.0, np.nan, -0.0, 1.0, -np.inf, 1.0, np.nan)[None]
    attrs = {"k": 7, "largest": True, "nan_first": False}
    assert judge(one_node(TOP_K, [x], attrs))[1].tolist() == [[1, 6, 3, 5, 0, 2, 4]]
    attrs["largest"] = False
    assert judge(one_node(TOP_K, [x], attrs))[1].tolist() == [[4, 0, 2, 3, 5, 1, 6]]
    attrs["nan_first"] = True
    assert judge(one_node(TOP_K, [x], attrs))[1].tolist() == [[1, 6, 4, 0, 2, 3, 5]]


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("largest", [0, 1])
def test_top_k_along_any_axis(axis: int, largest: int) -> None:
    check_model(
        "TopK",
        {"x": random((4, 5, 6))},
        {"axis": axis, "largest": largest},
        constants={"k": np.array([3])},
        results=("values", "indices"),
    )


@pytest.mark.parametrize("op_type", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("last", [0, 1])
def test_positions_of_extremes(op_type: str, last: int) -> None:
    x = random((4, 5, 6), np.int32) // 4
    for axis in (0, 1, -1):
        check_model(op_type, {"x": x}, {"axis": axis, "select_last_index": last, "keepdims": axis % 2})


@pytest.mark.parametrize("op_type", ["ArgMax", "ArgMin"])
def test_nan_is_the_extreme(op_type: str) -> None:
    (at,) = check_model(op_type, {"x": f32(1, np.nan, 3, np.nan)}, {"axis": 0})
    assert at.tolist() == [1]


def test_k_must_fit() -> None:
    model = model_of("TopK", {"x": random((4, 5))}, constants={"k": np.array([6])}, results=("v", "i"))
    with pytest.raises(ModelError, match="k is out of range; expected 0 to 5, got 6"):
        load_onnx(model)
