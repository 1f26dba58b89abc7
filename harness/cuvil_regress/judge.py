"""The last step of a cell: compares its outputs with their goldens and with those of the first target."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cuvil_regress import comparer, golden, policy, tensors
from cuvil_regress.comparer import Array, TensorComparison
from cuvil_regress.errors import GoldenDamagedError, HarnessError
from cuvil_regress.golden import Golden
from cuvil_regress.matrix import Policies
from cuvil_regress.model import Cell, Finding, OutputResult, Severity, Verdict, worst_verdict
from cuvil_regress.steps import Bench, Fault, Outcome, fault, isolate, outcome
from cuvil_regress.workspace import Workspace

Outputs = Mapping[str, Array]


@dataclass(frozen=True)
class Comparison:
    """The compare step, and what it found for each output."""

    outcome: Outcome
    outputs: tuple[OutputResult, ...]


def load_golden(bench: Bench, cell: Cell) -> Golden | Fault:
    """The verified golden of the cell's model, copied into the run's folder; or what is wrong with it."""
    try:
        found = golden.load(bench.matrix.golden, cell.model)
        _require_same_inputs(found, bench.workspace.capture(cell) / "cases")
    except HarnessError as error:
        return fault("golden-damaged", str(error), subject=cell.model, hint=error.hint or "")
    for case, outputs in found.cases.items():
        values = {name: tensor.values for name, tensor in outputs.items()}
        tensors.write(bench.workspace.golden(cell) / case, values)
    return found


def _require_same_inputs(found: Golden, cases: Path) -> None:
    """The inputs that were captured must be those that the golden was computed from."""
    for case in found.cases:
        recorded = {name: entry["sha256"] for name, entry in found.record["cases"][case]["inputs"].items()}
        captured = {
            name: hashlib.sha256(tensors.encode(array)).hexdigest()
            for name, array in tensors.read(cases / case).items()
        }
        if captured != recorded:
            raise GoldenDamagedError(
                f"{found.model}, {case}: the golden was made from other inputs than those captured",
                hint=REFRESH,
            )


def compare(bench: Bench, cell: Cell, judged_by: Golden | Fault, first: Cell | None) -> Comparison:
    """Judge a cell that ran.

    Args:
        judged_by: The golden, or the fault that keeps it from being used.
        first: The group's first target, whose bits the cell must have; None for that target itself.
    """
    start = time.monotonic_ns()
    if isinstance(judged_by, Fault):
        return Comparison(outcome("compare", 0, [judged_by]), ())
    work = partial(_judge, bench.workspace, bench.matrix.policies, cell, judged_by, first)
    found = isolate(bench, cell, "compare", work)
    results, faults = ([], [found]) if isinstance(found, Fault) else found
    return Comparison(outcome("compare", time.monotonic_ns() - start, faults), tuple(results))


def _judge(
    workspace: Workspace, policies: Policies, cell: Cell, judged_by: Golden, first: Cell | None
) -> tuple[list[OutputResult], list[Fault]]:
    judge = _Judge(workspace, policies, cell, judged_by, first)
    for case in sorted({*judged_by.cases, *_folders(workspace.capture(cell) / "cases")}):
        judge.judge_case(case)
    return judge.results, judge.faults


class _Judge:
    """Collects the results and the faults of one cell."""

    def __init__(
        self,
        workspace: Workspace,
        policies: Policies,
        cell: Cell,
        judged_by: Golden,
        first: Cell | None,
    ) -> None:
        self._cell, self._golden, self._first = cell, judged_by, first
        self._folder = workspace.outputs(cell)
        self._first_folder = workspace.outputs(first) if first else None
        self._golden_policy = policy.load(policies.golden)
        self._targets_policy = policy.load(policies.targets)
        self.results: list[OutputResult] = []
        self.faults: list[Fault] = []

    def judge_case(self, case: str) -> None:
        """Compare all outputs of one case; a case that left none was told by the run step."""
        if case not in self._golden.cases:
            self._add("golden-damaged", case, "is captured, but the golden lacks it", hint=REFRESH)
            return
        actual = self._read(self._folder, case)
        if actual is None:
            return
        expected = self._golden.cases[case]
        if list(actual) != list(expected):
            message = f"other outputs; expected {list(expected)}, got {list(actual)}"
            self._add("run-failure", case, message)
        reference = self._reference(case)
        for name in expected:
            if name in actual:
                self._judge_output(case, name, actual[name], reference.get(name))

    def _read(self, folder: Path, case: str) -> Outputs | None:
        if not (folder / case).is_dir():
            return None
        try:
            return tensors.read(folder / case)
        except HarnessError as error:
            self._add("run-failure", case, f"the outputs can't be read: {error}")
            return None

    def _reference(self, case: str) -> Outputs:
        if self._first is None or self._first_folder is None:
            return {}
        found = self._read(self._first_folder, case)
        if found is None:
            message = f"not compared with {self._first.target}, which gave no outputs"
            self._add("bits-differ", case, message, severity="warning")
        return found or {}

    def _judge_output(self, case: str, name: str, actual: Array, reference: Array | None) -> None:
        subject = f"{case}/{name}"
        expected = self._golden.cases[case][name]
        comparison = comparer.compare_tensor(
            actual, expected.values, self._golden_policy, model_dtype=expected.model_dtype
        )
        verdicts: list[Verdict] = [comparison.verdict]
        if not comparison.passed:
            self._add(comparison.verdict, subject, f"against the golden: {_explain(comparison)}")
        differing = None
        if reference is not None:
            differing = comparer.bit_identical(actual, reference)[1]
            verdicts += self._judge_reference(subject, actual, reference, differing)
        self.results.append(
            OutputResult(
                case,
                name,
                worst_verdict(verdicts) or comparison.verdict,
                comparer.masked_bits_sha256(actual),
                actual.size,
                comparison.max_ulp,
                share_within(comparison),
                _share_of_allowed(comparison),
                self._first.target if self._first and reference is not None else "",
                differing,
                comparison.ulp_histogram,
            )
        )

    def _judge_reference(
        self, subject: str, actual: Array, reference: Array, differing: int
    ) -> list[Verdict]:
        """The two targets against each other: by tolerance, and bit by bit."""
        if not differing:
            return []
        assert self._first is not None
        against = f"against {self._first.target}"
        comparison = comparer.compare_tensor(actual, reference, self._targets_policy)
        self._add("bits-differ", subject, f"{against}: {differing} of {actual.size} elements differ in bits")
        if comparison.passed:
            return ["bits-differ"]
        self._add(comparison.verdict, subject, f"{against}: {_explain(comparison)}")
        return ["bits-differ", comparison.verdict]

    def _add(
        self, verdict: Verdict, subject: str, what: str, *, hint: str = "", severity: Severity = "error"
    ) -> None:
        message = f"{self._cell.model}, {subject}: {what}"
        self.faults.append(Fault(verdict, Finding(verdict, severity, message, subject, hint=hint)))


REFRESH = "`cuvil-regress golden refresh --reason TEXT` shows the difference before it writes anything"


def share_within(comparison: TensorComparison) -> float:
    """Share of the elements within the policy; none when dtype or shape differ."""
    if comparison.verdict in ("dtype", "shape"):
        return 0.0
    return 1.0 - comparison.violation_share


def _share_of_allowed(comparison: TensorComparison) -> float | None:
    if comparison.verdict in ("dtype", "shape") or not math.isfinite(comparison.max_share_of_allowed):
        return None
    return comparison.max_share_of_allowed


def _explain(comparison: TensorComparison) -> str:
    """The comparison's message, how far off it is, and the element that is furthest off."""
    worst = comparison.worst
    if worst is None:
        return comparison.message
    place = f"worst at {list(worst.index)}: expected {worst.golden!r}, got {worst.actual!r}"
    share = _share_of_allowed(comparison)
    extent = "" if share is None else f", up to {share * 100:.3g} % of what is allowed"
    if comparison.max_ulp:
        extent += f", up to {comparison.max_ulp} ULP"
    return f"{comparison.message}{extent}; {place}"


def _folders(path: Path) -> list[str]:
    return [entry.name for entry in path.iterdir() if entry.is_dir()]
