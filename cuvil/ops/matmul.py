"""Matrix products.

Numerics: each result is one chain of float32 fused multiply-adds from +0, in ascending order of k.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from cuvil.errors import ModelError
from cuvil.exact import fma32
from cuvil.ir.dims import Extent, agree
from cuvil.ir.graph import Node, Value
from cuvil.ir.op import Attrs, OpDef
from cuvil.ir.types import FLOAT32, Array, Shape, TensorType
from cuvil.loops.build import KernelBuilder
from cuvil.loops.contraction import Contraction, Span, split_columns, split_rows
from cuvil.loops.kernel import Expr
from cuvil.ops.context import LowerContext
from cuvil.ops.elementwise import ADD, MUL, broadcast_shape, check_dtype, common_dtype, scalar_constant
from cuvil.ops.foreign import ForeignNode, Importer
from cuvil.ops.movement import transposed
from cuvil.ops.reshape import reshaped
from cuvil.ops.tiled import Tiled, emit_tiled, pack_panels


def _infer_matmul(operands: Sequence[TensorType], _: Attrs) -> tuple[TensorType, ...]:
    left, right = operands
    check_dtype(common_dtype(operands), (FLOAT32,))
    if left.rank < 2 or right.rank < 2 or not agree(left.shape[-1], right.shape[-2]):
        raise ModelError(f"matmul: the inner extents differ; got {left} and {right}")
    try:
        batch = broadcast_shape([left.shape[:-2], right.shape[:-2]])
    except ModelError as error:
        raise type(error)(f"matmul: batches of {left} and {right}: {error}", hint=error.hint) from None
    return (TensorType(left.dtype, (*batch, left.shape[-2], right.shape[-1])),)


def _evaluate_matmul(operands: Sequence[Array], _: Attrs) -> tuple[Array, ...]:
    left, right = operands
    batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    result = np.zeros((*batch, left.shape[-2], right.shape[-1]), np.float32)
    for k in range(left.shape[-1]):
        result = fma32(left[..., :, k, None], right[..., None, k, :], result)
    return (result,)


def _lower_matmul(ctx: LowerContext, node: Node) -> None:
    left, right = node.operands
    if math.prod(right.type.shape[:-2]) == 1:
        _lower_product(ctx, node, batch=1, rows=math.prod(left.type.shape[:-1]))
    else:
        _lower_product(ctx, node, batch=math.prod(node.result.type.shape[:-2]), rows=left.type.shape[-2])


def _lower_product(ctx: LowerContext, node: Node, *, batch: Extent, rows: Extent) -> None:
    """A product of `batch` matrices; a constant right operand is packed into panels at compile time."""
    left, right = node.operands
    depth, columns = right.type.shape[-2:]
    single = batch == 1
    packed = ctx.constant_of(right) if single else None
    full = node.result.type.shape[:-2]
    tile = ctx.tile(rows, columns)
    for span in split_columns(columns, tile.columns, ctx.lanes, padded=packed is not None):

        def build(b: KernelBuilder, span: Span = span) -> Tiled:
            a = b.input("a", FLOAT32, _matrix_shape(left, batch, rows, depth))
            operands = [left]
            if packed is None:
                w = b.input("b", FLOAT32, _matrix_shape(right, batch, depth, columns))
                operands.append(right)
            else:
                panels = ctx.constant(pack_panels(packed.reshape(depth, columns), span), "panels")
                w = b.input("b", FLOAT32, panels.type.shape)
                operands.append(panels)
            view = (rows, columns) if single else (batch, rows, columns)
            writer = ctx.writer(b, node.result, view)

            def spec(outer: Expr, panel: Expr) -> Contraction:
                column0 = panel * span.size + span.start
                left_batch = () if single else _batch_index(left.type.shape[:-2], full, outer)
                right_batch = () if single else _batch_index(right.type.shape[:-2], full, outer)
                where = () if single else (outer,)
                return Contraction(
                    (depth,),
                    lambda row, k: b.load(a, (*left_batch, row, k[0])),
                    lambda column, k: (
                        b.load(w, (*right_batch, k[0], column + column0))
                        if packed is None
                        else b.load(w, (panel, k[0], column))
                    ),
                    lambda row, column, value: writer.store((*where, row, column + column0), value),
                )

            return operands, writer, spec

        emit_tiled(ctx, "matmul", batch, split_rows(rows, tile.rows), span, depth, build)


def _matrix_shape(value: Value, batch: Extent, rows: Extent, columns: Extent) -> Shape:
    """A batch of matrices keeps its own batch extents, which broadcast; a single one has none."""
    return (rows, columns) if batch == 1 else (*value.type.shape[:-2], rows, columns)


def _batch_index(shape: Shape, full: Shape, flat: Expr) -> tuple[Expr, ...]:
    """The index into batch extents `shape`, broadcast to `full`, of matrix number `flat`."""
    index: list[Expr] = []
    step: Extent = 1
    for axis in range(1, len(full) + 1):
        if axis <= len(shape):
            position = flat // step % full[-axis]
            index.append(position if shape[-axis] != 1 else flat * 0)
        step *= full[-axis]
    return tuple(reversed(index))


MATMUL = OpDef("matmul", _infer_matmul, _evaluate_matmul, lower=_lower_matmul)

OPERATORS = (MATMUL,)


def multiplied(node: ForeignNode, left: Value, right: Value) -> Value:
    """The matrix product of two imported values."""
    return node.emit(MATMUL, [left, right])


def _import_matmul(node: ForeignNode) -> list[Value]:
    """A vector on either side gets an extent of 1 for the product, and loses it afterwards."""
    left, right = node.operand(0), node.operand(1)
    a = reshaped(node, left, (1, *left.type.shape)) if left.type.rank == 1 else left
    b = reshaped(node, right, (*right.type.shape, 1)) if right.type.rank == 1 else right
    product = multiplied(node, a, b)
    shape = list(product.type.shape)
    if right.type.rank == 1:
        del shape[-1]
    if left.type.rank == 1:
        del shape[-1 if right.type.rank == 1 else -2]
    return [reshaped(node, product, shape)]


def _import_gemm(node: ForeignNode) -> list[Value]:
    left, right, bias = node.operand(0), node.operand(1), node.optional(2)
    if node.attrs.get("transA", 0):
        left = transposed(node, left, (1, 0))
    if node.attrs.get("transB", 0):
        right = transposed(node, right, (1, 0))
    result = _scaled(node, multiplied(node, left, right), "alpha")
    if bias is None:
        return [result]
    return [node.emit(ADD, [result, _scaled(node, bias, "beta")])]


def _scaled(node: ForeignNode, value: Value, attribute: str) -> Value:
    factor = node.attrs.get(attribute, 1.0)
    return value if factor == 1.0 else node.emit(MUL, [value, scalar_constant(node, value, factor)])


ONNX: dict[str, Importer] = {"MatMul": _import_matmul, "Gemm": _import_gemm}
