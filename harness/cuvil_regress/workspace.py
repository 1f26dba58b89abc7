"""A run's folder: where each thing of a run lies. Paths inside are by cell, so cells never meet."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cuvil_regress.model import Cell

RESULTS = "results.json"
CELLS = "cells.jsonl"
ENVIRONMENT = "environment.json"


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

    def runtime(self, target: str) -> Path:
        """The runtime library that ran the target's cells, on all its machines."""
        return self.root / "runtimes" / target.partition("@")[0] / "libcuvil_runtime.so.1"

    def outputs(self, cell: Cell) -> Path:
        """A tensor folder of outputs for each case that ran."""
        return self.root / "outputs" / cell.id

    def log(self, cell: Cell, step: str) -> Path:
        """The log of a step; all targets share the capture's, a target's machines the compiler's."""
        shared = {"capture": cell.group, "compile": f"{cell.group}/{cell.built_for}"}
        return self.root / "logs" / shared.get(step, cell.id) / f"{step}.log"

    def relative(self, path: Path) -> str:
        """The path as reports show it: relative to the run's folder."""
        return path.relative_to(self.root).as_posix()


def write_json(path: Path, document: Mapping[str, object]) -> None:
    """Write a JSON file completely or not at all."""
    temporary = path.with_name(path.name + ".part")
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(document, file, indent=2, allow_nan=False)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
