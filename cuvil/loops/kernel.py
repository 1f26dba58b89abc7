"""Kernels: loop nests over buffers, with scalar expressions as their values.

The meaning of a kernel is the meaning of its loops run one after the other in ascending order. The kind
of a loop and the `parallel` flag are promises that its iterations are independent; they let the code
generator use vectors and threads, and never change a result.

Every floating-point operation rounds once, to nearest even. Integer arithmetic wraps. An index that
leaves its buffer is an error of whoever built the kernel: the interpreter raises, generated code does
not check.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from cuvil.ir.dims import Dim, Extent
from cuvil.ir.types import BOOL, INT64, DType, Shape

BufferRole = Literal["input", "output", "scratch", "local"]
LoopKind = Literal["serial", "vector", "unroll"]

Opcode = Literal[
    "add", "sub", "mul", "div", "rem", "fma", "neg", "abs", "sqrt",
    "eq", "ne", "lt", "le", "gt", "ge",
    "and", "or", "xor", "not", "shl", "shr",
    "select", "bitcast", "cast",
]  # fmt: skip
"""What an `Op` computes.

`div` and `rem` on integers are defined where the hardware is not: division by zero gives 0, the remainder
by zero the dividend, and MIN / -1 gives MIN (remainder 0); both truncate towards zero. Comparisons with
NaN are false, except `ne`. `shr` is arithmetic. `cast` follows the numerics contract: float to integer
saturates and NaN gives 0; everything else rounds to nearest even. `bitcast` keeps the bits.
"""

COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})


@dataclass(frozen=True, eq=False)
class Buffer:
    """Memory that a kernel reads or writes: row-major, dense.

    `local` buffers live in registers or on the stack, and one that is declared inside a vector loop is
    private to each of its iterations. All others are parameters of the kernel, in order.
    """

    name: str
    dtype: DType
    shape: Shape
    role: BufferRole

    @property
    def strides(self) -> tuple[Extent, ...]:
        """Row-major strides, in elements."""
        strides: list[Extent] = []
        step: Extent = 1
        for extent in reversed(self.shape):
            strides.append(step)
            step *= extent
        return tuple(reversed(strides))


class Expr:
    """A scalar value; the arithmetic operators build `Op` expressions."""

    dtype: DType
    __slots__ = ()

    def __add__(self, other: Operand) -> Expr:
        return binary("add", self, other)

    def __radd__(self, other: Operand) -> Expr:
        return binary("add", other, self)

    def __sub__(self, other: Operand) -> Expr:
        return binary("sub", self, other)

    def __rsub__(self, other: Operand) -> Expr:
        return binary("sub", other, self)

    def __mul__(self, other: Operand) -> Expr:
        return binary("mul", self, other)

    def __rmul__(self, other: Operand) -> Expr:
        return binary("mul", other, self)

    def __truediv__(self, other: Operand) -> Expr:
        return binary("div", self, other)

    def __rtruediv__(self, other: Operand) -> Expr:
        return binary("div", other, self)

    def __floordiv__(self, other: Operand) -> Expr:
        return binary("div", self, other)

    def __mod__(self, other: Operand) -> Expr:
        return binary("rem", self, other)

    def __neg__(self) -> Expr:
        return Op("neg", (self,), self.dtype)


Operand = Expr | int | float | bool


@dataclass(frozen=True, eq=False, slots=True)
class Const(Expr):
    """A constant; `value` is exactly representable in `dtype`, or NaN or an infinity."""

    value: int | float | bool
    dtype: DType


@dataclass(frozen=True, eq=False, slots=True)
class Size(Expr):
    """An int64 that depends on named dimensions: the same number all through a run."""

    extent: Dim

    @property
    def dtype(self) -> DType:  # type: ignore[override]  # always the same, where the others store it
        return INT64


@dataclass(frozen=True, eq=False, slots=True)
class Var(Expr):
    """A loop index (int64) or the value of a `Let`."""

    name: str
    dtype: DType = INT64


@dataclass(frozen=True, eq=False, slots=True)
class Load(Expr):
    """One element of a buffer."""

    buffer: Buffer
    index: tuple[Expr, ...]

    @property
    def dtype(self) -> DType:  # type: ignore[override]  # derived, where the others store it
        return self.buffer.dtype


@dataclass(frozen=True, eq=False, slots=True)
class Op(Expr):
    """A primitive operation on scalars."""

    opcode: Opcode
    args: tuple[Expr, ...]
    dtype: DType


@dataclass(frozen=True, eq=False)
class Let:
    """Names a value for the statements after it in the same block."""

    var: Var
    value: Expr


@dataclass(frozen=True, eq=False)
class Declare:
    """Brings a local buffer into being; its elements are undefined until stored."""

    buffer: Buffer


@dataclass(frozen=True, eq=False)
class Store:
    buffer: Buffer
    index: tuple[Expr, ...]
    value: Expr


@dataclass(frozen=True, eq=False)
class For:
    """Runs `body` for `var` = 0, 1, ..., extent - 1.

    `vector` promises independent iterations and asks for vector code, `unroll` asks for one copy of the
    body per iteration. `parallel` promises independence, too, and is allowed on a kernel's outermost loop.
    """

    var: Var
    extent: Extent
    body: tuple[Stmt, ...]
    kind: LoopKind = "serial"
    parallel: bool = False


Stmt = Let | Declare | Store | For


@dataclass(frozen=True, eq=False)
class Kernel:
    """A named loop nest. `params` are its buffers in call order."""

    name: str
    params: tuple[Buffer, ...]
    body: tuple[Stmt, ...]

    @property
    def parallel_extent(self) -> Extent:
        """Trip count of the parallel outermost loop; 1 for a kernel that runs as a whole."""
        loop = self.parallel_loop
        return loop.extent if loop else 1

    @property
    def parallel_loop(self) -> For | None:
        first = self.body[0] if len(self.body) == 1 else None
        return first if isinstance(first, For) and first.parallel else None


def as_expr(operand: Operand, dtype: DType) -> Expr:
    """`operand` itself, or the Python number or extent as a value of `dtype`."""
    if isinstance(operand, Expr):
        return operand
    return cast(Size(operand), dtype) if isinstance(operand, Dim) else Const(operand, dtype)


def binary(opcode: Opcode, left: Operand, right: Operand) -> Expr:
    """A binary operation; a Python number takes the type of the other side."""
    dtype = _common_dtype(left, right)
    args = (as_expr(left, dtype), as_expr(right, dtype))
    assert args[0].dtype == args[1].dtype, (opcode, args[0].dtype, args[1].dtype)
    return Op(opcode, args, BOOL if opcode in COMPARISONS else dtype)


def _common_dtype(left: Operand, right: Operand) -> DType:
    if isinstance(left, Expr):
        return left.dtype
    assert isinstance(right, Expr), "one side must be an expression"
    return right.dtype


def compare(opcode: Literal["eq", "ne", "lt", "le", "gt", "ge"], left: Operand, right: Operand) -> Expr:
    return binary(opcode, left, right)


def logical(opcode: Literal["and", "or", "xor"], left: Operand, right: Operand) -> Expr:
    return binary(opcode, left, right)


def negate(value: Expr) -> Expr:
    """Logical or bitwise complement."""
    return Op("not", (value,), value.dtype)


def shift_left(value: Expr, bits: Operand) -> Expr:
    return binary("shl", value, bits)


def shift_right(value: Expr, bits: Operand) -> Expr:
    """Arithmetic shift."""
    return binary("shr", value, bits)


def fma(a: Expr, b: Operand, c: Operand) -> Expr:
    """`a * b + c` with one rounding."""
    return Op("fma", (a, as_expr(b, a.dtype), as_expr(c, a.dtype)), a.dtype)


def absolute(value: Expr) -> Expr:
    return Op("abs", (value,), value.dtype)


def sqrt(value: Expr) -> Expr:
    """The correctly rounded square root; NaN below zero, -0 at -0."""
    return Op("sqrt", (value,), value.dtype)


def select(condition: Expr, then: Operand, otherwise: Operand) -> Expr:
    dtype = _common_dtype(then, otherwise)
    return Op("select", (condition, as_expr(then, dtype), as_expr(otherwise, dtype)), dtype)


def cast(value: Expr, dtype: DType) -> Expr:
    return value if value.dtype == dtype else Op("cast", (value,), dtype)


def bitcast(value: Expr, dtype: DType) -> Expr:
    """The same bits as another type of the same size."""
    assert value.dtype.bits == dtype.bits
    return Op("bitcast", (value,), dtype)


def maximum(left: Operand, right: Operand) -> Expr:
    """The larger one; NaN if either is NaN; the left one where they compare equal."""
    return _extremum("gt", left, right)


def minimum(left: Operand, right: Operand) -> Expr:
    """The smaller one; NaN if either is NaN; the left one where they compare equal."""
    return _extremum("lt", left, right)


def _extremum(opcode: Literal["gt", "lt"], left: Operand, right: Operand) -> Expr:
    dtype = _common_dtype(left, right)
    a, b = as_expr(left, dtype), as_expr(right, dtype)
    takes_right = compare(opcode, b, a)
    if dtype.kind == "float":
        takes_right = logical("or", takes_right, compare("ne", b, b))
    return select(takes_right, b, a)


def walk(stmts: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """Every statement, outer ones first."""
    for stmt in stmts:
        yield stmt
        if isinstance(stmt, For):
            yield from walk(stmt.body)
