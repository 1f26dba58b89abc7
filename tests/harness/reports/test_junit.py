"""JUnit XML: what CI systems read, whatever a failing cell said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import xmlschema

from cuvil_regress.model import VERDICTS, Cell, Finding, Report, Result
from cuvil_regress.reports import junit

SCHEMA = xmlschema.XMLSchema(str(Path(__file__).with_name("junit.xsd")))


def parse(report: Report) -> ElementTree.Element:
    text = junit.render(report)
    SCHEMA.validate(text)
    return ElementTree.fromstring(text.encode())  # expat is strict


def one(result: Result) -> Report:
    policies = {"golden": "oracle-fp32", "targets": "release"}
    return Report("m.toml", "1.0", policies, (result.cell,), (result,), 1)


def test_cells_and_counts(report: Report) -> None:
    root = parse(report)
    assert [root.get(key) for key in ("tests", "failures", "errors", "skipped")] == ["12", "2", "3", "1"]
    (suite,) = root
    assert suite.get("name") == "torch-2.13.0"
    cases = {(case.get("classname"), case.get("name")): case for case in suite}
    assert list(cases)[4] == ("torch-2.13.0.resnet", "aarch64-linux")
    failure = cases["torch-2.13.0.resnet", "aarch64-linux"].find("failure")
    assert failure is not None
    assert failure.get("type") == "mismatch"
    assert "of allowed: 113 %" in str(cases["torch-2.13.0.resnet", "aarch64-linux"].findtext("system-out"))


def test_every_verdict_has_its_element() -> None:
    found = {}
    for verdict in VERDICTS:
        case = parse(one(Result(Cell("1", "m", "t"), verdict)))[0][0]
        found[verdict] = next((child.tag for child in case if child.tag != "system-out"), "passed")
    judged = {"abi-conflict", "dtype", "shape", "nan-policy", "mismatch", "bits-differ"}
    assert {verdict for verdict, tag in found.items() if tag == "failure"} == judged
    assert {verdict for verdict, tag in found.items() if tag == "passed"} == {"identical", "within-tolerance"}
    assert [verdict for verdict, tag in found.items() if tag == "skipped"] == ["skipped"]


def test_what_xml_cannot_hold_is_escaped_visibly(report: Report) -> None:
    case = parse(report)[0][4]
    failure = case.find("failure")
    assert failure is not None
    said = "resnet: mismatch: \\x00 \\x01 \\x1b[31mred\\x1b[0m \\ufffe \\ud800 ]]> <script>alert(1)</script>"
    assert str(failure.text).startswith(f"error: {said}")
    assert "|pipe|\nline" in str(failure.text)
    assert str(failure.get("message")).startswith(said)
    skipped = parse(report)[0][10].find("skipped")
    assert skipped is not None
    assert "\\x1b[31m" in str(skipped.get("message"))


def test_a_newline_in_a_name_survives_the_attribute() -> None:
    text = junit.render(one(Result(Cell("1", "two\nlines", "t"), "identical")))
    assert 'classname="torch-1.two&#10;lines"' in text
    SCHEMA.validate(text)


def test_a_long_text_is_cut_with_a_note() -> None:
    message = "x" * 5_000_000 + "the end"
    result = Result(Cell("1", "m", "t"), "crash", message, findings=(Finding("crash", "error", message),))
    text = junit.render(one(result))
    assert len(text) < 100_000
    error = ElementTree.fromstring(text)[0][0].find("error")
    assert error is not None
    assert str(error.text).startswith("[the first 4936014 characters are left out]\nxxx")
    assert str(error.text).endswith("the end")


def test_a_cell_that_an_interrupt_kept_from_running_is_an_error(report: Report) -> None:
    root = parse(replace(report, results=report.results[:3]))
    assert [root.get(key) for key in ("tests", "errors")] == ["12", "9"]
