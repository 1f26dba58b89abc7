"""ELF64 files, as far as linking a model needs them.

Writes an object that holds a model's weights; reads what a library needs and offers.

Sources: System V ABI, chapter 4 (object files) and 5 (dynamic linking); RISC-V ELF psABI (e_flags).
"""

from __future__ import annotations

import mmap
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias, cast

from cuvil.errors import ToolchainError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer
    from numpy.typing import NDArray

    # An array is a buffer, too; its stubs say so from Python 3.12 on.
    BufferLike: TypeAlias = ReadableBuffer | NDArray[Any]

WEIGHTS_SYMBOL = "cuvil_model_weights"
ALIGNMENT_BYTES = 64

_FILE_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION_HEADER = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_DYNAMIC = struct.Struct("<qQ")

_IDENT = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")  # 64-bit, little-endian, version 1, System V
_ET_REL = 1
_SHT_PROGBITS, _SHT_SYMTAB, _SHT_STRTAB, _SHT_DYNAMIC, _SHT_DYNSYM = 1, 2, 3, 6, 11
_SHF_ALLOC = 2
_STB_GLOBAL, _STB_WEAK, _STT_OBJECT, _STV_DEFAULT, _STV_HIDDEN = 1, 2, 1, 0, 2
_SHN_UNDEF = 0
_DT_NEEDED = 1


@dataclass(frozen=True)
class DynamicSymbols:
    """What the dynamic loader will ask of a library, and what it will find there; names are sorted."""

    needed: tuple[str, ...]
    undefined: tuple[str, ...]
    exported: tuple[str, ...]


def write_object(path: Path, data: BufferLike, symbol: str, elf_machine: int, e_flags: int) -> None:
    """Writes a relocatable object with `data` in `.rodata`, 64-byte aligned, under one global symbol.

    The section is padded with zeros to a multiple of 64 bytes and holds at least 64, so that code may read
    whole vectors up to its end. `data` is any contiguous buffer; it is written as it lies in memory.

    Args:
        path: The object file; it appears under this name when it is complete.
        data: The bytes of the section.
        symbol: The symbol's name; it has default visibility and covers the whole section.
        elf_machine: `e_machine` of the target.
        e_flags: `e_flags` of the target; a linker refuses to mix RISC-V objects of different float ABIs.
    """
    content = bytes_of(data)
    padded_bytes = max(ALIGNMENT_BYTES, -(-content.nbytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with temporary.open("wb") as file:
            _write_sections(file, content, padded_bytes, symbol, (elf_machine, e_flags))
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def bytes_of(data: BufferLike) -> memoryview:
    """The bytes of a contiguous buffer, in place."""
    view = memoryview(cast("ReadableBuffer", data))
    if view.nbytes == 0:
        return memoryview(b"")  # a view of no bytes can't be cast
    return view.cast("B")


def _write_sections(
    file: BinaryIO, content: memoryview, padded_bytes: int, symbol: str, machine: tuple[int, int]
) -> None:
    """File header, the data at offset 64, symbol table, strings, section headers."""
    strings = b"\0" + symbol.encode() + b"\0"
    names = b"\0.rodata\0.symtab\0.strtab\0.shstrtab\0.note.GNU-stack\0"
    symbols = bytes(_SYMBOL.size) + _SYMBOL.pack(
        1, _STB_GLOBAL << 4 | _STT_OBJECT, _STV_DEFAULT, 1, 0, padded_bytes
    )
    symbols_at = _FILE_HEADER.size + padded_bytes
    strings_at = symbols_at + len(symbols)
    names_at = strings_at + len(strings)
    headers_at = -(-(names_at + len(names)) // 8) * 8
    sections = [
        # name, type, flags, offset, size, link, info, alignment, entry size
        (0, 0, 0, 0, 0, 0, 0, 0, 0),
        (1, _SHT_PROGBITS, _SHF_ALLOC, _FILE_HEADER.size, padded_bytes, 0, 0, ALIGNMENT_BYTES, 0),
        (9, _SHT_SYMTAB, 0, symbols_at, len(symbols), 3, 1, 8, _SYMBOL.size),
        (17, _SHT_STRTAB, 0, strings_at, len(strings), 0, 0, 1, 0),
        (25, _SHT_STRTAB, 0, names_at, len(names), 0, 0, 1, 0),
        # Its presence, without the flag for execution, asks for a stack that is not executable.
        (35, _SHT_PROGBITS, 0, headers_at, 0, 0, 0, 1, 0),
    ]
    elf_machine, e_flags = machine
    file.write(
        _FILE_HEADER.pack(
            _IDENT, _ET_REL, elf_machine, 1, 0, 0, headers_at, e_flags, 64, 0, 0, 64, len(sections), 4
        )
    )
    file.write(content)
    file.write(bytes(padded_bytes - content.nbytes))
    file.write((symbols + strings + names).ljust(headers_at - symbols_at, b"\0"))
    for name, kind, flags, offset, size, link, info, alignment, entry in sections:
        file.write(_SECTION_HEADER.pack(name, kind, flags, 0, offset, size, link, info, alignment, entry))


def read_machine(path: Path) -> tuple[int, int]:
    """The machine and the `e_flags` of an ELF file.

    Raises:
        ToolchainError: It is no 64-bit little-endian ELF file.
    """
    with path.open("rb") as file:
        start = file.read(_FILE_HEADER.size)
    if len(start) < _FILE_HEADER.size or start[:6] != _IDENT[:6]:
        raise ToolchainError(f"{path.name!r}: not an object; expected a 64-bit little-endian ELF file")
    header = _FILE_HEADER.unpack(start)
    return header[2], header[7]


def read_dynamic_symbols(path: Path) -> DynamicSymbols:
    """Reads a shared library's dynamic symbols.

    Raises:
        ToolchainError: The file is no ELF64 little-endian shared library with section headers, or is damaged.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as image:
            return _dynamic_symbols(image)
    except OSError as error:
        raise ToolchainError(f"{str(path)!r}: can't be read: {error.strerror}") from error
    except (struct.error, ValueError, IndexError) as error:
        raise ToolchainError(f"{str(path)!r}: damaged shared library; {error}") from error


@dataclass(frozen=True)
class _Section:
    kind: int
    offset: int
    size: int
    link: int

    def slice(self, image: mmap.mmap) -> bytes:
        return image[self.offset : self.offset + self.size]


def _dynamic_symbols(image: mmap.mmap) -> DynamicSymbols:
    sections = _read_sections(image)
    needed: list[str] = []
    undefined: list[str] = []
    exported: list[str] = []
    for section in sections:
        if section.kind not in (_SHT_DYNAMIC, _SHT_DYNSYM):
            continue
        strings = sections[section.link].slice(image)
        if section.kind == _SHT_DYNAMIC:
            entries = _DYNAMIC.iter_unpack(section.slice(image))
            needed += [_string_at(strings, value) for tag, value in entries if tag == _DT_NEEDED]
        else:
            _sort_symbols(section.slice(image), strings, undefined, exported)
    return DynamicSymbols(tuple(sorted(needed)), tuple(sorted(undefined)), tuple(sorted(exported)))


def _read_sections(image: mmap.mmap) -> list[_Section]:
    header = _FILE_HEADER.unpack_from(image)
    ident, headers_at, count = header[0], header[6], header[12]
    if ident[:6] != _IDENT[:6] or headers_at == 0:
        raise ValueError("expected a 64-bit little-endian ELF file with section headers")
    rows = (_SECTION_HEADER.unpack_from(image, headers_at + i * _SECTION_HEADER.size) for i in range(count))
    return [_Section(kind=row[1], offset=row[4], size=row[5], link=row[6]) for row in rows]


def _sort_symbols(table: bytes, strings: bytes, undefined: list[str], exported: list[str]) -> None:
    for name, info, other, section, _, _ in _SYMBOL.iter_unpack(table):
        if info >> 4 not in (_STB_GLOBAL, _STB_WEAK):
            continue
        if section == _SHN_UNDEF:
            undefined.append(_string_at(strings, name))
        elif other & 3 != _STV_HIDDEN:
            exported.append(_string_at(strings, name))


def _string_at(strings: bytes, offset: int) -> str:
    return strings[offset : strings.index(b"\0", offset)].decode(errors="replace")
