"""Goldens: the committed ones are intact, every kind of damage is named, and a refresh is careful."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cuvil_regress import golden, models, tensors
from cuvil_regress.errors import GoldenDamagedError, UsageError

COMMITTED = Path(__file__).parents[2] / "golden"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A copy of one committed set."""
    shutil.copytree(COMMITTED / "mlp", tmp_path / "golden" / "mlp")
    return tmp_path / "golden"


@pytest.fixture
def _not_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)


def checks(root: Path) -> list[str]:
    return [finding.check for finding in golden.verify(root, ["mlp"])]


def test_the_committed_goldens_are_intact_and_small() -> None:
    assert golden.verify(COMMITTED) == []
    assert sorted(path.name for path in COMMITTED.iterdir()) == list(models.names())
    assert sum(path.stat().st_size for path in COMMITTED.rglob("*") if path.is_file()) < 3_000_000


@pytest.mark.parametrize("name", models.names())
def test_a_loaded_set_has_every_case_and_output(name: str) -> None:
    loaded = golden.load(COMMITTED, name)
    assert (loaded.model, loaded.policy) == (name, "oracle-fp32")
    assert tuple(loaded.cases) == models.CASES
    for case in loaded.cases.values():
        assert tuple(case) == models.load(name).outputs
        for tensor in case.values():
            kinds = {"float64": "float32", "int64": "int64"}
            assert tensor.model_dtype == kinds[tensor.values.dtype.name]
            assert np.isfinite(tensor.values).any()
    assert all(loaded.record[key] for key in ("reason", "date", "command", "producer"))


def rewrite(path: Path, change: Callable[[bytes], bytes]) -> None:
    path.write_bytes(change(path.read_bytes()))


def flip_a_byte(content: bytes) -> bytes:
    return content[:9] + bytes([content[9] ^ 1]) + content[10:]


def pointer(content: bytes) -> bytes:
    return b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize %d\n" % len(content)


DAMAGE: list[tuple[str, Callable[[bytes], bytes], str]] = [
    ("ordinary/000.bin", flip_a_byte, "golden-changed"),
    ("ordinary/000.bin", lambda content: content[:-1], "golden-truncated"),
    ("ordinary/000.bin", lambda content: b"", "golden-truncated"),
    ("ordinary/000.bin", lambda content: content + b"\0", "golden-changed"),
    ("ordinary/000.bin", pointer, "golden-lfs-pointer"),
    ("special/manifest.txt", lambda content: content.replace(b"logits", b"logitS"), "golden-changed"),
    ("special/manifest.txt", lambda content: content[:-1], "golden-truncated"),
    ("golden.json", lambda content: content.replace(b"first goldens", b"other goldens"), "golden-changed"),
    ("golden.json", lambda content: content.replace(b'"model"', b'"model', 1), "golden-changed"),
    ("golden.json", lambda content: content[: len(content) // 2], "golden-truncated"),
    ("golden.json", pointer, "golden-lfs-pointer"),
    (
        "golden.json",
        lambda content: content.replace(b'version": 1', b'version": 7', 1),
        "golden-unknown-schema",
    ),
    ("golden.json", lambda content: b"[{}\n", "golden-changed"),
]


@pytest.mark.parametrize(("file", "change", "check"), DAMAGE)
def test_damage_is_named_and_never_loaded(
    root: Path, file: str, change: Callable[[bytes], bytes], check: str
) -> None:
    rewrite(root / "mlp" / file, change)
    (finding,) = golden.verify(root, ["mlp"])
    assert (finding.check, finding.severity) == (check, "error")
    assert finding.file == str(root / "mlp" / file)
    with pytest.raises(GoldenDamagedError, match=Path(file).name):
        golden.load(root, "mlp")


@pytest.mark.parametrize("file", ["golden.json", "ordinary/001.bin", "special/manifest.txt"])
def test_a_missing_file_is_named(root: Path, file: str) -> None:
    (root / "mlp" / file).unlink()
    (finding,) = golden.verify(root, ["mlp"])
    assert (finding.check, finding.file) == ("golden-missing", str(root / "mlp" / file))
    with pytest.raises(GoldenDamagedError, match="no such file"):
        golden.load(root, "mlp")


def test_orphans_and_missing_sets_are_named(root: Path) -> None:
    (root / "mlp/ordinary/002.bin").write_bytes(b"x")
    (root / "notes.txt").write_text("x")
    found = {
        (finding.check, Path(finding.file).relative_to(root).as_posix()) for finding in golden.verify(root)
    }
    missing = {("golden-missing", f"{name}/golden.json") for name in models.names() if name != "mlp"}
    assert found == {("golden-orphan", "mlp/ordinary/002.bin"), ("golden-orphan", "notes.txt")} | missing
    assert {finding.check for finding in golden.verify(root / "absent")} == {"golden-missing"}


def edit_record(root: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Edits a record and makes its own checksum right again."""
    path = root / "mlp" / golden.RECORD
    record = json.loads(path.read_bytes())
    edit(record)
    record["sha256"] = golden._record_sha256(record)
    path.write_text(json.dumps(record) + "\n")


def test_goldens_of_other_inputs_are_stale(root: Path) -> None:
    edit_record(root, lambda record: record["cases"]["special"]["inputs"]["image"].update(sha256="0" * 64))
    assert checks(root) == ["golden-stale"]


def test_an_incomplete_record_is_a_finding(root: Path) -> None:
    edit_record(root, lambda record: record.pop("cases"))
    assert checks(root) == ["golden-changed"]
    edit_record(root, lambda record: record.update(cases={"ordinary": {"manifest": 3}}))
    assert checks(root) == ["golden-changed"]


def test_a_record_that_contradicts_its_manifest_is_not_loaded(root: Path) -> None:
    edit_record(root, lambda record: record["cases"]["ordinary"]["tensors"][0].update(shape=[40]))
    with pytest.raises(GoldenDamagedError, match="disagree"):
        golden.load(root, "mlp")


@pytest.mark.usefixtures("_not_in_ci", "torch")
def test_a_first_refresh_writes_sets_that_verify(tmp_path: Path) -> None:
    drifts = golden.refresh(["mlp", "lstm"], "  two\n lines ", tmp_path)
    assert {drift.state for drift in drifts} == {"new"}
    assert golden.verify(tmp_path, ["mlp", "lstm"]) == []
    assert golden.load(tmp_path, "mlp").record["reason"] == "two lines"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lstm", "mlp"]


@pytest.mark.usefixtures("_not_in_ci", "torch")
def test_a_refresh_without_change_keeps_the_provenance(tmp_path: Path) -> None:
    golden.refresh(["mlp"], "one", tmp_path)
    drifts = golden.refresh(["mlp"], "two", tmp_path)
    assert {drift.state for drift in drifts} == {"unchanged"}
    assert golden.load(tmp_path, "mlp").record["reason"] == "one"


@pytest.mark.usefixtures("_not_in_ci", "torch")
def test_a_refresh_measures_the_drift_and_repairs_damage(tmp_path: Path) -> None:
    golden.refresh(["mlp"], "one", tmp_path)
    stored = tensors.read(tmp_path / "mlp/ordinary")
    stored["logits"][0, 0] *= 1.5
    stored["hidden"] = stored["hidden"][:2]
    tensors.write(tmp_path / "mlp/ordinary", {**stored, "gone": np.zeros(1)})
    looked = golden.refresh(["mlp"], "", tmp_path, accept=False)
    found = {(drift.case, drift.tensor): drift for drift in looked}
    assert [drift.state for drift in looked] == ["changed", "reshaped", "removed", "unchanged", "unchanged"]
    assert found["ordinary", "logits"].max_relative == pytest.approx(1 / 3)
    assert found["ordinary", "logits"].share_changed == 1 / 40
    assert found["ordinary", "logits"].max_ulp > 2**50
    assert "golden-changed" in checks(tmp_path)
    assert golden.refresh(["mlp"], "repaired", tmp_path) == looked
    assert checks(tmp_path) == []


@pytest.mark.usefixtures("_not_in_ci", "torch")
def test_the_committed_goldens_are_what_float64_gives_today() -> None:
    """Another BLAS may round the last bits of a float64 differently, and no more."""
    for drift in golden.refresh(models.names(), "", COMMITTED, accept=False):
        assert drift.state in ("changed", "unchanged"), drift
        assert drift.max_relative < 1e-9, drift


@pytest.mark.usefixtures("_not_in_ci")
def test_a_refresh_needs_a_reason_and_a_known_model(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no reason"):
        golden.refresh(["mlp"], " \n", tmp_path)
    with pytest.raises(UsageError, match="unknown name"):
        golden.refresh(["mpl"], "why", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_refresh_is_refused_in_ci(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(UsageError, match="CI=true"):
        golden.refresh(["mlp"], "why", tmp_path)
    assert list(tmp_path.iterdir()) == []
