"""Why a C++ symbol is missing from an installed torch."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import lru_cache

from cuvil_regress.demangle import demangle
from cuvil_regress.elf import ElfImage

_TORCH_NAMESPACE = re.compile(rb"_Z.*?(2at|3c10|5torch|6caffe2|4aoti)[0-9NESC]")
_NEW_STRING, _OLD_STRING = re.compile(rb"cxx11"), re.compile(rb"S[sb]")


def missing_cause(name: bytes, torch: Sequence[ElfImage]) -> str:
    """The likely reason why no library of `torch` defines `name`, empty where there is nothing to say."""
    prefix = _qualified_name(name)
    similar = [other for image in torch for other in _with_prefix(prefix, image)] if prefix else []
    for wanted, has, ours, theirs in ((1, 0, _NEW_STRING, _OLD_STRING), (0, 1, _OLD_STRING, _NEW_STRING)):
        start = len(prefix or b"")
        if ours.search(name, start) and any(theirs.search(other, start) for other in similar):
            return f"C++11 string ABI: built with _GLIBCXX_USE_CXX11_ABI={wanted}, this torch uses {has}"
    if similar:
        return f"signature changed: this torch has {demangle(similar[0])}"
    if torch and _TORCH_NAMESPACE.match(name):
        return "this torch has no function of that name: removed, added later, or never public"
    return ""


def _with_prefix(prefix: bytes, image: ElfImage) -> Iterator[bytes]:
    """Exports of `image` that begin with `prefix`: one function, whatever its parameters."""
    names = _sorted_exports(image)
    for position in range(bisect_left(names, prefix), len(names)):
        if not names[position].startswith(prefix):
            return
        yield names[position]


@lru_cache(maxsize=64)
def _sorted_exports(image: ElfImage) -> list[bytes]:
    return sorted(image.exports)


def _qualified_name(name: bytes) -> bytes | None:
    """The mangled nested name without parameters, such as `_ZN3c104WarnE`; None for other shapes."""
    head = re.match(rb"_ZN[KVRO]*", name)
    if head is None:
        return None
    position = head.end()
    while part := re.compile(rb"\d+").match(name, position):
        position = part.end() + int(part.group())
    special = re.compile(rb"[CD]\d").match(name, position)
    position = special.end() if special else position
    return name[: position + 1] if name[position : position + 1] == b"E" else None
