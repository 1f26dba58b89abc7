"""Every mistake at the command line: one clear line, the documented exit code, nothing half-written."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from cuvil import toolchain
from cuvil.targets.target import TARGET_NAMES
from tests.e2e.command import (
    INTERNAL,
    LIMIT,
    MODEL,
    TOOLCHAIN,
    USAGE,
    Capture,
    compile_arguments,
    enter,
    expect_error,
    relu,
    run,
    run_arguments,
    save_nodes,
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with `model.onnx` and `x.npy`."""
    return enter(tmp_path, monkeypatch)


# Models


def truncated() -> bytes:
    return Path("model.onnx").read_bytes()[:-20]


FILES: dict[str, tuple[bytes | Callable[[], bytes], str]] = {
    "empty": (b"", "is empty; expected an ONNX model"),
    "random": (np.random.default_rng(0).bytes(5000), "is damaged or not an ONNX model"),
    "truncated": (truncated, "is damaged or not an ONNX model"),
    "text": (b"layer 1: relu\n" * 9, "is a text file; expected an ONNX model"),
    "lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "is a git-lfs pointer"),
    "pickle": (pickle.dumps({"weight": 1}), "is a Python pickle"),
    "zip": (b"PK\x03\x04rest", "is a zip archive"),
    "page": (b"<!DOCTYPE html><html>", "is a web page or XML"),
}


@pytest.mark.parametrize("kind", FILES)
def test_file_that_is_no_model(kind: str, folder: Path, capsys: Capture) -> None:
    content, words = FILES[kind]
    Path("bad.onnx").write_bytes(content() if callable(content) else content)
    for arguments in (compile_arguments("bad.onnx"), run_arguments(model="bad.onnx")):
        expect_error(capsys, MODEL, f"bad.onnx: {words}", *arguments)
    expect_error(capsys, MODEL, f"bad.onnx: {words}", "dump-ir", "--model", "bad.onnx")


def test_model_that_can_not_be_read(folder: Path, capsys: Capture) -> None:
    expect_error(capsys, MODEL, "none.onnx: no such file", *compile_arguments("none.onnx"))
    expect_error(capsys, MODEL, f"{folder}: is a folder", *compile_arguments(str(folder)))
    expect_error(capsys, MODEL, "can't be read: File name too long", *compile_arguments("a" * 300))


def test_all_unsupported_operators_in_one_message(folder: Path, capsys: Capture) -> None:
    nodes = [
        helper.make_node("Det", ["x"], ["a"], name="det1"),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Det", ["b"], ["c"], name="det2"),
        helper.make_node("Warp\nto", ["c"], ["d"], name="w", domain="com.example"),
        helper.make_node("NonZero", ["d"], ["y"]),
    ]
    expected = (
        "nodes.onnx: 3 operators are not supported (opset 17): Det (Det 'det1'), "
        "'com.example:Warp\\nto' ('Warp\\nto' 'w'), NonZero (NonZero #4)"
    )
    expect_error(capsys, MODEL, expected, *compile_arguments(save_nodes(nodes)))


@pytest.mark.parametrize("opset", [1, 6, 29, 1000])
def test_opset_that_is_too_old_or_too_new(opset: int, folder: Path, capsys: Capture) -> None:
    words = f"nodes.onnx: opset is not supported; expected 7 to 28, got {opset}"
    assert expect_error(capsys, MODEL, words, *compile_arguments(relu(opset=opset)))


def test_half_precision_is_refused_in_models_and_as_option(folder: Path, capsys: Capture) -> None:
    model = relu(element_type=TensorProto.FLOAT16)
    expect_error(capsys, MODEL, "input 'x': element type is not supported", *compile_arguments(model))
    words = "--enable-fp16: half precision is not available yet; expected false, got true"
    expect_error(capsys, USAGE, words, *compile_arguments("model.onnx", "--enable-fp16=true"))
    assert run(*compile_arguments("model.onnx", "--enable-fp16=false")) == 0


@pytest.mark.parametrize(
    ("shapes", "code", "words"),
    [
        (("z=2,3",), USAGE, "no input is named 'z'; expected one of 'x'"),
        (("x=2,4",), USAGE, "shape does not fit the model; expected [N, 3] with {'N': 2}, got [2, 4]"),
        (("x=2,3,4",), USAGE, "shape does not fit the model; expected [N, 3], got [2, 3, 4]"),
        (("x=",), USAGE, "shape does not fit the model; expected [N, 3], got []"),
        (("x",), USAGE, "--shape: expected NAME=1,3,224,224, got 'x'"),
        (("=1",), USAGE, "--shape: expected NAME=1,3,224,224, got '=1'"),
        (("x=1,,3",), USAGE, "--shape: expected NAME=1,3,224,224, got 'x=1,,3'"),
        (("x=-1,3",), USAGE, "--shape: expected NAME=1,3,224,224, got 'x=-1,3'"),
        (("x=1.5,3",), USAGE, "--shape: expected NAME=1,3,224,224, got 'x=1.5,3'"),
        (("x=1,3", "x=2,3"), USAGE, "--shape: 'x' is given twice"),
        (("x=99999999999999,3",), LIMIT, "tensor 'x' is too large"),
        (("x=99999999999999999999999,3",), LIMIT, "tensor 'x' is too large"),
    ],
)
def test_wrong_shape_option(
    shapes: tuple[str, ...], code: int, words: str, folder: Path, capsys: Capture
) -> None:
    options = [f"--shape={shape}" for shape in shapes]
    expect_error(capsys, code, words, *compile_arguments(relu(dims=("N", 3)), *options))


# Targets, linkers, output


def test_unknown_target_names_the_known_and_the_nearest(folder: Path, capsys: Capture) -> None:
    words = f"target: unknown; expected one of {', '.join(TARGET_NAMES)}, native, got 'riscv64_linux'"
    hint = expect_error(capsys, USAGE, words, *compile_arguments("model.onnx", "--target", "riscv64_linux"))
    assert hint == "hint: did you mean 'riscv64-linux'?"
    expect_error(capsys, USAGE, "got ''", *compile_arguments("model.onnx", "--target", ""))


@pytest.mark.parametrize(
    ("linker", "words"),
    [
        ("/nowhere/ld", "CUVIL_LINKER: no such program; got '/nowhere/ld'"),
        ("ld 'open", "CUVIL_LINKER: is no command: No closing quotation"),
        ("true", "can't be read: No such file"),
    ],
)
def test_linker_that_does_not_link(
    linker: str, words: str, folder: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUVIL_LINKER", linker)
    expect_error(capsys, TOOLCHAIN, words, *compile_arguments())


def test_missing_linker_says_how_to_get_one(
    folder: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUVIL_LINKER", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    # As if the package were not installed: the import system itself refuses it.
    monkeypatch.setitem(sys.modules, "ziglang", None)
    words = "linker for 'riscv64-linux': none found; expected the environment variable CUVIL_LINKER, "
    hint = expect_error(
        capsys, TOOLCHAIN, words, *compile_arguments("model.onnx", "--target", "riscv64-linux")
    )
    assert hint == "hint: pip install 'cuvil-compiler[link]'"


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ("none/out.so", "output 'none/out.so': no such folder: 'none'"),
        ("model.onnx/out.so", "no such folder: 'model.onnx'"),
        ("out", "output 'out': wrong name; expected one that ends in '.so'"),
        ("out.dll", "wrong name; expected one that ends in '.so'"),
        ("", "wrong name; expected one that ends in '.so'"),
        (".so", "wrong name; expected one that ends in '.so'"),
        ("taken.so", "'taken.so' is a folder"),
        ("meta.so", "'meta.cuvil-meta.json' is a folder"),
        ("/proc/out.so", "output '/proc/out.so': can't be written"),
        ("a" * 300 + ".so", "can't be written: File name too long"),
    ],
)
def test_output_that_can_not_be_written(output: str, words: str, folder: Path, capsys: Capture) -> None:
    Path("taken.so").mkdir()
    Path("meta.cuvil-meta.json").mkdir()
    expect_error(capsys, USAGE, words, *compile_arguments(output=output))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_output_folder_without_permission(folder: Path, capsys: Capture) -> None:
    Path("closed").mkdir(mode=0o500)
    expect_error(capsys, USAGE, "no permission", *compile_arguments(output="closed/out.so"))


# Options


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "the following arguments are required: COMMAND"),
        (("build",), "argument COMMAND: invalid choice: 'build'"),
        (("compile",), "compile: the following arguments are required: --model, --output"),
        (compile_arguments("model.onnx", "--fast"), "unrecognized arguments: --fast"),
        (compile_arguments("model.onnx", "--enable-fp16=maybe"), "compile: argument --enable-fp16"),
        (("compile", "--mod", "model.onnx", "--output", "o.so"), "required: --model"),
        (("dump-ir", "--model", "model.onnx", "--stage", "text"), "dump-ir: argument --stage"),
        (run_arguments("--threads", "-1"), "run: argument --threads: expected a number from 0 to 1024"),
        (run_arguments("--threads", "1025"), "expected a number from 0 to 1024, got '1025'"),
        (run_arguments("--shape", "x=2,3", model="out.so"), "--shape: a compiled library has its shapes"),
    ],
)
def test_wrong_options(arguments: tuple[str, ...], words: str, folder: Path, capsys: Capture) -> None:
    expect_error(capsys, USAGE, words, *arguments)


# Inputs and outputs of a run


def save_odd_inputs() -> None:
    np.save("shape.npy", np.ones((3, 2), np.float32))
    np.save("dtype.npy", np.ones((2, 3)))
    np.save("objects.npy", np.array([{}], object), allow_pickle=True)
    np.savez("many.npz", x=np.ones((2, 3), np.float32))
    good = Path("x.npy").read_bytes()
    Path("cut.npy").write_bytes(good[:-4])
    Path("header.npy").write_bytes(good.replace(b"(2, 3)", b"(2, 3 "))
    Path("huge.npy").write_bytes(good.replace(b"(2, 3), }           ", b"(2,9999999999999), }"))
    Path("pickle.npy").write_bytes(pickle.dumps(1))
    Path("text.npy").write_text("1 2 3")
    Path("folder.npy").mkdir()


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ((), "inputs: missing; expected 'x' as well"),
        (("z=x.npy",), "inputs: no such input; expected 'x', got 'z'"),
        (("x=x.npy", "x=x.npy"), "--input: 'x' is given twice"),
        (("x.npy",), "--input: expected NAME=FILE.npy, got 'x.npy'"),
        (("=x.npy",), "--input: expected NAME=FILE.npy, got '=x.npy'"),
        (("x=none.npy",), "'none.npy': can't be read: No such file or directory"),
        (("x=folder.npy",), "'folder.npy': can't be read: Is a directory"),
        (("x=dtype.npy",), "input 'x': wrong dtype; expected float32, got float64"),
        (("x=shape.npy",), "input 'x': wrong shape; expected (2, 3), got (3, 2)"),
        (("x=text.npy",), "'text.npy': is not a .npy file"),
        (("x=pickle.npy",), "'pickle.npy': is not a .npy file"),
        (("x=many.npz",), "'many.npz': is not a .npy file"),
        (("x=objects.npy",), "'objects.npy': is damaged or holds no plain numbers"),
        (("x=cut.npy",), "'cut.npy': is damaged"),
        (("x=header.npy",), "'header.npy': is damaged"),
        (("x=huge.npy",), "'huge.npy': is damaged"),
    ],
)
def test_wrong_inputs(inputs: tuple[str, ...], words: str, folder: Path, capsys: Capture) -> None:
    save_odd_inputs()
    expect_error(capsys, USAGE, words, *run_arguments(*[f"--input={text}" for text in inputs]))


@pytest.mark.parametrize("output_dir", ["x.npy", "x.npy/deeper", "/proc/none"])
def test_output_dir_that_can_not_be_made(output_dir: str, folder: Path, capsys: Capture) -> None:
    words = f"output folder {output_dir!r}: can't be written"
    expect_error(capsys, USAGE, words, *run_arguments("--input", "x=x.npy", output_dir=output_dir))


def test_library_that_can_not_be_loaded(folder: Path, capsys: Capture) -> None:
    foreign = next(name for name in toolchain.PLATFORMS if name != toolchain.host_target())
    assert run(*compile_arguments("model.onnx", "--target", foreign, output="foreign.so")) == 0
    assert run(*compile_arguments()) == 0
    Path("cut.so").write_bytes(Path("out.so").read_bytes()[:1000])
    Path("text.so").write_text("not a library, but longer than the header of one, which is 64 bytes long")
    for name, words in (
        ("foreign.so", "'foreign.so': built for another machine; expected"),
        ("cut.so", "'cut.so': truncated"),
        ("text.so", "'text.so': not a shared library"),
        ("none.so", "'none.so': cannot be opened: No such file or directory"),
    ):
        expect_error(capsys, TOOLCHAIN, words, *run_arguments("--input", "x=x.npy", model=name))


def test_an_unforeseen_error_is_one_line_and_a_log(
    folder: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    with Path("closed").open("w") as closed:
        monkeypatch.setattr(sys, "stdout", closed)
    assert run("doctor") == INTERNAL
    first, hint = capsys.readouterr().err.splitlines()
    assert first.startswith("cuvil: internal error: ")
    assert hint.startswith("hint: please report it, with the file ")
    assert "Traceback" in Path(hint.rpartition(" ")[2]).read_text()
