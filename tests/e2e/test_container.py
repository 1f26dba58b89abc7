"""`.cuv` files: one file for several targets, with the same bits on all of their machines."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest

import cuvil
from cuvil import container
from cuvil.container import CODE, WEIGHTS, read_container
from cuvil.doctor import examine
from cuvil.driver import Options, compile_model
from cuvil.errors import ModelError, ToolchainError, UsageError
from cuvil.ir.types import Array
from cuvil.native import find_obstacle
from cuvil.targets.target import find_target
from cuvil.toolchain import host_target
from tests.e2e.models import attention, convolution, functions, product
from tests.e2e.test_library import run_on, sample
from tests.judging import bits
from tests.needs import need_module, need_program, need_target

TARGETS = ("x86_64-linux", "x86_64-linux-v4", "aarch64-linux", "riscv64-linux-v")
MODELS = {
    "product": product(5, 30, 17),
    "convolution": convolution(10, 3, 20),
    "attention": attention(9, 32, 4),
    "functions": functions(20_000),
}


def export(model: onnx.ModelProto, path: Path, targets: Sequence[str] = TARGETS) -> Path:
    cuvil.export(model, path, targets=targets)
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Each model for all of the targets."""
    folder = tmp_path_factory.mktemp("files")
    return {name: export(model, folder / f"{name}.cuv") for name, model in MODELS.items()}


def inputs_of(name: str) -> Array:
    shape = cuvil.compile(MODELS[name]).inputs[0].shape
    return sample(tuple(extent for extent in shape if isinstance(extent, int)))


@pytest.mark.parametrize(
    ("target", "machine"),
    [
        ("x86_64-linux", ""),
        ("aarch64-linux", ""),
        ("riscv64-linux-v", "vlen=128"),
        ("riscv64-linux-v", "vlen=512"),
    ],
)
@pytest.mark.parametrize("name", MODELS)
def test_one_file_gives_the_same_bits_on_every_machine(
    name: str, target: str, machine: str, files: dict[str, Path], tmp_path: Path
) -> None:
    need_target(target)
    x = inputs_of(name)
    expected = cuvil.compile(MODELS[name]).run({"x": x})
    actual = run_on(target, files[name], tmp_path, x, machine)
    for got, wanted in zip(actual, expected.values(), strict=True):
        np.testing.assert_array_equal(bits(got), bits(wanted).reshape(-1))


def emulate(cpu: str, target: str, path: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs a file for the product on an emulated processor."""
    entry, record = examine()["targets"][target], find_target(target)
    case = folder / "cases" / "ones"
    case.mkdir(parents=True)
    (case / "manifest.txt").write_text("cuvil-tensors 1\ntensor float32 2 5 30 x.bin x\n")
    (case / "x.bin").write_bytes(np.ones(150, np.float32).tobytes())
    sysroot = [] if record.sysroot == "/" else ["-L", record.sysroot]
    command = [need_program(record.emulator), "-cpu", cpu, *sysroot, entry["runner"], str(path)]
    command += [str(folder / "cases"), str(folder / "out")]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_a_machine_without_avx512_takes_the_code_without(files: dict[str, Path], tmp_path: Path) -> None:
    finished = emulate("max", "x86_64-linux", files["product"], tmp_path)
    assert (finished.returncode, finished.stderr) == (0, "")
    result = np.fromfile(tmp_path / "out" / "ones" / "0.bin", np.float32)
    expected = cuvil.compile(MODELS["product"]).run({"x": np.ones((5, 30), np.float32)})["y"]
    np.testing.assert_array_equal(bits(result), bits(expected).reshape(-1))


def test_a_machine_that_no_code_fits_is_told_why(files: dict[str, Path], tmp_path: Path) -> None:
    need_target("riscv64-linux-v")
    finished = emulate("rv64,v=false", "riscv64-linux", files["product"], tmp_path)
    assert finished.returncode == 4
    lines = [line for line in finished.stderr.splitlines() if "cuvil-run" in line]
    assert lines == [
        f"cuvil-run: '{files['product']}': has no code for this machine (RISC-V): "
        "'aarch64-linux' is for AArch64; 'riscv64-linux-v' needs V (vectors), which this machine lacks; "
        "'x86_64-linux-v4' is for x86-64; 'x86_64-linux' is for x86-64"
    ]


def test_this_machine_takes_the_code_that_asks_for_most(files: dict[str, Path]) -> None:
    fitting = [find_target(name) for name in TARGETS if find_obstacle(find_target(name)) is None]
    assert cuvil.load(files["product"]).target == max(fitting, key=lambda target: target.demand).name


def test_foreign_code_alone_is_refused(tmp_path: Path) -> None:
    foreign = next(name for name in TARGETS if find_target(name).platform != host_target())
    path = export(MODELS["product"], tmp_path / "m.cuv", [foreign])
    with pytest.raises(ToolchainError, match=f"has no code for this machine .*'{foreign}' is for "):
        cuvil.load(path)


def test_the_same_targets_in_any_order_and_folder_give_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "deeper").mkdir()
    first = export(MODELS["convolution"], tmp_path / "first.cuv")
    second = export(MODELS["convolution"], tmp_path / "deeper" / "second.cuv", TARGETS[::-1])
    assert first.read_bytes() == second.read_bytes()


def test_equal_weights_are_there_once(files: dict[str, Path]) -> None:
    sections = read_container(files["attention"]).sections
    weights_of = {section.target: section.weights for section in sections if section.kind == CODE}
    assert weights_of["aarch64-linux"] == weights_of["riscv64-linux-v"]
    assert (
        len(set(weights_of.values())) == sum(section.kind == WEIGHTS for section in sections) < len(TARGETS)
    )


def test_weights_are_mapped_and_code_is_no_file(files: dict[str, Path]) -> None:
    path = str(files["attention"])
    model = cuvil.load(path)
    lines = Path("/proc/self/maps").read_text().splitlines()
    assert [line.split()[1] for line in lines if line.endswith(path)] == ["r--s"]
    assert any("/memfd:cuvil-code" in line for line in lines)
    del model
    assert path not in Path("/proc/self/maps").read_text()


def test_saved_model_computes_what_the_compiled_one_does(tmp_path: Path) -> None:
    compiled = cuvil.compile(MODELS["attention"])
    compiled.save(tmp_path / "m.cuv")
    assert [path.name for path in tmp_path.iterdir()] == ["m.cuv"]
    x = inputs_of("attention")
    loaded = cuvil.load(tmp_path / "m.cuv", verify=True)
    assert loaded.target == compiled.target
    np.testing.assert_array_equal(loaded(x), compiled(x))
    with pytest.raises(UsageError, match="was loaded from"):
        loaded.save(tmp_path / "n.cuv")


def test_a_model_without_weights(tmp_path: Path) -> None:
    model, x = functions(3), np.ones(3, np.float32)
    loaded = cuvil.load(export(model, tmp_path / "m.cuv", [host_target()]))
    for name, array in cuvil.compile(model).run({"x": x}).items():
        np.testing.assert_array_equal(loaded.run({"x": x})[name], array)


def test_a_pytorch_module_for_two_targets(tmp_path: Path) -> None:
    torch = need_module("torch")
    module, x = torch.nn.Linear(3, 2).eval(), torch.ones(1, 3)
    targets = [host_target(), "aarch64-linux-armv8a"]
    cuvil.export(module, tmp_path / "m.cuv", (x,), targets=targets)
    expected = module(x).detach().numpy()
    np.testing.assert_allclose(cuvil.load(tmp_path / "m.cuv")(x.numpy()), expected, rtol=1e-5)


def test_a_file_that_was_replaced_is_loaded_anew(tmp_path: Path) -> None:
    loaded = []
    for columns in (4, 5, 6):
        path = export(product(2, 3, columns), tmp_path / "m.cuv", [host_target()])
        loaded.append(cuvil.load(path))
    x = np.ones((2, 3), np.float32)
    assert [model(x).shape for model in loaded] == [(2, 4), (2, 5), (2, 6)]  # type: ignore[union-attr]  # one output


def test_damaged_weights_are_found_where_it_is_asked_for(tmp_path: Path) -> None:
    path = export(MODELS["product"], tmp_path / "m.cuv", [host_target()])
    data = bytearray(path.read_bytes())
    data[-100] ^= 1
    path.write_bytes(data)
    cuvil.load(path)
    with pytest.raises(ModelError, match="damaged: section 2: its checksum differs"):
        cuvil.load(path, verify=True)


@pytest.mark.parametrize(
    ("name", "targets", "words"),
    [
        ("m.so", TARGETS, "a library holds code for one target, got 4"),
        ("m.bin", TARGETS, r"wrong name; expected one that ends in '\.so' or '\.cuv'"),
        ("none/m.cuv", TARGETS, "no such folder"),
        ("m.cuv", [], "targets: expected a list of names"),
        ("m.cuv", "x86_64-linux", "targets: expected a list of names, got 'x86_64-linux'"),
        ("m.cuv", ["x86_64-linux", "z80"], "target: unknown"),
        ("m.cuv", ["aarch64-linux", "aarch64-linux"], "target 'aarch64-linux': is given twice"),
    ],
)
def test_what_can_not_be_exported(name: str, targets: Sequence[str], words: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=words):
        export(MODELS["product"], tmp_path / name, targets)
    assert list(tmp_path.iterdir()) == []


def test_different_models_are_no_one_file(tmp_path: Path) -> None:
    artifacts = [
        compile_model(product(2, 3, columns), Options(target))
        for columns, target in ((4, "x86_64-linux"), (5, "aarch64-linux"))
    ]
    with pytest.raises(UsageError, match="got different models"):
        container.save(artifacts, tmp_path / "m.cuv")


def test_nothing_half_written_when_the_linker_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUVIL_LINKER", "/nonexistent/ld")
    with pytest.raises(ToolchainError, match="CUVIL_LINKER"):
        export(MODELS["product"], tmp_path / "m.cuv")
    assert list(tmp_path.iterdir()) == []
