"""Small libraries for the checks, compiled from a few lines of C, and scans of them."""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from cuvil_regress.scan import scan
from cuvil_regress.target_abi import TARGETS
from tests.needs import need_module, need_program

Build = Callable[..., Path]
Findings = list[tuple[str, str, str]]
NATIVE = f"{platform.machine()}-linux"
BASE_FLAGS = ("-shared", "-fPIC", "-O1", "-fno-stack-protector", "-Wl,--build-id=none")


def _compile(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"


@pytest.fixture
def target() -> str:
    """The target of the machine that runs the tests."""
    if NATIVE not in TARGETS:
        pytest.skip(f"no target for {NATIVE}")
    return NATIVE


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """`build(name, source, *flags)`: a native library without the C library unless `libc=True`."""

    def run(name: str, source: str, *flags: str, language: str = "c", libc: bool = False) -> Path:
        compiler = need_program("c++") if language == "c++" else need_program("cc")
        output = tmp_path / name
        output.parent.mkdir(parents=True, exist_ok=True)
        text = output.with_suffix(f".{language.replace('+', 'p')}")
        text.write_text(source)
        start = [] if libc else ["-nostdlib"]
        soname = [] if any("-soname" in flag for flag in flags) else [f"-Wl,-soname,{output.name}"]
        _compile([compiler, *BASE_FLAGS, *start, *soname, str(text), "-o", str(output), *flags])
        return output

    return run


@pytest.fixture
def cross_build(tmp_path: Path) -> Build:
    """`cross_build(name, source, triple)`: a library for another machine, compiled with zig."""

    def run(name: str, source: str, triple: str, *flags: str) -> Path:
        need_module("ziglang")
        output, text = tmp_path / name, tmp_path / f"{name}.c"
        text.write_text(source)
        command = [sys.executable, "-m", "ziglang", "cc", "-target", triple, "-shared", "-nostdlib", "-fPIC"]
        _compile([*command, "-O1", "-fno-sanitize=undefined", str(text), "-o", str(output), *flags])
        return output

    return run


@pytest.fixture
def version_script(tmp_path: Path) -> Callable[[str], str]:
    """A linker flag for a version script of the given text."""

    def run(text: str) -> str:
        path = tmp_path / f"{abs(hash(text))}.map"
        path.write_text(text)
        return f"-Wl,--version-script={path}"

    return run


@pytest.fixture
def sysroot(build: Build, version_script: Callable[[str], str], target: str) -> Path:
    """A C library with `old` at GLIBC_2.17 and `new` at GLIBC_2.38, and a loader."""
    nodes = "GLIBC_2.17 { global: old; local: *; }; GLIBC_2.38 { global: new; } GLIBC_2.17;"
    source = "int old(void) { return 1; } int new(void) { return 2; }"
    library = build("root/lib/libc.so.6", source, version_script(nodes))
    loader = TARGETS[target].loader
    build(f"root/lib/{loader}", "void *__tls_get_addr(void *x) { return x; }")
    return library.parents[1]


@pytest.fixture
def torch(build: Build) -> Path:
    """A small torch: one library with a strong, a weak, and a protected definition."""
    source = """
        int torch_strong(void) { return 1; }
        __attribute__((weak)) int torch_weak(void) { return 1; }
        __attribute__((visibility("hidden"))) int torch_hidden(void) { return 1; }
    """
    return build("torch/lib/libtorch_small.so", source).parent


@pytest.fixture
def find(target: str, sysroot: Path, torch: Path) -> Callable[..., Findings]:
    """`find(*libraries)`: (check, severity, subject) of every finding of every check."""

    def run(*libraries: Path, providers: Sequence[Path] = (), on: str = target) -> Findings:
        report = scan(libraries, target=on, torch_lib_dirs=[torch], providers=providers, sysroot=sysroot)
        return [(finding.check, finding.severity, finding.subject) for finding in report.findings]

    return run
