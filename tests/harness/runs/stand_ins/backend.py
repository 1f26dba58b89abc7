"""A build backend without requirements, for a package whose command `cuvil` is the stand-in compiler.

`fault.txt` beside it plants a fault: one of the stand-in compiler's, or one of the build.
"""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

NAME = "cuvil_stand_in"
INFO = f"{NAME}-1.0.dist-info"
METADATA = f"Metadata-Version: 2.1\nName: {NAME}\nVersion: 1.0\nProvides-Extra: link\n"
WHEEL = "Wheel-Version: 1.0\nGenerator: stand-in\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
COMMAND = """
import os, sys
def main():
    os.environ["STAND_IN_FAULT"] = {fault!r}
    os.execv({python!r}, [{python!r}, {compiler!r}, *sys.argv[1:]])
"""


def build_wheel(
    wheel_directory: str, config_settings: object = None, metadata_directory: str | None = None
) -> str:
    here = Path(__file__).parent
    places = json.loads((here / "places.json").read_text())
    fault = (here / "fault.txt").read_text().strip()
    if fault == "no-build":
        raise RuntimeError("this release can't be built")
    if fault == "endless-build":
        (Path(places["folder"]) / "building").touch()
        subprocess.run([sys.executable, "-c", "import time; time.sleep(600)"], check=True)
    command = COMMAND.format(fault=fault, python=places["python"], compiler=places["compiler"])
    files = {
        f"{NAME}.py": command,
        f"{INFO}/METADATA": METADATA,
        f"{INFO}/WHEEL": WHEEL,
        f"{INFO}/entry_points.txt": f"[console_scripts]\ncuvil = {NAME}:main\n",
    }
    record = "".join(f"{name},,\n" for name in (*files, f"{INFO}/RECORD"))
    wheel = f"{NAME}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(Path(wheel_directory, wheel), "w") as archive:
        for name, text in {**files, f"{INFO}/RECORD": record}.items():
            archive.writestr(name, text)
    return wheel
