"""A run's folder: where each thing of a run lies. Paths inside are by cell, so cells never meet."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cuvil_regress.model import Cell

RESULTS = "results.json"
CELLS = "cells.jsonl"
ENVIRONMENT = "environment.json"
HTML = "report.html"
MARKDOWN = "summary.md"
JUNIT = "junit.xml"
CSV = "outputs.csv"
PLAN = "plan.json"

FOLDERS = ("captures", "goldens", "libraries", "logs", "outputs", "runtimes")
"""What a run holds by cell, by group and by target."""

_ROOM_BYTES = 1 << 20


@dataclass(frozen=True)
class Workspace:
    """The folder of one run; it holds all that a later comparison needs."""

    root: Path

    def capture(self, cell: Cell) -> Path:
        """`model.onnx`, `cases/` and `capture.json`, shared by the targets."""
        return self.root / "captures" / cell.group

    def golden(self, cell: Cell) -> Path:
        """The golden outputs that the cell was judged by: a tensor folder a case."""
        return self.root / "goldens" / cell.group

    def library(self, cell: Cell) -> Path:
        """The compiled model, shared by the machines of a target."""
        return self.root / "libraries" / cell.group / cell.built_for / f"lib{cell.model}.so"

    def metadata(self, cell: Cell) -> Path:
        """What the compiler says about the library."""
        return self.library(cell).with_suffix(".cuvil-meta.json")

    def runtime(self, target: str) -> Path:
        """The runtime library that ran the target's cells, on all its machines."""
        return self.root / "runtimes" / target.partition("@")[0] / "libcuvil_runtime.so.1"

    def outputs(self, cell: Cell) -> Path:
        """A tensor folder of outputs for each case that ran."""
        return self.root / "outputs" / cell.id

    def log(self, cell: Cell, step: str) -> Path:
        """The log of a step; all targets share the capture's, a target's machines those of its library."""
        target = f"{cell.group}/{cell.built_for}"
        shared = {"capture": cell.group, "compile": target, "abi": target}
        return self.root / "logs" / shared.get(step, cell.id) / f"{step}.log"

    def clear(self, cell: Cell, *, group: bool) -> None:
        """Remove what an earlier attempt left of a cell, and of its `group` where nothing of that is kept."""
        places = [self.library(cell).parent, self.outputs(cell), self.root / "logs" / cell.id]
        if group:
            places += [self.capture(cell), self.golden(cell)]
        for place in places:
            if place.exists():
                shutil.rmtree(place)

    def require_room(self) -> None:
        """Write a little: a command that failed may have failed for want of space.

        Raises:
            OSError: the folder can't be written to, or is full.
        """
        with tempfile.TemporaryFile(dir=self.root) as file:
            file.write(bytes(_ROOM_BYTES))

    def relative(self, path: Path) -> str:
        """The path as reports show it: relative to the run's folder."""
        return path.relative_to(self.root).as_posix()


def write_json(path: Path, document: Mapping[str, object]) -> None:
    """Write a JSON file completely or not at all."""
    write_text(path, json.dumps(document, indent=2, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a text file completely or not at all."""
    temporary = path.with_name(path.name + ".part")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
