"""Judges compiled graphs: NumPy definitions, the loop interpreter, and machine code must agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cuvil import toolchain
from cuvil.artifact import Artifact, Signature
from cuvil.codegen.machine import compile_object
from cuvil.codegen.module import describe, emit_module
from cuvil.interp import run_graph, run_program
from cuvil.ir.graph import Graph, GraphBuilder
from cuvil.ir.op import OpDef
from cuvil.ir.types import Array, type_of
from cuvil.lower import lower_graph
from cuvil.native import find_obstacle
from cuvil.plan import plan_memory
from cuvil.session import CompiledModel, load_artifact
from cuvil.targets.target import TARGET_NAMES, Target, find_target

NAN_BITS = {4: np.uint32(0x7FC00000), 8: np.uint64(0x7FF8000000000000)}


@dataclass(frozen=True, eq=False)
class Case:
    """A graph and its inputs."""

    graph: Graph
    inputs: Sequence[Array]


def random(seed: int, *shape: int) -> Array:
    """Ordinary float32 values."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def special(seed: int, *shape: int) -> Array:
    """Ordinary values among NaN, infinities, zeros of both signs, and subnormals."""
    rng = np.random.default_rng(seed)
    odd = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-41, -1e-45, 3e38, -1e-38], np.float32)
    values = rng.standard_normal(shape).astype(np.float32)
    return np.where(rng.random(shape) < 0.2, rng.choice(odd, shape), values).astype(np.float32)


def one_node(
    op: OpDef,
    operands: Sequence[Array],
    attrs: Mapping[str, Any] | None = None,
    constants: Sequence[int] = (),
) -> Case:
    """A graph of one node; operands at the positions `constants` are part of the graph."""
    b = GraphBuilder("case")
    values, inputs = [], []
    for position, array in enumerate(operands):
        if position in constants:
            values.append(b.constant(array, f"c{position}"))
        else:
            values.append(b.input(f"x{position}", type_of(array)))
            inputs.append(array)
    return Case(b.finish(b.node(op, values, attrs or {}, loc=op.name)), inputs)


def bits(array: Array) -> Array:
    """The integer view, in which all NaNs are one."""
    if array.dtype.kind != "f":
        return array
    words = np.ascontiguousarray(array).view(f"u{array.itemsize}").copy()
    words[np.isnan(array)] = NAN_BITS[array.itemsize]
    return words


def assert_same_bits(actual: Sequence[Array], expected: Sequence[Array], what: str) -> None:
    for number, (got, wanted) in enumerate(zip(actual, expected, strict=True)):
        assert got.dtype == wanted.dtype, what
        assert got.shape == wanted.shape, what
        differing = int(np.count_nonzero(bits(got) != bits(wanted)))
        assert differing == 0, f"{what}: output {number}: {differing} of {got.size} elements differ"


def compiled(case: Case, target: Target, num_threads: int = 1) -> CompiledModel:
    """The graph as code in this process; with several threads, every loop that may be split is."""
    program = lower_graph(case.graph, target)
    plan = plan_memory(program)
    inputs = tuple((value.name, value.type) for value in program.inputs)
    outputs = tuple((f"y{i}", value.type) for i, value in enumerate(program.outputs))
    signature = Signature(inputs, outputs)
    description = describe("case", signature, plan, target)
    text = emit_module(
        program, plan, signature, description, target, parallel_flops=0 if num_threads > 1 else None
    )
    code = compile_object(text, target)
    artifact = Artifact(target, signature, description, code, plan.weights, plan.weights_bytes, {})
    return load_artifact(artifact, num_threads)


def run_compiled(case: Case, target: Target, num_threads: int = 1) -> list[Array]:
    outputs = compiled(case, target, num_threads)(*case.inputs)
    return list(outputs) if isinstance(outputs, tuple) else [outputs]


def host_targets() -> dict[str, Target]:
    """The records that this machine runs, and its default at the vector widths of the other ones."""
    host = find_target(toolchain.host_target())
    found: dict[tuple[str, int], Target] = {}
    for record in map(find_target, TARGET_NAMES):
        target = record
        if find_obstacle(record) is not None:
            target = replace(host, vector_bits=min(record.vector_bits, host.vector_bits))
        found.setdefault((target.cpu, target.vector_bits), target)
    return {f"{cpu} at {bits} bits": target for (cpu, bits), target in found.items()}


def tilings() -> list[Target]:
    """One record for each vector width and number of registers that there is."""
    records = map(find_target, TARGET_NAMES)
    return list({(record.vector_bits, record.vector_registers): record for record in records}.values())


def judge(case: Case, *, ulp: int = 0) -> list[Array]:
    """Compares every way to run a graph, and returns the result.

    The interpreter and machine code must agree bit for bit, for the tiles and vectors of every target and at
    two threads. The operators' NumPy definitions must agree, too, up to `ulp` where they call functions that
    NumPy rounds in its own way.
    """
    first, *others = (lower_graph(case.graph, target) for target in tilings())
    expected = run_program(first, case.inputs)
    for program in others:
        assert_same_bits(run_program(program, case.inputs), expected, "interpreter, loops of another tiling")
    for name, target in host_targets().items():
        assert_same_bits(run_compiled(case, target), expected, f"machine code, {name}")
    host = find_target(toolchain.host_target())
    assert_same_bits(run_compiled(case, host, num_threads=2), expected, "machine code, two threads")
    _assert_close(run_graph(case.graph, case.inputs), expected, ulp)
    return expected


def _assert_close(definition: Sequence[Array], expected: Sequence[Array], ulp: int) -> None:
    if ulp == 0:
        assert_same_bits(definition, expected, "NumPy definition")
        return
    for wanted, got in zip(definition, expected, strict=True):
        np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted))
        ordinary = np.isfinite(wanted)
        np.testing.assert_array_equal(got[~ordinary], wanted[~ordinary])
        np.testing.assert_array_max_ulp(got[ordinary], wanted[ordinary], maxulp=ulp)
