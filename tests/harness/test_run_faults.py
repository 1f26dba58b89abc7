"""Ends of a runner: the program's death, the emulator's failure and a lack of the machine are told apart."""

from __future__ import annotations

import json

import pytest

from cuvil_regress.process import Finished
from cuvil_regress.steps import run_faults

OK = json.dumps({"case": "a", "status": "ok"})
CRASH = json.dumps({"case": "b", "status": "crash", "signal": 11})
ILLEGAL = json.dumps({"case": "b", "status": "crash", "signal": 4})
NEEDS = "cuvil-run: 'm.so': needs FMA, which this machine lacks"
TARGET_SIGNAL = "qemu: uncaught target signal 11 (Segmentation fault) - core dumped"


def faults(
    code: int, stdout: str, stderr: str = "", *, emulated: bool = False, timed_out: bool = False
) -> list[tuple[str, str]]:
    finished = Finished(("cuvil-run",), code, timed_out, 2_000_000_000, stdout, stderr)
    found = run_faults(finished, ["a", "b"], "qemu-user libc6", emulated=emulated)
    return [(fault.verdict, fault.finding.message) for fault in found]


def test_all_cases_ran() -> None:
    assert faults(0, OK + "\n" + json.dumps({"case": "b", "status": "ok"})) == []


@pytest.mark.parametrize("emulated", [False, True])
def test_a_case_that_died(emulated: bool) -> None:
    stderr = TARGET_SIGNAL if emulated else ""
    expected = [("crash", "case 'b': died by signal 11 (SIGSEGV)")]
    assert faults(1, f"{OK}\n{CRASH}", stderr, emulated=emulated) == expected


@pytest.mark.parametrize("emulated", [False, True])
def test_an_illegal_instruction_is_code_for_another_processor(emulated: bool) -> None:
    stderr = "qemu: uncaught target signal 4 (Illegal instruction) - core dumped" if emulated else ""
    expected = [("wrong-isa", "case 'b': died by signal 4 (SIGILL)")]
    assert faults(1, f"{OK}\n{ILLEGAL}", stderr, emulated=emulated) == expected
    expected = [("wrong-isa", "run: the runner died by signal 4 (SIGILL); no result of 1 cases from 'b' on")]
    assert faults(132 if emulated else -4, OK, stderr, emulated=emulated) == expected


def test_a_warning_of_the_emulator_is_no_failure() -> None:
    stderr = "qemu-riscv64: warning: vext ver is not specified, use default value v1.0"
    assert [verdict for verdict, _ in faults(1, f"{OK}\n{CRASH}", stderr, emulated=True)] == ["crash"]


def test_a_case_that_reported_an_error() -> None:
    report = json.dumps({"case": "b", "status": "error", "message": "no input 'x'"})
    assert faults(1, f"{OK}\n{report}") == [("run-failure", "case 'b': no input 'x'")]


def test_an_exit_code_that_contradicts_the_reports() -> None:
    assert [verdict for verdict, _ in faults(1, OK + "\n" + OK.replace('"a"', '"b"'))] == ["run-failure"]


@pytest.mark.parametrize(
    ("code", "stderr", "emulated", "verdict", "words"),
    [
        (4, NEEDS, False, "wrong-isa", "run: cuvil-run: 'm.so': needs FMA, which this machine lacks"),
        (4, f"qemu-x86_64: warning: TCG lacks a feature\n{NEEDS}", True, "wrong-isa", "needs FMA, which"),
        (-11, "", False, "crash", "the runner died by signal 11 (SIGSEGV); no result of 1 cases from 'b' on"),
        (-11, TARGET_SIGNAL, True, "crash", "the runner died by signal 11 (SIGSEGV)"),
        (139, TARGET_SIGNAL, True, "crash", "the runner died by signal 11 (SIGSEGV)"),
        (139, "", True, "crash", "the runner died by signal 11 (SIGSEGV)"),
        (139, "", False, "run-failure", "exit code 139"),
        (127, "sh: 1: qemu-aarch64: not found", True, "environment", "not found"),
        (1, "qemu-riscv64: unable to find CPU model 'rv65'", True, "emulator-failure", "CPU model 'rv65'"),
        (-6, "**\nERROR:../tcg/tcg.c:100:tcg_fatal: oops", True, "emulator-failure", "ERROR:../tcg/tcg.c"),
        (-11, "QEMU internal SIGSEGV {code=MAPERR, addr=0x20}", True, "emulator-failure", "QEMU internal"),
        (1, "qemu: unhandled CPU exception 0x10003 - aborting", True, "emulator-failure", "unhandled CPU"),
        (
            255,
            "qemu-aarch64: Could not open '/lib/ld-linux-aarch64.so.1': No such file or directory",
            True,
            "environment",
            "ld-linux-aarch64",
        ),
        (3, "cuvil-run: 'm.so': cannot be loaded", False, "run-failure", "cannot be loaded"),
        (0, "", False, "run-failure", "no result of 1 cases from 'b' on"),
    ],
)
def test_the_runner_ended_early(code: int, stderr: str, emulated: bool, verdict: str, words: str) -> None:
    found = faults(code, OK, stderr, emulated=emulated)
    assert [each for each, _ in found] == [verdict]
    assert words in found[0][1]


def test_an_emulator_that_refuses_the_program_says_so_on_stdout() -> None:
    stdout = "Error while loading cuvil-run: Exec format error"
    assert [verdict for verdict, _ in faults(1, stdout, emulated=True)] == ["emulator-failure"]


def test_a_timeout_names_the_case() -> None:
    assert faults(-15, OK, timed_out=True) == [("timeout", "run: it ran longer than 2 s at case 'b'")]


def test_a_line_that_was_cut_off_is_no_result() -> None:
    found = faults(-9, f'{OK}\n{{"case": "b", "sta')
    assert [verdict for verdict, _ in found] == ["crash"]
