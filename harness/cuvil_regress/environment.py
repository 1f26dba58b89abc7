"""What a run has to work with: the Python with PyTorch, the compiler, the emulators."""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cuvil_regress.errors import ToolMissingError, UsageError
from cuvil_regress.model import MACHINES, SCHEMA_VERSION, family_of
from cuvil_regress.process import Finished, NotStartedError, Processes

QUESTION_TIMEOUT_S = 120.0
"""Time for a tool to say its version."""

OLDEST_QEMU = (7, 0)
"""The first release with version 1.0 of the RISC-V vector extension."""

_PROBE = """
import importlib.metadata, importlib.util, json, platform
def version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
torch = importlib.util.find_spec("torch")
folder = torch.submodule_search_locations[0] if torch and torch.submodule_search_locations else None
print(json.dumps({"python": platform.python_version(), "torch": version("torch"),
                  "numpy": version("numpy"), "folder": folder}))
"""


@dataclass(frozen=True)
class Interpreter:
    """The Python that captures the models."""

    executable: str
    python: str
    torch: str | None
    numpy: str | None
    torch_folder: Path | None

    @property
    def torch_lib_dirs(self) -> tuple[Path, ...]:
        """The folders that hold PyTorch's shared libraries."""
        if self.torch_folder is None:
            return ()
        return tuple(folder for folder in (self.torch_folder / "lib", self.torch_folder) if folder.is_dir())

    def require_torch(self, release: str) -> None:
        """Check that this is the PyTorch release that a cell asks for; `2.13.0+cpu` is a `2.13.0`.

        Raises:
            ToolMissingError: there is another release, or none.
        """
        if self.torch is None:
            raise ToolMissingError(
                f"torch {release}: PyTorch is not installed in the capturing Python",
                hint=f"install torch=={release} there, or name another Python by --python",
            )
        if self.torch != release and self.torch.partition("+")[0] != release:
            raise ToolMissingError(
                f"torch {release}: the capturing Python has another release; got {self.torch}",
                hint=f"run with --python PATH of an environment that has torch=={release}",
            )


@dataclass(frozen=True)
class TargetTools:
    """What the compiler brings and needs to run a library of one target."""

    target: str
    runner: Path
    runtime: Path
    emulator: str | None
    emulator_arguments: tuple[str, ...]
    sysroot: Path | None
    machines: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Other machines that the target's code can be run on: the emulator's arguments, by name."""
    obstacle: str = ""
    """Why this machine, one of the target's family, can't run its code; empty where it can."""


@dataclass(frozen=True)
class Compiler:
    """The compiler under test, as it describes itself."""

    argv: tuple[str, ...]
    version: str
    llvm: str
    targets: Mapping[str, TargetTools | ToolMissingError]
    digest: str = ""
    """Of the compiler's own files; empty when it doesn't tell."""

    def require(self, target: str) -> None:
        """Check that the compiler knows a target.

        Raises:
            ToolMissingError: it doesn't.
        """
        if target not in self.targets:
            message = f"{target}: the compiler {self.version} doesn't know this target"
            raise ToolMissingError(message, hint=f"it knows {', '.join(self.targets)}")

    def tools(self, target: str) -> TargetTools:
        """What a target's libraries are run by.

        Raises:
            ToolMissingError: the compiler doesn't know the target, or lacks its runtime.
        """
        self.require(target)
        found = self.targets[target]
        if isinstance(found, ToolMissingError):
            raise found
        for path in (found.runner, found.runtime):
            if not path.is_file():
                raise ToolMissingError(
                    f"{target}: the compiler's {path.name} is missing", hint="reinstall it"
                )
        return found


def probe_interpreter(executable: str, processes: Processes, log: Path) -> Interpreter:
    """Ask a Python for its versions, without importing PyTorch.

    Raises:
        UsageError: it is not a Python that runs.
    """
    try:
        finished = processes.run([executable, "-c", _PROBE], log=log, timeout_s=QUESTION_TIMEOUT_S)
        answer = json.loads(finished.stdout)
    except (NotStartedError, json.JSONDecodeError) as error:
        raise UsageError(f"--python {executable!r}: is not a Python interpreter that runs") from error
    folder = answer["folder"]
    return Interpreter(
        executable, answer["python"], answer["torch"], answer["numpy"], Path(folder) if folder else None
    )


def default_compiler() -> str:
    """The compiler that is installed beside this Python, active or not; else the one on PATH."""
    beside = Path(sys.executable).with_name("cuvil")
    return shlex.quote(str(beside)) if beside.is_file() else "cuvil"


def split_command(command: str) -> tuple[str, ...]:
    """The words of a `--compiler` command.

    Raises:
        UsageError: it is empty or its quotes don't match.
    """
    try:
        words = tuple(shlex.split(command))
    except ValueError as error:
        raise UsageError(f"--compiler {command!r}: is not a command line: {error}") from error
    if not words:
        raise UsageError("--compiler: is empty; expected a command such as 'cuvil'")
    return words


def ask_compiler(argv: tuple[str, ...], processes: Processes, log: Path) -> Compiler:
    """Ask the compiler by `doctor --json` for its version and its targets.

    Raises:
        ToolMissingError: there is no such command, or it gives no usable answer.
    """
    name = shlex.join(argv)
    try:
        finished = processes.run([*argv, "doctor", "--json"], log=log, timeout_s=QUESTION_TIMEOUT_S)
    except NotStartedError as error:
        raise ToolMissingError(
            f"compiler {name!r}: can't be started: {error}",
            hint="install it (`pip install cuvil-compiler`), or name another by --compiler",
        ) from error
    try:
        return _parse_doctor(argv, json.loads(finished.stdout))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ToolMissingError(
            f"compiler {name!r}: `doctor --json` gives no usable answer; {describe_exit(finished)}",
            hint=f"see {log} in the run's folder",
        ) from error


def _parse_doctor(argv: tuple[str, ...], answer: Mapping[str, Any]) -> Compiler:
    if answer["schema_version"] != 1:
        raise ValueError(f"schema_version {answer['schema_version']!r}")
    targets = {name: _parse_target(name, entry) for name, entry in answer["targets"].items()}
    digest = str(answer.get("digest", ""))
    return Compiler(argv, str(answer["version"]), str(answer["llvm"]), targets, digest)


def _parse_target(name: str, entry: Mapping[str, Any]) -> TargetTools | ToolMissingError:
    """The target's tools, or why the compiler can't give them: its `problem`, of a line and maybe a hint."""
    if entry.get("problem"):
        message, _, rest = str(entry["problem"]).partition("\n")
        return ToolMissingError(message, hint=rest.removeprefix("hint: ") or None)
    return TargetTools(
        name,
        Path(entry["runner"]),
        Path(entry["runtime"]),
        entry["emulator"],
        tuple(entry["emulator_arguments"]),
        Path(entry["sysroot"]) if entry["sysroot"] else None,
        {machine: tuple(arguments) for machine, arguments in entry.get("machines", {}).items()},
        entry.get("obstacle") or "",
    )


def describe_exit(finished: Finished) -> str:
    """How a command ended, in words."""
    if finished.timed_out:
        return f"it ran longer than {finished.elapsed_ns / 1e9:.0f} s"
    if finished.code < 0:
        return f"it died by signal {-finished.code}"
    return f"it ended with exit code {finished.code}"


@dataclass(frozen=True)
class Launcher:
    """The words to put before a target's program to run it here."""

    prefix: tuple[str, ...] = ()
    emulator: str | None = None
    version: str | None = None
    arguments: tuple[str, ...] = ()
    """The emulator's, those that name no folder: they say which processor it is."""


def find_launcher(tools: TargetTools, machine: str, processes: Processes, logs: Path) -> Launcher:
    """How programs of the target are run here: on one of the target's machines, or on what there is.

    Args:
        tools: The target's.
        machine: The name of an emulated machine; empty for this one, or else for the target's own.
        processes: What starts the emulator to ask for its version.
        logs: The folder for the answer.

    Raises:
        ToolMissingError: this machine lacks what the target needs, there is no such machine, the emulator is
            missing or too old, or the target's C library is missing.
    """
    family = MACHINES[family_of(tools.target)]
    native = family.architecture == platform.machine()
    if native and not machine:
        if tools.obstacle:
            raise ToolMissingError(f"{tools.target}: {tools.obstacle}")
        return Launcher()
    arguments = _emulator_arguments(tools, machine)
    name = tools.emulator or family.emulator
    hint = f"`apt-get install {family.packages}`"
    path = shutil.which(name)
    if path is None:
        raise ToolMissingError(f"{tools.target}: the emulator {name!r} is not installed", hint=hint)
    version = _emulator_version(name, path, processes, logs)
    if not native and (tools.sysroot is None or not tools.sysroot.is_dir()):
        raise ToolMissingError(f"{tools.target}: the target's C library is not installed", hint=hint)
    sysroot = () if native or "-L" in arguments else ("-L", str(tools.sysroot))
    return Launcher((path, *arguments, *sysroot), name, version, _processor(arguments))


def _emulator_arguments(tools: TargetTools, machine: str) -> tuple[str, ...]:
    if not machine:
        return tools.emulator_arguments
    if machine not in tools.machines:
        known = ", ".join(map(repr, tools.machines)) or "none"
        raise ToolMissingError(f"{tools.target}: no such machine; expected one of {known}, got {machine!r}")
    return tools.machines[machine]


def _processor(arguments: Sequence[str]) -> tuple[str, ...]:
    """The emulator's arguments without `-L FOLDER`."""
    words = list(arguments)
    if "-L" in words:
        start = words.index("-L")
        del words[start : start + 2]
    return tuple(words)


def _emulator_version(name: str, path: str, processes: Processes, logs: Path) -> str:
    log = logs / f"{name}.log"
    try:
        finished = processes.run([path, "--version"], log=log, timeout_s=QUESTION_TIMEOUT_S)
    except NotStartedError as error:
        raise ToolMissingError(f"{name}: can't be started: {error}") from error
    found = re.search(r"version ((\d+)\.(\d+)[.\d]*)", finished.stdout)
    if not found:
        raise ToolMissingError(f"{name}: doesn't tell its version; {describe_exit(finished)}")
    if (int(found[2]), int(found[3])) < OLDEST_QEMU:
        raise ToolMissingError(
            f"{name}: is too old; expected 7.0 or newer, got {found[1]}",
            hint="older releases lack version 1.0 of the RISC-V vector extension",
        )
    return found[1]


def to_json(
    interpreter: Interpreter, compiler: Compiler | None, launchers: Mapping[str, Launcher]
) -> dict[str, object]:
    """The versions that a run depends on; names neither the host nor its folders."""
    return {
        "schema_version": SCHEMA_VERSION,
        "machine": platform.machine(),
        "system": platform.system(),
        "kernel": platform.release(),
        "cpus": os.cpu_count(),
        "harness": {"python": platform.python_version(), "numpy": np.__version__},
        "capture": {
            "python": interpreter.python,
            "torch": interpreter.torch,
            "numpy": interpreter.numpy,
        },
        "compiler": {"version": compiler.version, "llvm": compiler.llvm} if compiler else None,
        "emulators": {
            target: {"name": each.emulator, "version": each.version, "arguments": list(each.arguments)}
            for target, each in launchers.items()
            if each.emulator
        },
    }


def this_python() -> str:
    """The interpreter that runs the harness."""
    return sys.executable


def capture_environment(package_link: Path) -> dict[str, str]:
    """The environment of the capturing Python: it sees this harness, but nothing else of its packages.

    `package_link` is a folder that holds a link to the package alone, for the harness's site-packages
    would hide the other Python's own PyTorch.
    """
    paths: Sequence[str] = [str(package_link), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
