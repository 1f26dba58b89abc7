"""The harness's records: what is run (a cell), what was found, and the verdict on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Severity = Literal["error", "warning", "note"]

Verdict = Literal[
    "identical",
    "within-tolerance",
    "mismatch",
    "nan-policy",
    "shape",
    "dtype",
    "golden-damaged",
    "crash",
    "timeout",
    "emulator-failure",
    "abi-conflict",
    "unsupported",
    "environment",
    "skipped",
]

CLEAN_VERDICTS: frozenset[Verdict] = frozenset({"identical", "within-tolerance"})
"""Verdicts that leave the exit code at 0; `environment` alone gives 3, every other one gives 1."""


@dataclass(frozen=True)
class Cell:
    """One point of the matrix."""

    torch: str
    model: str
    target: str

    @property
    def id(self) -> str:
        return f"torch-{self.torch}/{self.model}/{self.target}"


@dataclass(frozen=True)
class Finding:
    """One fault that a check or a comparison found.

    `check` is the kebab-case id of the check, `subject` what it is about (a symbol, an output),
    `file` the library or golden it was found in.
    """

    check: str
    severity: Severity
    message: str
    subject: str = ""
    file: str = ""
    hint: str = ""


@dataclass(frozen=True)
class StepResult:
    """One step of a cell: capture, compile, abi, run or compare."""

    name: str
    ok: bool
    elapsed_ns: int
    message: str = ""
    log: str = ""
    """Path of the step's log, relative to the run's folder."""


@dataclass(frozen=True)
class Result:
    """A finished cell."""

    cell: Cell
    verdict: Verdict
    message: str = ""
    steps: tuple[StepResult, ...] = ()
    findings: tuple[Finding, ...] = ()
    outputs: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """`<case>/<output>` -> comparison statistics and the SHA-256 of the NaN-masked bits."""
