"""A compiler that follows the command-line contract but knows nothing of models.

Its "compiled" library is a table: inputs that were captured -> outputs that lie beside them. That is enough
to hold every verdict of the harness to a library that truly has the fault. STAND_IN_FAULT plants one.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from cuvil_regress import tensors

FAULT = os.environ.get("STAND_IN_FAULT", "")
NUMBERS = {"float32": 1, "int32": 6, "int64": 7, "bool": 9, "float64": 11}
ZIG = {
    "x86_64-linux": "x86_64-linux-gnu",
    "aarch64-linux": "aarch64-linux-gnu",
    "riscv64-linux": "riscv64-linux-gnu",
}
FLAGS = (
    "-shared",
    "-nostdlib",
    "-fPIC",
    "-O1",
    "-fvisibility=hidden",
    "-fno-stack-protector",
    "-fno-builtin",
)

SOURCE = r"""
typedef long long int64;
#define EXPORT __attribute__((visibility("default")))
#define BLOB(name, file) \
    __asm__(".section .rodata\n.balign 64\n" #name ":\n" \
            ".incbin \"" file "\"\n.balign 64\n.space 64\n.previous\n"); \
    extern const unsigned char name[] __attribute__((visibility("hidden")));
EXPORT const int64 cuvil_model_info[] = {@INFO@};
EXPORT const char cuvil_model_strings[] = @STRINGS@;
__attribute__((aligned(64))) EXPORT const char cuvil_model_weights[64] = {1};
@BLOBS@
static const struct { const unsigned char *inputs[@INPUTS@], *outputs[@OUTPUTS@]; } table[] = {@TABLE@};
static const int64 input_bytes[] = {@INPUT_BYTES@}, output_bytes[] = {@OUTPUT_BYTES@};
static int equal(const unsigned char *a, const unsigned char *b, int64 n) {
    for (int64 i = 0; i < n; i++) if (a[i] != b[i]) return 0;
    return 1;
}
static int matches(int64 row, const void *const *inputs) {
    for (int i = 0; i < @INPUTS@; i++) if (!equal(table[row].inputs[i], inputs[i], input_bytes[i])) return 0;
    return 1;
}
@EXTRA@
EXPORT int64 cuvil_model_run(
    const void *services, const void *weights, const void *const *inputs, void *const *outputs, void *arena) {
    @BEFORE@
    for (int64 row = 0; row < (int64)(sizeof table / sizeof *table); row++) {
        if (!matches(row, inputs)) continue;
        for (int i = 0; i < @OUTPUTS@; i++) {
            unsigned char *output = outputs[i];
            for (int64 k = 0; k < output_bytes[i]; k++) output[k] = table[row].outputs[i][k];
        }
        return 0;
    }
    return 1;
}
"""

EXTRA = {
    "clash": "EXPORT int planted_name(void) { return 7; }",
    "undefined": "extern void nobody_defines_this(void);",
    "extra-symbol": "EXPORT int cuvil_extra(void) { return 7; }",
}
BEFORE = {
    "crash": "*(volatile int *)8 = 1;",
    "illegal": '__asm__ volatile("ud2");',
    "crash-special": "if (matches(1, inputs)) *(volatile int *)8 = 1;",
    "hang": "for (volatile int i = 0;;) i = i + 1;",
    "undefined": "nobody_defines_this();",
}
ENDS = {
    "unsupported": (
        3,
        "node 'gather_3' (model.onnx): operator is not compiled; expected one of Add, Gemm, got Gather",
    ),
    "toolchain": (5, "link: no linker was found; expected ld.lld\nhint: pip install ziglang"),
    "internal": (70, "internal error: IndexError: list index out of range"),
}


def compile_model(model: Path, target: str, library: Path) -> int:
    if FAULT == "fill":
        with library.open("wb") as file:
            while True:
                file.write(bytes(1 << 16))
    if FAULT == "hang-compile":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)
    if FAULT in ENDS:
        code, words = ENDS[FAULT]
        print(words, file=sys.stderr)
        return code
    source = library.with_suffix(".c")
    source.write_text(render(model.parent, target, library.parent))
    cc = (
        ["cc"]
        if target == "x86_64-linux"
        else [sys.executable, "-m", "ziglang", "cc", "-target", ZIG[target]]
    )
    subprocess.run([*cc, *FLAGS, str(source), "-o", str(library)], check=True)
    return 0


def render(capture: Path, target: str, folder: Path) -> str:
    cases = sorted(path.name for path in (capture / "cases").iterdir())
    inputs = {case: tensors.read(capture / "cases" / case) for case in cases}
    outputs = {case: plant(case, tensors.read(capture / "eager" / case)) for case in cases}
    blobs, rows = [], []
    for case in cases:
        sides = []
        for side, arrays in (("in", inputs[case]), ("out", outputs[case])):
            names = [f"{side}_{case}_{index}" for index in range(len(arrays))]
            for name, array in zip(names, arrays.values(), strict=True):
                (folder / f"{name}.bin").write_bytes(tensors.encode(array))
                blobs.append(f'BLOB({name}, "{folder / name}.bin")')
            sides.append("{" + ", ".join(names) + "}")
        rows.append("{" + ", ".join(sides) + "}")
    info, strings = describe(target, inputs[cases[0]], outputs[cases[0]])
    values = {
        "INFO": numbers(info),
        "STRINGS": '"' + "\\0".join(strings) + '"',
        "BLOBS": "\n".join(blobs),
        "INPUTS": str(len(inputs[cases[0]])),
        "OUTPUTS": str(len(outputs[cases[0]])),
        "TABLE": ", ".join(rows),
        "INPUT_BYTES": numbers(array.nbytes for array in inputs[cases[0]].values()),
        "OUTPUT_BYTES": numbers(array.nbytes for array in outputs[cases[0]].values()),
        "EXTRA": EXTRA.get(FAULT, ""),
        "BEFORE": BEFORE.get(FAULT, ""),
    }
    text = SOURCE
    for key, value in values.items():
        text = text.replace(f"@{key}@", value)
    return text


def plant(case: str, outputs: dict[str, tensors.Array]) -> dict[str, tensors.Array]:
    """Change the outputs as the planted fault says."""
    name, array = next(iter(outputs.items()))
    if case != "ordinary":
        return outputs
    if FAULT == "shape":
        return {**outputs, name: array.reshape(-1)}
    if FAULT == "dtype":
        return {**outputs, name: array.astype(np.float64)}
    first = {
        "mismatch": array.flat[0] + 1,
        "nan": np.nan,
        "one-bit": np.nextafter(array.flat[0], np.float32(9)),
    }
    return {**outputs, name: at_first(array, first[FAULT])} if FAULT in first else outputs


def at_first(array: tensors.Array, value: float) -> tensors.Array:
    copy = array.copy()
    copy.flat[0] = value
    return copy


def describe(
    target: str, inputs: dict[str, tensors.Array], outputs: dict[str, tensors.Array]
) -> tuple[list[int], list[str]]:
    strings: list[str] = [target, "model"]
    tail: list[int] = []
    for name, array in (*inputs.items(), *outputs.items()):
        offset = sum(len(text) + 1 for text in strings)
        strings.append(name)
        tail += [offset, NUMBERS[array.dtype.name], array.nbytes, array.ndim, *array.shape]
    size = sum(len(text) + 1 for text in strings)
    names = [0, len(target) + 1]
    head = [0x4C49565543, 2, 13 + len(tail), len(inputs), len(outputs), 64, 0, size, *names, 0, 0, 0]
    return head + tail, strings


def numbers(values: Iterable[int]) -> str:
    return ", ".join(f"{value}LL" for value in values)


def main() -> int:
    arguments = sys.argv[1:]
    options = dict(zip(arguments[1::2], arguments[2::2], strict=True))
    return compile_model(Path(options["--model"]), options["--target"], Path(options["--output"]))


if __name__ == "__main__":
    sys.exit(main())
