"""Philox against the published known answers, and its scaling against integer arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuvil_regress import philox

KNOWN_ANSWERS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    (
        (0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF),
        (0xFFFFFFFF, 0xFFFFFFFF),
        (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    ),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN_ANSWERS)
def test_block_gives_the_known_answer(
    counter: tuple[int, ...], key: tuple[int, int], answer: tuple[int, ...]
) -> None:
    found = philox.block(np.array([counter], dtype=np.uint32), key)
    assert found.dtype == np.uint32
    assert tuple(int(word) for word in found[0]) == answer


def test_blocks_are_independent_rows() -> None:
    counters = np.array([KNOWN_ANSWERS[0][0], KNOWN_ANSWERS[1][0]], dtype=np.uint32)
    both = philox.block(counters, (1, 2))
    assert np.array_equal(both[1:], philox.block(counters[1:], (1, 2)))


@given(st.text(max_size=12), st.integers(0, 40), st.integers(0, 40))
def test_a_longer_stream_only_appends(name: str, short: int, long: int) -> None:
    short, long = sorted((short, long))
    assert np.array_equal(philox.words(name, short), philox.words(name, long)[:short])


def test_names_have_streams_of_their_own() -> None:
    assert not np.array_equal(philox.words("a.weight", 8), philox.words("b.weight", 8))


def test_the_key_of_a_name_is_fixed() -> None:
    """SHA-256 of `abc` is a published vector: ba7816bf 8f01cfea ..."""
    assert philox.key_of("abc") == (0xBF1678BA, 0xEACF018F)


@given(st.integers(-20, 20))
def test_uniform_is_exactly_the_scaled_word(exponent: int) -> None:
    values = philox.uniform("x", (2, 3), exponent=exponent)
    assert values.dtype == np.float32
    assert values.shape == (2, 3)
    for value, word in zip(values.reshape(-1), philox.words("x", 6), strict=True):
        centred = (int(word) >> 8) - (1 << 23)
        assert Fraction(float(value)) == Fraction(centred) * Fraction(2) ** (exponent - 23)


def test_uniform_fills_its_range() -> None:
    values = philox.uniform("range", (4096,), exponent=1)
    assert -2 <= values.min() < -1.99
    assert 1.99 < values.max() < 2
    assert abs(float(values.mean())) < 0.1
