"""Extents that are only known at the run: integer expressions of named dimensions with bounds.

A `Dim` computes like an integer, so that shape inference and lowering are written once for fixed and for
named dimensions. It is kept in one normal form, a polynomial with integer coefficients, which makes equal
expressions equal objects: `(batch * seq * 64) // (batch * seq)` is the integer 64. A comparison is answered
from the bounds where they settle it; where they don't, it is an error that names both sides, never a guess.
"""

from __future__ import annotations

import ast
import functools
import math
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from cuvil.errors import UnsupportedError

Extent: TypeAlias = int
"""A number, or a `Dim`."""

IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)


@dataclass(frozen=True)
class Symbol:
    """A named dimension; every run has a value from `minimum` to `maximum` for it."""

    name: str
    minimum: int
    maximum: int

    def __str__(self) -> str:
        return self.name

    def value(self, symbols: Mapping[str, int]) -> int:
        return symbols[self.name]


@dataclass(frozen=True)
class Division:
    """`left // right` or `left % right` that no rule simplifies; `right` is positive."""

    sign: str
    left: Extent
    right: Extent

    def __str__(self) -> str:
        return f"({_operand_text(self.left)}{self.sign}{_operand_text(self.right)})"

    def value(self, symbols: Mapping[str, int]) -> int:
        left, right = value_of(self.left, symbols), value_of(self.right, symbols)
        return left // right if self.sign == "//" else left % right

    @property
    def minimum(self) -> int:
        if self.sign == "%":
            return 0
        low = lowest(self.left)
        return low // (lowest(self.right) if low < 0 else highest(self.right))

    @property
    def maximum(self) -> int:
        if self.sign == "%":
            return highest(self.right) - 1
        high = highest(self.left)
        return high // (highest(self.right) if high < 0 else lowest(self.right))


Atom: TypeAlias = Symbol | Division
Monomial: TypeAlias = tuple[Atom, ...]
"""A product of atoms in the order of their texts; empty for 1."""


# A type checker takes a Dim for an int: whatever computes with extents computes with these, too. Code that
# needs a number meets `__index__`, which says so.
if TYPE_CHECKING:
    _Integer = int
else:
    _Integer = object


class Dim(_Integer):
    """A sum of products of named dimensions that is no constant; made by arithmetic on `dim_of`."""

    if not TYPE_CHECKING:
        __slots__ = ("_hash", "_terms")
    _terms: dict[Monomial, int]
    _hash: int

    def __new__(cls, terms: Mapping[Monomial, int]) -> Any:
        """The normal form of `terms`: an `int` where nothing but a constant is left."""
        kept = {monomial: factor for monomial, factor in terms.items() if factor}
        if not kept or set(kept) == {()}:
            return kept.get((), 0)
        self = object.__new__(cls)
        self._terms = dict(sorted(kept.items(), key=lambda term: _order(term[0]), reverse=True))
        self._hash = hash(frozenset(kept.items()))
        return self

    def __reduce__(self) -> Any:
        return Dim, (self._terms,)

    # Arithmetic

    def __add__(self, other: Any) -> Any:
        return _combined(self, other, lambda a, b: _sum(a, b, 1))

    def __radd__(self, other: Any) -> Any:
        return self + other

    def __sub__(self, other: Any) -> Any:
        return _combined(self, other, lambda a, b: _sum(a, b, -1))

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def __neg__(self) -> Any:
        return Dim({monomial: -factor for monomial, factor in self._terms.items()})

    def __pos__(self) -> Any:
        return self

    def __mul__(self, other: Any) -> Any:
        return _combined(self, other, _product)

    def __rmul__(self, other: Any) -> Any:
        return self * other

    def __floordiv__(self, other: Any) -> Any:
        return _divided(self, other, "//")

    def __rfloordiv__(self, other: Any) -> Any:
        return _divided(other, self, "//")

    def __mod__(self, other: Any) -> Any:
        return _divided(self, other, "%")

    def __rmod__(self, other: Any) -> Any:
        return _divided(other, self, "%")

    def __truediv__(self, other: Any) -> NoReturn:
        self.__index__()

    __rtruediv__ = __truediv__

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    # Questions

    def __eq__(self, other: object) -> bool:
        """Whether both are the same for every run; False where they may differ."""
        return isinstance(other, Dim) and bool(self._terms == other._terms)

    def __hash__(self) -> int:
        return self._hash

    def __lt__(self, other: Any) -> Any:
        return _compare(self, other, "<")

    def __le__(self, other: Any) -> Any:
        return _compare(self, other, "<=")

    def __gt__(self, other: Any) -> Any:
        return _compare(self, other, ">")

    def __ge__(self, other: Any) -> Any:
        return _compare(self, other, ">=")

    def __bool__(self) -> bool:
        if lowest(self) > 0 or highest(self) < 0:
            return True
        raise _unproven(f"{self} is 0", self)

    def __abs__(self) -> Any:
        return self if self >= 0 else -self

    def __index__(self) -> NoReturn:
        raise UnsupportedError(
            f"a fixed extent is needed here; expected a number, got {self}",
            hint="fix the dimension with `--shape`; this form of the operator takes no named ones",
        )

    __int__ = __float__ = __index__  # neither has an answer

    def __str__(self) -> str:
        return "".join(_signed(text, position) for position, text in enumerate(self._term_texts()))

    def __repr__(self) -> str:
        return str(self)

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    def _term_texts(self) -> Iterator[str]:
        for monomial, factor in self._terms.items():
            parts = [str(atom) for atom in monomial]
            if abs(factor) != 1 or not parts:
                parts.insert(0, str(abs(factor)))
            yield ("-" if factor < 0 else "+") + "*".join(parts)


def dim_of(symbol: Symbol) -> Dim:
    """A named dimension as an extent."""
    made: Dim = Dim({(symbol,): 1})
    return made


def is_fixed(extent: Extent) -> bool:
    """Whether an extent is a number."""
    return not isinstance(extent, Dim)


def lowest(extent: Extent) -> int:
    """A bound that no run's value lies below; exact for sums and products of named dimensions."""
    return _range(extent)[0] if isinstance(extent, Dim) else extent


def highest(extent: Extent) -> int:
    """A bound that no run's value lies above; exact for sums and products of named dimensions."""
    return _range(extent)[1] if isinstance(extent, Dim) else extent


def value_of(extent: Extent, symbols: Mapping[str, int]) -> int:
    """The number that an extent is in a run with these values of the named dimensions."""
    if not isinstance(extent, Dim):
        return extent
    total = 0
    for monomial, factor in extent._terms.items():
        total += factor * math.prod([atom.value(symbols) for atom in monomial])
    return total


def symbols_of(extents: Iterable[object]) -> dict[str, Symbol]:
    """The named dimensions that occur in any of `extents`, by name; whatever is no `Dim` has none."""
    found: dict[str, Symbol] = {}
    for extent in extents:
        if isinstance(extent, Dim):
            for atom in {atom for monomial in extent._terms for atom in monomial}:
                if isinstance(atom, Symbol):
                    found[atom.name] = atom
                else:
                    found |= symbols_of((atom.left, atom.right))
    return dict(sorted(found.items()))


def agree(left: Extent, right: Extent) -> bool:
    """Whether two extents are the same number in every run.

    Raises:
        UnsupportedError: they are in some runs and not in others, or nothing tells.
    """
    difference = left - right
    if not isinstance(difference, Dim):
        return difference == 0
    if lowest(difference) > 0 or highest(difference) < 0:
        return False
    raise _unproven(f"{left} == {right}", left, right)


def terms_of(extent: Extent) -> Iterator[tuple[int, tuple[Atom, ...]]]:
    """An extent as a sum: a factor and the atoms that it is multiplied with, for each term."""
    if isinstance(extent, Dim):
        yield from ((factor, monomial) for monomial, factor in extent._terms.items())
    else:
        yield extent, ()


def corners(symbols: Iterable[Symbol]) -> Iterator[dict[str, int]]:
    """The runs at the ends of the bounds, where linear relations between extents break first."""
    all_symbols = list(symbols)
    ends = [(symbol.minimum, symbol.maximum) for symbol in all_symbols]
    if len(ends) > _MOST_CORNERS:
        ends = [(low, low) for low, _ in ends[:-_MOST_CORNERS]] + ends[-_MOST_CORNERS:]
        yield {symbol.name: symbol.maximum for symbol in all_symbols}
    for values in product(*(sorted(set(pair)) for pair in ends)):
        yield {symbol.name: value for symbol, value in zip(all_symbols, values, strict=True)}


_MOST_CORNERS = 4


def parse_dim(text: str, symbols: Mapping[str, Symbol]) -> Extent:
    """The extent that `text` writes, as `str` of a `Dim` does.

    Raises:
        ValueError: it is no such expression, or names a dimension that is not in `symbols`.
    """
    try:
        extent: Extent = _parsed(ast.parse(text, mode="eval").body, symbols)
    except SyntaxError:
        raise ValueError(f"expected an expression such as '2*seq + 1', got {text!r}") from None
    return extent


_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def _parsed(tree: ast.expr, symbols: Mapping[str, Symbol]) -> Any:
    match tree:
        case ast.Constant(int(value)) if not isinstance(value, bool):
            return value
        case ast.Name(name) if name in symbols:
            return dim_of(symbols[name])
        case ast.Name(name):
            raise ValueError(f"expected one of {', '.join(symbols) or 'no names'}, got {name!r}")
        case ast.UnaryOp(ast.USub(), value):
            return -_parsed(value, symbols)
        case ast.BinOp(left, sign, right) if type(sign) in _OPERATORS:
            return _OPERATORS[type(sign)](_parsed(left, symbols), _parsed(right, symbols))
    raise ValueError(f"expected sums, products and divisions of dimensions, got {ast.unparse(tree)!r}")


# Texts


def _signed(text: str, position: int) -> str:
    """A term behind others, or the first one."""
    if position == 0:
        return text.removeprefix("+")
    return f" {text[0]} {text[1:]}"


def _operand_text(extent: Extent) -> str:
    text = str(extent)
    return text if IDENTIFIER.fullmatch(text) or text.isdecimal() else f"({text})"


# Polynomials


def _order(monomial: Monomial) -> tuple[int, tuple[Any, ...]]:
    """Graded, then by the atoms: an order that multiplication keeps, as exact division needs it."""
    return len(monomial), tuple(_Reversed(str(atom)) for atom in monomial)


@functools.total_ordering
@dataclass(frozen=True)
class _Reversed:
    text: str

    def __lt__(self, other: _Reversed) -> bool:
        return self.text > other.text


def _polynomial(extent: Any) -> dict[Monomial, int] | None:
    if isinstance(extent, Dim):
        return extent._terms
    if isinstance(extent, Real) and not isinstance(extent, Integral):
        raise UnsupportedError(f"a named dimension has no product or sum with the fraction {extent}")
    try:
        return {(): operator.index(extent)}
    except TypeError:
        return None


def _combined(
    left: Any, right: Any, combine: Callable[[dict[Monomial, int], dict[Monomial, int]], dict[Monomial, int]]
) -> Any:
    a, b = _polynomial(left), _polynomial(right)
    return NotImplemented if a is None or b is None else Dim(combine(a, b))


def _sum(left: dict[Monomial, int], right: dict[Monomial, int], sign: int) -> dict[Monomial, int]:
    total = dict(left)
    for monomial, factor in right.items():
        total[monomial] = total.get(monomial, 0) + sign * factor
    return total


def _product(left: dict[Monomial, int], right: dict[Monomial, int]) -> dict[Monomial, int]:
    total: dict[Monomial, int] = {}
    for (a, p), (b, q) in product(left.items(), right.items()):
        monomial = tuple(sorted(a + b, key=str))
        total[monomial] = total.get(monomial, 0) + p * q
    return total


def _divided(left: Any, right: Any, sign: str) -> Any:
    a, b = _polynomial(left), _polynomial(right)
    if a is None or b is None:
        return NotImplemented
    if lowest(right) <= 0:
        raise _unproven(f"{right} is positive, as a divisor must be", right)
    whole, rest = _split(a, b)
    left_over = Dim(rest)
    if lowest(left_over) >= 0 and highest(left_over - right) < 0:
        return Dim(whole) if sign == "//" else left_over
    if is_fixed(left_over) and is_fixed(right):
        return Dim(whole) + left_over // right if sign == "//" else left_over % right
    if sign == "%":
        return Dim({(Division(sign, left_over, right),): 1})
    return Dim(whole) + _reduced_quotient(rest, b)


def _reduced_quotient(left: dict[Monomial, int], right: dict[Monomial, int]) -> Any:
    """`left // right`, with what all terms of both sides share divided out."""
    terms = [*left.items(), *right.items()]
    factor = math.gcd(*(factor for _, factor in terms))
    shared = functools.reduce(operator.and_, (Counter(monomial) for monomial, _ in terms))
    common = {tuple(sorted(shared.elements(), key=str)): factor}
    (a, _), (b, _) = _split(left, common), _split(right, common)
    numerator, denominator = Dim(a), Dim(b)
    if common != {(): 1}:
        return numerator // denominator
    return Dim({(Division("//", numerator, denominator),): 1})


def _split(
    left: dict[Monomial, int], right: dict[Monomial, int]
) -> tuple[dict[Monomial, int], dict[Monomial, int]]:
    """`left` as `whole * right + rest`, with as many terms in `whole` as divide evenly."""
    lead = max(right, key=_order)
    whole: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    todo = {monomial: factor for monomial, factor in left.items() if factor}
    while todo:
        monomial = max(todo, key=_order)
        factor = todo[monomial]
        missing = Counter(lead)
        missing.subtract(Counter(monomial))
        if factor % right[lead] or any(count > 0 for count in missing.values()):
            rest[monomial] = todo.pop(monomial)
            continue
        step = {tuple(sorted((-missing).elements(), key=str)): factor // right[lead]}
        whole = _sum(whole, step, 1)
        todo = {m: f for m, f in _sum(todo, _product(step, right), -1).items() if f}
    return whole, rest


def _range(dim: Dim) -> tuple[int, int]:
    """Bounds: every atom is written as its minimum plus a part that starts at 0."""
    shifted: dict[tuple[Atom, ...], int] = {}
    for monomial, factor in dim._terms.items():
        for chosen in product((False, True), repeat=len(monomial)):
            pairs = list(zip(monomial, chosen, strict=True))
            moving = tuple(atom for atom, moves in pairs if moves)
            fixed = math.prod(atom.minimum for atom, moves in pairs if not moves)
            shifted[moving] = shifted.get(moving, 0) + factor * fixed
    low = high = shifted.pop((), 0)
    for moving, factor in shifted.items():
        end = factor * math.prod(atom.maximum - atom.minimum for atom in moving)
        low, high = low + min(0, end), high + max(0, end)
    return low, high


def _compare(left: Dim, right: Any, sign: str) -> Any:
    if _polynomial(right) is None:
        return NotImplemented
    difference = left - right
    low, high = lowest(difference), highest(difference)
    if sign in ("<", ">="):
        if high < 0 or low >= 0:
            return (high < 0) == (sign == "<")
    elif high <= 0 or low > 0:
        return (high <= 0) == (sign == "<=")
    raise _unproven(f"{left} {sign} {right}", left, right)


def _unproven(relation: str, *extents: Any) -> UnsupportedError:
    bounds = ", ".join(
        f"{symbol.name} in {symbol.minimum}..{symbol.maximum}" for symbol in symbols_of(extents).values()
    )
    return UnsupportedError(
        f"named dimensions leave it open whether {relation}, with {bounds}",
        hint="narrow the bounds of these dimensions, or fix one with `--shape`",
    )
