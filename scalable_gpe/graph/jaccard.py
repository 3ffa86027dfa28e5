"""Jaccard distances of rows of 0 and 1, which no map of the rows turns into straight lines.

The squared distance is the share of differing entries among those that are 1 in either row,
d^2 = 1 - |x and y| / |x or y|. Counts are whole numbers, so that a product of matrices gives them exactly, in any order
of its sums.
"""

import numpy as np

from scalable_gpe.execution.context import Context
from scalable_gpe.graph import products
from scalable_gpe.graph.recall import ExactSample
from scalable_gpe.io.rows import Rows
from scalable_gpe.storage.blocks import ranges

METHODS = ("auto", "brute", "pynndescent")


def all_squares(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Squared distances of all pairs of rows of two matrices."""
    return _squares(left @ right.T, left.sum(axis=1)[:, None] + right.sum(axis=1))


def pair_squares(left: np.ndarray, right: np.ndarray, out: np.ndarray) -> None:
    """Squared distances of corresponding rows."""
    out[:] = _squares((left * right).sum(axis=1), left.sum(axis=1) + right.sum(axis=1))


def list_squares(points: np.ndarray, rows: np.ndarray, neighbors: np.ndarray, out: np.ndarray) -> None:
    """Squared distances of some rows to the neighbours in their lists."""
    for start, stop in ranges(len(rows), products.rows_at_once(neighbors.shape[1] * points.shape[1])):
        others = points[neighbors[start:stop]]
        own = points[rows[start:stop]][:, None, :]
        out[start:stop] = _squares((own * others).sum(axis=2), own.sum(axis=2) + others.sum(axis=2))


def nearest(points: np.ndarray, rows: np.ndarray, n_neighbors: int) -> np.ndarray:
    """The `n_neighbors` nearest rows of some rows, which are listed themselves if they are among these."""
    return products.nearest(all_squares, points, rows, n_neighbors)


def exact_sample(points: Rows, n_neighbors: int, random_state: int, context: Context) -> ExactSample:
    """Sample some points, and compare them with all points."""
    return products.exact_sample(all_squares, np.asarray, points, n_neighbors, random_state, context)


def _squares(both: np.ndarray, sums: np.ndarray) -> np.ndarray:
    either = sums.astype(np.float64) - both
    shares = np.divide(both, either, out=np.ones_like(either), where=either > 0)  # two rows of zeros are equal
    squares: np.ndarray = (1 - shares).astype(np.float32)
    return squares
