"""The comparison of two runs: for people as a table, for machines as `compare.json`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cuvil_regress.model import SCHEMA_VERSION
from cuvil_regress.pairs import CLEAN_PAIR_VERDICTS, PAIR_VERDICTS, CellPair, RunComparison
from cuvil_regress.reports.json import validated
from cuvil_regress.reports.terminal import counted, plain_table

FINDINGS_SHOWN = 8
"""Findings printed for a pair of cells; `compare.json` has them all."""


def render(comparison: RunComparison) -> dict[str, Any]:
    """The document of `compare.json`, checked against its schema."""
    document = {
        "schema_version": SCHEMA_VERSION,
        "side_a": asdict(comparison.side_a),
        "side_b": asdict(comparison.side_b),
        "policy": comparison.policy,
        "verdict": comparison.verdict,
        "exit_code": comparison.exit_code,
        "pairs": [_render_pair(pair) for pair in comparison.pairs],
    }
    return validated(document, "compare")


def _render_pair(pair: CellPair) -> dict[str, Any]:
    return {
        "model": pair.model,
        "target": pair.target,
        "cell_a": pair.cell_a.id if pair.cell_a else None,
        "cell_b": pair.cell_b.id if pair.cell_b else None,
        "verdict": pair.verdict,
        "bit_identical": pair.bit_identical,
        "share_b_to_a": pair.share_b_to_a,
        "share_a_to_golden": pair.share_a_to_golden,
        "share_b_to_golden": pair.share_b_to_golden,
        "findings": list(pair.findings),
        "outputs": [asdict(output) for output in pair.outputs],
        "symbols": [asdict(change) for change in pair.symbols],
        "metadata": [asdict(change) for change in pair.metadata],
        "build_a": asdict(pair.build_a),
        "build_b": asdict(pair.build_b),
    }


def print_comparison(console: Console, comparison: RunComparison) -> None:
    """Print the table, what was found, and the totals."""
    for letter, side in zip("AB", (comparison.side_a, comparison.side_b), strict=True):
        console.print(f"{letter}: {side}", soft_wrap=True)
    console.print(f"shares of elements within the policy {comparison.policy}; size, compile: B against A\n")
    console.print(_table(comparison.pairs))
    for pairs in _alike(comparison.pairs):
        _print_findings(console, pairs)
    console.print(f"\n{totals(comparison)}", soft_wrap=True)


def totals(comparison: RunComparison) -> str:
    """All pairs in one line, with the verdict on all of them."""
    found = [pair.verdict for pair in comparison.pairs]
    counts = ", ".join(f"{found.count(verdict)} {verdict}" for verdict in PAIR_VERDICTS if verdict in found)
    return (
        f"{counted(len(found), 'pair')}: {counts}; verdict {comparison.verdict}; "
        f"exit code {comparison.exit_code}"
    )


_COLUMNS = (
    *(("model", False), ("target", False), ("verdict", False), ("same bits", False)),
    *(("B to A", True), ("A to\ngolden", True), ("B to\ngolden", True)),
    *(("symbols", False), ("size", True), ("compile", True)),
)
"""Headers, and whether numbers stand below."""


def _table(pairs: Iterable[CellPair]) -> Table:
    table = plain_table(_COLUMNS)
    for pair in pairs:
        table.add_row(
            pair.model,
            pair.target,
            Text(pair.verdict, style="green" if pair.verdict in CLEAN_PAIR_VERDICTS else "red"),
            {True: "yes", False: "NO", None: "-"}[pair.bit_identical],
            format_share(pair.share_b_to_a),
            format_share(pair.share_a_to_golden),
            format_share(pair.share_b_to_golden),
            _format_symbols(pair),
            format_change(pair.build_a.size_bytes, pair.build_b.size_bytes),
            format_change(pair.build_a.compile_ns, pair.build_b.compile_ns),
        )
    return table


def format_change(a: int | None, b: int | None) -> str:
    """How much more B is than A, in percent; only what is equal is called the same."""
    if not a or b is None:
        return "-"
    if a == b:
        return "same"
    percent = (b / a - 1) * 100
    return f"{percent:+.0f}%" if abs(percent) >= 9.5 else f"{percent:+.2g}%"


def format_share(share: float | None) -> str:
    """A share in percent; only what is complete is called 100 %."""
    if share is None:
        return "-"
    return "100%" if share == 1 else f"{min(share * 100, 99.99):.2f}%"


def _format_symbols(pair: CellPair) -> str:
    if pair.build_a.size_bytes is None or pair.build_b.size_bytes is None:
        return "-"
    added = sum(len(change.added) for change in pair.symbols)
    removed = sum(len(change.removed) for change in pair.symbols)
    return f"+{added} -{removed}" if added or removed else "same"


def _alike(pairs: Iterable[CellPair]) -> list[list[CellPair]]:
    """The pairs of each model whose findings read the same, in the order in which they come."""
    found: dict[tuple[str, ...], list[CellPair]] = {}
    for pair in pairs:
        found.setdefault((pair.model, pair.verdict, *pair.findings), []).append(pair)
    return list(found.values())


def _print_findings(console: Console, pairs: list[CellPair]) -> None:
    findings = pairs[0].findings
    if not findings:
        return
    targets = ", ".join(pair.target for pair in pairs)
    console.print(f"\n{pairs[0].model} on {targets}: {pairs[0].verdict}", soft_wrap=True)
    for finding in findings[:FINDINGS_SHOWN]:
        console.print(f"  {finding}", soft_wrap=True)
    if len(findings) > FINDINGS_SHOWN:
        console.print(f"  and {len(findings) - FINDINGS_SHOWN} more in compare.json")
