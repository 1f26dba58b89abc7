"""`harness/README.md`: its tables are complete, and its examples work as they stand there."""

from __future__ import annotations

import ast
import json
import platform
import re
import subprocess
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cuvil_regress
from cuvil_regress import checks, golden, matrix, models, pairs, policy
from cuvil_regress.matrix import DEFAULT_TIMEOUTS_S
from cuvil_regress.model import VERDICTS, Cell, Result, exit_code
from cuvil_regress.reports import documents, junit
from cuvil_regress.scan import scan
from tests.needs import need_program

PACKAGE = Path(cuvil_regress.__file__).parent
README = (Path(__file__).parents[2] / "harness" / "README.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return README.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def rows(text: str) -> list[list[str]]:
    """The rows of the tables in a text, without their heads."""
    lines = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line] for line in lines if line[0].strip(" -")]


def names(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def example(path: str) -> str:
    """The code block that stands under a path."""
    found = re.search(rf"^`{re.escape(path)}`:\n\n```\w+\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    assert found, path
    return found[1]


def test_every_verdict_is_told_in_order_with_its_exit_code() -> None:
    told = [(names(verdict)[0], int(code)) for verdict, code, _ in rows(section("Verdicts"))[1:]]
    cell = Cell("1", "m", "t")
    assert told == [(verdict, exit_code([Result(cell, verdict)])) for verdict in VERDICTS]
    table = section("Comparing two releases").partition("\n### Verdicts of pairs\n")[2]
    compared = [(names(verdict)[0], int(code)) for verdict, code, _ in rows(table)[1:]]
    side = pairs.SideId("a", "run", "", "")
    assert compared == [
        (
            verdict,
            pairs.RunComparison(side, side, "p", (pairs.CellPair("m", "t", cell, cell, verdict),)).exit_code,
        )
        for verdict in pairs.PAIR_VERDICTS
    ]


def test_every_field_of_the_results_is_told() -> None:
    schema = json.loads((PACKAGE / "schemas" / "results.schema.json").read_text())
    parts = [schema, *(schema["$defs"][name] for name in ("cell", "step", "finding", "output"))]
    told = [names(fields_of) for _, fields_of in rows(section("The run folder"))[1:]]
    assert [sorted(each) for each in told] == [sorted(part["properties"]) for part in parts]
    assert all(sorted(part["required"]) == sorted(part["properties"]) for part in parts)


def test_every_report_is_told() -> None:
    told = {names(row[1])[0]: names(row[0])[0] for row in rows(section("Reports"))[1:]}
    assert told == {name: file for name, (file, _) in documents.FORMATS.items()}
    told_failures = section("Reports").partition("is a `failure`:")[2].partition(". One")[0]
    assert set(names(told_failures)) == junit.FAILURES


def test_every_key_of_a_policy_and_of_a_matrix_is_told() -> None:
    told = [names(row[0])[0] for row in rows(section("Policies"))[1:]]
    known = [field.name for field in fields(policy.Policy) if field.name != "name"]
    assert told == ["schema_version", *known]
    keys = [name.rpartition(".")[2] for row in rows(section("Matrix files"))[1:] for name in names(row[0])]
    axes = [field.name for field in fields(Cell)]
    tables = ["golden", "targets", *DEFAULT_TIMEOUTS_S, "exclude", "include"]
    assert keys == ["schema_version", "golden", *axes, *tables]


def test_every_damage_of_a_golden_is_told() -> None:
    told = {names(row[0])[0] for row in rows(section("Goldens"))[1:]}
    tree = ast.parse(Path(golden.__file__).read_text(encoding="utf-8"))
    given = set()
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name("_finding"), args=[ast.Constant(str(kind)), *_]):
                given.add(f"golden-{kind}")
    assert told == given


def test_the_matrix(tmp_path: Path) -> None:
    path = tmp_path / "small.toml"
    path.write_text(example("matrices/small.toml"))
    found = matrix.load(path, models=models.names(), policies=policy.names())
    assert [cell.id.removeprefix("torch-2.13.0/") for cell in found.cells] == [
        "lstm/x86_64-linux",
        "lstm/riscv64-linux",
        "encoder/x86_64-linux",
        "mlp/aarch64-linux",
    ]
    assert found.timeouts_s["run"] == 60


def test_the_policy(tmp_path: Path) -> None:
    path = tmp_path / "coarse.toml"
    path.write_text(example("harness/cuvil_regress/policies/coarse.toml"))
    assert policy.read(path).rtol == 1e-3


def test_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, torch: Any) -> None:
    (tmp_path / "gate.py").write_text(example("harness/cuvil_regress/models/gate.py"))
    monkeypatch.setattr(models, "__path__", [*models.__path__, str(tmp_path)])
    assert "gate" in models.names()
    monkeypatch.setenv("CI", "")
    golden.refresh(["gate"], "an example", tmp_path / "golden")
    stored = golden.load(tmp_path / "golden", "gate").cases
    assert list(stored) == ["ordinary", "special"]
    found = models.load("gate").evaluate("ordinary", "float32").outputs["gated"]
    np.testing.assert_allclose(found, stored["ordinary"]["gated"].values, rtol=1e-4, atol=1e-6)


def test_the_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "checks"
    folder.mkdir()
    (folder / "lazy_binding.py").write_text(example("harness/cuvil_regress/checks/lazy_binding.py"))
    monkeypatch.setattr(checks, "__path__", [*checks.__path__, str(folder)])
    checks.all_checks.cache_clear()
    try:
        assert "lazy-binding (note)\n  Every symbol is bound when" in checks.describe_checks()
        assert found_lazy(tmp_path, "-Wl,-z,lazy") == [("note", "link with -Wl,-z,now.")]
        assert found_lazy(tmp_path, "-Wl,-z,now") == []
    finally:
        checks.all_checks.cache_clear()


def found_lazy(folder: Path, flag: str) -> list[tuple[str, str]]:
    source, library = folder / "mine.c", folder / "libmine.so"
    source.write_text("int mine(void) { return 1; }")
    command = [need_program("cc"), "-shared", "-fPIC", "-nostdlib", flag, str(source), "-o", str(library)]
    subprocess.run(command, check=True)
    report = scan([library], target=f"{platform.machine()}-linux", torch_lib_dirs=[])
    return [(found.severity, found.hint) for found in report.findings if found.check == "lazy-binding"]
