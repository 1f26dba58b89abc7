"""Values that are known at compile time: written in the model, or computed from shapes."""

from __future__ import annotations

from typing import Any

import numpy as np

from cuvil.errors import ModelError
from cuvil.ir.dims import is_fixed
from cuvil.ir.graph import Value
from cuvil.ir.types import BY_NUMPY_NAME, INT64, Array
from cuvil.ops.extents import emit_extents, emit_range, expanded
from cuvil.ops.foreign import ForeignNode, Importer

_CONSTANT_FORMS: dict[str, Any] = {
    "value": None,
    "value_float": np.float32,
    "value_floats": np.float32,
    "value_int": np.int64,
    "value_ints": np.int64,
}


_RANGE_OPERANDS = ("start", "limit", "delta")


def _constant(node: ForeignNode, array: Array) -> list[Value]:
    if array.dtype.name not in BY_NUMPY_NAME:
        raise node.unsupported(f"element type {array.dtype.name}")
    return [node.builder.constant(array, node.result_names[0])]


def _import_constant(node: ForeignNode) -> list[Value]:
    for name, dtype in _CONSTANT_FORMS.items():
        if name in node.attrs:
            return _constant(node, np.asarray(node.attrs[name], dtype))
    raise node.unsupported(f"attribute {', '.join(node.attrs)!r}")


def _import_constant_of_shape(node: ForeignNode) -> list[Value]:
    shape = node.extents(0, "shape")
    if any(extent < 0 for extent in shape):
        raise ModelError(f"{node.loc}: shape is negative; expected extents of 0 or more, got {list(shape)}")
    value = node.attrs.get("value", np.zeros(1, np.float32))
    if not all(map(is_fixed, shape)):
        return [expanded(node, value, shape)]
    return _constant(node, np.full(shape, value.reshape(-1)[0], value.dtype))


def _import_shape(node: ForeignNode) -> list[Value]:
    shape = node.operand(0).type.shape
    part = shape[node.attrs.get("start", 0) : node.attrs.get("end", len(shape))]
    return [emit_extents(node, np.array(part, object), INT64)]


def _import_size(node: ForeignNode) -> list[Value]:
    return [emit_extents(node, np.array(node.operand(0).type.count, object), INT64)]


def _import_range(node: ForeignNode) -> list[Value]:
    """`start + i * delta`, each rounded as that says."""
    dtype = node.operand(0).type.dtype
    if dtype.kind == "int":
        (first,), (end,), (step,) = (node.extents(i, what) for i, what in enumerate(_RANGE_OPERANDS))
        if not (is_fixed(first) and is_fixed(end)):
            return [emit_range(node, first, end, step, dtype)]
    start, limit, delta = (node.constant(i, what).reshape(()) for i, what in enumerate(_RANGE_OPERANDS))
    if delta == 0:
        raise ModelError(f"{node.loc}: delta is 0")
    if start.dtype.kind == "f":
        count = max(0, int(np.ceil((float(limit) - float(start)) / float(delta))))
    else:
        count = len(range(int(start), int(limit), int(delta)))
    steps = np.arange(count).astype(start.dtype)
    return _constant(node, np.asarray(start + steps * delta, start.dtype))


def _import_dropout(node: ForeignNode) -> list[Value]:
    """Inference: the operand itself, and a mask that keeps everything."""
    x = node.operand(0)
    training = node.optional_constant(2, "training_mode")
    if training is not None and training.any():
        raise node.unsupported("training mode")
    results = [x]
    if len(node.result_names) > 1:
        mask = np.ones(x.type.shape, np.bool_ if node.opset >= 10 else x.type.dtype.numpy)
        results.append(node.builder.constant(mask, node.result_names[1]))
    return results


ONNX: dict[str, Importer] = {
    "Constant": _import_constant,
    "ConstantOfShape": _import_constant_of_shape,
    "Shape": _import_shape,
    "Size": _import_size,
    "Range": _import_range,
    "Dropout": _import_dropout,
}
