"""The records that describe one ELF file: `ElfImage` and its parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Bools = npt.NDArray[np.bool_]
Symbols = npt.NDArray[np.void]

LOCAL, GLOBAL, WEAK, UNIQUE = 0, 1, 2, 10
BINDING_NAMES: Mapping[int, str] = {LOCAL: "local", GLOBAL: "strong", WEAK: "weak", UNIQUE: "unique"}

DEFAULT, INTERNAL, HIDDEN, PROTECTED = 0, 1, 2, 3
SECTION_UNDEFINED, SECTION_ABSOLUTE = 0, 0xFFF1
KIND_TLS = 6
LINKABLE_KINDS = (0, 1, 2, 5, KIND_TLS, 10)
"""NOTYPE, OBJECT, FUNC, COMMON, TLS, IFUNC: the kinds that the loader accepts as a definition."""

SYMBOL = np.dtype(
    [
        ("name", "u4"),
        ("value", "u8"),
        ("size", "u8"),
        ("section", "u2"),
        ("binding", "u1"),
        ("kind", "u1"),
        ("visibility", "u1"),
        ("defined", "?"),
        ("version", "u2"),
        ("hidden", "?"),
    ]
)
"""One dynamic symbol. `name` is an offset in `ElfImage.strings`; `version` is the version index (0 and 1:
no node), `hidden` marks a node that is not the default one (`name@NODE` rather than `name@@NODE`)."""

Stack = Literal["executable", "not-executable", "unmarked"]


@dataclass(frozen=True)
class Segment:
    """A LOAD segment."""

    offset: int
    address: int
    file_bytes: int
    memory_bytes: int
    align_bytes: int
    writable: bool
    executable: bool


@dataclass(frozen=True)
class VersionNeed:
    """A version node of another library that this one asks for, such as GLIBC_2.31 of libc.so.6."""

    library: str
    name: str
    index: int
    weak: bool


@dataclass(frozen=True)
class VersionDefinition:
    """A version node that this library defines; the base node only names the library itself."""

    name: str
    index: int
    base: bool


@dataclass(frozen=True, eq=False)
class ElfImage:
    """What the dynamic loader reads of one file.

    `bits` is 32 or 64; `machine`, `flags`, `os_abi` and `type` are the numbers of the ELF header.
    """

    path: Path
    bits: int
    little_endian: bool
    machine: int
    flags: int
    os_abi: int
    type: int
    dynamic: bool
    soname: str | None
    needed: tuple[str, ...]
    rpath: tuple[str, ...]
    runpath: tuple[str, ...]
    symbols: Symbols
    strings: bytes
    versioned: bool
    version_needs: tuple[VersionNeed, ...]
    version_definitions: tuple[VersionDefinition, ...]
    segments: tuple[Segment, ...]
    stack: Stack
    text_relocations: bool
    bind_now: bool
    symbolic: bool
    static_tls: bool
    section_headers: bool

    @property
    def load_name(self) -> str:
        """The name that another library's NEEDED entry uses for this one."""
        return self.soname or self.path.name

    @cached_property
    def names(self) -> tuple[bytes, ...]:
        """Every symbol's name, in table order (decoded on first use: libtorch_cpu has 75 thousand)."""
        find, strings = self.strings.find, self.strings
        return tuple(strings[start : find(b"\0", start)] for start in self.symbols["name"].tolist())

    @cached_property
    def versions(self) -> Mapping[int, str]:
        """Version index -> node name."""
        nodes = {need.index: need.name for need in self.version_needs}
        return nodes | {node.index: node.name for node in self.version_definitions if not node.base}

    @cached_property
    def exports(self) -> Mapping[bytes, tuple[int, ...]]:
        """Name -> indices of the definitions that other libraries can bind to."""
        names, found = self.names, dict[bytes, list[int]]()
        for index in np.flatnonzero(self._exported).tolist():
            found.setdefault(names[index], []).append(index)
        return {name: tuple(indices) for name, indices in found.items()}

    @cached_property
    def undefined(self) -> tuple[int, ...]:
        """Indices of the symbols that another library has to define; weak ones may stay undefined."""
        wanted = ~self.symbols["defined"] & np.isin(self.symbols["binding"], (GLOBAL, UNIQUE))
        return tuple(np.flatnonzero(wanted & (self.symbols["name"] != 0)).tolist())

    @property
    def _exported(self) -> Bools:
        table = self.symbols
        placed = (table["value"] != 0) | (table["section"] == SECTION_ABSOLUTE) | (table["kind"] == KIND_TLS)
        visible = np.isin(table["visibility"], (DEFAULT, PROTECTED)) & (table["binding"] != LOCAL)
        exported: Bools = table["defined"] & placed & visible & np.isin(table["kind"], LINKABLE_KINDS)
        nodes = {node.name.encode() for node in self.version_definitions}
        for index in np.flatnonzero(exported & (table["section"] == SECTION_ABSOLUTE)).tolist():
            exported[index] = self.names[index] not in nodes  # GNU ld defines a symbol for each node
        return exported

    def symbol(self, index: int) -> Any:
        """Row `index` of the symbol table; its fields are those of `SYMBOL`."""
        return self.symbols[index]

    def version_of(self, index: int) -> str | None:
        """The version node of symbol `index`, None where it has none."""
        return self.versions.get(int(self.symbols["version"][index]))

    def needs_of(self, index: int) -> VersionNeed | None:
        """The version need that symbol `index` is bound to, None where it has none."""
        return self._needs_by_index.get(int(self.symbols["version"][index]))

    @cached_property
    def _needs_by_index(self) -> Mapping[int, VersionNeed]:
        return {need.index: need for need in self.version_needs}
