"""The library does not ask for an executable stack.

Severity: error
Why: it turns off a protection of the whole process, and newer C libraries refuse to load it into a running
    one ("cannot enable executable stack"). A file without the mark (PT_GNU_STACK) is taken for one that
    needs it on most machines.
Example: one hand-written assembly file without a .note.GNU-stack section marks everything it is linked into.
Fix: add `.section .note.GNU-stack,"",@progbits` to the assembly, or link with -Wl,-z,noexecstack.
"""

from __future__ import annotations

from cuvil_regress.checks import Context
from cuvil_regress.model import Finding


def run(context: Context) -> list[Finding]:
    """Look at the stack mark."""
    if context.library.stack == "not-executable":
        return []
    if context.library.stack == "unmarked":
        message = "has no stack mark (PT_GNU_STACK); expected one without the executable flag"
        return [context.finding(__name__, message, subject="PT_GNU_STACK", severity="warning")]
    return [context.finding(__name__, "asks for an executable stack", subject="PT_GNU_STACK")]
