"""The library's code is not changed at load time.

Severity: error
Why: text relocations make the loader map code writable: every process gets a copy of its own, hardened
    systems refuse to load it, and so do some C libraries.
Example: an object compiled without -fPIC, linked with -z notext.
Fix: compile every object with -fPIC, and leave out -z notext so that the linker reports the culprit.
"""

from __future__ import annotations

from cuvil_regress.checks import Context
from cuvil_regress.model import Finding


def run(context: Context) -> list[Finding]:
    """Look for DT_TEXTREL or its flag."""
    if not context.library.text_relocations:
        return []
    return [context.finding(__name__, "has text relocations (DT_TEXTREL)", subject="DT_TEXTREL")]
