"""Libraries that are no model, are for another machine, or are damaged: refused with a line that says why."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cuvil import toolchain

from .conftest import Machine, ModelBuilder, ProgramBuilder

CANNOT_LOAD, INVALID_MODEL = 2, 3


def _load(host: Machine, build_program: ProgramBuilder, path: Path) -> tuple[int, str]:
    status, message = host.run(build_program(host), "load", path).stdout.rstrip("\n").split(" ", 1)
    return int(status), message


@pytest.mark.parametrize(
    ("defines", "message"),
    [
        ({"MAGIC": 7}, "no cuvil model; expected magic 0x4c49565543, got 0x7"),
        ({"VERSION": 1}, "ABI version differs; expected 2, got 1"),
        ({"WORDS": 24}, "word count out of range; expected 13 to 23, got 24"),
        ({"WORDS": -1}, "word count out of range; expected 13 to 23, got -1"),
        ({"WORDS": 22}, "rank out of range; expected 0 to 0, got 1"),
        ({"WORDS": 14}, "words left for a tensor's dimensions"),
        ({"DIMENSIONS": -1}, "number of named dimensions out of range; expected 0 to 1024, got -1"),
        ({"DIMENSIONS": 3}, "words left for named dimensions out of range"),
        ({"DIMENSIONS": 2}, "input of a dimension out of range; expected 0 to 0, got 1"),
        ({"RANK": 200}, "rank out of range; expected 0 to 6, got 200"),
        ({"RANK": -1}, "rank out of range"),
        ({"RANK": 0}, "tensor size differs; expected 4, got 4096"),
        ({"NAME_OFFSET": 23}, "name offset of a tensor out of range; expected 0 to 22, got 23"),
        ({"NAME_OFFSET": -5}, "name offset of a tensor out of range"),
        ({"ARENA_BYTES": -1}, "arena size out of range"),
        ({"STRINGS_BYTES": 24}, "strings size out of range; expected 1 to 23, got 24"),
        ({"STRINGS_BYTES": 22}, "last byte of the strings differs; expected 0, got 121"),
        ({"STRINGS_BYTES": 0}, "strings size out of range"),
        ({"WEIGHTS_BYTES": 65}, "weights size out of range; expected 0 to 64, got 65"),
        ({"SIZE_BYTES": 4}, "tensor size differs; expected 4096, got 4"),
        ({"DTYPE": 8}, "unknown element type; expected a fixed-size ONNX data type, got 8"),
        ({"DTYPE": 17}, "unknown element type"),
        ({"DTYPE": -1}, "unknown element type"),
        ({"DTYPE": 7}, "tensor size differs; expected 8192, got 4096"),
    ],
)
def test_damaged_tables(
    host: Machine,
    build_model: ModelBuilder,
    build_program: ProgramBuilder,
    defines: dict[str, int],
    message: str,
) -> None:
    path = build_model(host, **defines)
    status, got = _load(host, build_program, path)
    assert status == INVALID_MODEL
    assert got.startswith(f"'{path}': ")
    assert message in got


def test_sound_model_loads(host: Machine, build_model: ModelBuilder, build_program: ProgramBuilder) -> None:
    assert _load(host, build_program, build_model(host)) == (0, "")


def test_library_without_a_model(host: Machine, build_program: ProgramBuilder) -> None:
    status, message = _load(host, build_program, toolchain.prebuilt(host.target).runtime)
    assert status == INVALID_MODEL
    assert message.endswith("no cuvil model; expected the symbol 'cuvil_model_info', got none")


def test_library_for_another_machine(host: Machine, build_program: ProgramBuilder) -> None:
    for target, platform in toolchain.PLATFORMS.items():
        if target == host.target:
            continue
        status, message = _load(host, build_program, toolchain.prebuilt(target).runtime)
        own = toolchain.PLATFORMS[host.target].elf_machine
        assert status == CANNOT_LOAD
        assert "built for another machine; expected" in message
        assert f"(ELF machine {own}), got" in message
        assert message.endswith(f"(ELF machine {platform.elf_machine})")


@pytest.mark.parametrize("kept", [0, 10, 64, 200, 2000])
def test_truncated_library(
    host: Machine, build_model: ModelBuilder, build_program: ProgramBuilder, tmp_path: Path, kept: int
) -> None:
    path = tmp_path / "cut.so"
    path.write_bytes(build_model(host).read_bytes()[:kept])
    status, message = _load(host, build_program, path)
    assert status == CANNOT_LOAD
    assert "fewer bytes than its header" in message if kept < 64 else "truncated; expected" in message


def test_file_that_is_missing_or_no_library(
    host: Machine, build_program: ProgramBuilder, tmp_path: Path
) -> None:
    assert _load(host, build_program, tmp_path / "no.so") == (
        CANNOT_LOAD,
        f"'{tmp_path / 'no.so'}': cannot be opened: No such file or directory",
    )
    text = tmp_path / "text.so"
    text.write_text("not a library, but longer than the header of one, which takes sixty-four bytes")
    assert "not a shared library" in _load(host, build_program, text)[1]
    program = build_program(host)
    assert _load(host, build_program, tmp_path)[0] == CANNOT_LOAD
    assert _load(host, build_program, program)[0] in (CANNOT_LOAD, INVALID_MODEL)


def test_library_that_was_replaced_loads_anew(
    host: Machine, build_model: ModelBuilder, build_program: ProgramBuilder, tmp_path: Path
) -> None:
    path = tmp_path / "model.so"
    shutil.copy(build_model(host, MAGIC=7), path)
    assert _load(host, build_program, path)[0] == INVALID_MODEL
    path.unlink()
    shutil.copy(build_model(host), path)
    assert _load(host, build_program, path)[0] == 0
