"""The inner loops of products and convolutions: full-width fused multiply-adds, and nothing spilled.

Scalar code would give the same bits on every target, so equal outputs alone prove no speed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import onnx
import pytest

from cuvil.driver import Options, assembly, run_stages
from cuvil.targets.target import TARGET_NAMES, find_target
from tests.e2e.models import convolution, product


@dataclass(frozen=True)
class Machine:
    """How a target's assembly shows what the tests look for."""

    fused: str
    """A full-width fused multiply-add."""
    stack: str
    """An access to the stack."""
    branch: str
    """A branch; the label is its group."""


MACHINES = {
    "x86_64-linux": Machine(r"\bvfn?madd\d+ps\s.*%ymm", r"\(%rsp", r"\bj\w+\s+(\.L\w+)"),
    "x86_64-linux-v4": Machine(r"\bvfn?madd\d+ps\s.*%zmm", r"\(%rsp", r"\bj\w+\s+(\.L\w+)"),
    "aarch64-linux": Machine(r"\bfmla\s+v\d+\.4s", r"\[sp", r"\b(?:b\.\w+|cbn?z\s+\w+,|b)\s+(\.L\w+)"),
    "riscv64-linux": Machine(r"\bfmadd\.s\b", r"\(sp\)", r"\bb\w+\s+(?:\w+,\s*)+(\.L\w+)"),
    "riscv64-linux-v": Machine(r"\bvfma(?:cc|dd)\.vf\b", r"\(sp\)", r"\bb\w+\s+(?:\w+,\s*)+(\.L\w+)"),
}
MACHINES["aarch64-linux-armv8a"] = MACHINES["aarch64-linux"]
MACHINES["riscv64-linux-u74"] = MACHINES["riscv64-linux"]


def innermost_loops(text: str, machine: Machine) -> list[list[str]]:
    """The lines of every loop that holds no other loop."""
    lines = text.splitlines()
    labels: dict[str, int] = {}
    loops: list[tuple[int, int]] = []
    for number, line in enumerate(lines):
        label = re.match(r"(\.L\w+):", line)
        if label:
            labels[label[1]] = number
        branch = re.search(machine.branch, line)
        if branch and branch[1] in labels:
            loops.append((labels[branch[1]], number))
    inner = [a for a in loops if not any(a != b and a[0] <= b[0] and b[1] <= a[1] for b in loops)]
    return [lines[first : last + 1] for first, last in inner]


def hot_loops(model: onnx.ModelProto, target: str) -> list[list[str]]:
    """The innermost loops with multiply-adds, busiest first."""
    machine = MACHINES[target]
    text = assembly(run_stages(model, Options(target)))
    loops = [loop for loop in innermost_loops(text, machine) if count(machine.fused, loop)]
    return sorted(loops, key=lambda loop: -count(machine.fused, loop))


def count(pattern: str, lines: list[str]) -> int:
    return sum(re.search(pattern, line) is not None for line in lines)


MODELS = {"product": product(24, 96, 48), "convolution": convolution(24, 16, 48)}

LEAST_ACCUMULATORS = {name: 12 if find_target(name).vector_registers == 16 else 16 for name in TARGET_NAMES}
"""Independent chains that hide the latency of the target's multiply-add and leave room for the operands."""


def test_every_target_is_looked_at() -> None:
    assert set(MACHINES) == set(TARGET_NAMES)


@pytest.mark.parametrize("model", MODELS)
def test_vectors_are_one_register_of_the_least_length(model: str) -> None:
    for loop in hot_loops(MODELS[model], "riscv64-linux-v"):
        assert count(r"\bvset", loop) == 0, loop
    text = assembly(run_stages(MODELS[model], Options("riscv64-linux-v")))
    assert re.search(r"\bvsetivli\s+zero, 4, e32, m1\b", text)


@pytest.mark.parametrize("model", MODELS)
def test_no_bfloat16_instructions(model: str) -> None:
    text = assembly(run_stages(MODELS[model], Options("x86_64-linux-v4")))
    assert "bf16" not in text


@pytest.mark.parametrize("target", MACHINES)
@pytest.mark.parametrize("model", MODELS)
def test_inner_loop_is_full_width_fused_multiply_add(model: str, target: str) -> None:
    machine = MACHINES[target]
    loop = hot_loops(MODELS[model], target)[0]
    fused = count(machine.fused, loop)
    assert fused >= LEAST_ACCUMULATORS[target], loop
    assert fused >= len(loop) / 2, loop


@pytest.mark.parametrize("target", MACHINES)
@pytest.mark.parametrize("model", MODELS)
def test_inner_loop_touches_no_stack(model: str, target: str) -> None:
    machine = MACHINES[target]
    for loop in hot_loops(MODELS[model], target):
        assert count(machine.stack, loop) == 0, loop


def test_a_spill_would_be_seen() -> None:
    machine = MACHINES["x86_64-linux"]
    text = ".LBB0_1:\n vfmadd231ps (%rax), %ymm1, %ymm2\n vmovups %ymm2, 32(%rsp)\n jb .LBB0_1\n"
    (loop,) = innermost_loops(text, machine)
    assert count(machine.fused, loop) == 1
    assert count(machine.stack, loop) == 1
