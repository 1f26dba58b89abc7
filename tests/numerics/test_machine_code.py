"""Generated code against the interpreter: random kernels, at the widths of all targets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cuvil.interp import run_kernel
from cuvil.ir.types import Array
from cuvil.loops.kernel import Kernel
from tests.numerics.compiled import load, this_machine
from tests.numerics.random_kernels import random_kernel, special_inputs

SEEDS = range(60)


def same_bits(actual: Array, expected: Array) -> bool:
    """Equal bits, all NaNs being alike."""
    if actual.dtype.kind != "f":
        return np.array_equal(actual, expected)
    words = f"i{actual.itemsize}"
    both_nan = np.isnan(actual) & np.isnan(expected)
    return bool(np.all((actual.view(words) == expected.view(words)) | both_nan))


def check_same(kernel: Kernel, given: list[Array], actual: list[Array]) -> None:
    expected = [array.copy() for array in given]
    run_kernel(kernel, expected)
    for param, got, wanted in zip(kernel.params, actual, expected, strict=True):
        assert same_bits(got, wanted), param.name


@pytest.mark.parametrize("vector_bits", [32, 128, 256])
@pytest.mark.parametrize("seed", SEEDS)
def test_random_kernels_compute_the_interpreter_s_bits(seed: int, vector_bits: int) -> None:
    kernel = random_kernel(seed)
    given = special_inputs(kernel, seed)
    actual = [array.copy() for array in given]
    load(kernel, replace(this_machine(), vector_bits=vector_bits))(*actual, begin=0, end=1)
    check_same(kernel, given, actual)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_kernels_do_not_depend_on_the_order(seed: int) -> None:
    kernel = random_kernel(seed)
    given = special_inputs(kernel, seed)
    actual = [array.copy() for array in given]
    run_kernel(kernel, actual, order="descending")
    check_same(kernel, given, actual)
