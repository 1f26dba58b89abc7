"""Gathers the runs of all shards into one, and holds it against the matrix: what is missing is a failure.

A job that was never started leaves nothing behind that could fail, so it is the matrix that says which
cells there must be, not the runs.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cuvil_regress.errors import HarnessError, UsageError
from cuvil_regress.matrix import Matrix
from cuvil_regress.model import Cell, Finding, Report, Result
from cuvil_regress.reports import documents
from cuvil_regress.reports import json as report_json
from cuvil_regress.workspace import CELLS, ENVIRONMENT, FOLDERS, RESULTS, Workspace

CHECK = "missing"


@dataclass(frozen=True)
class Part:
    """The run of one shard."""

    folder: Path
    report: Report


@dataclass(frozen=True)
class Gathered:
    """The one report, and what could not be read on the way there."""

    report: Report
    faults: tuple[str, ...]


def gather(folders: Sequence[Path], expected: Matrix, output_dir: Path) -> Gathered:
    """Merge runs into the run folder `output_dir`, which must be new or empty.

    A folder that holds no readable results is told, and its cells are missing.

    Raises:
        UsageError: the runs can't be one: two have the same cell, one has a cell that the matrix doesn't,
            or they were made by other compilers or judged by other policies.
    """
    parts, faults = _read(folders)
    _require_one_run(parts, expected)
    results = _merge(parts, expected)
    for part in parts:
        _copy(part, output_dir)
    compilers = {part.report.compiler for part in parts} - {""}
    policies = {"golden": expected.policies.golden, "targets": expected.policies.targets}
    elapsed_ns = sum(part.report.elapsed_ns for part in parts)
    compiler = next(iter(compilers), "")
    report = Report(expected.path.name, compiler, policies, expected.cells, results, elapsed_ns)
    lines = [report_json.render_line(result) for result in results]
    (output_dir / CELLS).write_text("".join(lines), encoding="utf-8")
    documents.write_all(report, Workspace(output_dir))
    return Gathered(report, faults)


def _read(folders: Sequence[Path]) -> tuple[list[Part], tuple[str, ...]]:
    parts, faults = [], []
    for folder in folders:
        try:
            parts.append(Part(folder, report_json.read(folder / RESULTS)))
        except HarnessError as error:
            faults.append(str(error))
    return parts, tuple(faults)


def _require_one_run(parts: Sequence[Part], expected: Matrix) -> None:
    policies = {"golden": expected.policies.golden, "targets": expected.policies.targets}
    compilers: dict[str, Path] = {}
    for part in parts:
        if dict(part.report.policies) != policies:
            found = dict(part.report.policies)
            raise UsageError(f"{part.folder}: was judged by other policies; expected {policies}, got {found}")
        if part.report.compiler:
            compilers.setdefault(part.report.compiler, part.folder)
    if len(compilers) > 1:
        found_in = ", ".join(f"{version!r} in {folder}" for version, folder in compilers.items())
        raise UsageError(f"the runs are of different compilers: {found_in}")


def _merge(parts: Sequence[Part], expected: Matrix) -> tuple[Result, ...]:
    """The results in the matrix's order; a cell that no run has gets the verdict `missing`."""
    found: dict[Cell, tuple[Path, Result]] = {}
    planned = set(expected.cells)
    for part in parts:
        for result in part.report.results:
            if result.cell not in planned:
                raise UsageError(f"{part.folder}: has {result.cell.id}, which {expected.path} does not plan")
            if result.cell in found:
                other = found[result.cell][0]
                raise UsageError(f"{part.folder}: has {result.cell.id}, which is in {other} already")
            found[result.cell] = (part.folder, result)
    return tuple(found[cell][1] if cell in found else _missing(cell) for cell in expected.cells)


def _missing(cell: Cell) -> Result:
    message = f"{cell.id}: is planned, but no run has it"
    hint = "see whether its job was started, and whether it left a run folder"
    return Result(cell, "missing", message, findings=(Finding(CHECK, "error", message, cell.id, hint=hint),))


def _copy(part: Part, output_dir: Path) -> None:
    """Copy what the run holds by cell and group; folders of different cells never meet."""
    for name in FOLDERS:
        if (part.folder / name).is_dir():
            shutil.copytree(part.folder / name, output_dir / name, dirs_exist_ok=True)
    if (part.folder / ENVIRONMENT).is_file():
        name = f"{part.folder.resolve().name}.json"
        (output_dir / "environments").mkdir(exist_ok=True)
        shutil.copyfile(part.folder / ENVIRONMENT, output_dir / "environments" / name)
