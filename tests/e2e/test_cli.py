"""The command line as a user meets it: transcripts, exit codes, and one clear line for every mistake."""

from __future__ import annotations

import json
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from cuvil import __version__, cli, toolchain
from cuvil.targets.target import TARGET_NAMES
from tests.e2e.models import OPSET, model_of, product

USAGE, MODEL, LIMIT, TOOLCHAIN, INTERNAL = 2, 3, 4, 5, 70

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory with one model and its input."""
    monkeypatch.chdir(tmp_path)
    onnx.save(product(2, 3, 4), "model.onnx")
    np.save("x.npy", np.ones((2, 3), np.float32))
    return tmp_path


def run(*arguments: str) -> int:
    """The exit code, however the command ends."""
    try:
        return cli.main(arguments)
    except SystemExit as ended:
        return int(ended.code or 0)


def expect_error(capsys: Capture, code: int, words: str, *arguments: str) -> str:
    """Runs a command that fails with one line and at most a hint, and leaves the folder as it was."""
    before = listing(Path())
    assert run(*arguments) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    first, *hint = captured.err.splitlines()
    assert first.startswith("cuvil: ")
    assert words in first
    assert len(hint) <= 1
    assert all(line.startswith("hint: ") for line in hint)
    assert listing(Path()) == before
    return "".join(hint)


def listing(folder: Path) -> dict[str, bytes | None]:
    """Everything below a folder."""
    return {str(path): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def compile_arguments(model: str = "model.onnx", *others: str, output: str = "out.so") -> tuple[str, ...]:
    return ("compile", "--model", model, "--output", output, *others)


def run_arguments(*others: str, model: str = "model.onnx", output_dir: str = "results") -> tuple[str, ...]:
    return ("run", "--model", model, "--output-dir", output_dir, *others)


def save_nodes(
    nodes: list[onnx.NodeProto],
    dims: tuple[int | str, ...] = (2, 3),
    element_type: int = TensorProto.FLOAT,
    opset: int = OPSET,
    outputs: tuple[str, ...] = ("y",),
) -> str:
    """Writes a model of these nodes whose input is `x` and whose tensors are all of one type."""
    tensors = [helper.make_tensor_value_info(name, element_type, dims) for name in ("x", *outputs)]
    graph = helper.make_graph(nodes, "g", tensors[:1], tensors[1:])
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.example", 1)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    Path("nodes.onnx").write_bytes(proto.SerializeToString())
    return "nodes.onnx"


def relu(**options: object) -> str:
    return save_nodes([helper.make_node("Relu", ["x"], ["y"])], **options)  # type: ignore[arg-type]


# What works


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
    assert all(command in text for command in ("compile", "run", "dump-ir", "doctor"))
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
    foreign = next(name for name in TARGET_NAMES if name != toolchain.host_target())
    assert f"{foreign}: compiles; to run needs qemu-" in text
    assert run("doctor", "--json") == 0
    assert json.loads(capsys.readouterr().out)["linker"] is None


def test_open_shapes_are_fixed_by_an_option(folder: Path, capsys: Capture) -> None:
    model = relu(dims=("N", 3))
    hint = expect_error(capsys, MODEL, "input 'x': shape is open", *compile_arguments(model))
    assert hint == "hint: fix it, as in `--shape x=1,3`"
    assert run(*run_arguments("--shape", "x=2,3", "--input", "x=x.npy", model=model)) == 0
    np.testing.assert_array_equal(np.load("results/y.npy"), np.ones((2, 3)))


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
    words = f"target: unknown; expected one of {', '.join(TARGET_NAMES)}, got 'riscv64_linux'"
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
        (run_arguments("--shape", "x=2,3", model="out.so"), "--shape: a compiled library has fixed shapes"),
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


@pytest.mark.parametrize("output_dir", ["x.npy", "x.npy/deeper", "/proc/none"])
def test_output_dir_that_can_not_be_made(output_dir: str, folder: Path, capsys: Capture) -> None:
    words = f"output folder {output_dir!r}: can't be written"
    expect_error(capsys, USAGE, words, *run_arguments("--input", "x=x.npy", output_dir=output_dir))


def test_library_that_can_not_be_loaded(folder: Path, capsys: Capture) -> None:
    foreign = next(name for name in TARGET_NAMES if name != toolchain.host_target())
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
