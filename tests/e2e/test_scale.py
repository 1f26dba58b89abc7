"""Long models: nothing in the compiler may recurse over them or grow with the square of their length."""

from __future__ import annotations

import numpy as np
from onnx import helper

import cuvil
from cuvil.driver import Options, compile_model
from tests.e2e.models import model_of


def test_long_chain_of_elementary_functions() -> None:
    count = 60
    nodes = [
        helper.make_node(
            ("Tanh", "Exp", "Neg")[i % 3], [f"v{i}" if i else "x"], [f"v{i + 1}" if i < count - 1 else "y"]
        )
        for i in range(count)
    ]
    x = np.linspace(-1, 1, 33).astype(np.float32)
    result = cuvil.compile(model_of(nodes, {"x": (33,)}, {"y": (33,)}, {}))(x)
    assert np.isfinite(result).all()


def test_equal_kernels_are_there_once() -> None:
    sizes = []
    for count in (10, 110):
        nodes = [
            helper.make_node("Softmax", [f"v{i}" if i else "x"], [f"v{i + 1}" if i < count - 1 else "y"])
            for i in range(count)
        ]
        model = model_of(nodes, {"x": (64, 7)}, {"y": (64, 7)}, {})
        sizes.append(len(compile_model(model, Options("x86_64-linux")).object_code))
    assert sizes[1] - sizes[0] < 100 * 100, "a call takes tens of bytes, a kernel a thousand"
