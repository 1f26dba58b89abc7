"""`cuvil-regress compare` of releases: git refs and wheels, each built in an environment of its own."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.harness.runs.conftest import STAND_INS
from tests.needs import need_program

if TYPE_CHECKING:
    from tests.harness.runs.conftest import Laboratory, Ran

PYPROJECT = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
TAGS = {"v1": "extra-symbol", "broken": "no-build", "endless": "endless-build"}


@dataclass(frozen=True)
class Releases:
    """A laboratory with a repository whose tags are releases of the stand-in compiler."""

    laboratory: Laboratory
    repository: Path

    @property
    def temporary(self) -> Path:
        return self.laboratory.folder / "tmp"

    def arguments(self, a: str, b: str) -> list[str]:
        matrix = self.laboratory.write_matrix()
        return [
            *("compare", a, b, "--repository", str(self.repository), "--matrix", str(matrix)),
            *("--python", self.laboratory.python),
        ]

    def compare(self, a: str, b: str, *extra: str) -> Ran:
        return self.laboratory.call(*self.arguments(a, b), *extra)

    def document(self, a: str, b: str) -> tuple[int, dict[str, Any]]:
        output = self.laboratory.folder / "compare.json"
        ran = self.compare(a, b, "--output", str(output))
        return ran.code, json.loads(output.read_text())

    def git(self, *arguments: str) -> str:
        argv = ["git", "-C", str(self.repository), "-c", "user.name=n", "-c", "user.email=e@x", *arguments]
        return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def releases(shared_laboratory: Laboratory) -> Releases:
    need_program("git")
    folder = shared_laboratory.folder
    made = Releases(shared_laboratory, folder / "repository")
    for place in (made.repository, made.temporary):
        place.mkdir()
    shared_laboratory.environment.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    shared_laboratory.environment.setenv("TMPDIR", str(made.temporary))
    shared_laboratory.environment.setattr("tempfile.tempdir", None)
    shared_laboratory.environment.chdir(folder)
    made.git("init", "--quiet", "--initial-branch=main")
    shutil.copy(STAND_INS / "backend.py", made.repository)
    (made.repository / "pyproject.toml").write_text(PYPROJECT)
    places = {"python": sys.executable, "compiler": str(STAND_INS / "cuvil.py"), "folder": str(folder)}
    (made.repository / "places.json").write_text(json.dumps(places))
    for tag, fault in TAGS.items():
        (made.repository / "fault.txt").write_text(fault)
        made.git("add", "--all")
        made.git("commit", "--quiet", "--message", tag)
        made.git("tag", tag)
    return made


@pytest.fixture(scope="module")
def wheel(releases: Releases) -> Path:
    """A release that lost a symbol of v1, and changes one bit."""
    source = releases.laboratory.folder / "source"
    shutil.copytree(releases.repository, source, ignore=shutil.ignore_patterns(".git"))
    (source / "fault.txt").write_text("one-bit")
    program = "import backend, sys; print(backend.build_wheel(sys.argv[1]))"
    argv = [sys.executable, "-c", program, str(releases.laboratory.folder)]
    built = subprocess.run(argv, cwd=source, check=True, capture_output=True, text=True)
    return releases.laboratory.folder / built.stdout.strip()


def test_a_ref_and_a_wheel(releases: Releases, wheel: Path) -> None:
    ran = releases.compare("v1", str(wheel))
    assert ran.code == 1
    commit = releases.git("rev-parse", "v1")[:12]
    assert f"v1 (commit {commit}): building in an environment of its own" in ran.out
    assert f"A: v1 (commit {commit}, compiler 0.0)" in ran.out
    assert (
        f"B: {wheel} (wheel {hashlib.sha256(wheel.read_bytes()).hexdigest()[:12]}, compiler 0.0)" in ran.out
    )
    assert "ordinary/logits: 1 of 40 elements differ in bits" in ran.out
    assert "model library: removed cuvil_extra" in ran.out
    assert "1 pair: 1 abi-changed; verdict abi-changed; exit code 1" in ran.out


def test_equal_refs_are_built_once_and_clean(releases: Releases) -> None:
    code, document = releases.document("v1", "v1")
    assert (code, document["verdict"]) == (0, "identical")
    assert [document[side]["name"] for side in ("side_a", "side_b")] == ["v1 (baseline)", "v1 (candidate)"]
    assert document["side_a"]["identity"] == releases.git("rev-parse", "v1").strip()
    pair = document["pairs"][0]
    assert pair["build_a"]["size_bytes"] == pair["build_b"]["size_bytes"] > 0
    assert pair["build_a"]["compile_ns"] > 0
    again = releases.compare("v1", "v1")
    assert again.code == 0
    assert again.out.count("was built before") == 1
    assert "building" not in again.out


def test_both_sides_run_the_same_captures(releases: Releases) -> None:
    ran = releases.compare("v1", "v1", "--keep")
    kept = Path(ran.out.splitlines()[-1].strip())
    logs = [kept / role / "logs/torch-2.13.0/mlp/capture.log" for role in ("baseline", "candidate")]
    assert [log.is_file() for log in logs] == [True, False]
    inputs = "captures/torch-2.13.0/mlp/cases/ordinary/000.bin"
    assert (kept / "baseline" / inputs).read_bytes() == (kept / "candidate" / inputs).read_bytes()


def test_a_finished_run_is_a_side_too(releases: Releases, wheel: Path) -> None:
    releases.laboratory.plant("none")
    folder = releases.laboratory.run(name="finished").folder
    code, document = releases.document(str(folder), str(wheel))
    assert (code, document["verdict"]) == (0, "within-tolerance")
    assert [document[side]["kind"] for side in ("side_a", "side_b")] == ["run", "wheel"]


def test_a_release_that_can_not_be_built(releases: Releases) -> None:
    ran = releases.compare("v1", "broken")
    assert ran.code == 1
    first, hint = ran.err.splitlines()
    assert first == "broken: can't be built: RuntimeError: this release can't be built"
    assert "raise RuntimeError" in Path(hint.removeprefix("hint: see ")).read_text()
    assert "running" not in ran.out


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        (("--models", "bert*"), "has no cell for --models 'bert*'\nhint: its models are mlp; "),
        (("--targets", "z80"), "has no cell for --models '*' --targets z80"),
        (("--matrix", "absent.toml"), "absent.toml: can't be read"),
        (("--policy", "absent"), "absent"),
    ],
)
def test_a_request_that_can_not_be_met_builds_nothing(
    releases: Releases, extra: tuple[str, ...], words: str
) -> None:
    ran = releases.compare("v1", "endless", *extra)
    assert ran.code == 2
    assert words in ran.err
    assert ran.out == ""


def test_a_missing_torch_is_the_machines_fault(releases: Releases) -> None:
    matrix = releases.laboratory.write_matrix()
    other = matrix.with_name("other.toml")
    other.write_text(matrix.read_text().replace("2.13.0", "1.13.0"))
    ran = releases.compare("v1", "v1", "--matrix", str(other))
    assert ran.code == 3
    assert "torch 1.13.0: the capturing Python has another release; got 2.13.0" in ran.out
    assert "1 pair: 1 environment; verdict environment; exit code 3" in ran.out


def test_an_interrupt_ends_the_build_and_leaves_nothing(releases: Releases) -> None:
    argv = [sys.executable, "-m", "cuvil_regress.cli", *releases.arguments("v1", "endless")]
    marker = releases.laboratory.folder / "building"
    command = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not marker.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert marker.exists()
    command.send_signal(signal.SIGINT)
    assert (command.communicate(timeout=30)[1], command.returncode) == ("interrupted\n", 130)
    assert not [line for line in processes() if str(releases.laboratory.folder) in line]
    commit = releases.git("rev-parse", "endless").strip()
    kept = {path.suffix for path in (releases.laboratory.folder / "cache").rglob(f"commit-{commit}*")}
    assert kept == {".lock", ".log", ".out"}


def processes() -> list[str]:
    """The command lines of all processes."""
    return [
        (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        for folder in Path("/proc").glob("[0-9]*")
        if os.access(folder / "cmdline", os.R_OK)
    ]


def test_nothing_is_left_behind(releases: Releases) -> None:
    """Runs last: after all comparisons above, no temporary folder is left, nor a trace in the repository."""
    assert list(releases.temporary.iterdir()) == []
    assert releases.git("status", "--porcelain", "--ignored") == ""
    assert len(releases.git("worktree", "list").splitlines()) == 1
