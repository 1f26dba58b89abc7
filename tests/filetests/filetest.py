"""File tests: how they are read, run and rewritten. README.md says what they look like."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cuvil.errors import CuvilError
from cuvil.interp import run_program
from cuvil.ir.graph import Graph
from cuvil.ir.text import format_graph, parse_graph
from cuvil.ir.types import Array, TensorType
from cuvil.ir.verify import verify_graph
from cuvil.loops.verify import verify_kernel
from cuvil.lower import lower_graph
from cuvil.ops.registry import operators
from cuvil.targets.target import find_target

EXPECT = "// expect:\n"
_COMMAND = re.compile(r"// test: (parse|verify|pass ([a-z][a-z0-9-]*))\n")
_ERROR = re.compile(r"[ \t]*// error: ([^\n]*)")

Pass = Callable[[Graph], Graph]


@dataclass(frozen=True)
class Outcome:
    """What a file expects or what was found: an output, or an error and its line."""

    output: str | None = None
    error: tuple[int, str] | None = None


@dataclass(frozen=True)
class FileTest:
    """A file, taken apart; `source` is its text up to the expectation."""

    path: Path
    source: str
    expected: Outcome

    @property
    def command(self) -> str:
        match = _COMMAND.match(self.source)
        if match is None:
            raise ValueError(f"{self.path.name}:1: expected '// test: parse', 'verify' or 'pass NAME'")
        return match[1]

    def run(self) -> Outcome:
        """Runs the test; an error that names no line of the file is raised."""
        try:
            return Outcome(self._output())
        except CuvilError as error:
            match = re.match(rf"{re.escape(self.path.name)}:(\d+): (.*)", str(error))
            if match is None:
                raise
            return Outcome(error=(int(match[1]), match[2]))

    def _output(self) -> str:
        graph = parse_graph(self.source, operators(), self.path.name)
        if self.command == "parse":
            return format_graph(graph)
        verify_graph(graph)
        if self.command == "verify":
            return "sound\n"
        after = find_pass(self.command.removeprefix("pass "))(graph)
        verify_graph(after)
        assert results(graph) == results(after), f"{self.path.name}: the pass changes results"
        return format_graph(after)

    def rewritten(self, found: Outcome) -> str:
        """The file's text with `found` as its expectation."""
        lines = _ERROR.sub("", self.source).split("\n")
        if found.error is None:
            return "\n".join(lines) + EXPECT + (found.output or "")
        line, message = found.error
        lines[line - 1] += f"  // error: {message}"
        return "\n".join(lines)


def read(path: Path) -> FileTest:
    """Takes a file apart."""
    source, marker, output = path.read_text(encoding="utf-8").partition(EXPECT)
    errors = [
        (number, match[1])
        for number, line in enumerate(source.split("\n"), start=1)
        if (match := _ERROR.search(line))
    ]
    if len(errors) > 1:
        raise ValueError(f"{path.name}:{errors[1][0]}: a second '// error:'; expected one a file")
    return FileTest(path, source, Outcome(output if marker else None, errors[0] if errors else None))


def find_pass(name: str) -> Pass:
    """The pass `name`: the function of that name in the module of that name."""
    identifier = name.replace("-", "_")
    run: Pass = getattr(importlib.import_module(f"cuvil.passes.{identifier}"), identifier)
    return run


def results(graph: Graph) -> list[tuple[TensorType, bytes]]:
    """What the graph computes from fixed inputs, to the bit but for the bits of NaN."""
    generator = np.random.default_rng(20240229)
    inputs = [_sample(value.type, generator) for value in graph.inputs]
    program = lower_graph(graph, find_target("riscv64-linux"))
    for call in program.calls:
        verify_kernel(call.kernel)
    outputs = run_program(program, inputs)
    return [(value.type, _bits(array)) for value, array in zip(graph.outputs, outputs, strict=True)]


def _sample(tensor_type: TensorType, generator: np.random.Generator) -> Array:
    values = generator.normal(0, 4, tensor_type.shape)
    if tensor_type.dtype.kind == "bool":
        return np.asarray(values > 0)
    return np.asarray(values).astype(tensor_type.dtype.numpy)


def _bits(array: Array) -> bytes:
    if array.dtype.kind == "f":
        array = np.where(np.isnan(array), np.array(np.nan, array.dtype), array)
    return array.tobytes()
