"""Runs the command line in this process, and expects of every failure what users are promised."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from cuvil import cli
from tests.e2e.models import OPSET, product

USAGE, MODEL, LIMIT, TOOLCHAIN, INTERNAL = 2, 3, 4, 5, 70

Capture = pytest.CaptureFixture[str]


def enter(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Makes this the working directory, with one model and its input in it."""
    monkeypatch.chdir(folder)
    onnx.save(product(2, 3, 4), "model.onnx")
    np.save("x.npy", np.ones((2, 3), np.float32))
    return folder


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
