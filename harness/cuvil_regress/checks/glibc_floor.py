"""The library runs on the oldest C library that the policy promises.

Severity: error
Why: a reference to GLIBC_2.38 keeps the library from loading on every older system ("version not found"),
    although the function itself may have been there for decades; the build machine decides the version.
Example: built on a new distribution, `pow` binds to GLIBC_2.29 and `__isoc23_strtol` to GLIBC_2.38.
Fix: build against the floor (zig cc -target x86_64-linux-gnu.2.31, or an old distribution's container), or
    avoid the newer function.
"""

from __future__ import annotations

import re

from cuvil_regress.checks import Context, Version, readable
from cuvil_regress.elf import ElfImage, VersionNeed
from cuvil_regress.model import Finding

_NODE = re.compile(r"GLIBC_(\d+(?:\.\d+)*)")
_SPECIAL = {
    "GLIBC_PRIVATE": "an interface that the C library keeps to itself",
    "GLIBC_ABI_DT_RELR": "packed relocations, which C libraries before 2.36 can't read",
}


def run(context: Context) -> list[Finding]:
    """Compare each GLIBC version node that is needed with the floor."""
    floor = ".".join(map(str, context.glibc_floor))
    found = []
    for need in context.library.version_needs:
        version = _version(need.name)
        if version is not None and version > context.glibc_floor:
            users = _users(context.library, need)
            message = f"needs {need.name} of {need.library}; expected at most GLIBC_{floor}{users}"
            found.append(context.finding(__name__, message, subject=need.name))
        elif need.name in _SPECIAL and not (need.name.endswith("RELR") and context.glibc_floor >= (2, 36)):
            message = f"needs {need.name} of {need.library}: {_SPECIAL[need.name]}"
            found.append(context.finding(__name__, message, subject=need.name))
    return found


def _version(node: str) -> Version | None:
    match = _NODE.fullmatch(node)
    return tuple(map(int, match[1].split("."))) if match else None


def _users(library: ElfImage, need: VersionNeed) -> str:
    names = [
        readable(library.names[index])
        for index, version in enumerate(library.symbols["version"].tolist())
        if version == need.index
    ]
    return (
        f", for {', '.join(names[:3])}" + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        if names
        else ""
    )
