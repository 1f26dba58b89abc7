"""The job summary: below its limit in bytes, failures first, cut at the border of a row."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cuvil_regress.model import Report
from cuvil_regress.reports import documents, markdown
from cuvil_regress.reports.markdown import LIMIT_BYTES, Section, fit


def test_failures_come_first_and_by_weight(report: Report) -> None:
    text = markdown.render(report)
    assert text.startswith("## ❌ nightly.toml: 6 of 12 cells fail\n")
    faults, _, grid = text.partition("### What failed")[2].partition("### torch 2.13.0")
    rows = [line for line in faults.splitlines() if line.startswith("| torch")]
    shown = ["environment", "crash", "mismatch", "bits-differ", "missing", "skipped"]
    assert [row.split("**")[1] for row in rows] == shown
    assert "| mlp | ✅ within-tolerance<br>20 %, first | ✅ within-tolerance<br>20 %, same bits |" in grid
    assert "| resnet | ✅ within-tolerance<br>20 %, first | ❌ mismatch<br>113 %, other bits |" in grid


def test_what_a_cell_said_is_shown_and_not_obeyed(report: Report) -> None:
    text = markdown.render(report)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "<script" not in text
    assert "\\\\x1b\\[31mred" in text
    rows = [line for line in text.splitlines() if line.startswith("| torch")]
    assert all(row.replace("\\|", "").count("|") == 6 for row in rows)
    text.encode()


def test_a_clean_run(report: Report) -> None:
    clean = tuple(result for result in report.results if result.cell.model == "mlp")
    text = markdown.render(replace(report, results=clean, planned=tuple(each.cell for each in clean)))
    assert text.startswith("## ✅ nightly.toml: all cells pass\n\n3 cells: 3 within-tolerance; ")
    assert "What failed" not in text


def test_an_interrupted_run_names_what_is_not_finished(report: Report) -> None:
    text = markdown.render(replace(report, results=report.results[:11]))
    assert "### Not finished\n\n- torch-2.13.0/lstm/riscv64-linux\n" in text


def section_of(size: int, character: str) -> Section:
    """A section of exactly `size` bytes, in rows of 1000."""
    row = f"| {character * ((997 - 2) // len(character.encode()))} |"
    row += " " * (999 - len(row.encode())) + "\n"
    count, rest = divmod(size - 6, 1000)
    return Section("# big\n", [*[row] * count, "x" * (rest - 1) + "\n" if rest else ""])


@pytest.mark.parametrize("character", ["a", "é", "漢", "🔥"])
@pytest.mark.parametrize("size", [LIMIT_BYTES, 1_048_576, 1_048_577])
def test_a_summary_at_the_limit(size: int, character: str) -> None:
    section = section_of(size, character)
    assert len("".join([section.head, *section.rows]).encode()) == size
    text = fit([section], LIMIT_BYTES, "https://example.org/run")
    assert len(text.encode()) <= LIMIT_BYTES < 1 << 20
    if size == LIMIT_BYTES:
        assert text == "".join([section.head, *section.rows])
        return
    *kept, empty, note = text.split("\n")[:-1]
    assert set(kept[1:]) <= {row.rstrip("\n") for row in section.rows}
    assert (empty, note.startswith("**")) == ("", True)
    assert f"**Left out here: {len(section.rows) - len(kept) + 1} row" in note
    assert "[the whole report](https://example.org/run)" in note
    assert len(text.encode()) > LIMIT_BYTES - 2_000


def test_one_row_of_two_megabytes_costs_itself_alone() -> None:
    rows = ["| a |\n", f"| {'é' * 1_000_000} |\n", "| b |\n"]
    assert fit([Section("# t\n", rows)], LIMIT_BYTES).startswith(
        "# t\n| a |\n| b |\n\n**Left out here: 1 row**, "
    )


def test_a_message_of_two_megabytes_is_shortened(report: Report) -> None:
    huge = replace(report.results[4], message="é" * 2_000_000)
    text = markdown.render(replace(report, results=(*report.results[:4], huge, *report.results[5:])))
    assert len(text.encode()) < 20_000


def test_the_summary_of_github_is_appended_to_within_its_limit(
    report: Report, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("github") / "summary"
    environment = {
        "GITHUB_STEP_SUMMARY": str(path),
        "GITHUB_SERVER_URL": "https://example.org",
        "GITHUB_REPOSITORY": "a/b",
        "GITHUB_RUN_ID": "7",
    }
    path.write_text("before\n")
    documents.append_summary(report, environment)
    assert path.read_text() == "before\n" + markdown.render(report)
    path.write_text("x" * (LIMIT_BYTES - 700))
    documents.append_summary(report, environment)
    added = path.read_text().lstrip("x")
    assert path.stat().st_size <= LIMIT_BYTES
    assert "[the whole report](https://example.org/a/b/actions/runs/7)" in added
    documents.append_summary(report, {})
