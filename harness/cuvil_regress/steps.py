"""The steps of a cell that start commands: capture, compile, run. A fault is a result here, never raised."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from cuvil_regress import isolated
from cuvil_regress.capture import RECORD as CAPTURE_RECORD
from cuvil_regress.environment import (
    Compiler,
    Interpreter,
    Launcher,
    capture_environment,
    describe_exit,
)
from cuvil_regress.errors import HarnessError, ToolMissingError
from cuvil_regress.matrix import Matrix
from cuvil_regress.model import MACHINES, Cell, Finding, StepResult, Verdict, family_of
from cuvil_regress.process import Finished, NotStartedError, Processes
from cuvil_regress.scan import scan
from cuvil_regress.workspace import Workspace

T = TypeVar("T")


@dataclass(frozen=True)
class Fault:
    """A finding together with the verdict that it alone would give."""

    verdict: Verdict
    finding: Finding


@dataclass(frozen=True)
class Outcome:
    """A step that has ended."""

    step: StepResult
    faults: tuple[Fault, ...] = ()


@dataclass(frozen=True)
class Scan:
    """The abi step, and its counts where the libraries could be read."""

    outcome: Outcome
    conflicts: int | None = None
    missing: int | None = None


@dataclass(frozen=True)
class Bench:
    """All that the steps of a run share. What the machine lacks stands in its place as the error."""

    workspace: Workspace
    matrix: Matrix
    processes: Processes
    interpreter: Interpreter
    package_link: Path
    compiler: Compiler | ToolMissingError
    launchers: Mapping[str, Launcher | ToolMissingError]
    captured: Workspace | None = None
    """Another run, whose captures are taken over where it has them."""


def capture(bench: Bench, cell: Cell) -> Outcome:
    """Export the model and its cases by the cell's PyTorch; shared by the cell's group."""
    if bench.captured is not None and (bench.captured.capture(cell) / CAPTURE_RECORD).is_file():
        start = time.monotonic_ns()
        shutil.copytree(bench.captured.capture(cell), bench.workspace.capture(cell))
        return outcome("capture", time.monotonic_ns() - start, [])
    try:
        bench.interpreter.require_torch(cell.torch)
    except ToolMissingError as error:
        return refused("capture", error)
    folder = bench.workspace.capture(cell)
    argv = [bench.interpreter.executable, "-m", "cuvil_regress.capture", cell.model, str(folder)]
    command = _Command("capture", argv, folder / "model.onnx", {3: "environment"}, "capture-failure")
    return _execute(bench, cell, command, capture_environment(bench.package_link))


def compile_model(bench: Bench, cell: Cell) -> Outcome:
    """Compile the captured model to the cell's library by the compiler's command."""
    try:
        compiler = _present(bench.compiler)
        compiler.require(cell.built_for)
    except ToolMissingError as error:
        return refused("compile", error)
    library = bench.workspace.library(cell)
    library.parent.mkdir(parents=True, exist_ok=True)
    model = bench.workspace.capture(cell) / "model.onnx"
    argv = [*compiler.argv, "compile", "--model", str(model), "--target", cell.built_for]
    verdicts: dict[int, Verdict] = {3: "unsupported", 4: "unsupported", 5: "environment"}
    command = _Command("compile", [*argv, "--output", str(library)], library, verdicts, "compile-failure")
    return _execute(bench, cell, command)


def scan_library(bench: Bench, cell: Cell) -> Scan:
    """Scan the cell's library, and the runtime that will load it, beside the torch that they may meet."""
    start = time.monotonic_ns()
    launcher = bench.launchers[cell.target]
    if isinstance(bench.compiler, ToolMissingError) or isinstance(launcher, ToolMissingError):
        return Scan(refused("abi", _first_error(bench.compiler, launcher)))
    work = partial(
        scan,
        [bench.workspace.library(cell), bench.workspace.runtime(cell.target)],
        target=cell.built_for,
        torch_lib_dirs=bench.interpreter.torch_lib_dirs,
        sysroot=bench.compiler.tools(cell.built_for).sysroot,
    )
    try:
        report = isolate(bench, cell, "abi", work)
    except ToolMissingError as error:
        return Scan(refused("abi", error))
    except HarnessError as error:
        faults = [fault("abi-conflict", f"abi: {error}", hint=error.hint or "")]
        return Scan(outcome("abi", time.monotonic_ns() - start, faults))
    if isinstance(report, Fault):
        return Scan(outcome("abi", time.monotonic_ns() - start, [report]))
    found = [Fault("abi-conflict", finding) for finding in report.findings]
    return Scan(
        outcome("abi", time.monotonic_ns() - start, found),
        sum(library.conflicts for library in report.libraries),
        sum(library.missing for library in report.libraries),
    )


def _present(compiler: Compiler | ToolMissingError) -> Compiler:
    if isinstance(compiler, ToolMissingError):
        raise compiler
    return compiler


def isolate(bench: Bench, cell: Cell, step: str, work: Callable[[], T]) -> T | Fault:
    """What `work` returns in a process of its own; a fault where that took too long or failed."""
    log, timeout_s = bench.workspace.log(cell, step), bench.matrix.timeouts_s[step]
    try:
        return isolated.call(bench.processes, work, log=log, timeout_s=timeout_s)
    except NotStartedError as error:
        return refused(step, _not_started(["python"], error)).faults[0]
    except isolated.CallFailedError as error:
        finished = error.finished
        bench.workspace.require_room()
        if finished.timed_out:
            return fault("timeout", f"{step}: {describe_exit(finished)}")
        message = f"{step}: {said(finished)[0]}"
        return fault("run-failure", message, file=bench.workspace.relative(log), hint="see the step's log")


def _first_error(*values: object) -> ToolMissingError:
    return next(value for value in values if isinstance(value, ToolMissingError))


def run(bench: Bench, cell: Cell) -> Outcome:
    """Run every captured case by the target's runner, under its emulator where the machine is another.

    An emulator that gives up is tried once more: some of its failures come and go.
    """
    if isinstance(bench.compiler, ToolMissingError):
        return refused("run", bench.compiler)
    launcher = bench.launchers[cell.target]
    if isinstance(launcher, ToolMissingError):
        return refused("run", launcher)
    first = _attempt(bench, bench.compiler, launcher, cell, "run")
    failures = [found for found in first.faults if found.verdict == "emulator-failure"]
    if not failures:
        return first
    again = _attempt(bench, bench.compiler, launcher, cell, "run-again")
    message = f"the first of two attempts failed: {failures[0].finding.message}"
    warning = Finding("emulator-failure", "warning", message, file=first.step.log)
    return replace(again, faults=(*again.faults, Fault("emulator-failure", warning)))


def _attempt(bench: Bench, compiler: Compiler, launcher: Launcher, cell: Cell, name: str) -> Outcome:
    cases = bench.workspace.capture(cell) / "cases"
    outputs = bench.workspace.outputs(cell)
    shutil.rmtree(outputs, ignore_errors=True)
    outputs.mkdir(parents=True)
    words = [compiler.tools(cell.built_for).runner, bench.workspace.library(cell), cases, outputs]
    argv = [*launcher.prefix, *map(str, words)]
    expected = sorted(folder.name for folder in cases.iterdir() if folder.is_dir())
    log = bench.workspace.log(cell, name)
    try:
        finished = bench.processes.run(argv, log=log, timeout_s=bench.matrix.timeouts_s["run"])
    except NotStartedError as error:
        return refused("run", _not_started(argv, error))
    packages = MACHINES[family_of(cell.target)].packages
    faults = run_faults(finished, expected, packages, emulated=bool(launcher.prefix))
    if faults:
        bench.workspace.require_room()
    return outcome("run", finished.elapsed_ns, faults, log=bench.workspace.relative(log))


def outcome(name: str, elapsed_ns: int, faults: Sequence[Fault], *, log: str = "") -> Outcome:
    """A step's outcome; its message is that of its first fault."""
    errors = [fault.finding.message for fault in faults if fault.finding.severity == "error"]
    step = StepResult(name, not errors, elapsed_ns, errors[0] if errors else "", log)
    return Outcome(step, tuple(faults))


def refused(name: str, error: HarnessError) -> Outcome:
    """A step that could not start, for the machine lacks something."""
    return outcome(name, 0, [fault("environment", str(error), hint=error.hint or "")])


def fault(verdict: Verdict, message: str, *, subject: str = "", file: str = "", hint: str = "") -> Fault:
    """A fault that is named after its verdict."""
    return Fault(verdict, Finding(verdict, "error", message, subject, file, hint))


def run_faults(finished: Finished, expected: Sequence[str], packages: str, *, emulated: bool) -> list[Fault]:
    """What went wrong in a run, by its case reports, its exit and what it said on stderr."""
    reports = _case_reports(finished.stdout)
    faults = [found for case in reports for found in _case_fault(case, reports[case], finished, emulated)]
    missing = [case for case in expected if case not in reports]
    if finished.timed_out:
        where = f" at case {missing[0]!r}" if missing else ""
        faults.append(fault("timeout", f"run: {describe_exit(finished)}{where}"))
    elif missing or finished.code != (1 if faults else 0):
        faults.append(_end_fault(finished, missing, packages, emulated=emulated))
    return faults


@dataclass(frozen=True)
class _Command:
    """A command of a step and what its exit codes mean."""

    step: str
    argv: Sequence[str]
    product: Path
    verdicts: Mapping[int, Verdict]
    otherwise: Verdict


def _execute(
    bench: Bench, cell: Cell, command: _Command, environment: Mapping[str, str] | None = None
) -> Outcome:
    log = bench.workspace.log(cell, command.step)
    timeout_s = bench.matrix.timeouts_s[command.step]
    try:
        finished = bench.processes.run(command.argv, log=log, timeout_s=timeout_s, environment=environment)
    except NotStartedError as error:
        return refused(command.step, _not_started(command.argv, error))
    faults = _command_faults(command, finished)
    if faults:
        bench.workspace.require_room()
    return outcome(command.step, finished.elapsed_ns, faults, log=bench.workspace.relative(log))


def _command_faults(command: _Command, finished: Finished) -> list[Fault]:
    if finished.timed_out:
        return [fault("timeout", f"{command.step}: {describe_exit(finished)}")]
    if finished.code != 0:
        message, hint = said(finished)
        verdict = command.verdicts.get(finished.code, command.otherwise)
        return [fault(verdict, f"{command.step}: {message}", hint=hint)]
    if not command.product.is_file():
        return [fault(command.otherwise, f"{command.step}: succeeded, but wrote no {command.product.name}")]
    return []


def _not_started(argv: Sequence[str], error: NotStartedError) -> ToolMissingError:
    return ToolMissingError(f"{shlex.quote(argv[0])}: can't be started: {error}")


def said(finished: Finished) -> tuple[str, str]:
    """The message and the hint of a command that failed: its last words on stderr, else how it ended."""
    lines = [line.strip() for line in finished.stderr.splitlines() if line.strip()]
    hints = [line.removeprefix("hint:").strip() for line in lines if line.startswith("hint:")]
    words = [line for line in lines if not line.startswith("hint:")]
    message = words[-1] if words and finished.code > 0 else describe_exit(finished)
    return message, hints[-1] if hints else ""


def _case_reports(stdout: str) -> dict[str, Mapping[str, Any]]:
    """The runner's JSON lines by case; a line that was cut off by the runner's end is passed over."""
    reports: dict[str, Mapping[str, Any]] = {}
    for line in stdout.splitlines():
        try:
            report = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(report, dict) and isinstance(report.get("case"), str):
            reports[report["case"]] = report
    return reports


def _case_fault(case: str, report: Mapping[str, Any], finished: Finished, emulated: bool) -> list[Fault]:
    if report.get("status") == "ok":
        return []
    if report.get("status") != "crash":
        message = report.get("message", "no reason given")
        return [fault("run-failure", f"case {case!r}: {message}", subject=case)]
    number = report.get("signal")
    ended = f"case {case!r}: died by {_signal_name(number)}"
    complaint = _emulator_complaint(finished) if emulated else None
    if complaint:
        return [fault("emulator-failure", f"{ended}; the emulator says: {complaint}", subject=case)]
    return [_death(number, ended, subject=case)]


def _death(number: object, message: str, *, subject: str = "") -> Fault:
    """The program's own death; an illegal instruction says that it was built for another processor."""
    if number == signal.SIGILL:
        return fault("wrong-isa", message, subject=subject, hint=WRONG_ISA)
    return fault("crash", message, subject=subject)


WRONG_ISA = (
    "the code has an instruction that this processor, or the emulated one, lacks; compile for a target that "
    "it has, or give the emulator a processor (-cpu) that has it"
)
_EMULATOR_COMPLAINT = re.compile(
    r"^(qemu(-\w+)?: (?!uncaught target signal|warning: ).*"
    r"|QEMU internal SIG.*"
    r"|(Bail out! )?ERROR:\S+\.(c|h|inc):.*"
    r"|Error while loading .*)$",
    re.MULTILINE,
)
_WRONG_ISA_CODE = 4
"""The exit code by which the runner refuses a library: its code needs what this machine hasn't."""

_NO_LOADER = re.compile(r"Could not open '\S*/ld-\S*'")
_NOT_FOUND = 127
"""Exit code of a shell and of a dynamic loader that don't find the program or a library of it."""
_SHELL_SIGNAL = 128
"""A shell adds it to the signal that ended its command."""
_TARGET_SIGNAL = re.compile(r"uncaught target signal (\d+)")


def _emulator_complaint(finished: Finished) -> str | None:
    """A line in which the emulator itself gives up; the death of the program that it runs is none.

    QEMU writes "Error while loading" to stdout, and loses it where that is a file; the rest goes to stderr.
    """
    if finished.code == 1 and not finished.stdout and not finished.stderr:
        return "nothing, and exit code 1, as QEMU does when it can't load a program"
    found = _EMULATOR_COMPLAINT.search(f"{finished.stderr}\n{finished.stdout}")
    return found[0] if found else None


def _end_fault(finished: Finished, missing: Sequence[str], packages: str, *, emulated: bool) -> Fault:
    """Why the runner as a whole ended before its time."""
    message, hint = said(finished)
    if finished.code == _WRONG_ISA_CODE:
        return fault("wrong-isa", f"run: {message}", hint=hint)
    where = f"; no result of {len(missing)} cases from {missing[0]!r} on" if missing else ""
    complaint = _emulator_complaint(finished) if emulated else None
    if complaint and _NO_LOADER.search(complaint):
        return fault("environment", f"run: {complaint}", hint=f"`apt-get install {packages}`")
    if complaint:
        return fault("emulator-failure", f"run: the emulator says: {complaint}{where}")
    if emulated and finished.code == _NOT_FOUND:
        return fault("environment", f"run: {said(finished)[0]}{where}", hint=f"`apt-get install {packages}`")
    number = _signal_of(finished, emulated=emulated)
    if number is not None:
        return _death(number, f"run: the runner died by {_signal_name(number)}{where}")
    return fault("run-failure", f"run: {message}{where}", hint=hint)


def _signal_of(finished: Finished, *, emulated: bool) -> int | None:
    """The signal that ended the runner: told by QEMU, by the system, or by a shell around the emulator."""
    told = _TARGET_SIGNAL.search(finished.stderr) if emulated else None
    if told:
        return int(told[1])
    if finished.code < 0:
        return -finished.code
    by_shell = finished.code - _SHELL_SIGNAL
    return by_shell if emulated and 0 < by_shell < signal.NSIG else None


def _signal_name(number: object) -> str:
    try:
        return f"signal {number} ({signal.Signals(int(str(number))).name})"
    except ValueError:
        return f"signal {number}"
