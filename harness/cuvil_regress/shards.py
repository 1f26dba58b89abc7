"""Splits a matrix over machines: a shard holds whole groups of one PyTorch release.

A group stays together, for its first target gives the bits that the others must have. A release stays
alone, for a machine installs one. The split depends on the matrix and the number of shards only, so that
each machine finds its own part.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cuvil_regress.errors import UsageError
from cuvil_regress.matrix import Matrix
from cuvil_regress.model import Cell

JOBS_LIMIT = 256
"""Jobs that GitHub starts from one matrix; of a larger one it starts none."""


@dataclass(frozen=True)
class Shard:
    """Part `number` of `count`, counted from 1."""

    number: int
    count: int
    cells: tuple[Cell, ...]

    @property
    def name(self) -> str:
        """As `--shard` takes it."""
        return f"{self.number}/{self.count}"

    @property
    def torch(self) -> str:
        return self.cells[0].torch

    @property
    def groups(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(cell.group for cell in self.cells))


def split(matrix: Matrix, count: int | None = None) -> tuple[Shard, ...]:
    """All shards of a matrix; by default one for each group, as far as GitHub starts so many jobs.

    Raises:
        UsageError: the matrix has no cells, or can't be split into `count` shards.
    """
    releases: dict[str, dict[str, list[Cell]]] = {}
    for cell in matrix.cells:
        releases.setdefault(cell.torch, {}).setdefault(cell.group, []).append(cell)
    groups = sum(map(len, releases.values()))
    if not groups:
        raise UsageError(f"{matrix.path}: has no cells; expected at least one")
    count = min(groups, JOBS_LIMIT) if count is None else count
    _require_possible(matrix.path, count, len(releases), groups)
    parts: list[tuple[Cell, ...]] = []
    for cells, shares in zip(releases.values(), _shares([*map(len, releases.values())], count), strict=True):
        whole = list(cells.values())
        for first in range(shares):
            parts.append(tuple(cell for group in whole[first::shares] for cell in group))
    return tuple(Shard(number, count, part) for number, part in enumerate(parts, 1))


def _require_possible(path: Path, count: int, releases: int, groups: int) -> None:
    if count > JOBS_LIMIT:
        raise UsageError(
            f"--shards {count}: GitHub starts no job of a matrix with more than {JOBS_LIMIT}",
            hint=f"without --shards there are no more than {JOBS_LIMIT}, each with more cells",
        )
    if not releases <= count <= groups:
        raise UsageError(
            f"{path}: can't be split into {count} shards; expected {releases} to {groups}",
            hint="a shard has one PyTorch release, and whole groups: all targets of a model",
        )


def _shares(sizes: Sequence[int], count: int) -> list[int]:
    """How many shards each release gets: one, and the others where the parts are largest."""
    shares = [1] * len(sizes)
    for _ in range(count - len(sizes)):
        open_ones = [number for number, size in enumerate(sizes) if shares[number] < size]
        largest = max(open_ones, key=lambda number: sizes[number] / shares[number])
        shares[largest] += 1
    return shares


def select(matrix: Matrix, text: str) -> Matrix:
    """The part of a matrix that `--shard I/N` names.

    Raises:
        UsageError: the text names no shard.
    """
    found = re.fullmatch(r"([1-9]\d{0,4})/([1-9]\d{0,4})", text)
    if found is None or int(found[1]) > int(found[2]):
        raise UsageError(f"--shard {text!r}: expected I/N with 1 <= I <= N, such as 2/4")
    shard = split(matrix, int(found[2]))[int(found[1]) - 1]
    return replace(matrix, cells=shard.cells)


def github_matrix(shards: Sequence[Shard]) -> dict[str, list[dict[str, str | int]]]:
    """The value of `strategy.matrix` of a GitHub job: an entry a shard."""
    return {
        "include": [
            {
                "name": shard.groups[0] if len(shard.groups) == 1 else f"torch-{shard.torch} {shard.name}",
                "shard": shard.name,
                "artifact": f"{shard.number:03}-of-{shard.count:03}",
                "torch": shard.torch,
                "cells": len(shard.cells),
            }
            for shard in shards
        ]
    }
