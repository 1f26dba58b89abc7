"""Runs kernels, and programs of them, by the meaning of their loops: the judge of all generated code.

Independent loops, that is vector and parallel ones, run many iterations at once: values are NumPy arrays
with one axis per enclosing independent loop. All other loops run one iteration at a time. Inner loops come
first among the axes, so that a value from outside an inner loop broadcasts over it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from cuvil import exact
from cuvil.ir.dims import symbols_of, value_of
from cuvil.ir.graph import Graph, Value
from cuvil.ir.op import attrs_at
from cuvil.ir.types import Array, shape_at, type_of
from cuvil.loops.kernel import (
    Buffer,
    Const,
    Declare,
    Expr,
    For,
    Kernel,
    Let,
    Load,
    Op,
    Size,
    Stmt,
    Store,
    Var,
)
from cuvil.plan import Program

Order = Literal["vectors", "ascending", "descending"]

_NO_SYMBOLS: Mapping[str, int] = {}

_POISON_WORD = 0x5A5A5A5A
"""What undefined integers hold; undefined floats hold NaN."""

_MOST_LANES = 1 << 14
"""Iterations that run at once: enough to hide Python's cost, few enough for values to stay in cache."""


def run_kernel(
    kernel: Kernel,
    buffers: Mapping[str, Array] | Sequence[Array],
    *,
    order: Order = "vectors",
    symbols: Mapping[str, int] = _NO_SYMBOLS,
) -> None:
    """Runs `kernel`, writing its outputs in place.

    A kernel that keeps its promises gives the same bits in every `order`, which tests rely on.

    Args:
        kernel: what to run.
        buffers: the parameters by name, or in the kernel's order. Scratch may be left out.
        order: `vectors` runs many iterations of independent loops at once; `ascending` runs all loops one
            iteration after the other, which is the definition; `descending` does, too, and runs
            independent loops backwards.
        symbols: the values of the named dimensions.

    Raises:
        ValueError: a buffer is missing or does not fit, an input is stored to, or several iterations of an
            independent loop store to one element (found in the order `vectors`).
        IndexError: an index leaves its buffer.
    """
    machine = _Machine(kernel.name, _bind(kernel, buffers, symbols), order, symbols)
    with np.errstate(all="ignore"):
        machine.run(kernel.body)


def run_program(program: Program, inputs: Sequence[Array], *, order: Order = "vectors") -> list[Array]:
    """Runs a program's kernels one after the other and returns its outputs.

    Args:
        program: what to run.
        inputs: the program's inputs, in order; C-contiguous.
        order: as for `run_kernel`.
    """
    memory = evaluate_program(program, inputs, order=order)
    return [view_of(program, memory, output) for output in program.outputs]


def view_of(program: Program, memory: Mapping[Value, Array], value: Value) -> Array:
    """A value of a program that ran, out of the memory that `evaluate_program` returned."""
    symbols = bind_symbols(program.inputs, [memory[each] for each in program.inputs])
    fixed = value.type.at(symbols)
    if not fixed.count:
        return np.empty(fixed.shape, fixed.dtype.numpy)
    return memory[program.root(value)].reshape(fixed.shape)


def evaluate_program(
    program: Program, inputs: Sequence[Array], *, order: Order = "vectors"
) -> dict[Value, Array]:
    """Runs a program as `run_program` does and returns the memory of every root value, each its own."""
    symbols = bind_symbols(program.inputs, inputs)
    memory: dict[Value, Array] = dict(program.constants)
    memory.update(zip(program.inputs, inputs, strict=True))
    for call in program.calls:
        roots = [program.root(operand) for operand in call.operands]
        for root in roots:
            if root not in memory:
                memory[root] = np.empty(shape_at(root.type.shape, symbols), root.type.dtype.numpy)
        pairs = zip(call.kernel.params, roots, strict=True)
        buffers = [memory[root].reshape(shape_at(param.shape, symbols)) for param, root in pairs]
        run_kernel(call.kernel, buffers, order=order, symbols=symbols)
    return memory


def run_graph(graph: Graph, inputs: Sequence[Array]) -> list[Array]:
    """Runs a graph by its operators' NumPy definitions.

    Args:
        inputs: arrays in the order of the graph's inputs.

    Returns:
        The outputs, in order.
    """
    values = evaluate_graph(graph, inputs)
    return [values[output] for output in graph.outputs]


def evaluate_graph(graph: Graph, inputs: Sequence[Array]) -> dict[Value, Array]:
    """Runs a graph as `run_graph` does and returns every value."""
    symbols = bind_symbols(graph.inputs, inputs)
    values: dict[Value, Array] = dict(graph.constants)
    values.update(zip(graph.inputs, inputs, strict=True))
    for node in graph.nodes:
        attrs = attrs_at(node.attrs, symbols)
        results = node.op.evaluate([values[operand] for operand in node.operands], attrs)
        for value, result in zip(node.results, results, strict=True):
            expected, got = value.type.at(symbols), type_of(result)
            if got != expected:
                raise TypeError(f"{node.loc}: {node.op.name}: expected {expected}, got {got}")
            values[value] = result
    return values


def bind_symbols(inputs: Sequence[Value], arrays: Sequence[Array]) -> dict[str, int]:
    """The values of the named dimensions in a run on `arrays`.

    Raises:
        ValueError: a shape is not one of the input's.
    """
    symbols: dict[str, int] = {}
    for value, array in zip(inputs, arrays, strict=True):
        for extent, size in zip(value.type.shape, array.shape, strict=False):
            if str(extent) in symbols_of([extent]):
                symbols.setdefault(str(extent), size)
    for value, array in zip(inputs, arrays, strict=True):
        expected = shape_at(value.type.shape, symbols)
        if array.shape != expected:
            raise ValueError(f"input {value.name!r}: expected {list(expected)}, got {list(array.shape)}")
    return symbols


@dataclass(frozen=True, eq=False)
class _Memory:
    """A buffer's elements; one that lives inside `depth` independent loops has their axes after its own."""

    array: Array
    depth: int = 0


def _bind(
    kernel: Kernel, buffers: Mapping[str, Array] | Sequence[Array], symbols: Mapping[str, int]
) -> dict[Buffer, _Memory]:
    given = buffers if isinstance(buffers, Mapping) else _by_name(kernel, buffers)
    unknown = set(given) - {param.name for param in kernel.params}
    if unknown:
        raise ValueError(f"kernel {kernel.name!r}: no such buffers {sorted(unknown)}")
    return {param: _Memory(_bind_one(kernel, param, given, symbols)) for param in kernel.params}


def _by_name(kernel: Kernel, arrays: Sequence[Array]) -> dict[str, Array]:
    params = kernel.params
    if len(arrays) != len(params):
        params = tuple(param for param in params if param.role != "scratch")
    if len(arrays) != len(params):
        raise ValueError(f"kernel {kernel.name!r}: expected {len(params)} buffers, got {len(arrays)}")
    return {param.name: array for param, array in zip(params, arrays, strict=True)}


def _bind_one(kernel: Kernel, param: Buffer, given: Mapping[str, Array], symbols: Mapping[str, int]) -> Array:
    shape = shape_at(param.shape, symbols)
    if param.name not in given and param.role == "scratch":
        return _undefined(param, shape)
    if param.name not in given:
        raise ValueError(f"kernel {kernel.name!r}: buffer {param.name!r} is missing")
    array = given[param.name]
    if array.dtype != param.dtype.numpy or array.shape != shape:
        expected, got = f"{param.dtype}{list(shape)}", f"{array.dtype}{list(array.shape)}"
        raise ValueError(f"kernel {kernel.name!r}: buffer {param.name!r}: expected {expected}, got {got}")
    view = array.view()
    view.flags.writeable = array.flags.writeable and param.role != "input"
    return view


def _undefined(buffer: Buffer, shape: tuple[int, ...]) -> Array:
    value = np.nan if buffer.dtype.kind == "float" else _POISON_WORD
    return np.full(shape, value, buffer.dtype.numpy)


_Memo = dict[int, Array]
"""The values of one statement's expressions by their `id`: shared ones are evaluated once."""


class _Machine:
    """The state of one run."""

    def __init__(
        self, name: str, memory: dict[Buffer, _Memory], order: Order, symbols: Mapping[str, int]
    ) -> None:
        self._name = name
        self._symbols = symbols
        self._memory = memory
        self._order = order
        self._values: dict[str, Array] = {}
        self._lanes: list[Array] = []
        """The positions along each axis, outermost loop first."""

    def run(self, body: Iterable[Stmt]) -> None:
        for stmt in body:
            match stmt:
                case Let():
                    self._values[stmt.var.name] = self._evaluate(stmt.value, {})
                case Declare():
                    shape = stmt.buffer.shape + self._batch
                    memory = _Memory(_undefined(stmt.buffer, shape), len(self._lanes))
                    self._memory[stmt.buffer] = memory
                case Store():
                    self._store(stmt, {})
                case For():
                    self._loop(stmt)

    @property
    def _batch(self) -> tuple[int, ...]:
        """Extents of the axes, as arrays have them: innermost loop first."""
        return tuple(len(lane) for lane in reversed(self._lanes))

    def _loop(self, loop: For) -> None:
        independent = loop.parallel or loop.kind == "vector"
        if independent and self._order == "vectors":
            self._run_lanes(loop)
            return
        indices = range(value_of(loop.extent, self._symbols))
        for index in reversed(indices) if independent and self._order == "descending" else indices:
            self._values[loop.var.name] = np.int64(index)  # type: ignore[assignment]  # a 0-d array in effect
            self.run(loop.body)

    def _run_lanes(self, loop: For) -> None:
        most = max(1, _MOST_LANES // math.prod(self._batch))
        extent = value_of(loop.extent, self._symbols)
        for start in range(0, extent, most):
            count = min(most, extent - start)
            lane = np.arange(count, dtype=np.int64).reshape((-1,) + (1,) * len(self._lanes))
            self._values[loop.var.name] = lane + start
            self._lanes.append(lane)
            self.run(loop.body)
            self._lanes.pop()

    def _evaluate(self, expr: Expr, memo: _Memo) -> Array:
        key = id(expr)
        if key not in memo:
            memo[key] = self._compute(expr, memo)
        return memo[key]

    def _compute(self, expr: Expr, memo: _Memo) -> Array:
        match expr:
            case Var():
                return self._values[expr.name]
            case Load():
                return self._load(expr, memo)
            case Op():
                return self._operate(expr, memo)
            case Const():
                constant: Array = expr.dtype.numpy.type(expr.value)
                return constant
            case Size():
                return np.int64(value_of(expr.extent, self._symbols))  # type: ignore[return-value]  # 0-d
        raise TypeError(f"kernel {self._name!r}: not an expression: {expr!r}")

    def _operate(self, op: Op, memo: _Memo) -> Array:
        args = [self._evaluate(arg, memo) for arg in op.args]
        result = _apply(op, args)
        if result.dtype != op.dtype.numpy:
            got = f"{result.dtype} from {[str(arg.dtype) for arg in args]}"
            raise TypeError(f"kernel {self._name!r}: {op.opcode}: expected {op.dtype}, got {got}")
        return result

    def _load(self, load: Load, memo: _Memo) -> Array:
        memory = self._memory[load.buffer]
        place = self._place(memory, self._index(load.buffer, load.index, memo))
        value: Array = memory.array[place]
        return value.copy() if memory.depth else value  # where it is a view, later stores would change it

    def _store(self, store: Store, memo: _Memo) -> None:
        memory = self._memory[store.buffer]
        value = self._evaluate(store.value, memo)
        if value.dtype != memory.array.dtype:
            raise TypeError(f"kernel {self._name!r}: {value.dtype} stored to {store.buffer.name!r}")
        index = self._index(store.buffer, store.index, memo)
        if memory.depth < len(self._lanes):
            self._check_distinct(store.buffer, memory, index)
        memory.array[(*self._place(memory, index), ...)] = value

    def _index(self, buffer: Buffer, index: tuple[Expr, ...], memo: _Memo) -> list[Array]:
        values = [self._evaluate(i, memo) for i in index]
        shape = shape_at(buffer.shape, self._symbols)
        for axis, (value, extent) in enumerate(zip(values, shape, strict=True)):
            low, high = (value, value) if value.ndim == 0 else (value.min(), value.max())
            if low < 0 or high >= extent:
                got = low if low < 0 else high
                raise IndexError(
                    f"kernel {self._name!r}: index {axis} leaves buffer {buffer.name!r}; "
                    f"expected 0 <= index < {extent}, got {got}"
                )
        return values

    def _place(self, memory: _Memory, index: list[Array]) -> tuple[Any, ...]:
        """What to subscript the array with; numbers alone select the elements of all lanes at once."""
        if all(i.ndim == 0 for i in index):
            return tuple(index)
        return (*index, *self._own_lanes(memory))

    def _own_lanes(self, memory: _Memory) -> tuple[Array, ...]:
        return tuple(reversed(self._lanes[: memory.depth]))

    def _check_distinct(self, buffer: Buffer, memory: _Memory, index: list[Array]) -> None:
        parts = [*index, *self._own_lanes(memory)]
        flat: Array = np.zeros((), np.int64)
        for part, extent in zip(parts, memory.array.shape, strict=True):
            flat = flat * extent + part
        flat = np.broadcast_to(flat, self._batch).ravel()
        if not np.all(np.diff(flat) > 0) and np.unique(flat).size < flat.size:
            raise ValueError(
                f"kernel {self._name!r}: independent iterations store to one element of {buffer.name!r}"
            )


def _apply(op: Op, args: list[Array]) -> Array:
    match op.opcode:
        case "fma":
            return exact.fma(*args)
        case "select":
            return exact.select(*args)
        case "bitcast":
            return exact.bitcast(args[0], op.dtype.numpy)
        case "cast":
            return exact.cast(args[0], op.dtype.numpy)
    if op.opcode in exact.UNARY:
        return exact.UNARY[op.opcode](*args)
    return exact.BINARY[op.opcode](*args)
