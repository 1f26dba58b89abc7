"""Compiled models: code, weights and description, and the files they are saved to."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cuvil import toolchain
from cuvil.errors import UsageError
from cuvil.ir.dims import Symbol, symbols_of
from cuvil.ir.types import Array, TensorType
from cuvil.objects import WEIGHTS_SYMBOL, write_object
from cuvil.plan import ALIGN_BYTES
from cuvil.targets.target import Target

INFO_SYMBOL = "cuvil_model_info"
STRINGS_SYMBOL = "cuvil_model_strings"
RUN_SYMBOL = "cuvil_model_run"
SHAPES_SYMBOL = "cuvil_model_shapes"
EXPORTED_SYMBOLS = (INFO_SYMBOL, STRINGS_SYMBOL, WEIGHTS_SYMBOL, RUN_SYMBOL, SHAPES_SYMBOL)

META_SCHEMA_VERSION = 2
META_SUFFIX = ".cuvil-meta.json"


@dataclass(frozen=True)
class NamedDimension:
    """A named dimension, and the axis of an input that a run reads it from."""

    symbol: Symbol
    input: int
    axis: int


@dataclass(frozen=True)
class Signature:
    """The model's inputs and outputs by their names in the user's model."""

    inputs: tuple[tuple[str, TensorType], ...]
    outputs: tuple[tuple[str, TensorType], ...]

    @property
    def dimensions(self) -> tuple[NamedDimension, ...]:
        """The named dimensions in the order of their names."""
        found: dict[str, NamedDimension] = {}
        for number, (_, tensor) in enumerate(self.inputs):
            for axis, extent in enumerate(tensor.shape):
                symbol = symbols_of([extent]).get(str(extent))
                if symbol is not None:
                    found.setdefault(symbol.name, NamedDimension(symbol, number, axis))
        return tuple(found[name] for name in sorted(found))


@dataclass(frozen=True)
class Description:
    """A signature and sizes as the words and strings that the runtime reads."""

    words: tuple[int, ...]
    strings: bytes


@dataclass(frozen=True, eq=False)
class Artifact:
    """A compiled model.

    Attributes:
        object_code: the relocatable object with the code and the description.
        weights: constants and their byte offsets in the weights image.
        metadata: what `.cuvil-meta.json` says, but for the library's own entry.
    """

    target: Target
    signature: Signature
    description: Description
    object_code: bytes
    weights: tuple[tuple[int, Array], ...]
    weights_bytes: int
    metadata: Mapping[str, Any]

    def weights_image(self) -> Array:
        """The weights as one 64-byte aligned array of bytes, at least 64 long."""
        size_bytes = max(ALIGN_BYTES, self.weights_bytes)
        memory = np.zeros(size_bytes + ALIGN_BYTES, np.uint8)
        start = -memory.ctypes.data % ALIGN_BYTES
        image = memory[start : start + size_bytes]
        for offset, array in self.weights:
            image[offset : offset + array.nbytes] = np.frombuffer(array.tobytes(), np.uint8)
        return image

    def save(self, path: str | os.PathLike[str]) -> None:
        """Links the model library at `path` and writes its metadata beside it.

        Both files appear complete or not at all.

        Raises:
            UsageError: the folder does not exist or can't be written to, or this is no name for a library.
            ToolchainError: there is no linker, or it failed.
        """
        output = Path(path)
        verify_output_path(output)
        try:
            self._write(output)
        except OSError as error:
            raise unwritable(output, error) from error

    def _write(self, output: Path) -> None:
        with tempfile.TemporaryDirectory(dir=output.parent, prefix=f".{output.name}.") as folder:
            library = Path(folder, output.name)
            self._link(Path(folder), library)
            meta = Path(folder, "meta.json")
            meta.write_text(json.dumps(self._full_metadata(library), indent=2) + "\n")
            sync(library)
            sync(meta)
            meta.replace(metadata_path(output))
            library.replace(output)

    def _link(self, folder: Path, library: Path) -> None:
        code, weights = folder / "code.o", folder / "weights.o"
        code.write_bytes(self.object_code)
        image = self.weights_image().data
        platform = toolchain.platform_of(self.target.platform)
        write_object(weights, image, WEIGHTS_SYMBOL, platform.elf_machine, platform.e_flags)
        toolchain.link_shared([code, weights], library, self.target.platform, EXPORTED_SYMBOLS)

    def link_code(self, folder: Path, symbols: Sequence[str]) -> bytes:
        """The code and the description as a shared object without the weights, linked in `folder`.

        Raises:
            ToolchainError: there is no linker, or it failed.
        """
        code, library = folder / "code.o", folder / "code.so"
        code.write_bytes(self.object_code)
        toolchain.link_shared([code], library, self.target.platform, symbols)
        return library.read_bytes()

    def _full_metadata(self, library: Path) -> dict[str, Any]:
        data = library.read_bytes()
        entry = {"file": library.name, "sha256": hashlib.sha256(data).hexdigest(), "size_bytes": len(data)}
        return {"schema_version": META_SCHEMA_VERSION, **self.metadata, "library": entry}


def verify_output_path(output: Path, suffixes: Sequence[str] = (".so",)) -> None:
    """Finds out before a long compilation whether its result could be saved.

    Raises:
        UsageError: the folder does not exist or can't be written to, or this is no name for a library.
    """
    where = f"output {str(output)!r}"
    if output.suffix not in suffixes:
        raise UsageError(f"{where}: wrong name; expected one that ends in {' or '.join(map(repr, suffixes))}")
    try:
        if not output.parent.is_dir():
            raise UsageError(f"{where}: no such folder: {str(output.parent)!r}")
        for path in (output, metadata_path(output)):
            if path.is_dir():
                raise UsageError(f"{where}: {str(path)!r} is a folder; expected a file, or nothing")
    except OSError as error:
        raise unwritable(output, error) from error
    if not os.access(output.parent, os.W_OK | os.X_OK):
        raise UsageError(f"{where}: can't be written: no permission for the folder {str(output.parent)!r}")


def unwritable(output: Path, error: OSError) -> UsageError:
    """The error of an output that the system refuses to write."""
    return UsageError(f"output {str(output)!r}: can't be written: {error.strerror}")


def metadata_path(library: Path) -> Path:
    """`libmodel.cuvil-meta.json` for `libmodel.so`."""
    return library.with_name(library.stem + META_SUFFIX)


def sync(path: Path) -> None:
    """Waits until a file's content is on the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
