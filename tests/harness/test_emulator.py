"""What QEMU itself says and does: its failures, the program's death, and code for another processor."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cuvil_regress.process import Processes
from cuvil_regress.steps import Fault, run_faults
from tests.needs import need_module, need_program

TRIPLES = {"qemu-aarch64": "aarch64-linux-gnu.2.31", "qemu-riscv64": "riscv64-linux-gnu.2.31"}
ILLEGAL = {"qemu-aarch64": ".inst 0x00000000", "qemu-riscv64": ".word 0x00000000"}
VECTOR = {"qemu-aarch64": ".inst 0x04e0e3e0", "qemu-riscv64": ".word 0x0d0572d7"}
"""`cntd x0` of SVE, and `vsetvli t0, a0, e32, m1` of RVV: there are processors that have them."""
SMALL = {"qemu-aarch64": "cortex-a53", "qemu-riscv64": "rv64,v=false"}
LARGE = {"qemu-aarch64": "max", "qemu-riscv64": "rv64,v=true"}

FLAGS = ("-static", "-nostdlib", "-ffreestanding", "-fno-sanitize=undefined", "-O1")
SOURCE = r"""
static long call(long number, long a, long b, long c) {{
#if defined(__aarch64__)
  register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c;
  __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
  return x0;
#else
  register long a7 __asm__("a7") = number, a0 __asm__("a0") = a, a1 __asm__("a1") = b, a2 __asm__("a2") = c;
  __asm__ volatile("ecall" : "+r"(a0) : "r"(a7), "r"(a1), "r"(a2) : "memory");
  return a0;
#endif
}}
void _start(void) {{
  static const char done[] = "{{\"case\": \"a\", \"status\": \"ok\"}}\n";
  int code = 0;
  call(64, 1, (long)done, sizeof done - 1); /* write */
  {body}
  call(94, code, 0, 0); /* exit_group */
}}
"""


@pytest.fixture(params=TRIPLES)
def emulator(request: pytest.FixtureRequest) -> str:
    need_module("ziglang")
    need_program(request.param)
    return str(request.param)


def build(folder: Path, emulator: str, body: str) -> Path:
    """A program without a C library that reports its first case, and then does what `body` says."""
    source, program = folder / "program.c", folder / "program"
    source.write_text(SOURCE.format(body=body))
    command = [sys.executable, "-m", "ziglang", "cc", "-target", TRIPLES[emulator], *FLAGS]
    subprocess.run([*command, str(source), "-o", str(program)], check=True)
    return program


def run(folder: Path, *argv: str | Path) -> list[Fault]:
    finished = Processes().run([*map(str, argv)], log=folder / "run.log", timeout_s=60)
    return run_faults(finished, ["a", "b"], "qemu-user", emulated=True)


@pytest.mark.parametrize(
    ("body", "verdict", "words"),
    [
        ("*(volatile int *)8 = 1;", "crash", "the runner died by signal 11 (SIGSEGV)"),
        (
            "call(129, call(172, 0, 0, 0), 6, 0); /* kill, getpid */",
            "crash",
            "the runner died by signal 6 (SIGABRT)",
        ),
        ('__asm__ volatile("{illegal}");', "wrong-isa", "the runner died by signal 4 (SIGILL)"),
        ("code = 127;", "environment", "exit code 127"),
        ("code = 5;", "run-failure", "exit code 5"),
        ("", "run-failure", "no result of 1 cases from 'b' on"),
    ],
)
def test_how_the_program_ends(tmp_path: Path, emulator: str, body: str, verdict: str, words: str) -> None:
    program = build(tmp_path, emulator, body.replace("{illegal}", ILLEGAL[emulator]))
    (found,) = run(tmp_path, emulator, program)
    assert found.verdict == verdict
    assert words in found.finding.message


def test_an_instruction_that_some_processors_have(tmp_path: Path, emulator: str) -> None:
    program = build(tmp_path, emulator, f'__asm__ volatile("{VECTOR[emulator]}" ::: "memory");')
    (lacking,) = run(tmp_path, emulator, "-cpu", SMALL[emulator], program)
    assert (lacking.verdict, "(-cpu)" in lacking.finding.hint) == ("wrong-isa", True)
    (ran,) = run(tmp_path, emulator, "-cpu", LARGE[emulator], program)
    assert ran.finding.message.startswith("run: it ended with exit code 0; no result of 1 cases from 'b' on")


def test_what_the_emulator_itself_refuses(tmp_path: Path, emulator: str) -> None:
    program = build(tmp_path, emulator, "")
    cases: list[tuple[str, list[str | Path]]] = [
        ("emulator-failure", ["-cpu", "no-such-processor", program]),
        ("emulator-failure", ["-no-such-option", program]),
        ("emulator-failure", [tmp_path / "absent"]),
        ("emulator-failure", [tmp_path / "program.c"]),
        ("emulator-failure", [sys.executable]),
    ]
    for verdict, arguments in cases:
        (found,) = run(tmp_path, emulator, *arguments)
        assert found.verdict == verdict, (arguments, found.finding.message)


def test_a_c_library_that_is_not_there(tmp_path: Path, emulator: str) -> None:
    source = tmp_path / "dynamic.c"
    source.write_text("int main(void) { return 0; }")
    command = [sys.executable, "-m", "ziglang", "cc", "-target", TRIPLES[emulator], str(source)]
    subprocess.run([*command, "-o", str(tmp_path / "dynamic")], check=True)
    (found,) = run(tmp_path, emulator, "-L", tmp_path, tmp_path / "dynamic")
    assert (found.verdict, found.finding.hint) == ("environment", "`apt-get install qemu-user`")
    assert "Could not open '/lib/ld-linux-" in found.finding.message
