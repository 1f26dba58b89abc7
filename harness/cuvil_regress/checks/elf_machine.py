"""The library is built for the machine, byte order and floating-point ABI of the target.

Severity: error
Why: the loader refuses another machine or class ("wrong ELF class"); another floating-point ABI is worse,
    as it may load and then pass arguments in the wrong registers.
Example: a RISC-V library with e_flags 0x1 (soft-float) on an lp64d system, which needs 0x4 (double-float).
Fix: compile for the target itself (--target), or use the compiler of its triple with the default ABI.
"""

from __future__ import annotations

from collections.abc import Iterator

from cuvil_regress.checks import Context
from cuvil_regress.model import Finding

_OS_ABIS = {0: "System V", 3: "GNU/Linux"}


def run(context: Context) -> list[Finding]:
    """Compare the ELF header with the target's record."""
    return [context.finding(__name__, message, subject=subject) for subject, message in _faults(context)]


def _faults(context: Context) -> Iterator[tuple[str, str]]:
    library, target = context.library, context.target
    if library.machine != target.machine:
        expected = f"{target.machine} ({target.machine_name})"
        yield "machine", f"ELF machine; expected {expected}, got {library.machine}"
        return  # flags mean something else on another machine
    if library.bits != target.bits:
        yield "class", f"ELF class; expected {target.bits}-bit, got {library.bits}-bit"
    if not library.little_endian:
        yield "byte-order", "byte order; expected little-endian, got big-endian"
    if library.os_abi not in _OS_ABIS:
        yield "os-abi", f"OS/ABI; expected one of {sorted(_OS_ABIS)}, got {library.os_abi}"
    for rule in target.flag_rules:
        if library.flags & rule.mask != rule.value:
            got = f"e_flags {library.flags:#x}"
            yield (
                "flags",
                f"not {rule.meaning}; expected e_flags & {rule.mask:#x} == {rule.value:#x}, got {got}",
            )
