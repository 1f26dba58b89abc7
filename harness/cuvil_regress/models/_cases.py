"""The values of the cases: ordinary ones, and the special values of IEEE 754, row by row."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cuvil_regress.philox import uniform, words

SPECIAL_ROWS = ("ordinary", "nan", "inf", "tiny")
"""What the batch rows of the case `special` hold; further rows are ordinary."""

_QUIET_NANS = np.array([0x7FC00000, 0xFFC00001], dtype=np.uint32).view(np.float32)


def values(case: str, name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """An input of a case: uniform in [-2, 2), and in `special` with the rows that `SPECIAL_ROWS` names.

    Rows are independent in every model, so a NaN spoils no other row; inside its row it stands in the
    middle, so that a sequence's first steps and an image's far side still show ordinary numbers.
    """
    array = uniform(f"{name}/{case}", shape, exponent=1)
    if case == "special":
        rows = array.reshape(shape[0], -1)
        middle = rows.shape[1] // 2
        rows[SPECIAL_ROWS.index("nan"), middle : middle + 2] = _QUIET_NANS
        rows[SPECIAL_ROWS.index("inf"), middle] = np.inf
        rows[SPECIAL_ROWS.index("tiny")] = tiny(f"{name}/{case}/tiny", rows.shape[1])
    return array


def tiny(name: str, count: int) -> NDArray[np.float32]:
    """Subnormals, both zeros and normals below 2**-125, of both signs, in a fixed mixture."""
    random = words(name, count)
    signs = random & np.uint32(0x80000000)
    subnormals = random & np.uint32(0x007FFFFF)
    normals = (random & np.uint32(0x00FFFFFF)) | np.uint32(0x00800000)
    magnitudes = np.choose(np.arange(count) % 4, (subnormals, np.zeros_like(random), normals, subnormals))
    return (signs | magnitudes.astype(np.uint32)).view(np.float32)
