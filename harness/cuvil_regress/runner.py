from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shlex
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

from cuvil_regress import environment, resume
from cuvil_regress.errors import RunFolderError, ToolMissingError, UsageError
from cuvil_regress.matrix import Matrix
from cuvil_regress.model import Cell, Report, Result
from cuvil_regress.process import Processes, new_mark
from cuvil_regress.reports import documents
from cuvil_regress.reports import json as report_json
from cuvil_regress.resume import Choice, Plan
from cuvil_regress.schedule import Schedule
from cuvil_regress.steps import Bench
from cuvil_regress.workspace import (
    CELLS,
    CSV,
    ENVIRONMENT,
    HTML,
    JUNIT,
    MARKDOWN,
    RESULTS,
    Workspace,
    write_json,
    write_text,
)


@dataclass(frozen=True)
class Options:
    """How a matrix is run."""

    output_dir: Path
    compiler: str = "cuvil"
    python: str = field(default_factory=environment.this_python)
    workers: int = 2
    resume: bool = False
    """Whether `output_dir` is the folder of an earlier attempt, which is continued."""
    captured: Path | None = None
    """Folder of a run whose captures are taken over, so that both see the same models and inputs."""


class Observer(Protocol):
    """Is told of the run as it goes on."""

    def resumed(self, kept: Sequence[Result], reasons: Mapping[Cell, str]) -> None: ...

    def started(self, cells: Sequence[Cell]) -> None: ...

    def finished(self, result: Result) -> None: ...


def run(matrix: Matrix, options: Options, observer: Observer) -> Report:
    """Run all cells and leave a complete run folder.

    An interrupt (Ctrl-C) ends the commands that run and returns the report of the cells done so far.

    Raises:
        UsageError: the output folder is in use, or an option can't be right.
        RunFolderError: the folder is full, or can't be written to any more.
    """
    with _telling_folder_faults(options.output_dir.resolve()):
        if options.resume:
            plan = resume.reopen(options.output_dir, matrix)
        else:
            plan = resume.begin(fresh_folder(options.output_dir), matrix, new_mark())
        with plan.locked():
            return _Run(plan, options, observer).run()


class _Run:
    """One attempt at a plan; it knows at every moment what was done."""

    def __init__(self, plan: Plan, options: Options, observer: Observer) -> None:
        self._plan, self._options, self._observer = plan, options, observer
        self._processes = Processes(plan.mark)
        self._results = [result for result in plan.done.values() if result.clean]
        self._compiler = ""
        self._start = time.monotonic_ns()

    def run(self) -> Report:
        try:
            with TemporaryDirectory(prefix="cuvil-regress-") as link:
                self._run_cells(Path(link))
        except KeyboardInterrupt:
            self._processes.stop()
        try:
            return self._write_report()
        except KeyboardInterrupt:  # the only one that comes: what was done is written all the same
            return self._write_report()

    def _run_cells(self, link: Path) -> None:
        bench = self._set_up(link)
        self._compiler = "" if isinstance(bench.compiler, ToolMissingError) else bench.compiler.version
        choice = resume.choose(self._plan, bench)
        self._results = list(choice.kept.values())
        self._clear(choice)
        if self._options.resume:
            self._observer.resumed(self._results, choice.reasons)
        self._observer.started(list(choice.reasons))
        with _line_writer(self._plan.workspace.root / CELLS, self._results) as write_line:

            def finished(result: Result) -> None:
                self._results.append(result)
                write_line(result)
                self._observer.finished(result)

            Schedule(bench, finished, choice.kept).run(self._options.workers)

    def _set_up(self, link: Path) -> Bench:
        with ThreadPoolExecutor(1) as pool:
            try:
                return pool.submit(_set_up, self._plan, self._options, self._processes, link).result()
            except KeyboardInterrupt:
                self._processes.stop()
                raise

    def _clear(self, choice: Choice) -> None:
        """Remove what earlier attempts left of the cells that are run again."""
        for name in (RESULTS, HTML, MARKDOWN, JUNIT, CSV):
            (self._plan.workspace.root / name).unlink(missing_ok=True)
        kept_groups = {cell.group for cell in choice.kept}
        for cell in choice.reasons:
            self._plan.workspace.clear(cell, group=cell.group not in kept_groups)

    def _write_report(self) -> Report:
        matrix = self._plan.matrix
        policies = {"golden": matrix.policies.golden, "targets": matrix.policies.targets}
        results = sorted(self._results, key=lambda result: matrix.cells.index(result.cell))
        elapsed_ns = time.monotonic_ns() - self._start
        report = Report(matrix.path.name, self._compiler, policies, matrix.cells, tuple(results), elapsed_ns)
        documents.write_all(report, self._plan.workspace)
        return report


_WRITE_FAULTS = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.EIO))


@contextmanager
def _telling_folder_faults(root: Path) -> Iterator[None]:
    """Turn the system's errors about the run's folder into one line."""
    try:
        yield
    except OSError as error:
        inside = str(error.filename or "").startswith(f"{root}/")
        if not inside and error.errno not in _WRITE_FAULTS:
            raise
        reason = (error.strerror or "unknown reason").lower()
        hint = f"what was done is kept: make room, then continue by --resume {shlex.quote(str(root))}"
        raise RunFolderError(f"run folder {str(root)!r}: can't be written to: {reason}", hint=hint) from error


def make_folder(parent: Path, name: str) -> Path:
    """Make a folder that is this run's alone, with a number behind its name where that is taken.

    Raises:
        UsageError: it can't be made.
    """
    try:
        parent.mkdir(parents=True, exist_ok=True)
        for number in itertools.count(1):
            folder = parent / (name if number == 1 else f"{name}-{number}")
            with contextlib.suppress(FileExistsError):
                folder.mkdir()
                break
    except OSError as error:
        raise _cannot_make(parent / name, error) from error
    return folder


def _cannot_make(path: Path, error: OSError) -> UsageError:
    reason = (error.strerror or "unknown reason").lower()
    hint = "name another by --output-dir"
    return UsageError(f"folder of the run: {str(path)!r} can't be made: {reason}", hint=hint)


def fresh_folder(path: Path) -> Path:
    """Make the folder of a run where the user wants it.

    Raises:
        UsageError: it is in use, or can't be made or written to.
    """
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UsageError(
            f"--output-dir {str(path)!r}: exists already; expected a new or an empty folder",
            hint="a run folder is never overwritten; choose another name",
        )
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _cannot_make(path, error) from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise UsageError(f"--output-dir {str(path)!r}: can't be written to: permission denied")
    return path.resolve()


def _set_up(plan: Plan, options: Options, processes: Processes, link: Path) -> Bench:
    """Ask each tool for its version; what is missing is kept to be told by each cell that needs it."""
    (link / "cuvil_regress").symlink_to(Path(__file__).resolve().parent)
    workspace, logs = plan.workspace, plan.workspace.root / "logs" / "setup"
    interpreter = environment.probe_interpreter(options.python, processes, logs / "python.log")
    compiler = _ask_compiler(options.compiler, processes, logs)
    launchers = {
        target: _find_launcher(cell, compiler, processes, logs)
        for target, cell in {cell.target: cell for cell in plan.matrix.cells}.items()
    }
    captured = Workspace(options.captured.resolve()) if options.captured else None
    bench = Bench(workspace, plan.matrix, processes, interpreter, link, compiler, launchers, captured)
    _keep_runtimes(bench)
    write_json(workspace.root / ENVIRONMENT, _environment(bench))
    return bench


def _ask_compiler(command: str, processes: Processes, logs: Path) -> environment.Compiler | ToolMissingError:
    words = environment.split_command(command)
    try:
        return environment.ask_compiler(words, processes, logs / "compiler.log")
    except ToolMissingError as error:
        return error


def _find_launcher(
    cell: Cell, compiler: environment.Compiler | ToolMissingError, processes: Processes, logs: Path
) -> environment.Launcher | ToolMissingError:
    if isinstance(compiler, ToolMissingError):
        return compiler
    try:
        return environment.find_launcher(compiler.tools(cell.built_for), cell.machine, processes, logs)
    except ToolMissingError as error:
        return error


def _keep_runtimes(bench: Bench) -> None:
    """Copy each target's runtime library into the run's folder, for later comparisons."""
    if isinstance(bench.compiler, ToolMissingError):
        return
    for target, launcher in bench.launchers.items():
        if isinstance(launcher, environment.Launcher):
            copy = bench.workspace.runtime(target)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(bench.compiler.tools(target.partition("@")[0]).runtime, copy)


def _environment(bench: Bench) -> dict[str, object]:
    found = {
        target: each for target, each in bench.launchers.items() if isinstance(each, environment.Launcher)
    }
    compiler = None if isinstance(bench.compiler, ToolMissingError) else bench.compiler
    return environment.to_json(bench.interpreter, compiler, found)


@contextmanager
def _line_writer(path: Path, kept: Iterable[Result]) -> Iterator[Callable[[Result], None]]:
    """Writes each result, after those that are kept, as a line that is there before the next cell ends."""
    write_text(path, "".join(map(report_json.render_line, kept)))
    with path.open("a", encoding="utf-8") as file:

        def write(result: Result) -> None:
            file.write(report_json.render_line(result))
            file.flush()

        yield write
