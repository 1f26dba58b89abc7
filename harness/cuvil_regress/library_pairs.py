"""What two builds of one model's library differ in: exported names, metadata, size, time to compile."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cuvil_regress import elf
from cuvil_regress.errors import HarnessError
from cuvil_regress.model import Result
from cuvil_regress.pairs import Build, LibraryKind, MetadataChange, SymbolChange
from cuvil_regress.runs import Run

_TOLD_ELSEWHERE = frozenset({"library", "nodes"})
"""Metadata that the report has anyway, or that is too long: nodes are counted."""
_VERSION = "compiler.version"
"""Stands above the whole report."""


def symbol_changes(a: Run, b: Run, left: Result, right: Result) -> Iterator[SymbolChange]:
    """The changes of exported names, wherever both sides have the library."""
    places: tuple[tuple[LibraryKind, Path, Path], ...] = (
        ("model", a.workspace.library(left.cell), b.workspace.library(right.cell)),
        ("runtime", a.workspace.runtime(left.cell.target), b.workspace.runtime(right.cell.target)),
    )
    for kind, ours, theirs in places:
        if _is_there(a, left, ours) and _is_there(b, right, theirs):
            old, new = _exports(a, ours), _exports(b, theirs)
            if old != new:
                yield SymbolChange(kind, tuple(sorted(new - old)), tuple(sorted(old - new)))


def _is_there(run: Run, result: Result, path: Path) -> bool:
    """A cell that failed may have no library; one with outputs must."""
    if not path.is_file() and result.outputs:
        raise run.damage(path, "no such file")
    return path.is_file()


def _exports(run: Run, path: Path) -> set[str]:
    """Exported names, each with its version node where it has one: losing the node breaks a program, too."""
    try:
        image = elf.read(path)
    except HarnessError as error:
        raise run.damage(path, str(error)) from error
    return {
        name.decode(errors="backslashreplace") + (f"@@{node}" if (node := image.version_of(index)) else "")
        for name, indices in image.exports.items()
        for index in indices
    }


def metadata_changes(a: Run, b: Run, left: Result, right: Result) -> Iterator[MetadataChange]:
    """The entries of the libraries' metadata that differ: versions, target, numerics, signature, memory."""
    old, new = _metadata(a, left), _metadata(b, right)
    if old is None or new is None:
        return
    for key in dict.fromkeys([*old, *new]):
        if key != _VERSION and old.get(key) != new.get(key):
            yield MetadataChange(key, old.get(key), new.get(key))


def _metadata(run: Run, result: Result) -> dict[str, str] | None:
    """The metadata as entries `target.cpu: "cortex-a78"`; None where no library was written."""
    path = run.workspace.metadata(result.cell)
    if not path.is_file():
        return None
    try:
        document = json.loads(path.read_bytes())
        entries = dict(_flatten({key: document[key] for key in document if key not in _TOLD_ELSEWHERE}))
        return entries | {"number of nodes": str(len(document.get("nodes", ())))}
    except (ValueError, TypeError) as error:
        raise run.damage(path, "is no metadata") from error


def _flatten(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, json.dumps(value)


def built(run: Run, result: Result) -> Build:
    """The size of the library and the time that it took to make."""
    library = run.workspace.library(result.cell)
    elapsed = [step.elapsed_ns for step in result.steps if step.name == "compile" and step.ok]
    if not library.is_file() or not elapsed:
        return Build()
    return Build(library.stat().st_size, elapsed[0])
