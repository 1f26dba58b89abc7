"""Tools that tests need: without one a test is skipped, or fails where `CUVIL_REQUIRE` lists the tool."""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from cuvil import toolchain
from cuvil.native import find_obstacle
from cuvil.targets.target import find_target


def need(tool: str, present: bool) -> None:
    """Ends the test unless the tool is there."""
    if present:
        return
    if tool in os.environ.get("CUVIL_REQUIRE", "").split(","):
        pytest.fail(f"{tool} is missing, and CUVIL_REQUIRE lists it")
    pytest.skip(f"{tool} is missing", allow_module_level=True)


def need_program(tool: str) -> str:
    """The path of a program."""
    path = shutil.which(tool)
    need(tool, path is not None)
    return str(path)


def need_module(name: str) -> Any:
    """A Python module, imported."""
    need(name, importlib.util.find_spec(name) is not None)
    return importlib.import_module(name)


def need_target(name: str) -> None:
    """Ends the test unless programs of the target can run here, natively or through its emulator."""
    target = find_target(name)
    if target.platform == toolchain.host_target():
        need(name, find_obstacle(target) is None)
        return
    runs = shutil.which(target.emulator) is not None and Path(target.sysroot, "lib").is_dir()
    need(target.emulator, runs)
