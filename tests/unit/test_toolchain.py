"""Finding linkers, linking libraries that stand alone, and refusing the ones that don't."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import llvmlite.binding as llvm
import pytest

from cuvil import toolchain
from cuvil.errors import ToolchainError, UsageError
from cuvil.objects import read_dynamic_symbols, write_object
from tests.needs import need_program

TARGETS = tuple(toolchain.PLATFORMS)


def _object(folder: Path, target: str, source: str) -> Path:
    (folder / "part.c").write_text(source)
    path = folder / "part.o"
    flags = ["-c", "-O1", "-ffreestanding", "-fPIC", "-fno-stack-protector"]
    subprocess.run([*toolchain.find_compiler(target), *flags, folder / "part.c", "-o", path], check=True)
    return path


@pytest.mark.parametrize("target", TARGETS)
def test_link_exports_only_what_is_asked_for(tmp_path: Path, target: str) -> None:
    part = _object(tmp_path, target, "int shown(void) { return 1; } int hidden(void) { return 2; }")
    weights = tmp_path / "weights.o"
    platform = toolchain.PLATFORMS[target]
    write_object(weights, b"abc", "weights", platform.elf_machine, platform.e_flags)
    output = tmp_path / "out" / "libpart.so"
    output.parent.mkdir()
    toolchain.link_shared([part, weights], output, target, ["shown", "weights"])
    found = read_dynamic_symbols(output)
    assert (found.exported, found.undefined, found.needed) == (("shown", "weights"), (), ())
    assert list(output.parent.iterdir()) == [output]


@pytest.mark.parametrize(("features", "abi"), [("", ""), ("+m,+a,+c", "lp64"), ("+f", "lp64f")])
def test_link_refuses_another_floating_point_abi(tmp_path: Path, features: str, abi: str) -> None:
    """Code that is generated from a triple alone is soft-float, and the C library and the runtime are lp64d.

    Linkers speak of incompatible modules; what is meant is that floats travel in other registers.
    """
    part = tmp_path / "part.o"
    part.write_bytes(_riscv_code(features, abi))
    with pytest.raises(ToolchainError) as caught:
        toolchain.link_shared([part], tmp_path / "libpart.so", "riscv64-linux", ["shown"])
    message = "object 'part.o': has another floating-point ABI than riscv64-linux; expected lp64d "
    assert str(caught.value).startswith(f"{message}(e_flags & 0x6 == 0x4), got {abi or 'lp64'} (e_flags 0x")
    assert caught.value.hint == "compile it with -mabi=lp64d"
    assert list(tmp_path.iterdir()) == [part]


def _riscv_code(features: str, abi: str) -> bytes:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple("riscv64-unknown-linux-gnu")
    machine = target.create_target_machine(features=features, reloc="pic", abiname=abi)
    module = llvm.parse_assembly("define float @shown(float %x) { ret float %x }")
    code: bytes = machine.emit_object(module)
    return code


def test_link_is_deterministic(tmp_path: Path) -> None:
    part = _object(tmp_path, "aarch64-linux", "int shown(void) { return 1; }")
    outputs = [tmp_path / name / "libpart.so" for name in ("one", "another one")]
    for output in outputs:
        output.parent.mkdir()
        toolchain.link_shared([part], output, "aarch64-linux", ["shown"])
    assert outputs[0].read_bytes() == outputs[1].read_bytes()


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("int other(void); int shown(void) { return other(); }", "undefined symbol: other"),
        ("int other(void) { return 1; }", "shown"),
    ],
)
def test_link_refuses_and_publishes_nothing(tmp_path: Path, source: str, message: str) -> None:
    part = _object(tmp_path, toolchain.host_target(), source)
    output = tmp_path / "out" / "libpart.so"
    output.parent.mkdir()
    with pytest.raises(ToolchainError, match=message):
        toolchain.link_shared([part], output, toolchain.host_target(), ["shown"])
    assert list(output.parent.iterdir()) == []


def test_weak_undefined_symbols_pass_the_linker_but_not_the_check(tmp_path: Path) -> None:
    source = "__attribute__((weak)) int other(void); int shown(void) { return other ? other() : 0; }"
    part = _object(tmp_path, toolchain.host_target(), source)
    with pytest.raises(ToolchainError, match="undefined symbols; expected none, got other"):
        toolchain.link_shared([part], tmp_path / "libpart.so", toolchain.host_target(), ["shown"])


def test_check_names_needed_libraries_and_surplus_exports() -> None:
    runtime = toolchain.prebuilt("x86_64-linux").runtime
    with pytest.raises(ToolchainError, match=r"undefined symbols; expected none, got .* more$"):
        toolchain.check_freestanding(runtime, [])


def test_objects_of_another_machine_do_not_link(tmp_path: Path) -> None:
    part = _object(tmp_path, "riscv64-linux", "int shown(void) { return 1; }")
    with pytest.raises(ToolchainError, match=r"'part\.o': is for another machine .* machine 183, got 243"):
        toolchain.link_shared([part], tmp_path / "libpart.so", "aarch64-linux", ["shown"])


def test_linker_of_the_environment_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUVIL_LINKER", f"'{sys.executable}' -m ziglang ld.lld")
    assert toolchain.find_linker("x86_64-linux") == [sys.executable, "-m", "ziglang", "ld.lld"]
    monkeypatch.setenv("CUVIL_LINKER", "no-such-linker --fast")
    with pytest.raises(ToolchainError, match="CUVIL_LINKER: no such program; got 'no-such-linker --fast'"):
        toolchain.find_linker("x86_64-linux")


@pytest.fixture
def bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without ziglang and with an empty PATH, which is returned."""
    monkeypatch.delenv("CUVIL_LINKER", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "ziglang", None)
    return tmp_path


def test_missing_linker_names_every_choice(bare_machine: Path) -> None:
    with pytest.raises(ToolchainError) as caught:
        toolchain.find_linker("riscv64-linux")
    message = str(caught.value)
    for choice in ("CUVIL_LINKER", "ziglang", "ld.lld", "riscv64-linux-gnu-ld"):
        assert choice in message
    assert caught.value.hint == "pip install 'cuvil-compiler[link]'"
    with pytest.raises(ToolchainError, match="C\\+\\+ compiler for 'riscv64-linux': none found"):
        toolchain.find_compiler("riscv64-linux")


def test_linkers_are_taken_in_order(bare_machine: Path) -> None:
    host = toolchain.host_target()
    triple = toolchain.PLATFORMS[host].gnu_triple
    for name in ("ld", f"{triple}-ld", "ld.lld"):
        program = bare_machine / name
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
        assert toolchain.find_linker(host) == [name]


def test_gnu_linker_of_the_host_does_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need_program("ld")
    host = toolchain.host_target()
    part = _object(tmp_path, host, "int shown(void) { return 1; } int hidden(void) { return 2; }")
    monkeypatch.setenv("CUVIL_LINKER", "ld")
    toolchain.link_shared([part], tmp_path / "libpart.so", host, ["shown"])
    assert read_dynamic_symbols(tmp_path / "libpart.so").exported == ("shown",)
    with pytest.raises(ToolchainError, match=r"exported and are not; expected none, got absent"):
        toolchain.link_shared([part], tmp_path / "libpart.so", host, ["shown", "absent"])


def test_linker_of_the_host_links_for_the_host_only(bare_machine: Path) -> None:
    program = bare_machine / "ld"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    other = next(target for target in TARGETS if target != toolchain.host_target())
    with pytest.raises(ToolchainError, match="none found"):
        toolchain.find_linker(other)


def test_unknown_target_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="target 'sparc': unknown; expected one of x86_64-linux, "):
        toolchain.prebuilt("sparc")


def test_needs_the_standard_library_alone() -> None:
    # The wheel's build imports it in an environment that has neither numpy nor cffi.
    code = "import sys, cuvil.toolchain; print([m for m in ('numpy', 'cffi', 'ziglang') if m in sys.modules])"
    root = str(Path(toolchain.__file__).parents[1])
    command = [sys.executable, "-S", "-c", f"import sys; sys.path.insert(0, {root!r}); {code}"]
    finished = subprocess.run(command, capture_output=True, text=True, check=True)
    assert finished.stdout.strip() == "[]"
