"""A runner that follows the contract of `cuvil-run` on this machine; it needs no build."""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path

import numpy as np

from cuvil_regress import tensors

NUMBERS = {1: np.float32, 6: np.int32, 7: np.int64, 9: np.bool_, 11: np.float64}


def run_case(library: ctypes.CDLL, inputs: Path, outputs: Path) -> None:
    info = (ctypes.c_int64 * 4096).in_dll(library, "cuvil_model_info")
    strings = ctypes.string_at(
        ctypes.addressof(ctypes.c_char.in_dll(library, "cuvil_model_strings")), info[7]
    )
    results: dict[str, tensors.Array] = {}
    arrays, at = list(tensors.read(inputs).values()), 13
    for index in range(info[3] + info[4]):
        offset, number, rank = info[at], info[at + 1], info[at + 3]
        shape = [info[at + 4 + axis] for axis in range(rank)]
        at += 4 + rank
        if index >= info[3]:
            name = strings[offset:].split(b"\0")[0].decode()
            results[name] = np.zeros(shape, NUMBERS[number])
    pointers = [
        (ctypes.c_void_p * len(group))(*(array.ctypes.data for array in group))
        for group in (arrays, list(results.values()))
    ]
    library.cuvil_model_run.restype = ctypes.c_int64
    if library.cuvil_model_run(None, None, *pointers, None) != 0:
        os._exit(9)
    tensors.write(outputs, results)


def run_emulated(cases: Path, folder: Path) -> int:
    """A foreign library can't be loaded here: give what was recorded, with one bit flipped where planted."""
    for case in sorted(path.name for path in cases.iterdir()):
        outputs = tensors.read(cases.parent / "eager" / case)
        if os.environ.get("STAND_IN_FAULT") == "foreign-bit" and case == "ordinary":
            next(iter(outputs.values())).reshape(-1).view(np.uint32)[3] ^= 1
        tensors.write(folder / case, outputs)
        print(json.dumps({"case": case, "status": "ok"}), flush=True)
    return 0


def main() -> int:
    model, cases, folder = sys.argv[-3:]
    if "STAND_IN_EMULATED" in os.environ:
        return run_emulated(Path(cases), Path(folder))
    try:
        library = ctypes.CDLL(model, mode=os.RTLD_NOW)
    except OSError as error:
        print(f"cuvil-run: {error}", file=sys.stderr)
        return 3
    failed = False
    for case in sorted(Path(cases).iterdir()):
        child = os.fork()
        if child == 0:
            run_case(library, case, Path(folder) / case.name)
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        report: dict[str, object] = {"case": case.name, "status": "ok"}
        if code < 0:
            report |= {"status": "crash", "signal": -code}
        elif code > 0:
            report |= {"status": "error", "message": f"the model returned {code}"}
        failed |= code != 0
        print(json.dumps(report), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
