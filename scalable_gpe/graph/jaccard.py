"""Jaccard distances of rows of 0 and 1, which no map of the rows turns into straight lines.

The squared distance is the share of differing entries among those that are 1 in either row,
d^2 = 1 - |x and y| / |x or y|. Counts are whole numbers, so that a product of matrices gives them exactly, in any order
of its sums.
"""

import numpy as np

from scalable_gpe.execution.context import Context
from scalable_gpe.graph.recall import N_SAMPLES, ExactSample
from scalable_gpe.io.rows import Rows
from scalable_gpe.storage.blocks import ranges

METHODS = ("auto", "brute", "pynndescent")
_ENTRIES_AT_ONCE = 2**24


def all_squares(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Squared distances of all pairs of rows of two matrices."""
    return _squares(left @ right.T, left.sum(axis=1)[:, None] + right.sum(axis=1))


def pair_squares(left: np.ndarray, right: np.ndarray, out: np.ndarray) -> None:
    """Squared distances of corresponding rows."""
    out[:] = _squares((left * right).sum(axis=1), left.sum(axis=1) + right.sum(axis=1))


def list_squares(points: np.ndarray, rows: np.ndarray, neighbors: np.ndarray, out: np.ndarray) -> None:
    """Squared distances of some rows to the neighbours in their lists."""
    for start, stop in ranges(len(rows), _rows_at_once(neighbors.shape[1] * points.shape[1])):
        others = points[neighbors[start:stop]]
        own = points[rows[start:stop]][:, None, :]
        out[start:stop] = _squares((own * others).sum(axis=2), own.sum(axis=2) + others.sum(axis=2))


def nearest(points: np.ndarray, rows: np.ndarray, n_neighbors: int) -> np.ndarray:
    """The `n_neighbors` nearest rows of some rows, which are listed themselves if they are among these."""
    found = np.empty((len(rows), n_neighbors), np.int32)
    for start, stop in ranges(len(rows), _rows_at_once(len(points))):
        squares = all_squares(points[rows[start:stop]], points)
        found[start:stop] = np.argpartition(squares, n_neighbors - 1, axis=1)[:, :n_neighbors]
    return found


def exact_sample(points: Rows, n_neighbors: int, random_state: int, context: Context) -> ExactSample:
    """Sample some points, and compare them with all points."""
    from scalable_gpe.loops import scan

    drawn = np.random.default_rng([random_state, 1]).choice(points.n_rows, min(N_SAMPLES, points.n_rows), replace=False)
    own = np.sort(drawn)
    samples, histogram = points.take(own), np.zeros(scan.N_BINS, np.int64)
    best = np.full((len(own), n_neighbors), np.inf, np.float32)
    pieces = ranges(points.n_rows, _rows_at_once(max(len(own), points.n_features)))
    with context.workers.progress.stage("recall", len(pieces)):
        for start, stop in pieces:
            squares = all_squares(samples, points.read(start, stop))
            here = np.flatnonzero((own >= start) & (own < stop))
            squares[here, own[here] - start] = np.inf
            scan.count_bins(squares[np.isfinite(squares)], histogram, 1)
            best = np.sort(np.concatenate([best, squares], axis=1), axis=1)[:, :n_neighbors]
            context.workers.progress.advance()
    return ExactSample(own, best, histogram, points.n_rows)


def _squares(both: np.ndarray, sums: np.ndarray) -> np.ndarray:
    either = sums.astype(np.float64) - both
    shares = np.divide(both, either, out=np.ones_like(either), where=either > 0)  # two rows of zeros are equal
    squares: np.ndarray = (1 - shares).astype(np.float32)
    return squares


def _rows_at_once(row_entries: int) -> int:
    return max(1, _ENTRIES_AT_ONCE // max(1, row_entries))
