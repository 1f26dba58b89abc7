"""The values of the cases: ordinary ones, and the special values of IEEE 754, row by row."""

from __future__ import annotations

import importlib
from typing import Any

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


def token_ids(case: str, name: str, shape: tuple[int, int], vocabulary: int) -> NDArray[np.int64]:
    """Token numbers of a case: ordinary ones, and in `special` with the rows that `SPECIAL_ROWS` names.

    The last three of the vocabulary are special (see `special_embedding`). In `special`, each row begins
    with token 0; NaN and Inf stand in the middle of their rows, and the last row ends with the last token.
    """
    ordinary = vocabulary - len(SPECIAL_ROWS) + 1
    ids = (words(f"{name}/{case}", shape[0] * shape[1]).reshape(shape) % np.uint32(ordinary)).astype(np.int64)
    if case == "special":
        ids[:, 0] = 0
        for row in range(1, len(SPECIAL_ROWS)):
            ids[row, shape[1] // 2] = ordinary + row - 1
        ids[SPECIAL_ROWS.index("tiny"), -1] = vocabulary - 1
    return ids


def special_embedding(embedding: Any, model: str) -> None:
    """Gives the last three rows of an embedding NaN, Inf and subnormals, in the order of `SPECIAL_ROWS`."""
    torch = importlib.import_module("torch")
    count, width = embedding.weight.shape
    middle = width // 2
    rows = embedding.weight.data
    rows[count - 3, middle : middle + 2] = torch.from_numpy(_QUIET_NANS)
    rows[count - 2, middle] = np.inf
    rows[count - 1] = torch.from_numpy(tiny(f"{model}/embedding/tiny", width))


def tiny(name: str, count: int) -> NDArray[np.float32]:
    """Subnormals, both zeros and normals below 2**-125, of both signs, in a fixed mixture."""
    random = words(name, count)
    signs = random & np.uint32(0x80000000)
    subnormals = random & np.uint32(0x007FFFFF)
    normals = (random & np.uint32(0x00FFFFFF)) | np.uint32(0x00800000)
    magnitudes = np.choose(np.arange(count) % 4, (subnormals, np.zeros_like(random), normals, subnormals))
    return (signs | magnitudes.astype(np.uint32)).view(np.float32)
