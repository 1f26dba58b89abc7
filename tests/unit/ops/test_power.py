"""Powers: special cases by IEEE 754, accuracy, and the exponents that are written out."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cuvil.errors import UnsupportedError
from cuvil.frontends.onnx import load_onnx
from cuvil.ops.power import POWER
from tests.judging import Case, judge, one_node
from tests.unit.ops.support import check_model, f32, model_of, random

ODD = (0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 2.0, -2.0, 3.0, -3.0, 0.5, -0.5, 1e-45, -1e-40)
LARGE = (3e38, -3e38, 16777215.0, -16777215.0, 16777216.0, 1e30, 2.5, -7.0)


def test_special_cases() -> None:
    values = f32(*ODD, *LARGE)
    x, y = (np.ascontiguousarray(grid) for grid in np.meshgrid(values, values))
    (found,) = judge(one_node(POWER, [x, y]), ulp=1)
    zeros = found == 0
    with np.errstate(all="ignore"):
        expected = np.power(x.astype(np.float64), y.astype(np.float64)).astype(np.float32)
    np.testing.assert_array_equal(np.signbit(found[zeros]), np.signbit(expected[zeros]))


def test_accuracy() -> None:
    """Across the whole range of results, and close to 1 where the logarithm cancels."""
    rng = np.random.default_rng(1)
    bases = np.concatenate([np.exp2(rng.uniform(-140, 127, 3000)), rng.uniform(0.99, 1.01, 3000)])
    x = bases.astype(np.float32)
    y = (rng.uniform(-126, 126, x.shape) / np.log2(x.astype(np.float64) + 1e-9)).astype(np.float32)
    (found,) = judge(one_node(POWER, [x, y]), ulp=1)
    exact = np.power(x.astype(np.longdouble), y.astype(np.longdouble))
    normal = np.isfinite(found) & (found > 2.0**-126)
    ulp = np.spacing(found[normal]).astype(np.longdouble)
    assert normal.sum() > 4000
    assert np.max(np.abs(found[normal] - exact[normal]) / ulp) < 0.55


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 5, 8, -1, -2, -8, 0.5, -0.5, 2.5, 11, -0.3])
def test_constant_exponents(exponent: float) -> None:
    x = np.abs(random((3, 4))) + np.float32(0.1)
    check_model("Pow", {"x": x}, constants={"e": f32(exponent)})


def test_the_base_broadcasts_to_the_exponent() -> None:
    x, y = np.abs(random((3, 1))) + np.float32(0.1), np.array([[1, 2, 3]])
    check_model("Pow", {"x": x}, constants={"e": y})
    check_model("Pow", {"x": x, "e": y})
    check_model("Pow", {"x": x}, constants={"e": np.full((1, 1, 1), 2, np.float32)})


def test_a_cube_is_two_products() -> None:
    x = random((50,))
    graph = load_onnx(model_of("Pow", {"x": x}, constants={"e": f32(3)})).graph
    np.testing.assert_array_equal(judge(Case(graph, [x]))[0], (x * x) * x)


def test_integers_have_small_whole_exponents() -> None:
    model = model_of("Pow", {"x": np.arange(3), "y": np.arange(3)})
    with pytest.raises(UnsupportedError, match="exponent on int64"):
        load_onnx(model)
