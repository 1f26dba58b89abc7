"""`cuvil-regress compare` on this repository: two refs are built and run, and what was planted is named.

Building takes minutes and asks the package index, so these tests run on request: `nox -s compare`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cuvil import toolchain
from tests.needs import need, need_module, need_program

pytestmark = pytest.mark.compare

ROOT = Path(__file__).parents[2]
SUM = "fma(left, right, b.load(acc, (r, c)))"
"""The product and sum of a matrix product, rounded once."""
SUM_ROUNDED_TWICE = "left * right + b.load(acc, (r, c))"
SYMBOL = "cuvil_session_worker_runs"


@dataclass(frozen=True)
class Repository:
    """A clone of this repository with the tags `before` and `after`."""

    folder: Path
    cache: Path

    def compare(self, a: str, b: str) -> tuple[int, str, dict[str, Any]]:
        output = self.folder.parent / "compare.json"
        output.unlink(missing_ok=True)
        argv = [sys.executable, "-m", "cuvil_regress.cli", "compare", a, b, "--output", str(output)]
        selection = ["--models", "mlp", "--targets", toolchain.host_target()]
        environment = {**os.environ, "XDG_CACHE_HOME": str(self.cache)}
        ran = subprocess.run(
            [*argv, *selection], cwd=self.folder, env=environment, capture_output=True, text=True, check=False
        )
        assert output.is_file(), ran.stdout + ran.stderr
        return ran.returncode, ran.stdout, json.loads(output.read_text())

    def git(self, *arguments: str) -> str:
        argv = ["git", "-c", "user.name=n", "-c", "user.email=e@x", *arguments]
        return subprocess.run(argv, cwd=self.folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Repository]:
    need_program("git")
    need_module("torch")
    need("git repository", (ROOT / ".git").exists())
    folder = tmp_path_factory.mktemp("compare")
    made = Repository(folder / "repository", folder / "cache")
    subprocess.run(["git", "clone", "--quiet", "--shared", str(ROOT), str(made.folder)], check=True)
    made.git("tag", "before")
    replace(made.folder / "cuvil" / "loops" / "contraction.py", SUM, SUM_ROUNDED_TWICE)
    replace(made.folder / "cuvil" / "runtime" / "cuvil.map", f"    {SYMBOL};\n", "")
    made.git("commit", "--quiet", "--all", "--message", "plant a numeric change and remove a symbol")
    made.git("tag", "after")
    yield made
    shutil.rmtree(made.cache, ignore_errors=True)  # hundreds of megabytes


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1, path
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_equal_refs_are_clean(repository: Repository) -> None:
    code, out, document = repository.compare("before", "HEAD~1")
    assert (code, document["verdict"]) == (0, "identical"), out
    pair = document["pairs"][0]
    assert (pair["bit_identical"], pair["symbols"], pair["findings"]) == (True, [], [])
    assert pair["build_a"]["size_bytes"] == pair["build_b"]["size_bytes"]


def test_a_planted_numeric_change_and_a_removed_symbol_are_named(repository: Repository) -> None:
    code, out, document = repository.compare("before", "after")
    assert (code, document["exit_code"]) == (1, 1), out
    pair = document["pairs"][0]
    removed = f"{SYMBOL}@@CUVIL_1.0"
    assert pair["symbols"] == [{"library": "runtime", "added": [], "removed": [removed]}]
    assert f"runtime library: removed {removed}" in out
    assert any(output["differing_elements"] for output in pair["outputs"])
    assert "ordinary/logits: " in out
    assert pair["share_a_to_golden"] == pair["share_b_to_golden"] == 1


def test_nothing_is_left_in_the_repository(repository: Repository) -> None:
    assert repository.git("status", "--porcelain", "--ignored") == ""
    assert len(repository.git("worktree", "list").splitlines()) == 1
