"""A matrix over many machines: the split, GitHub's limit on it, and the gate that misses no cell."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cuvil_regress import cli, shards
from cuvil_regress.errors import UsageError
from cuvil_regress.matrix import Matrix, Policies
from cuvil_regress.model import Cell, Report, Result, Verdict
from cuvil_regress.reports import json as report_json

TARGETS = ("x86_64-linux", "aarch64-linux", "riscv64-linux")
MATRIX = """
[axes]
torch = ["2.6.0", "2.13.0"]
model = ["mlp", "lstm"]
target = ["x86_64-linux", "riscv64-linux"]
"""


def matrix(*sizes: int, targets: int = 3) -> Matrix:
    """A matrix of as many releases as there are sizes, each with that many models."""
    cells = [
        Cell(f"2.{release}", f"m{model}", f"t{target}")
        for release, size in enumerate(sizes)
        for model in range(size)
        for target in range(targets)
    ]
    return Matrix(Path("m.toml"), tuple(cells), Path("golden"), Policies(), {})


@pytest.mark.parametrize(
    ("sizes", "count"), [((4,), 3), ((4,), 4), ((1, 9), 5), ((5, 5, 5), 3), ((2, 3), 5), ((7,), 1)]
)
def test_every_cell_is_in_one_shard_with_its_group(sizes: tuple[int, ...], count: int) -> None:
    whole = matrix(*sizes)
    parts = shards.split(whole, count)
    assert [part.name for part in parts] == [f"{number}/{count}" for number in range(1, count + 1)]
    assert sorted((cell for part in parts for cell in part.cells), key=whole.cells.index) == list(whole.cells)
    groups = [group for part in parts for group in part.groups]
    assert len(groups) == len(set(groups))
    assert all(len({cell.torch for cell in part.cells}) == 1 for part in parts)
    selected = [shards.select(whole, part.name).cells for part in parts]
    assert selected == [part.cells for part in parts]


def test_a_large_release_gets_more_shards() -> None:
    assert [len(part.groups) for part in shards.split(matrix(2, 8), 5)] == [2, 2, 2, 2, 2]


@pytest.mark.parametrize(
    ("groups", "targets", "jobs"), [(72, 4, 72), (256, 1, 256), (257, 1, 256), (288, 3, 256), (1, 3, 1)]
)
def test_github_starts_no_more_than_256_jobs(groups: int, targets: int, jobs: int) -> None:
    """A larger matrix is rejected before any job starts, so that nothing fails but nothing ran either."""
    whole = matrix(groups, targets=targets)
    entries = shards.github_matrix(shards.split(whole))["include"]
    assert len(entries) == jobs
    assert sum(int(entry["cells"]) for entry in entries) == groups * targets
    assert len({entry["name"] for entry in entries}) == len({entry["artifact"] for entry in entries}) == jobs
    with pytest.raises(UsageError, match="GitHub starts no job"):
        shards.split(matrix(300), 257)


def test_a_matrix_without_cells_is_an_error() -> None:
    with pytest.raises(UsageError, match=r"m\.toml: has no cells; expected at least one"):
        shards.split(matrix())


@pytest.mark.parametrize("count", [-1, 0, 1, 5])
def test_a_count_that_cannot_be(count: int) -> None:
    with pytest.raises(UsageError, match=f"can't be split into {count} shards; expected 2 to 4"):
        shards.split(matrix(2, 2), count)


@pytest.mark.parametrize("text", ["0/3", "4/3", "3", "1/", "a/b", "1/3/5", "-1/3", "1/0"])
def test_a_shard_that_is_none(text: str) -> None:
    with pytest.raises(UsageError, match="expected I/N with 1 <= I <= N"):
        shards.select(matrix(4), text)


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "m.toml"
    path.write_text(MATRIX)
    return path


def test_the_plan_for_github_is_one_line_of_json(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["matrix", "plan", str(plan), "--github", "--shards", "3"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert json.loads(out) == {
        "include": [
            entry("torch-2.6.0/mlp", "1/3", "001-of-003", "2.6.0", 2),
            entry("torch-2.6.0/lstm", "2/3", "002-of-003", "2.6.0", 2),
            entry("torch-2.13.0 3/3", "3/3", "003-of-003", "2.13.0", 4),
        ]
    }
    assert cli.main(["matrix", "plan", str(plan)]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "1/4: 2 cells: torch-2.6.0/mlp"


def entry(name: str, shard: str, artifact: str, torch: str, cells: int) -> dict[str, Any]:
    return {"name": name, "shard": shard, "artifact": artifact, "torch": torch, "cells": cells}


def write_run(folder: Path, cells: list[Cell], verdict: Verdict = "identical", **changes: Any) -> Path:
    """A finished run of these cells, with a file of each."""
    policies = {"golden": "oracle-fp32", "targets": "release"}
    results = tuple(Result(cell, verdict) for cell in cells)
    report = replace(Report("m.toml", "1.0", policies, tuple(cells), results, 5), **changes)
    for cell in cells:
        (folder / "logs" / cell.id).mkdir(parents=True)
        (folder / "logs" / cell.id / "run.log").write_text(cell.id)
    (folder / "environment.json").write_text("{}")
    (folder / "results.json").write_text(json.dumps(report_json.render(report)))
    return folder


def all_cells() -> list[Cell]:
    targets = ("x86_64-linux", "riscv64-linux")
    return [Cell(t, m, x) for t in ("2.6.0", "2.13.0") for m in ("mlp", "lstm") for x in targets]


def gather(plan: Path, *runs: Path) -> int:
    return cli.main(["matrix", "gather", *map(str, runs), "--expect", str(plan), "--output-dir", "all"])


def test_the_parts_become_one_run(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cells = all_cells()
    parts = [write_run(Path(f"runs/{n}"), cells[n::4]) for n in range(4)]
    assert gather(plan, *parts) == 0
    found = report_json.read(Path("all/results.json"))
    assert [result.cell for result in found.results] == cells == list(found.planned)
    assert (found.compiler, found.elapsed_ns, found.exit_code) == ("1.0", 20, 0)
    assert len(Path("all/cells.jsonl").read_text().splitlines()) == 8
    assert all(Path("all/logs", cell.id, "run.log").read_text() == cell.id for cell in cells)
    for name in ("report.html", "summary.md", "junit.xml", "environments/3.json"):
        assert Path("all", name).is_file()
    assert "8 cells: 8 identical" in capsys.readouterr().out


def test_a_planned_cell_without_a_result_fails_and_is_named(
    plan: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = all_cells()
    assert gather(plan, write_run(Path("runs/1"), cells[:6])) == 1
    results = json.loads(Path("all/results.json").read_text())
    assert results["totals"] == {"missing": 2, "identical": 6}
    out = capsys.readouterr().out
    for cell in cells[6:]:
        assert f"{cell.id}: is planned, but no run has it" in out
        assert cell.id in Path("all/summary.md").read_text().replace("\\", "")
    assert 'errors="2"' in Path("all/junit.xml").read_text()


def test_no_result_at_all_is_no_success(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """When every job was skipped, there is nothing that failed, and nothing that passed."""
    assert gather(plan, Path("runs/*")) == 1
    captured = capsys.readouterr()
    assert "8 cells: 8 missing" in captured.out
    assert "runs/*/results.json: can't be read: no such file" in captured.err


def test_an_interrupted_part_lacks_its_cells(plan: Path) -> None:
    cells = all_cells()
    results = tuple(Result(cell, "identical") for cell in cells[:3])
    assert gather(plan, write_run(Path("runs/1"), cells, results=results)) == 1
    totals = json.loads(Path("all/results.json").read_text())["totals"]
    assert totals == {"missing": 5, "identical": 3}


def test_a_fault_of_a_part_is_a_fault_of_the_whole(plan: Path) -> None:
    cells = all_cells()
    parts = (write_run(Path("runs/1"), cells[:4]), write_run(Path("runs/2"), cells[4:], "environment"))
    assert gather(plan, *parts) == 3


def test_a_damaged_part_is_told_even_if_nothing_is_missing(
    plan: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("runs/2").mkdir(parents=True)
    Path("runs/2/results.json").write_text("{")
    assert gather(plan, write_run(Path("runs/1"), all_cells()), Path("runs/2")) == 1
    assert "runs/2/results.json: is damaged" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"compiler": "2.0"}, "different compilers: '1.0' in runs/1, '2.0' in runs/2"),
        ({"policies": {"golden": "release", "targets": "release"}}, "runs/2: was judged by other policies"),
        ({"results": (Result(Cell("2.6.0", "mlp", TARGETS[0]), "identical"),)}, "which is in runs/1 already"),
        ({"results": (Result(Cell("1.0", "mlp", TARGETS[0]), "identical"),)}, "m.toml does not plan"),
    ],
)
def test_runs_that_cannot_be_one(
    plan: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], words: str
) -> None:
    cells = all_cells()
    parts = (write_run(Path("runs/1"), cells[:4]), write_run(Path("runs/2"), cells[4:], **changes))
    assert gather(plan, *parts) == 2
    assert words in capsys.readouterr().err


def test_a_folder_in_use_is_refused(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parts = write_run(Path("all"), all_cells())
    assert gather(plan, parts) == 2
    assert "exists already" in capsys.readouterr().err
