"""Wide sparse rows: brute force by products of sparse matrices; all rows are never dense at the same time."""

from typing import Any

import numpy as np

from scalable_gpe.execution.context import Context
from scalable_gpe.graph import products
from scalable_gpe.graph.recall import ExactSample
from scalable_gpe.io.rows import Rows
from scalable_gpe.storage.blocks import ranges


def read_sparse(points: Rows) -> Any:
    """All rows as one CSR matrix of float64, read block by block."""
    from scipy.sparse import vstack

    blocks = [_sparse(points.read(*piece)) for piece in _pieces(points)]
    return vstack(blocks, format="csr")


def all_squares(left: Any, right: Any) -> np.ndarray:
    """Squared distances of all pairs of rows of two CSR matrices."""
    lengths = [np.asarray(one.multiply(one).sum(axis=1)).ravel() for one in (left, right)]
    squares: np.ndarray = lengths[0][:, None] + lengths[1] - 2 * (left @ right.T).toarray()
    np.maximum(squares, 0, out=squares)
    return squares


def pair_squares(left: np.ndarray, right: np.ndarray, out: np.ndarray) -> None:
    """Squared distances of corresponding rows."""
    out[:] = ((left.astype(np.float64) - right) ** 2).sum(axis=1)


def list_squares(points: Any, rows: np.ndarray, neighbors: np.ndarray, out: np.ndarray) -> None:
    """Squared distances of some rows to the neighbours in their lists, from the differences of the rows."""
    m = neighbors.shape[1]
    row_entries = 2 * m * -(-points.nnz // points.shape[0])
    for start, stop in ranges(len(rows), products.rows_at_once(row_entries)):
        steps = points[np.repeat(rows[start:stop], m)] - points[neighbors[start:stop].ravel()]
        out[start:stop] = np.asarray(steps.multiply(steps).sum(axis=1)).reshape(-1, m)


def nearest(points: Any, rows: np.ndarray, n_neighbors: int) -> np.ndarray:
    """The `n_neighbors` nearest rows of some rows, which are listed themselves if they are among these."""
    return products.nearest(all_squares, points, rows, n_neighbors)


def exact_sample(points: Rows, n_neighbors: int, random_state: int, context: Context) -> ExactSample:
    """Sample some points, and compare them with all points."""
    return products.exact_sample(all_squares, _sparse, points, n_neighbors, random_state, context)


def _pieces(points: Rows) -> list[tuple[int, int]]:
    return ranges(points.n_rows, products.rows_at_once(points.n_features))


def _sparse(rows: np.ndarray) -> Any:
    from scipy.sparse import csr_matrix

    return csr_matrix(rows, dtype=np.float64)
