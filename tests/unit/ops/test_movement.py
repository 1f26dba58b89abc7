"""Data movement: transpose, expand, slice, concat, reshape, pad and gather."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuvil.errors import ModelError, UnsupportedError
from cuvil.frontends.onnx import load_onnx
from cuvil.ir.graph import GraphBuilder
from cuvil.ir.types import FLOAT32, INT64, Array, TensorType
from cuvil.loops.kernel import For, walk
from cuvil.lower import lower_graph
from cuvil.ops import gather, movement, padding, reshape
from cuvil.ops.strided import Axis, collapse
from tests.unit.ops.support import TARGET, assert_same_bits, check, check_model, graph_of, model_of, random

DTYPES = [np.float32, np.float64, np.int32, np.int64, np.bool_]


def ints(*values: int) -> Array:
    return np.array(values, np.int64)


def loop_extents(op: Any, operand: Array, attrs: dict[str, Any]) -> list[int]:
    """Trip counts of the nest of the only kernel, outermost first."""
    (call,) = lower_graph(graph_of(op, [operand], attrs), TARGET).calls
    return [stmt.extent for stmt in walk(call.kernel.body) if isinstance(stmt, For)]


def test_collapse_merges_what_stays_together() -> None:
    axes = [Axis(2, 12, 12), Axis(3, 4, 4), Axis(1, 99, 7), Axis(4, 1, 1)]
    assert collapse(axes) == (Axis(24, 1, 1),)
    assert collapse([Axis(2, 1, 3), Axis(3, 2, 1)]) == (Axis(2, 1, 3), Axis(3, 2, 1))
    assert collapse([]) == (Axis(1, 0, 0),)


def test_transpose_merges_axes_and_runs_as_one_parallel_nest() -> None:
    x = random((1, 5, 6, 16))
    assert loop_extents(movement.TRANSPOSE, x, {"perm": (0, 3, 1, 2)}) == [16, 30]
    (call,) = lower_graph(graph_of(movement.TRANSPOSE, [x], {"perm": (0, 3, 1, 2)}), TARGET).calls
    assert call.kernel.parallel_extent == 16


def test_a_large_transpose_runs_in_blocks() -> None:
    assert loop_extents(movement.TRANSPOSE, random((1, 14, 12, 40)), {"perm": (0, 3, 1, 2)}) == [3, 4, 10, 56]
    assert loop_extents(movement.TRANSPOSE, random((997, 32)), {"perm": (1, 0)}) == [997, 2, 16]


@pytest.mark.parametrize("shape", [(14, 12, 40), (13, 17, 19), (1, 97, 33)])
def test_transpose_in_blocks(shape: tuple[int, ...]) -> None:
    x = random(shape)
    assert_same_bits(check(movement.TRANSPOSE, [x], {"perm": (2, 0, 1)}), np.transpose(x, (2, 0, 1)))


def test_a_short_last_axis_is_not_the_inner_loop() -> None:
    assert loop_extents(movement.TRANSPOSE, random((3, 500)), {"perm": (1, 0)}) == [3, 500]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("perm", [(0, 1, 2), (2, 0, 1), (1, 0, 2), (2, 1, 0)])
def test_transpose(perm: tuple[int, ...], dtype: type[Any]) -> None:
    x = random((3, 4, 9), dtype)
    assert_same_bits(check(movement.TRANSPOSE, [x], {"perm": perm}), np.transpose(x, perm))


def test_transpose_of_a_wrong_rank() -> None:
    with pytest.raises(ModelError, match=r"expected 2 axes, got \[0, 2, 1\]"):
        movement.TRANSPOSE.infer([TensorType(FLOAT32, (2, 3))], {"perm": (0, 2, 1)})


@pytest.mark.parametrize("shape", [(2, 3, 4), (5, 2, 3, 4), (0, 2, 3, 4)])
def test_expand(shape: tuple[int, ...]) -> None:
    x = random((2, 1, 4))
    assert_same_bits(check(movement.EXPAND, [x], {"shape": shape}), np.broadcast_to(x, shape))


@given(data=st.data(), shape=st.lists(st.integers(0, 5), min_size=1, max_size=3))
@settings(max_examples=40, deadline=None)
def test_slice_imports_as_python_slices(data: st.DataObject, shape: list[int]) -> None:
    bound = st.integers(-7, 7) | st.sampled_from([2**63 - 1, -(2**63), 2**31 - 1])
    step = st.sampled_from([1, 2, 3, -1, -2, -5])
    starts, ends, steps = (
        data.draw(st.lists(s, min_size=len(shape), max_size=len(shape))) for s in (bound, bound, step)
    )
    x = random(shape)
    constants = {
        "starts": ints(*starts),
        "ends": ints(*ends),
        "axes": ints(*range(len(shape))),
        "steps": ints(*steps),
    }
    graph = load_onnx(model_of("Slice", {"x": x}, constants=constants)).graph
    expected = x[tuple(map(slice, starts, ends, steps))]
    got = check(graph.nodes[0].op, [x], graph.nodes[0].attrs)
    assert_same_bits(got, np.ascontiguousarray(expected))


def test_slice_with_attributes_and_negative_axes() -> None:
    attrs = {"starts": [1, -3], "ends": [100, -1], "axes": [0, -1]}
    x = random((4, 5, 6))
    graph = load_onnx(model_of("Slice", {"x": x}, attrs, opset=9)).graph
    assert_same_bits(check(movement.SLICE, [x], graph.nodes[0].attrs), x[1:, :, -3:-1])


def test_slice_that_leaves_its_operand() -> None:
    attrs = {"starts": (1,), "steps": (2,), "sizes": (3,)}
    with pytest.raises(ModelError, match=r"expected 0 <= index < 5 at axis 0, got 1 to 5"):
        movement.SLICE.infer([TensorType(FLOAT32, (5,))], attrs)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_concat(axis: int, dtype: type[Any]) -> None:
    shapes = [tuple(n if a == axis else 3 for a in range(3)) for n in (1, 0, 4)]
    parts = [random(shape, dtype, seed=i) for i, shape in enumerate(shapes)]
    assert_same_bits(check(movement.CONCAT, parts, {"axis": axis}), np.concatenate(parts, axis))


def test_concat_of_shapes_that_do_not_fit() -> None:
    types = [TensorType(FLOAT32, (2, 3)), TensorType(FLOAT32, (2, 4))]
    with pytest.raises(ModelError, match=r"equal extents except at axis 0, got f32\[2, 3\] and f32\[2, 4\]"):
        movement.CONCAT.infer(types, {"axis": 0})


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((0, 1, 1, 0), (0, 1, 2, 0)),
        ((0, 0, 0, 2), (0, 0, 0, 1)),
        ((1, 0, 0, 0), (0, 0, 0, 0)),
        ((0, 0, 3, 0), (0, 0, 0, 0)),
        ((1, 2, 0, 3), (2, 1, 1, 0)),
        ((0, 0, 0, 0), (0, 0, 0, 0)),
    ],
)
def test_pad(before: tuple[int, ...], after: tuple[int, ...], dtype: type[Any]) -> None:
    x = random((2, 3, 4, 5), dtype)
    value = np.dtype(dtype).type(1).item()
    widths = list(zip(before, after, strict=True))
    got = check(padding.PAD, [x], {"before": before, "after": after, "value": value})
    assert_same_bits(got, np.pad(x, widths, constant_values=value))


def test_pad_with_infinity_and_of_nothing() -> None:
    attrs = {"before": (1, 1), "after": (0, 2), "value": -math.inf}
    check(padding.PAD, [random((2, 3))], attrs)
    np.testing.assert_array_equal(check(padding.PAD, [random((0, 3))], attrs), np.full((1, 6), -math.inf))


@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
def test_import_of_pad_from_the_operand(mode: str) -> None:
    x = random((3, 4))
    model = model_of("Pad", {"x": x}, {"mode": mode}, constants={"pads": ints(1, 2, 2, 3)}, opset=19)
    (node_, *_) = load_onnx(model).graph.nodes
    assert node_.op is gather.GATHER
    got = check_model("Pad", {"x": x}, {"mode": mode}, constants={"pads": ints(1, 2, 2, 3)}, opset=19)
    np.testing.assert_array_equal(got[0], np.pad(x, [(1, 2), (2, 3)], mode=mode))  # type: ignore[call-overload]


def test_import_of_pad_with_attributes() -> None:
    graph = load_onnx(
        model_of("Pad", {"x": random((2, 3))}, {"pads": [1, 0, 0, 2], "value": 1.5}, opset=10)
    ).graph
    assert dict(graph.nodes[0].attrs) == {"before": (1, 0), "after": (0, 2), "value": 1.5}


@pytest.mark.parametrize("pads", [(0, -1, 2, 0), (-1, -1, -1, 0), (1, 1, 1, 1)])
def test_import_of_pad_that_cuts_off(pads: tuple[int, ...]) -> None:
    x = random((3, 4))
    (got,) = check_model("Pad", {"x": x}, constants={"pads": ints(*map(abs, pads))}, opset=13)
    assert got.shape == (3 + abs(pads[0]) + abs(pads[2]), 4 + abs(pads[1]) + abs(pads[3]))
    graph = load_onnx(model_of("Pad", {"x": x}, constants={"pads": ints(*pads)}, opset=13)).graph
    assert graph.outputs[0].type.shape == (3 + pads[0] + pads[2], 4 + pads[1] + pads[3])


def test_import_of_pad_with_axes() -> None:
    constants = {"pads": ints(1, 2), "value": np.float32(7), "axes": ints(-2)}
    check_model("Pad", {"x": random((3, 4, 2))}, constants=constants, opset=18)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_gather(axis: int, dtype: type[Any]) -> None:
    data, indices = random((2, 3, 4)), np.array([[0, -1], [1, -2]], dtype)
    assert_same_bits(check(gather.GATHER, [data, indices], {"axis": axis}), np.take(data, indices, axis))


def test_gather_with_one_index() -> None:
    data = random((5, 40))
    assert_same_bits(check(gather.GATHER, [data, np.array(3)], {"axis": 0}), data[3])


def test_gather_never_leaves_its_operand() -> None:
    data = random((4,))
    got = check(gather.GATHER, [data, np.array([4, -5, 2**40, -(2**40), -4])], {"axis": 0})
    assert_same_bits(got, data[[3, 0, 3, 0, 0]])


def test_gather_of_nothing() -> None:
    assert check(gather.GATHER, [random((0, 3)), np.zeros((0,), np.int64)], {"axis": 0}).shape == (0, 3)
    with pytest.raises(ModelError, match="nothing to gather from"):
        gather.GATHER.infer([TensorType(FLOAT32, (0, 3)), TensorType(INT64, (1,))], {"axis": 0})


def test_constant_index_out_of_range_is_refused() -> None:
    model = model_of("Gather", {"x": random((3, 2))}, constants={"i": ints(0, 3)})
    with pytest.raises(ModelError, match="Gather 'node': an index is out of range; expected -3 <= index < 3"):
        load_onnx(model)


@pytest.mark.parametrize(
    ("op_type", "attrs", "constants", "opset"),
    [
        ("Reshape", {}, {"shape": ints(0, -1)}, 17),
        ("Reshape", {}, {"shape": ints(4, 3, 2)}, 17),
        ("Flatten", {"axis": 2}, {}, 17),
        ("Flatten", {"axis": -1}, {}, 17),
        ("Flatten", {"axis": 0}, {}, 17),
        ("Unsqueeze", {"axes": [0, -1]}, {}, 11),
        ("Unsqueeze", {}, {"axes": ints(0, -1)}, 13),
        ("Transpose", {}, {}, 17),
        ("Transpose", {"perm": [1, 0, 2]}, {}, 17),
        ("Expand", {}, {"shape": ints(5, 2, 1, 4)}, 17),
        ("Tile", {}, {"repeats": ints(2, 1, 3)}, 17),
        ("Gather", {"axis": -1}, {"i": ints(0, -1)}, 17),
    ],
)
def test_import(op_type: str, attrs: dict[str, Any], constants: dict[str, Array], opset: int) -> None:
    check_model(op_type, {"x": random((2, 3, 4))}, attrs, constants=constants, opset=opset)


@pytest.mark.parametrize(
    ("attrs", "constants", "opset"), [({}, {}, 13), ({"axes": [0]}, {}, 11), ({}, {"axes": ints(0, -1)}, 13)]
)
def test_import_of_squeeze(attrs: dict[str, Any], constants: dict[str, Array], opset: int) -> None:
    check_model("Squeeze", {"x": random((1, 3, 1))}, attrs, constants=constants, opset=opset)


def test_squeeze_of_a_long_axis_is_refused() -> None:
    with pytest.raises(ModelError, match=r"axis 1 can't be squeezed; expected extent 1, got f32\[1, 3\]"):
        load_onnx(model_of("Squeeze", {"x": random((1, 3))}, constants={"axes": ints(1)}))


def test_reshape_keeps_a_zero_when_it_may() -> None:
    check_model("Reshape", {"x": random((0, 3))}, {"allowzero": 1}, constants={"shape": ints(3, 0)})


@pytest.mark.parametrize("shape", [(-1, -1), (5, -1), (7, 2), (2, 3, 4, 0)])
def test_reshape_that_does_not_fit(shape: tuple[int, ...]) -> None:
    with pytest.raises(ModelError, match="Reshape 'node': "):
        load_onnx(model_of("Reshape", {"x": random((2, 3, 4))}, constants={"shape": ints(*shape)}))


def test_reshape_by_a_shape_of_the_run_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="Reshape 'node': shape must be a constant"):
        load_onnx(model_of("Reshape", {"x": random((6,)), "shape": ints(2, 3)}))


def test_reshape_moves_nothing() -> None:
    builder = GraphBuilder("test")
    x = builder.input("x", TensorType(FLOAT32, (2, 3)))
    y = builder.one(reshape.RESHAPE, [x], {"shape": (6,)}, loc="test")
    program = lower_graph(
        builder.finish([builder.one(reshape.RESHAPE, [y], {"shape": (3, 2)}, loc="test")]), TARGET
    )
    assert [call.kernel.name for call in program.calls] == ["copy"]


@pytest.mark.parametrize(
    ("attrs", "constants", "opset", "parts"),
    [
        ({"axis": 1}, {}, 11, 3),
        ({"axis": -1, "split": [1, 5]}, {}, 11, 2),
        ({"axis": 1}, {"split": ints(4, 0, 2)}, 13, 3),
        ({"axis": 1, "num_outputs": 4}, {}, 18, 4),
    ],
)
def test_import_of_split(attrs: dict[str, Any], constants: dict[str, Array], opset: int, parts: int) -> None:
    names = [f"y{i}" for i in range(parts)]
    sizes = [part.shape[1] for part in _split(attrs, constants, opset, names)]
    assert sum(sizes) == 6


def _split(attrs: dict[str, Any], constants: dict[str, Array], opset: int, names: list[str]) -> list[Array]:
    return check_model("Split", {"x": random((2, 6))}, attrs, constants=constants, opset=opset, results=names)


def test_split_that_does_not_fit() -> None:
    model = model_of("Split", {"x": random((5,))}, constants={"split": ints(2, 2)}, results=["a", "b"])
    with pytest.raises(ModelError, match=r"expected 2 sizes whose sum is 5, got \[2, 2\]"):
        load_onnx(model)


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_to_space(mode: str) -> None:
    check_model("DepthToSpace", {"x": random((2, 8, 3, 2))}, {"blocksize": 2, "mode": mode})


def test_space_to_depth() -> None:
    check_model("SpaceToDepth", {"x": random((2, 3, 4, 6))}, {"blocksize": 2})
