"""The terminal report: fits 80 columns, cuts nothing, and is plain text without a terminal."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest

from cuvil_regress.model import MACHINES, Cell, Finding, OutputResult, Report, Result, StepResult, Verdict
from cuvil_regress.reports.terminal import (
    ProgressObserver,
    format_share_of_allowed,
    open_console,
    print_report,
    totals,
)

HEADERS = ["model", "target", "verdict", "of", "allowed", "same", "bits", "clash", "undef", "seconds"]
ROW = ["encoder", "riscv64-linux", "emulator-failure", "1.2e+07", "%", "NO", "1234", "12345", "1234.5"]
FOLDER = Path("runs/nightly")


def result(model: str, target: str, verdict: Verdict, *, seconds: float = 1.0, differing: int = 0) -> Result:
    first = target == "x86_64-linux"
    output = OutputResult(
        "ordinary",
        "logits",
        verdict,
        "0" * 64,
        40,
        123_456,
        1.0,
        123_456.7,
        "" if first else "x86_64-linux",
        None if first else differing,
    )
    finding = Finding(verdict, "error", f"{model}: something is wrong with it", hint="repair it")
    step = StepResult("run", False, int(seconds * 1e9), "something", f"logs/{model}/{target}/run.log")
    clean = verdict in ("identical", "within-tolerance")
    findings = () if clean else (finding,)
    return Result(Cell("2.13.0", model, target), verdict, "", (step,), findings, (output,), 1234, 12345)


def report(results: list[Result], planned: int | None = None) -> Report:
    cells = tuple(each.cell for each in results)
    extra = tuple(
        Cell("2.13.0", f"other{n}", "x86_64-linux") for n in range((planned or len(cells)) - len(cells))
    )
    policies = {"golden": "oracle-fp32", "targets": "release"}
    return Report("m.toml", "1.2.3", policies, cells + extra, tuple(results), 12_300_000_000)


def printed(found: Report, width: int | None) -> list[str]:
    file = StringIO()
    print_report(open_console(file, width=width), found, FOLDER)
    return file.getvalue().splitlines()


@pytest.mark.parametrize("width", [80, None])
def test_the_table_of_the_widest_cells_fits(width: int | None) -> None:
    verdicts: list[Verdict] = ["within-tolerance", "compile-failure", "emulator-failure"]
    targets = list(MACHINES)
    results = [
        result("encoder", target, verdict, seconds=1234.5, differing=7)
        for target, verdict in zip(targets, verdicts, strict=True)
    ]
    lines = printed(report(results), width)
    rows = [line for line in lines if line.startswith(("model ", "encoder "))]
    assert rows[0].split() == HEADERS
    assert rows[3].split() == ROW
    assert max(len(row) for row in rows) <= 80
    assert not any("…" in line for line in lines)


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (None, "-"),
        (0.0, "0 %"),
        (1e-6, "<0.01 %"),
        (0.00784, "0.78 %"),
        (0.008, "0.8 %"),
        (0.0961, "9.6 %"),
        (0.991, "100 %"),
        (1.0, "100 %"),
        (1.0001, "101 %"),
        (1.13, "113 %"),
        (25038.0, "2.5e+06 %"),
    ],
)
def test_a_share_has_two_digits_and_more_than_all_is_more_than_100(share: float | None, text: str) -> None:
    assert format_share_of_allowed(share) == text


def test_a_share_that_is_unknown_for_one_output_is_unknown_for_the_cell() -> None:
    found = result("mlp", "x86_64-linux", "shape")
    known = found.outputs[0]
    assert replace(found, outputs=(known, known)).share_of_allowed == 123_456.7
    assert replace(found, outputs=(known, replace(known, share_of_allowed=None))).share_of_allowed is None
    assert replace(found, outputs=()).share_of_allowed is None


def test_long_names_are_not_cut_in_a_log() -> None:
    model = "a-model-with-a-name-of-some-length-as-users-have-them"
    lines = printed(report([result(model, "riscv64-linux", "within-tolerance")]), None)
    assert any(model in line and "riscv64-linux" in line and "12345" in line for line in lines)


def test_a_log_holds_no_control_codes() -> None:
    found = report([result("mlp", "x86_64-linux", "crash")])
    file = StringIO()
    console = open_console(file)
    with ProgressObserver(console) as observer:
        observer.started(found.planned)
        observer.finished(found.results[0])
    print_report(console, found, FOLDER)
    text = file.getvalue()
    assert text.startswith("[1/1] torch-2.13.0/mlp/x86_64-linux: crash (1.0 s)\n")
    assert all(character == "\n" or character.isprintable() for character in text)


def test_findings_that_read_the_same_are_told_once() -> None:
    lines = printed(report([result("mlp", target, "crash") for target in MACHINES]), 80)
    assert "torch-2.13.0/mlp on x86_64-linux, aarch64-linux, riscv64-linux: crash" in lines
    assert lines.count("  mlp: something is wrong with it") == 1
    assert lines.count("  hint: repair it") == 1
    assert sum("run.log" in line for line in lines) == 3


def test_the_totals() -> None:
    found = [result("mlp", "x86_64-linux", "identical"), result("mlp", "riscv64-linux", "crash")]
    assert totals(report(found)) == "2 cells: 1 crash, 1 identical; 12.3 s; exit code 1"
    assert totals(report(found[:1], 2)).startswith("1 cell of 2, interrupted: 1 identical")


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        (["identical", "within-tolerance"], 0),
        (["identical", "environment"], 3),
        (["environment", "crash"], 1),
        (["skipped"], 1),
        ([], 1),
    ],
)
def test_exit_codes(verdicts: list[Verdict], code: int) -> None:
    results = [result(f"m{number}", "x86_64-linux", verdict) for number, verdict in enumerate(verdicts)]
    assert report(results).exit_code == code
