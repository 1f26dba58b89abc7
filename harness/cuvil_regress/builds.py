"""Builds of compilers to compare: each commit or wheel in a virtual environment of its own, made once."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cuvil_regress.errors import HarnessError, ToolMissingError, UsageError
from cuvil_regress.process import Finished, NotStartedError, Processes, run_on_the_side
from cuvil_regress.sides import Side
from cuvil_regress.workspace import write_json

BUILD_TIMEOUT_S = 1800.0
EXTRA = "link"
"""The distribution's extra that brings a linker; PyTorch stays out, for captures come from elsewhere."""

_RECORD = "build.json"
_FOREIGN_VARIABLES = re.compile(r"PYTHON.*|VIRTUAL_ENV|PIP_(TARGET|PREFIX|USER)")
"""Variables that would let another environment's packages, or other folders, into a build."""


class BuildError(HarnessError):
    """A commit or wheel that can't be installed: a finding about it, not about this machine."""


@dataclass(frozen=True)
class Builds:
    """The cache of builds. Its folders are named by what was built, so they never need to be renewed."""

    folder: Path
    processes: Processes

    def find(self, side: Side) -> tuple[str, ...] | None:
        """The command of a compiler that has been built before."""
        place = self._place(side)
        return _command(place) if (place / _RECORD).is_file() else None

    def make(self, side: Side) -> tuple[str, ...]:
        """The command of the side's compiler, built now unless it has been before.

        A build that fails or is interrupted leaves nothing behind but its logs.

        Raises:
            BuildError: it can't be installed.
            ToolMissingError: this machine can't build.
        """
        place = self._place(side)
        with _locked(place):
            if not (place / _RECORD).is_file():
                shutil.rmtree(place, ignore_errors=True)
                try:
                    self._build(side, place)
                except BaseException:
                    shutil.rmtree(place, ignore_errors=True)
                    raise
        return _command(place)

    def _place(self, side: Side) -> Path:
        return self.folder / f"{side.kind}-{side.identity}-{sys.implementation.cache_tag}"

    def _build(self, side: Side, place: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="cuvil-regress-build-") as scratch:
            venv = self._step(side, "venv", [sys.executable, "-m", "venv", str(place)], scratch)
            if venv.code != 0:
                hint = "on Debian and Ubuntu `apt-get install python3-venv` brings it"
                raise ToolMissingError(f"venv: {_last_error(venv)}", hint=hint)
            what = self._unpack(side, scratch) if side.kind == "commit" else side.path
            pip = [str(place / "bin" / "python"), "-I", "-m", "pip", "--disable-pip-version-check"]
            installed = self._step(side, "pip", [*pip, "install", "--no-input", f"{what}[{EXTRA}]"], scratch)
            self._require(side, installed, "pip")
        if not (place / "bin" / "cuvil").is_file():
            raise BuildError(f"{side.name}: its package has no command 'cuvil'")
        record = {"schema_version": 1, "name": side.name, "kind": side.kind, "identity": side.identity}
        write_json(place / _RECORD, record)

    def _unpack(self, side: Side, scratch: str) -> Path:
        """The commit's files. An archive leaves no trace in the repository, as a work tree would."""
        archive, tree = Path(scratch, "source.tar"), Path(scratch, "source")
        command = ["git", "-C", str(side.path), "archive", "--format=tar", "-o", str(archive), side.identity]
        self._require(side, self._step(side, "archive", command, scratch), "archive")
        with tarfile.open(archive) as tar:
            tar.extractall(tree, filter="data")
        return tree

    def _step(self, side: Side, name: str, argv: list[str], scratch: str) -> Finished:
        """Run a command of a build. What it leaves in its temporary folder when it is killed goes, too."""
        environment = {**_clean_environment(), "TMPDIR": scratch}
        try:
            return run_on_the_side(
                self.processes,
                argv,
                log=self._log(side, name),
                timeout_s=BUILD_TIMEOUT_S,
                environment=environment,
            )
        except NotStartedError as error:
            raise ToolMissingError(f"{argv[0]}: can't be started: {error}") from error

    def _require(self, side: Side, finished: Finished, name: str) -> None:
        if finished.code != 0 or finished.timed_out:
            hint = f"see {self._log(side, name)}"
            raise BuildError(f"{side.name}: can't be built: {_last_error(finished)}", hint=hint)

    def _log(self, side: Side, name: str) -> Path:
        place = self._place(side)
        return place.with_name(f"{place.name}.{name}.log")


def default_folder() -> Path:
    """Where builds are kept: `$XDG_CACHE_HOME/cuvil-regress/builds`."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "cuvil-regress" / "builds"


def _command(place: Path) -> tuple[str, ...]:
    """`-I` keeps PYTHONPATH, the working folder and the user's own packages out of the compiler's sight."""
    return (str(place / "bin" / "python"), "-I", str(place / "bin" / "cuvil"))


@contextmanager
def _locked(place: Path) -> Iterator[None]:
    """One build of one thing at a time, over all processes; the lock ends with its process."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        lock = place.with_name(f"{place.name}.lock").open("w")
    except OSError as error:
        reason = (error.strerror or "unknown reason").lower()
        raise UsageError(f"cache {str(place.parent)!r}: can't be written: {reason}") from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _clean_environment() -> Mapping[str, str]:
    return {name: value for name, value in os.environ.items() if not _FOREIGN_VARIABLES.fullmatch(name)}


_TELLING = (r"[A-Z]\w*(Error|Exception): \S", r"(error|ERROR|fatal): \S")
"""How the lines begin that say most about a failed installation, the best first."""


def _last_error(finished: Finished) -> str:
    if finished.timed_out:
        return f"it took longer than {BUILD_TIMEOUT_S:.0f} s"
    lines = [line.strip() for line in finished.stderr.splitlines() if line.strip()]
    for pattern in _TELLING:
        found = [line for line in lines if re.match(pattern, line)]
        if found:
            return found[-1]
    return (lines or [f"exit code {finished.code}"])[-1]
