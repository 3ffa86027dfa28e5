"""Exact searches: by comparing all pairs of rows, or by products of matrices (Jaccard distances, wide sparse rows)."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from scalable_gpe.io.rows import InputRows, Rows
from scalable_gpe.storage.blocks import ranges

_ENTRIES_AT_ONCE = 2**22
_WIDE = 2000  # features from which sparse rows stay sparse in a search by brute force
_TOGETHER = 64  # rows: their distances to 20,000 others stay in the second cache
_LANES = 512
_ROUNDING = 1e-12  # of a product, as a share of the largest square
_TIES = 2e-7  # distances that are equal in single precision


@dataclass(frozen=True)
class AllPairs:
    """Rows (float32, all distinct): the k best of each row by (squared distance, row number).

    A matrix product in double precision gives the distances of some rows to all others, up to its rounding. What is not
    certainly farther than the k-th best is compared exactly. So the lists do not depend on how many rows are searched
    together, nor on the order in which a library adds; scikit-learn's search takes as long, and 1.5 s to import.
    """

    X: np.ndarray
    n_neighbors: int

    @cached_property
    def _centred(self) -> np.ndarray:
        # so that |x|^2 - 2xy + |y|^2 does not cancel; at the median, which an outlier does not move
        centred: np.ndarray = self.X.astype(np.float64) - np.median(self.X, axis=0)
        return centred

    @cached_property
    def _squares(self) -> np.ndarray:
        squares: np.ndarray = np.einsum("ij,ij->i", self._centred, self._centred)
        return squares

    def neighbors(self, rows: np.ndarray) -> np.ndarray:
        found = np.empty((len(rows), self.n_neighbors), np.int32)
        for start in range(0, len(rows), _TOGETHER):
            some = rows[start : start + _TOGETHER]
            found[start : start + _TOGETHER] = self._best(some, self._candidates(some))
        return found

    def _candidates(self, rows: np.ndarray) -> np.ndarray:
        """All rows that may be among the nearest, in one line for each of `rows`, which end with -1."""
        # less the square of the row itself, which changes no comparison
        distances = (-2 * self._centred[rows]) @ self._centred.T
        distances += self._squares
        distances[np.arange(len(rows)), rows] = np.inf
        bound = _bound(distances, self.n_neighbors)
        own = self._squares[rows]
        bound += _TIES * np.maximum(bound + own, 0) + _ROUNDING * self._squares.max()
        row, column = np.nonzero(distances <= bound[:, None])
        counts = np.bincount(row, minlength=len(rows))
        candidates = np.full((len(rows), counts.max()), -1, np.int32)
        candidates[row, np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)] = column
        return candidates

    def _best(self, rows: np.ndarray, candidates: np.ndarray) -> np.ndarray:
        from scalable_gpe.loops import points as loops

        squared = np.empty(candidates.shape, np.float32)
        loops.list_squares(self.X, rows, np.maximum(candidates, 0), squared)
        squared[candidates < 0] = np.inf
        return keep_nearest(squared, candidates, self.n_neighbors)[1]


def keep_nearest(lengths: np.ndarray, numbers: np.ndarray, n_kept: int) -> tuple[np.ndarray, np.ndarray]:
    """The nearest entries of each list, by (length, number)."""
    kept = np.lexsort((numbers, lengths), axis=1)[:, :n_kept]
    return np.take_along_axis(lengths, kept, axis=1), np.take_along_axis(numbers, kept, axis=1)


def _bound(distances: np.ndarray, n_wanted: int) -> np.ndarray:
    """For each line a number that at least `n_wanted` of its entries do not exceed, and few others."""
    n_lines, length = distances.shape
    if n_wanted > _LANES // 8 or length < 4 * _LANES:
        return np.partition(distances, n_wanted - 1, axis=1)[:, n_wanted - 1]
    # the least of every 512th entry: most of the nearest lie in lanes of their own
    whole = length - length % _LANES
    lanes = distances[:, :whole].reshape(n_lines, -1, _LANES).min(axis=1)
    return np.partition(lanes, n_wanted - 1, axis=1)[:, n_wanted - 1]


class Jaccard:
    """Jaccard distances of rows of 0 and 1, which no map of the rows turns into straight lines.

    The squared distance is the share of differing entries among those that are 1 in either row,
    d^2 = 1 - |x and y| / |x or y|. Counts are whole numbers, so that a product of matrices gives them exactly, in any
    order of its sums.
    """

    methods = ("auto", "brute", "pynndescent")

    def matrix(self, rows: np.ndarray) -> np.ndarray:
        return rows

    def all_squares(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Squared distances of all pairs of rows."""
        return self._squares(left @ right.T, left.sum(axis=1)[:, None] + right.sum(axis=1))

    def row_squares(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return self._squares((left * right).sum(axis=1), left.sum(axis=1) + right.sum(axis=1))

    def _squares(self, both: np.ndarray, sums: np.ndarray) -> np.ndarray:
        either = sums.astype(np.float64) - both
        shares = np.divide(both, either, out=np.ones_like(either), where=either > 0)  # two rows of zeros are equal
        squares: np.ndarray = (1 - shares).astype(np.float32)
        return squares


class SparseRows:
    """Straight-line distances of wide sparse rows, which are never dense all at the same time."""

    def matrix(self, rows: np.ndarray) -> Any:
        from scipy.sparse import csr_matrix

        return csr_matrix(rows, dtype=np.float64)

    def all_squares(self, left: Any, right: Any) -> np.ndarray:
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


Products = Jaccard | SparseRows


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
