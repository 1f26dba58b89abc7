"""A run's outputs as a pandas table: one row for each output of each case of each cell."""

from __future__ import annotations

import pandas as pd

from cuvil_regress.model import Report
from cuvil_regress.workspace import Workspace

COLUMNS = (
    *("torch", "model", "target", "cell_verdict", "case", "output", "verdict"),
    *("elements", "max_ulp", "share_within", "share_of_allowed", "differing_elements", "sha256"),
)


def frame(report: Report) -> pd.DataFrame:
    """The table; a cell that left no outputs has one row, with nothing from `case` on."""
    rows: list[tuple[object, ...]] = []
    for result in report.results:
        cell = (result.cell.torch, result.cell.model, result.cell.target, result.verdict)
        rows += [
            (
                *(*cell, output.case, output.output, output.verdict),
                *(output.elements, output.max_ulp, output.share_within),
                *(output.share_of_allowed, output.differing_elements, output.sha256),
            )
            for output in result.outputs
        ] or [cell + (None,) * (len(COLUMNS) - len(cell))]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def render(report: Report, _: Workspace) -> str:
    """The table as CSV."""
    return str(frame(report).to_csv(index=False))
