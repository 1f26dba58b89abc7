"""The whole line: PyTorch, compiler, three machines, judge; by the commands that a user gives."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cuvil import toolchain
from cuvil.native import find_obstacle
from cuvil.targets.target import TARGET_NAMES, find_target
from tests.needs import need, need_target

GOLDEN = Path(__file__).parents[2] / "golden"


def _cells() -> list[str]:
    """This machine first, whose bits the others are held to; a target with machines on each of them."""
    records = sorted(map(find_target, TARGET_NAMES), key=lambda each: each.name != toolchain.host_target())
    host = toolchain.host_target()
    able = [each for each in records if each.platform != host or find_obstacle(each) is None]
    return [f"{each.name}@{name}" if name else each.name for each in able for name in each.machines or ("",)]


TARGETS = _cells()

MATRIX = """
golden = {golden}
[axes]
torch = [{torch}]
model = ["mlp"]
target = {targets}
"""


def harness(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cuvil_regress.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one run of the perceptron on every target."""
    for module in ("torch", "ziglang"):
        need(module, importlib.util.find_spec(module) is not None)
    for target in TARGETS:
        need_target(target.partition("@")[0])
    folder = tmp_path_factory.mktemp("matrix")
    torch = importlib.metadata.version("torch").partition("+")[0]
    values = {"golden": str(GOLDEN), "torch": torch, "targets": TARGETS}
    text = MATRIX.format(**{key: json.dumps(value) for key, value in values.items()})
    (folder / "m.toml").write_text(text)
    compiler = f"'{sys.executable}' -m cuvil.cli"
    finished = harness(
        "matrix", "run", folder / "m.toml", "--output-dir", folder / "run", "--compiler", compiler
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return folder / "run"


def cells(run: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((run / "results.json").read_text())["cells"]
    assert [cell["target"] for cell in found] == TARGETS
    return found


def test_every_target_is_within_tolerance_of_the_float64_golden(run: Path) -> None:
    for cell in cells(run):
        assert cell["verdict"] == "within-tolerance", cell
        assert 0 < cell["share_of_allowed"] < 1
        assert len(cell["outputs"]) == 4
        assert (cell["abi_conflicts"], cell["abi_missing"], cell["findings"]) == (0, 0, [])


def test_every_target_gives_the_bits_of_the_first(run: Path) -> None:
    first, *others = cells(run)
    assert first["bit_identical"] is None
    for cell in others:
        assert cell["bit_identical"] is True
        assert {output["reference"] for output in cell["outputs"]} == {TARGETS[0]}
        assert [output["sha256"] for output in cell["outputs"]] == [
            output["sha256"] for output in first["outputs"]
        ]


def test_a_run_equals_itself(run: Path, tmp_path: Path) -> None:
    finished = harness("compare", run, run, "--output", tmp_path / "compare.json")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    pairs = json.loads((tmp_path / "compare.json").read_text())["pairs"]
    assert [(pair["verdict"], pair["bit_identical"]) for pair in pairs] == [("identical", True)] * len(
        TARGETS
    )
