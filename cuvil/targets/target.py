"""The record that describes a target, and the lookup by name."""

from __future__ import annotations

import difflib
import importlib
from dataclasses import dataclass

from cuvil.errors import UsageError
from cuvil.ir.types import DType


@dataclass(frozen=True)
class Target:
    """What the compiler knows about a machine.

    `vector_bits` is the width of a register that holds floats (32 where there are no vectors), and
    `vector_registers` how many there are. Cache sizes are those of one core.
    """

    name: str
    triple: str
    cpu: str
    features: tuple[str, ...]
    abi_name: str
    vector_bits: int
    vector_registers: int
    l2_bytes: int
    emulator: str
    emulator_arguments: tuple[str, ...]
    sysroot: str

    def lanes(self, dtype: DType) -> int:
        """Elements of `dtype` in one vector register; 1 where there are no vectors."""
        return max(1, self.vector_bits // dtype.bits)


_MODULES = {
    "x86_64-linux": "cuvil.targets.x86_64_linux",
    "aarch64-linux": "cuvil.targets.aarch64_linux",
    "riscv64-linux": "cuvil.targets.riscv64_linux",
}

TARGET_NAMES = tuple(_MODULES)


def find_target(name: str) -> Target:
    """The record of the target called `name`.

    Raises:
        UsageError: there is none; lists those that there are.
    """
    if name not in _MODULES:
        close = difflib.get_close_matches(name, TARGET_NAMES, n=1)
        raise UsageError(
            f"target: unknown; expected one of {', '.join(TARGET_NAMES)}, got {name!r}",
            hint=f"did you mean {close[0]!r}?" if close else None,
        )
    target: Target = importlib.import_module(_MODULES[name]).TARGET
    return target
