"""The order of a run: each group of cells is captured once, built for every target, and judged.

    capture (a group)  ->  build: compile, abi (a target)  ->  run (a cell)  ->  judge: compare (a cell)

A target has one cell, or one for each of its machines, which then run the same library. The first target of a
group is the reference whose bits the other ones must have, so they are judged once both have run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from cuvil_regress import judge, steps
from cuvil_regress.golden import Golden
from cuvil_regress.model import Cell, OutputResult, Result, Verdict, worst_verdict
from cuvil_regress.steps import Bench, Fault, Outcome


@dataclass(frozen=True)
class _Captured:
    outcome: Outcome
    golden: Golden | Fault | None


@dataclass(frozen=True)
class _Built:
    """A cell up to its library, and then up to its run."""

    cell: Cell
    captured: _Captured
    outcomes: tuple[Outcome, ...]
    scan: steps.Scan | None = None

    @property
    def ran(self) -> bool:
        return self.outcomes[-1].step.name == "run" and self.outcomes[-1].step.elapsed_ns > 0


def _capture(bench: Bench, cell: Cell) -> _Captured:
    outcome = steps.capture(bench, cell)
    golden = judge.load_golden(bench, cell) if outcome.step.ok else None
    return _Captured(outcome, golden)


def _build(bench: Bench, cell: Cell, captured: _Captured) -> _Built:
    outcomes = [captured.outcome]
    if outcomes[-1].step.ok:
        outcomes.append(steps.compile_model(bench, cell))
    if len(outcomes) < 2 or not outcomes[-1].step.ok:
        return _Built(cell, captured, tuple(outcomes))
    scan = steps.scan_library(bench, cell)
    return _Built(cell, captured, (*outcomes, scan.outcome), scan)


def _run(bench: Bench, cell: Cell, built: _Built) -> _Built:
    """The cell with the library that was built for its target."""
    if built.scan is None:
        return replace(built, cell=cell)
    # A conflict does not keep the library from being run: what it does then belongs to the picture.
    return replace(built, cell=cell, outcomes=(*built.outcomes, steps.run(bench, cell)))


def _judge(bench: Bench, built: _Built, reference: _Built | None) -> Result:
    outcomes = list(built.outcomes)
    outputs: tuple[OutputResult, ...] = ()
    if built.ran and built.captured.golden is not None:
        partner = reference.cell if reference else None
        comparison = judge.compare(bench, built.cell, built.captured.golden, partner)
        outcomes.append(comparison.outcome)
        outputs = comparison.outputs
    root = f"{bench.workspace.root}/"
    faults = [_relative(found, root) for outcome in outcomes for found in outcome.faults]
    verdict, message = _verdict(faults, outputs)
    return Result(
        built.cell,
        verdict,
        message,
        tuple(replace(outcome.step, message=outcome.step.message.replace(root, "")) for outcome in outcomes),
        tuple(found.finding for found in faults),
        outputs,
        built.scan.conflicts if built.scan else None,
        built.scan.missing if built.scan else None,
    )


def _relative(found: Fault, root: str) -> Fault:
    """The fault with its files named from the run's folder on, wherever that lies."""
    finding = found.finding
    message, file, hint = (text.replace(root, "") for text in (finding.message, finding.file, finding.hint))
    return replace(found, finding=replace(finding, message=message, file=file, hint=hint))


def _verdict(faults: Sequence[Fault], outputs: Sequence[OutputResult]) -> tuple[Verdict, str]:
    """The cell's verdict, and the first message that gives it."""
    errors = [found for found in faults if found.finding.severity == "error"]
    verdict = worst_verdict([*(found.verdict for found in errors), *(output.verdict for output in outputs)])
    if verdict is None:
        return "skipped", "nothing was compared"
    messages = [found.finding.message for found in errors if found.verdict == verdict]
    return verdict, messages[0] if messages else ""


class Schedule:
    """Hands the tasks of all groups to the workers as what they depend on gets done."""

    def __init__(self, bench: Bench, finished: Callable[[Result], object]) -> None:
        self._bench = bench
        self._finished = finished
        self._groups: dict[str, list[Cell]] = {}
        for cell in bench.matrix.cells:
            self._groups.setdefault(cell.group, []).append(cell)
        self._ran: dict[Cell, _Built] = {}
        self._pending: dict[Future[Any], Callable[[Any], None]] = {}
        self._results: list[Result] = []

    def run(self, workers: int) -> list[Result]:
        """Run to the end, or to an interrupt; returns the results in the matrix's order."""
        with ThreadPoolExecutor(workers) as pool:
            try:
                self._run(pool)
            except KeyboardInterrupt:
                self._abandon(pool)
            except BaseException:
                self._abandon(pool)
                raise
        order = self._bench.matrix.cells.index
        return sorted(self._results, key=lambda result: order(result.cell))

    def _run(self, pool: Executor) -> None:
        for cells in self._groups.values():
            future = pool.submit(_capture, self._bench, cells[0])
            self._pending[future] = partial(self._on_captured, pool, cells)
        while self._pending:
            for future in wait(self._pending, return_when=FIRST_COMPLETED).done:
                self._pending.pop(future)(future.result())

    def _abandon(self, pool: Executor) -> None:
        pool.shutdown(wait=False, cancel_futures=True)
        self._bench.processes.stop()

    def _on_captured(self, pool: Executor, cells: Sequence[Cell], captured: _Captured) -> None:
        targets: dict[str, list[Cell]] = {}
        for cell in cells:
            targets.setdefault(cell.built_for, []).append(cell)
        for machines in targets.values():
            future = pool.submit(_build, self._bench, machines[0], captured)
            self._pending[future] = partial(self._on_built, pool, machines)

    def _on_built(self, pool: Executor, machines: Sequence[Cell], built: _Built) -> None:
        for cell in machines:
            future = pool.submit(_run, self._bench, cell, built)
            self._pending[future] = partial(self._on_run, pool)

    def _on_run(self, pool: Executor, ran: _Built) -> None:
        self._ran[ran.cell] = ran
        first, *others = self._groups[ran.cell.group]
        if ran.cell == first:
            self._submit_judge(pool, ran, None)
            waiting = [self._ran[cell] for cell in others if cell in self._ran]
        else:
            waiting = [ran] if first in self._ran else []
        for other in waiting:
            self._submit_judge(pool, other, self._ran[first])

    def _submit_judge(self, pool: Executor, built: _Built, reference: _Built | None) -> None:
        future = pool.submit(_judge, self._bench, built, reference)
        self._pending[future] = self._on_judged

    def _on_judged(self, result: Result) -> None:
        self._results.append(result)
        self._finished(result)
