"""Resizing in every mode, and transposed convolutions: their meaning by ONNX's reference, and their bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cuvil.errors import ModelError, UnsupportedError
from cuvil.frontends.onnx import load_onnx
from cuvil.ir.types import Array
from tests.judging import Case, judge, special
from tests.unit.ops.support import check_model, model_of, random

EMPTY = np.zeros(0, np.float32)


def resize(x: Array, scales: list[float] | None, sizes: list[int] | None = None, **attrs: Any) -> list[Array]:
    constants = {"roi": EMPTY, "scales": EMPTY if scales is None else np.array(scales, np.float32)}
    if sizes is not None:
        constants["sizes"] = np.array(sizes, np.int64)
    return check_model("Resize", {"x": x}, attrs, constants=constants, opset=19)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize(
    "coordinates", ["half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"]
)
def test_modes_and_coordinates(mode: str, coordinates: str) -> None:
    """A result of one element is left out: there the reference and the text of ONNX disagree."""
    attrs = {"mode": mode, "coordinate_transformation_mode": coordinates}
    resize(random((1, 2, 5, 3)), None, [1, 2, 7, 2], **attrs)


@pytest.mark.parametrize("nearest", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.int32])
def test_nearest_modes(nearest: str, dtype: type[Any]) -> None:
    x = random((1, 2, 6, 4), dtype)
    resize(x, [1, 1, 2, 0.5], mode="nearest", nearest_mode=nearest)


@pytest.mark.parametrize("axis_scales", [[2, 1, 1, 1], [1, 2, 1, 0.5], [1, 1, 1, 3]])
def test_any_axis_may_change(axis_scales: list[float]) -> None:
    resize(random((2, 3, 4, 6)), axis_scales, mode="linear")


def test_the_weights_of_a_cubic_filter() -> None:
    for outside in (0, 1):
        resize(
            random((1, 1, 4, 5)), [1, 1, 2, 1.6], mode="cubic", cubic_coeff_a=-0.5, exclude_outside=outside
        )


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_bits(mode: str) -> None:
    x = special(1, 2, 3, 6, 4)
    constants = {"roi": EMPTY, "scales": np.array([1, 1, 2, 1.5], np.float32)}
    model = model_of("Resize", {"x": x}, {"mode": mode}, constants=constants)
    judge(Case(load_onnx(model).graph, [x]))


def test_both_taps_of_a_linear_result_count_even_with_weight_zero() -> None:
    x = np.array([[[1, np.inf, 2]]], np.float32)
    constants: dict[str, Array] = {"roi": EMPTY, "scales": EMPTY, "sizes": np.array([1, 1, 5])}
    attrs = {"mode": "linear", "coordinate_transformation_mode": "align_corners"}
    (y,) = judge(Case(load_onnx(model_of("Resize", {"x": x}, attrs, constants=constants)).graph, [x]))
    np.testing.assert_array_equal(y, [[[np.nan, np.inf, np.inf, np.inf, 2]]])


@pytest.mark.parametrize(
    ("attrs", "scales", "what"),
    [
        ({"mode": "linear", "antialias": 1}, [1, 1, 0.5, 1], "antialias"),
        (
            {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
            [1, 1, 0.6, 1],
            "whole extent",
        ),
    ],
)
def test_other_forms_are_refused(attrs: dict[str, Any], scales: list[float], what: str) -> None:
    constants = {"roi": EMPTY, "scales": np.array(scales, np.float32)}
    with pytest.raises(UnsupportedError, match=what):
        load_onnx(model_of("Resize", {"x": random((1, 1, 4, 4))}, attrs, constants=constants, opset=19))


def test_scales_must_fit() -> None:
    for scales, what in (([2.0, 2.0], "expected 4 numbers, got 2"), ([1.0, 1, 0, 1], "must be positive")):
        constants = {"roi": EMPTY, "scales": np.array(scales, np.float32)}
        with pytest.raises(ModelError, match=what):
            load_onnx(model_of("Resize", {"x": random((1, 1, 4, 4))}, constants=constants))


FORMS: list[dict[str, Any]] = [
    {"strides": (2, 2)},
    {"strides": (3, 2), "pads": (1, 0, 2, 1), "output_padding": (1, 1)},
    {"strides": (2, 1), "dilations": (2, 3)},
    {"strides": (2, 2), "group": 2},
    {"pads": (2, 2, 2, 2)},
    {"strides": (2, 2), "auto_pad": "SAME_UPPER"},
]


@pytest.mark.parametrize("attrs", FORMS, ids=str)
def test_transposed_convolution(attrs: dict[str, Any]) -> None:
    x, groups = random((1, 4, 3, 4)), attrs.get("group", 1)
    constants = {"w": random((4, 6 // groups, 3, 3), seed=1), "b": random((6,), seed=2)}
    if groups == 1:
        check_model("ConvTranspose", {"x": x}, attrs, constants=constants)
    graph = load_onnx(model_of("ConvTranspose", {"x": x}, attrs, constants=constants)).graph
    (y,) = judge(Case(graph, [x]))
    np.testing.assert_allclose(y, scattered(x, constants["w"], constants["b"], attrs, y.shape), atol=1e-5)


def scattered(x: Array, w: Array, bias: Array, attrs: dict[str, Any], shape: tuple[int, ...]) -> Array:
    """A transposed convolution by its definition: every pixel adds a filter to the result."""
    groups = attrs.get("group", 1)
    (sy, sx), (dy, dx) = attrs.get("strides", (1, 1)), attrs.get("dilations", (1, 1))
    inner = w.shape[1]
    full = np.zeros((shape[0], groups * inner, 64, 64))
    for c, oc, ky, kx in np.ndindex(*w.shape):
        out = full[:, c // (len(w) // groups) * inner + oc, ky * dy :, kx * dx :]
        out[:, : sy * x.shape[2] : sy, : sx * x.shape[3] : sx] += (
            w[c, oc, ky, kx].astype(np.float64) * x[:, c]
        )
    top, left = attrs.get("pads", (0, 0, 0, 0))[:2]
    return np.asarray(full[:, :, top : top + shape[2], left : left + shape[3]] + bias[:, None, None])


def test_weights_of_the_run_are_refused() -> None:
    model = model_of("ConvTranspose", {"x": random((1, 2, 4, 4)), "w": random((2, 3, 3, 3))})
    with pytest.raises(UnsupportedError, match="weights that are not constant"):
        load_onnx(model)
