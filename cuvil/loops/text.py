"""Kernels as readable text, for dumps.

```
kernel scale(x: input f32[8, 4], y: output f32[8, 4]) {
  parallel for i.1 in 8 {
    vector for j.2 in 4 {
      %0: f32 = x[i.1, j.2] * 2.0
      y[i.1, j.2] = fma(%0, %0, 1.0)
    }
  }
}
```

Operators bind as in Python, and `-` is written for negation, `~` for `not`. A part that a statement uses
more than once, or that is long, has a line and a number of its own before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from cuvil.ir.literal import format_element
from cuvil.loops.kernel import Buffer, Const, Declare, Expr, For, Kernel, Let, Load, Op, Size, Stmt, Var
from cuvil.loops.traverse import children, postorder, roots

_INFIX = {
    "mul": ("*", 7), "div": ("/", 7), "rem": ("%", 7), "add": ("+", 6), "sub": ("-", 6),
    "shl": ("<<", 5), "shr": (">>", 5), "and": ("&", 4), "xor": ("^", 3), "or": ("|", 2),
    "eq": ("==", 1), "ne": ("!=", 1), "lt": ("<", 1), "le": ("<=", 1), "gt": (">", 1), "ge": (">=", 1),
}  # fmt: skip
"""Symbol and binding strength; higher binds tighter."""

_PREFIX = {"neg": "-", "not": "~"}
_PREFIX_STRENGTH = 8
_ATOM = 9

_LONG = 60
"""Parts of an expression with more characters get a line of their own."""


def format_kernel(kernel: Kernel) -> str:
    """The text of a kernel."""
    params = ", ".join(f"{p.name}: {p.role} {_buffer_type(p)}" for p in kernel.params)
    body = "".join(f"  {line}\n" for stmt in kernel.body for line in _stmt_lines(stmt))
    return f"kernel {kernel.name}({params}) {{\n{body}}}\n"


def _buffer_type(buffer: Buffer) -> str:
    return f"{buffer.dtype}[{', '.join(map(str, buffer.shape))}]"


def _stmt_lines(stmt: Stmt) -> Iterator[str]:
    if isinstance(stmt, For):
        yield from _loop_lines(stmt)
        return
    if isinstance(stmt, Declare):
        yield f"local {stmt.buffer.name}: {_buffer_type(stmt.buffer)}"
        return
    parts = _Parts(roots(stmt))
    yield from parts.lines
    if isinstance(stmt, Let):
        yield f"{stmt.var.name}: {stmt.var.dtype} = {parts.text(stmt.value)}"
    else:
        yield f"{parts.element(stmt.buffer, stmt.index)} = {parts.text(stmt.value)}"


def _loop_lines(loop: For) -> Iterator[str]:
    words = ["parallel"] * loop.parallel + [loop.kind] * (loop.kind != "serial")
    yield " ".join([*words, "for", loop.var.name, "in", str(loop.extent), "{"])
    yield from (f"  {line}" for stmt in loop.body for line in _stmt_lines(stmt))
    yield "}"


class _Parts:
    """The texts of all parts of one statement's expressions."""

    def __init__(self, expressions: Sequence[Expr]) -> None:
        self.lines: list[str] = []
        self._texts: dict[int, tuple[str, int]] = {}
        parts = list(postorder(expressions))
        uses = Counter(id(child) for part in parts for child in children(part))
        uses.update(map(id, expressions))
        tops = frozenset(map(id, expressions))
        for part in parts:
            self._texts[id(part)] = self._write(part)
            if isinstance(part, Op) and self._needs_line(part, uses, tops):
                self._name(part)

    def text(self, expr: Expr, strength: int = 0) -> str:
        """The text of a part, in parentheses where its context binds tighter."""
        text, own = self._texts[id(expr)]
        return text if own >= strength else f"({text})"

    def element(self, buffer: Buffer, index: Sequence[Expr]) -> str:
        return f"{buffer.name}[{', '.join(map(self.text, index))}]"

    def _needs_line(self, part: Op, uses: Mapping[int, int], tops: frozenset[int]) -> bool:
        long = len(self.text(part)) > _LONG and id(part) not in tops
        return uses[id(part)] > 1 or long

    def _name(self, part: Op) -> None:
        name = f"%{len(self.lines)}"
        self.lines.append(f"{name}: {part.dtype} = {self.text(part)}")
        self._texts[id(part)] = (name, _ATOM)

    def _write(self, expr: Expr) -> tuple[str, int]:
        if isinstance(expr, Const):
            return format_element(expr.value, expr.dtype), _ATOM
        if isinstance(expr, Size):
            return f"({expr.extent})", _ATOM
        if isinstance(expr, Var):
            return expr.name, _ATOM
        if isinstance(expr, Load):
            return self.element(expr.buffer, expr.index), _ATOM
        assert isinstance(expr, Op), expr
        return self._write_op(expr)

    def _write_op(self, op: Op) -> tuple[str, int]:
        if op.opcode in _INFIX:
            symbol, strength = _INFIX[op.opcode]
            left, right = op.args
            # The right side of an equal operator keeps its parentheses: the order of operations is meant.
            return f"{self.text(left, strength)} {symbol} {self.text(right, strength + 1)}", strength
        if op.opcode in _PREFIX:
            (value,) = op.args
            return f"{_PREFIX[op.opcode]}{self.text(value, _PREFIX_STRENGTH + 1)}", _PREFIX_STRENGTH
        suffix = f"<{op.dtype}>" if op.opcode in ("cast", "bitcast") else ""
        return f"{op.opcode}{suffix}({', '.join(map(self.text, op.args))})", _ATOM
