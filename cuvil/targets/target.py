"""The record that describes a target, the lookup by name, and the names of instruction-set features."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from cuvil.errors import UsageError
from cuvil.ir.types import DType

ISA_FEATURES: Mapping[str, tuple[str, ...]] = {
    "x86_64-linux": (
        *("sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "cx16", "sahf"),
        *("avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"),
        *("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"),
    ),
    "aarch64-linux": ("neon", "crc", "lse", "rdm", "fullfp16", "dotprod", "rcpc"),
    "riscv64-linux": ("m", "a", "f", "d", "c", "v"),
}
"""Features of each platform that a target may require, by LLVM's names.

The place of a feature is its bit in the description of a model library, which the runtime checks
(`runtime/src/instruction_set.cpp` has the same tables): new ones go to the end.
"""


@dataclass(frozen=True)
class Target:
    """What the compiler knows about a machine.

    `platform` is the family that shares a linker, a C library and a runtime (a key of
    `toolchain.PLATFORMS`). `isa` are the features, of those in `ISA_FEATURES`, that code for the target may
    use, and `min_vlen_bits` the least vector length that it needs (RISC-V; else 0): a loader refuses a
    machine that has less. `vector_bits` is the width of a register that holds floats (32 where there are no
    vectors), and `vector_registers` how many there are. Cache sizes are those of one core. The emulator,
    with these arguments, is a machine that has just what the target requires, as far as there is one.
    `machines` are other ones, by name, that the same code is to be run on: their emulator's arguments.
    """

    name: str
    platform: str
    triple: str
    cpu: str
    features: tuple[str, ...]
    isa: tuple[str, ...]
    abi_name: str
    vector_bits: int
    vector_registers: int
    l2_bytes: int
    emulator: str
    emulator_arguments: tuple[str, ...]
    sysroot: str
    min_vlen_bits: int = 0
    machines: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def lanes(self, dtype: DType) -> int:
        """Elements of `dtype` in one vector register; 1 where there are no vectors."""
        return max(1, self.vector_bits // dtype.bits)

    @property
    def demand(self) -> tuple[int, int, bool]:
        """Greater for code that asks for more of a machine, and is preferred where it runs.

        Between equals the default of the platform is preferred.
        """
        return len(self.isa), self.min_vlen_bits, self.name == self.platform

    @property
    def isa_bits(self) -> int:
        """`isa` as the word that the runtime checks."""
        known = ISA_FEATURES[self.platform]
        return sum(1 << known.index(name) for name in self.isa)


TARGET_NAMES = (
    "x86_64-linux",
    "x86_64-linux-v4",
    "aarch64-linux",
    "aarch64-linux-armv8a",
    "riscv64-linux",
    "riscv64-linux-u74",
    "riscv64-linux-v",
)

NATIVE = "native"
"""Stands for the best record that this machine can run; `native.native_target` finds it."""


def find_target(name: str) -> Target:
    """The record of the target called `name`.

    Raises:
        UsageError: there is none; lists those that there are.
    """
    if name not in TARGET_NAMES:
        close = difflib.get_close_matches(name, TARGET_NAMES, n=1)
        raise UsageError(
            f"target: unknown; expected one of {', '.join((*TARGET_NAMES, NATIVE))}, got {name!r}",
            hint=f"did you mean {close[0]!r}?" if close else None,
        )
    module = importlib.import_module(f"cuvil.targets.{name.replace('-', '_')}")
    target: Target = module.TARGET
    return target
