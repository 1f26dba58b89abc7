"""A run with every kind of cell, and its folder, for the reports to show."""

from __future__ import annotations

from pathlib import Path

import pytest

from cuvil_regress.model import Cell, Finding, OutputResult, Report, Result, StepResult, Verdict
from cuvil_regress.workspace import Workspace

TARGETS = ("x86_64-linux", "aarch64-linux", "riscv64-linux")
WILD = (
    "\x00 \x01 \x1b[31mred\x1b[0m \ufffe \ud800 ]]> <script>alert(1)</script> & \"quoted\" 'so' |pipe|\nline"
)
"""What a crash may say: none of it may break a report, or be taken for a part of it."""

VERDICTS: dict[str, tuple[Verdict, Verdict, Verdict]] = {
    "mlp": ("within-tolerance", "within-tolerance", "within-tolerance"),
    "resnet": ("within-tolerance", "mismatch", "bits-differ"),
    "encoder": ("identical", "within-tolerance", "crash"),
    "lstm": ("environment", "skipped", "missing"),
}


@pytest.fixture
def report() -> Report:
    results = [
        _result(model, target, verdict)
        for model, verdicts in VERDICTS.items()
        for target, verdict in zip(TARGETS, verdicts, strict=True)
    ]
    policies = {"golden": "oracle-fp32", "targets": "release"}
    cells = tuple(result.cell for result in results)
    return Report("nightly.toml", "1.2.3", policies, cells, tuple(results), 12_300_000_000)


@pytest.fixture
def workspace(report: Report, tmp_path: Path) -> Workspace:
    """The run's folder, with the logs that the report names."""
    for result in report.results:
        for step in result.steps:
            log = tmp_path / step.log
            log.parent.mkdir(parents=True, exist_ok=True)
            lines = [f"line {number} of {tmp_path}/outputs" for number in range(1, 100)]
            log.write_bytes("\n".join([*lines, WILD]).encode(errors="surrogatepass"))
    return Workspace(tmp_path)


def _result(model: str, target: str, verdict: Verdict) -> Result:
    cell = Cell("2.13.0", model, target)
    clean = verdict in ("identical", "within-tolerance")
    message = "" if clean else f"{model}: {verdict}: {WILD}"
    finding = Finding(
        verdict, "error", message, "ordinary/logits", f"libraries/{cell.id}/lib.so", "repair it"
    )
    warning = Finding("static-tls", "warning", "uses 8 bytes of static TLS")
    findings = (warning,) if clean else (finding, warning)
    step = StepResult("run", clean, 1_200_000_000, message, f"logs/{cell.id}/run.log")
    if verdict in ("environment", "skipped", "missing"):
        return Result(cell, verdict, message, (), findings)
    names = ("logits",) if verdict == "crash" else ("logits", "classes")
    outputs = tuple(_output(name, target, verdict) for name in names)
    return Result(cell, verdict, message, (step,), findings, outputs, 0, 0)


def _output(name: str, target: str, verdict: Verdict) -> OutputResult:
    first = target == TARGETS[0]
    differing = 7 if verdict in ("mismatch", "bits-differ") else 0
    histogram = (400, 60, 20, 5, 0, 1, *[0] * 24, 1) if name == "logits" else None
    return OutputResult(
        "ordinary",
        name,
        "within-tolerance" if verdict == "crash" else verdict,
        "0123456789abcdef" * 4,
        487,
        17 if histogram else None,
        0.99999 if verdict == "mismatch" else 1.0,
        1.13 if verdict == "mismatch" else 0.2,
        "" if first else TARGETS[0],
        None if first else differing,
        histogram,
    )
