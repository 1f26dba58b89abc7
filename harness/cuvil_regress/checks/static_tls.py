"""The library can be loaded into a running process: it takes no static thread-local storage.

Severity: warning
Why: thread-local variables of the initial-exec model need room that the loader sets aside at process start;
    a library loaded later gets what is left of it, and fails depending on what was loaded before
    ("cannot allocate memory in static TLS block").
Example: an OpenMP runtime imported after torch and others have used the surplus up.
Fix: compile without -ftls-model=initial-exec; where a dependency insists on it, import it first.
"""

from __future__ import annotations

from cuvil_regress.checks import Context
from cuvil_regress.model import Finding


def run(context: Context) -> list[Finding]:
    """Look for the DF_STATIC_TLS flag."""
    if not context.library.static_tls:
        return []
    return [
        context.finding(__name__, "uses static thread-local storage (DF_STATIC_TLS)", subject="DF_STATIC_TLS")
    ]
