"""The library needs no C++ standard library that the process may lack.

Severity: error
Why: a process has one libstdc++, and the first package that loads one decides which (conda's, the system's,
    a wheel's): a library that needs a newer one does not load ("GLIBCXX_3.4.30 not found"). The runtime and
    compiled models need none at all, which makes that conflict impossible. Other libraries get a warning
    where they need more of it than the installed torch itself.
Example: an extension built with a new compiler imported beside an older conda environment.
Fix: build with the compiler that torch was built with or an older one, or link with -static-libstdc++ and
    hide its symbols; runtime code uses the C library only.
"""

from __future__ import annotations

from collections.abc import Iterable

from cuvil_regress.checks import Context, Version
from cuvil_regress.elf import ElfImage
from cuvil_regress.model import Finding

_FAMILIES = ("GLIBCXX", "CXXABI")
_LIBRARY_PREFIXES = ("libstdc++.so", "libc++.so", "libc++abi.so", "libsupc++.so")


def run(context: Context) -> list[Finding]:
    """Look for a C++ library among the needed ones, and compare its versions with torch's."""
    if context.is_freestanding_kind:
        return [
            context.finding(__name__, f"needs {name}; expected no C++ library", subject=name)
            for name in context.library.needed
            if name.startswith(_LIBRARY_PREFIXES)
        ]
    return [finding for family in _FAMILIES for finding in _exceeding(context, family)]


def _exceeding(context: Context, family: str) -> list[Finding]:
    offered, wanted = _highest(context.pool.torch, family), _highest([context.library], family)
    if not offered or wanted <= offered:
        return []
    node, limit = (f"{family}_{'.'.join(map(str, version))}" for version in (wanted, offered))
    message = f"needs {node}; the installed torch needs no more than {limit}"
    return [context.finding(__name__, message, subject=node, severity="warning")]


def _highest(images: Iterable[ElfImage], family: str) -> Version:
    numbers = (
        need.name.removeprefix(f"{family}_")
        for image in images
        for need in image.version_needs
        if need.name.startswith(f"{family}_")
    )
    versions = (number.split(".") for number in numbers)
    return max((tuple(map(int, parts)) for parts in versions if all(map(str.isdecimal, parts))), default=())
