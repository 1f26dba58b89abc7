"""Values that are computed while the model is imported."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from cuvil.errors import ModelError, UnsupportedError
from cuvil.frontends.onnx import load_onnx
from cuvil.ir.types import Array
from tests.unit.ops.support import assert_same_bits, check_model, f32, model_of, random


def constant_result(op_type: str, attrs: dict[str, Any] | None = None, **options: Any) -> Array:
    """The result of a one-node model that leaves no node to run."""
    graph = load_onnx(model_of(op_type, options.pop("inputs", {}), attrs, **options)).graph
    assert not graph.nodes
    return graph.constants[graph.outputs[0]]


@pytest.mark.parametrize(
    ("attrs", "expected"),
    [
        ({"value": onnx.numpy_helper.from_array(f32(1, 2))}, f32(1, 2)),
        ({"value_float": 1.5}, np.array(1.5, np.float32)),
        ({"value_floats": [1.5, 2]}, f32(1.5, 2)),
        ({"value_int": 3}, np.array(3)),
        ({"value_ints": [3, 4]}, np.array([3, 4])),
    ],
)
def test_constant(attrs: dict[str, Any], expected: Array) -> None:
    assert_same_bits(constant_result("Constant", attrs), expected)


def test_constant_of_text_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="Constant 'node'"):
        constant_result("Constant", {"value_string": "text"})


def test_constant_of_shape() -> None:
    shape = {"shape": np.array([2, 3])}
    assert_same_bits(constant_result("ConstantOfShape", constants=shape), np.zeros((2, 3), np.float32))
    sevens = {"value": onnx.numpy_helper.from_array(np.array([7], np.int32))}
    assert_same_bits(
        constant_result("ConstantOfShape", sevens, constants=shape), np.full((2, 3), 7, np.int32)
    )


def test_constant_of_negative_shape() -> None:
    with pytest.raises(ModelError, match="shape is negative"):
        constant_result("ConstantOfShape", constants={"shape": np.array([2, -3])})


@pytest.mark.parametrize("attrs", [{}, {"start": 1}, {"start": -2, "end": -1}, {"end": 10}, {"start": -9}])
def test_shape(attrs: dict[str, int]) -> None:
    x = random((2, 3, 4))
    expected = np.array(x.shape[attrs.get("start", 0) : attrs.get("end", 3)])
    assert_same_bits(constant_result("Shape", attrs, inputs={"x": x}), expected)


def test_size() -> None:
    assert constant_result("Size", inputs={"x": random((2, 3, 4))}) == 24


@pytest.mark.parametrize(
    ("start", "limit", "delta"),
    [(0, 10, 3), (10, 0, -3), (5, 5, 1), (5, 0, 1), (0.0, 1.0, 0.25), (1.0, -1.0, -0.75)],
)
def test_range(start: float, limit: float, delta: float) -> None:
    dtype = np.float32 if 0.25 in (delta, -delta / 3) else np.int64
    names = ("start", "limit", "delta")
    constants = {name: np.array(n, dtype) for name, n in zip(names, (start, limit, delta), strict=True)}
    assert_same_bits(
        constant_result("Range", constants=constants), np.arange(start, limit, delta).astype(dtype)
    )


def test_range_that_stands_still() -> None:
    constants = {name: np.array(n) for name, n in (("start", 0), ("limit", 5), ("delta", 0))}
    with pytest.raises(ModelError, match="delta is 0"):
        constant_result("Range", constants=constants)


def test_shapes_are_computed_at_once() -> None:
    nodes = [
        onnx.helper.make_node("Shape", ["x"], ["s"]),
        onnx.helper.make_node("Gather", ["s", "zero"], ["n"]),
        onnx.helper.make_node("Mul", ["n", "three"], ["m"]),
        onnx.helper.make_node("Concat", ["m", "rest"], ["t"], axis=0),
        onnx.helper.make_node("Reshape", ["x", "t"], ["y"]),
    ]
    constants = {"zero": np.array([0]), "three": np.array([3]), "rest": np.array([-1])}
    graph = onnx.helper.make_graph(
        nodes,
        "test",
        [onnx.helper.make_tensor_value_info("x", 1, (2, 6))],
        [onnx.ValueInfoProto(name="y")],
        [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    imported = load_onnx(model).graph
    assert [node.op.name for node in imported.nodes] == ["reshape"]
    assert imported.outputs[0].type.shape == (6, 2)
    assert not imported.constants


def test_dropout_is_the_identity() -> None:
    x = random((2, 3))
    _, mask = check_model("Dropout", {"x": x}, opset=13, results=["y", "mask"])
    assert mask.dtype == np.bool_
    assert mask.all()


def test_dropout_that_trains_is_refused() -> None:
    constants = {"ratio": np.array(0.5, np.float32), "training": np.array(True)}
    with pytest.raises(UnsupportedError, match="training mode"):
        load_onnx(model_of("Dropout", {"x": random((2,))}, constants=constants))
