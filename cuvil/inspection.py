"""What a compiled model says of itself, and whether its checksums hold."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cuvil import toolchain
from cuvil.artifact import EXPORTED_SYMBOLS, metadata_path
from cuvil.container import CODE, WEIGHTS, Container, Section, is_container, read_container
from cuvil.errors import ModelError, ToolchainError
from cuvil.objects import read_dynamic_symbols, read_machine
from cuvil.runtime_binding import find_missing_features, verify_file
from cuvil.targets.target import ISA_FEATURES

SCHEMA_VERSION = 1
_ELF_MAGIC = b"\x7fELF"
_TOLD_OTHERWISE = ("schema_version", "target", "targets", "library", "arena_bytes", "weights_bytes")
"""Entries of the metadata that the report has in another form."""


def inspect(path: Path, verify: bool = False) -> dict[str, Any]:
    """The report that `cuvil inspect --json` prints.

    Args:
        path: a `.cuv` file, or a model library with its metadata beside it.
        verify: whether every byte is read, and every checksum compared.

    Raises:
        ModelError: the file is missing, of another kind, truncated, or damaged.
    """
    if is_container(path):
        return _inspect_container(path, verify)
    if _starts_with(path, _ELF_MAGIC):
        return _inspect_library(path, verify)
    raise ModelError(
        f"{str(path)!r}: no compiled model; expected a .cuv file or a model library",
        hint="cuvil dump-ir --stage import shows an ONNX model" if path.suffix == ".onnx" else None,
    )


def _starts_with(path: Path, magic: bytes) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(magic)) == magic
    except OSError as error:
        raise ModelError(f"{str(path)!r}: can't be read: {error.strerror}") from error


def _inspect_container(path: Path, verify: bool) -> dict[str, Any]:
    container = read_container(path)
    if verify:
        verify_file(path)
    try:
        if verify:
            _compare_digests(path, container)
        codes = [section for section in container.sections if section.kind == CODE]
        entries = zip(codes, container.metadata["targets"], strict=True)
        targets = [_container_target(section, entry) for section, entry in entries]
        weights = [
            {"section": number, "size_bytes": section.size_bytes}
            for number, section in enumerate(container.sections)
            if section.kind == WEIGHTS
        ]
        return _report(path, "cuv", container.metadata, targets, weights, verify)
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(f"{str(path)!r}: its metadata is incomplete: {error}") from error


def _compare_digests(path: Path, container: Container) -> None:
    """The metadata has a SHA-256 for what the table has a CRC."""
    codes = [section for section in container.sections if section.kind == CODE]
    for section, entry in zip(codes, container.metadata["targets"], strict=True):
        weights = container.sections[section.weights]
        for what, of, expected in (("code", section, entry["code"]), ("weights", weights, entry["weights"])):
            found = _sha256(path, of.offset, of.size_bytes)
            if found != expected["sha256"]:
                raise ModelError(
                    f"{str(path)!r}: the {what} of {section.target!r} differ from their SHA-256; "
                    f"expected {expected['sha256']}, got {found}"
                )


def _container_target(section: Section, entry: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **entry["target"],
        "obstacle": _obstacle(section.elf_machine, section.features, section.min_vlen_bits),
        "arena_bytes": entry["arena_bytes"],
        "weights_bytes": entry["weights_bytes"],
        "weights_section": section.weights,
        "code_bytes": section.size_bytes,
        "code_sha256": entry["code"]["sha256"],
        "weights_sha256": entry["weights"]["sha256"],
    }


def _inspect_library(path: Path, verify: bool) -> dict[str, Any]:
    missing = set(EXPORTED_SYMBOLS) - set(_symbols(path))
    if missing:
        raise ModelError(f"{str(path)!r}: no model library; expected the symbol {min(missing)!r}, got none")
    beside = metadata_path(path)
    try:
        metadata = json.loads(beside.read_bytes())
        library, target = metadata["library"], metadata["target"]
        if path.stat().st_size != library["size_bytes"] or (
            verify and _sha256(path, 0, library["size_bytes"]) != library["sha256"]
        ):
            raise ModelError(
                f"{str(path)!r}: differs from what {beside.name!r} describes; expected "
                f"{library['size_bytes']} bytes with SHA-256 {library['sha256']}"
            )
        entry = {
            **target,
            "obstacle": _library_obstacle(path, target),
            "arena_bytes": metadata["arena_bytes"],
            "weights_bytes": metadata["weights_bytes"],
            "code_bytes": library["size_bytes"] - metadata["weights_bytes"],
            "library_sha256": library["sha256"],
        }
        return _report(path, "library", metadata, [entry], [], verify)
    except OSError as error:
        raise ModelError(
            f"{str(path)!r}: its metadata can't be read: {error.strerror}; expected {beside.name!r} beside it"
        ) from error
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(f"{str(beside)!r}: is damaged: {error}") from error


def _symbols(path: Path) -> tuple[str, ...]:
    try:
        return read_dynamic_symbols(path).exported
    except ToolchainError as error:
        raise ModelError(str(error)) from error


def _library_obstacle(path: Path, target: Mapping[str, Any]) -> str | None:
    machine, _ = read_machine(path)
    known = next(
        (ISA_FEATURES[name] for name, row in toolchain.PLATFORMS.items() if row.elf_machine == machine), ()
    )
    bits = sum(1 << known.index(name) for name in target["isa"])
    return _obstacle(machine, bits, target["min_vlen_bits"])


def _obstacle(elf_machine: int, features: int, min_vlen_bits: int) -> str | None:
    """Why this machine can't run the code, as the end of a sentence; None where it can."""
    host = toolchain.host_target()
    if elf_machine == toolchain.platform_of(host).elf_machine:
        return find_missing_features(features, min_vlen_bits)
    names = [name for name, row in toolchain.PLATFORMS.items() if row.elf_machine == elf_machine]
    return f"needs a machine of {names[0]!r}; this is {host!r}" if names else "is for an unknown machine"


def _sha256(path: Path, offset: int, size_bytes: int) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        file.seek(offset)
        while size_bytes > 0 and (chunk := file.read(min(size_bytes, 1 << 20))):
            digest.update(chunk)
            size_bytes -= len(chunk)
    return digest.hexdigest()


def _report(
    path: Path,
    kind: str,
    metadata: Mapping[str, Any],
    targets: list[dict[str, Any]],
    weights: list[dict[str, Any]],
    verified: bool,
) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "file": str(path),
        "kind": kind,
        "size_bytes": path.stat().st_size,
        "verified": verified,
        **{key: value for key, value in metadata.items() if key not in _TOLD_OTHERWISE},
        "targets": targets,
        **({"weights": weights} if weights else {}),
    }


def render(report: Mapping[str, Any], nodes: bool = False) -> str:
    """The report for people; `nodes` lists every node rather than how many there are of each kind."""
    model, compiler = report["model"], report["compiler"]
    kind = "a .cuv file" if report["kind"] == "cuv" else "a model library"
    lines = [
        f"{report['file']}: {kind}, {_size(report['size_bytes'])}",
        f"model {model['name']!r}, opset {model['opset']}, sha256 {model['sha256']}",
        f"compiled by cuvil {compiler['version']}, LLVM {compiler['llvm']}, {report['numerics']} numerics",
    ]
    lines += [_tensor("input", tensor) for tensor in report["inputs"]]
    lines += [_tensor("output", tensor) for tensor in report["outputs"]]
    for target in report["targets"]:
        lines += _target(target)
    lines += [_weights(image, report["targets"]) for image in report.get("weights", ())]
    lines += _nodes(report["nodes"], nodes)
    lines.append(_checksums(report))
    return "\n".join(lines)


def _tensor(what: str, tensor: Mapping[str, Any]) -> str:
    shape = ", ".join(map(str, tensor["shape"]))
    return f"{what} {tensor['name']!r}: {tensor['dtype']}[{shape}]"


def _target(target: Mapping[str, Any]) -> list[str]:
    vlen = target["min_vlen_bits"]
    needs = " ".join(target["isa"]) + (f", vectors of {vlen} bits" if vlen else "")
    sizes = ", ".join(f"{what} {_size(target[f'{what}_bytes'])}" for what in ("code", "weights", "arena"))
    return [
        f"target {target['name']}: {target['obstacle'] or 'runs on this machine'}",
        f"  {target['cpu']}; needs {needs}",
        f"  {sizes}",
    ]


def _weights(image: Mapping[str, Any], targets: list[dict[str, Any]]) -> str:
    users = [target["name"] for target in targets if target["weights_section"] == image["section"]]
    return f"weights, {_size(image['size_bytes'])}: of {', '.join(users)}"


def _nodes(nodes: list[dict[str, Any]], listed: bool) -> list[str]:
    if listed:
        return [f"node {node['op']}: {node['loc']}" for node in nodes]
    counts = Counter(node["op"] for node in nodes).most_common()
    return [f"nodes: {len(nodes)}" + "".join(f", {op} {count}" for op, count in counts)]


def _checksums(report: Mapping[str, Any]) -> str:
    if report["verified"]:
        return "checksums: all hold"
    if report["kind"] == "cuv":
        return "checksums: that of the metadata holds; --verify checks all"
    return "checksums: not checked; --verify does"


def _size(size_bytes: int) -> str:
    if size_bytes < 10_000:
        return f"{size_bytes} bytes"
    return f"{size_bytes / 1e6:.1f} MB" if size_bytes >= 10_000_000 else f"{size_bytes / 1e3:.1f} kB"
