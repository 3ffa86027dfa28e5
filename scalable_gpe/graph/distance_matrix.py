"""Distances of all pairs, or of neighbours, in place of points: checked, and cut to neighbour lists."""

from typing import Any

import numpy as np

from scalable_gpe import checks
from scalable_gpe.errors import Message
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
            Message(f"`X` must be an array or a sparse matrix of distances for `metric='precomputed'`; {_got(X)}.")
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


def new_distances(X: Any, n_rows: int) -> Any:
    """Check the distances of new rows to the `n_rows` training rows; return a CSR matrix or an array."""
    sparse = hasattr(X, "tocsr")
    rows: Any = X.tocsr() if sparse else np.asarray(X)
    if rows.ndim != 2 or rows.shape[1] != n_rows:
        raise ValueError(
            Message(f"`X_new` must hold the distances to the {n_rows} training rows; got shape {tuple(rows.shape)}.")
        )
    _check_values(rows.data if sparse else rows, "X_new")
    return rows


def _check_square(shape: tuple[int, ...]) -> None:
    if len(shape) != 2 or shape[0] != shape[1] or shape[0] < 2:
        raise ValueError(
            Message(
                f"`X` must be a square matrix of distances for `metric='precomputed'`, with 2 rows or more; got shape "
                f"{tuple(shape)}."
            )
        )


def _check_values(values: np.ndarray, name: str = "X") -> None:
    if values.dtype.kind not in "fiu" or not np.isfinite(values).all() or (values < 0).any():
        raise ValueError(
            Message(
                f"`{name}` must hold finite distances of at least 0 for `metric='precomputed'`; some are negative, "
                "infinite or NaN. Similarities are a kernel: pass them to gpe.heat_kernel."
            )
        )


def _check_symmetric(block: np.ndarray, columns: np.ndarray, start: int) -> None:
    """Check the rows from `start` on against the columns of the same numbers."""
    least = _ROUNDING * block.max(initial=0)
    wrong = np.flatnonzero(np.abs(block - columns.T).max(axis=1) > least)
    if wrong.size:
        raise ValueError(
            Message(
                f"`X` must be symmetric for `metric='precomputed'`; {checks.rows_named(wrong + start)} and the columns "
                "of the same numbers differ. Use (X + X.T) / 2, or a sparse matrix of neighbours."
            )
        )
    own = np.flatnonzero(block[np.arange(len(block)), start + np.arange(len(block))] > least)
    if own.size:
        raise ValueError(
            Message(
                f"`X` must have zeros on its diagonal for `metric='precomputed'`; others in "
                f"{checks.rows_named(own + start)}. "
                "Similarities are a kernel: pass them to gpe.heat_kernel."
            )
        )


def _got(X: Any) -> str:
    return f"got {type(X).__name__}"
