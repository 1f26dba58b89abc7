"""Operators that are a choice by a mask: triangles and one-hot vectors."""

from __future__ import annotations

import numpy as np

from cuvil.errors import ModelError
from cuvil.ir.graph import Value
from cuvil.ir.types import INT64
from cuvil.ops.axes import one_axis
from cuvil.ops.comparison import EQUAL, LESS, WHERE
from cuvil.ops.conversion import convert
from cuvil.ops.elementwise import ADD, scalar_constant
from cuvil.ops.foreign import ForeignNode, Importer
from cuvil.ops.movement import sliced
from cuvil.ops.reshape import reshaped


def _import_trilu(node: ForeignNode) -> list[Value]:
    """The part above or below a diagonal, zeros elsewhere."""
    x, k = node.operand(0), node.optional_constant(1, "k")
    if x.type.rank < 2:
        raise ModelError(f"{node.loc}: expected a matrix, got {x.type}")
    offset = 0 if k is None else int(k.reshape(()))
    ones = np.ones(x.type.shape[-2:], np.bool_)
    kept = np.triu(ones, offset) if node.attrs.get("upper", 1) else np.tril(ones, offset)
    return [node.emit(WHERE, [node.builder.constant(kept), x, scalar_constant(node, x, 0)])]


def _import_one_hot(node: ForeignNode) -> list[Value]:
    """An index that is out of range, on either side, gives the value for off everywhere."""
    indices, values = convert(node, node.operand(0), INT64), node.operand(2)
    depth = int(node.constant(1, "depth").reshape(()))
    if depth < 1 or values.type.shape != (2,):
        raise ModelError(f"{node.loc}: expected a depth above 0 and 2 values, got {depth} and {values.type}")
    axis = one_axis(node, node.attrs.get("axis", -1), indices.type.rank + 1)
    shape = (*indices.type.shape[:axis], 1, *indices.type.shape[axis:])
    negative = node.emit(LESS, [indices, scalar_constant(node, indices, 0)])
    wrapped = node.emit(ADD, [indices, scalar_constant(node, indices, depth)])
    at = reshaped(node, node.emit(WHERE, [negative, wrapped, indices]), shape)
    steps = np.arange(depth).reshape(-1, *(1,) * (indices.type.rank - axis))
    hot = node.emit(EQUAL, [at, node.builder.constant(steps)])
    off, on = (reshaped(node, sliced(node, values, 0, i, 1), ()) for i in (0, 1))
    return [node.emit(WHERE, [hot, on, off])]


ONNX: dict[str, Importer] = {"Trilu": _import_trilu, "OneHot": _import_one_hot}
