"""What an operator is: its name, its types, its meaning in NumPy, and how it becomes loops."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from cuvil.ir.dims import Dim, value_of
from cuvil.ir.types import Array, TensorType

if TYPE_CHECKING:
    from cuvil.loops.kernel import Expr

Attrs = Mapping[str, Any]
"""Numbers, extents, strings, tuples of them, or a graph, by name."""

Infer = Callable[[Sequence[TensorType], Attrs], tuple[TensorType, ...]]
Evaluate = Callable[[Sequence[Array], Attrs], tuple[Array, ...]]
Scalar: TypeAlias = "Callable[[Sequence[Expr], Attrs], Expr]"


@dataclass(frozen=True, eq=False)
class OpDef:
    """An operator of the graph IR.

    Attributes:
        infer: result types from operand types; raises `ModelError` where they do not fit.
        evaluate: the operator's meaning in NumPy, written apart from its loops.
        lower: builds its kernels from a `LowerContext` and the node. Unset for `scalar` and `view` operators.
        scalar: for an elementwise operator: its result from one element of each (broadcast) operand.
        view: the result is the first operand's memory under another shape.
        exact: `evaluate` gives the contract's bits on any host (data movement, integers, + - * / sqrt).
    """

    name: str
    infer: Infer
    evaluate: Evaluate
    lower: Callable[..., None] | None = None
    scalar: Scalar | None = None
    view: bool = False
    exact: bool = False

    def __repr__(self) -> str:
        return f"OpDef({self.name!r})"


def attrs_at(attrs: Attrs, symbols: Mapping[str, int]) -> Attrs:
    """Attributes in a run with these values of the named dimensions."""
    return {name: _attr_at(attr, symbols) for name, attr in attrs.items()}


def _attr_at(attr: Any, symbols: Mapping[str, int]) -> Any:
    if isinstance(attr, tuple):
        return tuple(_attr_at(item, symbols) for item in attr)
    return value_of(attr, symbols) if isinstance(attr, Dim) else attr


def is_symbolic(attrs: Attrs) -> bool:
    """Whether any attribute depends on named dimensions."""
    return any(map(_has_dim, attrs.values()))


def _has_dim(attr: Any) -> bool:
    return any(map(_has_dim, attr)) if isinstance(attr, tuple) else isinstance(attr, Dim)
