"""The target that `cuvil/README.md` adds as an example: it works as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import cuvil
import cuvil.targets
from cuvil import toolchain
from cuvil.driver import Options, assembly, compile_model, run_stages
from cuvil.targets import target as records
from tests.e2e.models import product
from tests.judging import bits
from tests.needs import need_target
from tests.runtime.conftest import run

README = Path(cuvil.__file__).with_name("README.md").read_text(encoding="utf-8")
NAME = "riscv64-linux-v256"
MODEL = product(6, 24, 20)
EXIT_WRONG_ISA = 4


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> records.Target:
    """The record, added as the text says."""
    block = re.search(r"```python\n# targets/(\w+\.py)\n(.*?)```", README, re.DOTALL)
    assert block
    folder = tmp_path / "targets"
    folder.mkdir()
    (folder / block[1]).write_text(block[2])
    monkeypatch.setattr(cuvil.targets, "__path__", [*cuvil.targets.__path__, str(folder)])
    monkeypatch.setattr(records, "TARGET_NAMES", (*records.TARGET_NAMES, NAME))
    return records.find_target(NAME)


def test_its_vectors_are_one_register_of_256_bits(example: records.Target) -> None:
    text = assembly(run_stages(MODEL, Options(example.name)))
    assert re.search(r"\bvsetivli\s+zero, 8, e32, m1\b", text)


@pytest.mark.parametrize("vlen_bits", [128, 256, 512])
def test_it_gives_the_same_bits_or_is_refused(
    example: records.Target, vlen_bits: int, tmp_path: Path
) -> None:
    need_target("riscv64-linux-v")
    x = np.random.default_rng(0).standard_normal((6, 24)).astype(np.float32)
    case = tmp_path / "cases" / "only"
    case.mkdir(parents=True)
    (case / "manifest.txt").write_text("cuvil-tensors 1\ntensor float32 2 6 24 x.bin x\n")
    (case / "x.bin").write_bytes(x.tobytes())
    compile_model(MODEL, Options(example.name)).save(tmp_path / "m.so")
    emulator = [
        example.emulator,
        "-cpu",
        f"rv64,v=true,vlen={vlen_bits},vext_spec=v1.0",
        "-L",
        example.sysroot,
    ]
    words = [
        toolchain.prebuilt(example.platform).runner,
        *(tmp_path / name for name in ("m.so", "cases", "out")),
    ]
    ended = run([*emulator, *words], expect=0 if vlen_bits >= 256 else EXIT_WRONG_ISA)
    if vlen_bits < 256:
        assert "needs vector registers of 256 bits or more; this machine's have 128" in ended.stderr
        return
    (output,) = (tmp_path / "out" / "only").glob("*.bin")
    expected = cuvil.compile(MODEL)(x)
    assert isinstance(expected, np.ndarray)
    np.testing.assert_array_equal(bits(np.fromfile(output, np.float32)), bits(expected).reshape(-1))
