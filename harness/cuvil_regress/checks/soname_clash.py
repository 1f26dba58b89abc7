"""No other file with the library's SONAME comes with torch, or is under test too.

Severity: error
Why: the loader knows libraries by SONAME: the second file of that name is not loaded, and its users get the
    first, whatever it holds.
Example: a private build of libgomp.so.1 beside the one in torch/lib.
Fix: give the library a SONAME of its own (-Wl,-soname), or use the copy that torch brings.
"""

from __future__ import annotations

from cuvil_regress.checks import Context
from cuvil_regress.model import Finding


def run(context: Context) -> list[Finding]:
    """Look for another file of the same SONAME and machine."""
    library = context.library
    others = (*context.pool.torch, *context.earlier)
    return [
        context.finding(
            __name__, f"SONAME {library.soname!r} is that of {other.path} too", subject=library.soname
        )
        for other in others
        if library.soname and other.soname == library.soname and other.machine == library.machine
        if other is not library
    ]
