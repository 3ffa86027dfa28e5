"""Distances of all pairs, or of neighbours, in place of points: checked, and cut to neighbour lists."""

from typing import Any

import numpy as np

from scalable_gpe import checks
from scalable_gpe.graph.neighbors import check_n_neighbors
from scalable_gpe.storage.blocks import ranges

PRECOMPUTED = "precomputed"
_ENTRIES_AT_ONCE = 2**22
_ROUNDING = 1e-5  # relative difference of d_ij and d_ji that is rounding


def distance_lists(X: Any, n_neighbors: int | None) -> Any:
    """Return what `check_lists` takes: the nearest others of each row, or the stored entries of a sparse matrix."""
    if hasattr(X, "tocsr"):
        matrix = X.tocsr()
        _check_square(matrix.shape)
        _check_values(matrix.data)
        return matrix
    D = np.asarray(X)
    if D.dtype.kind not in "fiu":
        raise TypeError(
            f"X must be an array or a sparse matrix of distances for metric='precomputed'; got {type(X).__name__}."
        )
    _check_square(D.shape)
    n_rows = len(D)
    m = check_n_neighbors(n_neighbors, n_rows)
    indices, distances = np.empty((n_rows, m), np.int64), np.empty((n_rows, m))
    for start, stop in ranges(n_rows, max(1, _ENTRIES_AT_ONCE // n_rows)):
        block = np.array(D[start:stop], dtype=np.float64)
        _check_values(block)
        _check_symmetric(block, D[:, start:stop], start)
        block[np.arange(stop - start), np.arange(start, stop)] = np.inf
        nearest = np.argpartition(block, m - 1, axis=1)[:, :m]
        indices[start:stop], distances[start:stop] = nearest, np.take_along_axis(block, nearest, axis=1)
    return indices, distances


def _check_square(shape: tuple[int, ...]) -> None:
    if len(shape) != 2 or shape[0] != shape[1] or shape[0] < 2:
        raise ValueError(
            f"X must be a square matrix of distances for metric='precomputed', with 2 rows or more; got shape "
            f"{tuple(shape)}."
        )


def _check_values(values: np.ndarray) -> None:
    if values.dtype.kind not in "fiu" or not np.isfinite(values).all() or (values < 0).any():
        raise ValueError(
            "X must hold finite distances of at least 0 for metric='precomputed'; some are negative, "
            "infinite or NaN. Similarities are for heat_kernel."
        )


def _check_symmetric(block: np.ndarray, columns: np.ndarray, start: int) -> None:
    """Check the rows from `start` on against the columns of the same numbers."""
    least = _ROUNDING * block.max(initial=0)
    wrong = np.flatnonzero(np.abs(block - columns.T).max(axis=1) > least)
    if wrong.size:
        raise ValueError(
            f"X must be symmetric for metric='precomputed'; {checks.rows_named(wrong + start)} and the columns "
            "of the same numbers differ. Use (X + X.T) / 2, or a sparse matrix of neighbours."
        )
    own = np.flatnonzero(block[np.arange(len(block)), start + np.arange(len(block))] > least)
    if own.size:
        raise ValueError(
            f"X must have zeros on its diagonal for metric='precomputed'; others in "
            f"{checks.rows_named(own + start)}. "
            "Similarities are for heat_kernel."
        )
