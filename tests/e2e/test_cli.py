"""The command line as a user meets it: transcripts of what works."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from cuvil import __version__, cli, toolchain
from cuvil.targets.target import TARGET_NAMES
from tests.e2e.command import (
    MODEL,
    TOOLCHAIN,
    Capture,
    compile_arguments,
    enter,
    expect_error,
    relu,
    run,
    run_arguments,
)
from tests.e2e.models import model_of


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with `model.onnx` and `x.npy`."""
    return enter(tmp_path, monkeypatch)


def start(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cuvil.cli", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )


def test_a_session_in_processes_of_its_own(folder: Path) -> None:
    compiled = start(*compile_arguments())
    assert (compiled.returncode, compiled.stdout, compiled.stderr) == (0, "", "")
    ran = start(*run_arguments("--input", "x=x.npy", model="out.so"))
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == f"y: float32[2, 4] -> {Path('results', 'y.npy')}\n"
    failed = start("compile", "--model", "none.onnx", "--output", "none.so")
    assert (failed.returncode, failed.stdout) == (MODEL, "")
    assert failed.stderr == "cuvil: none.onnx: no such file; expected an ONNX model\n"
    names = {path.name for path in folder.iterdir()}
    assert names == {"model.onnx", "x.npy", "out.so", "out.cuvil-meta.json", "results"}


def test_a_reader_that_stops_early_is_no_error(folder: Path) -> None:
    script = f"{sys.executable} -m cuvil.cli dump-ir --model model.onnx --stage assembly | head -n 1"
    ended = subprocess.run(
        ["bash", "-o", "pipefail", "-c", script], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.count("\n") == 1


def test_version_and_help(capsys: Capture) -> None:
    assert run("--version") == 0
    assert capsys.readouterr().out == f"cuvil {__version__}\n"
    assert run("--help") == 0
    text = capsys.readouterr().out
    assert all(command in text for command in ("compile", "run", "dump-ir", "bisect", "doctor"))
    assert "exit codes: 0 done, 2 usage, 3 model, 4 limit, 5 toolchain, 70 internal" in text
    for command in ("compile", "run", "dump-ir", "doctor"):
        assert run(command, "--help") == 0
        assert capsys.readouterr().out.startswith(f"usage: cuvil {command} ")


def test_run_gives_the_same_from_model_and_library(folder: Path, capsys: Capture) -> None:
    assert run(*compile_arguments()) == 0
    assert run(*run_arguments("--input", "x=x.npy", output_dir="deep/first")) == 0
    assert (
        run(*run_arguments("--input", "x=x.npy", "--threads", "2", model="out.so", output_dir="second")) == 0
    )
    assert Path("deep/first/y.npy").read_bytes() == Path("second/y.npy").read_bytes()
    assert np.load("second/y.npy").shape == (2, 4)


STAGES = {
    "import": r'graph "model" \(%x: f32\[2, 3\]\) \{\n.*relu\(%z\.1\) at "Relu \'act\'"',
    "graph": r"fused\(%x, %w, %b\)",
    "loops": r"kernel matmul\(a: input f32\[2, 3\].*fma\(",
    "llvm": r"target triple = .*@cuvil_model_info = constant",
    "assembly": r"\.globl\s+cuvil_model_run",
}


@pytest.mark.parametrize("stage", cli.DUMP_STAGES)
def test_dump_of_every_stage(stage: str, folder: Path, capsys: Capture) -> None:
    for target in TARGET_NAMES:
        assert run("dump-ir", "--model", "model.onnx", "--stage", stage, "--target", target) == 0
        assert re.search(STAGES[stage], capsys.readouterr().out, re.DOTALL)


def test_doctor_says_what_is_there(capsys: Capture) -> None:
    assert run("doctor") == 0
    text = capsys.readouterr().out
    assert f"{toolchain.host_target()}: runs on this machine; runtime /" in text
    assert run("doctor", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["schema_version"] == 1
    assert set(report["targets"]) == set(TARGET_NAMES)
    assert report["linker"]


def test_doctor_says_what_is_missing(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUVIL_LINKER", "/nowhere/ld")
    monkeypatch.setenv("PATH", "/nowhere")
    assert run("doctor") == 0
    text = capsys.readouterr().out
    assert "linker: CUVIL_LINKER: no such program; got '/nowhere/ld'" in text
    foreign = next(name for name in toolchain.PLATFORMS if name != toolchain.host_target())
    assert f"{foreign}: compiles; to run needs qemu-" in text
    assert run("doctor", "--json") == 0
    assert json.loads(capsys.readouterr().out)["linker"] is None


def test_open_shapes_are_fixed_by_an_option(folder: Path, capsys: Capture) -> None:
    model = relu(dims=("N", 3))
    hint = expect_error(capsys, MODEL, "input 'x': shape is open", *compile_arguments(model))
    assert hint == "hint: fix it, as in `--shape x=1,3`, or bound it, as in `--dim N=1..16`"
    assert run(*run_arguments("--shape", "x=2,3", "--input", "x=x.npy", model=model)) == 0
    np.testing.assert_array_equal(np.load("results/y.npy"), np.ones((2, 3)))


def test_existing_output_is_replaced_as_a_whole(
    folder: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(*compile_arguments()) == 0
    first = Path("out.so").read_bytes()
    with Path("out.so").open("rb") as mapped_by_another:
        assert run(*compile_arguments(relu())) == 0
        assert mapped_by_another.read() == first
    assert Path("out.so").read_bytes() != first
    monkeypatch.setenv("CUVIL_LINKER", "/nowhere/ld")
    expect_error(capsys, TOOLCHAIN, "CUVIL_LINKER", *compile_arguments())


def test_input_in_another_order_of_bytes_or_axes(folder: Path, capsys: Capture) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    results = []
    for array in (x, np.asfortranarray(x), x.astype(">f4")):
        np.save("x.npy", array)
        assert run(*run_arguments("--input", "x=x.npy")) == 0
        results.append(Path("results/y.npy").read_bytes())
    assert results[0] == results[1] == results[2]


def test_every_output_gets_a_file_of_its_own(folder: Path, capsys: Capture) -> None:
    names = ("/a/b", "_a_b", "_a_b.2", ":a:b", "../up", ".", "..", "ä" * 300)
    scale = [float(number) for number in range(2, 2 + len(names))]
    factors = {f"k{i}": np.float32(value) for i, value in enumerate(scale)}
    nodes = [helper.make_node("Mul", ["x", f"k{i}"], [name]) for i, name in enumerate(names)]
    arrays = {name: np.asarray(value) for name, value in factors.items()}
    onnx.save(model_of(nodes, {"x": (2, 3)}, dict.fromkeys(names, (2, 3)), arrays), "many.onnx")
    assert run(*run_arguments("--input", "x=x.npy", model="many.onnx")) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(": float32[2, 3] -> ")[0] for line in lines] == list(names)
    files = [Path(line.partition(" -> ")[2]) for line in lines]
    assert [float(np.load(file)[0, 0]) for file in files] == scale
    assert files[1:3] == [Path("results/_a_b.npy"), Path("results/_a_b.2.npy")]
    assert sorted(Path("results").iterdir()) == sorted(files)
