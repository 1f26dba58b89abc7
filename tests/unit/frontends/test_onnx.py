"""ONNX models as users bring them: what is imported, and what every fault is called."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from cuvil.errors import EXIT_MODEL, EXIT_USAGE, CuvilError, ModelError, UnsupportedError, UsageError
from cuvil.frontends.onnx import load_onnx
from cuvil.interp import run_graph
from cuvil.ir.types import FLOAT32, TensorType

X = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])
WEIGHT = numpy_helper.from_array(np.ones(3, np.float32), "w")


def model_of(
    nodes: Sequence[onnx.NodeProto],
    *,
    inputs: Sequence[onnx.ValueInfoProto] = (X,),
    outputs: Sequence[str] = ("y",),
    initializers: Sequence[onnx.TensorProto] = (),
    opset: int = 17,
    **options: Any,
) -> onnx.ModelProto:
    infos = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph(list(nodes), "network", list(inputs), infos, list(initializers))
    options.setdefault("opset_imports", [helper.make_opsetid("", opset)])
    return helper.make_model(graph, ir_version=options.pop("ir_version", 8), **options)


def relu(source: str = "x", result: str = "y", name: str = "act") -> onnx.NodeProto:
    return helper.make_node("Relu", [source], [result], name=name)


def add_weight(name: str = "sum") -> onnx.NodeProto:
    return helper.make_node("Add", ["x", "w"], ["y"], name=name)


def fault(source: Any, shapes: dict[str, tuple[int, ...]] | None = None) -> CuvilError:
    """The error that a model causes, which must be one line."""
    with pytest.raises(CuvilError) as caught:
        load_onnx(source, shapes)
    assert "\n" not in str(caught.value)
    return caught.value


# What is imported


def test_model_from_path_bytes_and_message(tmp_path: Path) -> None:
    model = model_of([add_weight()], initializers=[WEIGHT])
    path = tmp_path / "net.onnx"
    onnx.save(model, path)
    data = path.read_bytes()
    for source in (path, str(path)):
        imported = load_onnx(source)
        assert (imported.name, imported.opset) == ("net", 17)
        assert imported.sha256 == hashlib.sha256(data).hexdigest()
    assert load_onnx(data).sha256 == hashlib.sha256(data).hexdigest()
    assert load_onnx(data).name == "network"
    assert load_onnx(model).sha256 == hashlib.sha256(data).hexdigest()
    assert [node.op.name for node in load_onnx(model).graph.nodes] == ["add"]


def test_names_are_the_models() -> None:
    graph = load_onnx(model_of([relu("x", "out put/0")], outputs=["out put/0"])).graph
    assert [value.name for value in graph.inputs] == ["x"]
    assert graph.output_names == ("out put/0",)


def test_locations_name_the_node() -> None:
    trace = 'File "/home/me/net.py", line 7, in forward\n  File "/lib/torch/nn/conv.py", line 5, in forward'
    traced = relu("a", "b", "traced")
    traced.metadata_props.append(onnx.StringStringEntryProto(key="pkg.torch.onnx.stack_trace", value=trace))
    nodes = [relu("x", "a", "block/act"), traced, relu("b", "y", "")]
    locs = [node.loc for node in load_onnx(model_of(nodes)).graph.nodes]
    assert locs == ["Relu 'block/act'", "Relu 'traced' (net.py:7)", "Relu #2"]


def test_unused_inputs_stay() -> None:
    other = helper.make_tensor_value_info("unused", TensorProto.INT64, [4])
    assert len(load_onnx(model_of([relu()], inputs=[X, other])).graph.inputs) == 2


def test_initializer_that_is_declared_as_input_is_a_constant() -> None:
    declared = helper.make_tensor_value_info("w", TensorProto.FLOAT, [3])
    model = model_of([add_weight()], inputs=[X, declared], initializers=[WEIGHT])
    assert [value.name for value in load_onnx(model).graph.inputs] == ["x"]


def test_outputs_that_are_inputs_or_initializers() -> None:
    model = model_of([relu()], outputs=["x", "w", "y"], initializers=[WEIGHT])
    graph = load_onnx(model).graph
    x = np.full((2, 3), -1, np.float32)
    results = run_graph(graph, [x])
    assert graph.output_names == ("x", "w", "y")
    np.testing.assert_array_equal(results[0], x)
    np.testing.assert_array_equal(results[1], np.ones(3))
    np.testing.assert_array_equal(results[2], np.zeros((2, 3)))


def test_output_that_passes_through_identity() -> None:
    graph = load_onnx(model_of([helper.make_node("Identity", ["x"], ["y"])])).graph
    assert graph.outputs == graph.inputs
    assert graph.output_names == ("y",)


def test_functions_of_the_model_are_inlined() -> None:
    body = [helper.make_node("Relu", ["a"], ["t"]), helper.make_node("Add", ["t", "t"], ["b"])]
    function = helper.make_function("mine", "Twice", ["a"], ["b"], body, [helper.make_opsetid("", 17)])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
    call = helper.make_node("Twice", ["x"], ["y"], domain="mine")
    model = model_of([call], opset_imports=imports, functions=[function])
    assert [node.op.name for node in load_onnx(model).graph.nodes] == ["relu", "add"]


def test_external_data(tmp_path: Path) -> None:
    weight = numpy_helper.from_array(np.arange(3, dtype=np.float32), "w")
    model = model_of([add_weight()], initializers=[weight])
    path = tmp_path / "net.onnx"
    onnx.save(model, path, save_as_external_data=True, location="net.data", size_threshold=0)
    imported = load_onnx(path)
    (array,) = imported.graph.constants.values()
    np.testing.assert_array_equal(array, [0, 1, 2])
    (tmp_path / "net.data").write_bytes(np.array([3, 4, 5], np.float32).tobytes())
    assert load_onnx(path).sha256 != imported.sha256


# Shapes


def open_input(name: str, *dims: int | str | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)


def test_open_shape_is_refused_with_a_hint() -> None:
    error = fault(model_of([relu()], inputs=[open_input("x", "batch", 3, None)]))
    assert isinstance(error, UnsupportedError)
    assert str(error) == "input 'x': shape is open; expected fixed or bounded dimensions, got [batch, 3, ?]"
    assert error.hint == "fix it, as in `--shape x=1,3,1`, or bound it, as in `--dim batch=1..16`"


def test_dimension_without_a_name_can_be_given_one() -> None:
    error = fault(model_of([relu()], inputs=[open_input("x", None, 3)]))
    assert error.hint == ("fix it, as in `--shape x=1,3`, or name it, as in `--shape x=n,3 --dim n=1..16`")
    model = model_of([relu()], inputs=[open_input("x", None, 3)])
    assert str(load_onnx(model, {"x": ("n", 3)}, {"n": (1, 16)}).graph.inputs[0].type) == "f32[n, 3]"


def test_missing_shape_is_refused_with_a_hint() -> None:
    error = fault(model_of([relu()], inputs=[helper.make_tensor_value_info("x", TensorProto.FLOAT, None)]))
    assert (str(error), error.hint) == (
        "input 'x': has no shape; expected a fixed one",
        "pass `--shape x=...`",
    )


def test_shapes_fix_what_is_open() -> None:
    model = model_of([relu()], inputs=[open_input("x", "batch", 3, None)])
    graph = load_onnx(model, {"x": (5, 3, 7)}).graph
    assert graph.inputs[0].type == TensorType(FLOAT32, (5, 3, 7))
    missing = model_of([relu()], inputs=[helper.make_tensor_value_info("x", TensorProto.FLOAT, None)])
    assert load_onnx(missing, {"x": (4,)}).graph.inputs[0].type.shape == (4,)


def test_a_symbol_is_fixed_for_all_inputs() -> None:
    model = model_of([relu()], inputs=[open_input("x", "n", 3), open_input("z", 2, "n")])
    graph = load_onnx(model, {"x": (5, 3)}).graph
    assert graph.inputs[1].type.shape == (2, 5)
    error = fault(model, {"x": (5, 3), "z": (2, 6)})
    assert str(error) == "input 'z': shape does not fit the model; expected [2, n] with {'n': 5}, got [2, 6]"


@pytest.mark.parametrize("shape", [(2, 4), (2,), (2, 3, 1), (-2, 3)])
def test_shape_that_contradicts_the_model(shape: tuple[int, ...]) -> None:
    error = fault(model_of([relu()]), {"x": shape})
    assert isinstance(error, UsageError)
    assert str(error).startswith("input 'x': shape ")


def test_shape_of_an_unknown_input() -> None:
    error = fault(model_of([relu()]), {"y": (1,)})
    assert str(error) == "model: no input is named 'y'; expected one of 'x'"
    assert error.exit_code == EXIT_USAGE


# Files


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "model: is empty; expected an ONNX model"),
        (b"\x08\x08", "model: is not an ONNX model; expected an ir_version and a graph"),
        (b"\xff" * 40, "model: is damaged or not an ONNX model; expected a protobuf message, got 40 bytes"),
        (b"version https://git-lfs.github.com/spec/v1\noid", "model: is a git-lfs pointer; expected an ONNX"),
        (b"PK\x03\x04rest", "model: is a zip archive, such as torch.save writes; expected an ONNX model"),
        (b"<!DOCTYPE html>", "model: is a web page or XML; expected an ONNX model"),
    ],
)
def test_bytes_that_are_no_model(data: bytes, message: str) -> None:
    error = fault(data)
    assert isinstance(error, ModelError)
    assert str(error).startswith(message)
    assert error.exit_code == EXIT_MODEL


def test_every_truncation_is_refused_or_valid() -> None:
    data = model_of([add_weight()], initializers=[WEIGHT]).SerializeToString()
    for length in range(len(data)):
        with pytest.raises(ModelError):
            load_onnx(data[:length])


def test_missing_file(tmp_path: Path) -> None:
    assert str(fault(tmp_path / "no.onnx")) == f"{tmp_path}/no.onnx: no such file; expected an ONNX model"


def test_folder(tmp_path: Path) -> None:
    assert str(fault(tmp_path)) == f"{tmp_path}: is a folder; expected an ONNX file"


def external_model(location: str) -> onnx.ModelProto:
    weight = onnx.TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[3])
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.append(onnx.StringStringEntryProto(key="location", value=location))
    return model_of([add_weight()], initializers=[weight])


@pytest.mark.parametrize("location", ["gone.data", "../secret.data", "/etc/hostname"])
def test_external_data_that_is_missing_or_outside(tmp_path: Path, location: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret.data").write_bytes(bytes(12))
    (folder / "net.onnx").write_bytes(external_model(location).SerializeToString())
    error = fault(folder / "net.onnx")
    assert isinstance(error, ModelError)
    assert str(error).startswith("net.onnx: data of tensor 'w' can't be read: ")


def test_external_data_without_a_folder() -> None:
    error = fault(external_model("w.data").SerializeToString())
    assert str(error).startswith("model: tensor 'w' lies in another file; expected all data in the model")


# Versions and operators


@pytest.mark.parametrize("opset", [6, 1000])
def test_opset_out_of_range(opset: int) -> None:
    error = fault(model_of([relu()], opset=opset))
    assert isinstance(error, UnsupportedError)
    assert str(error) == f"model: opset is not supported; expected 7 to 28, got {opset}"


def test_no_opset() -> None:
    model = model_of([relu()])
    del model.opset_import[:]
    assert str(fault(model)) == "model: imports no standard operator set; expected one, got none"


def test_ir_version_that_is_too_new() -> None:
    error = fault(model_of([relu()], ir_version=1000))
    assert str(error).startswith("model: ir_version is too new; expected at most ")


def test_all_unsupported_operators_are_named() -> None:
    nodes = [
        helper.make_node("NonZero", ["x"], ["a"], name="first"),
        helper.make_node("NonZero", ["x"], ["b"], name="second"),
        helper.make_node("FusedThing", ["x"], ["c"], domain="com.example"),
        relu(),
    ]
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)]
    error = fault(model_of(nodes, opset_imports=imports))
    assert isinstance(error, UnsupportedError)
    assert str(error) == (
        "model: 2 operators are not supported (opset 17): NonZero (NonZero 'first'), "
        "com.example:FusedThing (FusedThing #2)"
    )


def test_subgraphs_are_refused() -> None:
    branch = helper.make_graph([relu("x", "r")], "branch", [], [onnx.ValueInfoProto(name="r")])
    node = helper.make_node("If", ["c"], ["y"], name="if", then_branch=branch, else_branch=branch)
    condition = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    error = fault(model_of([node], inputs=[X, condition]))
    assert str(error) == "model: 1 operator is not supported (opset 17): If (If 'if')"


def test_operator_that_the_opset_lacks() -> None:
    error = fault(model_of([helper.make_node("Gelu", ["x"], ["y"], name="g")]))
    assert str(error).startswith("Gelu 'g': is not valid in opset 17: No Op registered for Gelu")


def test_unknown_attribute() -> None:
    error = fault(model_of([helper.make_node("Relu", ["x"], ["y"], name="r", slope=1)]))
    assert str(error).startswith("Relu 'r': is not valid in opset 17: Unrecognized attribute: slope")


def test_too_many_operands() -> None:
    error = fault(model_of([helper.make_node("Relu", ["x", "x"], ["y"], name="r")]))
    assert str(error).startswith("Relu 'r': is not valid in opset 17: ")


# Types


@pytest.mark.parametrize(
    ("code", "name"),
    [(TensorProto.FLOAT16, "float16"), (TensorProto.STRING, "string"), (0, "undefined"), (99, "99")],
)
def test_input_of_another_type(code: int, name: str) -> None:
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    value.type.tensor_type.elem_type = code
    error = fault(model_of([relu()], inputs=[value]))
    assert isinstance(error, UnsupportedError)
    assert str(error) == (
        "input 'x': element type is not supported; "
        f"expected one of float32, float64, int32, int64, bool, got {name}"
    )


def test_initializer_of_another_type() -> None:
    weight = numpy_helper.from_array(np.ones(3, np.float16), "w")
    error = fault(model_of([add_weight()], initializers=[weight]))
    assert str(error).startswith("initializer 'w': element type is not supported; ")
    assert str(error).endswith("got float16")


def test_attribute_of_another_type() -> None:
    value = numpy_helper.from_array(np.ones(3, np.uint8))
    error = fault(model_of([helper.make_node("Constant", [], ["y"], name="c", value=value)]))
    assert str(error).startswith("Constant 'c': attribute 'value': element type is not supported; ")


def test_sequence_input() -> None:
    sequence = helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, [2])
    error = fault(model_of([relu()], inputs=[sequence]))
    assert str(error) == "input 'x': type is not supported; expected a tensor, got sequence_type"


def test_input_without_a_type() -> None:
    error = fault(model_of([relu()], inputs=[onnx.ValueInfoProto(name="x")]))
    assert str(error) == "input 'x': has no type; expected a tensor type"


def test_damaged_initializer() -> None:
    weight = onnx.TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[3], raw_data=bytes(8))
    error = fault(model_of([add_weight()], initializers=[weight]))
    assert isinstance(error, ModelError)
    assert str(error).startswith("initializer 'w': is damaged: ")


def test_sparse_initializer() -> None:
    model = model_of([relu()])
    sparse = model.graph.sparse_initializer.add()
    sparse.values.CopyFrom(WEIGHT)
    assert str(fault(model)) == "initializer 'w': sparse tensors are not supported"


def test_negative_dimension() -> None:
    error = fault(model_of([relu()], inputs=[open_input("x", -1, 3)]))
    assert str(error) == "input 'x': dimension is negative; expected 0 or more, got -1"


def test_types_that_do_not_fit_name_the_node() -> None:
    weight = numpy_helper.from_array(np.ones(4, np.float32), "w")
    error = fault(model_of([add_weight()], initializers=[weight]))
    assert isinstance(error, ModelError)
    assert str(error).startswith("Add 'sum': shapes do not broadcast; ")


# Structure


def test_undefined_operand() -> None:
    error = fault(model_of([relu("missing")]))
    assert str(error) == (
        "Relu 'act': operand 'missing' is undefined; expected an input, initializer or result"
    )


def test_nodes_out_of_order() -> None:
    error = fault(model_of([relu("a", "y", "second"), relu("x", "a", "first")]))
    assert str(error) == (
        "Relu 'second': operand 'a' comes from the later node Relu 'first'; "
        "expected nodes in topological order"
    )


def test_cycle() -> None:
    error = fault(model_of([relu("b", "y", "one"), relu("y", "b", "two")]))
    assert str(error) == "Relu 'one': operand 'b' is part of a cycle; expected a graph without cycles"


def test_result_that_is_defined_twice() -> None:
    error = fault(model_of([relu("x", "y", "one"), relu("x", "y", "two")]))
    assert str(error) == "Relu 'two': name 'y' is defined twice; expected distinct names"


def test_result_with_the_name_of_an_input() -> None:
    error = fault(model_of([relu("x", "x", "one")], outputs=["x"]))
    assert str(error) == "Relu 'one': name 'x' is defined twice; expected distinct names"


def test_input_that_is_defined_twice() -> None:
    assert str(fault(model_of([relu()], inputs=[X, X]))) == (
        "input 'x': name is defined twice; expected distinct names"
    )


def test_initializer_that_is_defined_twice() -> None:
    error = fault(model_of([add_weight()], initializers=[WEIGHT, WEIGHT]))
    assert str(error) == "initializer: name 'w' is defined twice; expected distinct names"


def test_undefined_output() -> None:
    error = fault(model_of([relu()], outputs=["z"]))
    assert str(error) == "output 'z': no node, input or initializer has this name"


def test_output_that_is_named_twice() -> None:
    error = fault(model_of([relu()], outputs=["y", "y"]))
    assert str(error) == "output 'y': name occurs twice; expected distinct output names"


def test_no_outputs() -> None:
    assert str(fault(model_of([relu()], outputs=[]))) == (
        "model: the graph has no outputs; expected at least one"
    )


def test_missing_required_operand() -> None:
    error = fault(model_of([helper.make_node("Add", ["x", ""], ["y"], name="sum")]))
    assert isinstance(error, ModelError)
    assert str(error).startswith("Add 'sum': ")
