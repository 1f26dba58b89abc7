"""First uses from several threads at once, each in a fresh process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import cuvil
from tests.e2e.models import product

PROGRAM = """
import sys, threading
import cuvil, numpy as np
path, use = sys.argv[1:]
failures = []
start = threading.Barrier(8)

def work():
    start.wait()
    try:
        model = cuvil.load(path) if use == "load" else cuvil.compile(path)
        assert model(np.ones((2, 3), np.float32)).shape == (2, 4)
    except BaseException as error:
        failures.append(repr(error))

threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
sys.exit("; ".join(failures) or 0)
"""


@pytest.mark.parametrize("use", ["load", "compile"])
def test_first_use_by_eight_threads(use: str, tmp_path: Path) -> None:
    library, model = tmp_path / "m.so", tmp_path / "m.onnx"
    cuvil.compile(product(2, 3, 4)).save(library)
    model.write_bytes(product(2, 3, 4).SerializeToString())
    path = library if use == "load" else model
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, str(path), use]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert finished.returncode == 0, finished.stderr
