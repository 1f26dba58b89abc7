"""Small ONNX models that tests compile."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from cuvil.ir.types import Array

OPSET = 17


def model_of(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, tuple[int, ...]],
    outputs: dict[str, tuple[int, ...]],
    initializers: dict[str, Array],
) -> onnx.ModelProto:
    """A float32 model."""
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in initializers.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)


def product(rows: int, depth: int, columns: int) -> onnx.ModelProto:
    """A matrix product with bias and ReLU."""
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.standard_normal((depth, columns)).astype(np.float32),
        "b": rng.standard_normal(columns).astype(np.float32),
    }
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["z"], name="fc"),
        helper.make_node("Relu", ["z"], ["y"], name="act"),
    ]
    return model_of(nodes, {"x": (rows, depth)}, {"y": (rows, columns)}, weights)


def convolution(size: int, channels: int, outputs: int, kernel: int = 3) -> onnx.ModelProto:
    """A padded convolution, a pooling, and a residual sum."""
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.standard_normal((outputs, channels, kernel, kernel)).astype(np.float32),
        "b": rng.standard_normal(outputs).astype(np.float32),
        "v": rng.standard_normal((outputs, outputs, 1, 1)).astype(np.float32),
    }
    pad = kernel // 2
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["z"], name="conv", pads=[pad] * 4),
        helper.make_node("Relu", ["z"], ["r"], name="act"),
        helper.make_node("Conv", ["r", "v"], ["s"], name="pointwise"),
        helper.make_node("Add", ["s", "r"], ["t"], name="residual"),
        helper.make_node("MaxPool", ["t"], ["y"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
    ]
    shape = (1, outputs, size // 2, size // 2)
    return model_of(nodes, {"x": (1, channels, size, size)}, {"y": shape}, weights)


def attention(length: int, width: int, heads: int) -> onnx.ModelProto:
    """Self-attention with a residual sum and a layer normalization."""
    rng = np.random.default_rng(0)
    head = width // heads
    scale = np.float32(1 / np.sqrt(width))
    weights: dict[str, Array] = {
        name: rng.standard_normal((width, width)).astype(np.float32) * scale
        for name in ("wq", "wk", "wv", "wo")
    }
    weights |= {
        "split": np.array([1, length, heads, head], np.int64),
        "join": np.array([1, length, width], np.int64),
        "scale": np.array(1 / np.sqrt(head), np.float32),
        "gain": np.ones(width, np.float32),
        "bias": np.zeros(width, np.float32),
    }
    nodes = []
    for name, perm in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        nodes += [
            helper.make_node("MatMul", ["x", f"w{name}"], [f"{name}1"]),
            helper.make_node("Reshape", [f"{name}1", "split"], [f"{name}2"]),
            helper.make_node("Transpose", [f"{name}2"], [name], perm=perm),
        ]
    nodes += [
        helper.make_node("MatMul", ["q", "k"], ["logits"]),
        helper.make_node("Mul", ["logits", "scale"], ["scaled"]),
        helper.make_node("Softmax", ["scaled"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "v"], ["o1"]),
        helper.make_node("Transpose", ["o1"], ["o2"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["o2", "join"], ["o3"]),
        helper.make_node("MatMul", ["o3", "wo"], ["o4"]),
        helper.make_node("Add", ["o4", "x"], ["o5"]),
        helper.make_node("LayerNormalization", ["o5", "gain", "bias"], ["y"]),
    ]
    shape = (1, length, width)
    return model_of(nodes, {"x": shape}, {"y": shape}, weights)


def functions(count: int) -> onnx.ModelProto:
    """Functions of one element, each with an output of its own, and x to the power of x."""
    names = ("Exp", "Log", "Tanh", "Sigmoid", "Erf", "Sqrt", "Round", "Floor", "Ceil", "Sign", "Pow")
    nodes = [helper.make_node(name, ["x"] * (2 if name == "Pow" else 1), [name.lower()]) for name in names]
    return model_of(nodes, {"x": (count,)}, {name.lower(): (count,) for name in names}, {})
