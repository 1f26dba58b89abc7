"""What the ELF files of each target look like. The harness keeps its own table: it judges the compiler's."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cuvil_regress.elf import ElfImage
from cuvil_regress.errors import UsageError


@dataclass(frozen=True)
class FlagRule:
    """Bits of `e_flags` that must have one value."""

    mask: int
    value: int
    meaning: str


@dataclass(frozen=True)
class TargetAbi:
    """The ABI of a target: its triple, ELF numbers, loader and largest page size."""

    name: str
    triple: str
    machine: int
    machine_name: str
    bits: int
    loader: str
    page_bytes: int
    flag_rules: tuple[FlagRule, ...] = ()

    @property
    def native(self) -> bool:
        """Whether this process runs on such a machine."""
        return platform.machine() == self.triple.partition("-")[0]

    def runs(self, image: ElfImage) -> bool:
        """Whether `image` is of the target's machine and class."""
        return image.machine == self.machine and image.bits == self.bits

    @property
    def default_sysroot(self) -> Path:
        """This machine's root for the native target, else where distributions put a cross C library."""
        return Path("/") if self.native else Path("/usr") / self.triple


_RISCV_RULES = (
    FlagRule(0x6, 0x4, "the double-float ABI (lp64d)"),
    FlagRule(0x8, 0x0, "the full register file (not RVE)"),
    FlagRule(0x10, 0x0, "the weak memory model (not TSO)"),
)
_ARM_RULES = (
    FlagRule(0xFF000000, 0x05000000, "EABI version 5"),
    FlagRule(0x600, 0x400, "the hard-float ABI"),
)

TARGETS: Mapping[str, TargetAbi] = {
    target.name: target
    for target in (
        TargetAbi("x86_64-linux", "x86_64-linux-gnu", 62, "x86-64", 64, "ld-linux-x86-64.so.2", 0x1000),
        TargetAbi("aarch64-linux", "aarch64-linux-gnu", 183, "AArch64", 64, "ld-linux-aarch64.so.1", 0x10000),
        TargetAbi(
            "riscv64-linux", "riscv64-linux-gnu", 243, "RISC-V", 64,
            "ld-linux-riscv64-lp64d.so.1", 0x1000, _RISCV_RULES,
        ),
        TargetAbi(
            "arm-linux", "arm-linux-gnueabihf", 40, "ARM", 32, "ld-linux-armhf.so.3", 0x10000, _ARM_RULES,
        ),
    )
}  # fmt: skip


def target_abi(name: str) -> TargetAbi:
    """The record of target `name`.

    Raises:
        UsageError: no such target.
    """
    if name not in TARGETS:
        raise UsageError(f"target {name!r}: unknown; expected one of {', '.join(TARGETS)}, got {name!r}")
    return TARGETS[name]
