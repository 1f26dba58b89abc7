"""The runner, built with both kinds of `char`.

Plain `char` is signed on x86-64 and unsigned on AArch64 and RISC-V: C code that reads bytes through it is
right on one and wrong on the others. Built both ways on one machine, it must do the same, bytes above 127
included.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from cuvil import toolchain
from tests.needs import need_program

from .conftest import Machine, ModelBuilder, run

KINDS = ("-fsigned-char", "-funsigned-char")
NAMES = ("größe", "a\x7fb", "\U0001f600", "plain")


@pytest.fixture(scope="module")
def runners(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The runner with the runtime in it, by the kinds of `char`."""
    compiler, source = need_program("g++"), toolchain.RUNTIME_SOURCE_DIR
    sources = sorted([*(source / "src").glob("*.cpp"), *(source / "runner").glob("*.cpp")])
    built = []
    for kind in KINDS:
        built.append(tmp_path_factory.mktemp(kind) / "cuvil-run")
        flags = ["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", kind]
        includes = [f"-I{source / 'include'}", f"-I{source / 'src'}"]
        run([compiler, *flags, *includes, *sources, "-ldl", "-lpthread", "-o", built[-1]])
    return built


def test_both_kinds_of_char_do_the_same(
    host: Machine, runners: list[Path], build_model: ModelBuilder, tmp_path: Path
) -> None:
    for number, name in enumerate(NAMES):
        folder = tmp_path / "cases" / name
        folder.mkdir(parents=True)
        (folder / "manifest.txt").write_text("cuvil-tensors 1\ntensor float32 1 1024 0.bin x\n")
        values = np.arange(4096, dtype=np.uint32).view(np.uint8)[number * 4096 :][:4096]
        (folder / "0.bin").write_bytes(values.tobytes())
    (tmp_path / "cases" / "größe" / "manifest.txt").write_text("cuvil-tensors 1\ntensor größe\n")
    found = [_results(runner, build_model(host), tmp_path) for runner in runners]
    assert found[0] == found[1]
    assert found[0].count(b'"status":"ok"') == len(NAMES) - 1


def _results(runner: Path, model: Path, folder: Path) -> bytes:
    """What the runner says, and every output that it leaves."""
    outputs = folder / runner.parent.name
    command = [str(runner), str(model), str(folder / "cases"), str(outputs)]
    finished = subprocess.run(command, capture_output=True, check=False)
    files = [path.read_bytes() for path in sorted(outputs.rglob("*")) if path.is_file()]
    return b"\n".join((finished.stdout, finished.stderr, *files))
