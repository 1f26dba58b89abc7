"""Each verdict is given to a library, a golden or a machine that truly has the fault, and to no other."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.harness.runs.conftest import Laboratory

LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 320\n"


def test_a_faultless_run_is_clean(laboratory: Laboratory) -> None:
    ran = laboratory.run()
    assert (ran.code, ran.cell["verdict"]) == (0, "identical"), ran.out
    assert [step["name"] for step in ran.cell["steps"]] == ["capture", "compile", "abi", "run", "compare"]
    assert len(ran.cell["outputs"]) == 4
    assert all(output["share_within"] == 1 for output in ran.cell["outputs"])
    assert (ran.cell["abi_conflicts"], ran.cell["abi_missing"]) == (0, 0)
    assert ran.cell["findings"] == []


@pytest.mark.parametrize(
    ("fault", "verdict", "code", "words"),
    [
        ("mismatch", "mismatch", 1, "ordinary/logits: against the golden: 1 of 40 elements violate"),
        ("mismatch", "mismatch", 1, "% of what is allowed, up to "),
        ("nan", "nan-policy", 1, "1 NaN"),
        ("shape", "shape", 1, "shape differs; expected [4, 10], got [40]"),
        ("dtype", "dtype", 1, "dtype differs; expected float32, got float64"),
        ("crash", "crash", 1, "case 'ordinary': died by signal 11 (SIGSEGV)"),
        ("illegal", "wrong-isa", 1, "case 'ordinary': died by signal 4 (SIGILL)"),
        ("undefined", "abi-conflict", 1, "'nobody_defines_this'"),
        ("clash", "abi-conflict", 1, "planted_name"),
        ("unsupported", "unsupported", 1, "operator is not compiled; expected one of Add, Gemm, got Gather"),
        ("internal", "compile-failure", 1, "IndexError: list index out of range"),
        ("capture", "capture-failure", 1, "RuntimeError: the exporter gave up"),
        ("toolchain", "environment", 3, "no linker was found"),
    ],
)
def test_planted_fault(laboratory: Laboratory, fault: str, verdict: str, code: int, words: str) -> None:
    laboratory.plant(fault)
    ran = laboratory.run()
    assert (ran.code, ran.cell["verdict"]) == (code, verdict), ran.out
    assert words in ran.out
    assert any(words in finding["message"] for finding in ran.cell["findings"])


@pytest.mark.parametrize(
    ("fault", "least"), [("none", 0), ("mismatch", 1.0001), ("nan", None), ("shape", None)]
)
def test_the_share_of_what_is_allowed(laboratory: Laboratory, fault: str, least: float | None) -> None:
    laboratory.plant(fault)
    cell = laboratory.run().cell
    assert (cell["share_of_allowed"] is None) == (least is None)
    assert (cell["outputs"][0]["share_of_allowed"] is None) == (least is None)
    assert cell["share_of_allowed"] is None or cell["share_of_allowed"] >= (least or 0)
    assert cell["outputs"][-1]["share_of_allowed"] < 1


def test_a_case_that_crashes_costs_only_itself(laboratory: Laboratory) -> None:
    laboratory.plant("crash-special")
    ran = laboratory.run()
    assert (ran.code, ran.cell["verdict"]) == (1, "crash"), ran.out
    assert [finding["subject"] for finding in ran.cell["findings"]] == ["special"]
    assert {(output["case"], output["verdict"]) for output in ran.cell["outputs"]} == {
        ("ordinary", "identical")
    }


def test_a_capture_by_the_installed_torch(laboratory: Laboratory, torch: Any) -> None:
    laboratory.write_matrix()
    matrix = laboratory.folder / "matrix.toml"
    matrix.write_text(matrix.read_text().replace("2.13.0", torch.__version__.partition("+")[0]))
    ran = laboratory.call(
        *laboratory.arguments(), "--python", sys.executable, folder=laboratory.folder / "run"
    )
    assert (ran.code, ran.cell["verdict"]) == (0, "within-tolerance"), ran.out
    assert 0 < ran.cell["max_ulp"] < 100_000
    assert 0 < ran.cell["share_of_allowed"] < 0.125
    assert (ran.folder / "captures" / ran.cell["id"]).parent.joinpath("capture.json").is_file()


def test_a_clash_counts_the_name_that_torch_exports_too(laboratory: Laboratory) -> None:
    laboratory.plant("clash")
    ran = laboratory.run()
    assert ran.cell["abi_conflicts"] == 1
    checks = {finding["check"] for finding in ran.cell["findings"] if finding["subject"] == "planted_name"}
    assert "symbol-clash" in checks


def test_an_undefined_symbol_is_counted_and_the_library_does_not_load(laboratory: Laboratory) -> None:
    laboratory.plant("undefined")
    ran = laboratory.run()
    assert ran.cell["abi_missing"] == 1
    assert any(finding["check"] == "run-failure" for finding in ran.cell["findings"])


def test_the_hint_of_a_command_is_passed_on(laboratory: Laboratory) -> None:
    laboratory.plant("toolchain")
    assert "hint: pip install ziglang" in laboratory.run().out


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda content: content[:-4], "special/000.bin: is truncated; expected 320 bytes, got 316"),
        (lambda content: bytes([content[0] ^ 1]) + content[1:], "special/000.bin: was changed"),
        (lambda content: LFS_POINTER, "special/000.bin: is a git-lfs pointer"),
    ],
)
def test_a_damaged_golden(laboratory: Laboratory, damage: Callable[[bytes], bytes], words: str) -> None:
    path = laboratory.folder / "golden" / "mlp" / "special" / "000.bin"
    laboratory.environment.setenv("STAND_IN_GOLDEN", str(Path(__file__).parents[3] / "golden"))
    path.write_bytes(damage(path.read_bytes()))
    ran = laboratory.run()
    assert (ran.code, ran.cell["verdict"]) == (1, "golden-damaged"), ran.out
    assert words in ran.out


def test_a_model_without_a_golden_is_told_how_to_make_one(laboratory: Laboratory) -> None:
    laboratory.environment.setenv("STAND_IN_GOLDEN", str(Path(__file__).parents[3] / "golden"))
    (laboratory.folder / "golden" / "mlp").rename(laboratory.folder / "golden" / "other")
    ran = laboratory.run()
    assert (ran.code, ran.cell["verdict"]) == (1, "golden-damaged"), ran.out
    assert "hint: make it by: cuvil-regress golden refresh --model mlp" in ran.out


def test_a_timeout_leaves_no_process_behind(laboratory: Laboratory) -> None:
    laboratory.plant("hang")
    ran = laboratory.run(timeout_s=2)
    assert (ran.code, ran.cell["verdict"]) == (1, "timeout"), ran.out
    assert "at case 'ordinary'" in ran.cell["message"]
    assert processes_that_mention(str(laboratory.folder)) == []


def test_a_compiler_that_is_not_there(laboratory: Laboratory) -> None:
    ran = laboratory.run(extra=("--compiler", "no-such-compiler"))
    assert (ran.code, ran.cell["verdict"]) == (3, "environment"), ran.out
    assert "compiler 'no-such-compiler': can't be started" in ran.out


def test_a_compiler_without_a_runtime_for_the_target(laboratory: Laboratory) -> None:
    (laboratory.folder / "x86_64-linux" / "libcuvil_runtime.so.1").unlink()
    ran = laboratory.run()
    assert (ran.code, ran.cell["verdict"]) == (3, "environment"), ran.out
    assert "x86_64-linux: the compiler's libcuvil_runtime.so.1 is missing" in ran.out


def test_a_problem_that_the_compiler_tells_of_a_target(laboratory: Laboratory) -> None:
    problem = {"runner": None, "runtime": None, "sysroot": None, "problem": "no runtime\nhint: build it"}
    laboratory.environment.setenv("STAND_IN_TOOLS", json.dumps({"x86_64-linux": problem}))
    ran = laboratory.run()
    assert (ran.code, ran.cell["verdict"]) == (3, "environment"), ran.out
    first = ran.cell["findings"][0]
    assert (first["message"], first["hint"]) == ("no runtime", "build it")


def test_another_torch_release(laboratory: Laboratory) -> None:
    metadata = laboratory.folder / "site" / "torch-2.13.0.dist-info" / "METADATA"
    metadata.write_text("Name: torch\nVersion: 2.6.0\n")
    ran = laboratory.run()
    assert (ran.code, ran.cell["verdict"]) == (3, "environment"), ran.out
    assert "torch 2.13.0: the capturing Python has another release; got 2.6.0" in ran.out


def test_a_missing_emulator_is_told_and_never_skipped(foreign_laboratory: Laboratory) -> None:
    foreign_laboratory.environment.setenv("PATH", str(foreign_laboratory.folder / "sysroot"))
    ran = foreign_laboratory.run("aarch64-linux")
    assert (ran.code, ran.cell["verdict"]) == (3, "environment"), ran.out
    assert "the emulator 'qemu-aarch64' is not installed" in ran.out
    assert "apt-get install qemu-user libc6-arm64-cross" in ran.out


def test_a_missing_c_library_of_the_target(foreign_laboratory: Laboratory) -> None:
    (foreign_laboratory.folder / "sysroot").rmdir()
    ran = foreign_laboratory.run("aarch64-linux")
    assert (ran.code, ran.cell["verdict"]) == (3, "environment"), ran.out
    assert "aarch64-linux: the target's C library is not installed" in ran.out


@pytest.mark.parametrize(
    ("fault", "version", "verdict", "code"),
    [
        ("", "8.2.0", "identical", 0),
        ("", "6.2.0", "environment", 3),
        ("emulator", "8.2.0", "emulator-failure", 1),
        ("emulator-assertion", "8.2.0", "emulator-failure", 1),
        ("emulator-exit-139", "8.2.0", "crash", 1),
        ("emulator-exit-132", "8.2.0", "wrong-isa", 1),
        ("emulator-exit-127", "8.2.0", "environment", 3),
        ("emulator-truncated", "8.2.0", "run-failure", 1),
    ],
)
def test_a_foreign_target(
    foreign_laboratory: Laboratory, fault: str, version: str, verdict: str, code: int
) -> None:
    foreign_laboratory.environment.setenv("STAND_IN_QEMU", version)
    foreign_laboratory.plant(fault)
    ran = foreign_laboratory.run("x86_64-linux", "aarch64-linux", extra=("--workers", "1"))
    assert (ran.code, ran.cell["verdict"]) == (code, verdict), ran.out
    assert ran.results["cells"][0]["verdict"] == "identical"


def give(laboratory: Laboratory, target: str, **entries: object) -> None:
    """Lets the stand-in compiler tell more of a target."""
    tools = json.loads(os.environ["STAND_IN_TOOLS"])
    tools[target].update(entries)
    laboratory.environment.setenv("STAND_IN_TOOLS", json.dumps(tools))


MACHINES = {"small": ["-cpu", "small"], "big": ["-cpu", "big"]}


def test_machines_of_a_target_run_one_library(foreign_laboratory: Laboratory) -> None:
    give(foreign_laboratory, "aarch64-linux", machines=MACHINES)
    ran = foreign_laboratory.run("x86_64-linux", "aarch64-linux@small", "aarch64-linux@big")
    assert ran.code == 0, ran.out
    _, small, big = ran.results["cells"]
    assert (small["id"], big["target"]) == ("torch-2.13.0/mlp/aarch64-linux@small", "aarch64-linux@big")
    libraries = [path.relative_to(ran.folder / "libraries") for path in ran.folder.rglob("libmlp.so")]
    assert sorted(path.parts[2] for path in libraries) == ["aarch64-linux", "x86_64-linux"]
    for name in ("capture", "compile", "abi"):
        mine, theirs = ([step for step in cell["steps"] if step["name"] == name] for cell in (small, big))
        assert mine == theirs
    for name, cell in zip(MACHINES, (small, big), strict=True):
        log = next(step["log"] for step in cell["steps"] if step["name"] == "run")
        assert f"-cpu {name} " in (ran.folder / log).read_text()
    assert ran.folder.joinpath("runtimes", "aarch64-linux").is_dir()


def test_a_machine_that_lacks_instructions_costs_only_its_cell(foreign_laboratory: Laboratory) -> None:
    give(foreign_laboratory, "aarch64-linux", machines=MACHINES)
    foreign_laboratory.plant("wrong-isa")
    ran = foreign_laboratory.run("x86_64-linux", "aarch64-linux@small", "aarch64-linux@big")
    verdicts = [cell["verdict"] for cell in ran.results["cells"]]
    assert (ran.code, verdicts) == (1, ["identical", "wrong-isa", "identical"]), ran.out
    assert "needs V (vectors), which this machine lacks" in ran.out


def test_a_machine_that_the_compiler_does_not_know(foreign_laboratory: Laboratory) -> None:
    give(foreign_laboratory, "aarch64-linux", machines=MACHINES)
    ran = foreign_laboratory.run("aarch64-linux@large")
    assert (ran.code, ran.cell["verdict"]) == (3, "environment"), ran.out
    assert "aarch64-linux: no such machine; expected one of 'small', 'big', got 'large'" in ran.out


def test_a_target_that_the_compiler_does_not_know(laboratory: Laboratory) -> None:
    ran = laboratory.run("x86_64-linux-v5")
    assert (ran.code, ran.cell["verdict"]) == (3, "environment"), ran.out
    assert "x86_64-linux-v5: the compiler 0.0 doesn't know this target" in ran.out
    assert "hint: it knows x86_64-linux, aarch64-linux" in ran.out


def test_a_target_that_this_machine_lacks_instructions_for(laboratory: Laboratory) -> None:
    give(laboratory, "x86_64-linux", obstacle="needs AVX-512F, which this machine lacks")
    ran = laboratory.run()
    assert (ran.code, ran.cell["verdict"]) == (3, "environment"), ran.out
    assert "x86_64-linux: needs AVX-512F, which this machine lacks" in ran.out


def test_which_emulator_and_which_processor_are_kept(foreign_laboratory: Laboratory) -> None:
    ran = foreign_laboratory.run("aarch64-linux")
    known = json.loads((ran.folder / "environment.json").read_text())["emulators"]
    expected = {"name": "qemu-aarch64", "version": "8.2.0", "arguments": ["-cpu", "cortex-a76"]}
    assert known == {"aarch64-linux": expected}


def test_an_emulator_that_failed_once_is_tried_again(foreign_laboratory: Laboratory) -> None:
    foreign_laboratory.plant("emulator-once")
    ran = foreign_laboratory.run("aarch64-linux")
    assert (ran.code, ran.cell["verdict"]) == (0, "identical"), ran.out
    (warning,) = ran.cell["findings"]
    assert (warning["check"], warning["severity"]) == ("emulator-failure", "warning")
    assert "the first of two attempts failed: run: the emulator says: QEMU internal SIG" in warning["message"]
    log = "logs/torch-2.13.0/mlp/aarch64-linux"
    assert warning["file"] == f"{log}/run.log"
    assert [step["log"] for step in ran.cell["steps"] if step["name"] == "run"] == [f"{log}/run-again.log"]


def test_an_emulator_that_fails_twice_is_the_verdict(foreign_laboratory: Laboratory) -> None:
    foreign_laboratory.plant("emulator-assertion")
    ran = foreign_laboratory.run("aarch64-linux")
    assert ran.cell["message"].startswith("run: the emulator says: qemu-aarch64: ../tcg/tcg.c:3220: ")
    assert [finding["severity"] for finding in ran.cell["findings"]] == ["error", "warning"]


def test_a_differing_bit_is_named(foreign_laboratory: Laboratory) -> None:
    foreign_laboratory.plant("foreign-bit")
    ran = foreign_laboratory.run("x86_64-linux", "aarch64-linux")
    assert (ran.code, ran.cell["verdict"]) == (1, "bits-differ"), ran.out
    words = "mlp, ordinary/logits: against x86_64-linux: 1 of 40 elements differ in bits"
    assert ran.cell["message"] == words
    assert ran.cell["bit_identical"] is False
    first, other = (cell["outputs"][0] for cell in ran.results["cells"])
    assert first["sha256"] != other["sha256"]
    assert (first["reference"], other["reference"]) == ("", "x86_64-linux")


def processes_that_mention(text: str) -> list[str]:
    """Command lines of living processes that contain a text."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in line:
            found.append(line)
    return found
