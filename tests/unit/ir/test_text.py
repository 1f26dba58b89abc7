"""The text form: what is written is read back to the same graph, and faults are named by line."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuvil.errors import InternalError, ModelError
from cuvil.ir.graph import Graph, GraphBuilder
from cuvil.ir.op import Attrs, OpDef
from cuvil.ir.text import format_graph, parse_graph
from cuvil.ir.types import DTYPES, FLOAT32, Array, DType, TensorType


def _infer(_: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    return tuple(
        TensorType(dtype, shape) for dtype, shape in zip(attrs["dtypes"], attrs["shapes"], strict=True)
    )


def _evaluate(operands: Sequence[Array], _: Attrs) -> tuple[Array, ...]:
    return tuple(operands)


ANY = OpDef("any.thing", _infer, _evaluate)
SAME = OpDef("same", lambda types, _: (types[0],), _evaluate)
OPERATORS = {op.name: op for op in (ANY, SAME)}
SCALAR = TensorType(FLOAT32, ())


def _tree(item: object) -> object:
    """Everything that a graph says, comparable with `==`."""
    if isinstance(item, Graph):
        constants = [(v.name, v.type, array.tobytes()) for v, array in item.constants.items()]
        nodes = [
            (
                n.op,
                [v.name for v in n.operands],
                [(v.name, v.type) for v in n.results],
                _tree(dict(n.attrs)),
                n.loc,
            )
            for n in item.nodes
        ]
        inputs = [(v.name, v.type) for v in item.inputs]
        return item.name, inputs, constants, nodes, [v.name for v in item.outputs], item.output_names
    if isinstance(item, dict):
        return [(key, _tree(value)) for key, value in item.items()]
    if isinstance(item, tuple):
        return tuple(map(_tree, item))
    return struct.pack("d", item) if isinstance(item, float) else (type(item), item)


_shapes = st.lists(st.integers(0, 3), max_size=3).map(tuple)
_types = st.builds(TensorType, st.sampled_from(DTYPES), _shapes)
_numbers = st.one_of(st.booleans(), st.integers(), st.floats(), st.text(), st.sampled_from(DTYPES))
_attr_names = st.from_regex(r"[a-z_]{2,6}", fullmatch=True).filter(
    lambda n: n not in ("inf", "nan", "shapes")
)


@st.composite
def _arrays(draw: st.DrawFn) -> Array:
    dtype: DType = draw(st.sampled_from(DTYPES))
    shape = draw(_shapes)
    size_bytes = int(np.prod(shape)) * dtype.size_bytes
    raw = draw(st.binary(min_size=size_bytes, max_size=size_bytes))
    array = np.frombuffer(raw, dtype.numpy if dtype.kind != "bool" else "u1").reshape(shape)
    return array if dtype.kind != "bool" else array & 1 == 1


@st.composite
def _graphs(draw: st.DrawFn, depth: int = 2) -> Graph:
    builder = GraphBuilder(draw(st.text()))
    values = [builder.input(draw(st.text(min_size=1)), t) for t in draw(st.lists(_types, max_size=2))]
    values += [
        builder.constant(array, draw(st.text(min_size=1))) for array in draw(st.lists(_arrays(), max_size=3))
    ]
    for results in draw(st.lists(st.lists(_types, max_size=2), max_size=3)):
        attr: st.SearchStrategy[object] = _numbers | st.lists(_numbers, max_size=3).map(tuple)
        attrs = draw(st.dictionaries(_attr_names, attr | _graphs(depth - 1) if depth else attr, max_size=3))
        attrs |= {"dtypes": tuple(t.dtype for t in results), "shapes": tuple(t.shape for t in results)}
        operands = draw(st.lists(st.sampled_from(values), max_size=3)) if values else []
        values += builder.node(ANY, operands, attrs, loc=draw(st.text()))
    outputs = draw(st.lists(st.sampled_from(values), max_size=3)) if values else []
    return builder.finish(outputs, [draw(st.text()) for _ in outputs])


@given(_graphs())
def test_text_reads_back_to_the_same_graph(graph: Graph) -> None:
    text = format_graph(graph)
    again = parse_graph(text, OPERATORS)
    assert _tree(again) == _tree(graph)
    assert format_graph(again) == text


def test_layout_of_the_text() -> None:
    builder = GraphBuilder("net")
    x = builder.input("x/in", TensorType(FLOAT32, (2,)))
    c = builder.constant(np.array([0.1, -0.0], np.float32), "odd name")
    y = builder.one(SAME, [x, c], {"axis": 1, "scale": 2.0}, loc="Same 'a'")
    assert format_graph(builder.finish([y], ["out"])) == (
        'graph "net" (%x/in: f32[2]) {\n'
        '  %"odd name": f32[2] = constant [0.1, -0.0]\n'
        '  %same: f32[2] = same(%x/in, %"odd name") {axis = 1, scale = 2.0} at "Same \'a\'"\n'
        '  return %same as "out"\n'
        "}\n"
    )


def test_a_large_constant_is_written_by_its_hash_and_not_read_back() -> None:
    builder = GraphBuilder("net")
    c = builder.constant(np.zeros(65, np.float32), "w")
    text = format_graph(builder.finish([c]))
    assert "%w: f32[65] = constant sha256:" in text
    with pytest.raises(
        ModelError, match=r"^net.cvir:2: the contents of %w are not in the text, only their hash;"
    ):
        parse_graph(text, OPERATORS, "net.cvir")
    whole = format_graph(builder.finish([c]), inline_elements=65)
    assert _tree(parse_graph(whole, OPERATORS)) == _tree(builder.finish([c]))


def test_a_node_without_location_comes_from_its_line() -> None:
    graph = parse_graph(
        'graph "g" (%x: f32[]) {\n  %y: f32[] = same(%x)\n  return %y\n}', OPERATORS, "g.cvir"
    )
    assert [node.loc for node in graph.nodes] == ["g.cvir:2"]


def test_an_attribute_without_text_form_is_an_internal_error() -> None:
    builder = GraphBuilder("g")
    y = builder.one(SAME, [builder.input("x", SCALAR)], {"axes": [1]}, loc="here")
    with pytest.raises(InternalError, match=r"^here: same has an attribute"):
        format_graph(builder.finish([y]))


@pytest.mark.parametrize(
    ("body", "line", "message"),
    [
        (
            "%y: f32[] = nop(%x)\nreturn %y }",
            2,
            "no operator 'nop'; expected one that is registered, got 'nop'",
        ),
        (
            "%y: f32[] = same(%z)\nreturn %y }",
            2,
            "no such value; expected one that is defined before its use, got '%z'",
        ),
        (
            "%y: f32[] = same(%y)\nreturn %y }",
            2,
            "no such value; expected one that is defined before its use, got '%y'",
        ),
        (
            "%x: f32[] = same(%x)\nreturn %x }",
            2,
            "a second definition; expected a name that is not in use yet, got '%x'",
        ),
        (
            "%y: f31[] = same(%x)",
            2,
            "no such element type; expected one of f32, f64, i32, i64, bool, got 'f31'",
        ),
        ("%y: f32[-1] = same(%x)", 2, "no extent; expected an integer from 0 up, got '-1'"),
        (
            "%y: f32[] = same(%x) {a = 1,\n a = 2}",
            3,
            "attribute 'a' stands twice; expected one of each name, got 'a'",
        ),
        (
            "%y: f32[] = same(%x) {a = }",
            2,
            "no such attribute value; expected a number, string, word, list or graph",
        ),
        (
            "%y: f32[] = same(%x) {a = nan:0}",
            2,
            "not an attribute; expected the bits of a NaN, such as nan:7ff8",
        ),
        (
            "%c: f32[2] = constant [1.0]",
            2,
            "%c has the wrong number of elements; expected 2 for f32[2], got 1",
        ),
        ("%c: f32[1] = constant [1]", 2, "not an element of type f32; expected a float, got '1'"),
        (
            "%c: f32[1] = constant [1e39]",
            2,
            "not an element of type f32; expected a finite float32, got '1e39'",
        ),
        (
            "%c: i32[1] = constant [2147483648]",
            2,
            "not an element of type i32; expected -2147483648 to 2147483647",
        ),
        ("%c: i32[1] = constant [1.0]", 2, "not an element of type i32; expected an integer, got '1.0'"),
        ("%c: bool[1] = constant [1]", 2, "not an element of type bool; expected true or false, got '1'"),
        ("%c: i32[2] = constant [1 2]", 2, "syntax error; expected ',' or ']', got '2'"),
        ("%c: i32[], %d: i32[] = constant [1]", 2, "several values for one constant; expected one value"),
        ('return %x as "\\u12" }', 2, "a damaged string; expected a JSON string"),
        ("return %x }\n}", 3, "text after the graph; expected the end of the text, got '}'"),
        ("return %x\n", 3, "syntax error; expected ',' or '}', got the end of the text"),
        ("§", 2, "no such symbol; expected a name or a number, got '§'"),
    ],
)
def test_faults_name_their_line(body: str, line: int, message: str) -> None:
    with pytest.raises(ModelError) as caught:
        parse_graph(f'graph "g" (%x: f32[]) {{\n{body}', OPERATORS, "g.cvir")
    assert str(caught.value).startswith(f"g.cvir:{line}: {message}")


@pytest.mark.parametrize(
    ("text", "bits"),
    [
        ("0x1.8p+1", 0x40400000),
        ("nan", 0x7FC00000),
        ("nan:ff800001", 0xFF800001),
        ("-0.0", 0x80000000),
        ("1e-45", 1),
    ],
)
def test_float_literals(text: str, bits: int) -> None:
    graph = parse_graph(f'graph "g" () {{ %c: f32[] = constant [{text}] return %c }}', OPERATORS)
    (array,) = graph.constants.values()
    assert int(array.view(np.uint32)) == bits
