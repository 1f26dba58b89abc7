"""What a run leaves behind: whole, checked against its schema, and silent about the machine's names."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from cuvil_regress.reports import json as report_json

if TYPE_CHECKING:
    from tests.harness.runs.conftest import Laboratory


def test_the_files_of_a_run(laboratory: Laboratory) -> None:
    ran = laboratory.run()
    lines = (ran.folder / "cells.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == ran.results["cells"]
    assert report_json.render(report_json.read(ran.folder / "results.json")) == ran.results
    assert ran.results["policies"] == {"golden": "oracle-fp32", "targets": "release"}
    cell = "torch-2.13.0/mlp/x86_64-linux"
    for file in (
        "captures/torch-2.13.0/mlp/model.onnx",
        "goldens/torch-2.13.0/mlp/special/manifest.txt",
        f"libraries/{cell}/libmlp.so",
        f"outputs/{cell}/ordinary/manifest.txt",
        f"logs/{cell}/run.log",
        "runtimes/x86_64-linux/libcuvil_runtime.so.1",
    ):
        assert (ran.folder / file).is_file(), file


def test_reports_name_neither_the_host_nor_its_folders(laboratory: Laboratory) -> None:
    laboratory.plant("undefined")
    ran = laboratory.run()
    environment = (ran.folder / "environment.json").read_text()
    assert f'"{os.uname().nodename}' not in environment
    assert str(laboratory.folder) not in environment
    assert str(laboratory.folder) not in (ran.folder / "results.json").read_text()
    known = json.loads(environment)
    assert known["capture"]["torch"] == "2.13.0+cpu"
    assert known["compiler"] == {"version": "0.0", "llvm": "0"}


def test_a_folder_in_use_is_refused(laboratory: Laboratory) -> None:
    (laboratory.folder / "run").mkdir()
    (laboratory.folder / "run" / "precious").write_text("")
    ran = laboratory.run()
    assert (ran.code, "exists already" in ran.err) == (2, True)


def test_the_schema_refuses(laboratory: Laboratory) -> None:
    ran = laboratory.run()
    path = ran.folder / "results.json"
    changes: list[dict[str, Any]] = [{"schema_version": 2}, {"cells": [{}]}, {"exit_code": 7}]
    whole = ran.results
    for change in changes:
        path.write_text(json.dumps(whole | change))
        again = laboratory.call("compare", str(ran.folder), str(ran.folder))
        assert again.code == 2
        assert f"results.json: is damaged: $.{next(iter(change))}" in again.err


@pytest.mark.parametrize("name", ["results", "compare"])
def test_the_schemas_are_schemas(name: str) -> None:
    path = Path(report_json.__file__).parents[1] / "schemas" / f"{name}.schema.json"
    jsonschema.Draft202012Validator.check_schema(json.loads(path.read_text()))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_everything_and_keeps_what_was_done(
    laboratory: Laboratory, number: signal.Signals
) -> None:
    laboratory.plant("hang")
    laboratory.write_matrix()
    command = [sys.executable, "-m", "cuvil_regress.cli", *laboratory.arguments()]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    wait_for(laboratory.folder / "run/logs/torch-2.13.0/mlp/x86_64-linux/run.log")
    child.send_signal(number)
    out, _ = child.communicate(timeout=30)
    assert child.returncode == 130, out
    assert "0 cells of 1, interrupted: none finished" in out
    results = json.loads((laboratory.folder / "run" / "results.json").read_text())
    assert (results["complete"], results["cells"]) == (False, [])
    assert not any(is_alive_with(path, str(laboratory.folder)) for path in Path("/proc").glob("[0-9]*"))


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline, path
        time.sleep(0.05)


def is_alive_with(process: Path, text: str) -> bool:
    try:
        return text.encode() in (process / "cmdline").read_bytes()
    except OSError:
        return False
