"""The tables of the dynamic segment: strings, symbols, versions needed and defined."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cuvil_regress.elf.dynamic import Dynamic, Layout, implied_symbol_count, string_at
from cuvil_regress.elf.image import SECTION_UNDEFINED, SYMBOL, Symbols, VersionDefinition, VersionNeed
from cuvil_regress.elf.source import Source, Table

_HIDDEN_VERSION = 0x8000
_FLAG_BASE, _FLAG_WEAK = 1, 2
_MAX_NODES = 0x8000
"""Version indices have 15 bits."""
_MAX_NAME_REPEAT = 16
"""All names together may be this many times as long as the string table (they may share tails)."""
_SLACK_BYTES = 1 << 20


def read_strings(dynamic: Dynamic) -> bytes:
    """The string table; it must end with NUL, so that every offset in it is the start of a string."""
    if not dynamic.entries:
        return b""
    layout, size_bytes = dynamic.layout, dynamic.number("DT_STRSZ")
    shape = layout.encoding.shape("byte:B")
    strings = layout.table(dynamic.number("DT_STRTAB"), size_bytes, shape, "string table").tobytes()
    if not strings.endswith(b"\0"):
        raise layout.source.error("string table has no end", expected="a final NUL", got=f"{strings[-1:]!r}")
    return strings


def read_symbols(dynamic: Dynamic, count: int | None, strings: bytes) -> Symbols:
    """The dynamic symbols; `count` by the section header, None to derive it."""
    if "DT_SYMTAB" not in dynamic:
        return np.empty(0, SYMBOL)
    layout = dynamic.layout
    count = implied_symbol_count(dynamic) if count is None else count
    raw = layout.table(dynamic.number("DT_SYMTAB"), count, layout.encoding.symbol, "symbol table")
    outside = np.flatnonzero(raw["name"] >= len(strings))
    if len(outside):
        raise layout.source.error(
            f"name of symbol {outside[0]} leaves the string table",
            expected=f"below {len(strings)}",
            got=int(raw["name"][outside[0]]),
        )
    symbols = _normalize(raw, _version_words(dynamic, count))
    _verify_name_lengths(layout.source, symbols, strings)
    return symbols


def _normalize(raw: Table, versions: Table | None) -> Symbols:
    symbols: Symbols = np.zeros(len(raw), SYMBOL)
    for name in ("name", "value", "size"):
        symbols[name] = raw[name]
    symbols["section"] = raw["shndx"]
    symbols["binding"] = raw["info"] >> 4
    symbols["kind"] = raw["info"] & 15
    symbols["visibility"] = raw["other"] & 3
    symbols["defined"] = raw["shndx"] != SECTION_UNDEFINED
    if versions is not None:
        symbols["version"] = versions["index"] & (_HIDDEN_VERSION - 1)
        symbols["hidden"] = versions["index"] & _HIDDEN_VERSION != 0
    return symbols


def _version_words(dynamic: Dynamic, count: int) -> Table | None:
    if "DT_VERSYM" not in dynamic:
        return None
    shape = dynamic.layout.encoding.shape("index:H")
    return dynamic.layout.table(dynamic.number("DT_VERSYM"), count, shape, "symbol version table")


def _verify_name_lengths(source: Source, symbols: Symbols, strings: bytes) -> None:
    """Refuse a table whose names overlap so much that decoding them would exhaust the memory."""
    ends = np.flatnonzero(np.frombuffer(strings, "u1") == 0)
    starts = symbols["name"].astype(np.int64)
    total = int((ends[np.searchsorted(ends, starts)] - starts).sum())
    limit = _MAX_NAME_REPEAT * len(strings) + _SLACK_BYTES
    if total > limit:
        raise source.error("symbol names overlap", expected=f"at most {limit} bytes", got=total)


def read_version_needs(dynamic: Dynamic, strings: bytes) -> tuple[VersionNeed, ...]:
    """The version nodes that the library asks of others."""
    layout = dynamic.layout
    entry = layout.encoding.shape("version:H cnt:H file:W aux:W next:W")
    node = layout.encoding.shape("hash:W flags:H other:H name:W next:W")
    found: list[VersionNeed] = []
    for start, need in _chain(layout, dynamic.number("DT_VERNEED"), entry, dynamic.number("DT_VERNEEDNUM")):
        library = string_at(layout.source, strings, int(need["file"]), "a version need")
        for _, aux in _chain(layout, start + int(need["aux"]), node, int(need["cnt"])):
            name = string_at(layout.source, strings, int(aux["name"]), "a version node")
            index = int(aux["other"]) & (_HIDDEN_VERSION - 1)
            found.append(VersionNeed(library, name, index, bool(aux["flags"] & _FLAG_WEAK)))
            _verify_count(layout, len(found))
    return tuple(found)


def read_versions_defined(dynamic: Dynamic, strings: bytes) -> tuple[VersionDefinition, ...]:
    """The version nodes that the library defines."""
    layout = dynamic.layout
    entry = layout.encoding.shape("version:H flags:H ndx:H cnt:H hash:W aux:W next:W")
    node = layout.encoding.shape("name:W next:W")
    found: list[VersionDefinition] = []
    for start, row in _chain(layout, dynamic.number("DT_VERDEF"), entry, dynamic.number("DT_VERDEFNUM")):
        aux = layout.table(start + int(row["aux"]), 1, node, "version definition")[0]
        name = string_at(layout.source, strings, int(aux["name"]), "a version definition")
        found.append(VersionDefinition(name, int(row["ndx"]), bool(row["flags"] & _FLAG_BASE)))
    return tuple(found)


def _chain(
    layout: Layout, address: int, shape: np.dtype[np.void], count: int
) -> Iterator[tuple[int, np.void]]:
    """`count` records, each of which says how far away the next one is."""
    _verify_count(layout, count)
    for _ in range(count):
        row = layout.table(address, 1, shape, "version table")[0]
        yield address, row
        if not row["next"]:
            return
        address += int(row["next"])


def _verify_count(layout: Layout, count: int) -> None:
    if count > _MAX_NODES:
        raise layout.source.error("too many version records", expected=f"at most {_MAX_NODES}", got=count)
