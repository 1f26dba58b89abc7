"""Named dimensions: a model for all sizes gives the bits that one for each size gives, or is refused."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator

import numpy as np
import onnx
import pytest

import cuvil
from cuvil import toolchain
from cuvil.driver import Options, compile_model
from cuvil.errors import UnsupportedError
from cuvil.interp import run_graph, run_program
from cuvil.ir.dims import Extent, Symbol, dim_of
from cuvil.ir.graph import Graph, GraphBuilder, Value
from cuvil.ir.text import format_graph, parse_graph
from cuvil.ir.types import FLOAT32, INT64, Array, Shape, TensorType
from cuvil.ir.verify import verify_graph
from cuvil.loops.verify import verify_kernel
from cuvil.lower import lower_graph
from cuvil.ops.elementwise import ADD, MUL
from cuvil.ops.fused import FUSED
from cuvil.ops.gather import GATHER
from cuvil.ops.matmul import MATMUL
from cuvil.ops.movement import CONCAT, EXPAND, SLICE, TRANSPOSE
from cuvil.ops.padding import PAD
from cuvil.ops.reduction import LAYER_NORM, REDUCTION_OPS, SOFTMAX
from cuvil.ops.registry import operators
from cuvil.ops.reshape import RESHAPE
from cuvil.passes.fuse import fuse
from cuvil.session import load_artifact
from cuvil.targets.target import find_target
from tests.conformance.node_cases import NodeCase
from tests.conformance.test_node_cases import supported_cases
from tests.judging import Case, assert_same_bits, compiled, random, tilings

BOUNDS = (Symbol("m", 1, 9), Symbol("n", 1, 70))
SIZES = ((1, 1), (4, 24), (9, 70), (7, 17), (2, 63), (1, 70))

Build = Callable[[GraphBuilder, Extent, Extent], Value]


def _x(b: GraphBuilder, *shape: Extent) -> Value:
    return b.input(f"x{len(shape)}", TensorType(FLOAT32, shape))


def _one(b: GraphBuilder, op: object, *operands: Value, **attrs: object) -> Value:
    return b.one(op, operands, attrs, loc="here")  # type: ignore[arg-type]  # any operator


def _rows(b: GraphBuilder, m: Extent, n: Extent) -> Value:
    """A constant right operand, rows of both dimensions together, and an epilogue."""
    product = _one(b, MATMUL, _x(b, m, n, 40), b.constant(random(1, 40, 37)))
    return _one(b, ADD, product, b.constant(random(2, 37)))


def _attention(b: GraphBuilder, m: Extent, n: Extent) -> Value:
    """Rows, columns and depth of the products depend on dimensions; so does the length of the softmax."""
    x = _x(b, m, n, 24)
    heads = _one(b, TRANSPOSE, _one(b, RESHAPE, x, shape=(m, n, 3, 8)), perm=(0, 2, 1, 3))
    keys = _one(b, TRANSPOSE, heads, perm=(0, 1, 3, 2))
    scores = _one(b, SOFTMAX, _one(b, MATMUL, heads, keys))
    mixed = _one(b, TRANSPOSE, _one(b, MATMUL, scores, heads), perm=(0, 2, 1, 3))
    return _one(b, RESHAPE, mixed, shape=(m, n, 24))


def _normalized(b: GraphBuilder, m: Extent, n: Extent) -> Value:
    scale, bias = b.constant(random(1, 45)), b.constant(random(2, 45))
    return _one(b, LAYER_NORM, _x(b, m, n, 45), scale, bias, axes=1, epsilon=1e-5)


def _mean_of_last(b: GraphBuilder, m: Extent, n: Extent) -> Value:
    return _one(b, REDUCTION_OPS["reduce_mean"], _x(b, m, n), axes=(1,), keepdims=True)


def _largest_in_the_middle(b: GraphBuilder, m: Extent, n: Extent) -> Value:
    return _one(b, REDUCTION_OPS["reduce_max"], _x(b, m, n, 19), axes=(1,), keepdims=False)


def _sum_of_all(b: GraphBuilder, m: Extent, n: Extent) -> Value:
    return _one(b, REDUCTION_OPS["reduce_sum"], _x(b, m, n, 3), axes=(0, 1, 2), keepdims=False)


def _broadcast(b: GraphBuilder, m: Extent, n: Extent) -> Value:
    """A product of operands that vary along different axes."""
    x, row, column = _x(b, m, n, 5), b.input("r", TensorType(FLOAT32, (n, 1))), _x(b, m, 1, 1, 5)
    return _one(b, MUL, _one(b, RESHAPE, column, shape=(m, 1, 5)), _one(b, ADD, x, row))


def _turned(b: GraphBuilder, m: Extent, n: Extent) -> Value:
    return _one(b, TRANSPOSE, _x(b, m, n, 20), perm=(2, 1, 0))


def _joined(b: GraphBuilder, m: Extent, n: Extent) -> Value:
    """Both extents in one axis, behind a border."""
    x, y = _x(b, m, 6), b.input("y", TensorType(FLOAT32, (n, 6)))
    joined = _one(b, CONCAT, x, y, x, axis=0)
    return _one(b, PAD, joined, before=(1, 2), after=(2, 0), value=0.5)


def _parts(b: GraphBuilder, m: Extent, n: Extent) -> Value:
    """The start of a table, the last element of an axis, a reversed one, expanded."""
    table = b.constant(random(1, 70, 4))
    start = _one(b, SLICE, table, starts=(0, 1), steps=(1, 2), sizes=(n, 2))
    last = _one(b, SLICE, _x(b, m, n, 2), starts=(0, n - 1, 0), steps=(1, 1, 1), sizes=(m, 1, 2))
    turned = _one(b, SLICE, start, starts=(n - 1, 0), steps=(-1, 1), sizes=(n, 2))
    return _one(b, ADD, _one(b, EXPAND, last, shape=(m, n, 2)), turned)


def _picked(b: GraphBuilder, m: Extent, n: Extent) -> Value:
    at = b.input("at", TensorType(INT64, (m, n)))
    rows = _one(b, GATHER, b.constant(random(1, 11, 5)), at, axis=0)
    return _one(b, GATHER, rows, b.constant(np.array([-1, 0])), axis=1)


def _numbered(b: GraphBuilder, m: Extent, n: Extent) -> Value:
    """Extents as data."""
    steps = _one(b, operators()["range"], start=m, delta=3, count=n, dtype="int64")
    sizes = _one(
        b, operators()["extents"], values=(m * n, 2 * n + 1, (n + 3) // 4), shape=(3, 1), dtype="int64"
    )
    return _one(b, ADD, _one(b, ADD, steps, sizes), b.input("k", TensorType(INT64, (m, 1, n))))


BUILDS = (
    _rows, _attention, _normalized, _mean_of_last, _largest_in_the_middle, _sum_of_all, _broadcast, _turned,
    _joined, _parts, _picked, _numbered,
)  # fmt: skip


def _graph(build: Build, m: Extent, n: Extent) -> Graph:
    b = GraphBuilder("case")
    graph = b.finish([build(b, m, n)])
    verify_graph(graph)
    return graph


def _inputs(graph: Graph) -> list[Array]:
    return [_array(seed, value.type.shape, value.type) for seed, value in enumerate(graph.inputs)]


def _array(seed: int, shape: Shape, tensor: TensorType) -> Array:
    if tensor.dtype == INT64:
        return np.random.default_rng(seed).integers(-14, 14, shape)
    return random(seed, *shape)


@pytest.mark.parametrize("build", BUILDS, ids=lambda build: build.__name__)
def test_bits_are_those_of_fixed_sizes(build: Build) -> None:
    named = fuse(_graph(build, *map(dim_of, BOUNDS)))
    verify_graph(named)
    programs = [lower_graph(named, target) for target in tilings()]
    for call in (call for program in programs for call in program.calls):
        verify_kernel(call.kernel)
    host = find_target(toolchain.host_target())
    models = [compiled(Case(named, ()), host, num_threads) for num_threads in (1, 2)]
    for sizes in SIZES:
        fixed = _graph(build, *sizes)
        inputs = _inputs(fixed)
        expected = run_program(lower_graph(fixed, host), inputs)
        for model in models:
            assert_same_bits([model(*inputs)], expected, f"machine code at {sizes}")  # type: ignore[list-item]
        for program in programs if sizes == (7, 17) else ():
            assert_same_bits(run_program(program, inputs), expected, f"interpreter at {sizes}")
        (defined,) = run_graph(named, inputs)
        np.testing.assert_allclose(defined, expected[0], rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("build", BUILDS, ids=lambda build: build.__name__)
def test_text_form_is_read_back(build: Build) -> None:
    text = format_graph(fuse(_graph(build, *map(dim_of, BOUNDS))), inline_elements=10**6)
    assert format_graph(parse_graph(text, operators()), inline_elements=10**6) == text
    assert FUSED.name in operators()


def _open(case: NodeCase) -> tuple[onnx.ModelProto, dict[str, tuple[int, int]]]:
    """The case with every extent above 1 of its inputs named after its size."""
    model = copy.deepcopy(case.model)
    dims: dict[str, tuple[int, int]] = {}
    for value in model.graph.input:
        if value.name not in case.inputs:
            continue
        for dim in value.type.tensor_type.shape.dim:
            name, size = f"d{dim.dim_value}", dim.dim_value
            if size > 1 and (len(dims) < 4 or name in dims):
                dim.dim_param = name
                dims[name] = (1, 2 * size)
    return model, dims


def _open_cases() -> Iterator[tuple[NodeCase, onnx.ModelProto, dict[str, tuple[int, int]]]]:
    for case in supported_cases():
        model, dims = _open(case)
        if dims:
            yield case, model, dims


def test_node_cases_with_named_extents() -> None:
    """Every operator gives the bits that it gives with fixed extents, or says which dimension is at fault."""
    same, unclear = 0, []
    for case, model, dims in _open_cases():
        try:
            artifact = compile_model(model, Options(toolchain.host_target(), dims=dims))
        except UnsupportedError as error:
            if not re.search(r"named|fixed extent|must be a constant", f"{error} {error.hint}"):
                unclear.append(f"{case.name}: {error}")
            continue
        outputs = load_artifact(artifact).run(case.inputs)
        expected = cuvil.compile(case.model).run(case.inputs)
        assert_same_bits(list(outputs.values()), list(expected.values()), case.name)
        same += 1
    assert unclear == []
    assert same >= 560
