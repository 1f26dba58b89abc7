"""Philox4x32-10, a counter-based random generator, and its exact scaling to float32.

Model parameters and inputs come from here, keyed by name, so that they are the same on every machine and
beside every PyTorch and NumPy release: no generator of either library is used, only 32-bit integer
arithmetic and float operations that IEEE 754 rounds in one way.

Source: J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, "Parallel random numbers: as easy as 1, 2, 3",
SC 2011.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np
from numpy.typing import NDArray

ROUNDS = 10
_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)


def block(counters: NDArray[np.uint32], key: tuple[int, int]) -> NDArray[np.uint32]:
    """Encrypts counters; each row of four words gives four random words.

    Shapes:
        counters: u32[N, 4] -> u32[N, 4]
    """
    x0, x1, x2, x3 = (counters[:, lane].astype(np.uint64) for lane in range(4))
    key0, key1 = key
    for _ in range(ROUNDS):
        product0, product1 = x0 * _MULTIPLIERS[0], x2 * _MULTIPLIERS[1]
        x0, x2 = (product1 >> _SHIFT) ^ x1 ^ np.uint64(key0), (product0 >> _SHIFT) ^ x3 ^ np.uint64(key1)
        x1, x3 = product1 & _LOW, product0 & _LOW
        key0, key1 = (key0 + _KEY_STEPS[0]) & 0xFFFFFFFF, (key1 + _KEY_STEPS[1]) & 0xFFFFFFFF
    return np.stack((x0, x1, x2, x3), axis=1).astype(np.uint32)


def key_of(name: str) -> tuple[int, int]:
    """The 64-bit key of a name: the first eight bytes of its SHA-256, as two little-endian words."""
    digest = hashlib.sha256(name.encode("utf-8")).digest()
    return int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:8], "little")


def words(name: str, count: int) -> NDArray[np.uint32]:
    """The first `count` words of the stream that belongs to `name`; a longer request only appends."""
    blocks = -(-count // 4)
    counters = np.zeros((blocks, 4), dtype=np.uint32)
    counters[:, 0] = np.arange(blocks, dtype=np.uint32)
    return block(counters, key_of(name)).reshape(-1)[:count]


def uniform(name: str, shape: tuple[int, ...], *, exponent: int = 0) -> NDArray[np.float32]:
    """Uniform values in [-2**exponent, 2**exponent), each a multiple of 2**(exponent - 23).

    Numerics:
        24 bits of each word, centred as an integer and scaled by a power of two: every step is exact in
        float32 as long as `exponent` keeps the values normal.
    """
    bits = (words(name, math.prod(shape)) >> np.uint32(8)).astype(np.int32)
    centred = (bits - np.int32(1 << 23)).astype(np.float32)
    return np.ldexp(centred, exponent - 23).astype(np.float32).reshape(shape)
