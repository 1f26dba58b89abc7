"""A compiled model needs nothing and exports exactly its four documented symbols.

Severity: error
Why: a model without undefined symbols and NEEDED entries loads on any system of its machine and can't take
    part in a symbol conflict; another export would be an interface that nobody promised, and a name that
    may clash. (An executable stack, text relocations and writable code are faults of any library and have
    checks of their own.)
Example: the code generator emits a call of memcpy or fmodf, which the linker leaves to the C library.
Fix: report it as a defect of the compiler that built the model; recompiling with its current release helps
    where that is fixed.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cuvil_regress.checks import MODEL_EXPORTS, REQUIRED_MODEL_EXPORTS, Context, readable
from cuvil_regress.elf.source import printable
from cuvil_regress.model import Finding


def run(context: Context) -> list[Finding]:
    """Look for imports and exports beyond the documented ones."""
    if not context.is_model:
        return []
    return [context.finding(__name__, message, subject=subject) for subject, message in _faults(context)]


def _faults(context: Context) -> Iterator[tuple[str, str]]:
    library = context.library
    for index in np.flatnonzero(~library.symbols["defined"] & (library.symbols["name"] != 0)).tolist():
        name = library.names[index]
        yield printable(name), f"undefined symbol {readable(name)!r}; expected none in a compiled model"
    for needed in library.needed:
        yield needed, f"needs {needed!r}; expected no NEEDED entry in a compiled model"
    for name in sorted(library.exports.keys() - MODEL_EXPORTS):
        yield printable(name), f"exports {readable(name)!r}; expected the documented symbols only"
    for name in sorted(REQUIRED_MODEL_EXPORTS - library.exports.keys()):
        yield printable(name), f"does not export {printable(name)!r}, which a compiled model must"
