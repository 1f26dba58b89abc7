"""No symbol that the library exports is defined by torch, or by another library under test, as well.

Severity: error
Why: the loader searches libraries in order and takes the first definition, for every library at once
    (interposition): one of the two then runs the other's code or reads the other's data. strong/strong is an
    error, and so is a unique symbol (GNU_UNIQUE, C++ inline variables and statics) on either side, which the
    whole process shares even when the libraries are loaded privately. strong/weak is a warning. weak/weak
    (C++ inline functions and templates) is one warning for all of them, a note for the C++ library's own
    templates and between libraries that are built on that torch, where sharing is what its headers intend.
    A definition that its own library can't lose (protected, -Bsymbolic) is at most a warning. Version nodes
    count: two different nodes do not meet, but a definition without any meets them all. Names are compared
    whatever the machines are: a library for AArch64 is checked against the torch that is installed here,
    since the torch of its own target exports the same names. Compiled models may share their four exports,
    which are looked up library by library.
Example: a library that bundles its own protobuf, mkl or xnnpack, next to libtorch_cpu.so, which does too.
Fix: export only what is meant to be public (-fvisibility=hidden and a version script; -Wl,--exclude-libs,ALL
    for static dependencies), or rename the symbol.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from cuvil_regress.checks import MODEL_EXPORTS, Context, is_model, readable
from cuvil_regress.elf import ElfImage
from cuvil_regress.elf.image import BINDING_NAMES, GLOBAL, PROTECTED, UNIQUE, WEAK
from cuvil_regress.elf.source import printable
from cuvil_regress.lookup import Clash, clashes
from cuvil_regress.model import Finding, Severity
from cuvil_regress.scope import distinct

_MAX_LISTED = 20
"""Findings for one pair of libraries and one severity; a last one counts the rest."""
_CXX_LIBRARY = re.compile(rb"_Z(T[VITS])?(N[KVRO]*)?(S[tabsiod]|9__gnu_cxx)")


def run(context: Context) -> list[Finding]:
    """Compare the exports with those of torch's libraries and of the earlier libraries under test."""
    return [finding for other in _others(context) for finding in _compare(context, other)]


def _others(context: Context) -> Iterator[ElfImage]:
    """The libraries to compare with; of two with one SONAME only one is ever loaded (see soname-clash)."""
    same_machine = [other for other in context.earlier if other.machine == context.library.machine]
    for other in distinct((*context.pool.torch, *same_machine)):
        if other.load_name != context.library.load_name:
            yield other


def _compare(context: Context, other: ElfImage) -> Iterator[Finding]:
    shared_headers = _built_on_torch(context, context.library) and (
        other in context.pool.torch or _built_on_torch(context, other)
    )
    rated = [(_rate(context.library, clash, shared_headers), clash) for clash in _met(context.library, other)]
    for (severity, single), group in groupby(sorted(rated, key=lambda pair: pair[0]), lambda pair: pair[0]):
        found = [clash for _, clash in group]
        if single:
            yield from _list(context, other, severity, found)
        else:
            yield _summarize(context, other, severity, found, "weak or unique ")


def _built_on_torch(context: Context, image: ElfImage) -> bool:
    """Whether `image` needs a library of torch: then both hold the same inline code of its headers."""
    return bool({torch.load_name for torch in context.pool.torch} & set(image.needed))


def _met(library: ElfImage, other: ElfImage) -> Iterable[Clash]:
    both_models = is_model(library) and is_model(other)
    return (clash for clash in clashes(library, other) if not (both_models and clash.name in MODEL_EXPORTS))


def _rate(library: ElfImage, clash: Clash, shared_headers: bool) -> tuple[Severity, bool]:
    """Severity of a clash, and whether it gets a finding of its own."""
    ours, theirs = int(clash.ours["binding"]), int(clash.theirs["binding"])
    inline = {ours, theirs} <= {WEAK, UNIQUE}
    if inline and (shared_headers or _CXX_LIBRARY.match(clash.name)):
        return "note", False
    if UNIQUE in (ours, theirs):
        return "error", True
    if inline:
        return "warning", False
    keeps_its_own = library.symbolic or clash.ours["visibility"] == PROTECTED
    return ("error" if ours == theirs == GLOBAL and not keeps_its_own else "warning"), True


def _list(context: Context, other: ElfImage, severity: Severity, found: Sequence[Clash]) -> Iterator[Finding]:
    for clash in found[:_MAX_LISTED]:
        ours, theirs = (BINDING_NAMES[int(side["binding"])] for side in (clash.ours, clash.theirs))
        message = (
            f"{readable(clash.name)!r} ({ours}) is defined by {other.load_name} too ({theirs});"
            " the one loaded first serves both"
        )
        yield context.finding(__name__, message, subject=printable(clash.name), severity=severity)
    if len(found) > _MAX_LISTED:
        yield _summarize(context, other, severity, found[_MAX_LISTED:], "more ")


def _summarize(
    context: Context, other: ElfImage, severity: Severity, found: Sequence[Clash], kind: str
) -> Finding:
    sample = ", ".join(repr(readable(clash.name)) for clash in found[:3])
    message = f"{len(found)} {kind}symbol(s) are defined by {other.load_name} too, such as {sample}"
    return context.finding(__name__, message, subject=other.load_name, severity=severity)
