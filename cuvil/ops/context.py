"""What an operator's `lower` function may ask for and call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from cuvil.ir.graph import Value
from cuvil.ir.types import Array, TensorType
from cuvil.loops.contraction import Tile
from cuvil.loops.kernel import Kernel


class LowerContext(Protocol):
    """Collects kernel calls. Values made here live in the arena or among the weights."""

    def constant_of(self, value: Value) -> Array | None:
        """The contents of a constant; None for a value of the run."""

    def constant(self, array: Array, name: str) -> Value:
        """A new constant, such as repacked weights."""

    def temporary(self, tensor_type: TensorType, name: str) -> Value:
        """Memory for an intermediate result."""

    def call(self, kernel: Kernel, operands: Sequence[Value], flops: int) -> None:
        """Runs a kernel; `operands` match its parameters in order, `flops` estimates its work."""

    def tile(self, rows: int, columns: int) -> Tile:
        """The largest register tile that pays for a contraction with so many rows and columns."""

    @property
    def lanes(self) -> int:
        """float32 elements in one vector register."""
