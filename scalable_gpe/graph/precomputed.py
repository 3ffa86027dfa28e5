"""Precomputed neighbour lists and matrices of distances: checked, and put into one form."""

import hashlib
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from scalable_gpe import checks
from scalable_gpe.graph.exact import keep_nearest
from scalable_gpe.graph.neighbors import check_n_neighbors
from scalable_gpe.io.rows import choose_exponent
from scalable_gpe.storage.blocks import ranges

PRECOMPUTED = "precomputed"
_ENTRIES_AT_ONCE = 2**22
_ROUNDING = 1e-5  # relative difference of d_ij and d_ji that is rounding


@dataclass(frozen=True)
class ListsFingerprint:
    """Fingerprint of precomputed lists: their shape and a checksum."""

    shape: tuple[int, ...]
    content: str


@dataclass(frozen=True)
class PrecomputedLists:
    """Precomputed neighbour lists, N x m, nearest first, without the rows themselves; -1 and infinity end a list.

    Distances are multiplied by ``2**exponent``, so that float32 holds their squares.
    """

    indices: np.ndarray
    distances: np.ndarray
    exponent: int = 0

    @property
    def largest(self) -> float:
        """Largest distance, as the user gave it."""
        used = self.distances[self.indices >= 0]
        return math.ldexp(float(used.max(initial=0)), -self.exponent)

    def with_exponent(self, exponent: int) -> "PrecomputedLists":
        if exponent == self.exponent:
            return self
        return PrecomputedLists(self.indices, np.ldexp(self.distances, exponent - self.exponent), exponent)

    @property
    def fingerprint(self) -> ListsFingerprint:
        """Shape and checksum of the lists, and of their units where these are not the user's."""
        digest = hashlib.sha256(f"{self.exponent}".encode() if self.exponent else b"")
        for array in (self.indices, self.distances):
            digest.update(np.ascontiguousarray(array).tobytes())
        return ListsFingerprint(tuple(int(size) for size in self.indices.shape), digest.hexdigest()[:16])


def check_lists(neighbors: Any, n_rows: int | None, n_neighbors: int | None) -> PrecomputedLists:
    """Check neighbour lists, and put them into one form.

    `neighbors` is a pair (indices, distances) with lists in any order, or a sparse N x N matrix of distances whose
    stored entries are the edges (a stored 0 is an edge of length 0).
    """
    if hasattr(neighbors, "tocsr"):
        indices, distances = _from_sparse(neighbors.tocsr())
    elif isinstance(neighbors, tuple | list) and len(neighbors) == 2:
        indices, distances = np.asarray(neighbors[0]), np.asarray(neighbors[1])
    else:
        raise TypeError(
            f"neighbors must be a pair (indices, distances) or a sparse matrix of distances; got "
            f"{type(neighbors).__name__}."
        )
    _check_arrays(indices, distances, n_rows)
    exponent = choose_exponent(float(distances[indices >= 0].max(initial=0)), "neighbors")
    with np.errstate(over="ignore", under="ignore"):  # unused entries may hold anything
        lengths = (np.ldexp(distances.astype(np.float64), exponent) if exponent else distances).astype(np.float32)
    return PrecomputedLists(*_tidy(indices.astype(np.int64), lengths, n_neighbors), exponent)


def _from_sparse(matrix: Any) -> tuple[np.ndarray, np.ndarray]:
    if matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"neighbors must be a square matrix of distances; got shape {matrix.shape}.")
    counts = np.diff(matrix.indptr)
    inside = np.arange(max(1, counts.max(initial=0)))[None, :] < counts[:, None]
    indices = np.full(inside.shape, -1, np.int64)
    distances = np.full(inside.shape, np.inf)
    indices[inside], distances[inside] = matrix.indices, matrix.data
    return indices, distances


def _check_arrays(indices: np.ndarray, distances: np.ndarray, n_rows: int | None) -> None:
    if indices.ndim != 2 or indices.shape != distances.shape:
        raise ValueError(
            f"neighbors must be two arrays of one shape (N, m); got {indices.shape} and {distances.shape}."
        )
    if n_rows is not None and len(indices) != n_rows:
        raise ValueError(f"neighbors must have one row per row of X ({n_rows}); got {len(indices)}.")
    if len(indices) < 2:
        raise ValueError(f"neighbors must have at least 2 rows; got {len(indices)}.")
    if indices.dtype.kind not in "iu":
        raise TypeError(f"neighbors[0] must hold row numbers (integers); got dtype {indices.dtype}.")
    outside = np.flatnonzero(((indices < -1) | (indices >= len(indices))).any(axis=1))
    if outside.size:
        raise ValueError(
            f"neighbors[0] must lie between 0 and {len(indices) - 1} (or be -1 for none); others in "
            f"{checks.rows_named(outside)}."
        )
    used = distances[indices >= 0]
    if used.dtype.kind not in "fiu" or not np.isfinite(used).all() or (used < 0).any():
        raise ValueError("neighbors[1] must hold finite distances of at least 0 (not squared, not similarities).")
    if (longest := float(used.max(initial=0))) > 1e120:
        raise ValueError(f"neighbors[1] must hold distances below 1e120; got {longest:.3g}. Scale them down.")


def _tidy(indices: np.ndarray, distances: np.ndarray, n_neighbors: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Drop the rows themselves and repeats, sort, and cut to n_neighbors."""
    indices = np.where(indices == np.arange(len(indices))[:, None], -1, indices)
    distances = np.where(indices >= 0, distances, np.inf)
    by = np.lexsort((distances, indices), axis=1)
    indices, distances = np.take_along_axis(indices, by, 1), np.take_along_axis(distances, by, 1)
    repeated = np.zeros(indices.shape, bool)
    repeated[:, 1:] = indices[:, 1:] == indices[:, :-1]
    indices, distances = np.where(repeated, -1, indices), np.where(repeated, np.inf, distances)
    longest = max(1, int((indices >= 0).sum(axis=1).max()))
    if n_neighbors is not None and n_neighbors > longest:
        raise ValueError(
            f"n_neighbors must be at most {longest}, the longest list in neighbors; got {n_neighbors}. Leave it out."
        )
    distances, indices = keep_nearest(distances, indices, n_neighbors or longest)
    return indices, distances


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
