"""Comparisons, logic and selection, element by element."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cuvil.errors import ModelError
from cuvil.ir.op import Attrs, OpDef
from cuvil.ir.types import BOOL, DTYPES, Array, TensorType
from cuvil.loops.kernel import compare, logical, negate, select
from cuvil.ops.elementwise import (
    NUMBERS,
    broadcast_shape,
    check_arity,
    common_dtype,
    elementwise,
    importer,
)
from cuvil.ops.foreign import Importer

EQUAL = elementwise("equal", 2, DTYPES, np.equal, lambda a, b: compare("eq", a, b), result=BOOL)
LESS = elementwise("less", 2, NUMBERS, np.less, lambda a, b: compare("lt", a, b), result=BOOL)
LESS_OR_EQUAL = elementwise(
    "less_or_equal", 2, NUMBERS, np.less_equal, lambda a, b: compare("le", a, b), result=BOOL
)
GREATER = elementwise("greater", 2, NUMBERS, np.greater, lambda a, b: compare("gt", a, b), result=BOOL)
GREATER_OR_EQUAL = elementwise(
    "greater_or_equal", 2, NUMBERS, np.greater_equal, lambda a, b: compare("ge", a, b), result=BOOL
)
NOT = elementwise("not", 1, (BOOL,), np.logical_not, negate)
AND = elementwise("and", 2, (BOOL,), np.logical_and, lambda a, b: logical("and", a, b))
OR = elementwise("or", 2, (BOOL,), np.logical_or, lambda a, b: logical("or", a, b))
XOR = elementwise("xor", 2, (BOOL,), np.logical_xor, lambda a, b: logical("xor", a, b))


def _infer_where(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    check_arity(types, 3)
    if types[0].dtype != BOOL:
        raise ModelError(f"condition has the wrong element type; expected bool, got {types[0].dtype.name}")
    return (TensorType(common_dtype(types[1:]), broadcast_shape([operand.shape for operand in types])),)


def _evaluate_where(arrays: Sequence[Array], attrs: Attrs) -> tuple[Array, ...]:
    return (np.where(*arrays),)


WHERE = OpDef(
    "where",
    _infer_where,
    _evaluate_where,
    scalar=lambda args, attrs: select(args[0], args[1], args[2]),
    exact=True,
)

OPERATORS = (EQUAL, LESS, LESS_OR_EQUAL, GREATER, GREATER_OR_EQUAL, NOT, AND, OR, XOR, WHERE)

ONNX: dict[str, Importer] = {
    "Equal": importer(EQUAL, 2),
    "Less": importer(LESS, 2),
    "LessOrEqual": importer(LESS_OR_EQUAL, 2),
    "Greater": importer(GREATER, 2),
    "GreaterOrEqual": importer(GREATER_OR_EQUAL, 2),
    "Not": importer(NOT, 1),
    "And": importer(AND, 2),
    "Or": importer(OR, 2),
    "Xor": importer(XOR, 2),
    "Where": importer(WHERE, 3),
}
