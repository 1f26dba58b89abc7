"""A run as JUnit XML, as Jenkins, GitLab and their like read it: a suite a PyTorch release, a case a cell.

A cell that was judged and found wrong is a `failure`; one that could not be judged is an `error`. What XML
can't hold is written as a visible escape, so that a crash's last words never make the file unreadable.
"""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree

from cuvil_regress.model import Cell, Report, Result, Verdict
from cuvil_regress.reports.terminal import format_share_of_allowed
from cuvil_regress.reports.text import clipped, describe_bits, shortened, visible

FAILURES: frozenset[Verdict] = frozenset(
    {"abi-conflict", "dtype", "shape", "nan-policy", "mismatch", "bits-differ"}
)
"""Verdicts of cells that were judged and found wrong; all others that are not clean could not be judged."""

MESSAGE_LIMIT = 1_000
TEXT_LIMIT = 64_000


def render(report: Report) -> str:
    """The document of `junit.xml`."""
    root = ElementTree.Element("testsuites", name=visible(f"cuvil-regress {report.matrix}"))
    results = {result.cell: result for result in report.results}
    for torch in dict.fromkeys(cell.torch for cell in report.planned):
        root.append(_suite(torch, [(c, results.get(c)) for c in report.planned if c.torch == torch]))
    for key in ("tests", "failures", "errors", "skipped"):
        root.set(key, str(sum(int(suite.attrib[key]) for suite in root)))
    root.set("time", _seconds(report.elapsed_ns))
    ElementTree.indent(root)
    body = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{body}\n'


def _suite(torch: str, cells: Sequence[tuple[Cell, Result | None]]) -> ElementTree.Element:
    suite = ElementTree.Element("testsuite", name=visible(f"torch-{torch}"))
    for cell, result in cells:
        suite.append(_case(cell, result))
    suite.set("tests", str(len(suite)))
    for key, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(key, str(len(suite.findall(f"testcase/{tag}"))))
    suite.set("time", _seconds(sum(result.elapsed_ns for _, result in cells if result)))
    return suite


def _case(cell: Cell, result: Result | None) -> ElementTree.Element:
    case = ElementTree.Element(
        "testcase",
        classname=visible(f"torch-{cell.torch}.{cell.model}"),
        name=visible(cell.target),
        time=_seconds(result.elapsed_ns if result else 0),
    )
    if result is None:
        ElementTree.SubElement(case, "error", type="interrupted", message="the run ended before this cell")
        return case
    if not result.clean:
        _add_fault(case, result)
    ElementTree.SubElement(case, "system-out").text = _text(_facts(result))
    return case


def _add_fault(case: ElementTree.Element, result: Result) -> None:
    message = shortened(result.message, MESSAGE_LIMIT) or result.verdict
    if result.verdict == "skipped":
        ElementTree.SubElement(case, "skipped", message=message)
        return
    tag = "failure" if result.verdict in FAILURES else "error"
    fault = ElementTree.SubElement(case, tag, type=result.verdict, message=message)
    lines = [f"{found.severity}: {found.message}\n  {found.hint}".rstrip() for found in result.findings]
    fault.text = _text("\n".join(lines))


def _facts(result: Result) -> str:
    """What is known of a cell whatever became of it."""
    steps = [f"{step.name}: {_seconds(step.elapsed_ns)} s {step.log}".rstrip() for step in result.steps]
    share = format_share_of_allowed(result.share_of_allowed)
    facts = (f"verdict: {result.verdict}", f"of allowed: {share}", f"same bits: {describe_bits(result)}")
    return "\n".join([*facts, *steps])


def _text(text: str) -> str:
    return visible(clipped(text, TEXT_LIMIT))


def _seconds(elapsed_ns: int) -> str:
    return f"{elapsed_ns / 1e9:.3f}"
