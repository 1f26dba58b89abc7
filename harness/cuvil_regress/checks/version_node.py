"""Every version node that the library asks for exists in the library that it names.

Severity: error
Why: the loader compares version nodes before it looks at any symbol, and stops ("version `GLIBC_2.38' not
    found"), even if each symbol could be found elsewhere. A library without version nodes passes.
Example: a library built against libgomp with OMP_5.1, loaded with torch's bundled libgomp, which ends at
    OMP_5.0.
Fix: build against the oldest release of the named library that it has to run with, or ship a newer one.
"""

from __future__ import annotations

from cuvil_regress.checks import Context
from cuvil_regress.lookup import missing_versions
from cuvil_regress.model import Finding


def run(context: Context) -> list[Finding]:
    """Look each needed version up in the library that is meant."""
    if not context.library.version_needs:
        return []
    return [
        context.finding(__name__, f"needs {need.name} of {need.library}, which lacks it", subject=need.name)
        for need in missing_versions(context.library, context.scope.images)
    ]
