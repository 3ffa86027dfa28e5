"""Input rows and points: duplicates are merged, and neighbours are stored near each other.

A *point* is a distinct row, and points are numbered in *storage order*. Everything public is in the user's order.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class StorageOrder:
    """Map input rows to distinct points in storage order.

    Attributes
    ----------
    user_row : (n,) int64
        The user's (first) row of each point in storage order.
    group : (N,) int32 or None
        The distinct point of each of the user's rows, numbered by first appearance; None if no row repeats.
    """

    user_row: np.ndarray
    group: np.ndarray | None = None

    @property
    def n_points(self) -> int:
        """Number of distinct points."""
        return len(self.user_row)

    @property
    def n_rows(self) -> int:
        """Number of the user's rows."""
        return self.n_points if self.group is None else len(self.group)

    def is_sound(self, n_rows: int, n_points: int) -> bool:
        """Whether all numbers are those of rows and points: compiled loops trust them."""
        if (self.n_rows, self.n_points) != (n_rows, n_points):
            return False
        return _below(self.user_row, n_rows) and (self.group is None or _below(self.group, n_points))

    @cached_property
    def by_user(self) -> np.ndarray:
        """Storage positions of the points in ascending order of their first row."""
        position = np.full(self.n_rows, -1, np.int32)
        position[self.user_row] = np.arange(self.n_points, dtype=np.int32)
        return position if self.group is None else position[position >= 0]

    @cached_property
    def position(self) -> np.ndarray:
        """Storage position of each of the user's rows."""
        return self.by_user if self.group is None else self.by_user[self.group]

    @cached_property
    def weights(self) -> np.ndarray:
        """How many of the user's rows are equal to each point (storage order)."""
        weights = np.ones(self.n_points)
        if self.group is not None:
            weights[self.by_user] = np.bincount(self.group, minlength=self.n_points)
        return weights

    @cached_property
    def rows_by_point(self) -> tuple[np.ndarray, np.ndarray]:
        """All rows of the user, sorted by point (storage order), and the bounds of each point's rows."""
        if self.group is None:
            return self.user_row, np.arange(self.n_points + 1)
        rows = np.argsort(self.position, kind="stable")
        counts = np.bincount(self.position, minlength=self.n_points)
        return rows, np.concatenate([[0], np.cumsum(counts)])

    def spread(self, values: np.ndarray) -> np.ndarray:
        """Expand values of points (storage order) to the user's rows."""
        return np.take(values, self.position, axis=0)

    def collect(self, values: np.ndarray) -> np.ndarray:
        """Sum values of the user's rows over each point (storage order)."""
        if self.group is None:
            return np.take(values, self.user_row, axis=0)
        out = np.zeros((self.n_points, *values.shape[1:]), values.dtype)
        np.add.at(out, self.position, values)
        return out


def _below(numbers: np.ndarray, end: int) -> bool:
    """Whether numbers are whole, from 0 up to `end`."""
    whole = numbers.ndim == 1 and numbers.dtype.kind == "i"
    return whole and (not len(numbers) or (int(numbers.min()) >= 0 and int(numbers.max()) < end))
