"""What an operator's `lower` function may ask for and call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from cuvil.ir.dims import Extent
from cuvil.ir.graph import Value
from cuvil.ir.types import Array, Shape, TensorType
from cuvil.loops.build import KernelBuilder
from cuvil.loops.contraction import Tile
from cuvil.loops.kernel import Kernel

if TYPE_CHECKING:
    from cuvil.ops.pointwise import Pointwise, Writer


class LowerContext(Protocol):
    """Collects kernel calls. Values made here live in the arena or among the weights."""

    def constant_of(self, value: Value) -> Array | None:
        """The contents of a constant; None for a value of the run."""

    def constant(self, array: Array, name: str) -> Value:
        """A new constant, such as repacked weights."""

    def temporary(self, tensor_type: TensorType, name: str) -> Value:
        """Memory for an intermediate result."""

    def call(self, kernel: Kernel, operands: Sequence[Value], flops: Extent) -> None:
        """Runs a kernel; `operands` match its parameters in order, `flops` estimates its work."""

    def writer(self, b: KernelBuilder, value: Value, view: Shape) -> Writer:
        """Stores the elements of a node's result under the shape `view`, through what was fused behind it.

        Its parameters come after those that `b` has by now, its operands after those of the kernel.
        """

    def behind(self, pointwise: Pointwise) -> LowerContext:
        """The same context, in which a writer's results run through `pointwise`."""

    def tile(self, rows: Extent, columns: Extent) -> Tile:
        """The register tile that pays most for a contraction with so many rows and columns."""

    @property
    def lanes(self) -> int:
        """float32 elements in one vector register."""

    @property
    def l2_bytes(self) -> int:
        """Size of a core's second-level cache."""
