"""Segments are aligned for the largest page size of the target.

Severity: warning
Why: a kernel with larger pages than the linker assumed can't map the file ("ELF load command alignment not
    page-aligned"). AArch64 kernels use pages of 4, 16 or 64 KiB, depending on the distribution.
Example: an AArch64 library linked with -z max-page-size=4096 on a kernel with 64 KiB pages.
Fix: drop -z max-page-size and -z common-page-size; the linker's default for the target is right.
"""

from __future__ import annotations

from cuvil_regress.checks import Context
from cuvil_regress.elf import Segment
from cuvil_regress.model import Finding


def run(context: Context) -> list[Finding]:
    """Compare each LOAD segment's alignment with the target's page size."""
    page_bytes = context.target.page_bytes
    if context.library.machine != context.target.machine:
        return []
    return [
        context.finding(
            __name__,
            f"segment at {segment.address:#x}; expected an alignment of {page_bytes:#x} bytes and an offset"
            f" congruent to the address, got {segment.align_bytes:#x} and offset {segment.offset:#x}",
            subject=f"{segment.address:#x}",
        )
        for segment in context.library.segments
        if not _fits(segment, page_bytes)
    ]


def _fits(segment: Segment, page_bytes: int) -> bool:
    return (
        segment.align_bytes % page_bytes == 0
        and (segment.address - segment.offset) % page_bytes == 0
        and segment.align_bytes > 0
    )
