"""What a side of a comparison means: a run's folder, a wheel, a git ref, or nothing."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest

from cuvil_regress.errors import UsageError
from cuvil_regress.process import Processes
from cuvil_regress.sides import Git, find_side
from tests.needs import need_program


@pytest.fixture
def git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Git:
    """A repository with the tags v1.2 and v1.3, the branch topic, and a file."""
    need_program("git")
    repository = tmp_path / "repository"
    repository.mkdir()
    monkeypatch.chdir(repository)
    run("init", "--quiet", "--initial-branch=main")
    Path("file").touch()
    run("add", "file")
    run("commit", "--quiet", "--message", "one")
    run("tag", "v1.2")
    run("commit", "--quiet", "--allow-empty", "--message", "two")
    run("tag", "--annotate", "--message", "release", "v1.3")
    run("branch", "topic", "v1.2")
    return Git(repository, Processes(), tmp_path / "logs")


def run(*arguments: str) -> str:
    argv = ["git", "-c", "user.name=n", "-c", "user.email=e@x", *arguments]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


def fault(text: str, git: Git) -> UsageError:
    with pytest.raises(UsageError) as caught:
        find_side(text, git)
    return caught.value


@pytest.mark.parametrize("name", ["v1.3", "main", "HEAD", "refs/tags/v1.3", "main~0"])
def test_every_name_of_a_commit(git: Git, name: str) -> None:
    side = find_side(name, git)
    assert (side.kind, side.name, side.identity) == ("commit", name, run("rev-parse", "HEAD"))


def test_a_ref_is_found_from_a_folder_below(git: Git) -> None:
    below = git.folder / "below"
    below.mkdir()
    assert find_side("v1.2", Git(below, git.processes, git.logs)).kind == "commit"


def test_a_run_comes_before_a_wheel_before_a_ref(git: Git) -> None:
    run("tag", "both.whl")
    assert find_side("both.whl", git).kind == "commit"
    Path("both.whl").write_bytes(b"wheel")
    wheel = find_side("both.whl", git)
    assert (wheel.kind, wheel.identity) == ("wheel", hashlib.sha256(b"wheel").hexdigest())
    Path("topic").mkdir()
    assert find_side("topic", git).kind == "commit"
    Path("topic/results.json").touch()
    assert find_side("topic", git).kind == "run"


def test_an_unknown_name_is_told_with_the_nearest(git: Git) -> None:
    error = fault("v1.4", git)
    assert str(error) == (
        "'v1.4': no such folder, wheel, tag, branch or commit; "
        "expected a finished run's folder, a wheel, or a git ref"
    )
    assert error.hint == "did you mean 'v1.3' or 'v1.2'?"
    assert fault("xyz", git).hint == "the repository has 'main', 'topic', 'v1.2', 'v1.3'"


def test_a_tag_and_a_branch_of_one_name(git: Git) -> None:
    run("branch", "v1.2", "main")
    assert str(fault("v1.2", git)) == (
        "'v1.2': is the name of several refs; expected one of refs/tags/v1.2, refs/heads/v1.2"
    )
    assert find_side("refs/heads/v1.2", git).identity == run("rev-parse", "main")


def test_what_is_no_commit(git: Git) -> None:
    assert "this git object is no commit" in str(fault("HEAD^{tree}", git))
    assert str(fault("file", git)).startswith("file: is a file, but no wheel; expected")


def test_a_folder_without_results(git: Git) -> None:
    Path("run").mkdir()
    assert str(fault("run", git)).startswith("run: holds no results.json; expected a finished run's folder")
    assert fault("run", git).hint != "a run that was killed leaves cells.jsonl alone; run it again"
    Path("run/cells.jsonl").touch()
    assert fault("run", git).hint == "a run that was killed leaves cells.jsonl alone; run it again"


def test_a_ref_outside_of_any_repository(git: Git, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    error = fault("v1.2", Git(outside, git.processes, git.logs))
    assert "no such folder or wheel, and git has no repository here: not a git repository" in str(error)
