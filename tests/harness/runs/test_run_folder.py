"""What a run leaves behind: whole, checked against its schema, and silent about the machine's names."""

from __future__ import annotations

import json
import os
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


@pytest.mark.parametrize("name", ["results", "compare", "plan"])
def test_the_schemas_are_schemas(name: str) -> None:
    path = Path(report_json.__file__).parents[1] / "schemas" / f"{name}.schema.json"
    jsonschema.Draft202012Validator.check_schema(json.loads(path.read_text()))
