"""Elementary functions and activations."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from cuvil.errors import UnsupportedError
from cuvil.interp import run_graph
from cuvil.ir.op import OpDef
from cuvil.ir.types import FLOAT64, TensorType
from cuvil.ops import activation
from tests.unit.ops.support import assert_same_bits, check, check_model, f32, graph_of, interpret, random

NAN, INF = math.nan, math.inf
ELEMENTARY = (activation.EXP, activation.LOG, activation.TANH, activation.SIGMOID, activation.ERF)


@pytest.mark.parametrize("op", ELEMENTARY, ids=repr)
def test_loops_stay_near_the_function(op: OpDef) -> None:
    """Half an ULP for each of both roundings, and what the polynomial adds."""
    x = np.concatenate([f32(NAN, INF, -INF, 0.0, -0.0, 1e-45, 100, -100), 4 * random((500,))])
    graph = graph_of(op, [x], {})
    (meant,), (looped,) = run_graph(graph, [x]), interpret(graph, [x])
    np.testing.assert_array_equal(np.isnan(looped), np.isnan(meant))
    np.testing.assert_array_max_ulp(looped[~np.isnan(meant)], meant[~np.isnan(meant)], maxulp=1)


@pytest.mark.parametrize("op", ELEMENTARY, ids=repr)
def test_elementary_functions_are_of_float32_alone(op: OpDef) -> None:
    with pytest.raises(UnsupportedError, match="expected float32, got float64"):
        op.infer([TensorType(FLOAT64, (2,))], {})


def test_relu_keeps_nan_and_negative_zero() -> None:
    assert_same_bits(check(activation.RELU, [f32(NAN, -0.0, -2, 3, -INF)]), f32(NAN, -0.0, 0, 3, 0))


def test_relu_of_integers() -> None:
    np.testing.assert_array_equal(check(activation.RELU, [np.array([-2, 0, 3])]), [0, 0, 3])


def test_leaky_relu() -> None:
    attrs = {"alpha": float(np.float32(0.1))}
    got = check(activation.LEAKY_RELU, [f32(NAN, -0.0, -2, 3, -INF)], attrs)
    assert_same_bits(got, f32(NAN, -0.0, -0.2, 3, -INF))


@pytest.mark.parametrize(
    "attrs", [{"min": -1.0}, {"max": 0.5}, {"min": -1.0, "max": 0.5}, {"min": 1.0, "max": 0.0}]
)
def test_clip(attrs: dict[str, float]) -> None:
    x = f32(NAN, -INF, -1.5, -0.0, 0.25, 7, INF)
    expected = np.minimum(np.maximum(x, attrs.get("min", -INF)), attrs.get("max", INF)).astype(np.float32)
    np.testing.assert_array_equal(check(activation.CLIP, [x], attrs), expected)


@pytest.mark.parametrize(
    ("op_type", "attrs", "opset"),
    [
        ("Exp", {}, 17),
        ("Tanh", {}, 17),
        ("Sigmoid", {}, 17),
        ("Erf", {}, 17),
        ("Relu", {}, 17),
        ("LeakyRelu", {"alpha": 0.3}, 17),
        ("LeakyRelu", {}, 7),
        ("Gelu", {}, 20),
        ("Gelu", {"approximate": "tanh"}, 20),
        ("HardSigmoid", {}, 17),
        ("HardSigmoid", {"alpha": 0.3, "beta": 0.4}, 17),
        ("HardSwish", {}, 17),
        ("Elu", {"alpha": 0.7}, 17),
        ("Selu", {}, 17),
        ("Softplus", {}, 17),
        ("Softsign", {}, 17),
        ("Mish", {}, 18),
        ("Swish", {"alpha": 1.5}, 24),
        ("ThresholdedRelu", {"alpha": 0.5}, 17),
        ("Clip", {"min": -0.5, "max": 0.75}, 10),
    ],
)
def test_import(op_type: str, attrs: dict[str, Any], opset: int) -> None:
    check_model(op_type, {"x": random((3, 17))}, attrs, opset=opset)


def test_import_of_log() -> None:
    check_model("Log", {"x": np.abs(random((3, 17)))})


def test_import_of_prelu() -> None:
    check_model("PRelu", {"x": random((2, 3, 4)), "slope": random((3, 1), seed=1)})


def test_softplus_does_not_overflow() -> None:
    (got,) = check_model("Softplus", {"x": f32(1, 80)})
    assert got[1] == 80


@pytest.mark.parametrize("operands", [["x", "min", "max"], ["x", "min"], ["x", "", "max"], ["x"]])
def test_clip_with_constant_bounds(operands: list[str]) -> None:
    bounds = {name: f32(value)[0].reshape(()) for name, value in (("min", -0.5), ("max", 0.5))}
    check_model("Clip", {"x": random((40,))}, constants=bounds, operands=operands)


def test_clip_with_bounds_of_the_run() -> None:
    bounds = {"min": np.array(-0.5, np.float32), "max": np.array(0.5, np.float32)}
    check_model("Clip", {"x": random((40,))} | bounds)


def test_clip_of_integers() -> None:
    bounds = {"min": np.array(-2), "max": np.array(3)}
    check_model("Clip", {"x": random((40,), np.int64)}, constants=bounds)
