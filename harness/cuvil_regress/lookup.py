"""The dynamic loader's rules for symbols: what a reference binds to, what is missing, what clashes.

Source: the GNU C library's `elf/dl-lookup.c`, as described by the Linux Standard Base, "Symbol Versioning".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cuvil_regress.elf import ElfImage, VersionNeed

_OLDEST_NODE = 2
"""Version indices 0 and 1 stand for no node; an unversioned reference also accepts the oldest node."""

LINKER_NAMES = frozenset(
    (
        *(b"_init", b"_fini", b"_end", b"end", b"__end__"),
        *(b"_etext", b"etext", b"_ftext", b"_edata", b"edata", b"_fdata", b"__data_start", b"data_start"),
        *(b"__bss_start", b"__bss_start__", b"__bss_end__", b"_bss_end__", b"_fbss"),
    )
)
"""Names that linkers give every library; each library means its own, and no library refers to another's."""


@dataclass(frozen=True)
class Reference:
    """A use of a symbol: its name, and the version node and its library where they are asked for."""

    name: bytes
    version: str | None = None
    library: str | None = None


@dataclass(frozen=True)
class Clash:
    """A name that two libraries define so that references to one can bind to the other."""

    name: bytes
    ours: Any
    theirs: Any


def reference(image: ElfImage, index: int) -> Reference:
    """The reference that symbol `index` of `image` makes; a definition refers to itself."""
    need = image.needs_of(index)
    return Reference(image.names[index], image.version_of(index), need.library if need else None)


def binds(image: ElfImage, wanted: Reference) -> bool:
    """Whether `wanted` can bind to a definition of `image`.

    A library without versions serves every reference, except one that expects a version of that very
    library: the loader then stops with a failed assertion.
    """
    candidates = image.exports.get(wanted.name, ())
    if not candidates:
        return False
    if not image.versioned:
        return wanted.library != image.load_name
    if wanted.version is not None:
        return any(_accepts_version(image, index, wanted.version) for index in candidates)
    rows = [image.symbol(index) for index in candidates]
    if any(row["version"] <= _OLDEST_NODE for row in rows):
        return True
    return sum(not row["hidden"] for row in rows) == 1


def _accepts_version(image: ElfImage, index: int, version: str) -> bool:
    """A definition without a node serves a reference at any node, unless it is hidden."""
    node = image.version_of(index)
    return node == version or (node is None and not image.symbol(index)["hidden"])


def unresolved(library: ElfImage, scope: Sequence[ElfImage]) -> list[int]:
    """Undefined strong symbols of `library` that no image of `scope` defines."""
    return [
        index
        for index in library.undefined
        if not any(binds(image, reference(library, index)) for image in scope)
    ]


def missing_versions(library: ElfImage, scope: Sequence[ElfImage]) -> list[VersionNeed]:
    """Version nodes that `library` asks of a library of `scope` that has others, but not this one.

    A library without any version node passes with a warning of the loader, and so does a weak need.
    """
    by_name = {image.load_name: image for image in reversed(scope)}
    return [
        need
        for need in library.version_needs
        if not need.weak and (provider := by_name.get(need.library)) and provider.version_definitions
        if need.name not in {node.name for node in provider.version_definitions}
    ]


def clashes(ours: ElfImage, theirs: ElfImage) -> Iterator[Clash]:
    """Names that both libraries define, in order of name, as far as versions let them meet."""
    for name in sorted((ours.exports.keys() & theirs.exports.keys()) - LINKER_NAMES):
        mine, other = ours.exports[name][0], theirs.exports[name][0]
        if binds(theirs, reference(ours, mine)) or binds(ours, reference(theirs, other)):
            yield Clash(name, ours.symbol(mine), theirs.symbol(other))
