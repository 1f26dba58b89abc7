"""Programs of kernel calls, and where each of their values lies in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from cuvil.ir.dims import Extent, highest
from cuvil.ir.graph import Value
from cuvil.ir.types import Array
from cuvil.loops.kernel import Kernel

ALIGN_BYTES = 64


@dataclass(frozen=True, eq=False)
class Call:
    """One run of a kernel; `operands` match its parameters, `flops` estimates its work."""

    kernel: Kernel
    operands: tuple[Value, ...]
    flops: Extent
    loc: str


@dataclass(frozen=True, eq=False)
class Program:
    """What is left of a graph after lowering: kernel calls, one after the other.

    `roots` maps each view to the value whose memory it shares; no two outputs share theirs, nor with an
    input or a constant.
    """

    name: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    calls: tuple[Call, ...]
    constants: Mapping[Value, Array]
    roots: Mapping[Value, Value]

    def root(self, value: Value) -> Value:
        while value in self.roots:
            value = self.roots[value]
        return value


@dataclass(frozen=True)
class Slot:
    """Where a value lies: `position` is a byte offset in the arena or the weights, or the number of an
    input or output."""

    space: Literal["input", "output", "weights", "arena"]
    position: int


@dataclass(frozen=True, eq=False)
class Plan:
    """`slots` has every root value of the program; `weights` the constants in order of their offsets."""

    slots: Mapping[Value, Slot]
    arena_bytes: int
    weights: tuple[tuple[int, Array], ...]
    weights_bytes: int


@dataclass(frozen=True)
class _Interval:
    """A value that lives in the arena from call `first` to call `last`."""

    value: Value
    first: int
    last: int

    @property
    def size_bytes(self) -> int:
        """The most that a run needs."""
        return _aligned(max(1, highest(self.value.type.size_bytes)))


def plan_memory(program: Program) -> Plan:
    """Assigns inputs, outputs and weights their places, and packs everything else into one arena."""
    slots: dict[Value, Slot] = {}
    slots.update({program.root(value): Slot("output", i) for i, value in enumerate(program.outputs)})
    slots.update({value: Slot("input", i) for i, value in enumerate(program.inputs)})
    weights, weights_bytes = _place_weights(program, slots)
    arena_bytes = _place_arena(_intervals(program, slots), slots)
    return Plan(slots, arena_bytes, weights, weights_bytes)


def _place_weights(program: Program, slots: dict[Value, Slot]) -> tuple[tuple[tuple[int, Array], ...], int]:
    used = {program.root(operand) for call in program.calls for operand in call.operands}
    placed: list[tuple[int, Array]] = []
    offset = 0
    for value, array in program.constants.items():
        if value in used and value not in slots:
            slots[value] = Slot("weights", offset)
            placed.append((offset, array))
            offset += _aligned(array.nbytes)
    return tuple(placed), offset


def _intervals(program: Program, slots: Mapping[Value, Slot]) -> list[_Interval]:
    first: dict[Value, int] = {}
    last: dict[Value, int] = {}
    for number, call in enumerate(program.calls):
        for operand in call.operands:
            root = program.root(operand)
            if root not in slots:
                first.setdefault(root, number)
                last[root] = number
    return [_Interval(value, start, last[value]) for value, start in first.items()]


def _place_arena(intervals: Iterable[_Interval], slots: dict[Value, Slot]) -> int:
    """Largest first, each at the lowest offset that is free during its whole life."""
    placed: list[tuple[int, _Interval]] = []
    for interval in sorted(intervals, key=lambda i: (-i.size_bytes, i.first, i.value.name)):
        offset = _lowest_free_offset(interval, placed)
        placed.append((offset, interval))
        slots[interval.value] = Slot("arena", offset)
    return max((offset + interval.size_bytes for offset, interval in placed), default=0)


def _lowest_free_offset(interval: _Interval, placed: Iterable[tuple[int, _Interval]]) -> int:
    offset = 0
    overlapping = [
        (start, other)
        for start, other in placed
        if other.first <= interval.last and interval.first <= other.last
    ]
    for start, other in sorted(overlapping, key=lambda pair: pair[0]):
        if offset + interval.size_bytes <= start:
            break
        offset = max(offset, start + other.size_bytes)
    return offset


def _aligned(size_bytes: int) -> int:
    return -(-size_bytes // ALIGN_BYTES) * ALIGN_BYTES
