"""What a side of a comparison is: a finished run's folder, a wheel, or a git ref."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cuvil_regress.errors import ToolMissingError, UsageError
from cuvil_regress.pairs import SideKind
from cuvil_regress.process import Finished, NotStartedError, Processes, run_on_the_side
from cuvil_regress.workspace import CELLS, RESULTS

GIT_TIMEOUT_S = 60.0
NEAREST_SHOWN = 3
_EXPECTED = "expected a finished run's folder, a wheel, or a git ref"


@dataclass(frozen=True)
class Side:
    """A side that has been found.

    `identity` says what exactly it is: the commit's hash, the wheel's SHA-256, nothing for a run. `path` is
    the run's folder, the wheel's file, or the repository.
    """

    name: str
    kind: SideKind
    identity: str
    path: Path


@dataclass(frozen=True)
class Git:
    """Questions to a repository; what git writes goes to `logs`."""

    folder: Path
    processes: Processes
    logs: Path

    def ask(self, *arguments: str) -> Finished:
        """Run one git command.

        Raises:
            ToolMissingError: git is not installed.
        """
        argv = ["git", "-C", str(self.folder), *arguments]
        try:
            return run_on_the_side(self.processes, argv, log=self.logs / "git.log", timeout_s=GIT_TIMEOUT_S)
        except NotStartedError as error:
            raise ToolMissingError(
                "git: can't be started, and a ref needs it", hint="`apt-get install git`"
            ) from error

    def lines(self, *arguments: str) -> list[str]:
        """The lines that a git command prints; none when it fails."""
        finished = self.ask(*arguments)
        return finished.stdout.splitlines() if finished.code == 0 else []


def find_side(text: str, git: Git) -> Side:
    """Find what a command line's word means: a run's folder before a wheel before a git ref.

    Raises:
        UsageError: it is none of them, or the name of both a tag and a branch.
        ToolMissingError: git is needed and not installed.
    """
    path = Path(text)
    if (path / RESULTS).is_file():
        return Side(text, "run", "", path)
    if path.suffix == ".whl" and path.is_file():
        with path.open("rb") as file:
            return Side(text, "wheel", hashlib.file_digest(file, "sha256").hexdigest(), path.resolve())
    return _find_commit(text, git)


def _find_commit(text: str, git: Git) -> Side:
    repository = git.ask("rev-parse", "--absolute-git-dir")
    if repository.code != 0:
        raise _no_side(text, f"no such folder or wheel, and git has no repository here: {_words(repository)}")
    found = git.lines("rev-parse", "--verify", "--quiet", f"{text}^{{commit}}")
    if not found:
        raise _no_side(text, *_why_no_commit(text, git))
    _require_one_meaning(text, git)
    return Side(text, "commit", found[0], Path(repository.stdout.rstrip("\n")))


def _words(finished: Finished) -> str:
    lines = finished.stderr.strip().splitlines() or [f"exit code {finished.code}"]
    return lines[0].removeprefix("fatal: ")


def _require_one_meaning(text: str, git: Git) -> None:
    """Git itself takes the tag where a branch has the same name, and says so where no one looks."""
    places = ("refs/tags", "refs/heads", "refs/remotes")
    meanings = [f"{place}/{text}" for place in places if git.lines("show-ref", "--", f"{place}/{text}")]
    if len(meanings) > 1:
        raise UsageError(f"{text!r}: is the name of several refs; expected one of {', '.join(meanings)}")


def _why_no_commit(text: str, git: Git) -> tuple[str, str | None]:
    """Why a word is no commit, and a hint at the names that come nearest."""
    ambiguous = "ambiguous" in git.ask("rev-parse", "--verify", f"{text}^{{commit}}").stderr
    if ambiguous:
        return "this short hash begins several commits", "write more of it"
    if git.lines("rev-parse", "--verify", "--quiet", text):
        return "this git object is no commit", None
    refs = git.lines("for-each-ref", "--format=%(refname:short)", "refs/tags", "refs/heads", "refs/remotes")
    return "no such folder, wheel, tag, branch or commit", nearest(text, refs)


def nearest(text: str, names: Sequence[str]) -> str | None:
    """A hint at the names that come nearest, or at all of a few."""
    close = difflib.get_close_matches(text, names, n=NEAREST_SHOWN, cutoff=0.5)
    if close:
        return f"did you mean {' or '.join(map(repr, close))}?"
    if names and len(names) <= 2 * NEAREST_SHOWN:
        return f"the repository has {', '.join(map(repr, names))}"
    return None


def _no_side(text: str, reason: str, hint: str | None = None) -> UsageError:
    path = Path(text)
    if path.is_dir():
        killed = (path / CELLS).is_file()
        hint = f"a run that was killed leaves {CELLS} alone; run it again" if killed else hint
        return UsageError(f"{text}: holds no {RESULTS}; {_EXPECTED}", hint=hint)
    if path.exists():
        return UsageError(f"{text}: is a file, but no wheel; {_EXPECTED}")
    return UsageError(f"{text!r}: {reason}; {_EXPECTED}", hint=hint)
