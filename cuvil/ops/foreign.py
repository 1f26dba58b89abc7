"""What an importer sees of one node of a foreign model, and how it adds to the graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cuvil.errors import ModelError, UnsupportedError
from cuvil.ir.dims import Extent
from cuvil.ir.graph import GraphBuilder, Value
from cuvil.ir.op import Attrs, OpDef, is_symbolic
from cuvil.ir.types import Array


@dataclass(frozen=True, eq=False)
class ForeignNode:
    """A node of the user's model whose operands have been imported already.

    `attrs` holds Python numbers, strings, tuples and NumPy arrays; an operand that the model leaves out is
    None; `loc` names the node in messages, as in `Conv 'features.3'`.
    """

    op_type: str
    opset: int
    operands: tuple[Value | None, ...]
    result_names: tuple[str, ...]
    attrs: Mapping[str, Any]
    loc: str
    builder: GraphBuilder

    def operand(self, position: int) -> Value:
        """A required operand."""
        value = self.optional(position)
        if value is None:
            raise ModelError(f"{self.loc}: operand {position} is missing")
        return value

    def optional(self, position: int) -> Value | None:
        return self.operands[position] if position < len(self.operands) else None

    def constant(self, position: int, what: str) -> Array:
        """The contents of an operand that must be known at compile time."""
        array = self.optional_constant(position, what)
        if array is None:
            raise ModelError(f"{self.loc}: operand {position} ({what}) is missing")
        return array

    def optional_constant(self, position: int, what: str) -> Array | None:
        value = self.optional(position)
        if value is None:
            return None
        array = self.builder.constant_of(value)
        if array is None:
            raise self._unknown(what, value)
        return array

    def extents(self, position: int, what: str) -> tuple[Extent, ...]:
        """The elements of an integer operand that must be known at compile time, up to named dimensions."""
        extents = self.optional_extents(position, what)
        if extents is None:
            raise ModelError(f"{self.loc}: operand {position} ({what}) is missing")
        return extents

    def optional_extents(self, position: int, what: str) -> tuple[Extent, ...] | None:
        value = self.optional(position)
        if value is None:
            return None
        known = self.builder.known(value)
        if known is None:
            raise self._unknown(what, value)
        return tuple(known.reshape(-1).tolist())

    def _unknown(self, what: str, value: Value) -> UnsupportedError:
        return UnsupportedError(
            f"{self.loc}: {what} must be a constant; expected an initializer or a value computed from "
            f"shapes, got {value!r}"
        )

    def emit(self, op: OpDef, operands: Sequence[Value], attrs: Attrs | None = None, name: str = "") -> Value:
        """Adds a node with one result; one that is exact and has only constant operands is evaluated at once.

        Models compute shapes with such nodes, and a static graph needs their values to be built at all.
        """
        arrays = [self.builder.constant_of(operand) for operand in operands]
        known = [array for array in arrays if array is not None]
        hint = name or (self.result_names[0] if self.result_names else op.name)
        if op.exact and operands and len(known) == len(arrays) and not is_symbolic(attrs or {}):
            op.infer([operand.type for operand in operands], attrs or {})
            return self.builder.constant(op.evaluate(known, attrs or {})[0], hint)
        return self.builder.one(op, operands, attrs, loc=self.loc, name=hint)

    def unsupported(self, what: str) -> UnsupportedError:
        """The error for a form of the operator that is not compiled yet, to be raised."""
        return UnsupportedError(f"{self.loc} (opset {self.opset}): {what} is not supported")


Importer = Callable[[ForeignNode], Sequence[Value]]
"""Adds a foreign node to the graph and returns the values of its results, in order."""
