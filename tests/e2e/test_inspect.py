"""`cuvil inspect`: what a compiled model says of itself, and whether its checksums hold."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cuvil import __version__, cli, toolchain
from cuvil.codegen.machine import llvm_version
from cuvil.container import read_container
from cuvil.driver import Options, compile_model
from cuvil.native import find_obstacle
from cuvil.targets.target import find_target
from tests.e2e.command import (
    MODEL,
    USAGE,
    Capture,
    compile_arguments,
    enter,
    expect_error,
    run,
    run_arguments,
)

TARGETS = ("x86_64-linux", "riscv64-linux-v", "aarch64-linux")
ORDER = ("aarch64-linux", "riscv64-linux-v", "x86_64-linux")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a model compiled to `m.cuv` and to `m.so`."""
    enter(tmp_path, monkeypatch)
    words = [word for target in TARGETS for word in ("--target", target)]
    assert run("compile", "--model", "model.onnx", "-o", "m.cuv", *words) == 0
    assert run(*compile_arguments(output="m.so")) == 0
    return tmp_path


def inspect(capsys: Capture, *arguments: str) -> list[str]:
    assert run("inspect", *arguments) == 0
    return capsys.readouterr().out.splitlines()


def test_a_container(folder: Path, capsys: Capture) -> None:
    sections = read_container(Path("m.cuv")).sections
    sha256 = compile_model("model.onnx", Options("x86_64-linux")).metadata["model"]["sha256"]
    lines = inspect(capsys, "m.cuv", "--verify")
    assert lines[:5] == [
        f"m.cuv: a .cuv file, {Path('m.cuv').stat().st_size / 1e3:.1f} kB",
        f"model 'model', opset 17, sha256 {sha256}",
        f"compiled by cuvil {__version__}, LLVM {llvm_version()}, strict numerics",
        "input 'x': float32[2, 3]",
        "output 'y': float32[2, 4]",
    ]
    for number, name in enumerate(ORDER):
        target, code = find_target(name), sections[1 + number]
        weights_bytes = sections[code.weights].size_bytes
        vlen = ", vectors of 128 bits" if target.min_vlen_bits else ""
        assert lines[5 + 3 * number : 8 + 3 * number] == [
            f"target {name}: {find_obstacle(target) or 'runs on this machine'}",
            f"  {target.cpu}; needs {' '.join(target.isa)}{vlen}",
            f"  code {code.size_bytes} bytes, weights {weights_bytes} bytes, arena 0 bytes",
        ]
    assert lines[14:] == [
        f"weights, {sections[4].size_bytes} bytes: of aarch64-linux, riscv64-linux-v",
        f"weights, {sections[5].size_bytes} bytes: of x86_64-linux",
        "nodes: 1, fused 1",
        "checksums: all hold",
    ]


def test_a_library(folder: Path, capsys: Capture) -> None:
    lines = inspect(capsys, "m.so", "--nodes")
    assert lines[0] == f"m.so: a model library, {Path('m.so').stat().st_size} bytes"
    assert lines[5] == f"target {toolchain.host_target()}: runs on this machine"
    assert lines[8:] == ["node fused: Gemm 'fc'; Relu 'act'", "checksums: not checked; --verify does"]
    assert inspect(capsys, "m.so", "--verify")[-1] == "checksums: all hold"


@pytest.mark.parametrize(("file", "kind"), [("m.cuv", "cuv"), ("m.so", "library")])
def test_json(file: str, kind: str, folder: Path, capsys: Capture) -> None:
    report = json.loads("\n".join(inspect(capsys, file, "--json")))
    assert (report["schema_version"], report["kind"], report["verified"]) == (1, kind, False)
    assert report["inputs"] == [{"name": "x", "dtype": "float32", "shape": [2, 3]}]
    assert [node["loc"] for node in report["nodes"]] == ["Gemm 'fc'; Relu 'act'"]
    names = [target["name"] for target in report["targets"]]
    assert names == (list(ORDER) if kind == "cuv" else [toolchain.host_target()])
    (here,) = [target for target in report["targets"] if target["obstacle"] is None]
    assert here["code_bytes"] > 1000


def flipped(at: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (flipped(8), "has another format version; expected 1, got 0"),
        (flipped(12), "damaged: the checksum of the header and the table differs"),
        (flipped(100), "damaged: the checksum of the header and the table differs"),
        (flipped(64 + 6 * 128), "damaged: the checksum of the metadata differs"),
        (lambda data: data[:-1], "damaged: expected "),
        (lambda data: data[:20], "damaged: "),
    ],
)
def test_damage_that_shows_at_once(
    damage: Callable[[bytes], bytes], words: str, folder: Path, capsys: Capture
) -> None:
    Path("bad.cuv").write_bytes(damage(Path("m.cuv").read_bytes()))
    expect_error(capsys, MODEL, f"'bad.cuv': {words}", "inspect", "bad.cuv")


@pytest.mark.parametrize("section", [1, 2, 3, 4, 5])
def test_damage_that_verifying_finds(section: int, folder: Path, capsys: Capture) -> None:
    at = read_container(Path("m.cuv")).sections[section].offset
    Path("bad.cuv").write_bytes(flipped(at)(Path("m.cuv").read_bytes()))
    words = f"'bad.cuv': damaged: section {section}: its checksum differs"
    expect_error(capsys, MODEL, words, "inspect", "--verify", "bad.cuv")
    assert inspect(capsys, "bad.cuv")[-1] == "checksums: that of the metadata holds; --verify checks all"


def test_a_library_that_is_not_the_one_described(folder: Path, capsys: Capture) -> None:
    data = Path("m.so").read_bytes()
    Path("m.so").write_bytes(data + b"\0")
    words = "'m.so': differs from what 'm.cuvil-meta.json' describes"
    expect_error(capsys, MODEL, words, "inspect", "m.so")
    Path("m.so").write_bytes(flipped(len(data) // 2)(data))
    expect_error(capsys, MODEL, words, "inspect", "--verify", "m.so")
    Path("m.cuvil-meta.json").write_text("{}")
    expect_error(capsys, MODEL, "'m.cuvil-meta.json': is damaged", "inspect", "m.so")
    Path("m.cuvil-meta.json").unlink()
    words = "'m.so': its metadata can't be read: No such file or directory; expected 'm.cuvil-meta.json'"
    expect_error(capsys, MODEL, words, "inspect", "m.so")


def test_files_of_other_kinds(folder: Path, capsys: Capture) -> None:
    no_model = "no compiled model; expected a .cuv file or a model library"
    hint = expect_error(capsys, MODEL, f"'model.onnx': {no_model}", "inspect", "model.onnx")
    assert "dump-ir" in hint
    assert not expect_error(capsys, MODEL, f"'x.npy': {no_model}", "inspect", "x.npy")
    expect_error(capsys, MODEL, "'none': can't be read: No such file", "inspect", "none")
    expect_error(capsys, MODEL, f"{str(folder)!r}: can't be read: Is a directory", "inspect", str(folder))
    runtime = str(toolchain.prebuilt(toolchain.host_target()).runtime)
    words = "no model library; expected the symbol 'cuvil_model_info', got none"
    expect_error(capsys, MODEL, words, "inspect", runtime)
    Path("cut.so").write_bytes(Path("m.so").read_bytes()[:200])
    expect_error(capsys, MODEL, "'cut.so': damaged shared library", "inspect", "cut.so")


def test_a_container_runs_from_the_command_line(folder: Path, capsys: Capture) -> None:
    for model in ("m.cuv", "m.so"):
        assert cli.main(["run", "--model", model, "--input", "x=x.npy", "--output-dir", model[2:]]) == 0
    assert Path("cuv/y.npy").read_bytes() == Path("so/y.npy").read_bytes()
    capsys.readouterr()
    words = "--shape: a compiled library has its shapes"
    expect_error(capsys, USAGE, words, *run_arguments("--shape", "x=1", model="m.cuv"))
