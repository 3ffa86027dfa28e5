"""The search for the neighbours of new rows among stored points.

The search is exact: all points are scanned in leaves of neighbouring points, and leaves whose bounding box is too far
are skipped. In low dimension that leaves a few hundred distances per row; in high dimension up to all N.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from scalable_gpe.execution.context import Context
from scalable_gpe.io.rows import Rows
from scalable_gpe.storage.blocks import ranges

_LEAF = 64
_MOST_LEAVES = 2**18
_CHUNK_ROWS = 32  # rows that are searched together, so that a leaf is read from cache
_BLOCK_LEAVES = 256
_BLOCK_ENTRIES = 2**22  # wide rows: fewer leaves in a block
_HEADS_AT_ONCE = 1024


@dataclass
class Chunk:
    """Some new rows, and what the search has found for them so far."""

    rows: np.ndarray
    limits: np.ndarray
    best: np.ndarray
    nearest: np.ndarray
    match: np.ndarray
    hits: list[tuple[np.ndarray, np.ndarray]]


class Leaves:
    """Stored points in leaves of neighbours with bounding boxes; held in memory if they fit, else read in blocks."""

    def __init__(self, points: Rows, radius: np.ndarray, context: Context) -> None:
        self._points, self._context = points, context
        self._radius = np.ascontiguousarray(radius, dtype=np.float32)
        n_points, n_features = points.n_rows, points.n_features
        self._size = _LEAF
        while n_points > self._size * _MOST_LEAVES:
            self._size *= 2
        self._n_leaves = -(-n_points // self._size)
        self._low, self._high, self._heads = (np.empty((n_features, self._n_leaves), np.float32) for _ in range(3))
        self._reach = np.maximum.reduceat(self._radius.astype(np.float64) ** 2, np.arange(0, n_points, self._size))
        # squares of larger coordinates would overflow in single precision
        self._safe = float(np.sqrt(1e37 / n_features))
        # screening adds up float32 squares: its relative error is below this
        self._slack = 1 - 4e-7 * (n_features + 8)
        at_once = max(1, min(_BLOCK_LEAVES, _BLOCK_ENTRIES // (self._size * n_features)))
        self._blocks = ranges(self._n_leaves, at_once)
        self._held: dict[tuple[int, int], np.ndarray] = {}
        self._hold = context.plan.holds(4 * self._n_leaves * self._size * n_features)
        context.workers.here.map(self._box, self._blocks, count=False)
        self._largest = float(max(np.abs(self._low).max(), np.abs(self._high).max()))

    def _box(self, block: tuple[int, int]) -> None:
        leaves, some = self._read(block), slice(*block)
        self._low[:, some], self._heads[:, some] = leaves.min(axis=2).T, leaves[:, :, 0].T
        self._high[:, some] = np.where(np.isinf(leaves), -np.inf, leaves).max(axis=2).T  # the last leaf is filled up
        if self._hold:
            self._held[block] = leaves

    def _read(self, block: tuple[int, int]) -> np.ndarray:
        if block in self._held:
            return self._held[block]
        rows = self._points.read(block[0] * self._size, min(block[1] * self._size, self._points.n_rows))
        padded = np.full(((block[1] - block[0]) * self._size, rows.shape[1]), np.inf, np.float32)
        padded[: len(rows)] = rows
        return np.ascontiguousarray(padded.reshape(-1, self._size, rows.shape[1]).transpose(0, 2, 1))

    def search(self, rows: np.ndarray, n_neighbors: int, user_row: np.ndarray) -> list[Chunk]:
        """Find the nearest points of each row, and the points that would list it."""
        chunks = self._context.workers.here.map(
            lambda piece: self._start(rows[slice(*piece)], n_neighbors), ranges(len(rows), _CHUNK_ROWS), count=False
        )
        for blocks in self._groups():
            read = [(block, self._read(block)) for block in blocks]

            def visit(chunk: Chunk, read: list[tuple[tuple[int, int], np.ndarray]] = read) -> None:
                for block, leaves in read:
                    self._visit(chunk, block, leaves, user_row)

            self._context.workers.here.map(visit, chunks, count=False)
        return chunks

    def _groups(self) -> Iterator[list[tuple[int, int]]]:
        """Blocks that are in memory at the same time."""
        if self._hold:
            yield self._blocks
        else:
            yield from ([block] for block in self._blocks)

    def _dtype(self, rows: np.ndarray) -> npt.DTypeLike:
        """Type of the screening sums: float64 where squares might overflow."""
        return np.float32 if max(self._largest, float(np.abs(rows).max())) < self._safe else np.float64

    def _start(self, rows: np.ndarray, n_neighbors: int) -> Chunk:
        from scalable_gpe.loops import new_points as loops

        n_rows = len(rows)
        limits, best = np.full(n_rows, np.inf), np.full((n_rows, n_neighbors), np.inf)
        nearest = np.full((n_rows, n_neighbors), -1, np.int32)
        if self._n_leaves >= n_neighbors:
            sums = np.empty(min(_HEADS_AT_ONCE, self._n_leaves), self._dtype(rows))
            loops.seed_limits(rows, self._heads, sums, nearest[0], best, limits)
            best[:], nearest[0] = np.inf, -1
        return Chunk(rows, limits / self._slack, best, nearest, np.full(n_rows, -1, np.int64), [])

    def _visit(self, chunk: Chunk, block: tuple[int, int], leaves: np.ndarray, user_row: np.ndarray) -> None:
        from scalable_gpe.loops import new_points as loops

        dtype = self._dtype(chunk.rows)
        bounds = np.empty((len(chunk.rows), len(leaves)), dtype)
        loops.bound_leaves(chunk.rows, self._low, self._high, block[0], bounds)
        # room for every pair: the system allocates only the pages that are written
        room = len(chunk.rows) * len(leaves) * self._size
        hits, squares = np.empty((room, 2), np.int32), np.empty(room)
        n_hits = loops.search_leaves(
            chunk.rows,
            leaves,
            block[0],
            bounds,
            self._reach,
            self._radius,
            user_row,
            self._slack,
            np.empty(self._size, dtype),
            chunk.limits,
            chunk.best,
            chunk.nearest,
            chunk.match,
            hits,
            squares,
        )
        chunk.hits.append((hits[:n_hits].copy(), squares[:n_hits].copy()))
