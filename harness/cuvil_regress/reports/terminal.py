"""Reports for people: progress while a run goes on, then a table, the findings, and the totals.

Without a terminal (a CI log) the same text comes plain: no control codes, and no cell of a table is cut.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from cuvil_regress.model import Cell, Finding, Report, Result
from cuvil_regress.reports.text import describe_bits
from cuvil_regress.workspace import CELLS, CSV, ENVIRONMENT, HTML, JUNIT, MARKDOWN, RESULTS

FINDINGS_SHOWN = 8
"""Findings printed for a cell; `results.json` has them all."""

REPORTED = (RESULTS, HTML, MARKDOWN, JUNIT, CSV, CELLS, ENVIRONMENT)
"""Files of a run's folder that are named below its report."""

LOG_WIDTH = 250
"""Width without a terminal: wide enough for every table, which takes no more than it needs."""


def open_console(file: TextIO | None = None, *, width: int | None = None) -> Console:
    """A console that prints text as it is, wrapped by the terminal alone."""
    console = Console(file=file, width=width, highlight=False, markup=False, emoji=False)
    if width is None and not console.is_terminal:
        console.width = LOG_WIDTH
    return console


class ProgressObserver:
    """Prints a line for each finished cell; on a terminal a bar stands below."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._total = self._done = 0
        self._progress = Progress(
            TextColumn("cells"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        self._task: TaskID | None = None

    def __enter__(self) -> ProgressObserver:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def resumed(self, kept: Sequence[Result], reasons: Mapping[Cell, str]) -> None:
        found = list(reasons.values())
        counts = ", ".join(f"{found.count(reason)} {reason}" for reason in dict.fromkeys(found))
        again = f"; {len(reasons)} to run: {counts}" if reasons else ""
        self._console.print(f"{counted(len(kept), 'cell')} kept{again}", soft_wrap=True)

    def started(self, cells: Sequence[Cell]) -> None:
        self._total = len(cells)
        self._task = self._progress.add_task("cells", total=self._total)

    def finished(self, result: Result) -> None:
        self._done += 1
        count = f"[{self._done:{len(str(self._total))}}/{self._total}]"
        line = Text(f"{count} {result.cell.id}: ").append(result.verdict, style=_style(result))
        self._console.print(line.append(f" ({result.elapsed_ns / 1e9:.1f} s)"), soft_wrap=True)
        if self._task is not None:
            self._progress.advance(self._task)


def print_report(console: Console, report: Report, folder: Path) -> None:
    """Print the table, what was found, the totals, and where the rest is."""
    for release in dict.fromkeys(cell.torch for cell in report.planned):
        results = [result for result in report.results if result.cell.torch == release]
        console.print(f"\ntorch {release}, compiler {report.compiler or 'unknown'}\n", soft_wrap=True)
        console.print(_table(results))
    for results in _alike(report.results):
        _print_findings(console, results, folder)
    console.print()
    console.print(totals(report), soft_wrap=True)
    for name in REPORTED:
        if (folder / name).is_file():
            console.print(f"  {folder / name}", soft_wrap=True)


def totals(report: Report) -> str:
    """All cells in one line."""
    counts = ", ".join(f"{count} {verdict}" for verdict, count in report.totals.items()) or "none finished"
    interrupted = "" if report.complete else f" of {len(report.planned)}, interrupted"
    seconds = report.elapsed_ns / 1e9
    return (
        f"{counted(len(report.results), 'cell')}{interrupted}: {counts}; {seconds:.1f} s; "
        f"exit code {report.exit_code}"
    )


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def plain_table(columns: Iterable[tuple[str, bool]]) -> Table:
    """A table without lines; each column is (header, is a number)."""
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    for header, is_number in columns:
        table.add_column(header, justify="right" if is_number else "left", overflow="fold")
    return table


def _table(results: Iterable[Result]) -> Table:
    headers = ("model", "target", "verdict", "of allowed", "same bits", "clash", "undef", "seconds")
    numbers = {"of allowed", "clash", "undef", "seconds"}
    table = plain_table((header, header in numbers) for header in headers)
    for result in results:
        table.add_row(
            result.cell.model,
            result.cell.target,
            Text(result.verdict, style=_style(result)),
            format_share_of_allowed(result.share_of_allowed),
            describe_bits(result),
            _count(result.abi_conflicts),
            _count(result.abi_missing),
            f"{result.elapsed_ns / 1e9:.1f}",
        )
    return table


def format_share_of_allowed(share: float | None) -> str:
    """A share in percent; from 10 % on it is rounded up, so that a violation never reads as 100 %."""
    if share is None:
        return "-"
    percent = share * 100
    if percent >= 100_000:
        return f"{percent:.1e} %"
    if percent >= 10:
        return f"{math.ceil(percent)} %"
    return f"{percent:.2g} %" if percent >= 0.01 or percent == 0 else "<0.01 %"


def _count(value: int | None) -> str:
    return "-" if value is None else str(value)


def _style(result: Result) -> str:
    if result.clean:
        return "green"
    return "yellow" if result.verdict in ("environment", "skipped") else "red"


def _print_findings(console: Console, results: Sequence[Result], folder: Path) -> None:
    """Print the findings of cells that found the same, once for all of them."""
    first = results[0]
    shown = _shown(first)
    if not shown:
        return
    title = Text(f"\n{first.cell.group} on {', '.join(result.cell.target for result in results)}: ")
    console.print(title.append(first.verdict, style=_style(first)), soft_wrap=True)
    for finding in shown[:FINDINGS_SHOWN]:
        _print_finding(console, finding)
    if len(shown) > FINDINGS_SHOWN:
        console.print(f"  and {len(shown) - FINDINGS_SHOWN} more in results.json")
    for log in dict.fromkeys(step.log for result in results for step in result.steps if not step.ok):
        if log:
            console.print(f"  log: {folder / log}", soft_wrap=True)


def _shown(result: Result) -> list[Finding]:
    return [finding for finding in result.findings if finding.severity != "note"]


def _alike(results: Iterable[Result]) -> list[list[Result]]:
    """The results of each group whose findings read the same, in the order in which they come."""
    found: dict[tuple[str, ...], list[Result]] = {}
    for result in results:
        words = [f"{finding.message}\n{finding.hint}" for finding in _shown(result)]
        found.setdefault((result.cell.group, result.verdict, *words), []).append(result)
    return list(found.values())


def _print_finding(console: Console, finding: Finding) -> None:
    prefix = "warning: " if finding.severity == "warning" else ""
    console.print(f"  {prefix}{finding.message}", soft_wrap=True)
    if finding.hint:
        console.print(f"  hint: {finding.hint}", soft_wrap=True)
