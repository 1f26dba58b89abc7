"""The rules that every kernel keeps, checked after lowering and between schedules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn

from cuvil.errors import InternalError
from cuvil.ir.dims import corners, is_fixed, value_of
from cuvil.ir.types import INT64, shape_at
from cuvil.loops.kernel import Buffer, Const, Declare, Expr, For, Kernel, Let, Load, Op, Stmt, Store, Var
from cuvil.loops.ranges import Affine, affine_of
from cuvil.loops.rules import constant_fault, operation_fault
from cuvil.loops.traverse import postorder, roots, symbols_in


def verify_kernel(kernel: Kernel) -> None:
    """Checks that a kernel is well formed.

    Variables are bound once and read in scope, locals declared once and before their use; the operands and
    results of operations have the types that go together; indices are int64, one a dimension, and those
    that are affine in the loops' variables never leave the buffer; inputs are not stored to; only an
    outermost loop is parallel. What depends on named dimensions is checked at the ends of their bounds.

    Raises:
        InternalError: a rule is broken; the message names the kernel and the statement.
    """
    for symbols in corners(symbols_in(kernel).values()):
        _Verifier(kernel, symbols).verify()


class _Verifier:
    def __init__(self, kernel: Kernel, symbols: Mapping[str, int]) -> None:
        self._kernel = kernel
        self._symbols = symbols
        self._where = ""
        self._known_buffers: set[Buffer] = set()
        self._known_vars: set[Var] = set()
        self._scope: set[Var | Buffer] = set()
        self._affine: dict[Expr, Affine] = {}
        self._extents: dict[Var, int] = {}

    def verify(self) -> None:
        for param in self._kernel.params:
            self._where = f"parameter {param.name}"
            self._define_buffer(param)
            if param.role == "local":
                self._fail("a parameter can't be local", "input, output or scratch", "local")
        self._block(self._kernel.body, outermost=True)

    def _block(self, stmts: Sequence[Stmt], *, outermost: bool = False) -> None:
        outer = set(self._scope)
        for stmt in stmts:
            self._stmt(stmt, outermost)
        self._scope = outer

    def _stmt(self, stmt: Stmt, outermost: bool) -> None:
        self._where = _title(stmt)
        for expr in postorder(roots(stmt)):
            self._expr(expr)
        if isinstance(stmt, For):
            self._loop(stmt, outermost)
        elif isinstance(stmt, Let):
            self._let(stmt)
        elif isinstance(stmt, Store):
            self._store(stmt)
        else:
            self._declare(stmt)

    def _loop(self, loop: For, outermost: bool) -> None:
        if loop.parallel and not outermost:
            self._fail("an inner loop is parallel", "parallel on outermost loops only", "one inside another")
        extent = value_of(loop.extent, self._symbols)
        if extent < 0:
            self._fail("the trip count is negative", "0 or more", str(extent))
        if loop.var.dtype != INT64:
            self._fail("the loop's variable has another type", "i64", str(loop.var.dtype))
        outer = set(self._scope)
        self._define_var(loop.var)
        self._extents[loop.var] = extent
        self._affine[loop.var] = Affine({loop.var: 1}, 0)
        self._block(loop.body)
        self._scope = outer

    def _let(self, stmt: Let) -> None:
        if stmt.var.dtype != stmt.value.dtype:
            self._fail(
                "the variable has another type than its value", str(stmt.value.dtype), str(stmt.var.dtype)
            )
        self._define_var(stmt.var)
        affine = self._affine.get(stmt.value)
        if affine is not None:
            self._affine[stmt.var] = affine

    def _store(self, stmt: Store) -> None:
        self._element(stmt.buffer, stmt.index)
        if stmt.buffer.role == "input":
            self._fail("an input is stored to", "an output, scratch or local buffer", stmt.buffer.role)
        if stmt.value.dtype != stmt.buffer.dtype:
            self._fail("the value has another type", str(stmt.buffer.dtype), str(stmt.value.dtype))

    def _declare(self, stmt: Declare) -> None:
        if stmt.buffer.role != "local":
            self._fail("only locals are declared", "local", stmt.buffer.role)
        if not all(map(is_fixed, stmt.buffer.shape)):
            self._fail("a local depends on named dimensions", "fixed extents", str(list(stmt.buffer.shape)))
        self._define_buffer(stmt.buffer)

    def _define_buffer(self, buffer: Buffer) -> None:
        if buffer in self._known_buffers:
            self._fail("the buffer is defined twice", "one definition a buffer", "two")
        self._known_buffers.add(buffer)
        self._scope.add(buffer)

    def _define_var(self, var: Var) -> None:
        if var in self._known_vars:
            self._fail("the variable is bound twice", "one binding a variable", "two")
        self._known_vars.add(var)
        self._scope.add(var)

    def _expr(self, expr: Expr) -> None:
        if isinstance(expr, Var) and expr not in self._scope:
            self._fail(f"variable {expr.name} is not in scope", "a loop or a let around its use", "none")
        fault = None
        if isinstance(expr, Load):
            self._element(expr.buffer, expr.index)
        elif isinstance(expr, Const):
            fault = constant_fault(expr)
        elif isinstance(expr, Op):
            fault = operation_fault(expr)
        if fault:
            self._fail(*fault)
        affine = affine_of(expr, self._affine, self._symbols)
        if affine is not None:
            self._affine[expr] = affine

    def _element(self, buffer: Buffer, index: Sequence[Expr]) -> None:
        if buffer not in self._scope:
            self._fail(
                f"buffer {buffer.name} is not in scope", "a parameter or a local declared before", "none"
            )
        if len(index) != len(buffer.shape):
            self._fail(f"{buffer.name} has another rank", f"{len(buffer.shape)} indices", str(len(index)))
        shape = shape_at(buffer.shape, self._symbols)
        for axis, (position, extent) in enumerate(zip(index, shape, strict=True)):
            if position.dtype != INT64:
                self._fail(f"an index of {buffer.name} has another type", "i64", str(position.dtype))
            self._bounds(f"index {axis} of {buffer.name}", position, extent)

    def _bounds(self, what: str, position: Expr, extent: int) -> None:
        affine = self._affine.get(position)
        if affine is None or 0 in self._scope_extents():
            return
        lowest, highest = affine.bounds(self._extents)
        if lowest < 0 or highest >= extent:
            self._fail(f"{what} leaves its buffer", f"0 to {extent - 1}", f"{lowest} to {highest}")

    def _scope_extents(self) -> set[int]:
        """Trip counts of the loops around; code in a loop that never runs leaves no buffer."""
        return {extent for var, extent in self._extents.items() if var in self._scope}

    def _fail(self, rule: str, expected: str, got: str) -> NoReturn:
        raise InternalError(
            f"kernel {self._kernel.name}, {self._where}: {rule}; expected {expected}, got {got}"
        )


def _title(stmt: Stmt) -> str:
    """What a message calls a statement."""
    if isinstance(stmt, For):
        return f"loop {stmt.var.name}"
    if isinstance(stmt, Let):
        return f"let {stmt.var.name}"
    return f"store to {stmt.buffer.name}" if isinstance(stmt, Store) else f"local {stmt.buffer.name}"
