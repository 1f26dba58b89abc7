"""A run folder that is full, or can't be written to any more: one line, exit code 3, and no lost cell."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.needs import need

if TYPE_CHECKING:
    from tests.harness.runs.conftest import Laboratory

FULL = "/dev/full"
"""Every write to it fails as on a full disk."""


def plant_file(laboratory: Laboratory, path: str, *, target: str = FULL) -> None:
    """Have the capture leave a link at a place of the run's folder that the harness is going to write to."""
    laboratory.environment.setenv("STAND_IN_LINK", f"{laboratory.folder / 'run' / path}={target}")


@pytest.mark.parametrize(
    ("path", "target", "reason"),
    [
        ("logs/torch-2.13.0/mlp/x86_64-linux/compile.log", FULL, "no space left on device"),
        ("logs/torch-2.13.0/mlp/x86_64-linux/run.log", FULL, "no space left on device"),
        ("results.json.part", FULL, "no space left on device"),
        ("libraries", "/dev/null", "not a directory"),
        ("goldens", "/dev/null", "not a directory"),
    ],
)
def test_a_folder_that_takes_no_more(laboratory: Laboratory, path: str, target: str, reason: str) -> None:
    plant_file(laboratory, path, target=target)
    ran = laboratory.run()
    assert ran.code == 3, ran.err + ran.out
    folder = laboratory.folder / "run"
    assert ran.err.splitlines() == [
        f"run folder '{folder}': can't be written to: {reason}",
        f"hint: what was done is kept: make room, then continue by --resume {folder}",
    ]
    (folder / path).unlink()
    laboratory.environment.delenv("STAND_IN_LINK")
    assert laboratory.resume().code == 0


def test_a_command_that_failed_for_want_of_space_is_no_finding(laboratory: Laboratory) -> None:
    """A file system of its own, which the compiler fills: the cell is not to blame."""
    small = laboratory.folder / "run"
    small.mkdir()
    mount = f"mount -t tmpfs -o size=3m tmpfs '{small}'"
    need("unshare", subprocess.run(["unshare", "-rm", "sh", "-c", mount], check=False).returncode == 0)
    laboratory.plant("fill")
    laboratory.write_matrix()
    arguments = " ".join(f"'{word}'" for word in laboratory.arguments())
    script = f"{mount} && exec '{sys.executable}' -m cuvil_regress.cli {arguments}"
    ran = subprocess.run(["unshare", "-rm", "sh", "-c", script], capture_output=True, text=True, check=False)
    assert ran.returncode == 3, ran.stdout + ran.stderr
    assert f"run folder '{Path(small)}': can't be written to: no space left on device\n" in ran.stderr
    assert "compile-failure" not in ran.stdout
