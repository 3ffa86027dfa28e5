"""Input rows and points: duplicates are merged, and neighbours are stored near each other.

A *point* is a distinct row, and points are numbered in *storage order*. Everything public is in the user's order.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

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
        return len(self.user_row)

    @property
    def n_rows(self) -> int:
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
        return self._filled(
            self.n_points, np.int32, lambda start, stop: take_rows(self.group, self.user_row[start:stop])
        )

    @cached_property
    def position(self) -> np.ndarray:
        """Storage position of each of the user's rows."""
        if (group := self.group) is None:
            return self.by_user
        return self._filled(self.n_rows, np.int32, lambda start, stop: take_rows(self.by_user, group[start:stop]))

    @cached_property
    def weights(self) -> np.ndarray:
        """How many of the user's rows are equal to each point (storage order)."""
        if self.group is None:
            return self._filled(self.n_points, np.float64, lambda start, stop: 1.0)
        counts = self._filled(self.n_points, np.int32, lambda start, stop: 0)  # in ascending order of first rows
        for start, stop in pieces(self.n_rows):  # most rows are the first of their point: these counts are together
            np.add.at(counts, self.group[start:stop], 1)
        return self._filled(self.n_points, np.float64, lambda start, stop: take_rows(counts, self._number[start:stop]))

    def _filled(self, length: int, dtype: Any, values: Callable[[int, int], Any]) -> np.ndarray:
        out = self.empty((length,), dtype)
        for start, stop in pieces(length):
            out[start:stop] = values(start, stop)
        return out

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
        rows = self.empty((self.n_rows,), np.int64)
        place = self._filled(self.n_points, np.int64, lambda start, stop: bounds[start:stop])
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


def nearest_rows(
    points: np.ndarray, distances: np.ndarray, order: StorageOrder, n_nearest: int
) -> tuple[np.ndarray, np.ndarray]:
    """The first `n_nearest` rows of lists of points (storage order, -1 at the end of a shorter list).

    Returns the numbers of the user's rows, -1 where a list is shorter, and their distances.
    """
    rows, bounds = order.rows_by_point
    counts = np.where(points >= 0, bounds[points + 1] - bounds[points], 0)
    ends = np.cumsum(counts, axis=1)
    numbers = np.full((len(points), n_nearest), -1, np.int64)
    lengths = np.full(numbers.shape, np.inf, distances.dtype)
    for place in range(n_nearest):
        at = np.flatnonzero(ends[:, -1] > place)
        column = (ends[at] <= place).sum(axis=1)  # the point that holds the row at this place
        before = ends[at, column] - counts[at, column]
        numbers[at, place] = rows[bounds[points[at, column]] + place - before]
        lengths[at, place] = distances[at, column]
    return numbers, lengths


def own_row_first(numbers: np.ndarray) -> np.ndarray:
    """Put row i at the head of list i, where it stands among rows that are equal to it, or behind the last of them."""
    own = np.arange(len(numbers))[:, None]
    missing = ~(numbers == own).any(axis=1, keepdims=True)
    place = np.where(missing, numbers.shape[1] - 1, (numbers == own).argmax(axis=1)[:, None])
    later = np.where(np.arange(1, numbers.shape[1]) <= place, numbers[:, :-1], numbers[:, 1:])
    return np.concatenate([own, later], axis=1)
