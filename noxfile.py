"""Environments and checks; CI runs these sessions and nothing else.

nox                     lint, types, tests
nox -s dev              a .venv with everything in it, Cuvil editable
nox -s tests -- -k abi  arguments after -- go to pytest
nox -s sweep            the elementary functions over all inputs
nox -s compare          two refs of this repository against each other, each built anew; some minutes
nox -s matrix           the default matrix; its exit code is the harness's own: 1 findings, 3 environment
nox -s matrix -- --install-system   installs the emulators and C libraries of the other targets before
nox -s matrix -- m.toml --torch 2.9.1 --shard 1/4   another matrix, PyTorch release, and options of the run
nox -s harness -- report RUN        any other command of the harness, without building the compiler
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.sessions = ["lint", "types", "tests"]
# pip reinstalls a local path on every run, so that a reused environment still gets the changed sources.
nox.options.reuse_venv = "yes"
nox.options.error_on_external_run = True

PROJECT = nox.project.load_toml("pyproject.toml")
DEPENDENCIES: list[str] = PROJECT["project"]["dependencies"]
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]

CUVIL = ".[link,regress]"
TORCH = "torch==2.13.0"
NUMPY = "numpy==2.4.6"

SYSTEM_PACKAGES = {
    "qemu-user": ("qemu-aarch64", "qemu-riscv64"),
    "libc6-arm64-cross": ("/usr/aarch64-linux-gnu/lib/libc.so.6",),
    "libc6-riscv64-cross": ("/usr/riscv64-linux-gnu/lib/libc.so.6",),
}
"""Debian packages that foreign cells need, and the commands and files that show that they are there."""


def _group(*names: str) -> tuple[str, ...]:
    return nox.project.dependency_groups(PROJECT, *names)


@nox.session(venv_backend="none")
def dev(session: nox.Session) -> None:
    """Set up .venv for work on Cuvil."""
    python = Path(".venv/bin/python").absolute()
    if not python.exists():
        session.run(sys.executable, "-m", "venv", ".venv", external=True)
    packages = (TORCH, "nox", *_group("lint", "types", "tests"))
    session.run(str(python), "-m", "pip", "install", "-e", CUVIL, *packages, external=True)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, format and layers."""
    session.install(*_group("lint"))
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")
    session.run("lint-imports", env={"PYTHONPATH": "harness"})


@nox.session
def types(session: nox.Session) -> None:
    """Check types, those of the tests and of this file included."""
    session.install(*DEPENDENCIES, *EXTRAS["regress"], *_group("types"))
    session.run("mypy", "cuvil", "harness", "tests", "noxfile.py")


@nox.session
def tests(session: nox.Session) -> None:
    """Install Cuvil as a user would and run the tests."""
    session.install(CUVIL, TORCH, *_group("tests"))
    session.run("pytest", *session.posargs)


@nox.session
def sweep(session: nox.Session) -> None:
    """Measure the elementary functions over all 2^32 inputs; some minutes for each."""
    session.install(CUVIL, *_group("tests"))
    session.run("python", "-m", "tests.numerics.compiled", *session.posargs)


@nox.session
def compare(session: nox.Session) -> None:
    """Compare refs of this repository, with a planted numeric change and a removed symbol."""
    session.install(CUVIL, TORCH, *_group("tests"))
    session.run("pytest", "-m", "compare", *session.posargs)


@nox.session
def matrix(session: nox.Session) -> None:
    """Run a matrix, by default the one that every change must pass."""
    parser = argparse.ArgumentParser(prog="nox -s matrix --", allow_abbrev=False)
    parser.add_argument("--install-system", action="store_true")
    parser.add_argument("--torch", default=TORCH.partition("==")[2])
    options, arguments = parser.parse_known_args(session.posargs)
    file = arguments.pop(0) if arguments and arguments[0].endswith(".toml") else "matrices/default.toml"
    missing = _missing_packages()
    if missing and options.install_system:
        _install_system(session, missing)
    elif missing:
        session.warn(
            f"foreign targets need {', '.join(missing)}; install: apt-get install {' '.join(missing)}"
        )
    session.install(CUVIL, f"torch=={options.torch}", NUMPY)
    _run_harness(session, "matrix", "run", file, *arguments)


@nox.session
def harness(session: nox.Session) -> None:
    """Run a command of the harness that needs no compiler: plan, gather, report, compare."""
    session.install(NUMPY, *EXTRAS["regress"])
    command = ("python", "-m", "cuvil_regress.cli", *session.posargs)
    session.run(*command, env={"PYTHONPATH": str(Path("harness").absolute())})


def _missing_packages() -> list[str]:
    return [
        package
        for package, probes in SYSTEM_PACKAGES.items()
        if not all(shutil.which(probe) or Path(probe).is_file() for probe in probes)
    ]


def _install_system(session: nox.Session, packages: list[str]) -> None:
    """Installs Debian packages, as root or through a sudo that asks for no password."""
    install = ["apt-get", "install", "-y", "--no-install-recommends", *packages]
    if shutil.which("apt-get") is None:
        session.error(
            f"--install-system: no apt-get here; expected Debian or Ubuntu, or {packages} installed"
        )
    prefix = ["env", "DEBIAN_FRONTEND=noninteractive"]
    if os.geteuid() != 0:
        if not _sudo_asks_nothing():
            session.error(f"--install-system: no rights; as root, run: {shlex.join(install)}")
        prefix = ["sudo", "-n", *prefix]
    session.run(*prefix, "apt-get", "update", external=True)
    session.run(*prefix, *install, external=True)


def _sudo_asks_nothing() -> bool:
    sudo = shutil.which("sudo")
    return sudo is not None and subprocess.run([sudo, "-n", "true"], check=False).returncode == 0


def _run_harness(session: nox.Session, *arguments: str) -> None:
    """Runs `cuvil-regress` and ends nox with its exit code; `session.run` would make every failure 1."""
    path = os.pathsep.join((session.bin, os.environ["PATH"]))
    command = [str(Path(session.bin) / "cuvil-regress"), *arguments]
    session.log(shlex.join(command))
    finished = subprocess.run(command, env={**os.environ, "PATH": path}, check=False)
    if finished.returncode:
        sys.exit(finished.returncode)
