"""Linkers and compilers: links model libraries, builds the runtime.

The only module of `cuvil` that starts processes. It imports the standard library alone, because the build
of the wheel uses it, too.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from cuvil.errors import ToolchainError, UsageError
from cuvil.objects import read_dynamic_symbols, read_machine

PREBUILT_DIR = Path(__file__).parent / "_prebuilt"
RUNTIME_SOURCE_DIR = Path(__file__).parent / "runtime"

_RUNTIME_NAME = "libcuvil_runtime.so.1"
_RUNNER_NAME = "cuvil-run"
_STAMP_NAME = "sources.sha256"

_REBUILD = "python -m cuvil.toolchain builds it, with the package ziglang or a C++ compiler for the target"

# glibc's own libraries: before 2.34 threads and dlopen were not in libc.so.6 itself.
RUNTIME_MAY_NEED = frozenset({"libc.so.6", "libpthread.so.0", "libdl.so.2"})

_COMPILE_FLAGS = (
    *("-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread"),
    *("-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics", "-ffp-contract=off"),
    *("-fvisibility=hidden", "-fPIC", "-nostdinc++", "-Iinclude", "-ffile-prefix-map=.=cuvil/runtime"),
)
_LINK_FLAGS = ("-s", "-Wl,-z,now,-z,relro,-z,noexecstack,--no-undefined,--build-id=none")


@dataclass(frozen=True)
class Platform:
    """What linkers and compilers call a target."""

    gnu_triple: str
    zig_triple: str
    linker_emulation: str
    elf_machine: int
    e_flags: int
    float_abi_mask: int = 0
    """The bits of `e_flags` that say in which registers floats are passed."""


PLATFORMS = {
    "x86_64-linux": Platform("x86_64-linux-gnu", "x86_64-linux-gnu.2.31", "elf_x86_64", 62, 0),
    "aarch64-linux": Platform("aarch64-linux-gnu", "aarch64-linux-gnu.2.31", "aarch64linux", 183, 0),
    # e_flags of the psABI: EF_RISCV_RVC | EF_RISCV_FLOAT_ABI_DOUBLE
    "riscv64-linux": Platform("riscv64-linux-gnu", "riscv64-linux-gnu.2.31", "elf64lriscv", 243, 0x5, 0x6),
}


@dataclass(frozen=True)
class RuntimePaths:
    """The runtime library and the runner of one target."""

    runtime: Path
    runner: Path


def platform_of(target_name: str) -> Platform:
    """The toolchain's view of a target.

    Raises:
        UsageError: There is no such target.
    """
    if target_name not in PLATFORMS:
        raise UsageError(f"target {target_name!r}: unknown; expected one of {', '.join(PLATFORMS)}")
    return PLATFORMS[target_name]


def host_target() -> str:
    """The name of the target that this machine is.

    Raises:
        ToolchainError: Cuvil has no target for this machine.
    """
    name = f"{platform.machine()}-{platform.system().lower()}"
    if name not in PLATFORMS:
        raise ToolchainError(f"this machine: no target; expected one of {', '.join(PLATFORMS)}, got {name!r}")
    return name


def find_linker(target_name: str) -> list[str]:
    """The command, as an argument vector's start, of a linker that links for the target.

    In order: `CUVIL_LINKER`, LLD of the package `ziglang`, `ld.lld`, the target's GNU ld, the host's `ld`.

    Raises:
        ToolchainError: None of them is there, or `CUVIL_LINKER` names no program.
    """
    chosen = os.environ.get("CUVIL_LINKER")
    if chosen:
        return _chosen_program("CUVIL_LINKER", chosen)
    if _has_ziglang():
        return [sys.executable, "-m", "ziglang", "ld.lld"]
    triple = platform_of(target_name).gnu_triple
    programs = ["ld.lld", f"{triple}-ld", *(["ld"] if _is_host(target_name) else [])]
    for program in programs:
        if shutil.which(program):
            return [program]
    raise ToolchainError(
        f"linker for {target_name!r}: none found; expected the environment variable CUVIL_LINKER, "
        f"the Python package ziglang, or one of {', '.join(programs)} in PATH",
        hint="pip install 'cuvil-compiler[link]'",
    )


def find_compiler(target_name: str) -> list[str]:
    """The command of a C and C++ compiler for the target: `zig cc` of the package `ziglang`, else gcc.

    Raises:
        ToolchainError: None of them is there.
    """
    if _has_ziglang():
        return [sys.executable, "-m", "ziglang", "cc", "-target", platform_of(target_name).zig_triple]
    programs = [f"{platform_of(target_name).gnu_triple}-gcc", *(["gcc"] if _is_host(target_name) else [])]
    for program in programs:
        if shutil.which(program):
            return [program]
    raise ToolchainError(
        f"C++ compiler for {target_name!r}: none found; expected the Python package ziglang, or one of "
        f"{', '.join(programs)} in PATH",
        hint="pip install 'cuvil-compiler[link]'",
    )


def link_shared(
    objects: Sequence[Path], output: Path, target_name: str, exported_symbols: Sequence[str]
) -> None:
    """Links objects into a shared library that stands alone: nothing undefined, nothing needed.

    It exports the given symbols and no other. The same objects and file name give the same bytes. `output`
    appears when it is complete and checked.

    Raises:
        ToolchainError: There is no linker, an object is for another machine or floating-point ABI, the linker
            failed, or the library breaks one of the rules above.
    """
    linker = find_linker(target_name)
    for path in objects:
        _require_abi(path, target_name)
    with tempfile.TemporaryDirectory(dir=output.parent, prefix=f".{output.name}.") as folder:
        script = Path(folder, "exports.map")
        script.write_text(f"{{ global: {''.join(f'{name}; ' for name in exported_symbols)}local: *; }};\n")
        linked = Path(folder, output.name)
        flags = _shared_flags(target_name, script, output.name)
        _run(f"linking {output.name!r}", [*linker, *flags, "-o", str(linked), *map(str, objects)])
        check_freestanding(linked, exported_symbols)
        linked.replace(output)


def _require_abi(path: Path, target_name: str) -> None:
    """Refuses an object that passes floats in other registers than the rest: linkers tell it in riddles."""
    expected = platform_of(target_name)
    machine, flags = read_machine(path)
    if machine != expected.elf_machine:
        raise ToolchainError(
            f"object {path.name!r}: is for another machine than {target_name}; "
            f"expected ELF machine {expected.elf_machine}, got {machine}"
        )
    mask = expected.float_abi_mask
    wanted, found = expected.e_flags & mask, flags & mask
    if wanted != found:
        names = (_RISCV_FLOAT_ABIS[wanted], _RISCV_FLOAT_ABIS[found])
        raise ToolchainError(
            f"object {path.name!r}: has another floating-point ABI than {target_name}; "
            f"expected {names[0]} (e_flags & {mask:#x} == {wanted:#x}), got {names[1]} (e_flags {flags:#x})",
            hint=f"compile it with -mabi={names[0]}",
        )


_RISCV_FLOAT_ABIS = {0x0: "lp64", 0x2: "lp64f", 0x4: "lp64d", 0x6: "lp64q"}
"""By the bits of `e_flags`. Source: RISC-V ELF psABI, file header."""


def _shared_flags(target_name: str, version_script: Path, soname: str) -> list[str]:
    hardening = ("-z", "now", "-z", "relro", "-z", "noexecstack", "-z", "text")
    emulation = platform_of(target_name).linker_emulation
    return [
        *("-m", emulation, "-shared", "-nostdlib", "--no-undefined", *hardening),
        *("--hash-style=gnu", "--build-id=none", "-soname", soname, f"--version-script={version_script}"),
    ]


def check_freestanding(library: Path, exported_symbols: Sequence[str]) -> None:
    """Makes sure that a library stands alone and exports exactly these symbols.

    Raises:
        ToolchainError: It does not; the message names the symbols or libraries.
    """
    found = read_dynamic_symbols(library)
    _expect_none(library.name, "undefined symbols", found.undefined)
    _expect_none(library.name, "needed libraries", found.needed)
    missing = set(exported_symbols) - set(found.exported)
    _expect_none(library.name, "symbols that should be exported and are not", sorted(missing))
    surplus = set(found.exported) - set(exported_symbols)
    _expect_none(library.name, "symbols exported besides the model's own", sorted(surplus))


def _expect_none(where: str, what: str, names: Sequence[str]) -> None:
    if names:
        shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
        raise ToolchainError(f"{where!r}: {what}; expected none, got {shown}")


def build_runtime(target_name: str, output_dir: Path) -> RuntimePaths:
    """Compiles the runtime library and the runner for a target from the sources in this package.

    Raises:
        ToolchainError: There is no compiler for the target, or it failed.
    """
    compiler = find_compiler(target_name)
    output_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output_dir, prefix=".build.") as folder:
        built = RuntimePaths(Path(folder, _RUNTIME_NAME), Path(folder, _RUNNER_NAME))
        exports = f"-Wl,-soname,{_RUNTIME_NAME},--version-script=cuvil.map"
        _compile(compiler, "src", built.runtime, ["-shared", exports])
        _compile(compiler, "runner", built.runner, ["-pie", str(built.runtime), "-Wl,-rpath,$ORIGIN"])
        _check_needs(built.runtime, RUNTIME_MAY_NEED)
        _check_needs(built.runner, RUNTIME_MAY_NEED | {_RUNTIME_NAME})
        return RuntimePaths(
            runtime=built.runtime.replace(output_dir / _RUNTIME_NAME),
            runner=built.runner.replace(output_dir / _RUNNER_NAME),
        )


def _compile(compiler: list[str], sources: str, output: Path, flags: list[str]) -> None:
    # Relative names and one working directory: no path of this machine gets into the result.
    names = sorted(f"{sources}/{path.name}" for path in (RUNTIME_SOURCE_DIR / sources).glob("*.cpp"))
    libraries = ["-lpthread", "-ldl"] if "-shared" in flags else []
    command = [*compiler, *_COMPILE_FLAGS, *names, *flags, *_LINK_FLAGS, *libraries, "-o", str(output)]
    _run(f"compiling {output.name!r}", command, RUNTIME_SOURCE_DIR)


def _check_needs(library: Path, allowed: frozenset[str]) -> None:
    surplus = [name for name in read_dynamic_symbols(library).needed if name not in allowed]
    _expect_none(library.name, f"needed libraries besides {', '.join(sorted(allowed))}", surplus)


def prebuilt(target_name: str) -> RuntimePaths:
    """The runtime and the runner that this installation carries for a target.

    Raises:
        ToolchainError: It carries none, or one that was built from other sources than the ones beside it.
    """
    platform_of(target_name)
    folder = PREBUILT_DIR / target_name
    paths = RuntimePaths(folder / _RUNTIME_NAME, folder / _RUNNER_NAME)
    if not paths.runtime.is_file() or not paths.runner.is_file():
        expected = f"{_RUNTIME_NAME} and {_RUNNER_NAME} in {str(folder)!r}"
        raise ToolchainError(f"runtime for {target_name!r}: missing; expected {expected}", hint=_REBUILD)
    if _read_stamp(folder) != runtime_digest():
        raise ToolchainError(f"runtime for {target_name!r}: out of date; its sources changed", hint=_REBUILD)
    return paths


def build_prebuilt(target_names: Sequence[str] = tuple(PLATFORMS)) -> None:
    """Builds the runtimes that an installation carries, as far as they are missing or out of date."""
    digest = runtime_digest()
    stale = [name for name in target_names if _read_stamp(PREBUILT_DIR / name) != digest]
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as executor:
        for name, _ in zip(stale, executor.map(_build_one, stale), strict=True):
            (PREBUILT_DIR / name / _STAMP_NAME).write_text(f"{digest}\n")


def _build_one(target_name: str) -> RuntimePaths:
    return build_runtime(target_name, PREBUILT_DIR / target_name)


def runtime_digest() -> str:
    """A checksum over all that determines the runtime: its sources, the flags and the platforms."""
    digest = hashlib.sha256(repr((_COMPILE_FLAGS, _LINK_FLAGS, PLATFORMS)).encode())
    for path in sorted(RUNTIME_SOURCE_DIR.rglob("*")):
        if path.suffix in {".cpp", ".h", ".map"}:
            digest.update(f"{path.relative_to(RUNTIME_SOURCE_DIR)} {path.stat().st_size}\n".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _read_stamp(folder: Path) -> str | None:
    stamp = folder / _STAMP_NAME
    return stamp.read_text().strip() if stamp.is_file() else None


def _has_ziglang() -> bool:
    return importlib.util.find_spec("ziglang") is not None


def _is_host(target_name: str) -> bool:
    return target_name == f"{platform.machine()}-{platform.system().lower()}"


def _chosen_program(variable: str, text: str) -> list[str]:
    try:
        command = shlex.split(text)
    except ValueError as error:
        raise ToolchainError(f"{variable}: is no command: {error}; got {text!r}") from None
    if not command or shutil.which(command[0]) is None:
        raise ToolchainError(f"{variable}: no such program; got {text!r}", hint=f"unset {variable} to search")
    return command


def _run(where: str, command: list[str], directory: Path | None = None) -> None:
    """Runs a tool; what it printed belongs to the error."""
    try:
        finished = subprocess.run(command, cwd=directory, capture_output=True, text=True, errors="replace")
    except OSError as error:
        raise ToolchainError(f"{where}: cannot start {command[0]!r}: {error.strerror}") from error
    if finished.returncode != 0:
        output = (finished.stderr or finished.stdout).strip() or f"exit status {finished.returncode}"
        raise ToolchainError(f"{where}: {shlex.join(command[:4])} ... failed\n{output}")


if __name__ == "__main__":
    try:
        build_prebuilt()
    except ToolchainError as error:
        sys.exit(f"cuvil.toolchain: {error.render()}")
