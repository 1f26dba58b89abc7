"""Chooses the register tile of a contraction."""

from __future__ import annotations

from cuvil.ir.types import FLOAT32
from cuvil.loops.contraction import Tile
from cuvil.targets.target import Target

_MIN_ACCUMULATORS = 10
"""Chains that hide the latency of a fused multiply-add: two units, four to five cycles."""

_MAX_VECTORS = 8


def choose_tile(target: Target, rows: int, columns: int) -> Tile:
    """The tile with the best estimated speed that fits the registers of `target`.

    The estimate weighs idle lanes in the last panel, uneven row tiles, loads per multiply-add, and whether
    there are enough independent chains.
    """
    lanes = target.lanes(FLOAT32)
    candidates = [
        Tile(height, vectors * lanes)
        for vectors in range(1, min(_MAX_VECTORS, -(-columns // lanes)) + 1)
        for height in range(1, _most_rows(target, vectors) + 1)
        if height <= rows
    ]
    return max(candidates, key=lambda tile: _score(tile, rows, columns, lanes))


def _most_rows(target: Target, vectors: int) -> int:
    """Rows whose accumulators fit beside one row of the right operand and one broadcast element."""
    return max(1, (target.vector_registers - vectors - 1) // vectors)


def _score(tile: Tile, rows: int, columns: int, lanes: int) -> float:
    vectors = tile.columns // lanes
    accumulators = tile.rows * vectors
    loads = tile.rows + vectors
    intensity = min(1.0, accumulators / loads / 2)
    chains = min(1.0, accumulators / _MIN_ACCUMULATORS)
    padded_columns = -(-columns // lanes) * lanes
    filled = columns / (padded_columns * _evenness(padded_columns // lanes, vectors))
    return intensity * chains * filled / _evenness(rows, tile.rows)


def _evenness(count: int, tile: int) -> float:
    """1 where every tile is full, more where the smaller ones leave registers idle."""
    return -(-count // tile) * tile / count
