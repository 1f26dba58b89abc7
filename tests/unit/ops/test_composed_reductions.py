"""Reductions made of others, and normalizations of instances and groups."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cuvil.frontends.onnx import load_onnx
from cuvil.ops.reduction import REDUCTION_OPS
from tests.judging import Case, judge, one_node, special
from tests.unit.ops.support import check_model, f32, model_of, random

REDUCTIONS = ("ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp", "ReduceProd")


@pytest.mark.parametrize("op_type", REDUCTIONS)
@pytest.mark.parametrize("axes", [(1,), (0, 2), None])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_reductions(op_type: str, axes: tuple[int, ...] | None, keepdims: int) -> None:
    x = random((3, 4, 5))
    attrs: dict[str, Any] = {"keepdims": keepdims} | ({"axes": axes} if axes else {})
    check_model(op_type, {"x": np.abs(x) if op_type == "ReduceLogSum" else x}, attrs)


def test_products_are_in_the_contract_s_order() -> None:
    judge(one_node(REDUCTION_OPS["reduce_prod"], [special(1, 3, 40)], {"axes": (1,), "keepdims": True}))


def test_log_sum_exp_of_infinities() -> None:
    x = f32(np.inf, 0, -np.inf, -np.inf, 200, 200, np.nan, 1).reshape(4, 2)
    graph = load_onnx(model_of("ReduceLogSumExp", {"x": x}, {"axes": (1,), "keepdims": 0})).graph
    (y,) = judge(Case(graph, [x]), ulp=2)
    np.testing.assert_allclose(y, [np.inf, -np.inf, 200 + np.log(2), np.nan], rtol=1e-6)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("opset", [11, 17])
def test_log_softmax(axis: int, opset: int) -> None:
    x = random((3, 4, 5))
    model = model_of("LogSoftmax", {"x": x}, {"axis": axis}, opset=opset)
    axes = (axis,) if opset == 17 else tuple(range(axis, 3))
    (y,) = judge(Case(load_onnx(model).graph, [x]), ulp=64)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(y, wide - np.log(np.exp(wide).sum(axes, keepdims=True)), rtol=1e-5, atol=1e-6)


def test_instances_and_groups() -> None:
    x, constants = random((2, 4, 3, 5)), {"scale": random((4,), seed=1), "bias": random((4,), seed=2)}
    check_model("InstanceNormalization", {"x": x}, {"epsilon": 1e-3}, constants=constants)
    check_model("GroupNormalization", {"x": x}, {"num_groups": 2}, constants=constants, opset=21)


@pytest.mark.parametrize("op_type", ["ReduceMax", "ReduceMin"])
def test_booleans(op_type: str) -> None:
    x = np.array([[True, False], [True, True], [False, False]])
    expected = x.any(1) if op_type == "ReduceMax" else x.all(1)
    graph = load_onnx(
        model_of(op_type, {"x": x}, {"keepdims": 0}, constants={"axes": np.array([1])}, opset=20)
    ).graph
    np.testing.assert_array_equal(judge(Case(graph, [x]))[0], expected)
