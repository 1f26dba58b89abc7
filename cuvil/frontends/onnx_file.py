"""Reads ONNX files: their bytes, their external data, their versions. No operator is looked at."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import onnx
import onnx.external_data_helper
import onnx.inliner
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from cuvil.errors import ModelError, UnsupportedError

MIN_OPSET = 7
MAX_OPSET = 28
"""The last operator set whose changes the importers know."""

Source: TypeAlias = str | os.PathLike[str] | bytes | onnx.ModelProto

_EXPORT_HINT = "export the model with torch.onnx.export(..., 'model.onnx')"
_IMPOSTORS = (
    (
        b"version https://git-lfs",
        "is a git-lfs pointer; expected an ONNX model",
        "fetch the model with `git lfs pull`",
    ),
    (b"PK\x03\x04", "is a zip archive, such as torch.save writes; expected an ONNX model", _EXPORT_HINT),
    *(
        (bytes((0x80, protocol)), "is a Python pickle; expected an ONNX model", _EXPORT_HINT)
        for protocol in range(2, 6)
    ),
    (b"<", "is a web page or XML; expected an ONNX model", "check where the file was downloaded from"),
    (b"\x89HDF", "is an HDF5 file; expected an ONNX model", "convert the model to ONNX first"),
)
_MODEL_FOLDER_HINT = "pass the path of the .onnx file"


@dataclass(frozen=True, eq=False)
class Document:
    """A model with all of its data at hand; `where` names it in messages."""

    proto: onnx.ModelProto
    opset: int
    name: str
    sha256: str
    where: str


def read_document(source: Source) -> Document:
    """Reads a model from a file, from bytes, or from a message of the `onnx` package.

    The hash covers the file and the external data that it refers to.

    Raises:
        ModelError: the file is missing, damaged, or not an ONNX model.
        UnsupportedError: the model is newer or older than what is compiled.
    """
    if isinstance(source, onnx.ModelProto):
        data, folder, name = source.SerializeToString(deterministic=True), None, ""
        proto, where = source, "model"
    elif isinstance(source, bytes):
        data, folder, name, where = source, None, "", "model"
        proto = _parse(data, where)
    else:
        path = Path(source)
        data, folder, name, where = _read_file(path), path.parent, path.stem, path.name
        proto = _parse(data, where)
    _check_model(proto, where)
    digest = hashlib.sha256(data)
    for tensor in _load_external_data(proto, folder, where):
        digest.update(tensor.raw_data)
    opset = _opset(proto, where)
    return Document(
        _without_functions(proto, where),
        opset,
        name or proto.graph.name or "model",
        digest.hexdigest(),
        where,
    )


def _read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except IsADirectoryError:
        raise ModelError(f"{path}: is a folder; expected an ONNX file", hint=_MODEL_FOLDER_HINT) from None
    except FileNotFoundError:
        raise ModelError(f"{path}: no such file; expected an ONNX model") from None
    except (OSError, ValueError) as error:  # ValueError: no path at all, such as one with a zero byte
        raise ModelError(f"{str(path)!r}: can't be read: {getattr(error, 'strerror', error)}") from None


def _parse(data: bytes, where: str) -> onnx.ModelProto:
    if not data:
        raise ModelError(f"{where}: is empty; expected an ONNX model")
    for magic, what, hint in _IMPOSTORS:
        if data.startswith(magic):
            raise ModelError(f"{where}: {what}", hint=hint)
    try:
        return onnx.ModelProto.FromString(data)
    except DecodeError:
        if _is_text(data):
            raise ModelError(f"{where}: is a text file; expected an ONNX model") from None
        raise ModelError(
            f"{where}: is damaged or not an ONNX model; expected a protobuf message, got {len(data)} bytes "
            "that can't be decoded"
        ) from None


def _is_text(data: bytes) -> bool:
    """Whether the file begins like one for people; ONNX files begin with a byte below 32."""
    return all(32 <= byte < 127 or byte in b"\t\r\n" for byte in data[:256])


def _has_undecodable_text(message: Message) -> bool:
    """Protobuf accepts any bytes in a string, and gives them out as bytes where they are not UTF-8."""
    for field, value in message.ListFields():
        items = value if isinstance(value, Iterable) and not isinstance(value, str | bytes) else (value,)
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            if any(map(_has_undecodable_text, items)):
                return True
        elif field.type == FieldDescriptor.TYPE_STRING and not all(isinstance(item, str) for item in items):
            return True
    return False


def _check_model(proto: onnx.ModelProto, where: str) -> None:
    if _has_undecodable_text(proto):
        raise ModelError(f"{where}: is damaged: a text is not valid UTF-8")
    if proto.ir_version <= 0 or not proto.HasField("graph"):
        raise ModelError(
            f"{where}: is not an ONNX model; expected an ir_version and a graph, got neither or one"
        )
    if proto.ir_version > onnx.IR_VERSION:
        raise UnsupportedError(
            f"{where}: ir_version is too new; expected at most {onnx.IR_VERSION}, got {proto.ir_version}",
            hint="export for an older ir_version, or install a newer onnx package",
        )


def _opset(proto: onnx.ModelProto, where: str) -> int:
    """The version of the standard operator set."""
    versions = [entry.version for entry in proto.opset_import if entry.domain in ("", "ai.onnx")]
    if not versions:
        raise ModelError(f"{where}: imports no standard operator set; expected one, got none")
    if not MIN_OPSET <= versions[0] <= MAX_OPSET:
        raise UnsupportedError(
            f"{where}: opset is not supported; expected {MIN_OPSET} to {MAX_OPSET}, got {versions[0]}",
            hint="convert the model with onnx.version_converter, or export it again",
        )
    return int(versions[0])


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                yield attribute.t


def _load_external_data(proto: onnx.ModelProto, folder: Path | None, where: str) -> list[onnx.TensorProto]:
    """Reads the tensors that lie in other files, which must be in the model's folder or below it."""
    uses = onnx.external_data_helper.uses_external_data
    external = [tensor for tensor in _tensors(proto.graph) if uses(tensor)]
    if external and folder is None:
        raise ModelError(
            f"{where}: tensor {external[0].name!r} lies in another file; expected all data in the model",
            hint="pass the path of the .onnx file, or save the model without external data",
        )
    for tensor in external:
        try:
            onnx.external_data_helper.load_external_data_for_tensor(tensor, str(folder))
        except (OSError, ValueError, onnx.checker.ValidationError) as error:
            raise ModelError(
                f"{where}: data of tensor {tensor.name!r} can't be read: {one_line(error)}"
            ) from None
        tensor.data_location = onnx.TensorProto.DEFAULT
        del tensor.external_data[:]
    return external


def _without_functions(proto: onnx.ModelProto, where: str) -> onnx.ModelProto:
    """The model with calls of its own functions replaced by their bodies."""
    if not proto.functions:
        return proto
    try:
        return onnx.inliner.inline_local_functions(proto)
    except (RuntimeError, ValueError) as error:
        raise ModelError(f"{where}: functions can't be inlined: {one_line(error)}") from None


def one_line(text: object) -> str:
    """Text of another library, or of the model itself, as one line without control characters."""
    words = " ".join(str(text).split())
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in words)
