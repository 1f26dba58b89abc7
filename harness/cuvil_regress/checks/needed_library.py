"""Every library that is needed, directly or not, is there.

Severity: error
Why: the loader stops at the first NEEDED entry that it can't find ("cannot open shared object file").
    Libraries are looked for by SONAME among the given ones, torch's, and the sysroot's; one for another
    machine does not count, as in the loader.
Example: a library linked against libopenblas.so.0 on the build machine, installed on one without it.
Fix: ship the library beside this one with a run path of $ORIGIN, link it statically, or name it as a
    provider when it is there at run time.
"""

from __future__ import annotations

from cuvil_regress.checks import Context
from cuvil_regress.model import Finding


def run(context: Context) -> list[Finding]:
    """List the NEEDED entries that no library answers to, and those that are paths."""
    library = context.library
    if not library.needed:
        return []
    paths = [
        context.finding(__name__, f"NEEDED entry is a path: {name!r}; expected a SONAME", subject=name)
        for name in library.needed
        if "/" in name
    ]
    return paths + [
        context.finding(
            __name__, f"{entry.needed_by} needs {entry.name!r}, which is not there", subject=entry.name
        )
        for entry in context.scope.missing
        if "/" not in entry.name
    ]
