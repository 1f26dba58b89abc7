"""The largest or smallest elements along the last axis, and where they are.

Numerics: equal elements (+0 and -0 among them) keep their order. NaN counts as larger than every number,
and NaNs as equal; for ArgMin it comes first nevertheless, as it does in NumPy and PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from cuvil.errors import ModelError
from cuvil.ir.graph import Node, Value
from cuvil.ir.op import Attrs, OpDef
from cuvil.ir.types import INT32, INT64, Array, DType, TensorType
from cuvil.loops.build import KernelBuilder
from cuvil.loops.kernel import (
    Buffer,
    Expr,
    Var,
    bitcast,
    compare,
    logical,
    negate,
    select,
    shift_right,
)
from cuvil.ops.axes import one_axis
from cuvil.ops.context import LowerContext
from cuvil.ops.elementwise import NUMBERS, SUB, check_arity, check_dtype, scalar_constant
from cuvil.ops.foreign import ForeignNode, Importer
from cuvil.ops.movement import SLICE, transposed
from cuvil.ops.reshape import reshaped


def _infer(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    check_arity(types, 1)
    (x,) = types
    check_dtype(x.dtype, NUMBERS)
    if x.rank < 1 or not 0 <= attrs["k"] <= x.shape[-1]:
        raise ModelError(f"k is out of range; expected 0 <= k <= the last extent of {x}, got {attrs['k']}")
    shape = (*x.shape[:-1], attrs["k"])
    return (TensorType(x.dtype, shape), TensorType(INT64, shape))


def _evaluate(arrays: Sequence[Array], attrs: Attrs) -> tuple[Array, ...]:
    (x,) = arrays
    nan = x != x
    ordered = np.where(nan, 0, x)
    if attrs["largest"]:
        ordered = -ordered if x.dtype.kind == "f" else ~ordered
    first = nan == bool(attrs["largest"] or attrs["nan_first"])
    keys = (ordered, ~first) if nan.any() else (ordered,)
    at = np.lexsort(keys, axis=-1)[..., : attrs["k"]]
    return (np.take_along_axis(x, at, axis=-1), at.astype(np.int64))


def _lower(ctx: LowerContext, node: Node) -> None:
    """Each pick is the best element that comes after the pick before it: k passes over a row."""
    (operand,) = node.operands
    values, indices = node.results
    dtype, extent, k = operand.type.dtype, operand.type.shape[-1], node.attrs["k"]
    rows = math.prod(operand.type.shape[:-1])
    b = KernelBuilder("top_k")
    x = b.input("x", dtype, (rows, extent))
    y, at = b.output("y", dtype, (rows, k)), b.output("at", INT64, (rows, k))
    with b.loop("row", rows, parallel=True) as row:
        last_key = b.local("last_key", _key_type(dtype))
        last, best = b.local("last", INT64), b.local("best", INT64)
        b.store(last, (), -1)
        b.store(last_key, (), 0)
        with b.loop("pick", k) as pick:
            _emit_pick(b, x, row, (last_key, last, best), node.attrs)
            b.store(y, (row, pick), b.load(x, (row, b.load(best))))
            b.store(at, (row, pick), b.load(best))
    ctx.call(b.finish(), [operand, values, indices], flops=4 * rows * extent * k)


def _emit_pick(
    b: KernelBuilder, x: Buffer, row: Var, locals_: tuple[Buffer, Buffer, Buffer], attrs: Attrs
) -> None:
    """Leaves the next element's position in `best` and `last`, and its key in `last_key`.

    Among equal keys the first one wins, since only a larger key replaces the best so far. Before the first
    pick (`last` is -1) every element is open.
    """
    last_key, last, best = locals_
    best_key = b.local("best_key", last_key.dtype)
    b.store(best, (), -1)
    b.store(best_key, (), 0)
    with b.loop("i", x.shape[1]) as i:
        key = b.let("key", _key(b.load(x, (row, i)), attrs))
        same = logical("and", compare("eq", key, b.load(last_key)), compare("gt", i, b.load(last)))
        after = logical("or", compare("lt", key, b.load(last_key)), same)
        after = logical("or", after, compare("lt", b.load(last), 0))
        better = logical("or", compare("lt", b.load(best), 0), compare("gt", key, b.load(best_key)))
        takes = b.let("takes", logical("and", after, better))
        b.store(best, (), select(takes, i, b.load(best)))
        b.store(best_key, (), select(takes, key, b.load(best_key)))
    b.store(last, (), b.load(best))
    b.store(last_key, (), b.load(best_key))


def _key_type(dtype: DType) -> DType:
    return INT64 if dtype.bits == 64 else INT32


def _key(x: Expr, attrs: Attrs) -> Expr:
    """An integer that is larger for what is to be picked first, and equal where elements are equal."""
    if x.dtype.kind == "int":
        return x if attrs["largest"] else negate(x)
    kind = _key_type(x.dtype)
    greatest = 2 ** (kind.bits - 1) - 1
    raw = bitcast(x + 0.0, kind)  # -0 becomes +0
    # Negative floats grow towards zero, their bits as integers away from it.
    key = logical("xor", raw, logical("and", shift_right(raw, kind.bits - 1), greatest))
    if not attrs["largest"]:
        key = negate(key)
    nan_first = attrs["largest"] or attrs["nan_first"]
    return select(compare("ne", x, x), greatest if nan_first else -greatest - 1, key)


TOP_K = OpDef("top_k", _infer, _evaluate, lower=_lower, exact=True)
"""Results: the elements, best first, and their int64 positions. Attributes: `k`, `largest`, `nan_first`."""

OPERATORS = (TOP_K,)


def _top_k(node: ForeignNode, x: Value, axis: int, attrs: Attrs) -> list[Value]:
    """The best along any axis, which goes last and comes back."""
    perm = [other for other in range(x.type.rank) if other != axis] + [axis]
    back = [perm.index(other) for other in range(x.type.rank)]
    x = transposed(node, x, perm)
    results = node.builder.node(TOP_K, [x], attrs, loc=node.loc, names=["values", "indices"])
    return [transposed(node, result, back) for result in results]


def _import_top_k(node: ForeignNode) -> list[Value]:
    """Results are sorted whether `sorted` asks for it or not."""
    x = node.operand(0)
    axis = one_axis(node, node.attrs.get("axis", -1), x.type.rank)
    k = node.attrs["k"] if node.opset < 10 else int(node.constant(1, "k").reshape(()))
    if not 0 <= k <= x.type.shape[axis]:
        raise ModelError(f"{node.loc}: k is out of range; expected 0 to {x.type.shape[axis]}, got {k}")
    attrs = {"k": k, "largest": bool(node.attrs.get("largest", 1)), "nan_first": False}
    return _top_k(node, x, axis, attrs)


def _import_arg(largest: bool) -> Importer:
    def load(node: ForeignNode) -> list[Value]:
        """The position of the best element; of the last one among equals, it is sought from the end."""
        x = node.operand(0)
        axis = one_axis(node, node.attrs.get("axis", 0), x.type.rank)
        from_the_end = bool(node.attrs.get("select_last_index", 0))
        source = _reversed(node, x, axis) if from_the_end else x
        at = _top_k(node, source, axis, {"k": 1, "largest": largest, "nan_first": True})[1]
        if from_the_end:
            at = node.emit(SUB, [scalar_constant(node, at, x.type.shape[axis] - 1), at])
        if not node.attrs.get("keepdims", 1):
            at = reshaped(node, at, [n for other, n in enumerate(at.type.shape) if other != axis])
        return [at]

    return load


def _reversed(node: ForeignNode, x: Value, axis: int) -> Value:
    starts, steps = [0] * x.type.rank, [1] * x.type.rank
    starts[axis], steps[axis] = max(0, x.type.shape[axis] - 1), -1
    attrs = {"starts": tuple(starts), "steps": tuple(steps), "sizes": x.type.shape}
    return node.emit(SLICE, [x], attrs)


ONNX: dict[str, Importer] = {
    "TopK": _import_top_k,
    "ArgMax": _import_arg(largest=True),
    "ArgMin": _import_arg(largest=False),
}
