"""A laboratory for whole runs: stand-ins for the tools around the harness, each following its contract."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from cuvil_regress import cli
from tests.needs import need_module, need_program

STAND_INS = Path(__file__).parent / "stand_ins"
ROOT = Path(__file__).parents[3]

RUNTIME = "libcuvil_runtime.so.1"
RUNTIME_SOURCE = "int cuvil_abi_version(void) { return 1; }"

MATRIX = """
golden = "golden"
[axes]
torch = ["2.13.0"]
model = ["mlp"]
target = [{targets}]
[timeouts_s]
run = {timeout_s}
"""


@dataclass(frozen=True)
class Ran:
    """A run of the command line that has ended."""

    code: int
    out: str
    err: str
    folder: Path

    @property
    def results(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((self.folder / "results.json").read_text())
        return document

    @property
    def cell(self) -> dict[str, Any]:
        """The only cell, or the last."""
        cell: dict[str, Any] = self.results["cells"][-1]
        return cell


@dataclass
class Laboratory:
    """A folder with goldens, a matrix and the stand-ins."""

    folder: Path
    environment: pytest.MonkeyPatch

    @property
    def compiler(self) -> str:
        return f"{sys.executable} {STAND_INS / 'cuvil.py'}"

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python-with-torch")

    def plant(self, fault: str) -> None:
        self.environment.setenv("STAND_IN_FAULT", fault)

    def write_matrix(self, *targets: str, timeout_s: float = 60) -> Path:
        path = self.folder / "matrix.toml"
        names = ", ".join(map(repr, targets or ("x86_64-linux",)))
        path.write_text(MATRIX.format(targets=names, timeout_s=timeout_s))
        return path

    def arguments(self, name: str = "run") -> list[str]:
        return [
            *("matrix", "run", str(self.folder / "matrix.toml"), "--output-dir", str(self.folder / name)),
            *("--compiler", self.compiler, "--python", self.python),
        ]

    def run(
        self, *targets: str, name: str = "run", extra: tuple[str, ...] = (), timeout_s: float = 60
    ) -> Ran:
        self.write_matrix(*targets, timeout_s=timeout_s)
        return self.call(*self.arguments(name), *extra, folder=self.folder / name)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """The command line as a process of its own."""
        command = [sys.executable, "-m", "cuvil_regress.cli", *arguments]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def living(self) -> list[str]:
        """Command lines of the living processes that belong to runs in this folder."""
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                line, variables = ((path / name).read_bytes() for name in ("cmdline", "environ"))
            except OSError:
                continue
            if b"CUVIL_REGRESS_MARK_" in variables and str(self.folder).encode() in variables + line:
                found.append(line.replace(b"\0", b" ").decode(errors="replace"))
        return found

    def resume(self, name: str = "run", *extra: str) -> Ran:
        """Continue a run."""
        arguments = [word if word != "--output-dir" else "--resume" for word in self.arguments(name)]
        return self.call(*arguments, *extra, folder=self.folder / name)

    def call(self, *arguments: str, folder: Path | None = None) -> Ran:
        with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
            code = cli.main(arguments)
        return Ran(code, out.getvalue(), err.getvalue(), folder or self.folder)


@pytest.fixture
def laboratory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Laboratory:
    return _equip(tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def shared_laboratory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laboratory]:
    """One laboratory for all tests of a module that only read what it made."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield _equip(tmp_path_factory.mktemp("laboratory"), monkeypatch)


def _equip(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Laboratory:
    if platform.machine() != "x86_64":
        pytest.skip("the stand-ins are written for an x86-64 machine")
    need_program("cc")
    shutil.copytree(ROOT / "golden" / "mlp", folder / "golden" / "mlp")
    _install_stand_ins(folder)
    library_path = str(Path(cli.__file__).parents[1])
    former = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [library_path, former])))
    monkeypatch.setenv("STAND_IN_GOLDEN", str(folder / "golden"))
    monkeypatch.setenv("STAND_IN_TORCH", str(folder / "site"))
    monkeypatch.setenv("STAND_IN_TOOLS", json.dumps(_places(folder)))
    return Laboratory(folder, monkeypatch)


def _install_stand_ins(folder: Path) -> None:
    (folder / "bin").mkdir()
    for name, script in (("python-with-torch", "python.py"), ("cuvil-run", "runner.py")):
        path = folder / "bin" / name
        path.write_text(f'#!/bin/sh\nexec {sys.executable} {STAND_INS / script} "$@"\n')
        path.chmod(0o755)
    torch = folder / "site" / "torch"
    (torch / "lib").mkdir(parents=True)
    (torch / "__init__.py").write_text("")
    (folder / "site" / "torch-2.13.0.dist-info").mkdir()
    (folder / "site" / "torch-2.13.0.dist-info" / "METADATA").write_text("Name: torch\nVersion: 2.13.0+cpu\n")
    (folder / "sysroot").mkdir()
    _build(torch / "lib" / "libtorch_cpu.so", "int planted_name(void) { return 1; }")
    _build(folder / "x86_64-linux" / RUNTIME, RUNTIME_SOURCE)


def _build(path: Path, source: str, compiler: tuple[str, ...] = ("cc",)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    source_file = path.with_suffix(".c")
    source_file.write_text(source)
    flags = ["-shared", "-fPIC", "-nostdlib", f"-Wl,-soname,{path.name}", "-Wl,-z,noexecstack"]
    subprocess.run([*compiler, *flags, str(source_file), "-o", str(path)], check=True)


def _places(folder: Path) -> dict[str, dict[str, str | None]]:
    sysroots = {"x86_64-linux": None, "aarch64-linux": str(folder / "sysroot")}
    return {
        target: {
            "runner": str(folder / "bin" / "cuvil-run"),
            "runtime": str(folder / target / RUNTIME),
            "sysroot": sysroot,
        }
        for target, sysroot in sysroots.items()
    }


@pytest.fixture
def foreign_laboratory(laboratory: Laboratory) -> Laboratory:
    """A laboratory that has an emulator, too, for libraries that are truly of another machine."""
    need_module("ziglang")
    programs = laboratory.folder / "bin"
    (programs / "qemu-aarch64").symlink_to(STAND_INS / "emulator.sh")
    zig = (sys.executable, "-m", "ziglang", "cc", "-target", "aarch64-linux-gnu")
    _build(laboratory.folder / "aarch64-linux" / RUNTIME, RUNTIME_SOURCE, zig)
    laboratory.environment.setenv("PATH", f"{programs}:/usr/bin:/bin")
    return laboratory
