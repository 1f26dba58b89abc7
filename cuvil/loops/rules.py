"""Which operand and result types go together, for every operation of the loop IR."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cuvil.ir.types import BOOL, DType
from cuvil.loops.kernel import COMPARISONS, Const, Op

Fault = tuple[str, str, str]
"""A broken rule, what was expected, and what was found."""

_Rule = Callable[[DType], bool]


def _number(dtype: DType) -> bool:
    return dtype.kind != "bool"


def _integer(dtype: DType) -> bool:
    return dtype.kind == "int"


def _float(dtype: DType) -> bool:
    return dtype.kind == "float"


def _bits(dtype: DType) -> bool:
    return dtype.kind != "float"


_SAME: dict[str, tuple[int, _Rule]] = {
    "add": (2, _number), "sub": (2, _number), "mul": (2, _number), "div": (2, _number), "rem": (2, _integer),
    "fma": (3, _float), "neg": (1, _number), "abs": (1, _number), "sqrt": (1, _float),
    "and": (2, _bits), "or": (2, _bits), "xor": (2, _bits), "not": (1, _bits),
    "shl": (2, _integer), "shr": (2, _integer),
}  # fmt: skip
"""Operations on operands of one type, which is their result's, too: how many, and of which types."""


def operation_fault(op: Op) -> Fault | None:
    """What is wrong with the types of an operation."""
    operands = [arg.dtype for arg in op.args]
    expected = _expected(op, operands)
    if expected is None:
        return None
    got = f"({', '.join(map(str, operands))}) -> {op.dtype}"
    return f"types of {op.opcode} do not go together", expected, got


def _expected(op: Op, operands: list[DType]) -> str | None:
    """The form that the types should have had; None where they have it."""
    if op.opcode in _SAME:
        count, allowed = _SAME[op.opcode]
        kind = allowed.__name__.strip("_")
        sound = operands == [op.dtype] * count and allowed(op.dtype)
        return None if sound else f"{count} of one {kind} type that is the result's, too"
    if op.opcode in COMPARISONS:
        ordered = op.opcode in ("eq", "ne") or BOOL not in operands
        sound = len(operands) == 2 and operands[0] == operands[1] and op.dtype == BOOL and ordered
        return None if sound else "2 of one type -> bool, and bools are only equal or not"
    return _expected_special(op, operands)


def _expected_special(op: Op, operands: list[DType]) -> str | None:
    if op.opcode == "select":
        return None if operands == [BOOL, op.dtype, op.dtype] else "(bool, T, T) -> T"
    if op.opcode == "bitcast":
        return None if [dtype.bits for dtype in operands] == [op.dtype.bits] else "1 of the result's size"
    if op.opcode == "cast":
        return None if len(operands) == 1 else "1 of any type"
    return "a known operation"


def constant_fault(const: Const) -> Fault | None:
    """What is wrong with a constant: it must be exact in its type."""
    if _is_exact(const):
        return None
    return "a constant is not exact in its type", f"a value of type {const.dtype}", repr(const.value)


def _is_exact(const: Const) -> bool:
    value, dtype = const.value, const.dtype
    if dtype.kind == "bool":
        return value in (0, 1)
    if dtype.kind == "int":
        limits = np.iinfo(dtype.numpy)
        return not isinstance(value, float) and limits.min <= value <= limits.max
    with np.errstate(over="ignore"):
        return bool(np.isnan(value)) or float(dtype.numpy.type(value)) == value
