"""What this installation can compile, link and run."""

from __future__ import annotations

import hashlib
import shlex
import shutil
from pathlib import Path
from typing import Any

from cuvil import __version__, toolchain
from cuvil.codegen.machine import llvm_version
from cuvil.errors import ToolchainError
from cuvil.native import find_obstacle
from cuvil.targets.target import TARGET_NAMES, find_target

SCHEMA_VERSION = 1


def examine() -> dict[str, Any]:
    """The report that `cuvil doctor --json` prints."""
    return {
        "schema_version": SCHEMA_VERSION,
        "version": __version__,
        "digest": _digest(),
        "llvm": llvm_version(),
        "targets": {name: _target(name) for name in TARGET_NAMES},
        **_linker(),
    }


def _digest() -> str:
    """Of all files of the package: equal digests, equal compilers, whatever the version says."""
    package = Path(__file__).parent
    paths = sorted(path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    digests = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()} {path.relative_to(package)}" for path in paths
    ]
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


def _target(name: str) -> dict[str, Any]:
    target = find_target(name)
    native = _is_host(target.platform)
    runtime = _runtime(target.platform)
    return {
        **runtime,
        "elf_machine": toolchain.platform_of(target.platform).elf_machine,
        "obstacle": find_obstacle(target) if native and runtime["runtime"] else None,
        "emulator": None if native else target.emulator,
        "emulator_arguments": [] if native else list(target.emulator_arguments),
        "machines": {machine: list(arguments) for machine, arguments in target.machines.items()},
        "sysroot": None if native else target.sysroot,
    }


def _runtime(platform: str) -> dict[str, Any]:
    try:
        paths = toolchain.prebuilt(platform)
    except ToolchainError as error:
        return {"runner": None, "runtime": None, "problem": error.render()}
    return {"runner": str(paths.runner), "runtime": str(paths.runtime)}


def _is_host(platform: str) -> bool:
    try:
        return platform == toolchain.host_target()
    except ToolchainError:
        return False


def _linker() -> dict[str, Any]:
    try:
        return {"linker": toolchain.find_linker(TARGET_NAMES[0])}
    except ToolchainError as error:
        return {"linker": None, "linker_problem": error.render()}


def render(report: dict[str, Any]) -> str:
    """The report for people."""
    lines = [f"cuvil {report['version']}, LLVM {report['llvm']}"]
    lines += _paragraph("linker", shlex.join(report["linker"] or ()) or report["linker_problem"])
    for name, entry in report["targets"].items():
        lines += _paragraph(name, f"{_how(entry)}; runtime {entry['runtime'] or entry['problem']}")
    return "\n".join(lines)


def _how(entry: dict[str, Any]) -> str:
    """Where programs of a target run."""
    emulator, sysroot = entry["emulator"], entry["sysroot"]
    if emulator is None:
        return f"compiles; to run {entry['obstacle']}" if entry["obstacle"] else "runs on this machine"
    if shutil.which(emulator) is None:
        return f"compiles; to run needs {emulator}, which is not installed"
    if not Path(sysroot, "lib").is_dir():
        return f"compiles; to run with {emulator} needs a C library in {sysroot}, which is not installed"
    return f"runs with {emulator}"


def _paragraph(name: str, text: str) -> list[str]:
    """One line, and below it what belongs to it."""
    first, *others = text.splitlines()
    return [f"{name}: {first}", *(f"  {line}" for line in others)]
