"""Nearest rows, of which some may be equal, from the nearest distinct points."""

import numpy as np

from scalable_gpe.graph.storage_order import StorageOrder


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
