"""Matrix products and convolutions."""

from __future__ import annotations

import numpy as np
import pytest

from cuvil.errors import ModelError
from cuvil.exact import fma32
from cuvil.ir.types import FLOAT32, Array, TensorType
from cuvil.ops.conv import CONV
from cuvil.ops.matmul import MATMUL
from tests.judging import judge, one_node, random, special

PLAIN = {"groups": 1, "strides": (1, 1), "dilations": (1, 1)}


def chain(a: Array, b: Array) -> Array:
    """The definition, one element at a time."""
    rows, depth = a.shape
    result = np.zeros((rows, b.shape[1]), np.float32)
    for i in range(rows):
        for j in range(b.shape[1]):
            acc: Array = np.zeros((), np.float32)
            for k in range(depth):
                acc = fma32(a[i, k, None], b[k, j, None], acc.reshape(1))
            result[i, j] = acc[0]
    return result


def test_matmul_is_one_chain_a_result() -> None:
    a, b = random(1, 3, 21), random(2, 21, 4)
    (result,) = judge(one_node(MATMUL, [a, b]))
    np.testing.assert_array_equal(result, chain(a, b))


@pytest.mark.parametrize("constants", [(), (1,)], ids=["run time", "packed"])
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((1, 64), (64, 10)),
        ((13, 37), (37, 29)),
        ((7, 1), (1, 50)),
        ((2, 3, 9, 8), (8, 17)),
        ((2, 3, 9, 8), (2, 3, 8, 17)),
        ((2, 1, 9, 8), (3, 8, 17)),
        ((9, 8), (2, 3, 8, 17)),
        ((30, 5), (5, 100)),
    ],
    ids=str,
)
def test_matmul_shapes(left: tuple[int, ...], right: tuple[int, ...], constants: tuple[int, ...]) -> None:
    judge(one_node(MATMUL, [random(1, *left), random(2, *right)], constants=constants))


def test_matmul_spreads_special_values() -> None:
    judge(one_node(MATMUL, [special(1, 9, 12), special(2, 12, 20)], constants=(1,)))


def test_matmul_beyond_the_cache_takes_panels_first() -> None:
    judge(one_node(MATMUL, [random(1, 9, 600), random(2, 600, 256)], constants=(1,)))


@pytest.mark.parametrize(
    ("left", "right"), [((3, 4), (5, 6)), ((4,), (4, 5)), ((2, 3, 4), (3, 4, 5))], ids=str
)
def test_matmul_refuses_what_does_not_fit(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    with pytest.raises(ModelError, match="matmul"):
        MATMUL.infer([TensorType(FLOAT32, left), TensorType(FLOAT32, right)], {})


@pytest.mark.parametrize("constants", [(), (1,)], ids=["run time", "packed"])
@pytest.mark.parametrize(
    ("image", "weights", "attrs"),
    [
        ((2, 9, 11, 5), (19, 3, 3, 5), {}),
        ((1, 8, 8, 3), (33, 1, 1, 3), {}),
        ((2, 9, 11, 5), (19, 3, 3, 5), {"strides": (2, 2)}),
        ((1, 9, 11, 4), (6, 1, 1, 4), {"strides": (2, 3)}),
        ((1, 9, 11, 4), (6, 3, 2, 4), {"dilations": (2, 3)}),
        ((2, 7, 8, 6), (8, 3, 3, 3), {"groups": 2}),
        ((2, 7, 8, 6), (12, 3, 3, 1), {"groups": 6}),
        ((2, 7, 8, 13), (13, 3, 3, 1), {"groups": 13}),
        ((1, 7, 8, 9), (9, 3, 2, 1), {"groups": 9, "strides": (2, 1), "dilations": (1, 2)}),
        ((1, 1, 20, 4), (7, 1, 5, 4), {}),
        ((1, 3, 3, 2), (4, 3, 3, 2), {}),
    ],
    ids=str,
)
def test_conv_shapes(
    image: tuple[int, ...], weights: tuple[int, ...], attrs: dict[str, object], constants: tuple[int, ...]
) -> None:
    case = one_node(CONV, [random(1, *image), random(2, *weights)], {**PLAIN, **attrs}, constants)
    judge(case)


def test_conv_spreads_special_values() -> None:
    judge(one_node(CONV, [special(1, 1, 6, 7, 3), random(2, 5, 3, 3, 3)], PLAIN, constants=(1,)))


def test_conv_refuses_groups_that_do_not_divide() -> None:
    types = [TensorType(FLOAT32, (1, 5, 5, 64)), TensorType(FLOAT32, (8, 3, 3, 64))]
    with pytest.raises(ModelError, match="groups must divide the channels"):
        CONV.infer(types, {**PLAIN, "groups": 3})
