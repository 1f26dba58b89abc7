"""PyTorch modules: compiled from Python by one call, equal to eager, and left as they were found."""

from __future__ import annotations

import importlib.util
import logging
import sys
import warnings
from typing import Any

import numpy as np
import pytest

import cuvil
from cuvil.errors import CuvilError, ModelError, UnsupportedError, UsageError
from cuvil.ir.types import Array
from tests.needs import need


@pytest.fixture(scope="module")
def torch() -> Any:
    need("torch", importlib.util.find_spec("torch") is not None)
    module = importlib.import_module("torch")
    module.manual_seed(0)
    return module


def module_of(torch: Any, function: Any) -> Any:
    """A module without parameters whose `forward` is this function."""
    return type("Small", (torch.nn.Module,), {"forward": function})()


def agree(torch: Any, module: Any, examples: tuple[Any, ...]) -> None:
    """Compares a compiled module with eager, on other values than the examples."""
    compiled = cuvil.compile(module, examples)
    inputs = tuple(torch.randn_like(example) for example in examples)
    with torch.no_grad():
        expected = module.eval()(*inputs)
    actual = compiled(*[value.numpy() for value in inputs])
    for got, wanted in zip(as_tuple(actual), as_tuple(expected), strict=True):
        np.testing.assert_allclose(got, wanted.numpy(), rtol=1e-5, atol=1e-5)


def as_tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def perceptron(nn: Any) -> Any:
    return nn.Sequential(nn.Linear(12, 20), nn.GELU(), nn.Dropout(0.5), nn.LayerNorm(20), nn.Linear(20, 5))


def convolutional(nn: Any) -> Any:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.SiLU(),
        nn.Conv2d(8, 8, 3, stride=2, groups=8),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Softmax(-1),
    )


def transformer(nn: Any) -> Any:
    class Block(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(16, 4, batch_first=True)
            self.norm = nn.LayerNorm(16)

        def forward(self, x: Any) -> Any:
            return self.norm(x + self.attention(x, x, x, need_weights=False)[0])

    return Block()


@pytest.mark.parametrize(
    ("build", "shape"),
    [(perceptron, (4, 12)), (convolutional, (2, 3, 9, 9)), (transformer, (2, 5, 16))],
    ids=["perceptron", "convolutional", "transformer"],
)
def test_results_agree_with_eager(build: Any, shape: tuple[int, ...], torch: Any) -> None:
    agree(torch, build(torch.nn), (torch.randn(shape),))


def test_several_inputs_and_outputs_in_order_and_by_name(torch: Any) -> None:
    module = module_of(torch, lambda self, left, right: (left - right, left @ right.T, right * 2))
    examples = (torch.randn(3, 4), torch.randn(3, 4))
    agree(torch, module, examples)
    compiled = cuvil.compile(module, examples)
    assert [info.name for info in compiled.inputs] == ["left", "right"]
    left, right = np.ones((3, 4), np.float32), np.full((3, 4), 2, np.float32)
    outputs = compiled(right=right, left=left)
    assert isinstance(outputs, tuple)
    assert [array.shape for array in outputs] == [(3, 4), (3, 3), (3, 4)]
    np.testing.assert_array_equal(outputs[0], left - right)


def test_nested_examples_and_numbers_become_inputs_in_their_order(torch: Any) -> None:
    module = module_of(torch, lambda self, x, pair, scale: (x + pair[0]) * scale - pair[1])
    one = torch.ones(2, 3)
    compiled = cuvil.compile(module, (one, (one, one), 2.0))
    arrays: list[Array] = [np.full((2, 3), value, np.float32) for value in (1, 2, 4)]
    np.testing.assert_array_equal(compiled(*arrays, np.asarray(3.0)), np.full((2, 3), 5, np.float32))


def test_every_submodule_keeps_its_mode(torch: Any) -> None:
    nn = torch.nn
    module = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Sequential(nn.Dropout(0.5)))
    module.train()
    module[1].eval()
    statistics = module[1].running_mean.clone()
    modes = [part.training for part in module.modules()]
    assert modes == [True, True, False, True, True]
    compiled = cuvil.compile(module, (torch.randn(4, 3),))
    assert [part.training for part in module.modules()] == modes
    assert torch.equal(module[1].running_mean, statistics)
    x = np.ones((4, 3), np.float32)
    np.testing.assert_array_equal(compiled(x), compiled(x))


def test_mode_is_kept_when_the_export_fails(torch: Any) -> None:
    module = module_of(torch, lambda self, x: torch.linalg.svd(x)[0])
    with pytest.raises(ModelError):
        cuvil.compile(module, (torch.randn(3, 3),))
    assert module.training
    assert torch.is_grad_enabled()


def failing(self: object, x: object) -> object:
    raise RuntimeError("\nno forward today\nand a second line")


def no_onnx_form(self: object, x: Any) -> Any:
    torch = importlib.import_module("torch")
    return torch.linalg.svd(x)[0]


@pytest.mark.parametrize(
    ("forward", "words"),
    [
        (failing, "Small: PyTorch can't export it: no forward today"),
        (no_onnx_form, "Small: PyTorch can't export it: Exporting the operator 'aten::linalg_svd' to ONNX"),
    ],
)
def test_module_that_can_not_be_exported(
    forward: Any, words: str, torch: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ModelError) as caught:
        cuvil.compile(module_of(torch, forward), (torch.randn(3, 3),))
    message = caught.value.render()
    assert message.startswith(words)
    assert "\n" not in message
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "")


def test_operator_that_is_not_compiled(torch: Any) -> None:
    module = module_of(torch, lambda self, x: torch.nonzero(x))
    with pytest.raises(UnsupportedError, match=r"1 operator is not supported \(opset 17\): NonZero"):
        cuvil.compile(module, (torch.randn(3, 3),))


def test_half_precision_names_the_input(torch: Any) -> None:
    module = module_of(torch, lambda self, x: x + 1)
    with pytest.raises(UnsupportedError, match=r"input 'x': element type is not supported.*got float16"):
        cuvil.compile(module, (torch.ones(2, dtype=torch.float16),))


def test_wrong_arguments(torch: Any) -> None:
    linear = torch.nn.Linear(3, 2)
    x = torch.randn(4, 3)
    wrong: list[tuple[tuple[Any, ...], type[CuvilError], str]] = [
        ((linear,), UsageError, "example_inputs: .*expected a tuple of tensors, got NoneType"),
        ((linear, x), UsageError, "example_inputs: .*expected a tuple of tensors, got Tensor"),
        ((torch.nn.Linear, (x,)), UsageError, "model: expected a module, got the class Linear"),
        ((linear, ()), ModelError, "Linear: PyTorch can't export it: .*missing 1 required"),
        ((linear, (x, x)), ModelError, "Linear: PyTorch can't export it: .*3 were given"),
        ((linear, (torch.randn(4, 5),)), ModelError, "Linear: PyTorch can't export it: .*multiplied"),
        (("model.onnx", (x,)), UsageError, "example_inputs: only a PyTorch module takes them"),
    ]
    for arguments, error, words in wrong:
        with pytest.raises(error, match=words) as caught:
            cuvil.compile(*arguments)
        assert "\n" not in str(caught.value)


def test_nothing_is_shown(torch: Any, capfd: pytest.CaptureFixture[str]) -> None:
    """The tests turn warnings into errors: an export that warns would fail here."""

    def forward(self: object, x: Any) -> Any:
        print("tracing")
        warnings.warn("tracing", stacklevel=1)
        logging.getLogger("torch.onnx").warning("tracing")
        return x + 1

    disabled = logging.root.manager.disable
    stdout = sys.stdout
    compiled = cuvil.compile(module_of(torch, forward), (torch.randn(3, 3),))
    result: Array | tuple[Array, ...] = compiled(np.zeros((3, 3), np.float32))
    np.testing.assert_array_equal(result, np.ones((3, 3), np.float32))
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "")
    assert logging.root.manager.disable == disabled
    assert sys.stdout is stdout


def test_a_frozen_branch_is_told(torch: Any) -> None:
    def forward(self: object, x: Any) -> Any:
        return x * 2 if x.sum() > 0 else x * 3

    with pytest.warns(torch.jit.TracerWarning, match="might cause the trace to be incorrect"):
        cuvil.compile(module_of(torch, forward), (torch.ones(3),))


def test_dimensions_of_a_module_stay_open_by_name(torch: Any) -> None:
    class Attention(torch.nn.Module):  # type: ignore[misc]  # torch has no types here
        def __init__(self) -> None:
            super().__init__()
            self.query, self.norm = torch.nn.Linear(24, 24), torch.nn.LayerNorm(24)

        def forward(self, x: Any) -> Any:
            weights = (self.query(x) @ x.transpose(-2, -1)).softmax(-1)
            return self.norm(weights @ x)

    module = Attention().eval()
    dims = {"batch": (1, 4), "length": (1, 50)}
    compiled = cuvil.compile(
        module, (torch.zeros(2, 5, 24),), shapes={"x": ("batch", "length", 24)}, dims=dims
    )
    for batch, length in ((1, 1), (3, 50), (4, 7)):
        x = np.random.default_rng(0).standard_normal((batch, length, 24)).astype(np.float32)
        expected = cuvil.compile(module, (torch.from_numpy(x),))(x)
        np.testing.assert_array_equal(compiled(x), expected)
