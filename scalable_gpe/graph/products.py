"""Exact searches by products of matrices: for Jaccard distances, and for wide sparse rows.

`all_squares(left, right)` computes the squared distances of all pairs of rows of two matrices, dense or sparse.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from scalable_gpe.execution.context import Context
from scalable_gpe.graph.recall import N_SAMPLES, ExactSample
from scalable_gpe.io.rows import Rows
from scalable_gpe.storage.blocks import ranges

AllSquares = Callable[[Any, Any], np.ndarray]
ReadRows = Callable[[np.ndarray], Any]
_ENTRIES_AT_ONCE = 2**22


def nearest(all_squares: AllSquares, points: Any, rows: np.ndarray, n_neighbors: int) -> np.ndarray:
    """The `n_neighbors` nearest rows of some rows, which are listed themselves if they are among these."""
    found = np.empty((len(rows), n_neighbors), np.int32)
    for start, stop in ranges(len(rows), rows_at_once(points.shape[0])):
        squares = all_squares(points[rows[start:stop]], points)
        found[start:stop] = np.argpartition(squares, n_neighbors - 1, axis=1)[:, :n_neighbors]
    return found


def exact_sample(
    all_squares: AllSquares, read: ReadRows, points: Rows, n_neighbors: int, random_state: int, context: Context
) -> ExactSample:
    """Sample some points, and compare them with all points; `read` makes a matrix of some rows."""
    from scalable_gpe.loops import scan

    n_points = points.n_rows
    own = np.sort(np.random.default_rng([random_state, 1]).choice(n_points, min(N_SAMPLES, n_points), replace=False))
    samples, histogram = read(points.take(own)), np.zeros(scan.N_BINS, np.int64)
    best = np.full((len(own), n_neighbors), np.inf, np.float32)
    ids = np.full((len(own), n_neighbors), -1, np.int64)
    pieces = ranges(n_points, rows_at_once(max(len(own), points.n_features)))
    with context.workers.progress.stage("recall", len(pieces)):
        for start, stop in pieces:
            squares = all_squares(samples, read(points.read(start, stop))).astype(np.float32)
            here = np.flatnonzero((own >= start) & (own < stop))
            squares[here, own[here] - start] = np.inf
            scan.count_bins(squares[np.isfinite(squares)], histogram, 1)
            ids, best = _nearer(ids, best, np.arange(start, stop), squares)
            context.workers.progress.advance()
    return ExactSample(own, best, ids, histogram, n_points)


def _nearer(ids: np.ndarray, best: np.ndarray, rows: np.ndarray, squares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The nearest of those known (sorted) and of further rows, sorted by squared distance."""
    n_neighbors = best.shape[1]
    both = np.concatenate([best, squares], axis=1)
    numbers = np.concatenate([ids, np.broadcast_to(rows, squares.shape)], axis=1)
    chosen = np.argpartition(both, n_neighbors - 1, axis=1)[:, :n_neighbors]
    both, numbers = np.take_along_axis(both, chosen, 1), np.take_along_axis(numbers, chosen, 1)
    order = np.lexsort((numbers, both))
    return np.take_along_axis(numbers, order, 1), np.take_along_axis(both, order, 1)


def rows_at_once(row_entries: int) -> int:
    """Rows of so many entries that are handled together."""
    return max(1, _ENTRIES_AT_ONCE // max(1, row_entries))
