"""The plan of a run, kept in its folder, and what of an earlier attempt at it still holds."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cuvil_regress import comparer, descendants, fingerprint, tensors
from cuvil_regress.errors import HarnessError, UsageError
from cuvil_regress.matrix import Matrix
from cuvil_regress.model import SCHEMA_VERSION, Cell, Result
from cuvil_regress.process import GRACE_S
from cuvil_regress.reports import json as report_json
from cuvil_regress.steps import Bench
from cuvil_regress.workspace import CELLS, PLAN, Workspace, write_json


@dataclass(frozen=True)
class Plan:
    """A run that has its folder. `done` are the results of earlier attempts, the latest of each cell."""

    workspace: Workspace
    matrix: Matrix
    mark: str
    """What the environment variables of the run's commands begin with, in every attempt."""
    done: Mapping[Cell, Result] = field(default_factory=dict)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep a second attempt from the folder, and end what a killed one left running.

        Raises:
            UsageError: an attempt is going on.
        """
        with (self.workspace.root / PLAN).open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise UsageError(f"{self.workspace.root}: the run is still going on") from error
            descendants.end_marked(f"{self.mark}_", patience_s=GRACE_S)
            yield


@dataclass(frozen=True)
class Choice:
    """Which results of earlier attempts are kept, and why the other cells run."""

    kept: Mapping[Cell, Result]
    reasons: Mapping[Cell, str]


def begin(folder: Path, matrix: Matrix, mark: str) -> Plan:
    """Write down what a new run is going to do."""
    planned = [cell.id for cell in matrix.cells]
    document = {
        "schema_version": SCHEMA_VERSION,
        "matrix": matrix.path.name,
        "mark": mark,
        "planned": planned,
    }
    write_json(folder / PLAN, document)
    return Plan(Workspace(folder), matrix, mark)


def reopen(folder: Path, matrix: Matrix) -> Plan:
    """The plan of a run that is to be continued, with what was done of it.

    Raises:
        UsageError: the folder is not that of a run of this matrix.
    """
    document = _read_plan(folder)
    if document["matrix"] != matrix.path.name:
        raise UsageError(
            f"--resume {str(folder)!r}: a run of another matrix; "
            f"expected {matrix.path.name!r}, got {document['matrix']!r}"
        )
    planned = set(document["planned"])
    cells = tuple(cell for cell in matrix.cells if cell.id in planned)
    strange = sorted(planned - {cell.id for cell in cells})
    if strange:
        lacking = f"{matrix.path.name} has no cell {strange[0]!r}"
        raise UsageError(
            f"--resume {str(folder)!r}: a run of another matrix; {lacking}", hint="start a new run"
        )
    workspace = Workspace(folder.resolve())
    results = report_json.read_lines(workspace.root / CELLS)
    done = {result.cell: result for result in results if result.cell in cells}
    return Plan(workspace, replace(matrix, cells=cells), document["mark"], done)


def _read_plan(folder: Path) -> Mapping[str, Any]:
    path = folder / PLAN
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        expected = f"expected the folder of a run, with its {PLAN}"
        raise UsageError(f"--resume {str(folder)!r}: no run to continue; {expected}") from error
    except ValueError as error:
        raise UsageError(f"{path}: is damaged: {error}") from error
    fault = report_json.find_schema_fault(document, "plan")
    if fault:
        raise UsageError(f"{path}: is damaged: {fault}")
    plan: Mapping[str, Any] = document
    return plan


def choose(plan: Plan, bench: Bench) -> Choice:
    """Keep the clean cells that nothing has changed for since they were run.

    A cell was compared with the bits of its group's first target, so it is kept with that one only.
    """
    reasons: dict[Cell, str] = {}
    first: dict[str, Cell] = {}
    for cell in plan.matrix.cells:
        head = first.setdefault(cell.group, cell)
        reason = _reason(plan, bench, cell)
        if not reason and head in reasons:
            reason = f"{head.target} is run again"
        if reason:
            reasons[cell] = reason
    kept = {cell: plan.done[cell] for cell in plan.matrix.cells if cell not in reasons}
    return Choice(kept, reasons)


def _reason(plan: Plan, bench: Bench, cell: Cell) -> str:
    """Why a cell must be run; empty when its result still holds."""
    result = plan.done.get(cell)
    if result is None:
        return "not done"
    if not result.clean:
        return result.verdict
    now = fingerprint.of_cell(bench, cell)
    changed = [part for part in fingerprint.PARTS if now[part] != result.inputs.get(part)]
    if changed:
        return f"{changed[0]} changed"
    return "" if _is_intact(plan.workspace, result) else "its files are damaged"


def _is_intact(workspace: Workspace, result: Result) -> bool:
    """Whether the folder still holds the library, and the outputs as they were recorded."""
    if not workspace.library(result.cell).is_file():
        return False
    try:
        folder = workspace.outputs(result.cell)
        found = {case: tensors.read(folder / case) for case in {each.case for each in result.outputs}}
    except HarnessError:
        return False
    return all(
        each.output in found[each.case]
        and comparer.masked_bits_sha256(found[each.case][each.output]) == each.sha256
        for each in result.outputs
    )
