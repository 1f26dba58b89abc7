"""Rounding, signs, running sums, triangles and one-hot vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cuvil.ir.types import Array
from cuvil.ops.cum_sum import CUM_SUM
from cuvil.ops.rounding import CEIL, FLOOR, IS_NAN, ROUND, SIGN
from tests.judging import judge, one_node, special
from tests.unit.ops.support import check_model, f32, random

EDGES = (0.0, -0.0, 0.3, -0.3, 0.5, -0.5, 1.5, 2.5, -2.5, 0.99999994, 4194304.5, 8388607.5, 8388609.0, 1e-45)


@pytest.mark.parametrize("op", [ROUND, FLOOR, CEIL, SIGN], ids=lambda op: op.name)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_whole_numbers_keep_the_sign_of_zero(op: Any, dtype: type[Any]) -> None:
    edges = np.array([*EDGES, -8388607.5, 2.0**52 - 0.5, 2.0**52 + 1, -1e30], dtype)
    judge(one_node(op, [np.concatenate([edges, special(1, 50).astype(dtype)])]))


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_signs_of_integers(dtype: type[Any]) -> None:
    assert judge(one_node(SIGN, [np.array([-7, 0, 9], dtype)]))[0].tolist() == [-1, 0, 1]


def test_kinds_of_numbers() -> None:
    x = f32(np.nan, np.inf, -np.inf, 0, 1)
    assert judge(one_node(IS_NAN, [x]))[0].tolist() == [True, False, False, False, False]
    for positive, negative in ((1, 1), (0, 1), (1, 0), (0, 0)):
        check_model("IsInf", {"x": x}, {"detect_positive": positive, "detect_negative": negative})


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize(("exclusive", "reverse"), [(False, False), (True, False), (True, True)])
def test_running_sums(axis: int, exclusive: bool, reverse: bool) -> None:
    judge(
        one_node(CUM_SUM, [special(1, 3, 5, 4)], {"axis": axis, "exclusive": exclusive, "reverse": reverse})
    )


def test_running_sums_as_onnx_has_them() -> None:
    x = random((3, 5), np.int32)
    check_model("CumSum", {"x": x}, {"reverse": 1}, constants={"axis": np.array(-1)})


@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("k", [None, -1, 2])
def test_triangles(upper: int, k: int | None) -> None:
    constants: dict[str, Array] = {} if k is None else {"k": np.array(k)}
    check_model("Trilu", {"x": random((2, 4, 5))}, {"upper": upper}, constants=constants)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_one_hot(axis: int) -> None:
    inputs = {"at": np.array([[0, 3, -1], [2, -5, 7]]), "values": f32(-1, 5)}
    constants = {"depth": np.array(5)}
    check_model("OneHot", inputs, {"axis": axis}, constants=constants, operands=("at", "depth", "values"))
