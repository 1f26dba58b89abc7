"""Machine code against the expectations of ONNX's node tests, and against the interpreter."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import cuvil
from cuvil.driver import Options, run_stages
from cuvil.errors import UnsupportedError
from cuvil.frontends.onnx import load_onnx
from cuvil.interp import run_program
from cuvil.toolchain import host_target
from tests.conformance.node_cases import NodeCase, node_cases
from tests.judging import assert_same_bits

UNSUPPORTED = Path(__file__).with_name("unsupported.txt")
LOOSE_EXPECTATION = {"test_averagepool_2d_ceil_last_window_starts_on_pad": 1e-3}
"""Cases whose expected outputs are written with few digits."""


def unsupported_cases() -> list[str]:
    return UNSUPPORTED.read_text().split()


def supported_cases() -> list[NodeCase]:
    refused = set(unsupported_cases())
    return [case for case in node_cases().values() if case.name not in refused]


@pytest.mark.parametrize("name", unsupported_cases())
def test_refused(name: str) -> None:
    """The list is exact: a case that is supported by now must leave it."""
    case = node_cases().get(name)
    if case is None:
        pytest.skip("this version of the onnx package has no such case")
    with pytest.raises(UnsupportedError):
        load_onnx(case.model)


@pytest.mark.parametrize("case", supported_cases(), ids=lambda case: case.name)
def test_case(case: NodeCase) -> None:
    compiled = cuvil.compile(case.model)
    outputs = list(compiled.run(case.inputs).values())
    program = run_stages(case.model, Options(host_target())).program
    inputs = [case.inputs[value.name] for value in program.inputs]
    shaped = [
        array.reshape(output.shape)
        for array, output in zip(run_program(program, inputs), outputs, strict=True)
    ]
    assert_same_bits(outputs, shaped, case.name)
    tolerance = LOOSE_EXPECTATION.get(case.name, 1e-5)
    for output, expected in zip(outputs, case.outputs, strict=True):
        assert output.dtype == expected.dtype
        assert output.shape == expected.shape
        np.testing.assert_allclose(output, expected, rtol=tolerance, atol=1e-6)
