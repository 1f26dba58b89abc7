"""The shape of the project: layers, lazy imports, and registries that equal the files."""

from __future__ import annotations

import importlib
import os
import pkgutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import cuvil.ops
import cuvil.passes
import cuvil.targets
from cuvil import driver
from cuvil.ops.registry import onnx_importers, operators
from cuvil.targets.target import TARGET_NAMES, find_target

ROOT = Path(__file__).parent.parent

OPS_INFRASTRUCTURE = {
    "axes",
    "context",
    "elementary",
    "foreign",
    "pointwise",
    "recurrent",
    "registry",
    "strided",
    "tiled",
    "window",
}
"""Modules of `cuvil.ops` that serve operators and offer none."""


def _names(package: ModuleType) -> list[str]:
    return [info.name for info in pkgutil.iter_modules(package.__path__)]


def _op_modules() -> Iterator[ModuleType]:
    for name in _names(cuvil.ops):
        yield importlib.import_module(f"cuvil.ops.{name}")


def test_import_contracts_hold() -> None:
    tool = Path(sys.executable).with_name("lint-imports")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "harness")))}
    finished = subprocess.run(
        [tool, "--no-cache"], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr


def test_importing_cuvil_loads_nothing_heavy() -> None:
    program = "import sys, cuvil; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    heavy = {"torch", "onnx", "llvmlite", "numpy", "cffi", "cuvil_regress"}
    assert not heavy.intersection(loaded.stdout.split())


def test_every_module_of_ops_offers_operators_or_is_infrastructure() -> None:
    idle = {
        module.__name__.rpartition(".")[2]
        for module in _op_modules()
        if not hasattr(module, "OPERATORS") and not hasattr(module, "ONNX")
    }
    assert idle == OPS_INFRASTRUCTURE


def test_operators_have_one_definition_each() -> None:
    defined = Counter(op.name for module in _op_modules() for op in getattr(module, "OPERATORS", ()))
    assert {name: count for name, count in defined.items() if count > 1} == {}
    assert set(operators()) == set(defined)


def test_onnx_types_have_one_importer_each() -> None:
    defined = Counter(name for module in _op_modules() for name in getattr(module, "ONNX", {}))
    assert {name: count for name, count in defined.items() if count > 1} == {}
    assert set(onnx_importers()) == set(defined)


def test_a_file_is_a_pass_of_its_name_and_the_driver_runs_it() -> None:
    assert {run.__name__ for run in driver.PASSES} == set(_names(cuvil.passes))
    for run in driver.PASSES:
        assert run.__module__ == f"cuvil.passes.{run.__name__}"


def test_a_file_is_a_target_of_its_name() -> None:
    files = set(_names(cuvil.targets)) - {"target"}
    assert files == {name.replace("-", "_") for name in TARGET_NAMES}


@pytest.mark.parametrize("name", TARGET_NAMES)
def test_targets_carry_their_name(name: str) -> None:
    assert find_target(name).name == name
