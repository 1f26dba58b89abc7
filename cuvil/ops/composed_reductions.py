"""Reductions that are others with elementwise operators before or behind them.

Numerics: sums in the order of `cuvil.loops.reduce`, every other operation rounded once. Log-sum-exp and
log-softmax take the maximum away first; instance and group normalization are
`((x - mean) * (1 / sqrt(variance + epsilon))) * scale + bias`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from cuvil.errors import ModelError
from cuvil.ir.graph import Value
from cuvil.ops.activation import EXP, LOG
from cuvil.ops.axes import all_axes, integers, one_axis
from cuvil.ops.comparison import EQUAL, WHERE
from cuvil.ops.elementwise import ABS, ADD, MUL, RECIPROCAL, SQRT, SUB, scalar_constant
from cuvil.ops.foreign import ForeignNode, Importer
from cuvil.ops.reduction import REDUCTION_OPS, reduced
from cuvil.ops.reshape import reshaped

Step = Callable[[ForeignNode, Value], Value]


def _sum(node: ForeignNode, x: Value, axes: Sequence[int]) -> Value:
    return reduced(node, REDUCTION_OPS["reduce_sum"], x, axes, keepdims=True)


def _mean(node: ForeignNode, x: Value, axes: Sequence[int]) -> Value:
    return reduced(node, REDUCTION_OPS["reduce_mean"], x, axes, keepdims=True)


def _square(node: ForeignNode, x: Value) -> Value:
    return node.emit(MUL, [x, x])


def _around_sum(before: Step | None, behind: Step | None) -> Importer:
    """A sum of `before(x)`, and `behind` of it."""

    def total(node: ForeignNode, x: Value, axes: Sequence[int]) -> Value:
        value = _sum(node, before(node, x) if before else x, axes)
        return behind(node, value) if behind else value

    return _importer(total)


def _importer(total: Callable[[ForeignNode, Value, Sequence[int]], Value]) -> Importer:
    """`axes` is an operand from opset 18 on; without axes, all are reduced."""

    def load(node: ForeignNode) -> list[Value]:
        x = node.operand(0)
        given = integers(node, "axes", 1, since=18)
        if not given and node.attrs.get("noop_with_empty_axes", 0):
            return [total(node, x, ())]
        axes = sorted(all_axes(node, given or range(x.type.rank), x.type.rank))
        value = total(node, x, axes)
        if node.attrs.get("keepdims", 1):
            return [value]
        return [reshaped(node, value, [n for axis, n in enumerate(x.type.shape) if axis not in axes])]

    return load


def _log_sum_exp(node: ForeignNode, x: Value, axes: Sequence[int]) -> Value:
    """An infinite maximum is not taken away: inf - inf would be NaN."""
    largest = reduced(node, REDUCTION_OPS["reduce_max"], x, axes, keepdims=True)
    zero = scalar_constant(node, x, 0)
    finite = node.emit(EQUAL, [node.emit(SUB, [largest, largest]), zero])
    shift = node.emit(WHERE, [finite, largest, zero])
    total = _sum(node, node.emit(EXP, [node.emit(SUB, [x, shift])]), axes)
    return node.emit(ADD, [node.emit(LOG, [total]), shift])


def _import_log_softmax(node: ForeignNode) -> list[Value]:
    """From opset 13 on along one axis; before, along all axes from `axis` on together."""
    x = node.operand(0)
    old = node.opset < 13
    axis = one_axis(node, node.attrs.get("axis", 1 if old else -1), x.type.rank)
    axes = range(axis, x.type.rank) if old else (axis,)
    largest = reduced(node, REDUCTION_OPS["reduce_max"], x, axes, keepdims=True)
    shifted = node.emit(SUB, [x, largest])
    total = _sum(node, node.emit(EXP, [shifted]), axes)
    return [node.emit(SUB, [shifted, node.emit(LOG, [total])])]


def _import_instance_norm(node: ForeignNode) -> list[Value]:
    x = node.operand(0)
    if x.type.rank < 3:
        raise ModelError(f"{node.loc}: expected an operand with spatial axes, got {x.type}")
    return [_normalized(node, x, x.type.shape[1])]


def _import_group_norm(node: ForeignNode) -> list[Value]:
    """Scale and bias of a channel each since opset 21, of a group each before."""
    x, groups = node.operand(0), int(node.attrs["num_groups"])
    if x.type.rank < 2 or groups < 1 or x.type.shape[1] % groups:
        raise ModelError(f"{node.loc}: groups must divide the channels; got {groups} groups of {x.type}")
    return [_normalized(node, x, groups)]


def _normalized(node: ForeignNode, x: Value, groups: int) -> Value:
    n, channels, *spatial = x.type.shape
    parts = reshaped(node, x, (n, groups, channels // groups * math.prod(spatial)))
    centered = node.emit(SUB, [parts, _mean(node, parts, (2,))])
    variance = _mean(node, _square(node, centered), (2,))
    epsilon = scalar_constant(node, x, node.attrs.get("epsilon", 1e-5))
    deviation = node.emit(SQRT, [node.emit(ADD, [variance, epsilon])])
    value = node.emit(MUL, [centered, node.emit(RECIPROCAL, [deviation])])
    scale, bias = node.operand(1), node.operand(2)
    if scale.type.shape == (groups,):
        scale, bias = (reshaped(node, each, (groups, 1)) for each in (scale, bias))
    else:
        value = reshaped(node, value, x.type.shape)
        scale, bias = (reshaped(node, each, (channels, *(1,) * len(spatial))) for each in (scale, bias))
    value = node.emit(ADD, [node.emit(MUL, [value, scale]), bias])
    return reshaped(node, value, x.type.shape)


ONNX: dict[str, Importer] = {
    "ReduceL1": _around_sum(lambda node, x: node.emit(ABS, [x]), None),
    "ReduceL2": _around_sum(_square, lambda node, x: node.emit(SQRT, [x])),
    "ReduceSumSquare": _around_sum(_square, None),
    "ReduceLogSum": _around_sum(None, lambda node, x: node.emit(LOG, [x])),
    "ReduceLogSumExp": _importer(_log_sum_exp),
    "LogSoftmax": _import_log_softmax,
    "InstanceNormalization": _import_instance_norm,
    "GroupNormalization": _import_group_norm,
}
