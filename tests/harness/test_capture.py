"""Captures: complete, quiet, the same bytes in any folder and process, and what the goldens say."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cuvil_regress import capture, golden, models, policy, tensors
from cuvil_regress.comparer import compare_tensor
from cuvil_regress.errors import UsageError
from tests.needs import need_module

COMMITTED = Path(__file__).parents[2] / "golden"


@pytest.fixture(params=models.names())
def captured(torch: Any, tmp_path: Path, request: pytest.FixtureRequest) -> tuple[str, Path]:
    capture.capture(request.param, tmp_path / "capture")
    return request.param, tmp_path / "capture"


def test_a_capture_is_complete_and_describes_itself(captured: tuple[str, Path]) -> None:
    name, folder = captured
    model, record = models.load(name), json.loads((folder / "capture.json").read_bytes())
    assert record["schema_version"] == 1
    assert (record["model"], record["opset"], record["exporter"]) == (name, 17, "torchscript")
    assert record["model_sha256"] == hashlib.sha256((folder / "model.onnx").read_bytes()).hexdigest()
    assert tuple(row["name"] for row in record["outputs"]) == model.outputs
    for case in models.CASES:
        stored = tensors.read(folder / "cases" / case)
        expected = model.inputs(case)
        assert list(stored) == list(expected) == [row["name"] for row in record["inputs"]]
        assert all(stored[key].tobytes() == expected[key].tobytes() for key in expected)
        assert list(tensors.read(folder / "eager" / case)) == list(model.outputs)


def test_eager_outputs_pass_against_the_goldens(captured: tuple[str, Path]) -> None:
    name, folder = captured
    tolerance, stored = policy.load("oracle-fp32"), golden.load(COMMITTED, name)
    for case, outputs in stored.cases.items():
        eager = tensors.read(folder / "eager" / case)
        for output, expected in outputs.items():
            found = compare_tensor(
                eager[output], expected.values, tolerance, model_dtype=expected.model_dtype
            )
            assert found.passed, (case, output, found)


def test_the_exported_model_means_what_the_golden_says(captured: tuple[str, Path]) -> None:
    """A second implementation, onnxruntime, runs the export and is held to the float64 golden."""
    onnxruntime = need_module("onnxruntime")
    name, folder = captured
    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    found = session.run(None, models.load(name).inputs("ordinary"))
    for actual, expected in zip(found, golden.load(COMMITTED, name).cases["ordinary"].values(), strict=True):
        comparison = compare_tensor(
            actual, expected.values, policy.load("oracle-fp32"), model_dtype=expected.model_dtype
        )
        assert comparison.passed, comparison


def test_the_model_is_valid_named_and_free_of_paths(captured: tuple[str, Path]) -> None:
    onnx = need_module("onnx")
    name, folder = captured
    proto = onnx.load(folder / "model.onnx")
    onnx.checker.check_model(proto, full_check=True)
    assert proto.graph.name == name
    names = [node.name for node in proto.graph.node]
    assert all(names)
    assert len(set(names)) == len(names)
    helpers = ("Constant", "Unsqueeze", "Identity")
    assert all(node.name[0] == "/" for node in proto.graph.node if node.op_type not in helpers)
    content = (folder / "model.onnx").read_bytes()
    for path in (str(Path(models.__file__).parent), sys.prefix, str(folder), ".py"):
        assert path.encode() not in content


def test_another_process_and_folder_give_the_same_bytes(captured: tuple[str, Path], tmp_path: Path) -> None:
    name, folder = captured
    command = [sys.executable, "-W", "error", "-m", "cuvil_regress.capture", name, str(tmp_path / "other")]
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["model"] == name
    ours, theirs = (
        {path.relative_to(root): path.read_bytes() for path in root.rglob("*") if path.is_file()}
        for root in (folder, tmp_path / "other")
    )
    assert ours == theirs


def test_a_second_capture_replaces_the_first_and_keeps_what_is_not_its_own(
    torch: Any, tmp_path: Path
) -> None:
    (tmp_path / "cases" / "former").mkdir(parents=True)
    (tmp_path / "log.txt").write_text("kept")
    capture.capture("mlp", tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "capture.json", "cases", "eager", "log.txt", "model.onnx",
    ]  # fmt: skip
    assert sorted(path.name for path in (tmp_path / "cases").iterdir()) == list(models.CASES)


def test_a_failed_capture_leaves_no_record(
    torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture.capture("mlp", tmp_path)

    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("no such operator\nat line 3")

    monkeypatch.setattr(torch.onnx, "export", refuse)
    with pytest.raises(capture.CaptureError, match=r"got RuntimeError: no such operator$"):
        capture.capture("mlp", tmp_path)
    assert not (tmp_path / "capture.json").exists()


def test_users_mistakes_are_one_line_and_exit_code_two(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert capture.main(["mpl", str(tmp_path)]) == 2
    assert capsys.readouterr().err.splitlines() == [
        f"model: unknown name; expected one of {', '.join(models.names())}, got 'mpl'",
        "hint: did you mean 'mlp'?",
    ]
    with pytest.raises(UsageError, match="opset: out of range"):
        capture.capture("mlp", tmp_path, opset=99)


def test_only_newer_exporters_are_told_which_one_they_are() -> None:
    def old(model: object, args: object, f: object, opset_version: int) -> None: ...
    def new(model: object, args: object, f: object, *, dynamo: bool = True) -> None: ...

    assert capture._pinned_exporter(old) == {}
    assert capture._pinned_exporter(new) == {"dynamo": False}


def test_other_opsets_are_kept_to(torch: Any) -> None:
    onnx = need_module("onnx")
    content = capture.export(models.load("mlp"), 15)
    assert [entry.version for entry in onnx.load_model_from_string(content).opset_import] == [15]
    assert np.frombuffer(content, dtype=np.uint8).size > 400_000
