"""Bisection names the stage that changes a result: a pass, the lowering, or machine code."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from cuvil import toolchain
from cuvil.bisection import Bisection, bisect, render
from cuvil.codegen import operations
from cuvil.driver import PASSES, Pass
from cuvil.errors import UsageError
from cuvil.frontends.onnx import load_onnx
from cuvil.ir.graph import Graph, GraphBuilder, Node, Value
from cuvil.ir.rewrite import Rewriter, rewrite
from cuvil.ir.types import FLOAT32, Array, type_of
from cuvil.loops.kernel import absolute
from cuvil.ops.elementwise import elementwise
from cuvil.targets.target import find_target
from tests.e2e.models import convolution, product
from tests.judging import random

HOST = toolchain.host_target()
X = random(0, 4, 9)


def graph_of_product() -> Graph:
    return load_onnx(product(4, 9, 5)).graph


def search(
    graph: Graph, inputs: Sequence[Array], passes: Sequence[Pass] = PASSES, rtol: float = 0.0
) -> Bisection:
    return bisect(graph, find_target(HOST), inputs, passes=passes, rtol=rtol)


def drop_activation(graph: Graph) -> Graph:
    """A faulty pass: every relu becomes its operand."""

    def replace(_: Rewriter, node: Node, operands: tuple[Value, ...]) -> Sequence[Value] | None:
        return operands if node.op.name == "relu" else None

    return rewrite(graph, replace)


def nudge_constants(graph: Graph) -> Graph:
    """A faulty pass: every constant grows by a millionth."""
    constants = {value: array * np.float32(1 + 1e-6) for value, array in graph.constants.items()}
    return Graph(graph.name, graph.inputs, graph.outputs, graph.nodes, constants, graph.output_names)


def forget_a_node(graph: Graph) -> Graph:
    """A faulty pass: what it makes is no graph."""
    return Graph(
        graph.name, graph.inputs, graph.outputs, graph.nodes[1:], graph.constants, graph.output_names
    )


def planted(faulty: Pass, place: int) -> tuple[Pass, ...]:
    return (*PASSES[:place], faulty, *PASSES[place:])


@pytest.mark.parametrize("model", ["product", "convolution"])
def test_no_stage_of_a_sound_compiler_is_named(model: str) -> None:
    if model == "product":
        found = search(graph_of_product(), [X])
    else:
        found = search(load_onnx(convolution(6, 3, 4)).graph, [random(1, 1, 3, 6, 6)])
    assert found.culprit is None
    stages = [step.stage for step in found.steps]
    assert stages[0] == "0.import"
    assert stages[1 : len(PASSES) + 1] == [f"{i}.{run.__name__}" for i, run in enumerate(PASSES, 1)]
    assert stages[-2:] == ["lower", "native"]
    assert "no stage changes the result by a bit" in render(found, 0.0)


def test_a_planted_faulty_pass_is_named_with_its_first_node() -> None:
    found = search(graph_of_product(), [X], planted(nudge_constants, 2))
    assert found.culprit is not None
    assert found.culprit.stage == "3.nudge_constants"
    assert found.culprit.what.startswith("output 'y' [")
    assert found.culprit.node.startswith("%z = matmul at Gemm 'fc': [")
    assert [step.stage for step in found.steps][-1] == "3.nudge_constants"
    assert "3.nudge_constants changes the result: output 'y' [" in render(found, 0.0)


def test_a_pass_that_drops_a_node_is_named() -> None:
    found = search(graph_of_product(), [X], planted(drop_activation, 0))
    assert found.culprit is not None
    assert found.culprit.stage == "1.drop_activation"
    assert found.culprit.node == "what it removes: %y = relu at Relu 'act'"


def test_a_tolerance_lets_small_changes_pass() -> None:
    found = search(graph_of_product(), [X], planted(nudge_constants, 2), rtol=1e-5)
    assert found.culprit is None
    nudged = next(step for step in found.steps if step.stage == "3.nudge_constants")
    assert nudged.differences["y"].differing > 0


def test_a_pass_that_fails_is_named_with_its_error() -> None:
    found = search(graph_of_product(), [X], planted(forget_a_node, 1))
    assert found.culprit is not None
    assert found.culprit.stage == "2.forget_a_node"
    assert found.culprit.what.startswith("it fails: InternalError: ")


def test_an_operator_whose_loops_mean_something_else_is_named() -> None:
    wrong = elementwise("wrong", 1, (FLOAT32,), np.abs, lambda x: absolute(x) + 1.0)
    b = GraphBuilder("g")
    x = b.input("x", type_of(X))
    doubled = b.one(wrong, [x], loc="the node", name="inner")
    found = search(b.finish([doubled], ["y"]), [X], passes=())
    assert found.culprit is not None
    assert found.culprit.stage == "lower"
    assert found.culprit.node.startswith("%inner = wrong at the node: ")


def test_wrong_machine_code_is_named_with_its_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(operations._FLOAT, "add", "fsub")
    found = search(graph_of_product(), [X], rtol=1e-5)
    assert found.culprit is not None
    assert found.culprit.stage == "native"
    assert found.culprit.node.startswith("kernel ")
    assert "at Gemm 'fc'; Relu 'act': " in found.culprit.node


def test_a_reference_from_outside_judges_the_import_too() -> None:
    graph = graph_of_product()
    wrong = [np.zeros((4, 5), np.float32) - 1]
    found = bisect(graph, find_target(HOST), [X], reference=wrong, rtol=1e-5)
    assert found.culprit is not None
    assert found.culprit.stage == "0.import"


def test_another_machines_code_is_not_run() -> None:
    foreign = "riscv64-linux" if HOST != "riscv64-linux" else "x86_64-linux"
    found = bisect(graph_of_product(), find_target(foreign), [X])
    assert [step.stage for step in found.steps][-1] == "lower"
    assert "not run" in render(found, 0.0)


def test_inputs_that_the_model_can_not_run_on() -> None:
    what = r"inputs: the model can't run on them: .*input 'x': expected \[4, 9\], got \[3, 9\]"
    with pytest.raises(UsageError, match=what):
        search(graph_of_product(), [random(0, 3, 9)])
