"""The dynamic segment: its entries, memory addresses as file offsets, and the symbol count it implies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from elftools.elf.enums import ENUM_D_TAG

from cuvil_regress.elf.image import Segment
from cuvil_regress.elf.source import Encoding, Source, Table, printable

_CHUNK_WORDS = 4096
_MAX_STRING_BYTES = 4096


@dataclass(frozen=True)
class Layout:
    """A source and where its segments lie in memory."""

    source: Source
    encoding: Encoding
    segments: tuple[Segment, ...]

    def locate(self, address: int, what: str) -> tuple[int, int]:
        """File offset of `address` and the bytes of the file that follow it in its segment."""
        for segment in self.segments:
            inner = address - segment.address
            if 0 <= inner < segment.file_bytes:
                return segment.offset + inner, segment.file_bytes - inner
        raise self.source.error(
            f"{what} lies in no segment", expected="an address of the file", got=hex(address)
        )

    def table(self, address: int, count: int, shape: np.dtype[np.void], what: str) -> Table:
        """`count` records of `shape` at `address`, all within one segment."""
        if not count:
            return np.empty(0, shape)
        offset, left = self.locate(address, what)
        if count * shape.itemsize > left:
            raise self.source.error(
                f"{what} leaves its segment", expected=f"at most {left} bytes", got=count * shape.itemsize
            )
        return self.source.table(offset, count, shape, what)


@dataclass(frozen=True)
class Dynamic:
    """The dynamic segment: tag -> its values, in order."""

    layout: Layout
    entries: Mapping[int, Sequence[int]]

    def __contains__(self, tag: str) -> bool:
        return ENUM_D_TAG[tag] in self.entries

    def number(self, tag: str) -> int:
        """The first value of `tag`, 0 where there is none."""
        return self.entries.get(ENUM_D_TAG[tag], (0,))[0]

    def text(self, strings: bytes) -> Callable[[str], tuple[str, ...]]:
        """A reader of the tags whose values are offsets in the string table."""
        return lambda tag: tuple(
            string_at(self.layout.source, strings, offset, tag)
            for offset in self.entries.get(ENUM_D_TAG[tag], ())
        )


def string_at(source: Source, strings: bytes, offset: int, what: str) -> str:
    """The string at `offset` of the string table."""
    if offset >= len(strings):
        raise source.error(
            f"name of {what} leaves the string table", expected=f"below {len(strings)}", got=offset
        )
    end = strings.find(b"\0", offset, offset + _MAX_STRING_BYTES)
    if end < 0:
        raise source.error(
            f"name of {what} has no end", expected=f"at most {_MAX_STRING_BYTES} bytes", got="more"
        )
    return printable(strings[offset:end])


def implied_symbol_count(dynamic: Dynamic) -> int:
    """Length of the symbol table of a file without section headers.

    A symbol that neither a hash table nor a relocation reaches is of no use to the loader, so the larger of
    the two is the length. (GNU ld writes an empty hash table where nothing is exported, which leaves the
    undefined symbols to the relocations.)
    """
    if "DT_HASH" in dynamic:
        head = dynamic.layout.table(dynamic.number("DT_HASH"), 2, dynamic.layout.encoding.words, "hash table")
        return int(head["word"][1])
    return max(_count_by_gnu_hash(dynamic), _count_by_relocations(dynamic))


def _count_by_gnu_hash(dynamic: Dynamic) -> int:
    if "DT_GNU_HASH" not in dynamic:
        return 0
    layout, words, start = dynamic.layout, dynamic.layout.encoding.words, dynamic.number("DT_GNU_HASH")
    head = layout.table(start, 4, words, "GNU hash table")["word"]
    num_buckets, first_symbol, bloom_words = (int(word) for word in head[:3])
    buckets_start = start + 16 + bloom_words * layout.encoding.bits // 8
    buckets = layout.table(buckets_start, num_buckets, words, "GNU hash buckets")["word"]
    last = int(buckets.max(initial=0))
    if last < first_symbol:
        return 0
    chain_start = buckets_start + 4 * num_buckets
    return last + 1 + _chain_left(layout, chain_start + 4 * (last - first_symbol))


def _chain_left(layout: Layout, address: int) -> int:
    """How many entries of the chain follow the one at `address`; an odd word is the last."""
    offset, left = layout.locate(address, "GNU hash chain")
    words, passed = layout.encoding.words, 0
    while passed * 4 < left - 3:
        count = min(_CHUNK_WORDS, left // 4 - passed)
        chunk = layout.source.table(offset + 4 * passed, count, words, "GNU hash chain")["word"]
        ends = np.flatnonzero(chunk & 1)
        if len(ends):
            return passed + int(ends[0])
        passed += count
    raise layout.source.error("GNU hash chain has no end", expected="an odd word", got=f"{passed} even ones")


def _count_by_relocations(dynamic: Dynamic) -> int:
    with_addend = "DT_RELA" in dynamic
    tables = [
        ("DT_RELA", "DT_RELASZ", True),
        ("DT_REL", "DT_RELSZ", False),
        ("DT_JMPREL", "DT_PLTRELSZ", with_addend),
    ]
    layout, shift = dynamic.layout, 32 if dynamic.layout.encoding.bits == 64 else 8
    largest = 0
    for start, size, addend in tables:
        shape = layout.encoding.relocation(addend=addend)
        count = dynamic.number(size) // shape.itemsize
        rows = layout.table(dynamic.number(start), count, shape, f"relocation table {start}")
        largest = max(largest, int((rows["info"] >> shift).max(initial=0)))
    return largest + 1 if largest else 0
