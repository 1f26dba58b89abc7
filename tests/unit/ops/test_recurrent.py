"""GRU layers, and what they share with LSTM layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cuvil.errors import UnsupportedError
from cuvil.frontends.onnx import load_onnx
from cuvil.interp import run_graph
from cuvil.ir.types import Array
from cuvil.ops.gru import GRU
from tests.judging import Case, judge, one_node, random, special
from tests.needs import need_module
from tests.unit.ops.support import model_of

STEPS, BATCH, FEATURES, SIZE = 5, 3, 4, 7


@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("constants", [(), (1, 2)])
def test_gru(linear: bool, constants: tuple[int, ...]) -> None:
    operands = [
        special(1, STEPS, BATCH, 3 * SIZE),
        random(2, SIZE, 2 * SIZE),
        random(3, SIZE, SIZE),
        random(4, SIZE),
        random(5, BATCH, SIZE),
    ]
    attrs = {"reverse": linear, "linear_before_reset": linear}
    states, last = judge(one_node(GRU, operands, attrs, constants), ulp=4)
    np.testing.assert_array_equal(states[0 if linear else -1], last)


def layer(op_type: str, gates: int, attrs: dict[str, Any], both: bool) -> tuple[Any, dict[str, Array]]:
    """A recurrent layer with all its operands, and what to run it with."""
    directions = 2 if both else 1
    states = ("h0",) if op_type == "GRU" else ("h0", "c0")
    batch_first = attrs.get("layout", 0)
    state = (BATCH, directions, SIZE) if batch_first else (directions, BATCH, SIZE)
    inputs = {"x": random(1, *((BATCH, STEPS) if batch_first else (STEPS, BATCH)), FEATURES)}
    inputs |= {name: random(2 + i, *state) for i, name in enumerate(states)}
    constants = {
        "w": random(4, directions, gates * SIZE, FEATURES),
        "r": random(5, directions, gates * SIZE, SIZE) / 4,
        "b": random(6, directions, 2 * gates * SIZE),
        "lengths": np.full(BATCH, STEPS, np.int32),
    }
    model = model_of(
        op_type,
        inputs,
        {"hidden_size": SIZE, **attrs},
        constants=constants,
        operands=("x", "w", "r", "b", "lengths", *states),
        results=("y", *(f"last_{name}" for name in states)),
    )
    return model, inputs


@pytest.mark.parametrize(("op_type", "gates"), [("GRU", 3), ("LSTM", 4)])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("linear", [0, 1])
def test_layers_mean_what_onnxruntime_computes(op_type: str, gates: int, direction: str, linear: int) -> None:
    onnxruntime = need_module("onnxruntime")
    attrs: dict[str, Any] = {"direction": direction}
    if op_type == "GRU":
        attrs["linear_before_reset"] = linear
    model, inputs = layer(op_type, gates, attrs, direction == "bidirectional")
    graph = load_onnx(model).graph
    arrays = [inputs[value.name] for value in graph.inputs]
    for value in model.graph.output:
        value.type.tensor_type.elem_type = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for actual, expected in zip(run_graph(graph, arrays), session.run(None, inputs), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("op_type", "gates"), [("GRU", 3), ("LSTM", 4)])
def test_batch_first_is_the_same_layer_transposed(op_type: str, gates: int) -> None:
    model, inputs = layer(op_type, gates, {"direction": "bidirectional"}, True)
    swapped = {name: np.ascontiguousarray(array.swapaxes(0, 1)) for name, array in inputs.items()}
    plain = _judged(model, inputs)
    moved = _judged(layer(op_type, gates, {"direction": "bidirectional", "layout": 1}, True)[0], swapped)
    np.testing.assert_array_equal(moved[0], plain[0].transpose(2, 0, 1, 3))
    for ours, theirs in zip(moved[1:], plain[1:], strict=True):
        np.testing.assert_array_equal(ours, theirs.swapaxes(0, 1))


def _judged(model: Any, inputs: dict[str, Array]) -> list[Array]:
    graph = load_onnx(model).graph
    return judge(Case(graph, [inputs[value.name] for value in graph.inputs]), ulp=8)


@pytest.mark.parametrize(
    ("attrs", "what"),
    [
        ({"clip": 3.0}, "clip=3.0"),
        ({"activations": ("Sigmoid", "Relu")}, "activations"),
    ],
)
def test_other_forms_are_refused(attrs: dict[str, Any], what: str) -> None:
    model, _ = layer("GRU", 3, attrs, False)
    with pytest.raises(UnsupportedError, match=what):
        load_onnx(model)
