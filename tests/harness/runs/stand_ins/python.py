"""A capturing Python without PyTorch: the captures come from the goldens, rounded to float32.

STAND_IN_TORCH names a folder with a `torch` package and its metadata; STAND_IN_GOLDEN the goldens' folder.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path


def capture(name: str, folder: Path) -> int:
    from cuvil_regress import golden, models, tensors

    model, stored = models.load(name), golden.load(Path(os.environ["STAND_IN_GOLDEN"]), name)
    for case, outputs in stored.cases.items():
        rounded = {key: tensor.values.astype(tensor.model_dtype) for key, tensor in outputs.items()}
        tensors.write(folder / "cases" / case, model.inputs(case))
        tensors.write(folder / "eager" / case, rounded)
    (folder / "model.onnx").write_bytes(b"stand-in")
    (folder / "capture.json").write_text("{}")
    if "STAND_IN_LINK" in os.environ:
        link, _, target = os.environ["STAND_IN_LINK"].partition("=")
        Path(link).parent.mkdir(parents=True, exist_ok=True)
        Path(link).symlink_to(target)
    return 0


def linger() -> None:
    """Hang, and leave the session twice over before: what must be ended has done all to escape it."""
    for _ in range(2):
        if os.fork() == 0:
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)


def main() -> int:
    if os.environ.get("STAND_IN_FAULT") == ("hang-setup" if sys.argv[1] == "-c" else "hang-capture"):
        linger()
    if sys.argv[1] == "-c":
        sys.path.insert(0, os.environ["STAND_IN_TORCH"])
        exec(sys.argv[2], {})
        return 0
    assert sys.argv[1:3] == ["-m", "cuvil_regress.capture"]
    if os.environ.get("STAND_IN_FAULT") == "capture":
        raise RuntimeError("the exporter gave up")
    return capture(sys.argv[3], Path(sys.argv[4]))


if __name__ == "__main__":
    sys.exit(main())
