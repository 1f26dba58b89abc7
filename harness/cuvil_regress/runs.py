"""Finished run folders, opened to be compared."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from cuvil_regress.errors import UsageError
from cuvil_regress.model import Cell, Report
from cuvil_regress.pairs import SideId, SideKind
from cuvil_regress.reports import json as report_json
from cuvil_regress.workspace import RESULTS, Workspace


@dataclass(frozen=True)
class Selection:
    """Which models and targets are compared: a pattern, and a list that is empty for all."""

    models: str = "*"
    targets: tuple[str, ...] = ()

    def of(self, cells: Iterable[Cell], where: str) -> tuple[Cell, ...]:
        """The chosen ones of `cells`.

        Raises:
            UsageError: there is none.
        """
        present = tuple(cells)
        chosen = tuple(cell for cell in present if self._chooses(cell))
        if chosen:
            return chosen
        models, targets = ({getattr(cell, axis) for cell in present} for axis in ("model", "target"))
        wanted = f"--models {self.models!r}"
        wanted += f" --targets {','.join(self.targets)}" if self.targets else ""
        raise UsageError(
            f"{where}: has no cell for {wanted}",
            hint=f"its models are {', '.join(sorted(models))}; its targets {', '.join(sorted(targets))}",
        )

    def _chooses(self, cell: Cell) -> bool:
        return fnmatchcase(cell.model, self.models) and (not self.targets or cell.target in self.targets)


@dataclass(frozen=True)
class Run:
    """A finished run folder, under the name that the user gave it.

    Where the run was made for the comparison, `kind` and `identity` say what of.
    """

    name: str
    workspace: Workspace
    report: Report
    kind: SideKind = "run"
    identity: str = ""

    @property
    def side(self) -> SideId:
        return SideId(self.name, self.kind, self.identity, self.report.compiler)

    def damage(self, path: Path, what: str) -> UsageError:
        """The error of a folder that is not what its results say."""
        return UsageError(f"{self.name}: is damaged: {self.workspace.relative(path)}: {what}")

    def select(self, selection: Selection) -> Run:
        """The run as if it had been of the chosen cells alone.

        Raises:
            UsageError: it has none of them.
        """
        cells = selection.of(self.report.planned, self.name)
        results = tuple(result for result in self.report.results if result.cell in cells)
        return replace(self, report=replace(self.report, planned=cells, results=results))


def open_run(folder: Path) -> Run:
    """Open a finished run folder.

    Raises:
        UsageError: it is damaged, or its run did not finish.
    """
    report = report_json.read(folder / RESULTS)
    if not report.complete:
        done, planned = len(report.results), len(report.planned)
        raise UsageError(f"{folder}: the run was interrupted; expected {planned} cells, got {done}")
    return Run(str(folder), Workspace(folder.resolve()), report)
