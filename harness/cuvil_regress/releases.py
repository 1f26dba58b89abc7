"""Compares two releases of the compiler: builds what is not a run yet, runs it, compares the two runs.

Both sides run the same captured models on the same inputs, by this harness; only the compiler differs, with
the runtime that it brings.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from cuvil_regress import compare, matrix, models, policy, runner
from cuvil_regress.builds import Builds
from cuvil_regress.matrix import Matrix
from cuvil_regress.model import Cell
from cuvil_regress.pairs import RunComparison
from cuvil_regress.policy import Policy
from cuvil_regress.process import Processes
from cuvil_regress.runs import Run, Selection, open_run
from cuvil_regress.sides import Git, Side, find_side

ROLES = ("baseline", "candidate")


@dataclass(frozen=True)
class Settings:
    """How two releases are compared.

    Attributes:
        folder: Where the runs go; must be new or empty.
        cache: Where builds are kept.
        matrix: The matrix file of the runs; a side that is a run already decides their cells.
        repository: The repository whose refs are meant.
        python: The Python that captures the models.
        workers: Cells at a time.
    """

    folder: Path
    cache: Path
    matrix: Path
    repository: Path
    selection: Selection
    policy: Policy
    python: str
    workers: int = 2


@dataclass(frozen=True)
class Audience:
    """Who is told how it goes: by a line, and of the cells of each run."""

    say: Callable[[str], None]
    observe: Callable[[], AbstractContextManager[runner.Observer]]


def compare_releases(names: tuple[str, str], settings: Settings, audience: Audience) -> RunComparison:
    """Compare what two words of a command line mean.

    Raises:
        UsageError: a word means nothing, or nothing of it is selected.
        BuildError: a side can't be built.
        ToolMissingError: this machine can't build.
        KeyboardInterrupt: after an interrupt, with everything ended that was started.
    """
    processes = Processes()
    git = Git(settings.repository, processes, settings.folder / "logs")
    sides = tuple(find_side(name, git) for name in names)
    bench = _Bench(settings, audience, Builds(settings.cache, processes))
    finished = {side: _opened(side, settings) for side in dict.fromkeys(sides) if side.kind == "run"}
    new = [side for side in dict.fromkeys(sides) if side not in finished]
    # Whatever can be wrong with a request is told before minutes are spent on its builds.
    cells = _matrix(settings, list(finished.values())) if new else None
    commands = {side: bench.build(side) for side in new}
    runs: list[Run] = []
    for role, side in zip(ROLES, sides, strict=True):
        if cells is None or side in finished:
            runs.append(finished[side])
            continue
        captured = next(iter([*finished.values(), *runs]), None)
        runs.append(bench.run(role, side, commands[side], cells, captured))
    return compare.compare_runs(*_told_apart(runs), settings.policy)


def _opened(side: Side, settings: Settings) -> Run:
    return replace(open_run(side.path), name=side.name).select(settings.selection)


def _matrix(settings: Settings, runs: Sequence[Run]) -> Matrix:
    """The matrix file's cells, or those of the run that the other side already is."""
    loaded = matrix.load(settings.matrix, models=models.names(), policies=policy.names())
    loaded.require_golden()
    cells: Sequence[Cell] = runs[0].report.planned if runs else loaded.cells
    return replace(loaded, cells=settings.selection.of(cells, str(settings.matrix)))


@dataclass(frozen=True)
class _Bench:
    """Builds and runs sides, and tells so."""

    settings: Settings
    audience: Audience
    builds: Builds

    def build(self, side: Side) -> tuple[str, ...]:
        """The command of the side's compiler."""
        known = self.builds.find(side)
        if known is not None:
            self.audience.say(f"{_exactly(side)}: was built before")
            return known
        self.audience.say(f"{_exactly(side)}: building in an environment of its own")
        start = time.monotonic()
        command = self.builds.make(side)
        self.audience.say(f"{_exactly(side)}: built in {time.monotonic() - start:.0f} s")
        return command

    def run(self, role: str, side: Side, command: Sequence[str], cells: Matrix, captured: Run | None) -> Run:
        """Run the matrix by the side's compiler."""
        self.audience.say(f"{role} {_exactly(side)}: running")
        options = runner.Options(
            self.settings.folder / role,
            shlex.join(command),
            self.settings.python,
            self.settings.workers,
            captured=captured.workspace.root if captured else None,
        )
        with self.audience.observe() as observer:
            report = runner.run(cells, options, observer)
        if not report.complete:
            raise KeyboardInterrupt
        return replace(open_run(options.output_dir), name=side.name, kind=side.kind, identity=side.identity)


def _exactly(side: Side) -> str:
    return f"{side.name} ({side.kind} {side.identity[:12]})"


def _told_apart(pair: Sequence[Run]) -> tuple[Run, Run]:
    """The runs under names that differ, also where someone compares a thing with itself."""
    a, b = pair
    if a.name != b.name:
        return a, b
    return replace(a, name=f"{a.name} ({ROLES[0]})"), replace(b, name=f"{b.name} ({ROLES[1]})")
