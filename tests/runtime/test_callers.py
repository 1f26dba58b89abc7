"""Compiled models under difficult callers: misaligned buffers, and a hostile floating-point state."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from cuvil.driver import Options, compile_model
from tests.e2e.models import attention, convolution, product

from .conftest import Machine, ProgramBuilder

COLUMNS = (1, 7, 8, 9, 33)
MODELS = {
    **{f"product-{columns}": product(2, columns, columns) for columns in COLUMNS},
    "convolution": convolution(10, 3, 20),
    "attention": attention(9, 32, 4),
}

Compile = Callable[[Machine, str], Path]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compile:
    """Compiles a model for a machine, once."""
    built: dict[tuple[str, str], Path] = {}

    def build(machine: Machine, name: str) -> Path:
        key = (machine.target, name)
        if key not in built:
            built[key] = tmp_path_factory.mktemp(name) / "libmodel.so"
            model: onnx.ModelProto = MODELS[name]
            compile_model(model, Options(machine.target)).save(built[key])
        return built[key]

    return build


@pytest.mark.parametrize("name", MODELS)
def test_buffers_need_no_more_alignment_than_their_elements(
    machine: Machine, build_program: ProgramBuilder, compiled: Compile, name: str
) -> None:
    """Code that moves whole aligned vectors crashes on a view that starts 4 bytes into a buffer.

    Allocators hide that most of the time. Sizes around a vector's width, every offset below 64 bytes, inputs
    and outputs alike: the same bits as with aligned buffers, and no byte before or behind them is touched.
    """
    machine.run(build_program(machine, source="caller.c"), "misaligned", compiled(machine, name))


@pytest.mark.parametrize("name", ["product-33", "convolution", "attention"])
def test_compiled_models_compute_in_their_own_floating_point_state(
    machine: Machine, build_program: ProgramBuilder, compiled: Compile, name: str
) -> None:
    """A caller that flushes subnormals and rounds down, up or toward zero gets the same bits.

    With one thread and with three; and its state is what it was when it gets control back.
    """
    machine.run(build_program(machine), "hostile", "none")  # these states do change arithmetic
    machine.run(build_program(machine, source="caller.c"), "hostile", compiled(machine, name))
