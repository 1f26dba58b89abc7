"""Machines that lack what a model's code needs: refused with a line that says what."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from cuvil import toolchain
from cuvil.driver import Options, compile_model
from cuvil.native import find_obstacle, native_target
from cuvil.runtime_binding import find_missing_features
from cuvil.targets.target import ISA_FEATURES, TARGET_NAMES, find_target
from tests.e2e.models import product
from tests.needs import need_program, need_target

from .conftest import Machine, ModelBuilder, ProgramBuilder, run

WRONG_ISA, EXIT_WRONG_ISA = 7, 4
MODEL: onnx.ModelProto = product(2, 8, 8)
PLATFORMS = tuple(toolchain.PLATFORMS)


def run_on(cpu: str, target: str, folder: Path, *, expect: int) -> str:
    """Compiles for a target and runs on an emulated processor; gives the last line on stderr."""
    record = find_target(target)
    if record.platform == "x86_64-linux":
        need_program("qemu-x86_64")
    else:
        need_target(target)
    sysroot: list[str] = [] if record.platform == toolchain.host_target() else ["-L", record.sysroot]
    case = folder / "cases" / "zeros"
    case.mkdir(parents=True)
    (case / "manifest.txt").write_text("cuvil-tensors 1\ntensor float32 2 2 8 x.bin x\n")
    (case / "x.bin").write_bytes(bytes(64))
    library = folder / "m.so"
    compile_model(MODEL, Options(target)).save(library)
    runner = toolchain.prebuilt(record.platform).runner
    words = [runner, library, folder / "cases", folder / "out"]
    lines = run([record.emulator, "-cpu", cpu, *sysroot, *words], expect=expect).stderr.splitlines()
    return lines[-1] if lines else ""


@pytest.mark.parametrize(
    ("target", "cpu", "lacking"),
    [
        ("x86_64-linux", "Haswell,abm=off,bmi2=off", "BMI2, LZCNT"),
        ("x86_64-linux", "max,fma=off,movbe=off", "FMA, MOVBE"),
        ("x86_64-linux", "max,xsave=off", "AVX, AVX2, F16C, FMA"),
        ("x86_64-linux-v4", "max", "AVX-512F, AVX-512BW, AVX-512CD, AVX-512DQ, AVX-512VL"),
        ("aarch64-linux", "cortex-a53", "LSE, RDM, FP16, DotProd, RCPC"),
        ("riscv64-linux-v", "rv64,v=false", "V (vectors)"),
    ],
)  # fmt: skip
def test_the_missing_features_are_named(target: str, cpu: str, lacking: str, tmp_path: Path) -> None:
    message = run_on(cpu, target, tmp_path, expect=EXIT_WRONG_ISA)
    assert message == f"cuvil-run: '{tmp_path / 'm.so'}': needs {lacking}, which this machine lacks"


@pytest.mark.parametrize(
    ("target", "cpu"),
    [
        ("x86_64-linux", "max"),
        ("aarch64-linux", "cortex-a76"),
        ("aarch64-linux-armv8a", "cortex-a53"),
        ("riscv64-linux", "sifive-u54"),
        ("riscv64-linux-u74", "sifive-u54"),
        ("riscv64-linux-v", "rv64,v=true,vlen=1024,vext_spec=v1.0"),
    ],
)
def test_a_machine_with_just_enough_runs_it(target: str, cpu: str, tmp_path: Path) -> None:
    assert run_on(cpu, target, tmp_path, expect=0) == ""


@pytest.mark.parametrize(
    ("vlen_bits", "message"), [(128, "256 bits or more; this machine's have 128"), (256, "")]
)
def test_the_vector_length_is_read_from_the_machine(
    build_model: ModelBuilder, build_program: ProgramBuilder, vlen_bits: int, message: str
) -> None:
    need_target("riscv64-linux-v")
    cpu = f"rv64,v=true,vlen={vlen_bits},vext_spec=v1.0"
    machine = Machine("riscv64-linux", ("qemu-riscv64", "-cpu", cpu, "-L", "/usr/riscv64-linux-gnu"))
    path = build_model(machine, MIN_VLEN_BITS=256)
    status, got = machine.run(build_program(machine), "load", path).stdout.rstrip("\n").split(" ", 1)
    assert int(status) == (WRONG_ISA if message else 0)
    assert got == (f"'{path}': needs vector registers of {message}" if message else "")


@pytest.mark.parametrize("defines", [{"FEATURES": 1 << 62}, {"FEATURES": -1}, {"MIN_VLEN_BITS": -1}])
def test_what_the_runtime_does_not_know_is_refused(
    host: Machine, build_model: ModelBuilder, build_program: ProgramBuilder, defines: dict[str, int]
) -> None:
    path = build_model(host, **defines)
    status, message = host.run(build_program(host), "load", path).stdout.rstrip("\n").split(" ", 1)
    assert int(status) == WRONG_ISA
    assert ("features that this runtime does not know" in message) == ("FEATURES" in defines)


def test_the_runtime_knows_the_features_of_the_records_and_no_more() -> None:
    count = len(ISA_FEATURES[toolchain.host_target()])
    beyond = f"expected bits below {count}, got 0x{1 << count:x}"
    assert find_missing_features(0, 0) is None
    assert str(find_missing_features(1 << count, 0)).endswith(beyond)
    assert "does not know" not in str(find_missing_features((1 << count) - 1, 0))


@pytest.mark.parametrize("name", TARGET_NAMES)
def test_a_record_asks_for_features_of_its_platform(name: str) -> None:
    record = find_target(name)
    assert record.platform in PLATFORMS
    assert set(record.isa) <= set(ISA_FEATURES[record.platform])
    assert record.isa_bits.bit_count() == len(record.isa) > 0
    assert (record.min_vlen_bits > 0) == ("v" in record.isa)


def test_native_is_the_record_that_asks_for_most() -> None:
    native = native_target()
    assert find_obstacle(native) is None
    fitting = [find_target(name) for name in TARGET_NAMES if find_obstacle(find_target(name)) is None]
    assert len(native.isa) == max(len(record.isa) for record in fitting)
    foreign = next(name for name in PLATFORMS if name != toolchain.host_target())
    assert f"needs a machine of '{foreign}'" in str(find_obstacle(find_target(foreign)))
