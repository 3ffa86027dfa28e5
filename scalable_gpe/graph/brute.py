"""Exact neighbours by comparing all pairs: the k best of each row by (squared distance, row number).

A matrix product in double precision gives the distances of some rows to all others, up to its rounding. What is not
certainly farther than the k-th best is compared exactly. So the lists do not depend on how many rows are searched
together, nor on the order in which a library adds; scikit-learn's search takes as long, and 1.5 s to import.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

_TOGETHER = 64  # rows: their distances to 20,000 others stay in the second cache
_LANES = 512
_ROUNDING = 1e-12  # of a product, as a share of the largest square
_TIES = 2e-7  # distances that are equal in single precision


@dataclass(frozen=True)
class AllPairs:
    """Rows (float32, all distinct) among which neighbours are searched."""

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
        """The neighbours of some rows, nearest first."""
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
        """The best candidates by (squared distance, row number)."""
        from scalable_gpe.loops import points as loops

        squared = np.empty(candidates.shape, np.float32)
        loops.list_squares(self.X, rows, np.maximum(candidates, 0), squared)
        squared[candidates < 0] = np.inf
        order = np.lexsort((candidates, squared))[:, : self.n_neighbors]
        return np.take_along_axis(candidates, order, axis=1)


def _bound(distances: np.ndarray, n_wanted: int) -> np.ndarray:
    """For each line a number that at least `n_wanted` of its entries do not exceed, and few others."""
    n_lines, length = distances.shape
    if n_wanted > _LANES // 8 or length < 4 * _LANES:
        smallest: np.ndarray = np.partition(distances, n_wanted - 1, axis=1)[:, n_wanted - 1]
        return smallest
    # the least of every 512th entry: most of the nearest lie in lanes of their own
    whole = length - length % _LANES
    lanes = distances[:, :whole].reshape(n_lines, -1, _LANES).min(axis=1)
    least: np.ndarray = np.partition(lanes, n_wanted - 1, axis=1)[:, n_wanted - 1]
    return least
