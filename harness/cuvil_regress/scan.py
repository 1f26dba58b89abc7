"""Scan libraries for ABI faults: every check on every library, and the counts that show what was read."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cuvil_regress.checks import Context, Version, all_checks
from cuvil_regress.elf import ElfImage
from cuvil_regress.lookup import clashes, unresolved
from cuvil_regress.model import Finding, family_of
from cuvil_regress.scope import Pool, Sysroot, distinct, read_cached, read_shared_library
from cuvil_regress.target_abi import TargetAbi, target_abi
from cuvil_regress.torch_libs import read_torch


@dataclass(frozen=True)
class ScannedLibrary:
    """One library under test.

    `conflicts` counts its symbols that a library of torch, or one under test, defines as well, of whatever
    severity; `missing` those that nothing defines.
    """

    file: str
    soname: str
    machine: int
    symbols: int
    exports: int
    undefined: int
    conflicts: int
    missing: int


@dataclass(frozen=True)
class TorchLibrary:
    """One library of the installed torch, and the number of symbols that were read from it."""

    file: str
    symbols: int


@dataclass(frozen=True)
class ScanReport:
    """What a scan found."""

    target: str
    libraries: tuple[ScannedLibrary, ...]
    torch: tuple[TorchLibrary, ...]
    findings: tuple[Finding, ...]
    checks: tuple[str, ...]
    elapsed_ns: int

    @property
    def clean(self) -> bool:
        """Whether no finding is an error."""
        return all(finding.severity != "error" for finding in self.findings)


def scan(
    libraries: Sequence[Path],
    *,
    target: str,
    torch_lib_dirs: Sequence[Path],
    providers: Sequence[Path] = (),
    sysroot: Path | None = None,
    glibc_floor: Version = (2, 31),
) -> ScanReport:
    """Run every check on `libraries`.

    Args:
        libraries: the libraries under test; they also answer to each other's NEEDED entries.
        target: the target that they are built for, such as `aarch64-linux`, or another of its family.
        torch_lib_dirs: folders of the torch to compare with (`find_torch_lib_dirs()`), may be empty.
        providers: libraries and executables that are in the process in any case.
        sysroot: where the target's C library lies; None is this machine's root for the native target, else
            `/usr/<triple>`.
        glibc_floor: the oldest GNU C library that the libraries have to run on.

    Raises:
        UsageError: an unknown target or folder.
        HarnessError: a library is missing, damaged, or no shared library.
        ToolMissingError: a library needs the target's C library, and the sysroot has none.
    """
    started_ns = time.perf_counter_ns()
    abi = target_abi(family_of(target))
    images = distinct([read_shared_library(path) for path in libraries])
    pool = Pool(
        given=images,
        providers=tuple(read_cached(path) for path in providers),
        torch=read_torch(torch_lib_dirs),
        sysroot=Sysroot(sysroot or abi.default_sysroot, abi),
    )
    contexts = _contexts(images, abi, pool, glibc_floor)
    return ScanReport(
        target=target,
        libraries=tuple(_count(context) for context in contexts),
        torch=tuple(TorchLibrary(str(image.path), len(image.symbols)) for image in pool.torch),
        findings=tuple(finding for context in contexts for finding in run_checks(context)),
        checks=tuple(check.id for check in all_checks()),
        elapsed_ns=time.perf_counter_ns() - started_ns,
    )


def run_checks(context: Context) -> list[Finding]:
    """The findings of every check on one library."""
    return [finding for check in all_checks() for finding in check.run(context)]


def _contexts(images: Sequence[ElfImage], abi: TargetAbi, pool: Pool, glibc_floor: Version) -> list[Context]:
    return [
        Context(image, abi, pool, earlier=tuple(images[:position]), glibc_floor=glibc_floor)
        for position, image in enumerate(images)
    ]


def _count(context: Context) -> ScannedLibrary:
    library = context.library
    others = [other for other in distinct((*context.pool.torch, *context.earlier)) if other is not library]
    return ScannedLibrary(
        file=str(library.path),
        soname=library.soname or "",
        machine=library.machine,
        symbols=len(library.symbols),
        exports=len(library.exports),
        undefined=len(library.undefined),
        conflicts=len({clash.name for other in others for clash in clashes(library, other)}),
        missing=len(unresolved(library, context.scope.images)) if library.undefined else 0,
    )
