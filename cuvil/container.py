"""`.cuv` files: code for one or several targets, the weights and the metadata in one file.

`runtime/src/container.h` has the same layout in C++, and says what each word is for.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from cuvil import toolchain
from cuvil.artifact import (
    EXPORTED_SYMBOLS,
    META_SCHEMA_VERSION,
    Artifact,
    sync,
    unwritable,
    verify_output_path,
)
from cuvil.errors import ModelError, UsageError
from cuvil.objects import WEIGHTS_SYMBOL, bytes_of
from cuvil.plan import ALIGN_BYTES
from cuvil.targets.target import Target

if TYPE_CHECKING:
    from cuvil.objects import BufferLike

SUFFIX = ".cuv"
MAGIC = b"\x89CUV\r\n\x1a\n"
FORMAT_VERSION = 1
METADATA, CODE, WEIGHTS = 1, 2, 3
CODE_SYMBOLS = tuple(symbol for symbol in EXPORTED_SYMBOLS if symbol != WEIGHTS_SYMBOL)

_HEADER = struct.Struct("<8sIIQI36x")
_RECORD = struct.Struct("<IIQQqqII64s16x")
_WEIGHTS_ALIGN_BYTES = 4096
_OF_TARGET = ("target", "arena_bytes", "weights_bytes")
"""What the metadata of one model says differently for each target."""


@dataclass(frozen=True)
class Content:
    """What a section is to hold; `chunks` gives its bytes, again at each call.

    The words behind it are those of code: what it needs of a machine, and the number of its weights' section.
    """

    kind: int
    chunks: Callable[[], Iterable[BufferLike]]
    features: int = 0
    min_vlen_bits: int = 0
    elf_machine: int = 0
    weights: int = 0
    target: str = ""


@dataclass(frozen=True)
class Section:
    """A row of the table of a `.cuv` file."""

    kind: int
    crc: int
    offset: int
    size_bytes: int
    features: int
    min_vlen_bits: int
    elf_machine: int
    weights: int
    target: str

    def pack(self) -> bytes:
        return _RECORD.pack(
            *(self.kind, self.crc, self.offset, self.size_bytes, self.features, self.min_vlen_bits),
            *(self.elf_machine, self.weights, self.target.encode()),
        )


@dataclass(frozen=True)
class Container:
    """What a `.cuv` file says of itself."""

    sections: tuple[Section, ...]
    metadata: Mapping[str, Any]


def verify_output(output: Path, targets: int) -> None:
    """Finds out before a long compilation whether a model for so many targets could be saved there.

    Raises:
        UsageError: the folder does not exist or can't be written to, or this is no name for such a file.
    """
    verify_output_path(output, (".so", SUFFIX))
    if targets != 1 and output.suffix != SUFFIX:
        raise UsageError(
            f"output {str(output)!r}: a library holds code for one target, got {targets}",
            hint=f"a name that ends in {SUFFIX!r} holds several",
        )


def save(artifacts: Sequence[Artifact], path: str | os.PathLike[str]) -> None:
    """Writes a model, compiled for one target or several, to a `.cuv` file, or for one to a library.

    The file appears complete or not at all. The same model, targets and version give the same bytes.

    Raises:
        UsageError: the folder does not exist or can't be written to, the name is for no such file, or the
            artifacts are not one model for different targets.
        ToolchainError: there is no linker, or it failed.
    """
    output = Path(path)
    verify_output(output, len(artifacts))
    if output.suffix != SUFFIX:
        artifacts[0].save(output)
        return
    try:
        with tempfile.TemporaryDirectory(dir=output.parent, prefix=f".{output.name}.") as folder:
            complete = Path(folder, output.name)
            write_container(complete, _contents(_in_order(artifacts), Path(folder)))
            sync(complete)
            complete.replace(output)
    except OSError as error:
        raise unwritable(output, error) from error


def _in_order(artifacts: Sequence[Artifact]) -> list[Artifact]:
    """Those that ask for most of a machine come first: the runtime takes the first one that fits."""
    names = [artifact.target.name for artifact in artifacts]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"target {name!r}: is given twice; expected each target once")
    if any(_shared(artifact) != _shared(artifacts[0]) for artifact in artifacts):
        raise UsageError("save: expected one model compiled for several targets, got different models")
    by_demand = sorted(
        artifacts, key=lambda artifact: (artifact.target.demand, artifact.target.name), reverse=True
    )
    return sorted(by_demand, key=lambda artifact: artifact.target.platform)


def _contents(artifacts: Sequence[Artifact], folder: Path) -> list[Content]:
    """Metadata, code in the order of preference, and each different weights image once."""
    codes = [artifact.link_code(folder, CODE_SYMBOLS) for artifact in artifacts]
    digests = [_digest(_weights_chunks(artifact)) for artifact in artifacts]
    images = dict(zip(digests, artifacts, strict=True))  # equal ones once
    number_of = {digest: 1 + len(artifacts) + i for i, digest in enumerate(images)}
    metadata = _metadata(artifacts, codes, digests, number_of)
    return [
        Content(METADATA, lambda: [metadata]),
        *(
            _code(artifact.target, code, number_of[digest])
            for artifact, code, digest in zip(artifacts, codes, digests, strict=True)
        ),
        *(Content(WEIGHTS, partial(_weights_chunks, artifact)) for artifact in images.values()),
    ]


def _code(target: Target, code: bytes, weights: int) -> Content:
    machine = toolchain.platform_of(target.platform).elf_machine
    needs = (target.isa_bits, target.min_vlen_bits, machine)
    return Content(CODE, lambda: [code], *needs, weights, target.name)


def _weights_chunks(artifact: Artifact) -> Iterator[BufferLike]:
    """The weights image, tensor by tensor, with zeros between them."""
    end = 0
    for offset, array in artifact.weights:
        yield bytes(offset - end)
        yield array.tobytes()
        end = offset + array.nbytes
    yield bytes(max(ALIGN_BYTES, artifact.weights_bytes) - end)


def _digest(chunks: Iterable[BufferLike]) -> str:
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(bytes_of(chunk))
    return digest.hexdigest()


def _shared(artifact: Artifact) -> dict[str, Any]:
    return {key: value for key, value in artifact.metadata.items() if key not in _OF_TARGET}


def _metadata(
    artifacts: Sequence[Artifact],
    codes: Sequence[bytes],
    digests: Sequence[str],
    number_of: Mapping[str, int],
) -> bytes:
    targets = [
        {
            **{key: artifact.metadata[key] for key in _OF_TARGET},
            "code": {"size_bytes": len(code), "sha256": hashlib.sha256(code).hexdigest()},
            "weights": {"section": number_of[digest], "sha256": digest},
        }
        for artifact, code, digest in zip(artifacts, codes, digests, strict=True)
    ]
    everything = {"schema_version": META_SCHEMA_VERSION, **_shared(artifacts[0]), "targets": targets}
    return json.dumps(everything, separators=(",", ":")).encode()


def write_container(path: Path, contents: Sequence[Content]) -> None:
    """Writes a file of these sections, in this order."""
    with path.open("wb") as file:
        file.seek(_HEADER.size + len(contents) * _RECORD.size)
        sections = [_write_section(file, content) for content in contents]
        size_bytes = file.tell()
        table = b"".join(section.pack() for section in sections)
        file.seek(0)
        file.write(_pack_header(len(sections), size_bytes, table))
        file.write(table)


def _pack_header(sections: int, size_bytes: int, table: bytes) -> bytes:
    blank = _HEADER.pack(MAGIC, FORMAT_VERSION, sections, size_bytes, 0)
    return _HEADER.pack(MAGIC, FORMAT_VERSION, sections, size_bytes, zlib.crc32(blank + table))


def _write_section(file: BinaryIO, content: Content) -> Section:
    alignment = _WEIGHTS_ALIGN_BYTES if content.kind == WEIGHTS else ALIGN_BYTES
    offset = -(-file.tell() // alignment) * alignment
    file.seek(offset)
    crc = 0
    for chunk in content.chunks():
        crc = zlib.crc32(bytes_of(chunk), crc)
        file.write(bytes_of(chunk))
    return Section(
        *(content.kind, crc, offset, file.tell() - offset, content.features, content.min_vlen_bits),
        *(content.elf_machine, content.weights, content.target),
    )


def is_container(path: Path) -> bool:
    """Whether a file starts as `.cuv` files do; False where it can't be read."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def read_container(path: Path) -> Container:
    """Reads the table and the metadata.

    Raises:
        ModelError: the file can't be read, is of another format version, truncated, or damaged there.
    """
    try:
        with path.open("rb") as file:
            sections = _read_table(file, path)
            return Container(sections, _read_metadata(file, sections))
    except OSError as error:
        raise ModelError(f"{str(path)!r}: can't be read: {error.strerror}") from error
    except (struct.error, ValueError, KeyError) as error:
        raise ModelError(f"{str(path)!r}: damaged: {error}") from error


def _read_table(file: BinaryIO, path: Path) -> tuple[Section, ...]:
    start = file.read(_HEADER.size)
    magic, version, count, size_bytes, _ = _HEADER.unpack(start)
    if magic != MAGIC:
        raise ValueError("expected a .cuv file")
    if version != FORMAT_VERSION:
        raise ModelError(
            f"{str(path)!r}: has another format version; expected {FORMAT_VERSION}, got {version}"
        )
    found_bytes = os.fstat(file.fileno()).st_size
    if found_bytes != size_bytes:
        raise ValueError(f"expected {size_bytes} bytes, got {found_bytes}")
    if count * _RECORD.size > size_bytes:
        raise ValueError("the number of sections is out of range")
    table = file.read(count * _RECORD.size)
    if start + table != _pack_header(count, size_bytes, table) + table:
        raise ValueError("the checksum of the header and the table differs")
    rows = ((*words, target.rstrip(b"\0").decode("ascii")) for *words, target in _RECORD.iter_unpack(table))
    return tuple(Section(*row) for row in rows)


def _read_metadata(file: BinaryIO, sections: Sequence[Section]) -> dict[str, Any]:
    (section,) = (section for section in sections if section.kind == METADATA)
    file.seek(section.offset)
    text = file.read(section.size_bytes)
    if zlib.crc32(text) != section.crc:
        raise ValueError("the checksum of the metadata differs")
    metadata: dict[str, Any] = json.loads(text)
    return metadata
