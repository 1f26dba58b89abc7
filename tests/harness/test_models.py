"""The models: listing needs no torch, parameters and inputs are fixed, special cases say something."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cuvil_regress import models
from cuvil_regress.errors import UsageError
from cuvil_regress.models._cases import SPECIAL_ROWS, tiny

FOLDER = Path(models.__file__).parent
LEAST_NORMAL = np.float32(2.0**-126)


def test_the_registry_is_the_folder() -> None:
    files = {path.stem for path in FOLDER.glob("[!_]*.py")}
    assert files == set(models.names()) >= {"encoder", "lstm", "mlp", "resnet"}
    assert all(models.load(name).summary for name in models.names())


def test_listing_and_inputs_need_no_torch() -> None:
    script = (
        "import sys; sys.modules['torch'] = None\n"
        "from cuvil_regress import models\n"
        "for name in models.names():\n"
        "    for case in models.CASES: models.load(name).inputs(case)\n"
        "try: models.load('mlp').build()\n"
        "except models.ToolMissingError as error: print(error.exit_code, error)\n"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.startswith("3 torch: can't be imported")


def test_unknown_names_are_usage_errors() -> None:
    with pytest.raises(UsageError, match="unknown name") as caught:
        models.load("resnte")
    assert caught.value.hint == "did you mean 'resnet'?"
    with pytest.raises(UsageError, match="unknown case"):
        models.load("mlp").inputs("specail")


TAKING_TOKENS = ("bert", "gpt", "gru")


@pytest.mark.parametrize("name", sorted(set(models.names()) - set(TAKING_TOKENS)))
def test_inputs_are_float32_and_every_special_row_holds_its_kind(name: str) -> None:
    model = models.load(name)
    (ordinary,), (special,) = (model.inputs(case).values() for case in models.CASES)
    assert ordinary.dtype == special.dtype == np.float32
    assert np.isfinite(ordinary).all()
    rows = dict(zip(SPECIAL_ROWS, special, strict=True))
    assert np.isfinite(rows["ordinary"]).all()
    assert np.isnan(rows["nan"]).sum() == 2
    assert np.isinf(rows["inf"]).sum() == 1
    assert np.abs(rows["tiny"]).max() < 2 * LEAST_NORMAL


@pytest.mark.parametrize("name", TAKING_TOKENS)
def test_special_tokens_are_the_edges_and_those_with_special_embeddings(torch: Any, name: str) -> None:
    model = models.load(name)
    table = model.build().token.weight.numpy(force=True)
    ordinary, special = (model.inputs(case)["tokens"] for case in models.CASES)
    assert {array.dtype.name for case in models.CASES for array in model.inputs(case).values()} == {"int64"}
    assert np.isfinite(table[ordinary]).all()
    assert (special.min(), special.max()) == (0, len(table) - 1)
    rows = dict(zip(SPECIAL_ROWS, table[special], strict=True))
    assert np.isfinite(rows["ordinary"]).all()
    assert np.isnan(rows["nan"]).sum() == 2
    assert np.isinf(rows["inf"]).sum() == 1
    assert np.abs(rows["tiny"][-1]).max() < 2 * LEAST_NORMAL


def test_no_choice_of_the_router_is_a_coin_toss(torch: Any) -> None:
    """Every token's first three logits lie apart, so that neither the set nor the order is in doubt."""
    model = models.load("moe")
    module = model.build().double()
    for case in models.CASES:
        tokens = torch.from_numpy(model.inputs(case)["tokens"]).double()
        with torch.no_grad():
            logits = np.sort(module.route(tokens).numpy())[..., : -model.module.CHOSEN - 2 : -1]
        assert logits.shape[-1] == 3
        assert np.min(logits[..., :-1] - logits[..., 1:]) >= model.module.MARGIN >= 1e-3
        chosen = model.evaluate(case, "float32").outputs["experts"]
        assert np.array_equal(chosen, model.evaluate(case, "float64").outputs["experts"])
        assert len(np.unique(chosen)) > 4


def test_tiny_values_hold_every_kind_of_both_signs() -> None:
    values = tiny("tiny", 400)
    magnitudes = np.abs(values)
    for kind in (magnitudes == 0, (magnitudes > 0) & (magnitudes < LEAST_NORMAL), magnitudes >= LEAST_NORMAL):
        signs = np.signbit(values[kind])
        assert 0 < signs.sum() < signs.size


@pytest.mark.parametrize("name", models.names())
def test_float32_and_float64_agree_on_where_nan_and_inf_are(torch: Any, name: str) -> None:
    model = models.load(name)
    narrow, wide = (model.evaluate("special", dtype).outputs for dtype in ("float32", "float64"))
    for output in model.outputs:
        ours, theirs = narrow[output], wide[output]
        if ours.dtype.kind == "i":
            assert np.array_equal(ours, theirs)
            continue
        assert (ours.dtype.name, theirs.dtype.name) == ("float32", "float64")
        assert np.array_equal(np.isnan(ours), np.isnan(theirs))
        infinite = np.isinf(theirs)
        assert np.array_equal(np.where(np.isinf(ours), ours, 0), np.where(infinite, theirs, 0))
        assert np.isnan(ours[1]).any()
        assert np.isfinite(ours[[0, 3]]).all()


def test_special_values_reach_outputs_that_stay_informative(torch: Any) -> None:
    hidden = models.load("mlp").evaluate("special", "float32").outputs["hidden"]
    assert 0 < np.isinf(hidden[2]).sum() < hidden[2].size
    assert ((hidden[3] > 0) & (hidden[3] < LEAST_NORMAL)).any()
    sequence = models.load("lstm").evaluate("special", "float32").outputs["sequence"]
    assert np.isfinite(sequence[1, :8]).all()
    assert np.isnan(sequence[1, 8:]).all()
    for name, output in (("resnet", "stage1"), ("mobilenet", "features"), ("unet", "skip")):
        image = models.load(name).evaluate("special", "float32").outputs[output]
        assert 0 < np.isnan(image[1]).mean() < 0.6
    states = models.load("gru").evaluate("special", "float32").outputs["states"]
    forward, backward = np.split(np.isnan(states[1]), 2, axis=-1)
    assert not forward[:8].any()
    assert forward[8:].all()
    assert backward[:9].all()
    assert not backward[9:].any()


@pytest.mark.parametrize("name", models.names())
def test_ordinary_activations_are_of_ordinary_size(torch: Any, name: str) -> None:
    for output in models.load(name).evaluate("ordinary", "float32").outputs.values():
        if output.dtype.kind == "i":
            continue
        assert np.isfinite(output).all()
        assert 0.01 < output.std() < 10
        assert np.abs(output).max() < 100


@pytest.mark.parametrize("name", models.names())
def test_parameters_do_not_depend_on_torch_seeds(torch: Any, name: str) -> None:
    torch.manual_seed(1)
    first = models.load(name).evaluate("ordinary", "float32")
    torch.manual_seed(2)
    second = models.load(name).evaluate("ordinary", "float64")
    assert first.parameters_sha256 == second.parameters_sha256


def test_no_parameter_of_the_residual_network_is_trivial(torch: Any) -> None:
    module = models.load("resnet").build()
    assert not any(part.training for part in module.modules())
    for name, tensor in module.state_dict().items():
        if tensor.is_floating_point():
            assert tensor.unique().numel() == tensor.numel() or tensor.numel() > 1000, name
        if name.endswith("running_var"):
            assert tensor.min() >= 0.5


@pytest.mark.parametrize("name", models.names())
def test_models_stay_small_enough_for_emulation(torch: Any, name: str) -> None:
    """Multiplications of all convolutions and matrix products, counted by hooks, twice each."""
    module, flops = models.load(name).build(), 0
    nn = torch.nn

    def count(layer: Any, operands: Any, output: Any) -> None:
        nonlocal flops
        if isinstance(layer, nn.RNNBase):
            steps = operands[0].shape[0] * operands[0].shape[1]
            flops += 2 * steps * sum(weights.numel() for weights in layer.parameters())
        else:
            down = isinstance(layer, nn.ConvTranspose2d)
            flops += 2 * (operands[0] if down else output).numel() * layer.weight[0].numel()

    for layer in module.modules():
        if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d | nn.Linear | nn.RNNBase):
            layer.register_forward_hook(count)
    with torch.no_grad():
        module(*map(torch.from_numpy, models.load(name).inputs("ordinary").values()))
    assert 200_000 < flops < 80_000_000
