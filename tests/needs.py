"""Tools that tests need: without one a test is skipped, or fails where `CUVIL_REQUIRE` lists the tool."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from cuvil import toolchain
from cuvil.targets.target import find_target


def need(tool: str, present: bool) -> None:
    """Ends the test unless the tool is there."""
    if present:
        return
    if tool in os.environ.get("CUVIL_REQUIRE", "").split(","):
        pytest.fail(f"{tool} is missing, and CUVIL_REQUIRE lists it")
    pytest.skip(f"{tool} is missing")


def need_program(tool: str) -> str:
    """The path of a program."""
    path = shutil.which(tool)
    need(tool, path is not None)
    return str(path)


def need_target(name: str) -> None:
    """Ends the test unless programs of the target can run here, natively or through its emulator."""
    if name == toolchain.host_target():
        return
    target = find_target(name)
    runs = shutil.which(target.emulator) is not None and Path(target.sysroot, "lib").is_dir()
    need(target.emulator, runs)
