"""Why a C++ symbol is missing from an installed torch."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import lru_cache

from cuvil_regress.demangle import demangle
from cuvil_regress.elf import ElfImage

_TORCH_NAMESPACE = re.compile(rb"_Z.*?(2at|3c10|5torch|6caffe2|4aoti)[0-9NESC]")
_NEW_STRING = b"cxx11"


def missing_cause(name: bytes, torch: Sequence[ElfImage]) -> str:
    """The likely reason why no library of `torch` defines `name`, empty where there is nothing to say."""
    similar = [other for image in torch for other in _same_function(name, image)]
    other_string = [other for other in similar if (_NEW_STRING in other) != (_NEW_STRING in name)]
    if other_string:
        wanted, has = ("1", "0") if _NEW_STRING in name else ("0", "1")
        return f"C++11 string ABI: built with _GLIBCXX_USE_CXX11_ABI={wanted}, this torch uses {has}"
    if similar:
        return f"signature changed: this torch has {demangle(similar[0])}"
    if torch and _TORCH_NAMESPACE.match(name):
        return "this torch has no function of that name: removed, added later, or never public"
    return ""


def _same_function(name: bytes, image: ElfImage) -> Iterator[bytes]:
    """Exports of `image` with the same qualified name as `name`, whatever their parameters."""
    prefix = _qualified_name(name)
    if prefix is None:
        return
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
