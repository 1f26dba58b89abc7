"""Tensor folders: round trips, every malformed manifest, and atomic writing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from cuvil_regress import folders, tensors
from cuvil_regress.tensors import TensorFolderError

DTYPES = list(tensors.DTYPES.values())


@given(array=hnp.arrays(st.sampled_from(DTYPES), hnp.array_shapes(min_dims=0, max_dims=4, min_side=0)))
def test_round_trip_keeps_every_bit(tmp_path_factory: pytest.TempPathFactory, array: NDArray[Any]) -> None:
    folder = tmp_path_factory.mktemp("tensors") / "case"
    tensors.write(folder, {"the name": array})
    (found,) = tensors.read(folder).values()
    assert found.dtype == array.dtype
    assert found.shape == array.shape
    assert found.tobytes() == array.tobytes()


def test_order_names_and_layout_are_the_contract(tmp_path: Path) -> None:
    arrays = {"b": np.array([[1, 2, 3]], dtype=np.int64), "a.weight [x]": np.array(True)}
    tensors.write(tmp_path / "case", arrays)
    lines = (tmp_path / "case/manifest.txt").read_text().splitlines()
    assert lines == ["cuvil-tensors 1", "tensor int64 2 1 3 000.bin b", "tensor bool 0 001.bin a.weight [x]"]
    assert (tmp_path / "case/000.bin").read_bytes() == bytes([1, *[0] * 7, 2, *[0] * 7, 3, *[0] * 7])
    assert list(tensors.read(tmp_path / "case")) == ["b", "a.weight [x]"]


def test_big_endian_and_strided_arrays_are_stored_plainly(tmp_path: Path) -> None:
    array = np.arange(12, dtype=">f4").reshape(3, 4).T[::2]
    tensors.write(tmp_path / "case", {"x": array})
    found = tensors.read(tmp_path / "case")["x"]
    assert found.dtype.isnative
    assert np.array_equal(found, array)


MALFORMED = [
    ("", "unknown format"),
    ("cuvil-tensors 2\n", "unknown format"),
    ("cuvil-tensors 1\ntensor float32 1 2\n", "malformed line"),
    ("cuvil-tensors 1\nvector float32 1 2 0.bin x\n", "malformed line"),
    ("cuvil-tensors 1\ntensor float31 1 2 0.bin x\n", "unknown dtype"),
    ("cuvil-tensors 1\ntensor float32 one 2 0.bin x\n", "bad rank"),
    ("cuvil-tensors 1\ntensor float32 99 2 0.bin x\n", "rank is too large"),
    ("cuvil-tensors 1\ntensor float32 3 2 2 0.bin x\n", "line is too short"),
    ("cuvil-tensors 1\ntensor float32 1 -2 0.bin x\n", "bad dimension"),
    ("cuvil-tensors 1\ntensor float32 1 2 ../0.bin x\n", "bad file name"),
    ("cuvil-tensors 1\ntensor float32 1 2 manifest.txt x\n", "bad file name"),
    ("cuvil-tensors 1\ntensor float32 1 2 0.bin x\ntensor float32 1 2 1.bin x\n", "name occurs twice"),
    ("cuvil-tensors 1\ntensor float32 1 2 0.bin x\ntensor float32 1 2 0.bin y\n", "file occurs twice"),
    ("cuvil-tensors 1\ntensor float32 1 3 0.bin x\n", "wrong size"),
    ("cuvil-tensors 1\ntensor float32 2 999999999999999999 999999999999999999 0.bin x\n", "wrong size"),
    ("cuvil-tensors 1\ntensor float32 1 2 absent.bin x\n", "no such regular file"),
    ("cuvil-tensors 1\ntensor bool 1 8 0.bin x\n", "bytes 0 and 1 only"),
]


@pytest.mark.parametrize(("manifest", "message"), MALFORMED)
def test_malformed_folders_are_refused_with_their_place(tmp_path: Path, manifest: str, message: str) -> None:
    (tmp_path / "manifest.txt").write_text(manifest)
    (tmp_path / "0.bin").write_bytes(b"\0\0\x80\x3f\0\0\0\x40")
    with pytest.raises(TensorFolderError, match=message) as caught:
        tensors.read(tmp_path)
    assert str(caught.value).startswith(str(tmp_path))


def test_missing_oversized_and_binary_manifests_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TensorFolderError, match="no such file"):
        tensors.read(tmp_path)
    (tmp_path / "manifest.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(TensorFolderError, match="not text"):
        tensors.read(tmp_path)
    (tmp_path / "manifest.txt").write_bytes(b" " * (tensors.MAX_MANIFEST_BYTES + 1))
    with pytest.raises(TensorFolderError, match="too large"):
        tensors.read(tmp_path)


@pytest.mark.parametrize("name", ["", " x", "a\nb", "a\rb"])
def test_names_that_a_line_can_not_hold_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(TensorFolderError, match="can't be stored"):
        tensors.write(tmp_path / "case", {name: np.zeros(1)})
    assert not (tmp_path / "case").exists()


def test_a_failing_write_leaves_the_old_folder_and_no_litter(tmp_path: Path) -> None:
    tensors.write(tmp_path / "case", {"x": np.array([1.0])})
    with pytest.raises(TensorFolderError, match="complex"):
        tensors.write(tmp_path / "case", {"x": np.array([1j])})
    assert tensors.read(tmp_path / "case")["x"] == [1.0]
    assert [path.name for path in tmp_path.iterdir()] == ["case"]


def test_a_rewritten_folder_keeps_no_old_file(tmp_path: Path) -> None:
    tensors.write(tmp_path / "case", {"x": np.zeros(1), "y": np.zeros(1)})
    tensors.write(tmp_path / "case", {"x": np.ones(2)})
    assert sorted(path.name for path in (tmp_path / "case").iterdir()) == ["000.bin", "manifest.txt"]
    assert [path.name for path in tmp_path.iterdir()] == ["case"]


def test_write_file_replaces_whole_files(tmp_path: Path) -> None:
    folders.write_file(tmp_path / "new" / "f.json", b"old")
    folders.write_file(tmp_path / "new" / "f.json", b"new")
    assert [(path.name, path.read_bytes()) for path in (tmp_path / "new").iterdir()] == [("f.json", b"new")]
