"""Elementary functions as code of this machine, and their error over all 2^32 arguments.

    python -m tests.numerics.compiled [exp tanh ...]

A function takes one to a few minutes; most of that is its definition in float64.
"""

from __future__ import annotations

import ctypes
import platform
import sys

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


def compiled(subject: Subject, target: Target, columns: int = COLUMNS) -> Function:
    """The function as machine code, on rows of `columns`; the last row is filled up with zeros."""
    text = _module(kernel_of(subject, MOST_ROWS, columns), target)
    code = LoadedObject(compile_object(text, target), target, (_SYMBOL,))
    pointer, integer = ctypes.c_void_p, ctypes.c_int64
    entry = ctypes.CFUNCTYPE(None, pointer, pointer, integer, integer)(code.addresses[_SYMBOL])

    def run(arguments: Array, keep: LoadedObject = code) -> Array:
        rows = -(-len(arguments) // columns)
        x = np.zeros(rows * columns, np.float32)
        x[: len(arguments)] = arguments
        y = np.empty_like(x)
        entry(x.ctypes.data, y.ctypes.data, 0, rows)
        return y[: len(arguments)]

    return run


def _module(kernel: Kernel, target: Target) -> str:
    function = emit_kernel(kernel, target)
    return "\n".join(
        [
            f'target triple = "{target.triple}"',
            *sorted(function.declarations),
            f"define void @{_SYMBOL}({function.parameters}) {{\n{function.body}\n}}",
        ]
    )


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
