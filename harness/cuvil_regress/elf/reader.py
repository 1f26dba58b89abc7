"""Read an ELF file into an `ElfImage`.

Everything is located as the dynamic loader does it, from the program headers and the dynamic segment.
Section headers serve one purpose, the length of the symbol table, which the dynamic segment only implies.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from elftools.elf.enums import ENUM_D_TAG, ENUM_P_TYPE_BASE, ENUM_SH_TYPE_BASE

from cuvil_regress.elf.dynamic import Dynamic, Layout
from cuvil_regress.elf.image import ElfImage, Segment, Stack
from cuvil_regress.elf.source import Encoding, Source, Table
from cuvil_regress.elf.tables import read_strings, read_symbols, read_version_needs, read_versions_defined
from cuvil_regress.errors import HarnessError, UsageError

_MAGIC = b"\x7fELF"
_IDENT_BYTES = 16
_EXECUTABLE, _WRITABLE = 1, 2
_FLAG_SYMBOLIC, _FLAG_TEXTREL, _FLAG_BIND_NOW, _FLAG_STATIC_TLS, _FLAG_1_NOW = 2, 4, 8, 0x10, 1


def read(path: Path) -> ElfImage:
    """Read the ELF file `path`.

    Raises:
        UsageError: no such file.
        HarnessError: no ELF file, or one whose tables contradict each other or its size.
    """
    if not path.is_file():
        found = "a folder" if path.is_dir() else "no such file"
        raise UsageError(f"{path}: expected a shared library, got {found}")
    try:
        with path.open("rb") as stream:
            return _read(Source(path, stream, path.stat().st_size))
    except OSError as error:
        raise HarnessError(f"{path}: can't be read: {error.strerror}") from None


def _read(source: Source) -> ElfImage:
    encoding, os_abi = _identify(source)
    header = source.table(_IDENT_BYTES, 1, encoding.header, "ELF header")[0]
    programs = _program_headers(source, encoding, header)
    sections = _section_headers(source, encoding, header)
    segments = tuple(_segments(source, programs))
    dynamic = _dynamic(Layout(source, encoding, segments), programs)
    strings = read_strings(dynamic)
    symbols = read_symbols(dynamic, _symbols_by_section(sections, dynamic), strings)
    flags, flags_1 = dynamic.number("DT_FLAGS"), dynamic.number("DT_FLAGS_1")
    text = dynamic.text(strings)
    return ElfImage(
        path=source.path,
        bits=encoding.bits,
        little_endian=encoding.little_endian,
        machine=int(header["machine"]),
        flags=int(header["flags"]),
        os_abi=os_abi,
        type=int(header["type"]),
        dynamic=bool(dynamic.entries),
        soname=next(iter(text("DT_SONAME")), None),
        needed=text("DT_NEEDED"),
        rpath=_split(text("DT_RPATH")),
        runpath=_split(text("DT_RUNPATH")),
        symbols=symbols,
        strings=strings,
        versioned="DT_VERSYM" in dynamic,
        version_needs=read_version_needs(dynamic, strings),
        version_definitions=read_versions_defined(dynamic, strings),
        segments=segments,
        stack=_stack(programs),
        text_relocations="DT_TEXTREL" in dynamic or bool(flags & _FLAG_TEXTREL),
        bind_now="DT_BIND_NOW" in dynamic or bool(flags & _FLAG_BIND_NOW or flags_1 & _FLAG_1_NOW),
        symbolic="DT_SYMBOLIC" in dynamic or bool(flags & _FLAG_SYMBOLIC),
        static_tls=bool(flags & _FLAG_STATIC_TLS),
        section_headers=len(sections) > 0,
    )


def _identify(source: Source) -> tuple[Encoding, int]:
    ident = source.read(0, min(_IDENT_BYTES, source.size_bytes), "ELF identification")
    if len(ident) < _IDENT_BYTES or not ident.startswith(_MAGIC):
        raise source.error("not an ELF file", expected=f"{_MAGIC!r} at the start", got=f"{ident[:4]!r}")
    if ident[4] not in (1, 2) or ident[5] not in (1, 2):
        raise source.error(
            "unknown ELF class or byte order", expected="1 or 2 each", got=f"{ident[4]} and {ident[5]}"
        )
    return Encoding(bits=32 * ident[4], little_endian=ident[5] == 1), ident[7]


def _program_headers(source: Source, encoding: Encoding, header: np.void) -> Table:
    shape, count = encoding.program_header, int(header["phnum"])
    if count and int(header["phentsize"]) != shape.itemsize:
        raise source.error(
            "odd size of a program header", expected=shape.itemsize, got=int(header["phentsize"])
        )
    return source.table(int(header["phoff"]), count, shape, "program header table")


def _section_headers(source: Source, encoding: Encoding, header: np.void) -> Table:
    """The section headers; an empty table where the file has none (they may be stripped)."""
    shape, offset, count = encoding.section_header, int(header["shoff"]), int(header["shnum"])
    if not offset:
        return np.empty(0, shape)
    if int(header["shentsize"]) != shape.itemsize:
        raise source.error(
            "odd size of a section header", expected=shape.itemsize, got=int(header["shentsize"])
        )
    if not count:  # 65280 sections or more: the first header holds the number
        count = int(source.table(offset, 1, shape, "section header table")["size"][0])
    return source.table(offset, count, shape, "section header table")


def _segments(source: Source, programs: Table) -> Iterator[Segment]:
    for row in programs[programs["type"] == ENUM_P_TYPE_BASE["PT_LOAD"]]:
        end = int(row["offset"]) + int(row["filesz"])
        if end > source.size_bytes:
            raise source.error("file is truncated", expected=f"at least {end} bytes", got=source.size_bytes)
        yield Segment(
            offset=int(row["offset"]),
            address=int(row["vaddr"]),
            file_bytes=int(row["filesz"]),
            memory_bytes=int(row["memsz"]),
            align_bytes=int(row["align"]),
            writable=bool(row["flags"] & _WRITABLE),
            executable=bool(row["flags"] & _EXECUTABLE),
        )


def _dynamic(layout: Layout, programs: Table) -> Dynamic:
    shape = layout.encoding.dynamic
    found = programs[programs["type"] == ENUM_P_TYPE_BASE["PT_DYNAMIC"]]
    if not len(found):
        return Dynamic(layout, {})
    count = int(found["filesz"][0]) // shape.itemsize
    table = layout.source.table(int(found["offset"][0]), count, shape, "dynamic segment")
    ends = np.flatnonzero(table["tag"] == ENUM_D_TAG["DT_NULL"])
    entries: dict[int, list[int]] = {}
    for tag, value in table[: ends[0] if len(ends) else count].tolist():
        entries.setdefault(tag, []).append(value)
    return Dynamic(layout, entries)


def _symbols_by_section(sections: Table, dynamic: Dynamic) -> int | None:
    """Length of the symbol table by its section header, None where there is none."""
    is_table = sections["type"] == ENUM_SH_TYPE_BASE["SHT_DYNSYM"]
    found = sections[is_table & (sections["addr"] == dynamic.number("DT_SYMTAB"))]
    return int(found["size"][0]) // dynamic.layout.encoding.symbol.itemsize if len(found) else None


def _stack(programs: Table) -> Stack:
    marks = programs[programs["type"] == ENUM_P_TYPE_BASE["PT_GNU_STACK"]]
    if not len(marks):
        return "unmarked"
    return "executable" if marks["flags"][0] & _EXECUTABLE else "not-executable"


def _split(paths: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(part for path in paths for part in path.split(":"))
