"""Whole models: the light models of the onnx package against ONNX Runtime, and PyTorch modules."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import cuvil
from cuvil.errors import UsageError
from cuvil.ir.types import Array
from cuvil.native import native_target
from cuvil.toolchain import PLATFORMS, host_target
from tests.e2e.models import attention, convolution, product
from tests.judging import bits
from tests.needs import need_module

ort = need_module("onnxruntime")

LIGHT_MODELS = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


def run_onnxruntime(model: onnx.ModelProto, inputs: dict[str, Array]) -> list[Array]:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    outputs: list[Array] = ort.InferenceSession(model.SerializeToString(), options).run(None, inputs)
    return outputs


def with_random_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """The light models fill each weight with one number; give them weights that tell positions apart."""
    rng = np.random.default_rng(7)
    graph = model.graph
    filled = [node for node in graph.node if node.op_type == "ConstantOfShape"]
    shapes = {i.name: numpy_helper.to_array(i) for i in graph.initializer}
    for node in filled:
        shape = tuple(shapes[node.input[0]])
        fan_in = max(1, int(np.prod(shape[1:])))
        array = rng.standard_normal(shape).astype(np.float32) * np.float32((2 / fan_in) ** 0.5)
        if len(shape) == 1:
            array = np.abs(array) * np.float32(0.1) + np.float32(0.5)
        graph.node.remove(node)
        graph.initializer.append(numpy_helper.from_array(array, node.output[0]))
    assert filled
    return model


def model_inputs(model: onnx.ModelProto) -> dict[str, Array]:
    rng = np.random.default_rng(8)
    known = {initializer.name for initializer in model.graph.initializer}
    return {
        value.name: rng.standard_normal([d.dim_value for d in value.type.tensor_type.shape.dim]).astype(
            np.float32
        )
        for value in model.graph.input
        if value.name not in known
    }


def without_softmax(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with its logits as the output; a softmax would hide most of what differs."""
    (softmax,) = [node for node in model.graph.node if node.op_type == "Softmax"]
    model.graph.node.remove(softmax)
    del model.graph.output[:]
    model.graph.output.append(onnx.helper.make_empty_tensor_value_info(softmax.input[0]))
    return model


@pytest.mark.parametrize("name", ["light_resnet50", "light_squeezenet"])
def test_light_models_agree_with_onnxruntime(name: str) -> None:
    model = without_softmax(with_random_weights(onnx.load(LIGHT_MODELS / f"{name}.onnx")))
    inputs = model_inputs(model)
    (result,) = cuvil.compile(model).run(inputs).values()
    (expected,) = run_onnxruntime(model, inputs)
    scale = np.abs(expected).max()
    assert np.unique(expected).size > 500, "the outputs must tell classes apart"
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-5 * scale)
    flipped = run_onnxruntime(with_flipped_kernel(model), inputs)[0]
    assert np.abs(flipped - expected).max() > 1e-3 * scale, "a wrong kernel must show"


def with_flipped_kernel(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with the last spatial kernel upside down: a fault that the comparison must notice."""
    wrong = onnx.ModelProto.FromString(model.SerializeToString())
    kernels = [i for i in wrong.graph.initializer if len(i.dims) == 4 and i.dims[2] > 1]
    array = numpy_helper.to_array(kernels[-1])
    kernels[-1].CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array[:, :, ::-1]), kernels[-1].name))
    return wrong


@pytest.mark.parametrize(
    "model",
    [product(5, 30, 17), convolution(10, 3, 20), attention(9, 32, 4)],
    ids=["mlp", "conv", "attention"],
)
def test_small_models_agree_with_onnxruntime(model: onnx.ModelProto) -> None:
    inputs = model_inputs(model)
    (expected,) = run_onnxruntime(model, inputs)
    result = cuvil.compile(model)(inputs["x"])
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


def with_weights_as_inputs(model: onnx.ModelProto) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """The model with its float weights as inputs, so that none of them is folded or packed."""
    fed = onnx.ModelProto.FromString(model.SerializeToString())
    weights = {
        initializer.name: numpy_helper.to_array(initializer)
        for initializer in model.graph.initializer
        if initializer.data_type == onnx.TensorProto.FLOAT
    }
    kept = [initializer for initializer in model.graph.initializer if initializer.name not in weights]
    del fed.graph.initializer[:]
    fed.graph.initializer.extend(kept)
    for name, array in weights.items():
        value = onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, array.shape)
        fed.graph.input.append(value)
    return fed, weights


@pytest.mark.parametrize(
    "model",
    [product(5, 30, 17), convolution(10, 3, 20, kernel=1), attention(9, 32, 4)],
    ids=["mlp", "conv", "attention"],
)
def test_weights_fed_as_inputs_give_the_same_bits(model: onnx.ModelProto) -> None:
    inputs = model_inputs(model)
    fed, weights = with_weights_as_inputs(model)
    (expected,) = cuvil.compile(model).run(inputs).values()
    (actual,) = cuvil.compile(fed).run(inputs | weights).values()
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize(
    "model",
    [product(5, 30, 17), convolution(10, 3, 20), attention(9, 32, 4)],
    ids=["mlp", "conv", "attention"],
)
def test_native_code_gives_the_bits_of_the_portable_target(model: onnx.ModelProto) -> None:
    native, portable = cuvil.compile(model), cuvil.compile(model, target=host_target())
    assert native.target == cuvil.compile(model, target="native").target == native_target().name
    assert portable.target == host_target()
    inputs = model_inputs(model)
    inputs["x"].reshape(-1)[:5] = [np.nan, 1e-41, -0.0, np.inf, -3e38]
    for name, result in native.run(inputs).items():
        np.testing.assert_array_equal(bits(result), bits(portable.run(inputs)[name]))


def test_a_target_of_another_machine_is_refused() -> None:
    foreign = next(name for name in PLATFORMS if name != host_target())
    with pytest.raises(UsageError, match=f"code for '{foreign}' can't run on this machine"):
        cuvil.compile(product(4, 8, 3), target=foreign)


@pytest.mark.parametrize("num_threads", [2, 3])
def test_threads_change_no_bit_and_do_run(num_threads: int) -> None:
    model = convolution(32, 8, 48)
    x = model_inputs(model)["x"]
    several = cuvil.compile(model, num_threads=num_threads)
    np.testing.assert_array_equal(several(x), cuvil.compile(model)(x))
    assert several.worker_runs > 0


def test_inputs_by_order_and_by_name() -> None:
    compiled = cuvil.compile(product(4, 8, 3))
    x = np.ones((4, 8), np.float32)
    np.testing.assert_array_equal(compiled(x), compiled(x=x))
    np.testing.assert_array_equal(compiled(x), compiled.run({"x": x})["y"])


@pytest.mark.parametrize(
    ("args", "named", "message"),
    [
        ((), {}, "expected 1, got 0"),
        ((1, 2), {}, "expected 1, got 2"),
        ((), {"z": 1}, "no such input; expected 'x', got 'z'"),
        ((1,), {"x": 1}, "given twice; got 'x'"),
    ],
)
def test_wrong_inputs_are_named(args: tuple[int, ...], named: dict[str, int], message: str) -> None:
    compiled = cuvil.compile(product(4, 8, 3))
    x = np.ones((4, 8), np.float32)
    with pytest.raises(UsageError, match=message):
        compiled(*[x for _ in args], **dict.fromkeys(named, x))


def test_wrong_shape_and_dtype_are_named() -> None:
    compiled = cuvil.compile(product(4, 8, 3))
    with pytest.raises(UsageError, match=r"input 'x': wrong shape; expected \(4, 8\), got \(8, 4\)"):
        compiled(np.ones((8, 4), np.float32))
    with pytest.raises(UsageError, match="input 'x': wrong dtype; expected float32, got float64"):
        compiled(np.ones((4, 8)))


@pytest.mark.parametrize("num_threads", [-1, 1025, "2", None, 1.0, True])
def test_wrong_numbers_of_threads_are_named(num_threads: object) -> None:
    with pytest.raises(UsageError, match="num_threads: expected a number from 0 to 1024, got"):
        cuvil.compile(product(4, 8, 3), num_threads=num_threads)  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize("shapes", [{"x": 8}, {"x": "4,8"}, {"x": (4.0, 8)}, "x", 3])
def test_wrong_shapes_are_named(shapes: object) -> None:
    with pytest.raises(UsageError, match="shapes: expected input names and tuples of extents, got"):
        cuvil.compile(product(4, 8, 3), shapes=shapes)  # type: ignore[arg-type]  # wrong on purpose


def test_strided_and_reversed_inputs_are_taken() -> None:
    compiled = cuvil.compile(product(4, 8, 3))
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    for view in (x[::2], x.T[:4], x[3::-1]):
        np.testing.assert_array_equal(compiled(view), compiled(view.copy()))
    with pytest.raises(UsageError, match="inputs: expected arrays by name, got ndarray"):
        compiled.run(x)  # type: ignore[arg-type]  # wrong on purpose
