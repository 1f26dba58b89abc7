"""A run as one HTML page that needs nothing else: no server, no network, no other file.

The page is `page.html.j2` with `page.css` and `page.js` inside it. Every text goes through the template's
escaping, and the page's own policy lets a browser run these two and load nothing.
"""

from __future__ import annotations

import base64
import hashlib
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup

from cuvil_regress.model import VERDICTS, Cell, Report, Result, StepResult
from cuvil_regress.reports import histogram
from cuvil_regress.reports.terminal import counted, format_share_of_allowed
from cuvil_regress.reports.text import describe_bits, describe_output_bits, visible
from cuvil_regress.workspace import Workspace

TAIL_LINES = 60
"""Lines of the log of a step that failed; of one that didn't, a few are enough."""
TAIL_LINES_OF_SUCCESS = 12
LINE_LIMIT = 2_000

OPEN_AT_MOST = 8
"""Cells that failed are open from the start, unless there are more."""


@dataclass(frozen=True)
class Row:
    """One model of one release in the grid."""

    model: str
    cells: Sequence[tuple[Cell | None, Result | None]]
    """For each target: a cell that is not planned is None, one that was not finished has no result."""

    @property
    def same_bits(self) -> str:
        """Whether all targets gave the bits of the first one: `yes`, `NO`, or `-` where that is not known."""
        planned = [result for cell, result in self.cells if cell is not None]
        found = [result for result in planned if result is not None]
        if any(result.bit_identical is False for result in found):
            return "NO"
        whole = len({len(result.outputs) for result in found}) == 1 and len(found) == len(planned) > 1
        return "yes" if whole and all(describe_bits(each) in ("first", "yes") for each in found) else "-"

    @property
    def clean(self) -> bool:
        return all(cell is None or (result is not None and result.clean) for cell, result in self.cells)


@dataclass(frozen=True)
class Grid:
    """All cells of one release."""

    torch: str
    targets: Sequence[str]
    rows: Sequence[Row]


@dataclass(frozen=True)
class Tail:
    """The end of a step's log."""

    lines: Sequence[str]
    cut: bool


def render(report: Report, workspace: Workspace) -> str:
    """The document of `report.html`; the ends of the logs are read from the run's folder."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("cuvil_regress", "reports"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    environment.filters.update(
        share=format_share_of_allowed,
        seconds=lambda elapsed_ns: f"{elapsed_ns / 1e9:.1f}",
        bits=describe_bits,
        output_bits=describe_output_bits,
        ulp=lambda value: "-" if value is None else f"{value:.0f}" if value < 1e6 else f"{value:.1e}",
        percent=_percent,
        counted=counted,
    )
    return environment.get_template("page.html.j2").render(_values(report, workspace))


def _values(report: Report, workspace: Workspace) -> dict[str, Any]:
    style, script = (files("cuvil_regress").joinpath("reports", name).read_text() for name in ASSETS)
    faults = sum(not result.clean for result in report.results)
    return {
        "report": report,
        "grids": list(_grids(report)),
        "results": sorted(report.results, key=lambda result: (result.clean, VERDICTS.index(result.verdict))),
        "unfinished": len(report.planned) - len(report.results),
        "faults": faults,
        "open_faults": faults <= OPEN_AT_MOST,
        "tail": lambda step: read_tail(workspace, step),
        "draw": histogram.draw,
        # Our own files, not data: they stand in the page as they are, and the policy names their hashes.
        "style": Markup(style),
        "script": Markup(script),
        "style_hash": _hash(style),
        "script_hash": _hash(script),
    }


ASSETS = ("page.css", "page.js")


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _finalize(value: object) -> object:
    """Every text of the page, without what can't be seen."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _percent(share: float) -> str:
    """A share of elements; one that misses only a few never reads as all."""
    return "100 %" if share == 1 else f"{min(share * 100, 99.99):.2f} %"


def _grids(report: Report) -> Iterator[Grid]:
    results = {result.cell: result for result in report.results}
    for torch in dict.fromkeys(cell.torch for cell in report.planned):
        cells = [cell for cell in report.planned if cell.torch == torch]
        targets = list(dict.fromkeys(cell.target for cell in cells))
        rows = []
        for model in dict.fromkeys(cell.model for cell in cells):
            of_model = {cell.target: cell for cell in cells if cell.model == model}
            found = [of_model.get(target) for target in targets]
            rows.append(Row(model, [(cell, results.get(cell) if cell else None) for cell in found]))
        yield Grid(torch, targets, rows)


def read_tail(workspace: Workspace, step: StepResult) -> Tail | None:
    """The last lines of a step's log; None where it has none, or names a file outside of the run's folder."""
    path = (workspace.root / step.log).resolve()
    if not step.log or not path.is_relative_to(workspace.root.resolve()) or not path.is_file():
        return None
    limit = TAIL_LINES_OF_SUCCESS if step.ok else TAIL_LINES
    with path.open(encoding="utf-8", errors="replace") as file:
        lines = deque(file, limit + 1)
    shown = [line.rstrip("\n").replace(f"{workspace.root}/", "")[:LINE_LIMIT] for line in lines]
    return Tail(shown[-limit:], len(shown) > limit)
