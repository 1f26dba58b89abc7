"""The expressions of `-k`."""

from __future__ import annotations

import pytest

from cuvil_regress.errors import UsageError
from cuvil_regress.selection import select

IDS = ("torch-1/mlp/x86", "torch-1/mlp/x86-v4", "torch-1/lstm/x86", "torch-2/lstm/arm")


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("mlp", (0, 1)),
        ("MLP", (0, 1)),
        ("torch-1/mlp", (0, 1)),
        ("torch-1/mlp/x86", (0,)),
        ("mlp/x86", (0, 1)),
        ("*/x86", (0, 2)),
        ("torch-[12]/*/*6", (0, 2)),
        ("x86", (0, 1, 2)),
        ("not x86", (3,)),
        ("not not arm", (3,)),
        ("lstm and x86", (2,)),
        ("lstm and not x86", (3,)),
        ("arm or mlp and v4", (1, 3)),
        ("(arm or mlp) and v4", (1,)),
        ("not (arm or mlp)", (2,)),
        ("not arm or mlp", (0, 1, 2)),
        ("gru", ()),
    ],
)
def test_what_an_expression_selects(expression: str, expected: tuple[int, ...]) -> None:
    assert select(expression, IDS) == {IDS[index] for index in expected}


@pytest.mark.parametrize(
    ("expression", "expected", "got"),
    [
        ("", "a word, 'not' or '('", "the end"),
        ("mlp and", "a word, 'not' or '('", "the end"),
        ("and mlp", "a word, 'not' or '('", "'and'"),
        ("mlp lstm", "'and', 'or' or the end", "'lstm'"),
        ("(mlp", "'and', 'or' or ')'", "the end"),
        ("mlp)", "'and', 'or' or the end", "')'"),
        ("()", "a word, 'not' or '('", "')'"),
    ],
)
def test_what_is_no_expression(expression: str, expected: str, got: str) -> None:
    with pytest.raises(UsageError) as caught:
        select(expression, IDS)
    assert str(caught.value) == f"-k {expression!r}: can't be read; expected {expected}, got {got}"
