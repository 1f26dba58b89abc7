"""Extents of named dimensions: they compute like the integers that they stand for, or say what is open."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cuvil.errors import UnsupportedError
from cuvil.ir.dims import (
    Dim,
    Extent,
    Symbol,
    agree,
    corners,
    dim_of,
    highest,
    is_fixed,
    lowest,
    parse_dim,
    symbols_of,
    value_of,
)

SYMBOLS = {symbol.name: symbol for symbol in (Symbol("batch", 1, 8), Symbol("seq", 1, 128))}
BATCH, SEQ = map(dim_of, SYMBOLS.values())

_leaves = st.one_of(st.integers(-4, 70), st.sampled_from([BATCH, SEQ]))
_runs = st.fixed_dictionaries({name: st.integers(s.minimum, s.maximum) for name, s in SYMBOLS.items()})
_OPERATIONS: tuple[Callable[[Any, Any], Any], ...] = (
    lambda a, b: a + b,
    lambda a, b: a - b,
    lambda a, b: a * b,
    lambda a, b: a // b,
    lambda a, b: a % b,
)


def _with_operation(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.tuples(st.sampled_from(_OPERATIONS), children, children)


_trees = st.recursive(_leaves, _with_operation, max_leaves=6)


def _computed(tree: Any) -> Extent:
    if isinstance(tree, tuple):
        operation, left, right = tree
        result: Extent = operation(_computed(left), _computed(right))
        return result
    return tree  # type: ignore[no-any-return]  # a leaf


def _expected(tree: Any, symbols: dict[str, int]) -> int:
    if isinstance(tree, tuple):
        operation, left, right = tree
        return int(operation(_expected(left, symbols), _expected(right, symbols)))
    return value_of(tree, symbols)


@given(tree=_trees, symbols=_runs)
def test_expressions_compute_like_integers(tree: Any, symbols: dict[str, int]) -> None:
    try:
        extent = _computed(tree)
    except (UnsupportedError, ZeroDivisionError):  # a divisor that may be 0 or less
        assume(False)
    value = value_of(extent, symbols)
    assert value == _expected(tree, symbols)
    assert lowest(extent) <= value <= highest(extent)
    assert parse_dim(str(extent), SYMBOLS) == extent


@given(left=_trees, right=_trees, symbols=_runs)
def test_answers_hold_in_every_run(left: Any, right: Any, symbols: dict[str, int]) -> None:
    try:
        a, b = _computed(left), _computed(right)
        answers = (a < b, a <= b, agree(a, b))
    except (UnsupportedError, ZeroDivisionError):
        assume(False)
    x, y = value_of(a, symbols), value_of(b, symbols)
    assert answers == (x < y, x <= y, x == y)


@pytest.mark.parametrize(
    ("extent", "text"),
    [
        (BATCH * SEQ * 64 // (BATCH * SEQ), "64"),
        ((SEQ + 1) * (BATCH + 2) * 64 // (SEQ + 1), "64*batch + 128"),
        ((4 * SEQ + 3) // 2, "2*seq + 1"),
        (65536 * BATCH // (64 * BATCH * SEQ), "(1024//seq)"),
        ((BATCH * SEQ * 6) % 6, "0"),
        ((SEQ + 128) % 128, "(seq%128)"),
        (SEQ // 129, "0"),
        (SEQ % 129, "seq"),
        (3 - SEQ, "-seq + 3"),
        ((SEQ - 3) // 2 * 2, "2*((seq - 3)//2)"),
        (SEQ - SEQ, "0"),
    ],
)
def test_normal_form(extent: Extent, text: str) -> None:
    assert str(extent) == text
    assert is_fixed(extent) == text.isdecimal()


def test_equal_expressions_are_equal_objects() -> None:
    assert SEQ + SEQ == 2 * SEQ
    assert hash(SEQ + SEQ) == hash(2 * SEQ)
    assert {SEQ + 1: "a"}[1 + SEQ] == "a"
    assert SEQ not in (BATCH, 1, "seq")
    assert (SEQ, 3) == (SEQ, 3)
    assert pickle.loads(pickle.dumps(SEQ * BATCH)) == copy.deepcopy(SEQ * BATCH)


def test_what_bounds_settle_is_answered() -> None:
    assert bool(SEQ)
    assert BATCH * SEQ >= SEQ
    assert SEQ <= 128
    assert min(2**63, SEQ) is SEQ
    assert agree(SEQ + 1, 0) is False
    assert abs(-SEQ) == SEQ


@pytest.mark.parametrize(
    ("question", "relation"),
    [
        (lambda: SEQ < BATCH, "seq < batch"),
        (lambda: agree(SEQ, 24), "seq == 24"),
        (lambda: bool(SEQ - 1), "seq - 1 is 0"),
        (lambda: SEQ // (SEQ - 1), "seq - 1 is positive, as a divisor must be"),
    ],
)
def test_what_stays_open_is_an_error_with_both_sides(question: Callable[[], object], relation: str) -> None:
    with pytest.raises(UnsupportedError, match="leave it open whether") as raised:
        question()
    assert relation in str(raised.value)
    assert "seq in 1..128" in str(raised.value)
    assert raised.value.hint is not None


@pytest.mark.parametrize("use", [int, float, range, lambda n: n / 2, lambda n: n * 0.5, lambda n: [0][n]])
def test_where_a_number_is_needed_the_error_says_so(use: Callable[[Any], object]) -> None:
    with pytest.raises(UnsupportedError, match=r"named dimension|fixed extent"):
        use(SEQ)


def test_texts_that_are_no_extents() -> None:
    for text in ("seq +", "depth", "seq ** 2", "f(seq)", "1.5", "True", ""):
        with pytest.raises(ValueError, match="expected"):
            parse_dim(text, SYMBOLS)


def test_corners_are_the_ends_of_the_bounds() -> None:
    assert list(corners([])) == [{}]
    assert {tuple(run.values()) for run in corners(SYMBOLS.values())} == {(1, 1), (1, 128), (8, 1), (8, 128)}
    many = [Symbol(f"n{i}", 1, 2) for i in range(20)]
    assert len(list(corners(many))) <= 17
    assert dict.fromkeys((s.name for s in many), 2) in list(corners(many))


def test_symbols_are_found_inside_of_quotients() -> None:
    assert list(symbols_of([(SEQ + 3) // 2 + 1, 7, "seq"])) == ["seq"]
    assert isinstance(7 // SEQ, Dim)
