"""Dependencies are searched beside the library, not at paths of the build machine.

Severity: warning
Why: an absolute run path exists on the build machine only, or, worse, on another machine with other files in
    it; an empty or relative entry means the current folder, so that whoever owns it chooses the code.
Example: RUNPATH [/home/build/venv/lib/python3.11/site-packages/torch/lib], left by a build in place.
Fix: use $ORIGIN (-Wl,-rpath,'$ORIGIN'), or none at all; patchelf --set-rpath repairs a finished file.
"""

from __future__ import annotations

from collections.abc import Iterator

from cuvil_regress.checks import Context
from cuvil_regress.model import Finding, Severity

_RELATIVE_TO_LIBRARY = ("$ORIGIN", "${ORIGIN}")


def run(context: Context) -> list[Finding]:
    """Look at each entry of RPATH and RUNPATH."""
    return [
        context.finding(__name__, message, subject=entry, severity=severity)
        for entry, message, severity in _faults(context)
    ]


def _faults(context: Context) -> Iterator[tuple[str, str, Severity]]:
    for tag, entries in (("RPATH", context.library.rpath), ("RUNPATH", context.library.runpath)):
        for entry in entries:
            if entry.startswith("/"):
                yield entry, f"{tag} entry {entry!r} is absolute; expected one below $ORIGIN", "warning"
            elif not entry.startswith(_RELATIVE_TO_LIBRARY):
                yield entry, f"{tag} entry {entry!r} follows the current folder; expected $ORIGIN", "error"
