"""The graph verifier: every rule, broken once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from cuvil.errors import InternalError, ModelError
from cuvil.ir.graph import Graph, GraphBuilder, Value
from cuvil.ir.op import Attrs, OpDef
from cuvil.ir.types import FLOAT32, INT64, Array, TensorType
from cuvil.ir.verify import verify_graph

PAIR = TensorType(FLOAT32, (2,))


def _infer(types: Sequence[TensorType], _: Attrs) -> tuple[TensorType, ...]:
    if len(types) != 1:
        raise ModelError(f"one operand is needed; expected 1, got {len(types)}")
    return (types[0],)


def _evaluate(operands: Sequence[Array], _: Attrs) -> tuple[Array, ...]:
    return tuple(operands)


SAME = OpDef("same", _infer, _evaluate)


def _graph() -> Graph:
    """Two nodes in a row and a constant."""
    builder = GraphBuilder("net")
    x = builder.input("x", PAIR)
    c = builder.constant(np.ones(2, np.float32), "c")
    y = builder.one(SAME, [x], loc="here", name="y")
    return builder.finish([builder.one(SAME, [y], loc="there", name="z"), c])


def _with_node(graph: Graph, **changes: object) -> Graph:
    """The graph with its last node changed."""
    return replace(graph, nodes=(graph.nodes[0], replace(graph.nodes[1], **changes)))  # type: ignore[arg-type]


def _nested(graph: Graph) -> Graph:
    broken = replace(graph, nodes=())
    return _with_node(graph, attrs={"body": broken})


def _other_contents(graph: Graph) -> Graph:
    return replace(graph, constants={value: np.ones(3, np.float32) for value in graph.constants})


def _constant_input(graph: Graph) -> Graph:
    return replace(graph, inputs=(*graph.inputs, *graph.constants))


def _twin(graph: Graph) -> Graph:
    return _with_node(graph, results=(Value("y", PAIR),))


def _twice(graph: Graph) -> Graph:
    return _with_node(graph, results=graph.nodes[0].results)


def test_a_sound_graph_passes() -> None:
    verify_graph(_graph())


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda g: replace(g, nodes=g.nodes[::-1]), "there: same: operand %y is used before it is defined"),
        (
            lambda g: _with_node(g, operands=()),
            "there: same: operands do not fit the operator; one operand is needed",
        ),
        (
            lambda g: _with_node(g, results=(Value("z", TensorType(INT64, (2,))),)),
            "there: same: result types are not what the operator infers; expected f32[2], got %z: i64[2]",
        ),
        (
            lambda g: _with_node(g, results=()),
            "there: same: result types are not what the operator infers; expected f32[2], got none",
        ),
        (lambda g: _with_node(g, attrs={"axes": [1]}), "there: same: attribute 'axes' has a foreign type"),
        (lambda g: _with_node(g, attrs={"n": np.int64(1)}), "there: same: attribute 'n' has a foreign type"),
        (_twice, "there: same: %y is defined twice"),
        (_twin, "there: same: two values are named %y"),
        (
            _constant_input,
            "graph 'net': %c is defined twice; expected one definition a value, got a constant",
        ),
        (
            _other_contents,
            "graph 'net': constant %c has other contents than its type; expected f32[2], got float32[3]",
        ),
        (lambda g: replace(g, nodes=g.nodes[:1]), "graph 'net': output %z is not defined"),
        (lambda g: replace(g, output_names=("z",)), "graph 'net': outputs and their names differ in number"),
        (_nested, "graph 'net': output %z is not defined"),
    ],
)
def test_broken_rules_are_named(damage: Callable[[Graph], Graph], message: str) -> None:
    with pytest.raises(InternalError) as caught:
        verify_graph(damage(_graph()))
    assert str(caught.value).startswith(message)
