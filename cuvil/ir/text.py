"""The text form of graphs, `.cvir`: written for people, read back to the same graph.

```
graph "classifier" (%image: f32[1, 4]) {
  %weight: f32[4, 2] = constant [1.0, 0.5, -0.0, inf, nan, 1e-05, 2.0, 3.0]
  %scores: f32[1, 2] = matmul(%image, %weight) at "MatMul 'head'"
  %fused: f32[1, 2] = fused(%scores) {
    body = graph "epilogue" (%a: f32[1, 2]) {
      %relu: f32[1, 2] = relu(%a) at "Relu 'act'"
      return %relu
    }
  } at "Relu 'act'"
  return %fused as "scores"
}
```

Grammar; `//` begins a comment, and line breaks mean no more than spaces:

```
graph    = "graph" string [named] "(" [typed {"," typed}] ")" "{" {constant | node} "return" [outputs] "}"
named    = "[" word ":" integer "to" integer {"," word ":" integer "to" integer} "]"
typed    = value ":" type
type     = dtype "[" [extent {"," extent}] "]"         dtype = "f32" | "f64" | "i32" | "i64" | "bool"
value    = "%" (bare | string)                          bare = letters, digits and _ . $ - / inside
constant = typed "=" "constant" ("[" [element {"," element}] "]" | "sha256:" 64 hexadecimal digits)
node     = typed {"," typed} "=" operator "(" [value {"," value}] ")" [attrs] ["at" string]
attrs    = "{" [name "=" attr {"," name "=" attr}] "}"
attr     = integer | float | string | "true" | "false" | dtype | "dim" (word | string) | list | graph
list     = "[" [attr {"," attr}] "]"
outputs  = output {"," output}                          output = value ["as" string]
extent   = integer | word | string
string   = a JSON string
```

The elements of a constant stand in row-major order; `cuvil.ir.literal` says how numbers are written. A large
constant is written by the hash of its bytes alone, which identifies it in a dump but can't be read back. A
nested graph sees its own values only. A word that is an extent is a named dimension with the bounds that the
graph gives it; a string is an expression of them, as in `f32[batch, "2*seq + 1"]`. `at` is where in the
user's model a node comes from; without it, a node comes from its line of the text. `as` is an output's name
in the user's model; without it, its value's name.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NoReturn, TypeVar

import numpy as np

from cuvil.errors import InternalError, ModelError
from cuvil.ir.dims import IDENTIFIER, Dim, Extent, Symbol, is_fixed, parse_dim, symbols_of
from cuvil.ir.graph import Graph, Node, Value
from cuvil.ir.literal import NUMBER, format_element, is_integer, parse_element
from cuvil.ir.op import OpDef
from cuvil.ir.types import BY_SHORT_NAME, FLOAT64, Array, DType, TensorType

INLINE_ELEMENTS = 64
"""Constants with more elements are written by their hash."""

_BARE = r"/?[\w.$-]+(?:/[\w.$-]+)*"
_STRING = r'"(?:[^"\\\n]|\\.)*"'
_T = TypeVar("_T")


def format_graph(graph: Graph, *, inline_elements: int = INLINE_ELEMENTS) -> str:
    """The text of a graph; constants of up to `inline_elements` elements are written out."""
    return "\n".join(_graph_lines(graph, inline_elements)) + "\n"


def format_value(value: Value) -> str:
    """A value's name as the text form writes it: `%relu`."""
    return f"%{value.name if re.fullmatch(_BARE, value.name, re.ASCII) else _quote(value.name)}"


def format_node(node: Node, *, inline_elements: int = INLINE_ELEMENTS) -> str:
    """A node as one line, or several where an attribute is a graph."""
    results = ", ".join(map(_typed, node.results))
    operands = ", ".join(map(format_value, node.operands))
    attrs = _format_attrs(node, inline_elements)
    return f"{results} = {node.op.name}({operands}){attrs} at {_quote(node.loc)}"


def _graph_lines(graph: Graph, inline_elements: int) -> Iterator[str]:
    symbols = symbols_of(extent for value in graph.inputs for extent in value.type.shape)
    bounds = ", ".join(f"{name}: {symbol.minimum} to {symbol.maximum}" for name, symbol in symbols.items())
    named = f"[{bounds}] " if symbols else ""
    yield f"graph {_quote(graph.name)} {named}({', '.join(map(_typed, graph.inputs))}) {{"
    for value, array in graph.constants.items():
        yield f"  {_typed(value)} = constant {_contents(value, array, inline_elements)}"
    for node in graph.nodes:
        yield _indent(format_node(node, inline_elements=inline_elements))
    yield f"  return {', '.join(_outputs(graph))}".rstrip()
    yield "}"


def _outputs(graph: Graph) -> Iterator[str]:
    names = graph.output_names or tuple(value.name for value in graph.outputs)
    for value, name in zip(graph.outputs, names, strict=True):
        yield format_value(value) if name == value.name else f"{format_value(value)} as {_quote(name)}"


def _typed(value: Value) -> str:
    extents = ", ".join(map(_extent, value.type.shape))
    return f"{format_value(value)}: {value.type.dtype}[{extents}]"


def _extent(extent: Extent) -> str:
    text = str(extent)
    return text if is_fixed(extent) or IDENTIFIER.fullmatch(text) else _quote(text)


def _contents(value: Value, array: Array, inline_elements: int) -> str:
    if array.size > inline_elements:
        return f"sha256:{hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()}"
    return f"[{', '.join(format_element(element, value.type.dtype) for element in array.reshape(-1))}]"


def _format_attrs(node: Node, inline_elements: int) -> str:
    items = [f"{name} = {_format_attr(node, attr, inline_elements)}" for name, attr in node.attrs.items()]
    if any("\n" in item for item in items):
        return " {\n" + ",\n".join(map(_indent, items)) + "\n}"
    return f" {{{', '.join(items)}}}" if items else ""


def _format_attr(node: Node, attr: object, inline_elements: int) -> str:
    if isinstance(attr, bool):
        return "true" if attr else "false"
    if isinstance(attr, Dim):
        return f"dim {_quote(str(attr))}"
    if isinstance(attr, int | DType):
        return str(attr)
    if isinstance(attr, float):
        return format_element(attr, FLOAT64)
    if isinstance(attr, str):
        return _quote(attr)
    if isinstance(attr, tuple):
        return f"[{', '.join(_format_attr(node, item, inline_elements) for item in attr)}]"
    if isinstance(attr, Graph):
        return "\n".join(_graph_lines(attr, inline_elements))
    raise InternalError(f"{node.loc}: {node.op.name} has an attribute that has no text form: {attr!r}")


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _indent(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.split("\n"))


def parse_graph(text: str, operators: Mapping[str, OpDef], source: str = "<text>") -> Graph:
    """The graph that `text` writes.

    Names are resolved; whether types and operators fit each other is for `verify_graph` to say.

    Args:
        operators: the operators that nodes may name.
        source: where the text comes from, for messages and for nodes without a location.

    Raises:
        ModelError: the text breaks the grammar; the message begins with `source:line`.
    """
    parser = _Parser(list(_tokens(text, source)), operators, source)
    graph = parser.graph()
    parser.end()
    return graph


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    line: int

    def __str__(self) -> str:
        return repr(self.text) if self.text else "the end of the text"


_TOKEN = re.compile(
    rf"(?P<space>\s+|//[^\n]*)|(?P<value>%(?:{_BARE}|{_STRING}))|(?P<string>{_STRING})"
    rf"|(?P<hash>sha256:[0-9a-f]{{64}})|(?P<number>{NUMBER})(?![\w.])|(?P<word>[A-Za-z_][\w.]*)"
    r"|(?P<mark>[(){}\[\],:=])",
    re.ASCII,
)


def _tokens(text: str, source: str) -> Iterator[_Token]:
    position, line = 0, 1
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ModelError(
                f"{source}:{line}: no such symbol; expected a name or a number, got {text[position]!r}"
            )
        kind = match.lastgroup or ""
        if kind != "space":
            yield _Token(kind, match[0], line)
        line += match[0].count("\n")
        position = match.end()
    yield _Token("end", "", line)


class _Parser:
    """Recursive descent over the grammar above, one method a rule."""

    def __init__(self, tokens: list[_Token], operators: Mapping[str, OpDef], source: str) -> None:
        self._tokens = tokens
        self._position = 0
        self._operators = operators
        self._source = source
        self._symbols: dict[str, Symbol] = {}

    def graph(self) -> Graph:
        self._expect("graph")
        name = self._string("the graph's name")
        if self._next.text == "[":
            self._items("[", "]", self._dimension)
        scope: dict[str, Value] = {}
        inputs = tuple(self._items("(", ")", lambda: self._definition(scope)))
        self._expect("{")
        constants: dict[Value, Array] = {}
        nodes: list[Node] = []
        while not self._accept("return"):
            self._statement(scope, constants, nodes)
        outputs = self._until("}", lambda: self._output(scope))
        values = tuple(value for value, _ in outputs)
        return Graph(name, inputs, values, tuple(nodes), constants, tuple(name for _, name in outputs))

    def end(self) -> None:
        if self._next.kind != "end":
            self._fail("text after the graph", "the end of the text")

    def _dimension(self) -> None:
        name = self._take("word", "a dimension's name")
        self._expect(":")
        least = self._extent()
        self._expect("to")
        most = self._extent()
        if not 1 <= least <= most:
            self._fail("the bounds are wrong", "1 <= least <= most", name)
        self._symbols[name.text] = Symbol(name.text, least, most)

    def _statement(self, scope: dict[str, Value], constants: dict[Value, Array], nodes: list[Node]) -> None:
        line = self._next.line
        # A node can't read its own results, so they enter the scope after its operands have been resolved.
        defined: dict[str, Value] = {}
        results = [self._definition(defined, scope)]
        while self._accept(","):
            results.append(self._definition(defined, scope))
        self._expect("=")
        if self._accept("constant"):
            if len(results) > 1:
                self._fail("several values for one constant", "one value")
            constants[results[0]] = self._elements(results[0])
        else:
            nodes.append(self._node(tuple(results), scope, line))
        scope.update(defined)

    def _node(self, results: tuple[Value, ...], scope: Mapping[str, Value], line: int) -> Node:
        op = self._operator()
        operands = tuple(self._items("(", ")", lambda: self._use(scope)))
        attrs = self._attrs() if self._next.text == "{" else {}
        loc = self._string("a location") if self._accept("at") else f"{self._source}:{line}"
        return Node(op, operands, results, MappingProxyType(attrs), loc)

    def _operator(self) -> OpDef:
        token = self._take("word", "an operator")
        if token.text not in self._operators:
            self._fail(f"no operator {token.text!r}", "one that is registered", token)
        return self._operators[token.text]

    def _definition(self, scope: dict[str, Value], *outer: Mapping[str, Value]) -> Value:
        token = self._take("value", "a value")
        name = self._name(token)
        if any(name in names for names in (scope, *outer)):
            self._fail("a second definition", "a name that is not in use yet", token)
        self._expect(":")
        scope[name] = Value(name, self._type())
        return scope[name]

    def _use(self, scope: Mapping[str, Value]) -> Value:
        token = self._take("value", "a value")
        name = self._name(token)
        if name not in scope:
            self._fail("no such value", "one that is defined before its use", token)
        return scope[name]

    def _output(self, scope: Mapping[str, Value]) -> tuple[Value, str]:
        value = self._use(scope)
        return value, self._string("an output's name") if self._accept("as") else value.name

    def _type(self) -> TensorType:
        token = self._take("word", "an element type")
        if token.text not in BY_SHORT_NAME:
            self._fail("no such element type", "one of " + ", ".join(BY_SHORT_NAME), token)
        return TensorType(BY_SHORT_NAME[token.text], tuple(self._items("[", "]", self._extent)))

    def _extent(self) -> Extent:
        if self._next.kind in ("word", "string"):
            return self._expression()
        token = self._take("number", "an extent")
        if not token.text.isdecimal():
            self._fail("no extent", "an integer from 0 up", token)
        return int(token.text)

    def _expression(self) -> Extent:
        """An extent in terms of named dimensions."""
        token = self._advance()
        text = token.text if token.kind == "word" else self._unquote(token.text, token)
        try:
            return parse_dim(text, self._symbols)
        except ValueError as error:
            raise ModelError(f"{self._source}:{token.line}: not an extent; {error}") from None

    def _elements(self, value: Value) -> Array:
        if self._next.kind == "hash":
            what = f"the contents of {format_value(value)} are not in the text, only their hash"
            self._fail(what, f"{value.type.count} elements")
        line = self._next.line
        elements = list(self._items("[", "]", lambda: self._element(value.type.dtype)))
        if len(elements) != value.type.count:
            what = f"{format_value(value)} has the wrong number of elements"
            self._raise(line, what, f"{value.type.count} for {value.type}", str(len(elements)))
        array = np.empty(len(elements), value.type.dtype.numpy)
        for position, element in enumerate(elements):
            array[position] = element
        array.flags.writeable = False
        return array.reshape(value.type.shape)

    def _element(self, dtype: DType) -> np.generic:
        token = self._advance()
        try:
            return parse_element(token.text, dtype)
        except ValueError as error:
            raise ModelError(
                f"{self._source}:{token.line}: not an element of type {dtype}; {error}"
            ) from None

    def _attrs(self) -> dict[str, Any]:
        attrs: dict[str, Any] = {}
        self._items("{", "}", lambda: self._attr_entry(attrs))
        return attrs

    def _attr_entry(self, attrs: dict[str, Any]) -> None:
        token = self._take("word", "an attribute's name")
        if token.text in attrs:
            self._fail(f"attribute {token.text!r} stands twice", "one of each name", token)
        self._expect("=")
        attrs[token.text] = self._attr()

    def _attr(self) -> object:
        token = self._next
        if token.text == "graph":
            return self.graph()
        if token.text == "[":
            return tuple(self._items("[", "]", self._attr))
        if token.kind == "string":
            return self._string("a string")
        if token.text == "dim":
            self._advance()
            return self._expression()
        self._advance()
        if token.kind == "number":
            return int(token.text) if is_integer(token.text) else self._float(token)
        return self._word(token)

    def _float(self, token: _Token) -> float:
        try:
            return float(parse_element(token.text, FLOAT64))
        except ValueError as error:
            raise ModelError(f"{self._source}:{token.line}: not an attribute; {error}") from None

    def _word(self, token: _Token) -> object:
        words: dict[str, object] = {"true": True, "false": False, **BY_SHORT_NAME}
        if token.text not in words:
            self._fail("no such attribute value", "a number, string, word, list or graph", token)
        return words[token.text]

    def _name(self, token: _Token) -> str:
        return token.text[1:] if token.text[1] != '"' else self._unquote(token.text[1:], token)

    def _string(self, what: str) -> str:
        token = self._take("string", what)
        return self._unquote(token.text, token)

    def _unquote(self, text: str, token: _Token) -> str:
        try:
            return str(json.loads(text))
        except ValueError:
            self._fail("a damaged string", "a JSON string", token)

    def _items(self, opening: str, closing: str, item: Callable[[], _T]) -> list[_T]:
        self._expect(opening)
        return self._until(closing, item)

    def _until(self, closing: str, item: Callable[[], _T]) -> list[_T]:
        items: list[_T] = []
        while not self._accept(closing):
            if items:
                self._expect(",", closing)
            items.append(item())
        return items

    @property
    def _next(self) -> _Token:
        return self._tokens[self._position]

    def _advance(self) -> _Token:
        token = self._next
        self._position += token.kind != "end"
        return token

    def _accept(self, text: str) -> bool:
        found = self._next.text == text
        self._position += found
        return found

    def _expect(self, *texts: str) -> None:
        if not self._accept(texts[0]):
            self._fail("syntax error", " or ".join(map(repr, texts)))

    def _take(self, kind: str, what: str) -> _Token:
        if self._next.kind != kind:
            self._fail("syntax error", what)
        return self._advance()

    def _fail(self, what: str, expected: str, token: _Token | None = None) -> NoReturn:
        found = token or self._next
        self._raise(found.line, what, expected, str(found))

    def _raise(self, line: int, what: str, expected: str, got: str) -> NoReturn:
        raise ModelError(f"{self._source}:{line}: {what}; expected {expected}, got {got}")
