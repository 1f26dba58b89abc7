"""Reductions over neighbouring axes, softmax and layer normalization over the last ones.

Numerics: sums and extrema run in the order of `cuvil.loops.reduce`, in the element type; a mean is the sum
divided by the count; extrema are NaN if any element is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from cuvil.errors import ModelError
from cuvil.exact import divide
from cuvil.ir.graph import Node, Value
from cuvil.ir.op import Attrs, OpDef
from cuvil.ir.types import BOOL, BY_NUMPY_NAME, FLOAT32, INT32, Array, DType, Shape, TensorType
from cuvil.loops.build import KernelBuilder
from cuvil.loops.kernel import Expr, maximum, minimum, sqrt
from cuvil.loops.reduce import LANES, TREE, emit_reduction
from cuvil.ops.axes import all_axes, integers, one_axis
from cuvil.ops.comparison import GREATER
from cuvil.ops.context import LowerContext
from cuvil.ops.conversion import convert
from cuvil.ops.elementary import exp
from cuvil.ops.elementwise import NUMBERS, check_dtype, common_dtype, scalar_constant
from cuvil.ops.foreign import ForeignNode, Importer
from cuvil.ops.movement import EXPAND, transposed
from cuvil.ops.reshape import reshaped


@dataclass(frozen=True)
class _Reduction:
    """What is done with the elements; `extreme` is +1 for a neutral element of +inf, -1 for -inf.

    All others start at `start`.
    """

    loops: Callable[[Expr, Expr], Expr]
    numpy: Callable[[Array, Array], Array]
    extreme: int = 0
    mean: bool = False
    start: int = 0

    def neutral(self, dtype: DType) -> int | float:
        if not self.extreme:
            return self.start
        if dtype.kind == "float":
            return self.extreme * math.inf
        limits = np.iinfo(dtype.numpy)
        return int(limits.max if self.extreme > 0 else limits.min)


_REDUCTIONS = {
    "reduce_sum": _Reduction(lambda a, b: a + b, np.add),
    "reduce_mean": _Reduction(lambda a, b: a + b, np.add, mean=True),
    "reduce_prod": _Reduction(lambda a, b: a * b, np.multiply, start=1),
    "reduce_max": _Reduction(maximum, np.maximum, extreme=-1),
    "reduce_min": _Reduction(minimum, np.minimum, extreme=1),
}


def _infer_reduction(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    (operand,) = operands
    check_dtype(operand.dtype, NUMBERS)
    axes: tuple[int, ...] = attrs["axes"]
    if list(axes) != list(range(axes[0], axes[0] + len(axes))) or not 0 <= axes[0] <= axes[-1] < operand.rank:
        raise ModelError(f"reduction: expected neighbouring axes in order, got {axes} of {operand}")
    kept = 1 if attrs["keepdims"] else 0
    shape = operand.shape[: axes[0]] + (1,) * len(axes) * kept + operand.shape[axes[-1] + 1 :]
    return (TensorType(operand.dtype, shape),)


def _split(shape: Shape, axes: Sequence[int]) -> tuple[int, int, int]:
    """Extents before, within and after the reduced axes."""
    first, last = axes[0], axes[-1] + 1
    return math.prod(shape[:first]), math.prod(shape[first:last]), math.prod(shape[last:])


def reduce_array(array: Array, combine: Callable[[Array, Array], Array], neutral: int | float) -> Array:
    """Reduces the middle axis of [outer, extent, inner] in the contract's order."""
    outer, extent, inner = array.shape
    lanes = np.full((outer, LANES, inner), neutral, array.dtype)
    for start in range(0, extent, LANES):
        block = array[:, start : start + LANES]
        width = block.shape[1]
        lanes[:, :width] = combine(lanes[:, :width], block)
    for step in TREE:
        lanes[:, :step] = combine(lanes[:, :step], lanes[:, step : 2 * step])
    return np.asarray(lanes[:, 0])


def _evaluate_reduction(name: str) -> Callable[[Sequence[Array], Attrs], tuple[Array, ...]]:
    reduction = _REDUCTIONS[name]

    def evaluate(operands: Sequence[Array], attrs: Attrs) -> tuple[Array, ...]:
        (array,) = operands
        (result,) = _infer_reduction([TensorType(_dtype(array), array.shape)], attrs)
        extents = _split(array.shape, attrs["axes"])
        with np.errstate(all="ignore"):
            total = reduce_array(array.reshape(extents), reduction.numpy, reduction.neutral(_dtype(array)))
            if reduction.mean:
                total = divide(total, np.asarray(extents[1], array.dtype))
        return (total.reshape(result.shape),)

    return evaluate


def _dtype(array: Array) -> DType:
    return BY_NUMPY_NAME[array.dtype.name]


def _lower_reduction(ctx: LowerContext, node: Node) -> None:
    reduction = _REDUCTIONS[node.op.name]
    (operand,) = node.operands
    dtype = operand.type.dtype
    outer, extent, inner = _split(operand.type.shape, node.attrs["axes"])
    b = KernelBuilder(node.op.name)
    x = b.input("x", dtype, (outer, extent, inner))
    writer = ctx.writer(b, node.result, (outer, inner))

    def emit(row: Expr, column: Expr) -> None:
        total = emit_reduction(
            b, dtype, extent, reduction.neutral(dtype), reduction.loops, lambda k: b.load(x, (row, k, column))
        )
        if reduction.mean:
            total = total / extent
        writer.store((row, column), total)

    if inner == 1:
        with b.loop("row", outer, parallel=True) as row:
            emit(row, row * 0)
    else:
        with b.loop("row", outer, parallel=True) as row, b.loop("column", inner, "vector") as column:
            emit(row, column)
    ctx.call(b.finish(), [operand, *writer.operands], flops=operand.type.count)


# Softmax over the last axis


def _infer_same(operands: Sequence[TensorType], _: Attrs) -> tuple[TensorType, ...]:
    check_dtype(operands[0].dtype, (FLOAT32,))
    if operands[0].rank < 1:
        raise ModelError(f"softmax: expected a tensor with at least one axis, got {operands[0]}")
    return (operands[0],)


def _evaluate_softmax(operands: Sequence[Array], _: Attrs) -> tuple[Array, ...]:
    (x,) = operands
    rows = x.reshape(-1, x.shape[-1], 1)
    with np.errstate(all="ignore"):
        largest = reduce_array(rows, np.maximum, -math.inf)[:, None]
        powers = np.exp((rows - largest).astype(np.float64)).astype(np.float32)
        total = reduce_array(powers, np.add, 0.0)[:, None]
        return ((powers / total).reshape(x.shape),)


def _lower_softmax(ctx: LowerContext, node: Node) -> None:
    (operand,) = node.operands
    *lead, extent = operand.type.shape
    rows = math.prod(lead)
    b = KernelBuilder("softmax")
    x = b.input("x", FLOAT32, (rows, extent))
    y = b.output("y", FLOAT32, (rows, extent))
    with b.loop("row", rows, parallel=True) as row:
        largest = emit_reduction(b, FLOAT32, extent, -math.inf, maximum, lambda k: b.load(x, (row, k)))
        with b.loop("k", extent, "vector") as k:
            b.store(y, (row, k), exp(b.load(x, (row, k)) - largest))
        total = emit_reduction(b, FLOAT32, extent, 0.0, lambda p, q: p + q, lambda k: b.load(y, (row, k)))
        with b.loop("k", extent, "vector") as k:
            b.store(y, (row, k), b.load(y, (row, k)) / total)
    ctx.call(b.finish(), [operand, node.result], flops=20 * operand.type.count)


# Layer normalization over the last `axes` axes; operands: x, scale, bias


def _infer_layer_norm(operands: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    check_dtype(common_dtype(operands), (FLOAT32,))
    x, *affine = operands
    normalized = x.shape[x.rank - attrs["axes"] :]
    for operand in affine:
        if operand.shape != normalized:
            raise ModelError(f"layer_norm: expected scale and bias f32{list(normalized)}, got {operand}")
    return (x,)


def _evaluate_layer_norm(operands: Sequence[Array], attrs: Attrs) -> tuple[Array, ...]:
    x, scale, bias = operands
    count = math.prod(x.shape[x.ndim - attrs["axes"] :])
    rows = x.reshape(-1, count, 1)
    with np.errstate(all="ignore"):
        mean = reduce_array(rows, np.add, 0.0)[:, None] / np.float32(count)
        centered = rows - mean
        variance = reduce_array(centered * centered, np.add, 0.0)[:, None] / np.float32(count)
        inverse = np.float32(1) / np.sqrt(variance + np.float32(attrs["epsilon"]))
        normalized = centered * inverse
        return ((normalized * scale.reshape(-1, 1) + bias.reshape(-1, 1)).reshape(x.shape),)


def _lower_layer_norm(ctx: LowerContext, node: Node) -> None:
    operand, scale, bias = node.operands
    count = scale.type.count
    rows = operand.type.count // max(1, count)
    b = KernelBuilder("layer_norm")
    x = b.input("x", FLOAT32, (rows, count))
    gain, offset = b.input("scale", FLOAT32, (count,)), b.input("bias", FLOAT32, (count,))
    writer = ctx.writer(b, node.result, (rows, count))
    epsilon = float(np.float32(node.attrs["epsilon"]))

    def add(p: Expr, q: Expr) -> Expr:
        return p + q

    with b.loop("row", rows, parallel=True) as row:
        total = emit_reduction(b, FLOAT32, count, 0.0, add, lambda k: b.load(x, (row, k)))
        mean = b.let("mean", total / float(count))

        def squared(k: Expr) -> Expr:
            centered = b.load(x, (row, k)) - mean
            return centered * centered

        squares = emit_reduction(b, FLOAT32, count, 0.0, add, squared)
        inverse = b.let("inverse", 1.0 / sqrt(squares / float(count) + epsilon))
        with b.loop("k", count, "vector") as k:
            normalized = (b.load(x, (row, k)) - mean) * inverse
            writer.store((row, k), normalized * b.load(gain, (k,)) + b.load(offset, (k,)))
    ctx.call(b.finish(), [operand, scale, bias, *writer.operands], flops=8 * operand.type.count)


SOFTMAX = OpDef("softmax", _infer_same, _evaluate_softmax, lower=_lower_softmax)
LAYER_NORM = OpDef("layer_norm", _infer_layer_norm, _evaluate_layer_norm, lower=_lower_layer_norm)
REDUCTION_OPS: dict[str, OpDef] = {
    name: OpDef(name, _infer_reduction, _evaluate_reduction(name), lower=_lower_reduction)
    for name in _REDUCTIONS
}

OPERATORS = (SOFTMAX, LAYER_NORM, *REDUCTION_OPS.values())


BOOL_SINCE = 20
"""The opset from which ONNX takes the extrema of booleans."""


def _import_reduction(op: OpDef, axes_since: int) -> Importer:
    """`axes` is an operand from opset `axes_since` on; without axes, all are reduced."""

    def load(node: ForeignNode) -> list[Value]:
        x = node.operand(0)
        axes = integers(node, "axes", 1, axes_since)
        if not axes and node.attrs.get("noop_with_empty_axes", 0):
            return [x]
        chosen = sorted(all_axes(node, axes or range(x.type.rank), x.type.rank))
        keepdims = bool(node.attrs.get("keepdims", 1))
        if x.type.dtype != BOOL:
            return [reduced(node, op, x, chosen, keepdims=keepdims)]
        if node.op_type not in ("ReduceMax", "ReduceMin") or node.opset < BOOL_SINCE:
            raise node.unsupported("the element type bool")
        # Above zero: also right for the neutral elements, which empty axes give.
        value = reduced(node, op, convert(node, x, INT32), chosen, keepdims=keepdims)
        return [node.emit(GREATER, [value, scalar_constant(node, value, 0)])]

    return load


def reduced(node: ForeignNode, op: OpDef, x: Value, axes: Sequence[int], *, keepdims: bool) -> Value:
    """Reduces any ascending axes: ones that are not neighbours are brought to the end first."""
    rank = x.type.rank
    if not axes:
        return x
    shape = [1 if axis in axes else extent for axis, extent in enumerate(x.type.shape)]
    final = shape if keepdims else [extent for axis, extent in enumerate(shape) if axis not in axes]
    if list(axes) != list(range(axes[0], axes[0] + len(axes))):
        x = transposed(node, x, [axis for axis in range(rank) if axis not in axes] + list(axes))
        axes = range(rank - len(axes), rank)
    value = node.emit(op, [x], {"axes": tuple(axes), "keepdims": False})
    return reshaped(node, value, final)


def _import_global_pool(op: OpDef) -> Importer:
    def load(node: ForeignNode) -> list[Value]:
        """Channels go last, as in all pooling; the spatial axes are then neighbours before them."""
        x = node.operand(0)
        rank = x.type.rank
        moved = transposed(node, x, (0, *range(2, rank), 1))
        value = node.emit(op, [moved], {"axes": tuple(range(1, rank - 1)), "keepdims": True})
        return [transposed(node, value, (0, rank - 1, *range(1, rank - 1)))]

    return load


def _import_softmax(node: ForeignNode) -> list[Value]:
    """From opset 13 on along one axis; before, along all axes from `axis` on together."""
    x = node.operand(0)
    rank = x.type.rank
    if node.opset < 13:
        axis = one_axis(node, node.attrs.get("axis", 1), rank)
        flat = reshaped(node, x, (math.prod(x.type.shape[:axis]), math.prod(x.type.shape[axis:])))
        return [reshaped(node, node.emit(SOFTMAX, [flat]), x.type.shape)]
    axis = one_axis(node, node.attrs.get("axis", -1), rank)
    if axis == rank - 1:
        return [node.emit(SOFTMAX, [x])]
    swap = list(range(rank))
    swap[axis], swap[-1] = swap[-1], swap[axis]
    return [transposed(node, node.emit(SOFTMAX, [transposed(node, x, swap)]), swap)]


def _import_layer_norm(node: ForeignNode) -> list[Value]:
    if len(node.result_names) > 1:
        raise node.unsupported("the mean or the deviation as a result")
    x, scale, bias = node.operand(0), node.operand(1), node.optional(2)
    axis = one_axis(node, node.attrs.get("axis", -1), x.type.rank)
    normalized = x.type.shape[axis:]
    if bias is None:
        bias = node.builder.constant(np.zeros(normalized, np.float32))
    affine = [_as_normalized(node, value, normalized) for value in (scale, bias)]
    attrs = {"axes": len(normalized), "epsilon": float(node.attrs.get("epsilon", 1e-5))}
    return [node.emit(LAYER_NORM, [x, *affine], attrs)]


def _as_normalized(node: ForeignNode, value: Value, shape: Shape) -> Value:
    if value.type.count == math.prod(shape):
        return reshaped(node, value, shape)
    return node.emit(EXPAND, [value], {"shape": shape})


ONNX: dict[str, Importer] = {
    "ReduceSum": _import_reduction(REDUCTION_OPS["reduce_sum"], 13),
    "ReduceMean": _import_reduction(REDUCTION_OPS["reduce_mean"], 18),
    "ReduceProd": _import_reduction(REDUCTION_OPS["reduce_prod"], 18),
    "ReduceMax": _import_reduction(REDUCTION_OPS["reduce_max"], 18),
    "ReduceMin": _import_reduction(REDUCTION_OPS["reduce_min"], 18),
    "GlobalAveragePool": _import_global_pool(REDUCTION_OPS["reduce_mean"]),
    "GlobalMaxPool": _import_global_pool(REDUCTION_OPS["reduce_max"]),
    "Softmax": _import_softmax,
    "LayerNormalization": _import_layer_norm,
}
