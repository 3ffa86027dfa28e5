"""The neighbour lists in one form for all searches, the choice of a search, and those that need all rows at once."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from scalable_gpe.execution.context import Context
from scalable_gpe.execution.resources import TREE_FEATURES, TREE_ROWS
from scalable_gpe.graph.exact import AllPairs, Jaccard, Products, SparseRows, list_squares, nearest
from scalable_gpe.io.rows import Rows
from scalable_gpe.storage.mapped import Empty, pieces

METHODS = ("auto", "kdtree", "brute", "cells", "pynndescent")

Indices = Callable[[np.ndarray], np.ndarray]

_BRUTE_ROWS = 20_000
_ARRANGED_ROWS = 2**18  # beyond, the rows of a k-d tree are arranged by the cells of a grid
_QUERIED = 8192  # rows that a k-d tree is asked for at a time: its answers take four times the memory of the lists
_READ_ENTRIES = 2**22  # entries of rows that are read at a time


@dataclass(frozen=True)
class SearchParameters:
    """Parameters of a search; they enter the name of the graph."""

    n_neighbors: int | None
    metric: str
    method: str
    recall: float
    random_state: int
    scale: str | None = None


class NeighborLists(NamedTuple):
    """Lists in storage order: row i is row ``order[i]`` of the source; the lists hold row numbers of the source.

    ``lists(start, stop)`` returns neighbours and squared distances (float32 of an exact float64 sum) of some rows, each
    list sorted by (squared distance, row); ``rows(start, stop)`` returns the rows themselves. ``trace`` is the recall
    after each step of an approximate search.
    """

    order: np.ndarray
    lists: Callable[[int, int], tuple[np.ndarray, np.ndarray]]
    rows: Callable[[int, int], np.ndarray]
    trace: tuple[float, ...] = ()


def choose_method(method: str, n_points: int, n_features: int, n_neighbors: int, metric: str = "euclidean") -> str:
    """Choose the search for these points: an exact one if that is affordable."""
    if method != "auto":
        return method
    if metric == "jaccard":
        return "brute" if n_points <= _BRUTE_ROWS or 4 * n_neighbors >= n_points else "pynndescent"
    if n_points <= _BRUTE_ROWS or 4 * n_neighbors >= n_points:
        return "kdtree" if n_features <= 3 and n_points > 1000 and 4 * n_neighbors < n_points else "brute"
    return "kdtree" if n_features <= TREE_FEATURES and n_points <= TREE_ROWS else "cells"


def search_all(
    points: Rows, n_neighbors: int, method: str, random_state: int, context: Context, products: Products | None = None
) -> NeighborLists:
    """Find `n_neighbors` other rows for each row (float32, all distinct) among all of them, in this process.

    The rows of a large k-d tree are first arranged by the cells of a grid: then a query finds what it reads close
    together, and few pages of mapped rows are in memory.
    """
    empty, arranged = context.empty, None
    if isinstance(products, SparseRows):
        products = products if method == "brute" else None
    X = products.read(points) if isinstance(products, SparseRows) else _read_rows(points, empty)
    if method == "kdtree" and len(X) > _ARRANGED_ROWS:
        arranged = by_grid_cell(X, empty)
        X = _taken(X, arranged, empty)
    if method == "kdtree":
        order, neighbors_of = _kdtree(X, n_neighbors, empty)
    elif method == "pynndescent":
        order, neighbors_of = _pynndescent(X, n_neighbors, random_state, context.workers.n_jobs, products)
    else:
        order, neighbors_of = np.arange(X.shape[0]), _exactly(X, n_neighbors, products)
    is_ordered = method == "brute" and products is None

    def named(rows: np.ndarray) -> np.ndarray:
        """Row numbers of the source."""
        return rows if arranged is None else arranged[rows]

    def lists(start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        from scalable_gpe.loops import points as loops

        rows = np.asarray(order[start:stop])
        neighbors = np.ascontiguousarray(neighbors_of(rows))
        squared = np.empty(neighbors.shape, np.float32)
        if products is None:
            loops.list_squares(X, rows, neighbors, squared)
        else:
            list_squares(products, X, rows, neighbors, squared)
        if not is_ordered:
            rank = np.arange(X.shape[0], dtype=np.int32) if arranged is None else arranged
            loops.order_lists(neighbors, squared, rank)
        return named(neighbors), squared

    def stored_rows(start: int, stop: int) -> np.ndarray:
        rows = order[start:stop]
        return np.take(X, rows, axis=0) if isinstance(X, np.ndarray) else X[rows].toarray().astype(np.float32)

    in_source = context.filled(len(order), np.int64, lambda start, stop: named(order[start:stop]))
    return NeighborLists(in_source, lists, stored_rows)


def _read_rows(points: Rows, empty: Empty) -> np.ndarray:
    if points.resident:
        return np.ascontiguousarray(points.read(0, points.n_rows))
    X = empty((points.n_rows, points.n_features), np.float32)
    for start, stop in pieces(points.n_rows, max(1, _READ_ENTRIES // max(points.n_features, 1))):
        X[start:stop] = points.read(start, stop)
    return X


def _taken(X: np.ndarray, order: np.ndarray, empty: Empty) -> np.ndarray:
    rows = empty(X.shape, X.dtype)
    for start, stop in pieces(len(X)):
        rows[start:stop] = X[order[start:stop]]
    return rows


def _kdtree(X: np.ndarray, n_neighbors: int, empty: Empty) -> tuple[np.ndarray, Indices]:
    """The order of the leaves, and the function that finds the neighbours of some rows."""
    from scipy.spatial import cKDTree

    doubles = empty(X.shape, np.float64)
    for start, stop in pieces(len(X)):
        doubles[start:stop] = X[start:stop]
    tree = cKDTree(doubles)

    def neighbors_of(rows: np.ndarray) -> np.ndarray:
        found = np.empty((len(rows), n_neighbors), np.int32)
        for start, stop in pieces(len(rows), _QUERIED):
            some = rows[start:stop]
            found[start:stop] = drop_self(tree.query(X[some], k=n_neighbors + 1)[1], some)
        return found

    return np.asarray(tree.indices), neighbors_of


def _exactly(X: Any, n_neighbors: int, products: Products | None) -> Indices:
    if products is None:
        return AllPairs(X, n_neighbors).neighbors
    return lambda rows: drop_self(nearest(products, X, rows, n_neighbors + 1), rows)


def _pynndescent(
    X: np.ndarray, n_neighbors: int, random_state: int, n_jobs: int, products: Products | None
) -> tuple[np.ndarray, Indices]:
    from pynndescent import NNDescent

    index = NNDescent(
        np.array(X, order="C"),  # a read-only array makes it compile a second time
        n_neighbors=n_neighbors + 1,
        metric="jaccard" if isinstance(products, Jaccard) else "euclidean",
        random_state=random_state % 2**31,
        n_jobs=n_jobs,
    )
    found = drop_self(index.neighbor_graph[0], np.arange(len(X)))
    return locality(X), repair(found, _exactly(X, n_neighbors, products)).__getitem__


def by_grid_cell(X: np.ndarray, empty: Empty) -> np.ndarray:
    """Rows by their cells in a grid of at most 2**16 cells."""
    from scalable_gpe.loops import search as loops

    n_bits = 16 // X.shape[1]
    low, high = np.full(X.shape[1], np.inf, np.float32), np.full(X.shape[1], -np.inf, np.float32)
    for start, stop in pieces(len(X)):
        low, high = np.minimum(low, X[start:stop].min(axis=0)), np.maximum(high, X[start:stop].max(axis=0))
    width = np.where(high > low, high - low, 1)
    cells = empty((len(X),), np.uint16)
    for start, stop in pieces(len(X)):
        at = np.minimum((X[start:stop] - low) / width * 2**n_bits, 2**n_bits - 1).astype(np.uint16)
        number = np.zeros(stop - start, np.uint16)
        for column in at.T:
            number = (number << np.uint16(n_bits)) | column
        cells[start:stop] = number
    rows = empty((len(X),), np.int32)
    loops.sort_by_cell(cells, 2**16, rows)
    return rows


def drop_self(found: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Drop the row itself from lists of m + 1 rows, or the last entry of a list that does not hold it."""
    own = found == rows[:, None]
    own[~own.any(axis=1), -1] = True
    own &= np.cumsum(own, axis=1) == 1
    kept: np.ndarray = found[~own].reshape(len(found), -1)
    return kept.astype(np.int32)


def repair(found: np.ndarray, exactly: Indices) -> np.ndarray:
    """Search again, exactly, for rows whose list has a -1, a repeat or the row itself."""
    ranked = np.sort(found, axis=1)
    unsound = (ranked[:, 0] < 0) | (ranked[:, 1:] == ranked[:, :-1]).any(axis=1)
    rows = np.flatnonzero(unsound | (found == np.arange(len(found))[:, None]).any(axis=1))
    if len(rows):
        found = found.copy()
        found[rows] = exactly(rows)
    return found


def locality(X: np.ndarray) -> np.ndarray:
    """Leaf order of a k-d tree on the three leading directions of a sample, which keeps neighbours near each other."""
    from scipy.spatial import cKDTree

    if X.shape[1] > 3:
        sample = X[:: max(1, len(X) // 4096)].astype(np.float64)
        sample = sample - sample.mean(axis=0)
        directions = np.linalg.svd(sample, full_matrices=False)[2][:3]
        X = X @ directions.T.astype(np.float32)
    return np.asarray(cKDTree(X, balanced_tree=False, compact_nodes=False).indices)
