"""Bit equality: arrays as integers, with every NaN masked to one pattern (payload and sign are excepted)."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def masked_bits(array: Array) -> NDArray[np.unsignedinteger[Any]]:
    """The array's bits as unsigned integers; all NaN are the same number, signed zeros are not."""
    flat = np.ascontiguousarray(array).reshape(-1)
    bits = flat.view(f"u{flat.dtype.itemsize}")
    if flat.dtype.kind != "f":
        return bits
    quiet = np.full(1, np.nan, flat.dtype).view(bits.dtype)[0]
    return np.where(np.isnan(flat), quiet, bits)


def sha256(array: Array) -> str:
    """The digest of dtype, shape and masked bits, the same on machines of either byte order."""
    bits = masked_bits(array)
    digest = hashlib.sha256(f"{array.dtype.name} {list(array.shape)}\n".encode())
    digest.update(bits.astype(bits.dtype.newbyteorder("<"), copy=False).tobytes())
    return digest.hexdigest()


def count_differing(left: Array, right: Array) -> int:
    """Number of elements whose masked bits differ; all of them when dtype or shape differ."""
    if left.dtype != right.dtype or left.shape != right.shape:
        return max(left.size, right.size, 1)
    return int(np.count_nonzero(masked_bits(left) != masked_bits(right)))
