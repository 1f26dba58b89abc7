"""The order of a run: each group of cells is captured once, built for every target, and judged.

    capture (a group)  ->  build: compile, abi (a target)  ->  run (a cell)  ->  judge: compare (a cell)

A target has one cell, or one for each of its machines, which then run the same library. The first target of a
group is the reference whose bits the other ones must have, so they are judged once both have run. Cells that
are kept from an earlier attempt keep their group's capture with them.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import partial
from typing import Any

from cuvil_regress import fingerprint, judge, steps
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


def _recall(bench: Bench, cell: Cell, kept: Result) -> _Captured:
    """The capture that a kept cell of the group was made from."""
    step = next(step for step in kept.steps if step.name == "capture")
    return _Captured(Outcome(step), judge.load_golden(bench, cell))


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


def _judge(bench: Bench, built: _Built, reference: Cell | None) -> Result:
    outcomes = list(built.outcomes)
    outputs: tuple[OutputResult, ...] = ()
    if built.ran and built.captured.golden is not None:
        comparison = judge.compare(bench, built.cell, built.captured.golden, reference)
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
        fingerprint.of_cell(bench, built.cell),
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


class _Rank(IntEnum):
    """Which task a worker takes first: what completes a cell, so that its result is there soon."""

    JUDGE = 0
    RUN = 1
    BUILD = 2
    CAPTURE = 3


@dataclass(order=True)
class _Task:
    rank: _Rank
    number: int
    work: Callable[[], Any] = field(compare=False)
    then: Callable[[Any], None] = field(compare=False)
    """Called with what the work returned, on the thread that runs the schedule."""


class Schedule:
    """Hands the tasks of all groups to the workers as what they depend on gets done."""

    def __init__(
        self, bench: Bench, finished: Callable[[Result], None], kept: Mapping[Cell, Result] | None = None
    ) -> None:
        self._bench = bench
        self._finished = finished
        self._kept = kept or {}
        self._groups: dict[str, list[Cell]] = {}
        for cell in bench.matrix.cells:
            self._groups.setdefault(cell.group, []).append(cell)
        self._ready = set(self._kept)
        """Cells whose outputs are there."""
        self._waiting: dict[str, list[_Built]] = {}
        """Built cells of each group whose first target is not ready yet."""
        self._numbers = itertools.count()
        self._queue: list[_Task] = []
        self._pending: dict[Future[Any], _Task] = {}

    def run(self, workers: int) -> None:
        """Run every cell that is not kept. What cuts it short, an interrupt too, ends its commands."""
        for cells in self._groups.values():
            self._add_group(cells)
        with ThreadPoolExecutor(workers) as pool:
            try:
                self._run(pool, workers)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                self._bench.processes.stop()
                raise

    def _run(self, pool: Executor, workers: int) -> None:
        while self._queue or self._pending:
            while self._queue and len(self._pending) < workers:
                task = heapq.heappop(self._queue)
                self._pending[pool.submit(task.work)] = task
            for future in wait(self._pending, return_when=FIRST_COMPLETED).done:
                self._pending.pop(future).then(future.result())

    def _add(self, rank: _Rank, work: Callable[[], Any], then: Callable[[Any], None]) -> None:
        heapq.heappush(self._queue, _Task(rank, next(self._numbers), work, then))

    def _add_group(self, cells: Sequence[Cell]) -> None:
        first, todo = cells[0], [cell for cell in cells if cell not in self._kept]
        if not todo:
            return
        if first in self._kept:
            work = partial(_recall, self._bench, first, self._kept[first])
        else:
            work = partial(_capture, self._bench, first)
        self._add(_Rank.CAPTURE, work, partial(self._on_captured, todo))

    def _on_captured(self, cells: Sequence[Cell], captured: _Captured) -> None:
        targets: dict[str, list[Cell]] = {}
        for cell in cells:
            targets.setdefault(cell.built_for, []).append(cell)
        for machines in targets.values():
            work = partial(_build, self._bench, machines[0], captured)
            self._add(_Rank.BUILD, work, partial(self._on_built, machines))

    def _on_built(self, machines: Sequence[Cell], built: _Built) -> None:
        for cell in machines:
            self._add(_Rank.RUN, partial(_run, self._bench, cell, built), self._on_ran)

    def _on_ran(self, built: _Built) -> None:
        first = self._groups[built.cell.group][0]
        if built.cell == first:
            self._ready.add(first)
            self._add_judge(built, None)
            for other in self._waiting.pop(built.cell.group, []):
                self._add_judge(other, first)
        elif first in self._ready:
            self._add_judge(built, first)
        else:
            self._waiting.setdefault(built.cell.group, []).append(built)

    def _add_judge(self, built: _Built, reference: Cell | None) -> None:
        self._add(_Rank.JUDGE, partial(_judge, self._bench, built, reference), self._finished)
