"""What this installation can compile, link and run."""

from __future__ import annotations

from typing import Any

from cuvil import __version__, toolchain
from cuvil.codegen.machine import llvm_version
from cuvil.errors import ToolchainError
from cuvil.targets.target import TARGET_NAMES, find_target

SCHEMA_VERSION = 1


def examine() -> dict[str, Any]:
    """The report that `cuvil doctor --json` prints."""
    return {
        "schema_version": SCHEMA_VERSION,
        "version": __version__,
        "llvm": llvm_version(),
        "targets": {name: _target(name) for name in TARGET_NAMES},
        "linker": _linker(),
    }


def _target(name: str) -> dict[str, Any]:
    target = find_target(name)
    native = _is_host(name)
    return {
        **_runtime(name),
        "elf_machine": toolchain.platform_of(name).elf_machine,
        "emulator": None if native else target.emulator,
        "emulator_arguments": [] if native else list(target.emulator_arguments),
        "sysroot": None if native else target.sysroot,
    }


def _runtime(name: str) -> dict[str, Any]:
    try:
        paths = toolchain.prebuilt(name)
    except ToolchainError as error:
        return {"runner": None, "runtime": None, "problem": error.render()}
    return {"runner": str(paths.runner), "runtime": str(paths.runtime)}


def _is_host(name: str) -> bool:
    try:
        return name == toolchain.host_target()
    except ToolchainError:
        return False


def _linker() -> list[str] | None:
    try:
        return toolchain.find_linker(TARGET_NAMES[0])
    except ToolchainError:
        return None


def render(report: dict[str, Any]) -> str:
    """The report for people."""
    lines = [f"cuvil {report['version']}, LLVM {report['llvm']}"]
    linker = report["linker"]
    lines.append(f"linker: {' '.join(linker) if linker else 'none (pip install cuvil-compiler[link])'}")
    for name, entry in report["targets"].items():
        how = "this machine" if entry["emulator"] is None else f"through {entry['emulator']}"
        lines.append(f"{name}: runs on {how}; runtime {entry['runtime'] or entry['problem']}")
    return "\n".join(lines)
