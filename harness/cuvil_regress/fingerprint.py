"""What a cell was made from, as a digest for each part: with the same parts it need not be run again."""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from cuvil_regress import policy
from cuvil_regress.environment import Compiler, Launcher
from cuvil_regress.golden import RECORD
from cuvil_regress.model import Cell
from cuvil_regress.steps import Bench

PARTS = ("harness", "matrix", "python", "compiler", "machine", "capture", "golden")
"""What a cell depends on, in the order in which changes are told."""


def of_cell(bench: Bench, cell: Cell) -> dict[str, str]:
    """The digests of a cell's parts; that of a part that is not there is empty."""
    capture = bench.workspace.capture(cell)
    return {
        "harness": _harness(),
        "matrix": _matrix(bench, cell),
        "python": _digest(bench.interpreter.python, bench.interpreter.torch, bench.interpreter.numpy),
        "compiler": _compiler(bench.compiler) if isinstance(bench.compiler, Compiler) else "",
        "machine": _machine(bench, cell),
        "capture": _files(capture, [capture / "model.onnx", *sorted((capture / "cases").rglob("*"))]),
        "golden": _files(bench.matrix.golden, [bench.matrix.golden / cell.model / RECORD]),
    }


@cache
def _harness() -> str:
    """This package: its code, models, policies and schemas."""
    folder = Path(__file__).parent
    return _files(folder, sorted(path for path in folder.rglob("*") if "__pycache__" not in path.parts))


def _matrix(bench: Bench, cell: Cell) -> str:
    """What the matrix says of the cell: its first target, its policies, and the time it may take."""
    first = next(each.target for each in bench.matrix.cells if each.group == cell.group)
    policies = [bench.matrix.policies.golden, bench.matrix.policies.targets]
    rules = [repr(policy.load(name)) for name in policies]
    return _digest(cell.id, first, policies, rules, dict(bench.matrix.timeouts_s))


def _compiler(compiler: Compiler) -> str:
    """Its own account of itself, and the files that its command names."""
    return _digest(compiler.version, compiler.llvm, compiler.digest, [_word(each) for each in compiler.argv])


def _word(word: str) -> str:
    path = shutil.which(word) or word
    return _file(Path(path)) if Path(path).is_file() else word


def _machine(bench: Bench, cell: Cell) -> str:
    """The processor, or the emulator in its place, and the compiler's runner and runtime."""
    launcher = bench.launchers[cell.target]
    if not isinstance(bench.compiler, Compiler) or not isinstance(launcher, Launcher):
        return ""
    tools = bench.compiler.tools(cell.built_for)
    words = (platform.machine(), launcher.emulator, launcher.version, launcher.arguments)
    return _digest(*words, _file(tools.runner), _file(tools.runtime))


def _files(root: Path, paths: Iterable[Path]) -> str:
    """Of files by their names from `root` on; empty when there is none."""
    found = {path.relative_to(root).as_posix(): _file(path) for path in paths if path.is_file()}
    return _digest(found) if found else ""


def _file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest(*values: object) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
