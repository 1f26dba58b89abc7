"""The expressions of `-k`: words about cell ids, joined by `and`, `or`, `not` and parentheses."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase

from cuvil_regress.errors import UsageError

Predicate = Callable[[str], bool]

_TOKEN = re.compile(r"[()]|[^\s()]+")
_OPERATORS = ("and", "or", "not", "(", ")")


def select(expression: str, ids: Collection[str]) -> frozenset[str]:
    """The ids that an expression is true of.

    A word is true of an id that contains it, in upper or lower case. A word with `*`, `?` or `[` is a pattern
    for the whole id, and a word that is an id means that one alone.

    Raises:
        UsageError: the expression can't be read.
    """
    holds = _Parser(expression, frozenset(ids)).parse()
    return frozenset(each for each in ids if holds(each))


@dataclass
class _Parser:
    """Recursive descent, one method a level: `or` binds least, `not` most."""

    expression: str
    ids: frozenset[str]

    def __post_init__(self) -> None:
        self._tokens = _TOKEN.findall(self.expression)

    def parse(self) -> Predicate:
        predicate = self._or()
        if self._tokens:
            raise self._unexpected("'and', 'or' or the end")
        return predicate

    def _or(self) -> Predicate:
        left = self._and()
        while self._take("or"):
            left = _either(left, self._and())
        return left

    def _and(self) -> Predicate:
        left = self._not()
        while self._take("and"):
            left = _both(left, self._not())
        return left

    def _not(self) -> Predicate:
        if self._take("not"):
            return _negation(self._not())
        if self._take("("):
            inside = self._or()
            if not self._take(")"):
                raise self._unexpected("'and', 'or' or ')'")
            return inside
        if not self._tokens or self._tokens[0] in _OPERATORS:
            raise self._unexpected("a word, 'not' or '('")
        return self._word(self._tokens.pop(0))

    def _word(self, word: str) -> Predicate:
        if word in self.ids:
            return lambda each: each == word
        lower = word.lower()
        if any(character in word for character in "*?["):
            return lambda each: fnmatchcase(each.lower(), lower)
        return lambda each: lower in each.lower()

    def _take(self, token: str) -> bool:
        found = self._tokens[:1] == [token]
        if found:
            self._tokens.pop(0)
        return found

    def _unexpected(self, expected: str) -> UsageError:
        got = repr(self._tokens[0]) if self._tokens else "the end"
        return UsageError(
            f"-k {self.expression!r}: can't be read; expected {expected}, got {got}",
            hint="words joined by and, or, not and parentheses, e.g. -k 'lstm and not riscv64'",
        )


def _either(left: Predicate, right: Predicate) -> Predicate:
    return lambda each: left(each) or right(each)


def _both(left: Predicate, right: Predicate) -> Predicate:
    return lambda each: left(each) and right(each)


def _negation(inside: Predicate) -> Predicate:
    return lambda each: not inside(each)
