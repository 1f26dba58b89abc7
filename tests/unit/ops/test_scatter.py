"""Elements and blocks read from, and written to, places that indices name."""

from __future__ import annotations

import numpy as np
import pytest

from cuvil.errors import ModelError
from cuvil.frontends.onnx import load_onnx
from cuvil.ops.scatter import GATHER_PLACES, SCATTER_PLACES
from tests.judging import Case, judge, one_node, special
from tests.unit.ops.support import check_model, model_of, random

INDICES = np.array([[[1, 2], [-1, 0], [0, -3]], [[0, 0], [9, 9], [-9, 1]]], np.int64)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_gather_wraps_and_clamps(dtype: type[np.integer]) -> None:
    operands = [special(1, 2, 6, 5), INDICES.astype(dtype)]
    (y,) = judge(one_node(GATHER_PLACES, operands, {"places": (2, 3)}))
    np.testing.assert_array_equal(y[1], operands[0][1, [0, 5, 1]])


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
def test_scatter_applies_updates_in_their_order(reduction: str) -> None:
    indices = np.concatenate([INDICES, INDICES[:, ::-1]], axis=1)
    operands = [special(1, 2, 6, 5), indices, special(2, 2, 6, 5)]
    (y,) = judge(one_node(SCATTER_PLACES, operands, {"places": (2, 3), "reduction": reduction}))
    if reduction == "none":
        np.testing.assert_array_equal(y[0, 5], operands[2][0, 5])


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float64, np.bool_])
def test_element_types(dtype: type[np.generic]) -> None:
    operands = [random((2, 6, 5), dtype), INDICES, random((2, 3, 5), dtype, seed=1)]
    judge(one_node(SCATTER_PLACES, operands, {"places": (2, 3), "reduction": "none"}))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_elements_along_an_axis(axis: int) -> None:
    data, rng = random((3, 4, 5)), np.random.default_rng(1)
    indices = np.argsort(rng.random(data.shape), axis=axis)
    indices = np.take(indices, range(2), axis=axis).astype(np.int64)
    check_model("GatherElements", {"x": data, "i": indices}, {"axis": axis}, operands=("x", "i"))
    operands = {"x": data, "i": indices, "u": random(indices.shape, seed=2)}
    for reduction in ("none", "add", "mul", "max", "min"):
        attrs = {"axis": axis, "reduction": reduction}
        check_model("ScatterElements", operands, attrs, operands=("x", "i", "u"), opset=18)


def test_elements_may_leave_a_part_of_the_other_axes_alone() -> None:
    data, updates = random((3, 4, 5)), random((2, 2, 5), seed=2)
    indices = np.array([[[0, 1, 2, -1, 0]] * 2, [[2, 0, 0, 1, 1]] * 2], np.int32)
    operands = {"x": data, "i": indices, "u": updates}
    (y,) = check_model("ScatterElements", operands, {"axis": 0}, operands=("x", "i", "u"), opset=18)
    np.testing.assert_array_equal(y[:, 2:], data[:, 2:])
    graph = load_onnx(model_of("GatherElements", {"x": data, "i": indices})).graph
    expected = np.take_along_axis(data[:, :2], indices.astype(np.int64), axis=0)
    np.testing.assert_array_equal(judge(Case(graph, [data, indices]))[0], expected)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_blocks(depth: int) -> None:
    data, indices = random((3, 4, 5)), np.array([[0, 1, 2], [2, -1, 0], [1, 3, -5]], np.int64)[:, :depth]
    check_model("GatherND", {"x": data, "i": indices}, operands=("x", "i"))
    updates = random((3, *data.shape[depth:]), seed=2)
    check_model("ScatterND", {"x": data, "i": indices, "u": updates}, operands=("x", "i", "u"))


def test_blocks_in_batches() -> None:
    data, indices = random((2, 3, 4, 5)), np.array([[[1, 0]], [[2, 3]]], np.int64)
    check_model("GatherND", {"x": data, "i": indices}, {"batch_dims": 1}, operands=("x", "i"))


def test_misfits_are_named() -> None:
    inputs = {"x": random((3, 4)), "i": np.zeros((2, 3), np.int64), "u": random((2, 2))}
    with pytest.raises(ModelError, match=r"updates do not fit; expected \[2, 3\]"):
        load_onnx(model_of("ScatterElements", inputs))
    with pytest.raises(ModelError, match="got 3 numbers each"):
        load_onnx(model_of("GatherND", {"x": inputs["x"], "i": inputs["i"]}))
