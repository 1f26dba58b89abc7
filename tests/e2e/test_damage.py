"""Damaged models: whatever their bytes are, the answer is a model or one line of an error, never a crash."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

import cuvil
from cuvil import toolchain
from cuvil.driver import Options, compile_model
from cuvil.errors import CuvilError, InternalError, LimitError, ModelError
from cuvil.ir.types import Array
from tests.e2e.models import model_of


def seed() -> bytes:
    """A small model of many operators, with names, attributes and constants to damage."""
    constants: dict[str, Array] = {
        "w": np.ones((2, 1, 3, 3), np.float32),
        "shape": np.array([2, 16], np.int64),
        "zero": np.array([0], np.int64),
        "one": np.array([1], np.int64),
        "pads": np.array([0, 1, 0, 1], np.int64),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv", pads=[1, 1, 1, 1], strides=[1, 1]),
        helper.make_node("Reshape", ["c", "shape"], ["r"]),
        helper.make_node("Slice", ["r", "zero", "one", "zero"], ["s"]),
        helper.make_node("Concat", ["s", "s"], ["d"], axis=0),
        helper.make_node("Split", ["d"], ["e", "f"], axis=1),
        helper.make_node("Pad", ["e", "pads"], ["p"], mode="constant"),
        helper.make_node("Gather", ["f", "zero"], ["g"], axis=0),
        helper.make_node("ConstantOfShape", ["one"], ["k"]),
        helper.make_node("Softmax", ["p"], ["y"], axis=-1),
        helper.make_node("Add", ["g", "k"], ["z"]),
    ]
    model = model_of(nodes, {"x": (1, 1, 4, 4)}, {"y": (2, 10), "z": (1, 8)}, constants)
    return bytes(model.SerializeToString())


SEED = seed()

EDITS = st.lists(
    st.tuples(
        st.sampled_from(["set", "insert", "delete", "copy", "cut"]),
        st.integers(0, len(SEED) - 1),
        st.binary(min_size=1, max_size=6),
    ),
    min_size=1,
    max_size=4,
)


def damaged(edits: Sequence[tuple[str, int, bytes]]) -> bytes:
    data = bytearray(SEED)
    for kind, at, content in edits:
        match kind:
            case "set":
                data[at : at + len(content)] = content
            case "insert":
                data[at:at] = content
            case "delete":
                del data[at : at + len(content)]
            case "copy":
                data[at : at + 16] = data[content[0] : content[0] + 16]
            case _:
                del data[at:]
    return bytes(data)


def answer(model: bytes | onnx.ModelProto) -> CuvilError | None:
    """The error of a compilation, which is one printable line and no fault of the compiler."""
    found: CuvilError | None = None
    try:
        compile_model(model, Options(toolchain.host_target()))
    except CuvilError as error:
        found = error
    assert not isinstance(found, InternalError), found
    assert str(found).isprintable(), found
    return found


def test_the_model_is_sound() -> None:
    assert answer(SEED) is None


@settings(max_examples=200)
@given(EDITS)
def test_any_bytes(edits: Sequence[tuple[str, int, bytes]]) -> None:
    answer(damaged(edits))


def ints(*values: int) -> Array:
    return np.array(values, np.int64)


@pytest.mark.parametrize(
    ("node", "constants", "kind", "words"),
    [
        (
            helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2], auto_pad=b"\xff"),
            {},
            ModelError,
            "attribute 'auto_pad' is damaged; expected UTF-8",
        ),
        (
            helper.make_node("Range", ["a", "b", "c"], ["y"]),
            {"a": np.array(0), "b": np.array(2**50), "c": np.array(1)},
            LimitError,
            "its result does not fit into memory",
        ),
        (
            helper.make_node("ConstantOfShape", ["a"], ["y"]),
            {"a": ints(2**40, 2**20)},
            LimitError,
            "does not fit",
        ),
        (
            helper.make_node("AveragePool", ["x"], ["y"], kernel_shape=[3, 2**62], auto_pad="SAME_UPPER"),
            {},
            LimitError,
            "window is too large",
        ),
        (helper.make_node("Split", ["x"], ["y"], num_outputs=2**60), {}, ModelError, "num_outputs"),
        (helper.make_node("SpaceToDepth", ["x"], ["y"], blocksize=0), {}, ModelError, "ZeroDivisionError"),
        (helper.make_node("Expand", ["x", "a"], ["y"]), {"a": ints(2**41, 1, 4, 4)}, LimitError, "too large"),
        (helper.make_node("LSTM", ["x", "a", "a"], ["y"], hidden_size=1), {"a": ints(1)}, ModelError, "LSTM"),
    ],
    ids=lambda value: value.op_type if isinstance(value, onnx.NodeProto) else "",
)
def test_kinds_of_damage(
    node: onnx.NodeProto, constants: dict[str, Array], kind: type[CuvilError], words: str
) -> None:
    model = model_of([node], {"x": (1, 1, 4, 4)}, {"y": ()}, constants)
    model.opset_import[0].version = 18
    error = answer(model)
    assert isinstance(error, kind)
    assert words in str(error)
    assert str(error).startswith(f"{node.op_type} #0: ")


def test_text_that_is_not_utf8() -> None:
    error = answer(SEED.replace(b"conv", b"co\xffv"))
    assert isinstance(error, ModelError)
    assert str(error) == "model: is damaged: a text is not valid UTF-8"


@pytest.mark.parametrize("reduction", ["ReduceMax", "ReduceMean"])
def test_reduction_of_an_element_type_that_it_does_not_have(reduction: str) -> None:
    model = model_of([helper.make_node(reduction, ["x"], ["y"])], {"x": (2, 3)}, {"y": (1, 1)}, {})
    model.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.BOOL
    error = answer(model)
    assert isinstance(error, ModelError)
    assert "bool" in str(error)


@pytest.mark.parametrize(
    ("left", "right"), [((0, 3), (3, 4)), ((2, 3), (3, 0)), ((2, 0), (0, 4)), ((0, 2, 3), (3, 4))]
)
def test_products_without_elements(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    shape = (*left[:-1], right[-1])
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    compiled = cuvil.compile(model_of([node], {"x": left}, {"y": shape}, {"w": np.ones(right, np.float32)}))
    result = compiled(np.ones(left, np.float32))
    assert isinstance(result, np.ndarray)
    np.testing.assert_array_equal(result, np.zeros(shape, np.float32))


def test_damaged_libraries_are_refused(tmp_path: Path) -> None:
    """Not every flipped bit can be seen; one in the header or in the tables must be."""
    path = tmp_path / "m.so"
    compile_model(SEED, Options(toolchain.host_target())).save(path)
    data = path.read_bytes()
    magic = (0x4C49565543).to_bytes(8, "little")
    for name, broken in (("elf", b"\x7fELG" + data[4:]), ("magic", data.replace(magic, bytes(8)))):
        (tmp_path / f"{name}.so").write_bytes(broken)
        with pytest.raises(CuvilError, match=name) as caught:
            cuvil.load(tmp_path / f"{name}.so")
        assert str(caught.value).isprintable()
