"""`cuvil bisect` from the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.e2e.command import USAGE, Capture, enter, expect_error, run
from tests.e2e.models import model_of
from tests.needs import need_module


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return enter(tmp_path, monkeypatch)


def bisect(*others: str) -> int:
    return run("bisect", "--model", "model.onnx", *others)


@pytest.mark.parametrize(
    "others", [(), ("--input", "x=x.npy"), ("--rtol", "0"), ("--input", "x=x.npy", "--rtol", "0")]
)
def test_a_sound_compiler(others: tuple[str, ...], capsys: Capture) -> None:
    assert bisect(*others) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("0.import ")
    assert "no stage changes the result" in lines[-1]


def test_against_onnx_runtime(capsys: Capture) -> None:
    need_module("onnxruntime")
    assert bisect("--against", "onnxruntime", "--rtol", "1e-4") == 0
    assert "no stage changes the result" in capsys.readouterr().out


def test_elementary_functions_are_within_the_default_tolerance() -> None:
    nodes = [helper.make_node("Exp", ["x"], ["e"]), helper.make_node("Tanh", ["e"], ["y"])]
    onnx.save(model_of(nodes, {"x": (8, 33)}, {"y": (8, 33)}, {}), "model.onnx")
    assert bisect() == 0


def test_another_target_is_followed_to_its_loops(capsys: Capture) -> None:
    assert bisect("--target", "riscv64-linux") == 0
    assert "lower " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("others", "words"),
    [
        (("--rtol", "x"), "expected a number from 0 to below 1, got 'x'"),
        (("--rtol", "nan"), "expected a number from 0 to below 1, got 'nan'"),
        (("--against", "torch"), "invalid choice: 'torch'"),
        (("--input", "z=x.npy"), "inputs: no such input; expected 'x', got 'z'"),
        (
            ("--input", "x=wide.npy"),
            "input 'x': does not fit the model; expected float32[2, 3], got float64[2, 3]",
        ),
        (("--target", "z80-linux"), "z80-linux"),
    ],
)
def test_usage(others: tuple[str, ...], words: str, capsys: Capture) -> None:
    np.save("wide.npy", np.ones((2, 3)))
    expect_error(capsys, USAGE, words, "bisect", "--model", "model.onnx", *others)
