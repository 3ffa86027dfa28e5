"""Input rows and points: duplicates are merged, and neighbours are stored near each other.

A *point* is a distinct row, and points are numbered in *storage order*. Everything public is in the user's order.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from scalable_gpe.storage.mapped import Empty, inverse_order, pieces, take_rows


@dataclass(frozen=True)
class StorageOrder:
    """Map input rows to distinct points in storage order."""

    user_row: np.ndarray  # int64, the user's (first) row of each point in storage order
    group: np.ndarray | None = None  # int32, the point of each row, numbered by first appearance; None: no row repeats
    empty: Empty = np.empty  # makes arrays with an entry per row

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
        return inverse_order(self.user_row if self.group is None else self._number, self.empty)

    @cached_property
    def _number(self) -> np.ndarray:
        """Number of each point (storage order) in ascending order of first rows; only where rows repeat."""
        assert self.group is not None
        number = self.empty((self.n_points,), np.int32)
        for start, stop in pieces(self.n_points):
            number[start:stop] = take_rows(self.group, self.user_row[start:stop])
        return number

    @cached_property
    def position(self) -> np.ndarray:
        """Storage position of each of the user's rows."""
        if self.group is None:
            return self.by_user
        position = self.empty((self.n_rows,), np.int32)
        for start, stop in pieces(self.n_rows):
            position[start:stop] = take_rows(self.by_user, self.group[start:stop])
        return position

    @cached_property
    def weights(self) -> np.ndarray:
        """How many of the user's rows are equal to each point (storage order)."""
        weights, counts = self.empty((self.n_points,), np.float64), self._counts
        for start, stop in pieces(self.n_points):
            weights[start:stop] = 1.0 if counts is None else take_rows(counts, self._number[start:stop])
        return weights

    @property
    def _counts(self) -> np.ndarray | None:
        """How many of the user's rows are equal to each point (ascending order of first rows); None: one each."""
        if self.group is None:
            return None
        counts = self.empty((self.n_points,), np.int32)
        for start, stop in pieces(self.n_points):
            counts[start:stop] = 0
        for start, stop in pieces(self.n_rows):  # most rows are the first of their point: these counts are together
            np.add.at(counts, self.group[start:stop], 1)
        return counts

    @cached_property
    def rows_by_point(self) -> tuple[np.ndarray, np.ndarray]:
        """All rows of the user, sorted by point (storage order), and the bounds of each point's rows."""
        from scalable_gpe.loops import sparse

        if self.group is None:
            return self.user_row, np.arange(self.n_points + 1)
        bounds, total = self.empty((self.n_points + 1,), np.int64), 0
        bounds[0] = 0
        for start, stop in pieces(self.n_points):
            bounds[start + 1 : stop + 1] = total + np.cumsum(self.weights[start:stop].astype(np.int64))
            total = int(bounds[stop])
        rows, place = self.empty((self.n_rows,), np.int64), self.empty((self.n_points,), np.int64)
        for start, stop in pieces(self.n_points):
            place[start:stop] = bounds[start:stop]
        for start, stop in pieces(self.n_rows):
            sparse.place_rows(self.position[start:stop], start, place, rows)
        return rows, bounds

    def rows_of(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """The user's rows of some points, sorted by point, and where those of each point begin."""
        if self.group is None:
            return self.user_row[start:stop], np.arange(stop - start)
        rows, bounds = self.rows_by_point
        return rows[bounds[start] : bounds[stop]], bounds[start:stop] - bounds[start]

    def members(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """The user's rows of some points, sorted by point, and the point of each, counted from `start`."""
        rows, begins = self.rows_of(start, stop)
        return rows, np.repeat(np.arange(stop - start), np.diff(np.append(begins, len(rows))))

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
    return whole and all(
        int(numbers[start:stop].min()) >= 0 and int(numbers[start:stop].max()) < end
        for start, stop in pieces(len(numbers))
    )
