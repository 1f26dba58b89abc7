"""Model libraries: self-contained, deterministic, loadable, and with the same bits on every target."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest

import cuvil
from cuvil import toolchain
from cuvil.artifact import EXPORTED_SYMBOLS
from cuvil.doctor import examine
from cuvil.driver import Options, compile_model
from cuvil.errors import ModelError, ToolchainError, UsageError
from cuvil.ir.types import Array
from cuvil.objects import read_dynamic_symbols
from cuvil.targets.target import TARGET_NAMES, find_target
from tests.e2e.models import attention, convolution, product
from tests.needs import need_target

MODELS = {
    "product": product(5, 30, 17),
    "convolution": convolution(10, 3, 20),
    "attention": attention(9, 32, 4),
}


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
    assert meta["schema_version"] == 1
    assert meta["inputs"] == [{"name": "x", "dtype": "float32", "shape": [5, 30]}]
    assert meta["outputs"] == [{"name": "y", "dtype": "float32", "shape": [5, 17]}]
    assert meta["target"]["name"] == "aarch64-linux"
    assert meta["target"]["cpu"] == "cortex-a78"
    assert meta["target"]["isa"] == ["neon", "crc", "lse", "rdm", "fullfp16", "dotprod", "rcpc"]
    assert meta["target"]["min_vlen_bits"] == 0
    assert meta["numerics"] == "strict"
    assert meta["library"]["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert [node["loc"] for node in meta["nodes"]] == ["Gemm 'fc'"]


def test_loaded_library_computes_what_the_compiled_model_does(tmp_path: Path) -> None:
    model = MODELS["attention"]
    compiled = cuvil.compile(model)
    compiled.save(tmp_path / "m.so")
    x = np.random.default_rng(0).standard_normal((1, 9, 32)).astype(np.float32)
    np.testing.assert_array_equal(cuvil.load(tmp_path / "m.so")(x), compiled(x))


def run_on(target: str, library: Path, folder: Path, x: Array, machine: str = "") -> Array:
    """Runs a library by its target's runner, under an emulator where this machine is another one."""
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
    (output,) = (folder / "out" / "only").glob("*.bin")
    return np.frombuffer(output.read_bytes(), np.float32)


MACHINES = [(name, machine) for name in TARGET_NAMES for machine in (find_target(name).machines or ("",))]
"""Every target, and each of the machines that it names."""


@pytest.mark.parametrize(("target", "machine"), MACHINES)
@pytest.mark.parametrize("name", MODELS)
def test_every_machine_gives_the_same_bits(name: str, target: str, machine: str, tmp_path: Path) -> None:
    need_target(target)
    model = MODELS[name]
    compiled = cuvil.compile(model)
    x = np.random.default_rng(0).standard_normal(compiled.inputs[0].shape).astype(np.float32)
    x.reshape(-1)[:5] = [np.nan, 1e-41, -0.0, np.inf, -3e38]
    expected = compiled(x)
    assert isinstance(expected, np.ndarray)
    actual = run_on(target, save(model, target, tmp_path / "m.so"), tmp_path, x, machine)
    nan = np.isnan(expected.reshape(-1))
    np.testing.assert_array_equal(np.isnan(actual), nan)
    np.testing.assert_array_equal(actual[~nan].view(np.int32), expected.reshape(-1)[~nan].view(np.int32))


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
