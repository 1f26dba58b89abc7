"""ONNX models to graphs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import PurePath
from typing import Any

import onnx
import onnx.checker
import onnx.numpy_helper

from cuvil.errors import CuvilError, LimitError, ModelError, UnsupportedError
from cuvil.frontends.onnx_file import Document, Source, one_line, read_document
from cuvil.frontends.onnx_inputs import Bounds, UserShape, dtype_of, input_types
from cuvil.ir.dims import highest
from cuvil.ir.graph import Graph, GraphBuilder, Value
from cuvil.ir.types import Array
from cuvil.ops.extents import fold_extents
from cuvil.ops.foreign import ForeignNode
from cuvil.ops.registry import onnx_importers

MAX_TENSOR_BYTES = 2**40
"""More than any machine holds; the sums of sizes and offsets stay far from the ends of their types."""

_FIX_DIMENSION = "fix a named dimension of its operands with `--shape`"
_STANDARD_DOMAINS = ("", "ai.onnx")
_FULL_CHECK = "if onnx.checker.check_model(model, full_check=True) finds no fault in it, please report this"
_FRAME = re.compile(r'File "(?P<path>[^"]+)", line (?P<line>\d+)')


@dataclass(frozen=True, eq=False)
class ImportedModel:
    """A model's graph, and what the records of a compilation say about the model."""

    graph: Graph
    opset: int
    sha256: str
    name: str


def load_onnx(
    source: Source,
    shapes: Mapping[str, UserShape] | None = None,
    dims: Mapping[str, Bounds] | None = None,
) -> ImportedModel:
    """Imports an ONNX model.

    Args:
        source: a path, the bytes of a file, or a model of the `onnx` package.
        shapes: shapes of inputs that the model leaves open, by name. A symbol that one of them fixes, or
            names anew, is so for all inputs.
        dims: the bounds of dimensions that stay open, by name.

    Raises:
        ModelError: the model is missing, damaged, or breaks a rule of ONNX.
        UnsupportedError: it uses an operator, an opset or an element type that is not compiled.
        UsageError: `shapes` names no input, or contradicts the model; `dims` names no open dimension.
    """
    document = read_document(source)
    _refuse_unsupported(document)
    graph = _GraphImport(document, shapes or {}, dims or {}).run()
    return ImportedModel(graph, document.opset, document.sha256, document.name)


def location(node: onnx.NodeProto, number: int) -> str:
    """How messages name a node: its type and name, and the line of Python that made it, if known."""
    name = f"{node.name!r}" if node.name else f"#{number}"
    return f"{_word(node.op_type)} {name}{_source_line(node)}"


def _word(text: str) -> str:
    """`text` as it is where it is a plain word, else quoted, so that it can't break up a message."""
    return text if text.isprintable() else repr(text)


def _source_line(node: onnx.NodeProto) -> str:
    """The innermost frame of the exporter's stack trace that is not PyTorch's own."""
    for entry in node.metadata_props:
        if entry.key == "pkg.torch.onnx.stack_trace":
            frames = [match for match in _FRAME.finditer(entry.value) if "/torch/" not in match["path"]]
            if frames:
                return f" ({PurePath(frames[-1]['path']).name}:{frames[-1]['line']})"
    return ""


def _refuse_unsupported(document: Document) -> None:
    """Names every operator that can't be imported, not just the first."""
    importers = onnx_importers()
    missing: dict[str, str] = {}
    for number, node in enumerate(document.proto.graph.node):
        standard = node.domain in _STANDARD_DOMAINS
        if not standard or node.op_type not in importers:
            name = _word(node.op_type if standard else f"{node.domain}:{node.op_type}")
            missing.setdefault(name, f"{name} ({location(node, number)})")
    if missing:
        what = "operator is" if len(missing) == 1 else "operators are"
        raise UnsupportedError(
            f"{document.where}: {len(missing)} {what} not supported (opset {document.opset}): "
            + ", ".join(missing.values())
        )


class _GraphImport:
    """Imports the nodes of one graph in order."""

    def __init__(
        self, document: Document, shapes: Mapping[str, UserShape], dims: Mapping[str, Bounds]
    ) -> None:
        self._document = document
        self._proto = document.proto.graph
        self._shapes = shapes
        self._dims = dims
        self._builder = GraphBuilder(document.name)
        self._values: dict[str, Value] = {}
        self._checker = onnx.checker.C.CheckerContext()
        self._checker.ir_version = document.proto.ir_version
        self._checker.opset_imports = {entry.domain: entry.version for entry in document.proto.opset_import}

    def run(self) -> Graph:
        self._refuse_sparse()
        stored = {tensor.name for tensor in self._proto.initializer}
        inputs = [value for value in self._proto.input if value.name not in stored]
        types = input_types(inputs, self._shapes, self._dims, self._document.where)
        for name, tensor_type in types.items():
            self._define(name, self._builder.input(name, tensor_type), "input")
        for tensor in self._proto.initializer:
            self._define(tensor.name, self._initializer(tensor), "initializer")
        for number, node in enumerate(self._proto.node):
            self._import_node(node, location(node, number))
        return self._builder.finish(self._outputs(), [output.name for output in self._proto.output])

    def _refuse_sparse(self) -> None:
        for sparse in self._proto.sparse_initializer:
            raise UnsupportedError(f"initializer {sparse.values.name!r}: sparse tensors are not supported")

    def _define(self, name: str, value: Value, where: str) -> None:
        if name in self._values:
            raise ModelError(f"{where}: name {name!r} is defined twice; expected distinct names")
        if highest(value.type.size_bytes) > MAX_TENSOR_BYTES:
            raise LimitError(
                f"{where}: tensor {name!r} is too large; expected at most {MAX_TENSOR_BYTES} bytes, "
                f"got {value.type}"
            )
        self._values[name] = value

    def _initializer(self, tensor: onnx.TensorProto) -> Value:
        return self._builder.constant(_array(tensor, f"initializer {tensor.name!r}"), tensor.name)

    def _outputs(self) -> list[Value]:
        names = [output.name for output in self._proto.output]
        if not names:
            raise ModelError(f"{self._document.where}: the graph has no outputs; expected at least one")
        for name in names:
            if name not in self._values:
                raise ModelError(f"output {name!r}: no node, input or initializer has this name")
            if names.count(name) > 1:
                raise ModelError(f"output {name!r}: name occurs twice; expected distinct output names")
        return [self._values[name] for name in names]

    def _import_node(self, node: onnx.NodeProto, loc: str) -> None:
        operands = tuple(self._operand(name, loc) for name in node.input)
        self._check_node(node, loc)
        foreign = ForeignNode(
            node.op_type,
            self._document.opset,
            operands,
            tuple(node.output),
            _attributes(node, loc),
            loc,
            self._builder,
        )
        for name, value in zip(node.output, self._run_importer(foreign), strict=False):
            if name:
                self._define(name, value, loc)

    def _operand(self, name: str, loc: str) -> Value | None:
        if not name:
            return None
        if name not in self._values:
            raise self._undefined(name, loc)
        return self._values[name]

    def _undefined(self, name: str, loc: str) -> ModelError:
        producers = {
            result: location(node, number)
            for number, node in enumerate(self._proto.node)
            for result in node.output
        }
        if name not in producers:
            return ModelError(
                f"{loc}: operand {name!r} is undefined; expected an input, initializer or result"
            )
        if self._has_cycle():
            return ModelError(f"{loc}: operand {name!r} is part of a cycle; expected a graph without cycles")
        return ModelError(
            f"{loc}: operand {name!r} comes from the later node {producers[name]}; "
            "expected nodes in topological order"
        )

    def _has_cycle(self) -> bool:
        dependencies = {result: set(node.input) for node in self._proto.node for result in node.output}
        try:
            TopologicalSorter(dependencies).prepare()
        except CycleError:
            return True
        return False

    def _check_node(self, node: onnx.NodeProto, loc: str) -> None:
        """Attributes and numbers of operands against ONNX's own definition of the operator."""
        try:
            onnx.checker.check_node(node, self._checker)
        except onnx.checker.ValidationError as error:
            what = str(error).split("\n==> Context")[0]
            raise ModelError(
                f"{loc}: is not valid in opset {self._document.opset}: {one_line(what)}"
            ) from None

    def _run_importer(self, foreign: ForeignNode) -> Sequence[Value]:
        try:
            folded = fold_extents(foreign)
            results = onnx_importers()[foreign.op_type](foreign) if folded is None else [folded]
        except (ModelError, LimitError) as error:
            kind: type[CuvilError] = type(error)
            if isinstance(error, ModelError) and _has_named_dimensions(foreign):
                # What does not fit in general may fit in the runs that the model is meant for.
                kind = UnsupportedError
            where = "" if str(error).startswith(foreign.loc) else f"{foreign.loc}: "
            hint = _FIX_DIMENSION if kind is not type(error) else None
            raise kind(f"{where}{error}", hint=error.hint or hint) from None
        except MemoryError as error:
            raise LimitError(f"{foreign.loc}: its result does not fit into memory: {error}") from None
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            # Python or NumPy met operands or attributes that the operator does not define.
            raise ModelError(
                f"{foreign.loc}: can't be imported: {type(error).__name__}: {one_line(error)}",
                hint=_FULL_CHECK,
            ) from error
        for name in foreign.result_names[len(results) :]:
            if name:
                raise foreign.unsupported(f"result {foreign.result_names.index(name)} ({name!r})")
        return results


def _has_named_dimensions(node: ForeignNode) -> bool:
    return any(operand is not None and not operand.type.is_fixed for operand in node.operands)


def _array(tensor: onnx.TensorProto, where: str) -> Array:
    dtype_of(tensor.data_type, where)
    try:
        array: Array = onnx.numpy_helper.to_array(tensor)
    except (TypeError, ValueError) as error:
        raise ModelError(f"{where}: is damaged: {one_line(error)}") from None
    return array


def _attributes(node: onnx.NodeProto, loc: str) -> dict[str, Any]:
    return {attribute.name: _attribute(attribute, loc) for attribute in node.attribute}


def _attribute(attribute: onnx.AttributeProto, loc: str) -> Any:
    value = onnx.helper.get_attribute_value(attribute)
    where = f"{loc}: attribute {attribute.name!r}"
    match attribute.type:
        case onnx.AttributeProto.STRING:
            return _decoded(value, where)
        case onnx.AttributeProto.STRINGS:
            return tuple(_decoded(text, where) for text in value)
        case onnx.AttributeProto.TENSOR:
            return _array(value, where)
        case onnx.AttributeProto.FLOAT | onnx.AttributeProto.INT:
            return value
        case onnx.AttributeProto.FLOATS | onnx.AttributeProto.INTS:
            return tuple(value)
    kind = onnx.AttributeProto.AttributeType.Name(attribute.type)
    raise UnsupportedError(f"{where} is of kind {kind}; expected numbers, strings or a tensor")


def _decoded(text: bytes, where: str) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise ModelError(f"{where} is damaged; expected UTF-8, got {text!r}") from None
