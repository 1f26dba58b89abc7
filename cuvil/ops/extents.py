"""Integers that depend on named dimensions, and what models compute from them.

A model takes the extents of its inputs apart and puts them together again, to reshape or to expand with. Here
such values are followed as expressions, so that they never have to be computed at the run. Where one is used
as data, too, an operator makes a tensor of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from cuvil.errors import ModelError, UnsupportedError
from cuvil.ir.dims import Extent, agree, is_fixed
from cuvil.ir.graph import Node, Value
from cuvil.ir.op import Attrs, OpDef
from cuvil.ir.types import BY_NUMPY_NAME, BY_ONNX_CODE, INT64, Array, DType, Shape, TensorType
from cuvil.loops.build import KernelBuilder
from cuvil.loops.kernel import as_expr, cast
from cuvil.ops.axes import all_axes, one_axis
from cuvil.ops.context import LowerContext
from cuvil.ops.elementwise import check_arity
from cuvil.ops.foreign import ForeignNode
from cuvil.ops.movement import EXPAND, slice_of


def _infer_extents(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    check_arity(types, 0)
    shape: Shape = attrs["shape"]
    if math.prod(shape) != len(attrs["values"]):
        raise ModelError(
            f"values do not fit the shape; expected {math.prod(shape)}, got {len(attrs['values'])}"
        )
    return (TensorType(BY_NUMPY_NAME[attrs["dtype"]], shape),)


def _evaluate_extents(_: Sequence[Array], attrs: Attrs) -> tuple[Array, ...]:
    return (np.array(attrs["values"], attrs["dtype"]).reshape(attrs["shape"]),)


def _lower_extents(ctx: LowerContext, node: Node) -> None:
    dtype, values = node.result.type.dtype, node.attrs["values"]
    b = KernelBuilder("extents")
    y = b.output("y", dtype, (len(values),))
    for position, extent in enumerate(values):
        b.store(y, (position,), cast(as_expr(extent, INT64), dtype))
    ctx.call(b.finish(), [node.result], flops=len(values))


EXTENTS = OpDef("extents", _infer_extents, _evaluate_extents, lower=_lower_extents)
"""Attributes: `values`, the elements in row-major order; `shape`; `dtype`, the name of an integer type."""


def _infer_range(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    check_arity(types, 0)
    return (TensorType(BY_NUMPY_NAME[attrs["dtype"]], (attrs["count"],)),)


def _evaluate_range(_: Sequence[Array], attrs: Attrs) -> tuple[Array, ...]:
    steps = np.arange(attrs["count"], dtype=np.int64)
    return ((attrs["start"] + steps * attrs["delta"]).astype(attrs["dtype"]),)


def _lower_range(ctx: LowerContext, node: Node) -> None:
    dtype, count = node.result.type.dtype, node.attrs["count"]
    b = KernelBuilder("range")
    y = b.output("y", dtype, (count,))
    with b.loop("i", count, "vector", parallel=True) as i:
        b.store(y, (i,), cast(i * node.attrs["delta"] + node.attrs["start"], dtype))
    ctx.call(b.finish(), [node.result], flops=count)


RANGE = OpDef("range", _infer_range, _evaluate_range, lower=_lower_range)
"""Attributes: `start`, `delta`, `count`, and `dtype`, the name of an integer type."""

OPERATORS = (EXTENTS, RANGE)


def emit_extents(node: ForeignNode, contents: Array, dtype: DType) -> Value:
    """A value with these contents, an array of Python numbers and extents; a constant where all are fixed."""
    name = node.result_names[0]
    values = tuple(contents.reshape(-1).tolist())
    if all(map(is_fixed, values)):
        return node.builder.constant(np.array(values, dtype.numpy).reshape(contents.shape), name)
    attrs = {"values": values, "shape": contents.shape, "dtype": dtype.name}
    value = node.builder.one(EXTENTS, [], attrs, loc=node.loc, name=name)
    node.builder.note(value, contents)
    return value


def emit_range(node: ForeignNode, start: Extent, limit: Extent, delta: int, dtype: DType) -> Value:
    """The numbers from `start` on, `delta` apart, before `limit`."""
    distance = limit - start if delta > 0 else start - limit
    count = max(0, -(-distance // abs(delta)))
    attrs = {"start": start, "delta": delta, "count": count, "dtype": dtype.name}
    return node.builder.one(RANGE, [], attrs, loc=node.loc, name=node.result_names[0])


def expanded(node: ForeignNode, scalar: Array, shape: Shape) -> Value:
    """A tensor of this shape with one number everywhere."""
    return node.emit(EXPAND, [node.builder.constant(scalar.reshape(()))], {"shape": shape})


def fold_extents(node: ForeignNode) -> Value | None:
    """The result of a node on extents, as extents; None where its operands are others, or it is no such node.

    Raises:
        ModelError: the operands do not fit.
    """
    values = [value for value in node.operands if value is not None]
    known = [node.builder.known(value) for value in values]
    rule = _RULES.get(node.op_type)
    contents = [array for array in known if array is not None]
    if rule is None or len(contents) < len(known) or not any(array.dtype == object for array in contents):
        return None
    if any(value.type.dtype.kind == "float" for value in values):
        return None
    # A condition comes first in a choice, so that the last operand has the result's type in every rule.
    dtype = values[-1 if node.op_type == "Where" else 0].type.dtype
    try:
        result = rule(node, [array.astype(object) for array in contents])
    except UnsupportedError:  # the bounds leave it open: it is computed at the run
        return None
    if node.op_type == "Equal":
        return node.builder.constant(result.astype(np.bool_), node.result_names[0])
    if node.op_type == "Cast":
        dtype = BY_ONNX_CODE[node.attrs["to"]]
        if dtype.kind != "int":
            return None
    return emit_extents(node, np.asarray(result, object), dtype)


_Rule = Callable[[ForeignNode, Sequence[Array]], Array]


def _elementwise(function: Callable[..., object]) -> _Rule:
    ufunc = np.frompyfunc(function, function.__code__.co_argcount, 1)
    return lambda node, arrays: np.asarray(ufunc(*arrays), object)


def _quotient(a: Extent, b: Extent) -> Extent:
    """Division in ONNX truncates, which rounds down where neither side is negative."""
    if a < 0:
        raise UnsupportedError(f"the quotient of {a}, which may be negative")
    return a // b


def _gather(node: ForeignNode, arrays: Sequence[Array]) -> Array:
    data, indices = arrays
    axis = one_axis(node, node.attrs.get("axis", 0), data.ndim)
    return np.asarray(np.take(data, indices.astype(np.int64), axis), object)


def _slice(node: ForeignNode, arrays: Sequence[Array]) -> Array:
    data, starts, ends, *more = [array.reshape(-1).tolist() for array in arrays]
    if arrays[0].ndim != 1 or len(starts) != 1:
        raise UnsupportedError(f"{node.loc}: a slice of extents of rank {arrays[0].ndim}")
    start, step, size = slice_of(len(data), starts[0], ends[0], more[1][0] if len(more) > 1 else 1)
    chosen = [data[start + step * i] for i in range(size)]
    return np.array(chosen, object)


def _reshape(node: ForeignNode, arrays: Sequence[Array]) -> Array:
    return arrays[0].reshape([int(extent) for extent in arrays[1].reshape(-1)])


def _squeeze(node: ForeignNode, arrays: Sequence[Array]) -> Array:
    given = arrays[1].reshape(-1).tolist() if len(arrays) > 1 else node.attrs.get("axes")
    data = arrays[0]
    return np.squeeze(data, None if given is None else all_axes(node, given, data.ndim))


def _unsqueeze(node: ForeignNode, arrays: Sequence[Array]) -> Array:
    given = arrays[1].reshape(-1).tolist() if len(arrays) > 1 else node.attrs["axes"]
    return np.expand_dims(arrays[0], all_axes(node, given, arrays[0].ndim + len(given)))


def _product(node: ForeignNode, arrays: Sequence[Array]) -> Array:
    return np.array(math.prod(arrays[0].reshape(-1).tolist()), object).reshape(
        (1,) * arrays[0].ndim if node.attrs.get("keepdims", 1) else ()
    )


def _same(node: ForeignNode, arrays: Sequence[Array]) -> Array:
    return arrays[0]


_RULES: dict[str, _Rule] = {
    "Add": _elementwise(lambda a, b: a + b),
    "Sub": _elementwise(lambda a, b: a - b),
    "Mul": _elementwise(lambda a, b: a * b),
    "Neg": _elementwise(lambda a: -a),
    "Div": _elementwise(_quotient),
    "Min": _elementwise(lambda a, b: min(a, b)),
    "Max": _elementwise(lambda a, b: max(a, b)),
    "Equal": _elementwise(agree),
    "Where": _elementwise(lambda condition, a, b: a if condition else b),
    "Cast": _same,
    "Identity": _same,
    "Concat": lambda node, arrays: np.concatenate(
        arrays, axis=one_axis(node, node.attrs["axis"], arrays[0].ndim)
    ),
    "Gather": _gather,
    "Slice": _slice,
    "Reshape": _reshape,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "ReduceProd": _product,
}
