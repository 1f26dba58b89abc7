"""The runtimes that an installation carries."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cuvil import toolchain
from cuvil.errors import ToolchainError
from cuvil.objects import read_dynamic_symbols
from tests.needs import need_program

from .conftest import Machine, ModelBuilder

TARGETS = tuple(toolchain.PLATFORMS)


@pytest.mark.parametrize("target", TARGETS)
def test_needs_nothing_but_the_c_library(target: str) -> None:
    paths = toolchain.prebuilt(target)
    assert set(read_dynamic_symbols(paths.runtime).needed) <= toolchain.RUNTIME_MAY_NEED
    runner_needs = set(read_dynamic_symbols(paths.runner).needed)
    assert runner_needs <= toolchain.RUNTIME_MAY_NEED | {"libcuvil_runtime.so.1"}
    assert "libcuvil_runtime.so.1" in runner_needs


@pytest.mark.parametrize("target", TARGETS)
def test_is_small_and_names_no_path_of_the_build(target: str) -> None:
    for path in (toolchain.prebuilt(target).runtime, toolchain.prebuilt(target).runner):
        content = path.read_bytes()
        assert len(content) < 64 * 1024
        assert str(Path.home()).encode() + b"/" not in content
        assert str(toolchain.RUNTIME_SOURCE_DIR).encode() not in content


def test_two_builds_give_the_same_bytes(tmp_path: Path) -> None:
    target = toolchain.host_target()
    first = toolchain.build_runtime(target, tmp_path / "one")
    second = toolchain.build_runtime(target, tmp_path / "somewhere" / "else")
    assert first.runtime.read_bytes() == second.runtime.read_bytes()
    assert first.runner.read_bytes() == second.runner.read_bytes()


def test_gcc_builds_it_where_ziglang_is_missing(
    host: Machine, build_model: ModelBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_program("g++")
    model = build_model(host)
    monkeypatch.setitem(sys.modules, "ziglang", None)
    built = toolchain.build_runtime(host.target, tmp_path)
    shipped = toolchain.prebuilt(host.target)
    exported = set(read_dynamic_symbols(built.runtime).exported) - {"CUVIL_1.0"}
    assert exported == set(read_dynamic_symbols(shipped.runtime).exported)
    (tmp_path / "cases" / "none").mkdir(parents=True)
    finished = host.run(built.runner, model, tmp_path / "cases", tmp_path / "out", expect=1)
    assert '"status":"error"' in finished.stdout


def test_only_what_is_out_of_date_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "PREBUILT_DIR", tmp_path)
    target = toolchain.host_target()
    toolchain.build_prebuilt([target])
    runtime = toolchain.prebuilt(target).runtime
    built_at = runtime.stat().st_mtime_ns
    toolchain.build_prebuilt([target])
    assert runtime.stat().st_mtime_ns == built_at
    (tmp_path / target / "sources.sha256").write_text("older")
    toolchain.build_prebuilt([target])
    assert toolchain.prebuilt(target).runtime.stat().st_mtime_ns > built_at


def test_absent_or_outdated_runtime_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "PREBUILT_DIR", tmp_path)
    with pytest.raises(ToolchainError, match="runtime for 'riscv64-linux': missing") as caught:
        toolchain.prebuilt("riscv64-linux")
    assert caught.value.hint is not None
    assert "python -m cuvil.toolchain" in caught.value.hint
    folder = tmp_path / "riscv64-linux"
    folder.mkdir()
    for name in ("libcuvil_runtime.so.1", "cuvil-run", "sources.sha256"):
        (folder / name).write_text("older")
    with pytest.raises(ToolchainError, match="runtime for 'riscv64-linux': out of date"):
        toolchain.prebuilt("riscv64-linux")
