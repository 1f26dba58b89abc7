"""The runtime under ThreadSanitizer, and under AddressSanitizer with UndefinedBehaviorSanitizer."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

import pytest

from cuvil import toolchain
from tests.needs import need

from .conftest import HERE, Machine, ModelBuilder, run
from .containers import code_of, container_of, weights_offset

SANITIZERS = ("thread", "address,undefined")
FLAGS = ("-std=c++17", "-g", "-O1", "-fno-exceptions", "-fno-rtti", "-fno-sanitize-recover=all")


@pytest.fixture(scope="module", params=SANITIZERS)
def sanitizer(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def programs(sanitizer: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The programs, by name, with the runtime built into them."""
    need("g++", _starts("g++"))
    folder = tmp_path_factory.mktemp("sanitized")
    sources = sorted((toolchain.RUNTIME_SOURCE_DIR / "src").glob("*.cpp"))
    include = f"-I{toolchain.RUNTIME_SOURCE_DIR / 'include'}"
    built = {}
    for name in ("embed.c", "damage.c", "stress_pool.cpp"):
        built[name] = folder / Path(name).stem
        flags = [*FLAGS, f"-fsanitize={sanitizer}", include]
        run(["g++", *flags, "-xc++", HERE / name, *sources, "-ldl", "-lpthread", "-o", built[name]])
    return built


def _starts(tool: str) -> bool:
    try:
        return subprocess.run([tool, "--version"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def _run(program: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs a sanitized program.

    ThreadSanitizers older than Linux 6.6's default address-space randomisation don't start under it, and say
    so; then the program is run without randomisation.
    """
    command = [str(program), *map(str, arguments)]
    finished = _finish(command)
    if "unexpected memory mapping" in finished.stderr:
        finished = _finish(["setarch", platform.machine(), "-R", *command])
    return finished


def _finish(command: list[str]) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "TSAN_OPTIONS": "halt_on_error=1"}
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)


def _expect_clean(finished: subprocess.CompletedProcess[str]) -> None:
    assert (finished.returncode, finished.stderr) == (0, ""), finished.stdout


@pytest.mark.parametrize("command", ["concurrent", "bits", "nested", "lifetime", "api"])
def test_sessions(programs: dict[str, Path], host: Machine, build_model: ModelBuilder, command: str) -> None:
    _expect_clean(_run(programs["embed.c"], command, build_model(host), "3"))


@pytest.mark.parametrize("command", ["concurrent", "lifetime"])
def test_sessions_of_a_container(
    programs: dict[str, Path], host: Machine, build_model: ModelBuilder, command: str, tmp_path: Path
) -> None:
    path = container_of(tmp_path / "m.cuv", code_of(build_model(host), host))
    _expect_clean(_run(programs["embed.c"], command, path, "3"))


@pytest.mark.parametrize("command", ["flip", "cut", "forge"])
def test_damaged_containers(
    programs: dict[str, Path], host: Machine, build_model: ModelBuilder, command: str, tmp_path: Path
) -> None:
    path = container_of(tmp_path / "m.cuv", code_of(build_model(host), host))
    _expect_clean(_run(programs["damage.c"], command, path, str(weights_offset(path))))


@pytest.mark.parametrize("command", ["shapes", "many", "churn"])
def test_loops(programs: dict[str, Path], command: str) -> None:
    """Fewer elements than threads, loops inside loops, many pools at once, and short-lived ones."""
    _expect_clean(_run(programs["stress_pool.cpp"], command))


def test_a_planted_fault_is_found(programs: dict[str, Path], sanitizer: str) -> None:
    """Else the tests above would show nothing."""
    fault, report, where = {
        "thread": ("race", "WARNING: ThreadSanitizer: data race", "touch_first"),
        "address,undefined": ("overrun", "ERROR: AddressSanitizer: heap-buffer-overflow", "command_overrun"),
    }[sanitizer]
    finished = _run(programs["stress_pool.cpp"], fault)
    assert finished.returncode != 0
    assert report in finished.stderr
    assert where in finished.stderr
