"""The C API, used by a C and by a C++ program, on every target."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from cuvil import toolchain
from cuvil.objects import read_dynamic_symbols
from cuvil.runtime_binding import HEADER_PATH
from tests.needs import need

from .conftest import WARNINGS, Machine, ModelBuilder, ProgramBuilder, run


@pytest.mark.parametrize("language", ["c11", "c++17"])
@pytest.mark.parametrize("command", ["api", "lifetime", "attach"])
def test_use_from_c_and_cpp(
    machine: Machine, build_model: ModelBuilder, build_program: ProgramBuilder, language: str, command: str
) -> None:
    machine.run(build_program(machine, language), command, build_model(machine))


def test_results_are_the_same_bits_on_every_machine_and_for_any_number_of_threads(
    machine: Machine, build_model: ModelBuilder, build_program: ProgramBuilder
) -> None:
    program, model = build_program(machine), build_model(machine)
    expected = _expected_outputs()
    for num_threads in (1, 2, 3, 7):
        bits, worker_runs = machine.run(program, "bits", model, str(num_threads)).stdout.split()
        assert bits == expected
        assert int(worker_runs) == 50 * (num_threads - 1)


def _expected_outputs() -> str:
    """What `embed.c` feeds, times 1.1, by numpy."""
    index = np.arange(1024, dtype=np.uint32)
    bits = np.where(index % 4 == 3, 0x100 + index, 0x3F800000 + index * 7919).astype(np.uint32)
    bits[index % 5 == 2] |= 0x80000000
    product = (bits.view(np.float32) * np.float32(1.1)).view(np.uint32)
    return "".join(f"{word:08x}" for word in product.tolist())


@pytest.mark.parametrize("num_threads", ["1", "3"])
def test_float_environment_of_the_caller_does_not_matter_and_comes_back(
    machine: Machine, build_model: ModelBuilder, build_program: ProgramBuilder, num_threads: str
) -> None:
    program = build_program(machine)
    machine.run(program, "hostile", "none")
    machine.run(program, "environment", build_model(machine), num_threads)


def test_a_library_that_changes_how_the_process_computes_is_refused(
    machine: Machine, build_model: ModelBuilder, build_program: ProgramBuilder
) -> None:
    """Merely loading a library that was linked with -ffast-math can switch a process to flush-to-zero.

    Reference results that are computed afterwards change, too. Such a library is refused by its name, and the
    caller's state is as it was.
    """
    program, model = build_program(machine), build_model(machine, FLUSHES=1)
    status, message = machine.run(program, "load", model).stdout.strip().split(" ", 1)
    assert status != "0"
    assert message.startswith(f"'{model}': its start-up code changes the floating-point state; expected ")
    assert machine.run(program, "load", build_model(machine)).stdout.strip() == "0"


def test_loops_inside_parallel_loops(
    host: Machine, build_model: ModelBuilder, build_program: ProgramBuilder
) -> None:
    host.run(build_program(host), "nested", build_model(host), "3")


def test_session_goes_on_after_a_fork(
    host: Machine, build_model: ModelBuilder, build_program: ProgramBuilder
) -> None:
    # On the host alone: QEMU 7.2 aborts when the child of a process with threads starts a thread.
    host.run(build_program(host), "fork", build_model(host), "3")


def test_one_thread_starts_no_thread(
    host: Machine, build_model: ModelBuilder, build_program: ProgramBuilder
) -> None:
    need("strace", _strace_works())
    traced = run(
        ["strace", "-f", "-e", "trace=clone,clone3", build_program(host), "bits", build_model(host), "1"]
    )
    assert "clone" not in traced.stderr
    traced = run(
        ["strace", "-f", "-e", "trace=clone,clone3", build_program(host), "bits", build_model(host), "3"]
    )
    assert len(re.findall(r"clone3?\(", traced.stderr)) == 2


def _strace_works() -> bool:
    try:
        return subprocess.run(["strace", "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def test_header_declares_exactly_what_the_libraries_export() -> None:
    declared = set(re.findall(r"\b(cuvil_\w+)\(", HEADER_PATH.read_text())) - {"cuvil_run_function"}
    uses = {"cuvil_session_run", "cuvil_model_load"}  # shown in the example, too
    assert uses < declared
    for target in toolchain.PLATFORMS:
        exported = set(read_dynamic_symbols(toolchain.prebuilt(target).runtime).exported)
        assert exported == declared


def test_header_stands_alone(host: Machine, tmp_path: Path) -> None:
    source = tmp_path / "only.c"
    source.write_text('#include "cuvil/runtime.h"\n')
    for dialect in (["-xc", "-std=c11", "-Wstrict-prototypes"], ["-xc++", "-std=c++17", "-nostdinc++"]):
        host.compile("-c", *dialect, *WARNINGS, source, "-o", tmp_path / "only.o")


def test_cmake_build_exports_the_same_symbols(host: Machine, tmp_path: Path) -> None:
    need("cmake", _starts("cmake"))
    need("g++", _starts("g++"))
    run(["cmake", "-S", toolchain.RUNTIME_SOURCE_DIR, "-B", tmp_path, "-DCMAKE_BUILD_TYPE=Release"])
    run(["cmake", "--build", tmp_path])
    built = read_dynamic_symbols(tmp_path / "libcuvil_runtime.so.1")
    shipped = read_dynamic_symbols(toolchain.prebuilt(host.target).runtime)
    assert set(built.exported) - {"CUVIL_1.0"} == set(shipped.exported)
    assert set(built.needed) <= toolchain.RUNTIME_MAY_NEED | {"ld-linux-aarch64.so.1"}


def _starts(tool: str) -> bool:
    try:
        return subprocess.run([tool, "--version"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False
