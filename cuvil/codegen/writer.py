"""Writes one LLVM function: instructions, blocks, stack slots, and the intrinsics it declares."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cuvil.codegen.values import Register, intrinsic_suffix, literal, llvm_type
from cuvil.ir.types import INT64, DType


class FunctionWriter:
    """Collects the lines of a function body.

    Stack slots go to the entry block, where LLVM promotes them; so does what the whole function uses.
    """

    def __init__(self) -> None:
        self.declarations: set[str] = set()
        self._entry: list[str] = []
        self._lines: list[str] = []
        self._block = "entry"
        self._count = 0

    def fresh(self, hint: str = "v") -> str:
        self._count += 1
        return f"%{hint}.{self._count}"

    def line(self, text: str) -> None:
        self._lines.append(f"  {text}")

    def assign(self, dtype: DType, lanes: int, text: str) -> Register:
        """Emits `%v = text` and returns the register."""
        ref = self.fresh()
        self.line(f"{ref} = {text}")
        return Register(ref, dtype, lanes)

    def intrinsic(self, name: str, args: Sequence[Register], result: DType, suffix: str = "") -> Register:
        """Calls an LLVM intrinsic that is overloaded on its result (or on `suffix`, where given)."""
        lanes = args[0].lanes
        full = f"@llvm.{name}.{suffix or intrinsic_suffix(result, lanes)}"
        types = ", ".join(arg.type for arg in args)
        self.declarations.add(f"declare {llvm_type(result, lanes)} {full}({types})")
        operands = ", ".join(map(str, args))
        return self.assign(result, lanes, f"call {llvm_type(result, lanes)} {full}({operands})")

    def slot(self, element_type: str, count: int, align_bytes: int) -> str:
        """Reserves `count` elements on the stack and returns the address."""
        ref = self.fresh("slot")
        self._entry.append(f"  {ref} = alloca {element_type}, i64 {count}, align {align_bytes}")
        return ref

    def assign_at_entry(self, text: str) -> str:
        """Emits `%v = text` before everything else and returns `%v`."""
        ref = self.fresh("n")
        self._entry.append(f"  {ref} = {text}")
        return ref

    def splat(self, value: Register, lanes: int) -> Register:
        """`value` in every one of `lanes` lanes."""
        if value.lanes == lanes:
            return value
        assert value.lanes == 1
        if not value.ref.startswith("%"):
            return Register(f"splat ({value})", value.dtype, lanes)
        vector = llvm_type(value.dtype, lanes)
        first = self.assign(value.dtype, lanes, f"insertelement {vector} poison, {value}, i64 0")
        mask = f"<{lanes} x i32> zeroinitializer"
        return self.assign(value.dtype, lanes, f"shufflevector {first}, {vector} poison, {mask}")

    def extract(self, vector: Register, lane: int) -> Register:
        return self.assign(vector.dtype, 1, f"extractelement {vector}, i64 {lane}")

    def join(self, elements: Sequence[Register]) -> Register:
        """A vector of scalars."""
        dtype, lanes = elements[0].dtype, len(elements)
        vector = Register("poison", dtype, lanes)
        for lane, element in enumerate(elements):
            vector = self.assign(dtype, lanes, f"insertelement {vector}, {element}, i64 {lane}")
        return vector

    def lane_numbers(self, lanes: int) -> Register:
        numbers = ", ".join(f"i64 {lane}" for lane in range(lanes))
        return Register(f"<{numbers}>", INT64, lanes)

    def counted_loop(
        self, start: Register, stop: Register, step: int, body: Callable[[Register], None]
    ) -> None:
        """Runs `body` for start, start + step, ... below `stop`; does nothing for an empty range."""
        head, done = self.fresh("loop"), self.fresh("done")
        enter = self.assign(INT64, 1, f"icmp slt {start}, {stop.ref}").ref
        before = self._block
        self.line(f"br i1 {enter}, label {head}, label {done}")
        self._begin(head)
        phi_at = len(self._lines)
        index = Register(self.fresh("i"), INT64)
        body(index)
        following = self.assign(INT64, 1, f"add nsw i64 {index.ref}, {step}")
        again = self.assign(INT64, 1, f"icmp slt {following}, {stop.ref}").ref
        self.line(f"br i1 {again}, label {head}, label {done}")
        incoming = f"[ {start.ref}, %{before} ], [ {following.ref}, %{self._block} ]"
        self._lines.insert(phi_at, f"  {index.ref} = phi i64 {incoming}")
        self._begin(done)

    def _begin(self, label: str) -> None:
        self._block = label.removeprefix("%")
        self._lines.append(f"{self._block}:")

    def body(self) -> str:
        """The function's text between its braces."""
        return "\n".join(["entry:", *self._entry, *self._lines])


def constant(value: int | float | bool, dtype: DType) -> Register:
    return Register(literal(value, dtype), dtype)
