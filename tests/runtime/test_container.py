"""`.cuv` files by the runtime: the code is chosen, the weights are mapped, and damage is refused."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cuvil import toolchain
from cuvil.container import METADATA, Content, read_container

from .conftest import Machine, ModelBuilder, ProgramBuilder
from .containers import code_of, container_of, weights_of, weights_offset

CANNOT_LOAD, INVALID_MODEL, WRONG_ISA = 2, 3, 7
UNKNOWN_FEATURE = 1 << 62


def load(machine: Machine, program: Path, path: Path) -> tuple[int, str]:
    status, message = machine.run(program, "load", path).stdout.rstrip("\n").split(" ", 1)
    return int(status), message


@pytest.mark.parametrize("command", ["api", "lifetime", "environment", "concurrent"])
def test_use_as_that_of_a_library(
    machine: Machine, build_model: ModelBuilder, build_program: ProgramBuilder, command: str, tmp_path: Path
) -> None:
    path = container_of(tmp_path / "m.cuv", code_of(build_model(machine), machine))
    machine.run(build_program(machine), command, path, "3")


def test_a_fork_goes_on_with_it(
    host: Machine, build_model: ModelBuilder, build_program: ProgramBuilder, tmp_path: Path
) -> None:
    path = container_of(tmp_path / "m.cuv", code_of(build_model(host), host))
    host.run(build_program(host), "fork", path, "3")


def test_results_are_those_of_the_library_and_of_the_file_s_weights(
    machine: Machine, build_model: ModelBuilder, build_program: ProgramBuilder, tmp_path: Path
) -> None:
    library, program = build_model(machine), build_program(machine)
    code = code_of(library, machine)
    same = container_of(tmp_path / "same.cuv", code)
    other = container_of(tmp_path / "other.cuv", code, weights_of(np.float32(1.2)))
    expected = machine.run(program, "bits", library, "2").stdout
    assert machine.run(program, "bits", same, "2").stdout == expected
    assert machine.run(program, "bits", other, "2").stdout != expected


def test_the_content_tells_what_a_file_is_and_not_its_name(
    host: Machine, build_model: ModelBuilder, build_program: ProgramBuilder, tmp_path: Path
) -> None:
    container = container_of(tmp_path / "container.so", code_of(build_model(host), host))
    library = tmp_path / "library.cuv"
    library.write_bytes(build_model(host).read_bytes())
    for path in (container, library):
        assert load(host, build_program(host), path) == (0, "")


def test_the_first_code_that_fits_is_taken(
    host: Machine, build_model: ModelBuilder, build_program: ProgramBuilder, tmp_path: Path
) -> None:
    """The last one can't be loaded at all: only its turn would show that."""
    fits = code_of(build_model(host), host)
    foreign = replace(fits, elf_machine=40, target="arm")
    demanding = replace(fits, features=UNKNOWN_FEATURE, target="demanding")
    broken = replace(fits, chunks=lambda: [b"no code"], target="broken")
    good = container_of(tmp_path / "good.cuv", foreign, None, demanding, fits, broken)
    assert load(host, build_program(host), good) == (0, "")
    bad = container_of(tmp_path / "bad.cuv", foreign, None, demanding, broken, fits)
    status, message = load(host, build_program(host), bad)
    assert (status, message) == (
        CANNOT_LOAD,
        f"'{bad}': not a shared library; expected an ELF file, got fewer bytes than its header",
    )


def test_what_each_code_lacks_is_said_where_none_fits(
    host: Machine, build_model: ModelBuilder, build_program: ProgramBuilder, tmp_path: Path
) -> None:
    fits = code_of(build_model(host), host)
    foreign = replace(fits, elf_machine=40, target="arm")
    path = container_of(tmp_path / "m.cuv", foreign)
    status, message = load(host, build_program(host), path)
    assert status == CANNOT_LOAD
    assert message.startswith(f"'{path}': has no code for this machine (")
    assert message.endswith("): 'arm' is for ARM")
    path = container_of(
        tmp_path / "m.cuv", foreign, None, replace(fits, features=UNKNOWN_FEATURE, target="v9")
    )
    status, message = load(host, build_program(host), path)
    assert status == WRONG_ISA
    assert "'arm' is for ARM; 'v9' needs processor features that this runtime does not know" in message


def test_a_model_that_needs_more_weights_than_there_are(
    host: Machine, build_model: ModelBuilder, build_program: ProgramBuilder, tmp_path: Path
) -> None:
    code = code_of(build_model(host, WEIGHTS_BYTES=65), host)
    status, message = load(host, build_program(host), container_of(tmp_path / "m.cuv", code))
    assert (status, message.partition("': ")[2]) == (
        INVALID_MODEL,
        "weights size out of range; expected 0 to 64, got 65",
    )
    enough = container_of(tmp_path / "enough.cuv", code, weights_of(size_bytes=128))
    assert load(host, build_program(host), enough) == (0, "")


def cut(data: bytearray) -> None:
    del data[-1:]


def extend(data: bytearray) -> None:
    data += b"\0"


def of_next_version(data: bytearray) -> None:
    data[8] = 2


def in_header(data: bytearray) -> None:
    data[16 + 15] ^= 1


def in_table(data: bytearray) -> None:
    data[64 + 128 + 9] ^= 1


def in_code(data: bytearray) -> None:
    data[weights_padding(data) - 1] ^= 1


def in_padding(data: bytearray) -> None:
    data[weights_padding(data)] = 1


def weights_padding(data: bytearray) -> int:
    """Where the code, the section before the weights, ends."""
    record = data[64 + 128 : 64 + 256]
    return int.from_bytes(record[8:16], "little") + int.from_bytes(record[16:24], "little")


@pytest.mark.parametrize(
    ("damage", "status", "message"),
    [
        (cut, CANNOT_LOAD, "truncated; expected {size} bytes, got {less}"),
        (extend, CANNOT_LOAD, "damaged: has another size; expected {size} bytes, got {more}"),
        (of_next_version, INVALID_MODEL, "has another format version; expected 1, got 2"),
        (in_header, INVALID_MODEL, "damaged: the checksum of the header and the table differs"),
        (in_table, INVALID_MODEL, "damaged: the checksum of the header and the table differs"),
        (in_code, INVALID_MODEL, "damaged: section 1: its checksum differs"),
        (in_padding, INVALID_MODEL, "damaged: section 2: the space before it is not empty"),
    ],
)
def test_damage_is_named(
    host: Machine,
    build_model: ModelBuilder,
    build_program: ProgramBuilder,
    damage: Callable[[bytearray], None],
    status: int,
    message: str,
    tmp_path: Path,
) -> None:
    path = container_of(tmp_path / "m.cuv", code_of(build_model(host), host))
    data = bytearray(path.read_bytes())
    size = len(data)
    damage(data)
    path.write_bytes(data)
    expected = message.format(size=size, less=size - 1, more=size + 1)
    assert load(host, build_program(host), path) == (status, f"'{path}': {expected}")


@pytest.mark.parametrize(
    ("record", "word", "value", "message"),
    [
        (1, 0, 9, "section 1: is of no known kind"),
        (1, 8, 64, "section 1: its offset is not the next after the section before"),
        (2, 8, 1 << 63, "section 2: its offset is not the next after the section before"),
        (1, 16, 2**64 - 64, "section 1: its size is out of range"),
        (2, 16, 0, "section 2: its size is out of range"),
        (1, 44, 1, "section 1: its weights are no section of weights"),
        (1, 44, 900, "section 1: its weights are no section of weights"),
        (1, 48, 0x41_0A, "section 1: the target's name is damaged"),
        (1, 112, 1, "section 1: a reserved word is in use"),
        (2, 24, 1, "section 2: has words that only code has"),
        (2, 0, 1, "section 1: its weights are no section of weights"),
        (2, 0, 2, "section 1: its weights are no section of weights"),
    ],
)
def test_a_table_that_lies_with_a_checksum_that_holds(
    host: Machine,
    build_model: ModelBuilder,
    build_program: ProgramBuilder,
    record: int,
    word: int,
    value: int,
    message: str,
    tmp_path: Path,
) -> None:
    path = container_of(tmp_path / "m.cuv", code_of(build_model(host), host))
    data = bytearray(path.read_bytes())
    at = 64 + 128 * record + word
    size = 4 if word in (0, 44, 112) else 8
    data[at : at + size] = value.to_bytes(size, "little")
    data[24:28] = bytes(4)
    data[24:28] = zlib.crc32(data[: 64 + 128 * 3]).to_bytes(4, "little")
    path.write_bytes(data)
    status, got = load(host, build_program(host), path)
    assert (status, got.partition("': ")[2].startswith(f"damaged: {message}")) == (INVALID_MODEL, True), got


def test_the_parts_that_must_be_there(
    host: Machine, build_model: ModelBuilder, build_program: ProgramBuilder, tmp_path: Path
) -> None:
    code, weights = code_of(build_model(host), host), weights_of()
    metadata = Content(METADATA, lambda: [b"{}"])
    for contents in ((code, weights, metadata), (metadata, weights)):
        path = container_of(tmp_path / "m.cuv", *contents)
        status, message = load(host, build_program(host), path)
        assert status == INVALID_MODEL
        assert message.endswith("damaged: expected one section of metadata and at least one of code")


@pytest.mark.parametrize("command", ["flip", "cut", "forge"])
def test_damage_anywhere_is_refused(
    host: Machine, build_model: ModelBuilder, build_program: ProgramBuilder, command: str, tmp_path: Path
) -> None:
    path = container_of(tmp_path / "m.cuv", code_of(build_model(host), host))
    program = build_program(host, source="damage.c")
    host.run(program, command, path, str(weights_offset(path)))


def test_the_runner_takes_it(machine: Machine, build_model: ModelBuilder, tmp_path: Path) -> None:
    path = container_of(tmp_path / "m.cuv", code_of(build_model(machine), machine))
    case = tmp_path / "cases" / "only"
    case.mkdir(parents=True)
    x = np.linspace(1, 2, 1024, dtype=np.float32)
    (case / "manifest.txt").write_text("cuvil-tensors 1\ntensor float32 1 1024 0.bin x\n")
    (case / "0.bin").write_bytes(x.tobytes())
    runner = toolchain.prebuilt(machine.target).runner
    finished = machine.run(runner, path, tmp_path / "cases", tmp_path / "out")
    assert finished.stdout == '{"case":"only","status":"ok"}\n'
    y = np.fromfile(tmp_path / "out" / "only" / "0.bin", np.float32)
    np.testing.assert_array_equal(y, x * np.float32(1.1))


def test_the_table_as_python_reads_it(host: Machine, build_model: ModelBuilder, tmp_path: Path) -> None:
    fits = code_of(build_model(host), host)
    code = replace(fits, target="some-target", features=5, min_vlen_bits=128)
    path = container_of(tmp_path / "m.cuv", code)
    metadata, section, weights = read_container(path).sections
    assert (section.features, section.min_vlen_bits, section.weights) == (5, 128, 2)
    assert section.target == "some-target"
    assert metadata.offset == 64 + 3 * 128
    assert weights.offset % 4096 == 0
    assert weights.offset + weights.size_bytes == path.stat().st_size
