"""How kernel values look in LLVM IR: types, constants, and affine offsets."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from cuvil.ir.types import BOOL, FLOAT32, FLOAT64, INT32, INT64, DType

_SCALARS = {FLOAT32: "float", FLOAT64: "double", INT32: "i32", INT64: "i64", BOOL: "i1"}
_SUFFIXES = {FLOAT32: "f32", FLOAT64: "f64", INT32: "i32", INT64: "i64", BOOL: "i1"}


def llvm_type(dtype: DType, lanes: int = 1) -> str:
    """The type of a value in a register; booleans are `i1`."""
    return _vector(_SCALARS[dtype], lanes)


def memory_type(dtype: DType, lanes: int = 1) -> str:
    """The type of a value in memory; booleans are bytes."""
    return _vector("i8" if dtype == BOOL else _SCALARS[dtype], lanes)


def _vector(scalar: str, lanes: int) -> str:
    return scalar if lanes == 1 else f"<{lanes} x {scalar}>"


def intrinsic_suffix(dtype: DType, lanes: int) -> str:
    """`f32`, `v8f32`, ...: how intrinsics name their overloads."""
    return _SUFFIXES[dtype] if lanes == 1 else f"v{lanes}{_SUFFIXES[dtype]}"


def literal(value: int | float | bool, dtype: DType) -> str:
    """A scalar constant; floats by their bits, so that no decimal conversion is involved."""
    if dtype.kind == "bool":
        return "true" if value else "false"
    if dtype.kind == "int":
        return str(int(value))
    return f"0x{struct.unpack('>Q', struct.pack('>d', float(value)))[0]:016X}"


@dataclass(frozen=True)
class Register:
    """An SSA value or literal of `lanes` elements; `lanes` is 1 for one that all lanes share."""

    ref: str
    dtype: DType
    lanes: int = 1

    @property
    def type(self) -> str:
        return llvm_type(self.dtype, self.lanes)

    @property
    def constant(self) -> int | None:
        """The value of an integer literal that all lanes share; None for anything else."""
        text = self.ref.removeprefix(f"splat ({llvm_type(self.dtype)} ").removesuffix(")")
        return int(text) if self.dtype.kind == "int" and text.removeprefix("-").isdigit() else None

    def __str__(self) -> str:
        return f"{self.type} {self.ref}"


def wrapped(value: int) -> int:
    """`value` modulo 2^64, as an int64: what integer arithmetic in the loop IR means."""
    return (value + 2**63) % 2**64 - 2**63


@dataclass(frozen=True)
class Affine:
    """An int64: `constant` + sum of coefficient * SSA value + `lane` * lane number, modulo 2^64."""

    constant: int = 0
    terms: dict[str, int] = field(default_factory=dict)
    lane: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "constant", wrapped(self.constant))
        object.__setattr__(self, "lane", wrapped(self.lane))
        object.__setattr__(self, "terms", {ref: wrapped(factor) for ref, factor in self.terms.items()})

    def plus(self, other: Affine) -> Affine:
        terms = dict(self.terms)
        for ref, coefficient in other.terms.items():
            terms[ref] = terms.get(ref, 0) + coefficient
        return Affine(self.constant + other.constant, terms, self.lane + other.lane)

    def times(self, factor: int) -> Affine:
        terms = {ref: coefficient * factor for ref, coefficient in self.terms.items()}
        return Affine(self.constant * factor, terms, self.lane * factor)

    @property
    def is_constant(self) -> bool:
        return self.lane == 0 and not any(self.terms.values())
