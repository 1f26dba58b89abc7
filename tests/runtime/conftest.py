"""Fixtures of the runtime's tests: machines to run on, and the model and program that are built for them."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from cuvil import toolchain
from cuvil.targets.target import find_target
from tests.needs import need_target

HERE = Path(__file__).parent
MODEL_SYMBOLS = ("cuvil_model_info", "cuvil_model_strings", "cuvil_model_weights", "cuvil_model_run")
WARNINGS = ("-Wall", "-Wextra", "-Werror", "-pedantic")

ModelBuilder = Callable[..., Path]
ProgramBuilder = Callable[..., Path]


def run(command: list[str | Path], *, expect: int = 0) -> subprocess.CompletedProcess[str]:
    """Runs a command that ends with a given exit status."""
    finished = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=120, check=False
    )
    assert finished.returncode == expect, f"{finished.args}\n{finished.stdout}{finished.stderr}"
    return finished


@dataclass(frozen=True)
class Machine:
    """A target and the words before a command that runs on it."""

    target: str
    emulator: tuple[str, ...]

    def run(self, *command: str | Path, expect: int = 0) -> subprocess.CompletedProcess[str]:
        """Runs a program of the target."""
        return run([*self.emulator, *command], expect=expect)

    def compile(self, *arguments: str | Path) -> None:
        """Runs the target's C compiler."""
        include = toolchain.RUNTIME_SOURCE_DIR / "include"
        run([*toolchain.find_compiler(self.target), "-O2", "-ffp-contract=off", f"-I{include}", *arguments])


def machine_of(target: str) -> Machine:
    """The machine that runs a target's programs here: this one, or QEMU."""
    if target == toolchain.host_target():
        return Machine(target, ())
    need_target(target)
    record = find_target(target)
    return Machine(target, (record.emulator, "-L", record.sysroot))


@pytest.fixture(scope="session", params=tuple(toolchain.PLATFORMS))
def machine(request: pytest.FixtureRequest) -> Machine:
    """Each target in turn."""
    return machine_of(request.param)


@pytest.fixture(scope="session")
def host() -> Machine:
    """This machine."""
    return machine_of(toolchain.host_target())


@pytest.fixture(scope="session")
def build_model(tmp_path_factory: pytest.TempPathFactory) -> ModelBuilder:
    """Builds `scale_model.c` as a model library, with the given macros defined."""
    built: dict[tuple[object, ...], Path] = {}

    def build(machine: Machine, **defines: int) -> Path:
        key = (machine.target, *sorted(defines.items()))
        if key not in built:
            built[key] = _build_model(machine, tmp_path_factory.mktemp("model"), defines)
        return built[key]

    return build


def _build_model(machine: Machine, folder: Path, defines: dict[str, int]) -> Path:
    object_file, library = folder / "scale.o", folder / "libscale.so"
    flags = [
        "-ffreestanding",
        "-fno-builtin",
        "-fno-stack-protector",
        "-fvisibility=hidden",
        "-fPIC",
        "-std=c11",
    ]
    macros = [f"-D{name}={value}" for name, value in defines.items()]
    machine.compile("-c", *flags, *WARNINGS, *macros, HERE / "scale_model.c", "-o", object_file)
    toolchain.link_shared([object_file], library, machine.target, MODEL_SYMBOLS)
    return library


@pytest.fixture(scope="session")
def build_program(tmp_path_factory: pytest.TempPathFactory) -> ProgramBuilder:
    """Builds `embed.c`, or another program, against the prebuilt runtime, as C11 or as C++17."""
    built: dict[tuple[str, str, str], Path] = {}

    def build(machine: Machine, language: str = "c11", source: str = "embed.c") -> Path:
        key = (machine.target, language, source)
        if key not in built:
            built[key] = _build_program(machine, tmp_path_factory.mktemp("program"), language, HERE / source)
        return built[key]

    return build


def _build_program(machine: Machine, folder: Path, language: str, source: Path) -> Path:
    runtime = toolchain.prebuilt(machine.target).runtime
    object_file, program = folder / "program.o", folder / source.stem
    dialect = ["-xc", "-std=c11"] if language == "c11" else ["-xc++", "-std=c++17", "-nostdinc++"]
    machine.compile("-c", "-fPIE", *dialect, *WARNINGS, source, "-o", object_file)
    search = f"-Wl,-rpath,{runtime.parent}"
    machine.compile("-pie", object_file, runtime, search, "-lpthread", "-ldl", "-o", program)
    return program
