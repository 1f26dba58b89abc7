"""Every symbol that the library needs is defined by a library that it loads, at the version it asks for.

Severity: error
Why: with immediate binding the library does not load ("undefined symbol"); with lazy binding the process
    dies at the first call. The providers are the library itself, its NEEDED closure, the C library and the
    loader of the target's sysroot, and the libraries given as providers. A weak symbol may stay undefined.
Example: an extension built against another PyTorch release needs a c10 function whose parameters changed.
Fix: link the library that defines the symbol (the message names it where one is known), build against the
    release that is installed, or name an interpreter or preloaded library as a provider.
"""

from __future__ import annotations

from cuvil_regress.cause import missing_cause
from cuvil_regress.checks import Context, readable
from cuvil_regress.elf.source import printable
from cuvil_regress.lookup import Reference, binds, missing_versions, reference, unresolved
from cuvil_regress.model import Finding


def run(context: Context) -> list[Finding]:
    """List the symbols that nothing defines, except those that needed-library or version-node explains."""
    if not context.library.undefined:
        return []
    library, scope = context.library, context.scope
    absent = {entry.name for entry in scope.missing}
    faulty = {need.index for need in missing_versions(library, scope.images)}
    faulty |= {need.index for need in library.version_needs if need.library in absent}
    versions = library.symbols["version"]
    return [
        _finding(context, index)
        for index in unresolved(library, scope.images)
        if versions[index] not in faulty
    ]


def _finding(context: Context, index: int) -> Finding:
    wanted = reference(context.library, index)
    node = f" at version {wanted.version}" if wanted.version else ""
    reason = _reason(context, wanted)
    message = f"no provider defines {readable(wanted.name)!r}{node}" + (f"; {reason}" if reason else "")
    return context.finding(__name__, message, subject=printable(wanted.name))


def _reason(context: Context, wanted: Reference) -> str:
    loaded = set(map(id, context.scope.images))
    for image in (*context.pool.torch, *context.pool.given):
        if id(image) not in loaded and binds(image, wanted):
            return f"{image.load_name} defines it, but is not needed by the library"
    others = [image for image in context.scope.images if wanted.name in image.exports]
    if others:
        how = "at another version" if others[0].versioned else "without a version"
        return f"{others[0].load_name} defines it {how}"
    if wanted.name.startswith((b"Py", b"_Py")):
        return "the Python interpreter defines it: name the interpreter as a provider"
    return missing_cause(wanted.name, context.pool.torch)
