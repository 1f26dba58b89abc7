"""Outputs that are views, inputs, constants, or each other."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import cuvil
from cuvil.ir.types import Array
from tests.e2e.models import model_of

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
SHAPE = np.array([4, 6], np.int64)


def test_view_of_a_result_has_the_view_s_shape() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Reshape", ["r", "shape"], ["y"]),
    ]
    model = model_of(nodes, {"x": X.shape}, {"y": (4, 6)}, {"shape": SHAPE})
    np.testing.assert_array_equal(cuvil.compile(model)(X), X.reshape(4, 6))


def test_result_and_its_view_are_two_outputs() -> None:
    nodes = [
        helper.make_node("Neg", ["x"], ["r"]),
        helper.make_node("Reshape", ["r", "shape"], ["y"]),
    ]
    model = model_of(nodes, {"x": X.shape}, {"y": (4, 6), "r": X.shape}, {"shape": SHAPE})
    outputs = cuvil.compile(model)(X)
    np.testing.assert_array_equal(outputs[0], -X.reshape(4, 6))
    np.testing.assert_array_equal(outputs[1], -X)


@pytest.mark.parametrize("op", ["Identity", "Relu"])
def test_one_value_under_two_names(op: str) -> None:
    nodes = [helper.make_node(op, ["x"], ["y"]), helper.make_node("Identity", ["y"], ["z"])]
    model = model_of(nodes, {"x": X.shape}, {"y": X.shape, "z": X.shape}, {})
    outputs = cuvil.compile(model).run({"x": X})
    assert list(outputs) == ["y", "z"]
    for output in outputs.values():
        np.testing.assert_array_equal(output, X)
    outputs["y"][0] = 7
    np.testing.assert_array_equal(outputs["z"], X)


def test_constant_output() -> None:
    constant: Array = np.array([1.5, -0.0, np.inf], np.float32)
    nodes = [helper.make_node("Neg", ["x"], ["y"]), helper.make_node("Identity", ["c"], ["z"])]
    model = model_of(nodes, {"x": X.shape}, {"y": X.shape, "z": (3,)}, {"c": constant})
    np.testing.assert_array_equal(cuvil.compile(model)(X)[1], constant)


def test_unused_input_stays_an_input() -> None:
    model = model_of([helper.make_node("Neg", ["x"], ["y"])], {"u": (5,), "x": X.shape}, {"y": X.shape}, {})
    compiled = cuvil.compile(model)
    assert [info.name for info in compiled.inputs] == ["u", "x"]
    np.testing.assert_array_equal(compiled(np.zeros(5, np.float32), X), -X)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,)], ids=str)
def test_scalars_and_empty_tensors(shape: tuple[int, ...]) -> None:
    nodes = [helper.make_node("Exp", ["x"], ["e"]), helper.make_node("Add", ["e", "x"], ["y"])]
    x = np.zeros(shape, np.float32)
    result = cuvil.compile(model_of(nodes, {"x": shape}, {"y": shape}, {}))(x)
    np.testing.assert_array_equal(result, np.ones(shape, np.float32))
