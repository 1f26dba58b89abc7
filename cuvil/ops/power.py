"""Powers: written out as products where the exponent is a small whole number, else by one function."""

from __future__ import annotations

import numpy as np

from cuvil.ir.graph import Value
from cuvil.ir.types import FLOAT32, Array
from cuvil.ops import elementary
from cuvil.ops.conversion import convert
from cuvil.ops.elementwise import MUL, RECIPROCAL, SQRT, elementwise
from cuvil.ops.foreign import ForeignNode, Importer

LARGEST_EXPONENT = 8
"""Of a power that is written out as products."""


def _meaning(x: Array, y: Array) -> Array:
    return np.asarray(np.power(x.astype(np.float64), y.astype(np.float64)).astype(x.dtype))


POWER = elementwise("power", 2, (FLOAT32,), _meaning, elementary.power, exact=False)

OPERATORS = (POWER,)


def _import_pow(node: ForeignNode) -> list[Value]:
    """The result has the type of the base.

    Numerics: with a constant exponent, one rounding an operation: x**3 is `(x * x) * x`, x**0.5 is `sqrt(x)`,
    x**-2 is `1 / (x * x)`; with any other one, a single function.
    """
    base, exponent = node.operand(0), node.operand(1)
    known = node.builder.constant_of(exponent)
    if known is not None and known.size == 1 and known.ndim <= base.type.rank:
        result = _written_out(node, base, float(known.reshape(())))
        if result is not None:
            return [result]
    if base.type.dtype != FLOAT32:
        raise node.unsupported(f"such an exponent on {base.type.dtype.name}")
    return [node.emit(POWER, [base, convert(node, exponent, FLOAT32)])]


def _written_out(node: ForeignNode, base: Value, power: float) -> Value | None:
    if power == 0:
        return node.builder.constant(np.ones(base.type.shape, base.type.dtype.numpy))
    if power in range(1, LARGEST_EXPONENT + 1):
        return _repeated(node, base, int(power))
    if base.type.dtype.kind != "float":
        return None
    if power in range(-LARGEST_EXPONENT, 0):
        return node.emit(RECIPROCAL, [_repeated(node, base, -int(power))])
    root = node.emit(SQRT, [base]) if power in (0.5, -0.5) else None
    return node.emit(RECIPROCAL, [root]) if root is not None and power < 0 else root


def _repeated(node: ForeignNode, base: Value, times: int) -> Value:
    value = base
    for _ in range(times - 1):
        value = node.emit(MUL, [value, base])
    return value


ONNX: dict[str, Importer] = {"Pow": _import_pow}
