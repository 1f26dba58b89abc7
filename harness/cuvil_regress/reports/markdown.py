"""A run as Markdown for the job summary of GitHub: what failed comes first, and the whole stays below 1 MiB.

GitHub drops a summary that is larger as a whole, so rows are left out until it fits, the least telling first.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cuvil_regress.model import VERDICTS, Report, Result
from cuvil_regress.reports.terminal import counted, format_share_of_allowed, totals
from cuvil_regress.reports.text import describe_bits, shortened

LIMIT_BYTES = (1 << 20) - 1
"""The largest summary: less than 1 MiB for all that a step writes."""

MESSAGE_LIMIT = 400
"""Characters of a finding that are shown in its row."""

_SPECIAL = re.compile(r"([\\`*_\[\]|~#@$!])")


@dataclass(frozen=True)
class Section:
    """A piece of Markdown: a head, and rows that may be left out one by one."""

    head: str
    rows: Sequence[str] = ()


def render(report: Report, *, limit_bytes: int = LIMIT_BYTES, link: str = "") -> str:
    """The document of `summary.md`.

    Args:
        limit_bytes: what it may have at most, in UTF-8.
        link: where the whole report is, for a reader whose rows were left out.
    """
    faults = sorted(
        (result for result in report.results if not result.clean),
        key=lambda result: VERDICTS.index(result.verdict),
    )
    done = {result.cell for result in report.results}
    unfinished = [cell.id for cell in report.planned if cell not in done]
    sections = [Section(_title(report, len(faults)))]
    if faults:
        sections.append(Section(_HEAD_OF_FAULTS, [_fault_row(result) for result in faults]))
    if unfinished:
        rows = [f"- {escaped(name)}\n" for name in unfinished]
        sections.append(Section("\n### Not finished\n\n", rows))
    sections += _grids(report)
    return fit(sections, limit_bytes, link)


def fit(sections: Iterable[Section], limit_bytes: int, link: str = "") -> str:
    """Join the sections; rows that don't fit are left out as a whole, and counted in a last line."""
    whole = "".join(piece for section in sections for piece in (section.head, *section.rows))
    if len(whole.encode()) <= limit_bytes:
        return whole
    room = limit_bytes - len(_note(10**9, link).encode())
    kept: list[str] = []
    left_out = 0
    for section in sections:
        if len(section.head.encode()) > room:
            left_out += len(section.rows)
            continue
        for number, piece in enumerate((section.head, *section.rows)):
            size = len(piece.encode())
            if size <= room:
                kept.append(piece)
                room -= size
            else:
                left_out += number > 0
    return "".join([*kept, _note(left_out, link)])


def _note(rows: int, link: str) -> str:
    where = f"[the whole report]({link})" if link else "`report.html` and `results.json` of the run"
    left_out = counted(rows, "row")
    return f"\n**Left out here: {left_out}**, for GitHub shows no more than 1 MiB. All are in {where}.\n"


def _title(report: Report, faults: int) -> str:
    sign = "✅" if report.exit_code == 0 else "❌"
    verdict = "all cells pass" if report.exit_code == 0 else f"{faults} of {len(report.planned)} cells fail"
    return (
        f"## {sign} {escaped(report.matrix)}: {verdict}\n\n{escaped(totals(report))}\n\n"
        f"Compiler {escaped(report.compiler or 'unknown')}; policies: golden "
        f"{escaped(report.policies['golden'])}, targets {escaped(report.policies['targets'])}.\n"
    )


_HEAD_OF_FAULTS = (
    "\n### What failed\n\n| cell | verdict | of allowed | same bits | what |\n|---|---|--:|---|---|\n"
)


def _fault_row(result: Result) -> str:
    what = result.message
    hint = next((found.hint for found in result.findings if found.message == what), "")
    shown = escaped(shortened(what, MESSAGE_LIMIT))
    if hint:
        shown += f"<br>hint: {escaped(shortened(hint, MESSAGE_LIMIT))}"
    share = escaped(format_share_of_allowed(result.share_of_allowed))
    cells = (escaped(result.cell.id), f"**{result.verdict}**", share, describe_bits(result), shown)
    return f"| {' | '.join(cells)} |\n"


def _grids(report: Report) -> list[Section]:
    """A table for each release: a row for each model, a column for each target."""
    results = {result.cell: result for result in report.results}
    sections = []
    for torch in dict.fromkeys(cell.torch for cell in report.planned):
        cells = [cell for cell in report.planned if cell.torch == torch]
        targets = list(dict.fromkeys(cell.target for cell in cells))
        names = " | ".join(map(escaped, targets))
        head = f"\n### torch {escaped(torch)}\n\n| model | {names} |\n|---|{'---|' * len(targets)}\n"
        rows = []
        for model in dict.fromkeys(cell.model for cell in cells):
            of_model = {cell.target: results.get(cell) for cell in cells if cell.model == model}
            shown = " | ".join(_grid_cell(of_model, target) for target in targets)
            rows.append(f"| {escaped(model)} | {shown} |\n")
        sections.append(Section(head, rows))
    return sections


def _grid_cell(of_model: dict[str, Result | None], target: str) -> str:
    if target not in of_model:
        return ""
    result = of_model[target]
    if result is None:
        return "not finished"
    sign = "✅" if result.clean else "❌"
    share = escaped(format_share_of_allowed(result.share_of_allowed))
    bits = describe_bits(result)
    same = {"first": "first", "yes": "same bits", "NO": "other bits"}.get(bits, "")
    return f"{sign} {result.verdict}<br>{', '.join(filter(None, [share, same]))}"


def escaped(text: str) -> str:
    """Text that Markdown shows as it is, in one line."""
    return html.escape(_SPECIAL.sub(r"\\\1", shortened(text, 10_000)), quote=False)
