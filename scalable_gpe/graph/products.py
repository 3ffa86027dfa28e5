"""Exact searches by products of matrices: for Jaccard distances, and for wide sparse rows.

Other rows are compared by compiled loops, along straight lines.
"""

from typing import Any

import numpy as np

from scalable_gpe.graph.recall import Products
from scalable_gpe.io.rows import InputRows, Rows
from scalable_gpe.storage.blocks import ranges

_ENTRIES_AT_ONCE = 2**22
_WIDE = 2000  # features from which sparse rows stay sparse in a search by brute force


class Jaccard:
    """Jaccard distances of rows of 0 and 1, which no map of the rows turns into straight lines.

    The squared distance is the share of differing entries among those that are 1 in either row,
    d^2 = 1 - |x and y| / |x or y|. Counts are whole numbers, so that a product of matrices gives them exactly, in any
    order of its sums.
    """

    methods = ("auto", "brute", "pynndescent")

    def matrix(self, rows: np.ndarray) -> np.ndarray:
        """The rows as they are."""
        return rows

    def all_squares(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Squared distances of all pairs of rows."""
        return self._squares(left @ right.T, left.sum(axis=1)[:, None] + right.sum(axis=1))

    def row_squares(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Squared distances of corresponding rows."""
        return self._squares((left * right).sum(axis=1), left.sum(axis=1) + right.sum(axis=1))

    def _squares(self, both: np.ndarray, sums: np.ndarray) -> np.ndarray:
        either = sums.astype(np.float64) - both
        shares = np.divide(both, either, out=np.ones_like(either), where=either > 0)  # two rows of zeros are equal
        squares: np.ndarray = (1 - shares).astype(np.float32)
        return squares


class SparseRows:
    """Straight-line distances of wide sparse rows, which are never dense all at the same time."""

    def matrix(self, rows: np.ndarray) -> Any:
        """The rows as a CSR matrix."""
        from scipy.sparse import csr_matrix

        return csr_matrix(rows, dtype=np.float64)

    def all_squares(self, left: Any, right: Any) -> np.ndarray:
        """Squared distances of all pairs of rows."""
        lengths = [np.asarray(side.multiply(side).sum(axis=1)).ravel() for side in (left, right)]
        squares: np.ndarray = lengths[0][:, None] + lengths[1] - 2 * (left @ right.T).toarray()
        np.maximum(squares, 0, out=squares)
        return squares

    def row_squares(self, left: Any, right: Any) -> np.ndarray:
        """Squared distances of corresponding rows, from their differences."""
        steps = left - right
        return np.asarray(steps.multiply(steps).sum(axis=1)).ravel()

    def read(self, points: Rows) -> Any:
        """All rows as one matrix, read block by block."""
        from scipy.sparse import vstack

        pieces = ranges(points.n_rows, _rows_at_once(points.n_features))
        return vstack([self.matrix(points.read(*piece)) for piece in pieces], format="csr")


def products_for(rows: InputRows) -> Products | None:
    """How distances of an input are computed; None: by compiled loops. Sparse rows that are not wide are read dense."""
    if rows.metric == "jaccard":
        return Jaccard()
    # centred rows have no zeros
    sparse = rows.is_sparse and rows.n_features > _WIDE and rows.metric != "correlation"
    return SparseRows() if sparse else None


def nearest(products: Products, points: Any, rows: np.ndarray, n_neighbors: int) -> np.ndarray:
    """The `n_neighbors` nearest rows of some rows, which are listed themselves if they are among these."""
    found = np.empty((len(rows), n_neighbors), np.int32)
    for start, stop in ranges(len(rows), _rows_at_once(points.shape[0])):
        squares = products.all_squares(points[rows[start:stop]], points)
        found[start:stop] = np.argpartition(squares, n_neighbors - 1, axis=1)[:, :n_neighbors]
    return found


def list_squares(products: Products, points: Any, rows: np.ndarray, neighbors: np.ndarray, out: np.ndarray) -> None:
    """Squared distances of some rows to the neighbours in their lists."""
    m = neighbors.shape[1]
    row_entries = 2 * m * -(-points.size // points.shape[0])  # of a sparse matrix, those that are stored
    for start, stop in ranges(len(rows), _rows_at_once(row_entries)):
        own, others = points[np.repeat(rows[start:stop], m)], points[neighbors[start:stop].ravel()]
        out[start:stop] = products.row_squares(own, others).reshape(-1, m)


def _rows_at_once(row_entries: int) -> int:
    """Rows of so many entries that are handled together."""
    return max(1, _ENTRIES_AT_ONCE // max(1, row_entries))
