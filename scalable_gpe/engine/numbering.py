"""The user's rows and the library's: duplicates merged, neighbours near each other.

Inside, a point is a *distinct* row in *storage order*. Everything public speaks the user's order.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from scalable_gpe.engine.blocks import Workers
from scalable_gpe.engine.tables import ranges

CHUNK = 8192  # rows of one partial sum, in the user's order


@dataclass(frozen=True)
class Numbering:
    """Who is who.

    Attributes
    ----------
    user_row : (n,) int64
        The user's (first) row of each point in storage order.
    group : (N,) int32 or None
        For each of the user's rows its distinct point, counted by first appearance; None: no row repeats.
    """

    user_row: np.ndarray
    group: np.ndarray | None = None

    @property
    def n_points(self) -> int:
        """Distinct points."""
        return len(self.user_row)

    @property
    def n_rows(self) -> int:
        """The user's rows."""
        return self.n_points if self.group is None else len(self.group)

    @cached_property
    def by_user(self) -> np.ndarray:
        """Storage positions of the points in ascending order of their first row."""
        return np.argsort(self.user_row, kind="stable").astype(np.int32)

    @cached_property
    def position(self) -> np.ndarray:
        """Storage position of each of the user's rows."""
        return self.by_user if self.group is None else self.by_user[self.group]

    @cached_property
    def weights(self) -> np.ndarray | None:
        """How often each point stands in the user's rows (storage order), or None when no row repeats."""
        if self.group is None:
            return None
        counts = np.bincount(self.group, minlength=self.n_points).astype(np.float64)
        weights = np.empty(self.n_points)
        weights[self.by_user] = counts
        return weights

    def spread(self, values: np.ndarray) -> np.ndarray:
        """Values of points (storage order) as values of the user's rows."""
        return values[self.position]

    def collect(self, values: np.ndarray) -> np.ndarray:
        """Sums of values of the user's rows over each point (storage order)."""
        if self.group is None:
            return values[self.user_row]
        out = np.zeros((self.n_points, *values.shape[1:]), values.dtype)
        np.add.at(out, self.position, values)
        return out

    def inner(self, left: np.ndarray, right: np.ndarray, factor: np.ndarray, workers: Workers) -> np.ndarray:
        """Weighted inner products ``sum factor * left * right`` of equal columns."""
        from scalable_gpe.engine.kernels import sparse

        return self._sums(
            left.shape[1],
            workers,
            lambda piece, out: sparse.gather_products(left, right, factor, self.by_user, *piece, out),
        )

    def _sums(self, width: int, workers: Workers, fill: Callable[[tuple[int, int], np.ndarray], None]) -> np.ndarray:
        """Partial sums of fixed chunks of rows in the user's order, added in order: the only way rows are summed."""
        pieces = ranges(self.n_points, CHUNK)
        partial = np.empty((len(pieces), width))

        def some(group: tuple[int, int]) -> None:
            for number in range(*group):
                fill(pieces[number], partial[number])

        workers.map(some, ranges(len(pieces), 16), count=False)
        total = np.zeros(width)
        for row in partial:
            total += row
        return total
