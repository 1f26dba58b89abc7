"""Runs a matrix into a run folder."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

from cuvil_regress import environment
from cuvil_regress.errors import ToolMissingError, UsageError
from cuvil_regress.matrix import Matrix
from cuvil_regress.model import Cell, Report, Result
from cuvil_regress.process import Processes
from cuvil_regress.reports import json as report_json
from cuvil_regress.schedule import Schedule
from cuvil_regress.steps import Bench
from cuvil_regress.workspace import CELLS, ENVIRONMENT, RESULTS, Workspace, write_json


@dataclass(frozen=True)
class Options:
    """How a matrix is run."""

    output_dir: Path
    compiler: str = "cuvil"
    python: str = field(default_factory=environment.this_python)
    workers: int = 2


class Observer(Protocol):
    """Is told of the run as it goes on."""

    def started(self, cells: Sequence[Cell]) -> None: ...

    def finished(self, result: Result) -> None: ...


def run(matrix: Matrix, options: Options, observer: Observer) -> Report:
    """Run all cells and leave a complete run folder.

    An interrupt (Ctrl-C) ends the commands that run and returns the report of the cells done so far.

    Raises:
        UsageError: the output folder is in use, or an option can't be right.
    """
    workspace = Workspace(_fresh_folder(options.output_dir))
    start = time.monotonic_ns()
    with TemporaryDirectory(prefix="cuvil-regress-") as link:
        bench = _set_up(matrix, options, workspace, Path(link))
        observer.started(matrix.cells)
        with _line_writer(workspace.root / CELLS) as write_line:

            def finished(result: Result) -> None:
                write_line(result)
                observer.finished(result)

            results = Schedule(bench, finished).run(options.workers)
    report = _report(matrix, bench, results, time.monotonic_ns() - start)
    write_json(workspace.root / RESULTS, report_json.render(report))
    return report


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


def _fresh_folder(path: Path) -> Path:
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


def _set_up(matrix: Matrix, options: Options, workspace: Workspace, link: Path) -> Bench:
    """Ask each tool for its version; what is missing is kept to be told by each cell that needs it."""
    (link / "cuvil_regress").symlink_to(Path(__file__).resolve().parent)
    processes, logs = Processes(), workspace.root / "logs" / "setup"
    interpreter = environment.probe_interpreter(options.python, processes, logs / "python.log")
    compiler = _ask_compiler(options.compiler, processes, logs)
    launchers = {
        target: _find_launcher(cell, compiler, processes, logs)
        for target, cell in {cell.target: cell for cell in matrix.cells}.items()
    }
    bench = Bench(workspace, matrix, processes, interpreter, link, compiler, launchers)
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
    found = [each for each in bench.launchers.values() if isinstance(each, environment.Launcher)]
    compiler = None if isinstance(bench.compiler, ToolMissingError) else bench.compiler
    return environment.to_json(bench.interpreter, compiler, found)


def _report(matrix: Matrix, bench: Bench, results: Sequence[Result], elapsed_ns: int) -> Report:
    compiler = "" if isinstance(bench.compiler, ToolMissingError) else bench.compiler.version
    policies = {"golden": matrix.policies.golden, "targets": matrix.policies.targets}
    return Report(matrix.path.name, compiler, policies, matrix.cells, tuple(results), elapsed_ns)


@contextmanager
def _line_writer(path: Path) -> Iterator[Callable[[Result], None]]:
    """Writes each result as a line that is on the disk before the next cell ends."""
    with path.open("w", encoding="utf-8") as file:

        def write(result: Result) -> None:
            file.write(json.dumps(report_json.render_result(result), allow_nan=False) + "\n")
            file.flush()

        yield write
