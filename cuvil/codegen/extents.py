"""Extents that depend on named dimensions, as integer instructions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cuvil.ir.dims import Atom, Dim, Division, Extent, Symbol, lowest, terms_of


class ExtentEmitter:
    """Computes extents, each once.

    `positions` says where in the array `%symbols` the value of each named dimension lies; `assign` emits an
    instruction in a block that dominates every use, and returns its register.
    """

    def __init__(self, positions: Mapping[str, int], assign: Callable[[str], str]) -> None:
        self.used = False
        self._positions = positions
        self._assign = assign
        self._known: dict[Extent | Atom, str] = {}

    def ref(self, extent: Extent) -> str:
        """The i64 register or literal that holds an extent."""
        if not isinstance(extent, Dim):
            return str(extent)
        if extent not in self._known:
            self._known[extent] = self._sum(extent)
        return self._known[extent]

    def _sum(self, extent: Dim) -> str:
        total = ""
        for factor, atoms in terms_of(extent):
            term = "" if factor == 1 and atoms else str(factor)
            for atom in atoms:
                term = self._binary("mul", term, self._atom(atom)) if term else self._atom(atom)
            total = self._binary("add", total, term) if total else term
        return total

    def _atom(self, atom: Atom) -> str:
        if atom not in self._known:
            self._known[atom] = self._load(atom) if isinstance(atom, Symbol) else self._divide(atom)
        return self._known[atom]

    def _load(self, symbol: Symbol) -> str:
        self.used = True
        address = self._assign(f"getelementptr i64, ptr %symbols, i64 {self._positions[symbol.name]}")
        return self._assign(f"load i64, ptr {address}, align 8")

    def _divide(self, division: Division) -> str:
        """Rounds down, as Python does; the divisor is positive."""
        left, right = self.ref(division.left), self.ref(division.right)
        quotient = division.sign == "//"
        if lowest(division.left) >= 0:
            return self._binary("udiv" if quotient else "urem", left, right)
        rest = self._binary("srem", left, right)
        below = self._assign(f"ashr i64 {rest}, 63")
        if quotient:
            return self._binary("add", self._binary("sdiv", left, right), below)
        return self._binary("add", rest, self._binary("and", below, right))

    def _binary(self, instruction: str, left: str, right: str) -> str:
        return self._assign(f"{instruction} i64 {left}, {right}")
