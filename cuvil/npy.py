"""Arrays from and to `.npy` files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np

from cuvil.errors import UsageError
from cuvil.ir.types import Array

_MAGIC = b"\x93NUMPY"
_LONGEST_STEM_BYTES = 200


def read_array(path: Path) -> Array:
    """Reads an array, in C order and this machine's byte order.

    Raises:
        UsageError: the file is missing, no `.npy` file, damaged, or holds Python objects.
    """
    try:
        with path.open("rb") as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                raise UsageError(f"{str(path)!r}: is not a .npy file; expected one that numpy.save writes")
            file.seek(0)
            array: Array = np.lib.format.read_array(file, allow_pickle=False)
    except OSError as error:
        raise UsageError(f"{str(path)!r}: can't be read: {error.strerror}") from error
    except UsageError:
        raise
    except Exception as error:  # NumPy reads the header as Python code, and raises what Python does
        what = " ".join(str(error).split())
        raise UsageError(f"{str(path)!r}: is damaged or holds no plain numbers: {what}") from error
    return np.asarray(array, array.dtype.newbyteorder("="), order="C")


def write_arrays(folder: Path, arrays: Mapping[str, Array]) -> dict[str, Path]:
    """Writes each array to a file of its own; all are complete before the first gets its name.

    Returns:
        The file of each array.

    Raises:
        UsageError: the folder can't be made or written to.
    """
    paths = {name: folder / file for name, file in file_names(arrays).items()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".partial.") as partial:
            for name, path in paths.items():
                np.save(Path(partial, path.name), arrays[name], allow_pickle=False)
            for path in paths.values():
                Path(partial, path.name).replace(path)
    except OSError as error:
        raise UsageError(f"output folder {str(folder)!r}: can't be written: {error.strerror}") from error
    return paths


def file_names(names: Collection[str]) -> dict[str, str]:
    """A `.npy` file name for every name, no two alike; a name that is fit for a file keeps it."""
    ordered = sorted(names, key=lambda name: _stem(name) != name)
    stems: dict[str, str] = {}
    for name in ordered:
        stem, number = _stem(name), 2
        while stem in stems.values():
            stem, number = f"{_stem(name)}.{number}", number + 1
        stems[name] = stem
    return {name: f"{stems[name]}.npy" for name in names}


def _stem(name: str) -> str:
    cleaned = "".join(c if c.isalnum() or c in "-_." else "_" for c in name) or "output"
    if cleaned.startswith("."):
        cleaned = f"_{cleaned[1:]}"
    return os.fsencode(cleaned)[:_LONGEST_STEM_BYTES].decode(errors="ignore")
