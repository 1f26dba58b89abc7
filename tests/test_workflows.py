"""The workflows of GitHub: valid, safe, and unable to pass when nothing ran."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cuvil_regress import matrix, models, policy, shards

ROOT = Path(__file__).parent.parent
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
ACTIONS = sorted((GITHUB / "actions").glob("*/action.yml"))


def read(path: Path) -> dict[Any, Any]:
    document: dict[Any, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return document


def steps(path: Path) -> Iterator[dict[str, Any]]:
    document = read(path)
    if "runs" in document:
        yield from document["runs"]["steps"]
    for job in document.get("jobs", {}).values():
        yield from job["steps"]


@pytest.mark.parametrize(("files", "schema"), [(WORKFLOWS, "github-workflows"), (ACTIONS, "github-actions")])
def test_the_schema_of_github(files: list[Path], schema: str) -> None:
    command = [
        sys.executable,
        "-m",
        "check_jsonschema",
        "--builtin-schema",
        f"vendor.{schema}",
        *map(str, files),
    ]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert files
    assert finished.returncode == 0, finished.stdout + finished.stderr


def test_zizmor_finds_nothing() -> None:
    tool = Path(sys.executable).with_name("zizmor")
    command = [str(tool), "--offline", "--no-progress", "--persona", "pedantic", str(GITHUB)]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    for path in (*WORKFLOWS, *ACTIONS):
        assert f"completed {path}" in finished.stderr


@pytest.mark.parametrize("path", [*WORKFLOWS, *ACTIONS], ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_script_ends_at_its_first_failure(path: Path) -> None:
    """GitHub adds pipefail only where the shell is named."""
    default = read(path).get("defaults", {}).get("run", {}).get("shell")
    scripts = [step for step in steps(path) if "run" in step]
    assert scripts
    for step in scripts:
        assert step.get("shell", default) == "bash"
        subprocess.run(["bash", "-n"], input=step["run"], text=True, check=True)
    for script in (ROOT / ".ci").iterdir():
        assert "\nset -euo pipefail\n" in script.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", [*WORKFLOWS, *ACTIONS], ids=lambda path: f"{path.parent.name}/{path.name}")
def test_foreign_actions_are_named_by_commit_and_version(path: Path) -> None:
    used = re.findall(r"uses: (.*)", path.read_text(encoding="utf-8"))
    for name in used:
        own = name.startswith("./") and (ROOT / name / "action.yml").is_file()
        assert own or re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", name), name


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_jobs_end_and_may_only_read(path: Path) -> None:
    document = read(path)
    assert document["permissions"] == {}
    for job in document["jobs"].values():
        assert job["permissions"] == {"contents": "read"}
        assert 0 < job["timeout-minutes"] <= 60


def test_the_gate_waits_for_all_and_runs_whatever_became_of_them() -> None:
    jobs = read(GITHUB / "workflows" / "nightly.yml")["jobs"]
    gate = jobs["gate"]
    assert sorted(gate["needs"]) == sorted(set(jobs) - {"gate"})
    assert gate["if"] == "${{ always() }}"
    scripts = [step["run"] for step in gate["steps"] if "run" in step]
    assert len(scripts) == 1
    assert (
        scripts[0]
        .splitlines()[-1]
        .endswith('matrix gather runs/cells-* --expect "$MATRIX" --output-dir gathered')
    )
    assert not any(step.get("continue-on-error") for job in jobs.values() for step in job["steps"])


def test_the_jobs_of_the_night_are_those_of_the_plan() -> None:
    document = read(GITHUB / "workflows" / "nightly.yml")
    file = ROOT / document["env"]["MATRIX"]
    loaded = matrix.load(file, models=models.names(), policies=policy.names())
    assert {cell.model for cell in loaded.cells} == set(models.names())
    entries = shards.github_matrix(shards.split(loaded))["include"]
    job = document["jobs"]["cells"]
    used = set(re.findall(r"\bmatrix\.(\w+)", f"{job['name']} {job['steps']}"))
    assert used <= set(entries[0])
    assert used >= {"shard", "torch", "artifact"}
    given = next(step["with"] for step in job["steps"] if step["uses"].startswith("./"))
    assert set(given) <= set(read(ACTIONS[0])["inputs"])
