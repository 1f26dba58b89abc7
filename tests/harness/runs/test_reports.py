"""The reports that a run leaves, made again from its results, and gathered from its shards."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pandas

if TYPE_CHECKING:
    from tests.harness.runs.conftest import Laboratory

REPORTS = {
    "html": "report.html",
    "markdown": "summary.md",
    "junit": "junit.xml",
    "json": "results.json",
    "csv": "outputs.csv",
}


def test_a_run_leaves_every_report_and_names_it(laboratory: Laboratory) -> None:
    laboratory.plant("crash")
    ran = laboratory.run()
    for name in REPORTS.values():
        assert f"\n  {ran.folder / name}\n" in ran.out
    root = ElementTree.parse(ran.folder / "junit.xml").getroot()
    assert [root.get(key) for key in ("tests", "failures", "errors")] == ["1", "0", "1"]
    assert "**crash**" in (ran.folder / "summary.md").read_text()
    page = (ran.folder / "report.html").read_text()
    assert '<span aria-hidden="true">✗</span> crash</a>' in page
    assert str(laboratory.folder / "run") not in page


def test_the_histogram_counts_every_finite_element(laboratory: Laboratory) -> None:
    ran = laboratory.run()
    for output in ran.cell["outputs"]:
        histogram = output["ulp_histogram"]
        assert 0 < sum(histogram) <= output["elements"]
        assert len(histogram) == int(output["max_ulp"]).bit_length() + 1
        assert (sum(histogram) == output["elements"]) == (output["case"] == "ordinary")


def test_reports_are_the_same_again(laboratory: Laboratory) -> None:
    ran = laboratory.run()
    written = {name: (ran.folder / file).read_text() for name, file in REPORTS.items()}
    for name, text in written.items():
        assert laboratory.call("report", str(ran.folder), "--format", name).out == text
    for file in ("report.html", "summary.md", "junit.xml"):
        (ran.folder / file).unlink()
    again = laboratory.call("report", str(ran.folder))
    assert again.code == 0
    assert {name: (ran.folder / file).read_text() for name, file in REPORTS.items()} == written
    assert sorted(again.out.splitlines()) == sorted(str(ran.folder / file) for file in REPORTS.values())


def test_the_job_summary_of_github(laboratory: Laboratory) -> None:
    summary = laboratory.folder / "step"
    laboratory.environment.setenv("GITHUB_STEP_SUMMARY", str(summary))
    ran = laboratory.run()
    assert summary.read_text() == (ran.folder / "summary.md").read_text()
    laboratory.environment.setenv("GITHUB_STEP_SUMMARY", str(laboratory.folder))
    ran = laboratory.run(name="again")
    assert (ran.code, "GITHUB_STEP_SUMMARY" in ran.err, ran.err.count("\n")) == (2, True, 1)
    assert (ran.folder / "results.json").is_file()


def test_a_shard_is_gathered_to_a_run_that_can_be_compared(laboratory: Laboratory) -> None:
    ran = laboratory.run(extra=("--shard", "1/1"))
    folder = laboratory.folder / "all"
    matrix = str(laboratory.folder / "matrix.toml")
    words = ("matrix", "gather", str(ran.folder), "--expect", matrix, "--output-dir", str(folder))
    assert laboratory.call(*words).code == ran.code == 0
    gathered = json.loads((folder / "results.json").read_text())
    assert gathered == ran.results
    assert (folder / "cells.jsonl").read_text() == (ran.folder / "cells.jsonl").read_text()
    assert laboratory.call("compare", str(ran.folder), str(folder)).code == 0


def test_the_table_has_a_row_an_output(laboratory: Laboratory) -> None:
    ran = laboratory.run()
    table = pandas.read_csv(ran.folder / "outputs.csv")
    assert list(table.case + "/" + table.output) == [
        f"{o['case']}/{o['output']}" for o in ran.cell["outputs"]
    ]
    assert list(table.sha256) == [output["sha256"] for output in ran.cell["outputs"]]
    assert set(table.target) == {"x86_64-linux"}
