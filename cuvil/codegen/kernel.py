"""Kernels to LLVM functions.

A vector loop becomes chunks of the target's register width, then narrower ones down to a single lane, all
from the same expressions, so that body and remainder compute the same bits. Inside such a chunk every
value is either shared by its lanes (one scalar) or a vector; an index stays affine as long as it can, so
that neighbouring elements are loaded by one instruction and unrolled accesses have constant offsets.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from cuvil import exact
from cuvil.codegen.extents import ExtentEmitter
from cuvil.codegen.operations import emit_operation
from cuvil.codegen.values import Affine, Register, memory_type
from cuvil.codegen.writer import FunctionWriter, constant
from cuvil.ir.dims import Extent, is_fixed
from cuvil.ir.types import BOOL, FLOAT32, INT64
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
    walk,
)
from cuvil.targets.target import Target

_MAX_UNROLLED_CHUNKS = 4
_MAX_UNROLLED_LOCAL_CHUNKS = 16
_VECTOR_ALIGN_BYTES = 64
_NO_SYMBOLS: Mapping[str, int] = {}


@dataclass(frozen=True)
class Function:
    """A kernel as LLVM text: its body, to be given a name, and what it declares.

    `addresses` are its parameters before the range: the buffers, and the values of the named dimensions
    where it depends on any.
    """

    addresses: tuple[str, ...]
    body: str
    declarations: frozenset[str]

    @property
    def parameters(self) -> str:
        return "".join(f"ptr noalias {address}, " for address in self.addresses) + "i64 %begin, i64 %end"


def emit_kernel(kernel: Kernel, target: Target, positions: Mapping[str, int] = _NO_SYMBOLS) -> Function:
    """The function `(addresses..., begin, end)` that runs these iterations of the parallel loop.

    `positions` says where in the array of their values each named dimension lies.
    """
    emitter = _KernelEmitter(kernel, target.lanes(FLOAT32), positions)
    emitter.emit()
    return Function(
        (*(f"%p{i}" for i in range(len(kernel.params))), *["%symbols"] * emitter.extents.used),
        emitter.writer.body() + "\n  ret void",
        frozenset(emitter.writer.declarations),
    )


@dataclass(frozen=True)
class _Storage:
    """Where a buffer lies; `lanes` > 1 for a local that each lane has its own copy of."""

    address: str
    lanes: int = 1


class _KernelEmitter:
    def __init__(self, kernel: Kernel, width: int, positions: Mapping[str, int]) -> None:
        self.writer = FunctionWriter()
        self.extents = ExtentEmitter(positions, self.writer.assign_at_entry)
        self._kernel = kernel
        self._width = width
        self._lanes = 1
        self._storage = {buffer: _Storage(f"%p{i}") for i, buffer in enumerate(kernel.params)}
        self._indices: dict[str, Affine] = {}
        self._values: dict[str, Register] = {}
        self._memo: dict[int, Register] = {}

    def emit(self) -> None:
        loop = self._kernel.parallel_loop
        if loop is None:
            self._emit_block(self._kernel.body)
        else:
            self._emit_parallel(loop)

    # Statements

    def _emit_block(self, stmts: Iterable[Stmt]) -> None:
        for stmt in stmts:
            self._memo.clear()
            self._emit_stmt(stmt)

    def _emit_stmt(self, stmt: Stmt) -> None:
        match stmt:
            case Let(var, value):
                self._bind(var, value)
            case Declare(buffer):
                self._storage[buffer] = self._emit_slot(buffer)
            case Store(buffer, index, value):
                self._emit_store(buffer, index, self._value(value))
            case For():
                self._emit_for(stmt)

    def _bind(self, var: Var, value: Expr) -> None:
        """Integers stay affine where they are, so that later offsets fold."""
        affine = self._affine(value) if value.dtype == INT64 else None
        self._values.pop(var.name, None)
        self._indices.pop(var.name, None)
        if affine is not None:
            self._indices[var.name] = affine
        else:
            self._values[var.name] = self._value(value)

    def _emit_slot(self, buffer: Buffer) -> _Storage:
        count = max(1, math.prod(buffer.shape))
        address = self.writer.slot(memory_type(buffer.dtype, self._lanes), count, _VECTOR_ALIGN_BYTES)
        return _Storage(address, self._lanes)

    def _emit_for(self, loop: For) -> None:
        if loop.kind == "vector" and self._lanes == 1:
            self._emit_vector(loop)
        elif loop.kind == "unroll" or loop.extent == 1 or self._unrolls_inside(loop):
            for step in range(loop.extent):
                self._emit_iteration(loop, Affine(step), self._lanes)
        else:
            self._emit_counted(loop, constant(0, INT64), self._size(loop.extent), 1, self._lanes)

    def _size(self, extent: Extent) -> Register:
        return Register(self.extents.ref(extent), INT64)

    def _emit_counted(self, loop: For, start: Register, stop: Register, step: int, lanes: int) -> None:
        ramp = 1 if loop.kind == "vector" and lanes > self._lanes else 0
        self.writer.counted_loop(
            start,
            stop,
            step,
            lambda index: self._emit_iteration(loop, Affine(0, {index.ref: 1}, ramp), lanes),
        )

    def _emit_iteration(self, loop: For, index: Affine, lanes: int) -> None:
        outer, self._lanes = self._lanes, lanes
        self._indices[loop.var.name] = index
        self._emit_block(loop.body)
        self._lanes = outer

    def _emit_vector(self, loop: For) -> None:
        if not is_fixed(loop.extent):
            self._emit_vector_range(loop, constant(0, INT64), self._size(loop.extent))
            return
        full = loop.extent // self._width * self._width
        if self._unrolls(loop, full // self._width):
            for start in range(0, full, self._width):
                self._emit_chunk(loop, start, self._width)
        else:
            self._emit_counted(loop, constant(0, INT64), constant(full, INT64), self._width, self._width)
        start = full
        while start < loop.extent:
            lanes = 1 << (loop.extent - start).bit_length() - 1
            self._emit_chunk(loop, start, lanes)
            start += lanes

    def _emit_chunk(self, loop: For, start: int, lanes: int) -> None:
        self._emit_iteration(loop, Affine(start, {}, 1 if lanes > 1 else 0), lanes)

    def _unrolls(self, loop: For, chunks: int) -> bool:
        """Locals of the surrounding loops become registers only if every access has a constant offset."""
        if chunks <= _MAX_UNROLLED_CHUNKS:
            return True
        return chunks <= _MAX_UNROLLED_LOCAL_CHUNKS and _touches_outer_local(loop)

    def _unrolls_inside(self, loop: For) -> bool:
        """Inside a vector loop, another one runs lane by lane."""
        if loop.kind != "vector" or not is_fixed(loop.extent) or loop.extent > _MAX_UNROLLED_LOCAL_CHUNKS:
            return False
        return _touches_outer_local(loop)

    def _emit_parallel(self, loop: For) -> None:
        begin, end = Register("%begin", INT64), Register("%end", INT64)
        if loop.kind == "serial":
            self._emit_counted(loop, begin, end, 1, 1)
        else:
            self._emit_vector_range(loop, begin, end)

    def _emit_vector_range(self, loop: For, begin: Register, end: Register) -> None:
        """Whole vectors from `begin` on, and what is left before `end` one by one."""
        if self._width == 1:
            self._emit_counted(loop, begin, end, 1, 1)
            return
        length = self.writer.assign(INT64, 1, f"sub i64 {end.ref}, {begin.ref}")
        tail = self.writer.assign(INT64, 1, f"and i64 {length.ref}, {self._width - 1}")
        middle = self.writer.assign(INT64, 1, f"sub i64 {end.ref}, {tail.ref}")
        self._emit_counted(loop, begin, middle, self._width, self._width)
        self._emit_counted(loop, middle, end, 1, 1)

    # Values

    def _value(self, expr: Expr) -> Register:
        key = id(expr)
        if key not in self._memo:
            self._memo[key] = self._compute(expr)
        return self._memo[key]

    def _compute(self, expr: Expr) -> Register:
        affine = self._affine(expr) if expr.dtype == INT64 and not isinstance(expr, Load) else None
        if affine is not None:
            return self._materialize(affine)
        if id(expr) in self._memo:
            return self._memo[id(expr)]
        match expr:
            case Const(value, dtype):
                return constant(value, dtype)
            case Var(name):
                return self._values[name]
            case Load(buffer, index):
                return self._emit_load(buffer, index)
            case Op(opcode, args, dtype):
                return self._emit_op(opcode, args, expr)
        raise AssertionError(expr)

    def _emit_op(self, opcode: str, args: tuple[Expr, ...], expr: Expr) -> Register:
        registers = [self._value(arg) for arg in args]
        lanes = max(register.lanes for register in registers)
        operands = [self.writer.splat(register, lanes) for register in registers]
        return emit_operation(self.writer, opcode, operands, expr.dtype)

    def _affine(self, expr: Expr) -> Affine | None:
        """`expr` as an affine offset, or None where it differs between lanes in another way."""
        match expr:
            case Const(value):
                return Affine(int(value))
            case Size(extent):
                return Affine(0, {self.extents.ref(extent): 1})
            case Var(name) if name in self._indices:
                return self._indices[name]
            case Op("add" | "sub" | "mul" | "div" | "rem" as opcode, (left, right)):
                return self._combine(opcode, left, right, expr)
            case _:
                return self._opaque(expr)

    def _combine(self, opcode: str, left: Expr, right: Expr, expr: Expr) -> Affine | None:
        a, b = self._affine(left), self._affine(right)
        if a is None or b is None:
            return None
        if opcode in ("add", "sub"):
            return a.plus(b.times(1 if opcode == "add" else -1))
        if opcode == "mul" and (a.is_constant or b.is_constant):
            return a.times(b.constant) if b.is_constant else b.times(a.constant)
        if a.lane or b.lane:
            return None
        if a.is_constant and b.is_constant:
            divide = exact.divide if opcode == "div" else exact.remainder
            return Affine(int(divide(np.asarray(a.constant), np.asarray(b.constant))))
        operands = (self._materialize(a), self._materialize(b))
        return Affine(0, {emit_operation(self.writer, opcode, operands, INT64).ref: 1})

    def _opaque(self, expr: Expr) -> Affine | None:
        match expr:
            case Var(name):
                register = self._values[name]
            case Load(buffer, index):
                register = self._emit_load(buffer, index)
            case Op(opcode, args):
                register = self._emit_op(opcode, args, expr)
            case _:
                raise AssertionError(expr)
        self._memo[id(expr)] = register
        return Affine(0, {register.ref: 1}) if register.lanes == 1 else None

    def _materialize(self, affine: Affine) -> Register:
        total = self._sum(affine)
        if affine.constant or total is None:
            total = self._plus(total, constant(affine.constant, INT64))
        if not affine.lane:
            return total
        lanes = self._lanes
        steps = self.writer.lane_numbers(lanes)
        factor = self.writer.splat(constant(affine.lane, INT64), lanes)
        scaled = self.writer.assign(INT64, lanes, f"mul {steps}, {factor.ref}")
        return self.writer.assign(INT64, lanes, f"add {self.writer.splat(total, lanes)}, {scaled.ref}")

    def _sum(self, affine: Affine) -> Register | None:
        """The variable part of an offset that all lanes share."""
        total: Register | None = None
        for ref, coefficient in affine.terms.items():
            if coefficient:
                term = Register(ref, INT64)
                if coefficient != 1:
                    term = self.writer.assign(INT64, 1, f"mul i64 {ref}, {coefficient}")
                total = self._plus(total, term)
        return total

    def _plus(self, left: Register | None, right: Register) -> Register:
        if left is None:
            return right
        return self.writer.assign(INT64, 1, f"add {left}, {right.ref}")

    # Memory

    def _offset(self, buffer: Buffer, index: tuple[Expr, ...]) -> Affine | None:
        offset = Affine()
        for expr, stride in zip(index, buffer.strides, strict=True):
            part = self._affine(expr)
            scaled = self._scaled(part, stride) if part is not None else None
            if scaled is None:
                return None
            offset = offset.plus(scaled)
        return offset

    def _scaled(self, part: Affine, stride: Extent) -> Affine | None:
        """`part * stride`, term by term, so that constant steps stay apart; None where lanes lie apart by
        a stride that is not fixed.
        """
        if is_fixed(stride):
            return part.times(stride)
        if part.lane:
            return None
        size = self._size(stride)
        scaled = Affine(0, {size.ref: part.constant})
        for ref, coefficient in part.terms.items():
            if coefficient:
                term = self.writer.assign(INT64, 1, f"mul i64 {ref}, {size.ref}")
                scaled = scaled.plus(Affine(0, {term.ref: coefficient}))
        return scaled

    def _address(self, buffer: Buffer, offset: Affine) -> str:
        """The address at an offset; its constant part comes last, where instructions can absorb it."""
        storage = self._storage[buffer]
        element = memory_type(buffer.dtype, storage.lanes)
        address = storage.address
        variable = self._sum(offset)
        for part in (variable.ref if variable else "", str(offset.constant) if offset.constant else ""):
            if part:
                previous, address = address, self.writer.fresh("at")
                self.writer.line(f"{address} = getelementptr inbounds {element}, ptr {previous}, i64 {part}")
        return address

    def _lane_addresses(self, buffer: Buffer, index: tuple[Expr, ...]) -> list[str]:
        """One address a lane, for accesses that are not contiguous."""
        offset = self._offset(buffer, index)
        if offset is not None:
            lanes = range(self._lanes)
            return [
                self._address(buffer, Affine(offset.constant + offset.lane * i, offset.terms)) for i in lanes
            ]
        vector = self._flat_index(buffer, index)
        return [
            self._address(buffer, Affine(0, {self.writer.extract(vector, lane).ref: 1}))
            for lane in range(vector.lanes)
        ]

    def _flat_index(self, buffer: Buffer, index: tuple[Expr, ...]) -> Register:
        total = self.writer.splat(constant(0, INT64), self._lanes)
        for expr, stride in zip(index, buffer.strides, strict=True):
            part = self.writer.splat(self._value(expr), self._lanes)
            factor = self.writer.splat(self._size(stride), self._lanes)
            scaled = self.writer.assign(INT64, self._lanes, f"mul {part}, {factor.ref}")
            total = self.writer.assign(INT64, self._lanes, f"add {total}, {scaled.ref}")
        return total

    def _emit_load(self, buffer: Buffer, index: tuple[Expr, ...]) -> Register:
        offset = self._offset(buffer, index)
        lanes = self._storage[buffer].lanes
        if offset is not None and lanes == 1 and offset.lane in (0, 1):
            return self._load_from(buffer, self._address(buffer, offset), self._lanes if offset.lane else 1)
        if lanes > 1:
            assert offset is not None, f"{buffer.name}: private local with a computed index"
            assert offset.lane == 0, f"{buffer.name}: private local indexed by lane"
            return self._load_from(buffer, self._address(buffer, offset), lanes)
        addresses = self._lane_addresses(buffer, index)
        return self.writer.join([self._load_from(buffer, address, 1) for address in addresses])

    def _load_from(self, buffer: Buffer, address: str, lanes: int) -> Register:
        text = f"load {memory_type(buffer.dtype, lanes)}, ptr {address}, align {buffer.dtype.size_bytes}"
        if buffer.dtype != BOOL:
            return self.writer.assign(buffer.dtype, lanes, text)
        byte = self.writer.fresh("byte")
        self.writer.line(f"{byte} = {text}")
        zero = "0" if lanes == 1 else "zeroinitializer"
        return self.writer.assign(BOOL, lanes, f"icmp ne {memory_type(BOOL, lanes)} {byte}, {zero}")

    def _emit_store(self, buffer: Buffer, index: tuple[Expr, ...], value: Register) -> None:
        offset = self._offset(buffer, index)
        lanes = self._storage[buffer].lanes
        if lanes > 1 or self._lanes == 1:
            assert offset is not None
            self._store_to(buffer, self._address(buffer, offset), self.writer.splat(value, lanes))
        elif offset is not None and offset.lane == 1:
            address = self._address(buffer, offset)
            self._store_to(buffer, address, self.writer.splat(value, self._lanes))
        else:
            vector = self.writer.splat(value, self._lanes)
            for lane, address in enumerate(self._lane_addresses(buffer, index)):
                self._store_to(buffer, address, self.writer.extract(vector, lane))

    def _store_to(self, buffer: Buffer, address: str, value: Register) -> None:
        if buffer.dtype == BOOL:
            target = memory_type(BOOL, value.lanes)
            byte = self.writer.fresh("byte")
            self.writer.line(f"{byte} = zext {value} to {target}")
            self.writer.line(f"store {target} {byte}, ptr {address}, align 1")
        else:
            self.writer.line(f"store {value}, ptr {address}, align {buffer.dtype.size_bytes}")


def _touches_outer_local(loop: For) -> bool:
    stmts = tuple(walk(loop.body))
    own = {stmt.buffer for stmt in stmts if isinstance(stmt, Declare)}
    return any(
        isinstance(stmt, Store) and stmt.buffer.role == "local" and stmt.buffer not in own for stmt in stmts
    )
