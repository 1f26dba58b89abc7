"""Elementary functions and activations, element by element.

Activations that ONNX defines by others (Gelu, HardSwish, Softplus, ...) are imported as those others, one
rounding each; fusing makes one loop of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence

import numpy as np

from cuvil.ir.graph import Value
from cuvil.ir.op import Attrs, OpDef
from cuvil.ir.types import FLOAT32, Array, DType, TensorType
from cuvil.loops.kernel import Expr, compare, select
from cuvil.loops.kernel import maximum as larger
from cuvil.loops.kernel import minimum as smaller
from cuvil.ops import elementary
from cuvil.ops.comparison import LESS, WHERE
from cuvil.ops.elementwise import (
    ABS,
    ADD,
    DIV,
    FLOATS,
    MAXIMUM,
    MINIMUM,
    MUL,
    NEG,
    NUMBERS,
    check_arity,
    check_dtype,
    elementwise,
    importer,
    scalar_constant,
)
from cuvil.ops.foreign import ForeignNode, Importer


def _elementary(name: str, meaning: Callable[[Array], Array], scalar: Callable[[Expr], Expr]) -> OpDef:
    """A function that NumPy evaluates in float64 and rounds once; close to the contract's bits, not equal."""

    def rounded(x: Array) -> Array:
        return np.asarray(meaning(x.astype(np.float64))).astype(x.dtype)

    return elementwise(name, 1, (FLOAT32,), rounded, scalar, exact=False)


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def _erf(x: Array) -> Array:
    return np.asarray(np.frompyfunc(math.erf, 1, 1)(x)).astype(np.float64)


EXP = _elementary("exp", np.exp, elementary.exp)
LOG = _elementary("log", np.log, elementary.log)
TANH = _elementary("tanh", np.tanh, elementary.tanh)
SIGMOID = _elementary("sigmoid", _sigmoid, elementary.sigmoid)
ERF = _elementary("erf", _erf, elementary.erf)

RELU = elementwise(
    "relu", 1, NUMBERS, lambda x: np.where(x < 0, 0, x), lambda x: select(compare("lt", x, 0), 0, x)
)
"""Numerics: keeps NaN and -0."""


def _infer_like(dtypes: Collection[DType]) -> Callable[[Sequence[TensorType], Attrs], tuple[TensorType, ...]]:
    def infer(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        check_arity(types, 1)
        check_dtype(types[0].dtype, dtypes)
        return (types[0],)

    return infer


def _evaluate_leaky_relu(arrays: Sequence[Array], attrs: Attrs) -> tuple[Array, ...]:
    (x,) = arrays
    with np.errstate(all="ignore"):
        return (np.where(x < 0, x * x.dtype.type(attrs["alpha"]), x),)


def _scalar_leaky_relu(args: Sequence[Expr], attrs: Attrs) -> Expr:
    (x,) = args
    return select(compare("lt", x, 0.0), x * attrs["alpha"], x)


LEAKY_RELU = OpDef(
    "leaky_relu", _infer_like(FLOATS), _evaluate_leaky_relu, scalar=_scalar_leaky_relu, exact=True
)
"""Attributes: `alpha`, the slope below zero."""


def _evaluate_clip(arrays: Sequence[Array], attrs: Attrs) -> tuple[Array, ...]:
    (x,) = arrays
    for bound, beyond in (("min", np.less), ("max", np.greater)):
        if bound in attrs:
            limit = x.dtype.type(attrs[bound])
            x = np.where(beyond(x, limit), limit, x)
    return (x,)


def _scalar_clip(args: Sequence[Expr], attrs: Attrs) -> Expr:
    (x,) = args
    if "min" in attrs:
        x = larger(x, attrs["min"])
    return smaller(x, attrs["max"]) if "max" in attrs else x


CLIP = OpDef("clip", _infer_like(NUMBERS), _evaluate_clip, scalar=_scalar_clip, exact=True)
"""Attributes: `min` and `max`, each optional, neither NaN.

Numerics: keeps NaN; a value equal to a bound stays as it is, -0 included; `max` wins where `min` is larger.
"""

OPERATORS = (EXP, LOG, TANH, SIGMOID, ERF, RELU, LEAKY_RELU, CLIP)


def _float_attr(node: ForeignNode, name: str, default: float) -> float:
    """A float attribute with the precision that the model stores, which is float32."""
    return float(np.float32(node.attrs.get(name, default)))


def _scaled(node: ForeignNode, x: Value, factor: float) -> Value:
    return node.emit(MUL, [x, scalar_constant(node, x, factor)])


def _shifted(node: ForeignNode, x: Value, term: float) -> Value:
    return node.emit(ADD, [x, scalar_constant(node, x, term)])


def _where_negative(node: ForeignNode, x: Value, then: Value) -> Value:
    return node.emit(WHERE, [node.emit(LESS, [x, scalar_constant(node, x, 0)]), then, x])


def _import_leaky_relu(node: ForeignNode) -> list[Value]:
    return [node.emit(LEAKY_RELU, [node.operand(0)], {"alpha": _float_attr(node, "alpha", 0.01)})]


def _import_clip(node: ForeignNode) -> list[Value]:
    """Bounds are attributes up to opset 10, operands after."""
    x = node.operand(0)
    if node.opset < 11:
        bounds = {name: _float_attr(node, name, 0) for name in ("min", "max") if name in node.attrs}
        return [node.emit(CLIP, [x], bounds)] if bounds else [x]
    for position, name, op in ((1, "min", MAXIMUM), (2, "max", MINIMUM)):
        bound = node.optional(position)
        if bound is not None:
            x = _clip_one(node, x, bound, name, op)
    return [x]


def _clip_one(node: ForeignNode, x: Value, bound: Value, name: str, op: OpDef) -> Value:
    known = node.builder.constant_of(bound)
    if known is None or known.size != 1 or known != known or known.dtype != x.type.dtype.numpy:
        return node.emit(op, [x, bound])
    return node.emit(CLIP, [x], {name: known.reshape(()).item()})


def _import_gelu(node: ForeignNode) -> list[Value]:
    """`(0.5 * x) * (1 + erf(x * sqrt(1/2)))`, or the one with tanh."""
    x = node.operand(0)
    half = _scaled(node, x, 0.5)
    if node.attrs.get("approximate", "none") == "none":
        inner = node.emit(ERF, [_scaled(node, x, math.sqrt(0.5))])
    else:
        cube = node.emit(MUL, [node.emit(MUL, [x, x]), x])
        sum_ = node.emit(ADD, [x, _scaled(node, cube, 0.044715)])
        inner = node.emit(TANH, [_scaled(node, sum_, math.sqrt(2 / math.pi))])
    return [node.emit(MUL, [half, _shifted(node, inner, 1)])]


def _hard_sigmoid(node: ForeignNode, x: Value, alpha: float, beta: float) -> Value:
    return node.emit(CLIP, [_shifted(node, _scaled(node, x, alpha), beta)], {"min": 0.0, "max": 1.0})


def _import_hard_sigmoid(node: ForeignNode) -> list[Value]:
    alpha, beta = _float_attr(node, "alpha", 0.2), _float_attr(node, "beta", 0.5)
    return [_hard_sigmoid(node, node.operand(0), alpha, beta)]


def _import_hard_swish(node: ForeignNode) -> list[Value]:
    x = node.operand(0)
    return [node.emit(MUL, [x, _hard_sigmoid(node, x, 1 / 6, 0.5)])]


def _exponential(node: ForeignNode, x: Value, alpha: float) -> Value:
    """`alpha * (exp(x) - 1)`."""
    return _scaled(node, _shifted(node, node.emit(EXP, [x]), -1), alpha)


def _import_elu(node: ForeignNode) -> list[Value]:
    x = node.operand(0)
    return [_where_negative(node, x, _exponential(node, x, _float_attr(node, "alpha", 1)))]


def _import_selu(node: ForeignNode) -> list[Value]:
    x = node.operand(0)
    alpha = _float_attr(node, "alpha", 1.67326319217681884765625)
    gamma = _float_attr(node, "gamma", 1.05070102214813232421875)
    return [_scaled(node, _where_negative(node, x, _exponential(node, x, alpha)), gamma)]


def _softplus(node: ForeignNode, x: Value) -> Value:
    """`max(x, 0) + log(1 + exp(-|x|))`, which overflows nowhere."""
    decay = node.emit(EXP, [node.emit(NEG, [node.emit(ABS, [x])])])
    return node.emit(ADD, [node.emit(RELU, [x]), node.emit(LOG, [_shifted(node, decay, 1)])])


def _import_softplus(node: ForeignNode) -> list[Value]:
    return [_softplus(node, node.operand(0))]


def _import_softsign(node: ForeignNode) -> list[Value]:
    x = node.operand(0)
    return [node.emit(DIV, [x, _shifted(node, node.emit(ABS, [x]), 1)])]


def _import_mish(node: ForeignNode) -> list[Value]:
    x = node.operand(0)
    return [node.emit(MUL, [x, node.emit(TANH, [_softplus(node, x)])])]


def _import_swish(node: ForeignNode) -> list[Value]:
    x, alpha = node.operand(0), _float_attr(node, "alpha", 1)
    inner = x if alpha == 1 else _scaled(node, x, alpha)
    return [node.emit(MUL, [x, node.emit(SIGMOID, [inner])])]


def _import_prelu(node: ForeignNode) -> list[Value]:
    """The slope broadcasts to the operand, by the multidirectional rule."""
    x = node.operand(0)
    return [_where_negative(node, x, node.emit(MUL, [x, node.operand(1)]))]


def _import_thresholded_relu(node: ForeignNode) -> list[Value]:
    x = node.operand(0)
    alpha = scalar_constant(node, x, _float_attr(node, "alpha", 1))
    kept = node.emit(LESS, [alpha, x])
    return [node.emit(WHERE, [kept, x, scalar_constant(node, x, 0)])]


ONNX: dict[str, Importer] = {
    "Exp": importer(EXP, 1),
    "Log": importer(LOG, 1),
    "Tanh": importer(TANH, 1),
    "Sigmoid": importer(SIGMOID, 1),
    "Erf": importer(ERF, 1),
    "Relu": importer(RELU, 1),
    "LeakyRelu": _import_leaky_relu,
    "Clip": _import_clip,
    "Gelu": _import_gelu,
    "HardSigmoid": _import_hard_sigmoid,
    "HardSwish": _import_hard_swish,
    "Elu": _import_elu,
    "Selu": _import_selu,
    "Softplus": _import_softplus,
    "Softsign": _import_softsign,
    "Mish": _import_mish,
    "Swish": _import_swish,
    "PRelu": _import_prelu,
    "ThresholdedRelu": _import_thresholded_relu,
}
