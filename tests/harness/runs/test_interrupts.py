"""Ctrl-C, a cancelled job, and a killed harness: nothing is left running, and what was done is kept."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.harness.runs.conftest import Laboratory

CELL = "torch-2.13.0/mlp/x86_64-linux"
FOREIGN = "torch-2.13.0/mlp/aarch64-linux"


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline, path
        time.sleep(0.05)


def results(laboratory: Laboratory) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((laboratory.folder / "run" / "results.json").read_text())
    return document


def started(laboratory: Laboratory, fault: str, log: str, *targets: str) -> subprocess.Popen[str]:
    """A run that hangs in the step whose log is named."""
    laboratory.plant(fault)
    laboratory.write_matrix(*targets)
    child = laboratory.start(*laboratory.arguments(), "--workers", "1")
    wait_for(laboratory.folder / "run" / "logs" / log)
    return child


@pytest.mark.parametrize(
    ("number", "fault", "log"),
    [
        (signal.SIGINT, "hang", f"{CELL}/run.log"),
        (signal.SIGTERM, "hang", f"{CELL}/run.log"),
        (signal.SIGINT, "hang-setup", "setup/python.log"),
        (signal.SIGTERM, "hang-capture", "torch-2.13.0/mlp/capture.log"),
        (signal.SIGINT, "hang-compile", f"{CELL}/compile.log"),
    ],
)
def test_an_interrupt_at_any_step(
    laboratory: Laboratory, number: signal.Signals, fault: str, log: str
) -> None:
    child = started(laboratory, fault, log)
    time.sleep(0.5)
    start = time.monotonic()
    for _ in range(3):  # an impatient user
        child.send_signal(number)
        time.sleep(0.1)
    out, _ = child.communicate(timeout=30)
    assert time.monotonic() - start < 6  # some two seconds on an idle machine
    assert child.returncode == 130, out
    assert "0 cells of 1, interrupted: none finished" in out
    assert "Traceback" not in out
    assert (results(laboratory)["complete"], results(laboratory)["cells"]) == (False, [])
    assert laboratory.living() == []


def test_what_was_done_before_an_interrupt_is_kept_and_the_rest_resumed(
    foreign_laboratory: Laboratory,
) -> None:
    laboratory = foreign_laboratory
    child = started(laboratory, "emulator-hang", f"{FOREIGN}/run.log", "x86_64-linux", "aarch64-linux")
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=30)
    assert child.returncode == 130, out
    assert "1 cell of 2, interrupted: 1 identical" in out
    assert [cell["id"] for cell in results(laboratory)["cells"]] == [CELL]
    laboratory.plant("")
    ran = laboratory.resume()
    assert ran.code == 0, ran.out
    assert "1 cell kept; 1 to run: 1 not done\n[1/1] torch-2.13.0/mlp/aarch64-linux: identical" in ran.out
    assert [cell["id"] for cell in ran.results["cells"]] == [CELL, FOREIGN]
    assert [cell["bit_identical"] for cell in ran.results["cells"]] == [None, True]


def test_a_killed_harness_leaves_a_run_that_can_be_resumed(foreign_laboratory: Laboratory) -> None:
    """SIGKILL leaves commands running, and may cut off a line: resuming ends the ones, drops the other."""
    laboratory = foreign_laboratory
    child = started(laboratory, "emulator-hang", f"{FOREIGN}/run.log", "x86_64-linux", "aarch64-linux")
    cells = laboratory.folder / "run" / "cells.jsonl"
    laboratory.plant("")
    refused = laboratory.resume()
    assert (refused.code, "run: the run is still going on" in refused.err) == (2, True)
    while not laboratory.living():  # the log is there before the command
        time.sleep(0.01)
    child.kill()
    child.communicate()
    assert laboratory.living() != []
    with cells.open("a") as file:
        file.write('{"id": "torch-2.13.0/mlp/aarch64-li')
    ran = laboratory.resume()
    assert ran.code == 0, ran.out
    assert "1 cell kept; 1 to run: 1 not done" in ran.out
    assert laboratory.living() == []
    lines = [json.loads(line) for line in cells.read_text().splitlines()]
    assert lines == ran.results["cells"]
