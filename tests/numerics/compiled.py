"""Kernels as code of this machine, and the elementary functions' errors over all 2^32 arguments.

    python -m tests.numerics.compiled [exp tanh ...]

A function takes one to a few minutes; most of that is its definition in float64.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from typing import Protocol

import numpy as np

from cuvil.codegen.kernel import emit_kernel
from cuvil.codegen.machine import LoadedObject, compile_object
from cuvil.ir.types import Array
from cuvil.loops.kernel import Kernel
from cuvil.targets.target import Target, find_target
from tests.numerics.sweep import SUBJECTS, Function, Subject, kernel_of, patterns, sweep

COLUMNS = 1 << 12
MOST_ROWS = 1 << 20
_SYMBOL = "function"


def this_machine() -> Target:
    return find_target(f"{platform.machine()}-linux")


class Compiled(Protocol):
    """Machine code of a kernel: runs iterations `begin` to `end` of its parallel loop, if it has one."""

    def __call__(self, *buffers: Array, begin: int, end: int) -> None: ...


def load(kernel: Kernel, target: Target) -> Compiled:
    """Compiles a kernel into this process; its code must be this machine's."""
    function = emit_kernel(kernel, target)
    definition = f"define void @{_SYMBOL}({function.parameters}) {{\n{function.body}\n}}"
    text = "\n".join([f'target triple = "{target.triple}"', *sorted(function.declarations), definition])
    code = LoadedObject(compile_object(text, target), target, (_SYMBOL,))
    types = [ctypes.c_void_p] * len(kernel.params) + [ctypes.c_int64] * 2
    entry = ctypes.CFUNCTYPE(None, *types)(code.addresses[_SYMBOL])

    def run(*buffers: Array, begin: int, end: int, keep: LoadedObject = code) -> None:
        entry(*(buffer.ctypes.data for buffer in buffers), begin, end)

    return run


def compiled(subject: Subject, target: Target, columns: int = COLUMNS) -> Function:
    """The function as machine code, on rows of `columns`; the last row is filled up with zeros."""
    code = load(kernel_of(subject, MOST_ROWS, columns), target)

    def run(arguments: Array) -> Array:
        rows = -(-len(arguments) // columns)
        x = np.zeros(rows * columns, np.float32)
        x[: len(arguments)] = arguments
        y = np.empty_like(x)
        code(x, y, begin=0, end=rows)
        return y[: len(arguments)]

    return run


def main(names: list[str]) -> int:
    failed = 0
    for name in names or SUBJECTS:
        subject = SUBJECTS[name]
        worst = sweep(compiled(subject, this_machine()), subject.reference, patterns())
        verdict = "ok" if worst.error_ulp <= subject.bound_ulp else "FAILED"
        failed += verdict != "ok"
        print(
            f"{name}: {worst.error_ulp:.4f} ULP at {worst.argument!r}, bound {subject.bound_ulp}: {verdict}"
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
