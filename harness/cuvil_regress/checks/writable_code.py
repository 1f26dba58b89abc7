"""No segment is both writable and executable.

Severity: error
Why: whoever can write to such memory can run code of his own; hardened systems (SELinux, systemd's
    MemoryDenyWriteExecute) refuse to map it.
Example: a linker script, or -Wl,-N, that puts code and data in one segment.
Fix: drop -N/--omagic and custom linker scripts; keep .text and .data in segments of their own.
"""

from __future__ import annotations

from cuvil_regress.checks import Context
from cuvil_regress.model import Finding


def run(context: Context) -> list[Finding]:
    """Look at the flags of the LOAD segments."""
    return [
        context.finding(
            __name__,
            f"segment at {segment.address:#x} is writable and executable",
            subject=f"{segment.address:#x}",
        )
        for segment in context.library.segments
        if segment.writable and segment.executable
    ]
