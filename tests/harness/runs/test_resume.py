"""`--resume`: what is kept, what is run again and why, and which folders are refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.harness.runs.conftest import Laboratory

CELL = "torch-2.13.0/mlp/x86_64-linux"


@pytest.fixture
def finished(shared_laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch) -> Laboratory:
    """A laboratory whose folder `run` holds a clean run, each time as it was."""
    laboratory, whole = shared_laboratory, shared_laboratory.folder / "whole"
    monkeypatch.setenv("STAND_IN_FAULT", "")
    if not whole.exists():
        ran = laboratory.run(name="whole")
        assert ran.code == 0, ran.out
    laboratory.write_matrix()
    shutil.rmtree(laboratory.folder / "run", ignore_errors=True)
    shutil.copytree(whole, laboratory.folder / "run")
    return laboratory


def test_a_clean_run_is_kept_as_it_is(finished: Laboratory) -> None:
    before = json.loads((finished.folder / "run" / "results.json").read_text())["cells"]
    ran = finished.resume()
    assert (ran.code, ran.results["cells"]) == (0, before)
    assert ran.out.startswith("1 cell kept\n")
    assert sorted(before[0]["inputs"]) == sorted(
        ("harness", "matrix", "python", "compiler", "machine", "capture", "golden")
    )


def damage_output(folder: Path) -> None:
    path = folder / "run" / "outputs" / CELL / "ordinary" / "000.bin"
    path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])


def damage_capture(folder: Path) -> None:
    (folder / "run" / "captures" / "torch-2.13.0" / "mlp" / "model.onnx").write_bytes(b"other")


def remove_outputs(folder: Path) -> None:
    shutil.rmtree(folder / "run" / "outputs")


def change_timeout(folder: Path) -> None:
    matrix = folder / "matrix.toml"
    matrix.write_text(matrix.read_text().replace("run = 60", "run = 61"))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (damage_output, "its files are damaged"),
        (remove_outputs, "its files are damaged"),
        (damage_capture, "capture changed"),
        (change_timeout, "matrix changed"),
    ],
)
def test_a_cell_is_run_again(finished: Laboratory, change: Callable[[Path], None], reason: str) -> None:
    change(finished.folder)
    ran = finished.resume()
    assert ran.code == 0, ran.out
    assert ran.out.startswith(f"0 cells kept; 1 to run: 1 {reason}\n")
    assert ran.cell["verdict"] == "identical"
    assert len((finished.folder / "run" / "cells.jsonl").read_text().splitlines()) == 1


def test_another_compiler_of_the_same_version(finished: Laboratory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_DIGEST", "second")
    monkeypatch.setenv("STAND_IN_FAULT", "mismatch")
    ran = finished.resume()
    assert (ran.code, ran.cell["verdict"]) == (1, "mismatch"), ran.out
    assert ran.out.startswith("0 cells kept; 1 to run: 1 compiler changed\n")
    monkeypatch.setenv("STAND_IN_FAULT", "")
    assert finished.resume().out.startswith("0 cells kept; 1 to run: 1 mismatch\n")


def test_the_first_target_takes_the_others_with_it(foreign_laboratory: Laboratory) -> None:
    """They were compared with its bits, and it may have others now."""
    laboratory = foreign_laboratory
    assert laboratory.run("x86_64-linux", "aarch64-linux").code == 0
    damage_output(laboratory.folder)
    ran = laboratory.resume()
    assert ran.code == 0, ran.out
    assert "0 cells kept; 2 to run: 1 its files are damaged, 1 x86_64-linux is run again\n" in ran.out


def test_a_selection_is_resumed_as_it_was(finished: Laboratory) -> None:
    finished.write_matrix("x86_64-linux", "aarch64-linux")
    ran = finished.resume()
    assert (ran.code, ran.results["planned"]) == (0, [CELL])


def test_folders_and_options_that_are_refused(finished: Laboratory, tmp_path: Path) -> None:
    def words(*extra: str, name: str = "run") -> str:
        ran = finished.resume(name, *extra)
        assert ran.code == 2
        return ran.err

    assert "no run to continue; expected the folder of a run, with its plan.json" in words(name="absent")
    assert "--resume: does not go with -k" in words("-k", "mlp")
    assert "--resume: does not go with --output-dir" in words("--output-dir", str(tmp_path))
    cells = finished.folder / "run" / "cells.jsonl"
    cells.write_text("{}\n" + cells.read_text())
    assert "cells.jsonl:1: is damaged: expected a finished cell" in words()
    finished.write_matrix("aarch64-linux")
    assert f"a run of another matrix; matrix.toml has no cell '{CELL}'" in words()
    plan = finished.folder / "run" / "plan.json"
    plan.write_text(plan.read_text().replace('"matrix.toml"', '"other.toml"'))
    assert "a run of another matrix; expected 'matrix.toml', got 'other.toml'" in words()
    plan.write_text("{}")
    assert "plan.json: is damaged: $: " in words()
