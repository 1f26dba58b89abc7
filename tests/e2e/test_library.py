"""Model libraries: self-contained, deterministic, loadable, and with the same bits on every target."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import cuvil
from cuvil import driver, toolchain
from cuvil.artifact import EXPORTED_SYMBOLS
from cuvil.doctor import examine
from cuvil.driver import Options, compile_model
from cuvil.errors import ModelError, ToolchainError, UsageError
from cuvil.ir.types import Array
from cuvil.objects import read_dynamic_symbols
from cuvil.passes.fold_constants import fold_constants
from cuvil.targets.target import TARGET_NAMES, find_target
from tests.e2e.models import attention, convolution, functions, product
from tests.judging import bits
from tests.needs import need_target

MODELS = {
    "product": product(5, 30, 17),
    "convolution": convolution(10, 3, 20),
    "attention": attention(9, 32, 4),
    "functions": functions(50_000),
}


def fixed_shape(compiled: cuvil.CompiledModel) -> tuple[int, ...]:
    return tuple(extent for extent in compiled.inputs[0].shape if isinstance(extent, int))


def save(model: onnx.ModelProto, target: str, path: Path) -> Path:
    compile_model(model, Options(target)).save(path)
    return path


@pytest.mark.parametrize("target", TARGET_NAMES)
@pytest.mark.parametrize("name", MODELS)
def test_library_stands_alone(name: str, target: str, tmp_path: Path) -> None:
    symbols = read_dynamic_symbols(save(MODELS[name], target, tmp_path / "m.so"))
    assert symbols.undefined == ()
    assert symbols.needed == ()
    assert sorted(symbols.exported) == sorted(EXPORTED_SYMBOLS)


def test_library_loads_with_rtld_now(tmp_path: Path) -> None:
    path = save(MODELS["attention"], toolchain.host_target(), tmp_path / "m.so")
    library = ctypes.CDLL(str(path), mode=os.RTLD_NOW)
    assert all(hasattr(library, symbol) for symbol in EXPORTED_SYMBOLS)


SETTINGS: tuple[dict[str, str], ...] = (
    {},
    {"NPY_DISABLE_CPU_FEATURES": "AVX512F AVX512_SKX AVX2 FMA3", "OPENBLAS_CORETYPE": "Nehalem"},
)
"""Of NumPy and its BLAS: which of their kernels run on the compiling machine."""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the settings name x86-64 features")
@pytest.mark.parametrize("name", MODELS)
def test_the_compiling_machine_s_numpy_has_no_influence(name: str, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(MODELS[name].SerializeToString())
    images = []
    for number, setting in enumerate(SETTINGS):
        output = tmp_path / str(number) / "m.so"
        output.parent.mkdir()
        command = [sys.executable, "-W", "ignore", "-m", "cuvil.cli", "compile"]
        command += ["--model", str(tmp_path / "m.onnx"), "--output", str(output)]
        subprocess.run(command, env={**os.environ, **setting}, check=True, timeout=120)
        images.append(output.read_bytes())
    assert images[0] == images[1]


@pytest.mark.parametrize("name", MODELS)
def test_nothing_passes_by_being_folded_away(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = sample(fixed_shape(cuvil.compile(MODELS[name])))
    expected = cuvil.compile(MODELS[name]).run({"x": x})
    monkeypatch.setattr(driver, "PASSES", tuple(p for p in driver.PASSES if p is not fold_constants))
    for output, array in cuvil.compile(MODELS[name]).run({"x": x}).items():
        np.testing.assert_array_equal(bits(array), bits(expected[output]))


@pytest.mark.parametrize("target", TARGET_NAMES)
def test_two_compilations_give_the_same_bytes(target: str, tmp_path: Path) -> None:
    digests = []
    for folder in ("first", "second/deeper"):
        (tmp_path / folder).mkdir(parents=True)
        path = save(MODELS["convolution"], target, tmp_path / folder / "m.so")
        meta = path.with_name("m.cuvil-meta.json")
        digests.append((hashlib.sha256(path.read_bytes()).digest(), meta.read_bytes()))
    assert digests[0] == digests[1]


def test_metadata_describes_the_library(tmp_path: Path) -> None:
    path = save(MODELS["product"], "aarch64-linux", tmp_path / "libp.so")
    meta = json.loads((tmp_path / "libp.cuvil-meta.json").read_text())
    assert meta["schema_version"] == 2
    assert meta["dimensions"] == []
    assert meta["inputs"] == [{"name": "x", "dtype": "float32", "shape": [5, 30]}]
    assert meta["outputs"] == [{"name": "y", "dtype": "float32", "shape": [5, 17]}]
    assert meta["target"]["name"] == "aarch64-linux"
    assert meta["target"]["cpu"] == "cortex-a78"
    assert meta["target"]["isa"] == ["neon", "crc", "lse", "rdm", "fullfp16", "dotprod", "rcpc"]
    assert meta["target"]["min_vlen_bits"] == 0
    assert meta["numerics"] == "strict"
    assert meta["library"]["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert [node["loc"] for node in meta["nodes"]] == ["Gemm 'fc'; Relu 'act'"]


def test_loaded_library_computes_what_the_compiled_model_does(tmp_path: Path) -> None:
    model = MODELS["attention"]
    compiled = cuvil.compile(model)
    compiled.save(tmp_path / "m.so")
    x = np.random.default_rng(0).standard_normal((1, 9, 32)).astype(np.float32)
    np.testing.assert_array_equal(cuvil.load(tmp_path / "m.so")(x), compiled(x))


def run_on(target: str, library: Path, folder: Path, x: Array, machine: str = "") -> list[Array]:
    """A library's outputs, flat, by its target's runner, emulated where this machine is another one."""
    entry = examine()["targets"][target]
    if machine:
        entry["emulator_arguments"] = entry["machines"][machine]
    case = folder / "cases" / "only"
    case.mkdir(parents=True)
    (case / "x.bin").write_bytes(x.tobytes())
    extents = " ".join(map(str, x.shape))
    (case / "manifest.txt").write_text(f"cuvil-tensors 1\ntensor float32 {x.ndim} {extents} x.bin x\n")
    emulator = [] if entry["emulator"] is None else [entry["emulator"], *entry["emulator_arguments"]]
    sysroot = [] if entry["sysroot"] is None else ["-L", entry["sysroot"]]
    command = [*emulator, *sysroot, entry["runner"], str(library), str(folder / "cases"), str(folder / "out")]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    lines = (folder / "out" / "only" / "manifest.txt").read_text().splitlines()[1:]
    files = [next(word for word in line.split() if word.endswith(".bin")) for line in lines]
    return [np.fromfile(folder / "out" / "only" / file, np.float32) for file in files]


MACHINES = [(name, machine) for name in TARGET_NAMES for machine in (find_target(name).machines or ("",))]
"""Every target, and each of the machines that it names."""


@pytest.mark.parametrize(("target", "machine"), MACHINES)
@pytest.mark.parametrize("name", MODELS)
def test_every_machine_gives_the_same_bits(name: str, target: str, machine: str, tmp_path: Path) -> None:
    need_target(target)
    model = MODELS[name]
    compiled = cuvil.compile(model)
    x = sample(fixed_shape(compiled))
    outputs = compiled.run({"x": x})
    actual = run_on(target, save(model, target, tmp_path / "m.so"), tmp_path, x, machine)
    for got, wanted in zip(actual, outputs.values(), strict=True):
        np.testing.assert_array_equal(bits(got), bits(wanted).reshape(-1))


def sample(shape: tuple[int, ...]) -> Array:
    """Ordinary values, special ones, and for large tensors any bit pattern at all."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape).astype(np.float32)
    flat = x.reshape(-1)
    if flat.size > 10_000:
        flat[:] = rng.integers(0, 2**32, flat.size, np.uint32).view(np.float32)
        flat[: flat.size // 2] = rng.uniform(-100, 100, flat.size // 2)
    flat[:5] = [np.nan, 1e-41, -0.0, np.inf, -3e38]
    return x


def test_foreign_library_is_refused_with_both_machines_named(tmp_path: Path) -> None:
    foreign = next(name for name in toolchain.PLATFORMS if name != toolchain.host_target())
    path = save(MODELS["product"], foreign, tmp_path / "m.so")
    with pytest.raises(ToolchainError, match="machine"):
        cuvil.load(path)


@pytest.mark.parametrize("keep", [0.0, 0.02, 0.5, 0.99])
def test_truncated_library_is_refused(keep: float, tmp_path: Path) -> None:
    path = save(MODELS["product"], toolchain.host_target(), tmp_path / "m.so")
    data = path.read_bytes()
    broken = tmp_path / "broken.so"
    broken.write_bytes(data[: int(len(data) * keep)])
    with pytest.raises((ToolchainError, ModelError), match="broken"):
        cuvil.load(broken)


def test_nothing_half_written_when_the_linker_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUVIL_LINKER", "/nonexistent/ld")
    with pytest.raises(ToolchainError, match="CUVIL_LINKER"):
        cuvil.compile(MODELS["product"]).save(tmp_path / "m.so")
    assert list(tmp_path.iterdir()) == []


def test_save_names_a_missing_folder_and_a_wrong_suffix(tmp_path: Path) -> None:
    compiled = cuvil.compile(MODELS["product"])
    with pytest.raises(UsageError, match="no such folder"):
        compiled.save(tmp_path / "none" / "m.so")
    with pytest.raises(UsageError, match=r"ends in '\.so'"):
        compiled.save(tmp_path / "m.dll")


def test_a_library_that_was_replaced_is_loaded_anew(tmp_path: Path) -> None:
    path = tmp_path / "m.so"
    cuvil.compile(product(2, 3, 4)).save(path)
    first = cuvil.load(path)
    for columns in (5, 6, 7):
        cuvil.compile(product(2, 3, columns)).save(path)
        assert cuvil.load(path).outputs[0].shape == (2, columns)
    assert first(np.ones((2, 3), np.float32)).shape == (2, 4)  # type: ignore[union-attr]  # one output


@pytest.mark.parametrize(("target", "machine"), MACHINES)
def test_one_library_runs_every_size_within_its_bounds(target: str, machine: str, tmp_path: Path) -> None:
    need_target(target)
    model = product(5, 30, 17)
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "n"
    library = tmp_path / "m.so"
    compile_model(model, Options(target, dims={"n": (1, 40)})).save(library)
    metadata = json.loads((tmp_path / "m.cuvil-meta.json").read_text())
    assert metadata["dimensions"] == [{"name": "n", "minimum": 1, "maximum": 40}]
    assert metadata["outputs"][0]["shape"] == ["n", 17]
    for size in (1, 13, 40):
        x = sample((size, 30))
        expected = cuvil.compile(product(size, 30, 17))(x)
        (folder := tmp_path / str(size)).mkdir()
        (actual,) = run_on(target, library, folder, x, machine)
        np.testing.assert_array_equal(bits(actual), bits(np.asarray(expected)).reshape(-1))


def test_sizes_outside_of_the_bounds_are_named() -> None:
    model = product(5, 30, 17)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    compiled = cuvil.compile(model, dims={"n": (2, 40)})
    assert compiled.inputs[0].shape == ("n", 30)
    for size in (1, 41):
        with pytest.raises(UsageError, match=f"dimension 'n': out of bounds; expected 2 to 40, got {size}"):
            compiled(np.zeros((size, 30), np.float32))
    with pytest.raises(UsageError, match="wrong shape; expected"):
        compiled(np.zeros((2, 31), np.float32))
    with pytest.raises(UsageError, match="no open dimension is named 'm'; expected one of 'n'"):
        cuvil.compile(model, dims={"n": (1, 2), "m": (1, 2)})
    with pytest.raises(UsageError, match="bounds of dimension 'n' are wrong"):
        cuvil.compile(model, dims={"n": (0, 2)})
    with pytest.raises(UsageError, match="dims: expected names and pairs of bounds"):
        cuvil.compile(model, dims={"n": 3})  # type: ignore[dict-item]  # what a caller may pass
