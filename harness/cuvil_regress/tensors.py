"""Tensor folders: a `manifest.txt` and one raw little-endian file a tensor.

    cuvil-tensors 1
    tensor <dtype> <rank> <d0> ... <d(rank-1)> <file> <name to end of line>

The lines stand in the model's order. The reader trusts nothing: a file's size is checked against its shape
before anything is allocated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuvil_regress.errors import HarnessError
from cuvil_regress.folders import replacing

MANIFEST = "manifest.txt"
HEADER = "cuvil-tensors 1"
MAX_RANK = 16
MAX_MANIFEST_BYTES = 1 << 20

DTYPES: Mapping[str, np.dtype[Any]] = {
    "float32": np.dtype("<f4"),
    "float64": np.dtype("<f8"),
    "int32": np.dtype("<i4"),
    "int64": np.dtype("<i8"),
    "bool": np.dtype("?"),
}

Array = NDArray[Any]


class TensorFolderError(HarnessError):
    """A tensor folder is missing, malformed or truncated, or an array can't be stored in one."""


def _fault(where: object, what: str, expected: object, got: object = None) -> TensorFolderError:
    tail = "" if got is None else f", got {got}"
    return TensorFolderError(f"{where}: {what}; expected {expected}{tail}")


@dataclass(frozen=True)
class Entry:
    """One line of a manifest."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: str

    @property
    def size_bytes(self) -> int:
        return math.prod(self.shape) * DTYPES[self.dtype].itemsize

    def render(self) -> str:
        numbers = " ".join(str(number) for number in (len(self.shape), *self.shape))
        return f"tensor {self.dtype} {numbers} {self.file} {self.name}"


def dtype_name(array: Array) -> str:
    """The manifest's name of an array's dtype, whatever its byte order.

    Raises:
        TensorFolderError: the format has no such dtype.
    """
    name = array.dtype.newbyteorder("=").name
    if name not in DTYPES:
        raise _fault("tensor", "dtype can't be stored", f"one of {', '.join(DTYPES)}", repr(name))
    return name


def encode(array: Array) -> bytes:
    """The bytes of an array as its file holds them: row-major, little-endian."""
    return np.ascontiguousarray(array, dtype=DTYPES[dtype_name(array)]).tobytes()


def write(folder: Path, tensors: Mapping[str, Array]) -> None:
    """Writes a tensor folder that appears complete or not at all; an older one is replaced."""
    with replacing(folder) as fresh:
        write_into(fresh, tensors)


def write_into(folder: Path, tensors: Mapping[str, Array]) -> list[Entry]:
    """Writes the files of a tensor folder into an existing folder that the caller makes appear at once."""
    entries = [_entry(number, name, array) for number, (name, array) in enumerate(tensors.items())]
    for entry in entries:
        (folder / entry.file).write_bytes(encode(tensors[entry.name]))
    lines = [HEADER, *(entry.render() for entry in entries)]
    (folder / MANIFEST).write_bytes(("\n".join(lines) + "\n").encode("utf-8"))
    return entries


def _entry(number: int, name: str, array: Array) -> Entry:
    if not name or name != name.strip() or "\n" in name or "\r" in name:
        raise _fault(f"tensor {name!r}", "the name can't be stored", "one line without outer blanks")
    return Entry(name, dtype_name(array), array.shape, f"{number:03}.bin")


def read(folder: Path) -> dict[str, Array]:
    """Reads a tensor folder, in the manifest's order.

    Raises:
        TensorFolderError: a line or a file is not what the format says.
    """
    return {entry.name: _read_tensor(folder, entry) for entry in read_manifest(folder)}


def read_manifest(folder: Path) -> list[Entry]:
    """Reads and checks the manifest alone."""
    path = folder / MANIFEST
    lines = _manifest_text(path).removesuffix("\n").split("\n")
    if lines[0] != HEADER:
        raise _fault(f"{path}:1", "unknown format", repr(HEADER), repr(lines[0][:80]))
    entries = [_parse_line(f"{path}:{number}", line) for number, line in enumerate(lines[1:], start=2)]
    for what in ("name", "file"):
        _refuse_duplicates(path, what, [getattr(entry, what) for entry in entries])
    return entries


def _manifest_text(path: Path) -> str:
    if not path.is_file():
        raise _fault(path, "no such file", "a tensor folder's manifest")
    size_bytes = path.stat().st_size
    if size_bytes > MAX_MANIFEST_BYTES:
        raise _fault(path, "too large", f"at most {MAX_MANIFEST_BYTES} bytes", size_bytes)
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise _fault(path, "not text", "UTF-8", error.reason) from error


def _parse_line(where: str, line: str) -> Entry:
    words = line.split(" ")
    if len(words) < 5 or words[0] != "tensor":
        raise _fault(where, "malformed line", "'tensor <dtype> <rank> ...'", repr(line[:80]))
    if words[1] not in DTYPES:
        raise _fault(where, "unknown dtype", f"one of {', '.join(DTYPES)}", repr(words[1]))
    rank = _parse_number(where, "rank", words[2])
    if rank > MAX_RANK:
        raise _fault(where, "rank is too large", f"at most {MAX_RANK}", rank)
    rest = line.split(" ", 3 + rank + 1)
    if len(rest) != 3 + rank + 2 or not rest[-1].strip():
        raise _fault(where, "line is too short", f"{rank} dimensions, a file and a name")
    shape = tuple(_parse_number(where, "dimension", word) for word in rest[3 : 3 + rank])
    return Entry(rest[-1], words[1], shape, _checked_file(where, rest[3 + rank]))


def _parse_number(where: str, what: str, word: str) -> int:
    if not (word.isascii() and word.isdigit() and len(word) <= 18):
        raise _fault(where, f"bad {what}", "a non-negative number", repr(word[:40]))
    return int(word)


def _checked_file(where: str, file: str) -> str:
    if not file or file in (".", "..", MANIFEST) or "/" in file or "\\" in file or "\0" in file:
        raise _fault(where, "bad file name", "a plain name in the same folder", repr(file))
    return file


def _refuse_duplicates(path: Path, what: str, values: list[str]) -> None:
    for number, value in enumerate(values):
        if value in values[:number]:
            raise _fault(f"{path}:{number + 2}", f"{what} occurs twice", "unique ones", repr(value))


def _read_tensor(folder: Path, entry: Entry) -> Array:
    path = folder / entry.file
    if path.is_symlink() or not path.is_file():
        raise _fault(path, "no such regular file", f"the data of tensor {entry.name!r}")
    size_bytes = path.stat().st_size
    if size_bytes != entry.size_bytes:
        raise TensorFolderError(
            f"{path}: wrong size for tensor {entry.name!r}; expected {entry.size_bytes} bytes "
            f"({entry.dtype} {list(entry.shape)}), got {size_bytes}"
        )
    return decode(path.read_bytes(), entry, str(path))


def decode(content: bytes, entry: Entry, where: str) -> Array:
    """Turns a file's bytes, whose number was checked, into a writable array in native byte order."""
    if entry.dtype == "bool" and content.strip(b"\0\1"):
        raise _fault(where, f"bad bool tensor {entry.name!r}", "bytes 0 and 1 only")
    stored = DTYPES[entry.dtype]
    return np.frombuffer(content, dtype=stored).astype(stored.newbyteorder("=")).reshape(entry.shape)
