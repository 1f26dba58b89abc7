"""How goldens move in a refresh, as a table for the person who accepts it."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from cuvil_regress.golden import Drift
from cuvil_regress.reports.terminal import plain_table


def print_drifts(console: Console, drifts: Sequence[Drift]) -> None:
    """Print a row for each golden tensor, and the totals."""
    headers = ("model", "case", "output", "state", "changed", "max ULP64", "max relative")
    table = plain_table((header, header in headers[4:]) for header in headers)
    for drift in drifts:
        table.add_row(
            drift.model,
            drift.case,
            drift.tensor,
            drift.state,
            f"{drift.share_changed * 100:.2f}%",
            _format_ulp(drift.max_ulp),
            f"{drift.max_relative:.1e}",
        )
    console.print(table)
    changed = sum(drift.state != "unchanged" for drift in drifts)
    console.print(f"{len(drifts)} golden tensors, {changed} of them would change", soft_wrap=True)


def _format_ulp(value: int) -> str:
    return str(value) if value < 100_000 else f"{value:.1e}"
