"""The object writer against pyelftools and the linker; the reader against damaged files."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile

from cuvil import toolchain
from cuvil.errors import ToolchainError
from cuvil.objects import WEIGHTS_SYMBOL, read_dynamic_symbols, write_object

if TYPE_CHECKING:
    from cuvil.objects import BufferLike

TARGETS = tuple(toolchain.PLATFORMS)


def _write(folder: Path, data: BufferLike, target: str = "x86_64-linux") -> ELFFile:
    platform = toolchain.PLATFORMS[target]
    path = folder / "weights.o"
    write_object(path, data, WEIGHTS_SYMBOL, platform.elf_machine, platform.e_flags)
    assert list(folder.iterdir()) == [path]
    return ELFFile(io.BytesIO(path.read_bytes()))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 1000])
def test_object_as_pyelftools_sees_it(tmp_path: Path, target: str, size: int) -> None:
    data = bytes(range(256)) * 4
    elf = _write(tmp_path, data[:size], target)
    platform = toolchain.PLATFORMS[target]
    assert (elf["e_type"], elf.header["e_flags"]) == ("ET_REL", platform.e_flags)
    assert elf.get_machine_arch() in {"x64", "AArch64", "RISC-V"}
    rodata = elf.get_section_by_name(".rodata")
    padded_bytes = max(64, (size + 63) // 64 * 64)
    assert rodata.data() == data[:size].ljust(padded_bytes, b"\0")
    assert (rodata["sh_addralign"], rodata["sh_offset"] % 64, rodata["sh_flags"]) == (64, 0, 2)
    assert elf.get_section_by_name(".note.GNU-stack")["sh_flags"] == 0
    (symbol,) = elf.get_section_by_name(".symtab").get_symbol_by_name(WEIGHTS_SYMBOL)
    assert symbol["st_info"] == {"bind": "STB_GLOBAL", "type": "STT_OBJECT"}
    assert (symbol["st_value"], symbol["st_size"]) == (0, padded_bytes)
    assert symbol["st_other"]["visibility"] == "STV_DEFAULT"
    assert elf.get_section(symbol["st_shndx"]).name == ".rodata"


@pytest.mark.parametrize("target", TARGETS)
def test_object_links_and_stays_aligned_and_read_only(tmp_path: Path, target: str) -> None:
    data = np.arange(1000, dtype=np.float32)
    _write(tmp_path, data, target)
    library = tmp_path / "libweights.so"
    toolchain.link_shared([tmp_path / "weights.o"], library, target, [WEIGHTS_SYMBOL])
    with library.open("rb") as file:
        elf = ELFFile(file)
        (symbol,) = elf.get_section_by_name(".dynsym").get_symbol_by_name(WEIGHTS_SYMBOL)
        address = symbol["st_value"]
        (segment,) = [s for s in elf.iter_segments("PT_LOAD") if 0 <= address - s["p_vaddr"] < s["p_memsz"]]
        offset = segment["p_offset"] + address - segment["p_vaddr"]
        assert address % 64 == 0
        assert segment["p_flags"] & 2 == 0  # not writable
        file.seek(offset)
        assert file.read(data.nbytes) == data.tobytes()


def test_any_contiguous_buffer(tmp_path: Path) -> None:
    matrix = np.arange(12, dtype=np.int64).reshape(3, 4)
    for data in (matrix, memoryview(matrix.tobytes()), bytearray(matrix.tobytes()), matrix[0:0]):
        content = _write(tmp_path, data).get_section_by_name(".rodata").data()
        assert content == bytes(data).ljust(len(content), b"\0")


def test_buffer_that_is_not_contiguous_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        _write(tmp_path, np.zeros((4, 4))[:, ::2])
    assert list(tmp_path.iterdir()) == []


def test_dynamic_symbols_of_the_runtime() -> None:
    found = read_dynamic_symbols(toolchain.prebuilt("riscv64-linux").runtime)
    assert "cuvil_model_load" in found.exported
    assert "dlopen" in found.undefined
    assert "libc.so.6" in found.needed


@pytest.mark.parametrize("kept", [1, 63, 64, 5000])
def test_damaged_library_is_named(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "cut.so"
    path.write_bytes(toolchain.prebuilt("x86_64-linux").runtime.read_bytes()[:kept])
    with pytest.raises(ToolchainError, match=r"cut\.so': damaged shared library"):
        read_dynamic_symbols(path)


def test_empty_and_foreign_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "odd.so"
    for content in (b"", b"text " * 100):
        path.write_bytes(content)
        with pytest.raises(ToolchainError, match=r"odd\.so': damaged shared library"):
            read_dynamic_symbols(path)
