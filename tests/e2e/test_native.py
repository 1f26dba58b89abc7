"""`native` and `cuvil doctor` on machines that have less than this one: QEMU runs the compiler itself."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from cuvil import toolchain
from tests.needs import need_program

ASK = """
import json
from cuvil.doctor import examine, render
from cuvil.errors import ToolchainError
from cuvil.native import native_target
report = examine()
try:
    native = native_target().name
except ToolchainError as error:
    native = error.render()
obstacles = {name: entry["obstacle"] for name, entry in report["targets"].items()}
print(json.dumps([native, obstacles, render(report)]))
"""


@pytest.mark.parametrize(
    ("cpu", "native", "obstacle"),
    [
        ("max", "x86_64-linux", None),
        (
            "max,movbe=off",
            "target 'native': no record fits; 'x86_64-linux' needs MOVBE, which this machine lacks",
            "needs MOVBE, which this machine lacks",
        ),
    ],
)
def test_a_processor_with_less(cpu: str, native: str, obstacle: str | None) -> None:
    if toolchain.host_target() != "x86_64-linux":
        pytest.skip("emulates this machine's own family, by the processors that QEMU has of it")
    command = [need_program("qemu-x86_64"), "-cpu", cpu, sys.executable, "-c", ASK]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    got, obstacles, text = json.loads(ended.stdout)
    assert got == native
    assert obstacles["x86_64-linux"] == obstacle
    lacking = "AVX-512F, AVX-512BW, AVX-512CD, AVX-512DQ, AVX-512VL, which this machine lacks"
    assert obstacles["x86_64-linux-v4"].endswith(lacking)
    assert obstacles["riscv64-linux-v"] is None
    assert f"\nx86_64-linux-v4: compiles; to run {obstacles['x86_64-linux-v4']}; runtime " in text
