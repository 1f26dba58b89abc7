"""Render a scan for ABI faults: a terminal table, or data for JSON."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Column, Table
from rich.text import Text

from cuvil_regress.model import Finding, Severity
from cuvil_regress.scan import ScannedLibrary, ScanReport

SCHEMA_VERSION = 1

_STYLES: dict[Severity, str] = {"error": "bold red", "warning": "yellow", "note": "dim"}


def to_json(report: ScanReport) -> dict[str, object]:
    """The report as JSON-able data; `schema_version` changes when a key changes its meaning."""
    return {
        "schema_version": SCHEMA_VERSION,
        "target": report.target,
        "clean": report.clean,
        "elapsed_ns": report.elapsed_ns,
        "checks": list(report.checks),
        "libraries": [asdict(library) for library in report.libraries],
        "torch": [asdict(library) for library in report.torch],
        "findings": [asdict(finding) for finding in report.findings],
    }


def render_scan(report: ScanReport) -> RenderableType:
    """The report for a terminal: libraries, findings by severity, and one line that sums it up."""
    parts: list[RenderableType] = [_libraries_table(report.libraries)]
    if report.findings:
        parts += [_findings_table(report.findings), *_fixes(report.findings)]
    return Group(*parts, Text(summary_line(report)))


def summary_line(report: ScanReport) -> str:
    """What was read and what was found, on one line."""
    ours = sum(library.symbols for library in report.libraries)
    torch = sum(library.symbols for library in report.torch)
    counts = [
        f"{sum(finding.severity == severity for finding in report.findings)} {severity}(s)"
        for severity in _STYLES
    ]
    return (
        f"libraries: {len(report.libraries)} with {ours} symbols, of torch {len(report.torch)} with {torch};"
        f" {len(report.checks)} checks: {', '.join(counts)}; {report.elapsed_ns / 1e9:.2f} s"
    )


def _libraries_table(libraries: tuple[ScannedLibrary, ...]) -> Table:
    table = Table("library", "symbols", "exports", "undefined", "missing", "conflicts")
    for library in libraries:
        counts = (library.symbols, library.exports, library.undefined, library.missing, library.conflicts)
        table.add_row(escape(Path(library.file).name), *map(str, counts))
    return table


def _fixes(findings: tuple[Finding, ...]) -> list[Text]:
    """How to fix what each check found, once a check; notes ask for nothing."""
    fixes = {finding.check: finding.hint for finding in findings if finding.severity != "note"}
    return [Text(f"{check}, fix: {fix}") for check, fix in fixes.items()]


def _findings_table(findings: tuple[Finding, ...]) -> Table:
    table = Table("severity", "check", Column("finding", overflow="fold"))
    order = list(_STYLES)
    for finding in sorted(findings, key=lambda finding: order.index(finding.severity)):
        table.add_row(
            finding.severity, finding.check, escape(finding.message), style=_STYLES[finding.severity]
        )
    return table
