"""Running sums along an axis.

Numerics: one chain of additions from +0, in the direction of the sum, each rounded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from cuvil.errors import ModelError
from cuvil.ir.graph import Node, Value
from cuvil.ir.op import Attrs, OpDef
from cuvil.ir.types import Array, TensorType
from cuvil.loops.build import KernelBuilder
from cuvil.ops.axes import one_axis
from cuvil.ops.context import LowerContext
from cuvil.ops.elementwise import NUMBERS, check_arity, check_dtype
from cuvil.ops.foreign import ForeignNode, Importer


def _infer(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    check_arity(types, 1)
    check_dtype(types[0].dtype, NUMBERS)
    if not 0 <= attrs["axis"] < types[0].rank:
        raise ModelError(f"axis is out of range; expected 0 <= axis < {types[0].rank}, got {attrs['axis']}")
    return (types[0],)


def _evaluate(arrays: Sequence[Array], attrs: Attrs) -> tuple[Array, ...]:
    x = np.moveaxis(arrays[0], attrs["axis"], 0)
    result, total = np.empty_like(x), np.zeros(x.shape[1:], x.dtype)
    with np.errstate(all="ignore"):
        for i in reversed(range(len(x))) if attrs["reverse"] else range(len(x)):
            before, total = total, (total + x[i]).astype(x.dtype)
            result[i] = before if attrs["exclusive"] else total
    return (np.moveaxis(result, 0, attrs["axis"]),)


def _lower(ctx: LowerContext, node: Node) -> None:
    (operand,) = node.operands
    dtype, shape, axis = operand.type.dtype, operand.type.shape, node.attrs["axis"]
    outer, extent, inner = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
    b = KernelBuilder("cum_sum")
    x = b.input("x", dtype, (outer, extent, inner))
    y = b.output("y", dtype, (outer, extent, inner))
    with b.loop("row", outer, parallel=True) as row, b.loop("column", inner, "vector") as column:
        total = b.local("total", dtype)
        b.store(total, (), 0)
        with b.loop("k", extent) as k:
            at = b.let("at", (extent - 1) - k) if node.attrs["reverse"] else k
            element = b.let("element", b.load(x, (row, at, column)))
            if node.attrs["exclusive"]:
                b.store(y, (row, at, column), b.load(total))
            b.store(total, (), b.load(total) + element)
            if not node.attrs["exclusive"]:
                b.store(y, (row, at, column), b.load(total))
    ctx.call(b.finish(), [operand, node.result], flops=operand.type.count)


CUM_SUM = OpDef("cum_sum", _infer, _evaluate, lower=_lower, exact=True)
"""Attributes: `axis`; `exclusive`, without the element itself; `reverse`, from the end."""

OPERATORS = (CUM_SUM,)


def _import_cum_sum(node: ForeignNode) -> list[Value]:
    x = node.operand(0)
    axis = one_axis(node, int(node.constant(1, "axis").reshape(())), x.type.rank)
    flags = {name: bool(node.attrs.get(name, 0)) for name in ("exclusive", "reverse")}
    return [node.emit(CUM_SUM, [x], {"axis": axis, **flags})]


ONNX: dict[str, Importer] = {"CumSum": _import_cum_sum}
