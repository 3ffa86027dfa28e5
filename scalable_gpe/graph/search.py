"""Choice of the neighbour search, and its lists in one form for all searches."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np

from scalable_gpe.execution.context import Context
from scalable_gpe.execution.panels import Panel, Panels
from scalable_gpe.execution.process import process
from scalable_gpe.execution.resources import TREE_FEATURES, TREE_ROWS
from scalable_gpe.graph.brute import AllPairs
from scalable_gpe.graph.products import Jaccard, Products, SparseRows, list_squares, nearest
from scalable_gpe.graph.recall import ExactSample
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


class NeighborLists(Protocol):
    """Lists in storage order: row i is row ``order[i]`` of the source; the lists hold row numbers of the source.

    ``lists(start, stop)`` returns neighbours and squared distances (float32 of an exact float64 sum) of some rows, each
    list sorted by (squared distance, row); ``rows(start, stop)`` returns the rows themselves. ``trace`` is the recall
    after each step of an approximate search.
    """

    @property
    def order(self) -> np.ndarray: ...
    @property
    def trace(self) -> tuple[float, ...]: ...
    def lists(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]: ...
    def rows(self, start: int, stop: int) -> np.ndarray: ...


def choose_method(method: str, n_points: int, n_features: int, n_neighbors: int, metric: str = "euclidean") -> str:
    """Choose the search for these points: an exact one if that is affordable."""
    if method != "auto":
        return method
    if metric == "jaccard":
        return "brute" if n_points <= _BRUTE_ROWS or 4 * n_neighbors >= n_points else "pynndescent"
    if n_points <= _BRUTE_ROWS or 4 * n_neighbors >= n_points:
        return "kdtree" if n_features <= 3 and n_points > 1000 and 4 * n_neighbors < n_points else "brute"
    return "kdtree" if n_features <= TREE_FEATURES and n_points <= TREE_ROWS else "cells"


def search(
    points: Rows,
    n_neighbors: int,
    method: str,
    sample: ExactSample,
    parameters: SearchParameters,
    context: Context,
    name: str,
    products: Products | None = None,
    n_parts: int = 1,
) -> NeighborLists:
    """Find `n_neighbors` other rows for each row of `points` (float32, all distinct)."""
    if method != "cells":
        return _IndexedLists(points, n_neighbors, method, parameters.random_state, context, products)
    from scalable_gpe.graph.cells.rounds import search_cells

    return search_cells(
        points,
        n_neighbors,
        sample,
        context,
        f"{name}/search",
        random_state=parameters.random_state,
        recall=parameters.recall,
        part_rows=-(-points.n_rows // n_parts),
    )


class _Index(NamedTuple):
    """All rows (an array or a CSR matrix), and a function that finds the neighbours of some of them."""

    X: Any
    indices: Indices


class _IndexedLists:
    """A search that needs all rows at once; each process that computes lists makes its own index, once.

    The rows of a large k-d tree are first arranged by the cells of a grid: then a query finds what it reads close
    together, and few pages of mapped rows are in memory.

    The storage order is computed in this process only and shared: another build of a library may order points
    otherwise. So are the lists of pynndescent, because its result depends on where it runs.
    """

    trace = ()

    def __init__(
        self,
        points: Rows,
        n_neighbors: int,
        method: str,
        random_state: int,
        context: Context,
        products: Products | None,
    ) -> None:
        self._points, self._n_neighbors, self._method = points, n_neighbors, method
        self._products = None if isinstance(products, SparseRows) and method != "brute" else products
        self._random_state, self._n_jobs, self._empty = random_state, context.workers.n_jobs, context.empty
        self._key = (context.token, context.scratch())
        self._found: Panel | None = None
        self._arranged: Panel | None = None
        panels = Panels(context)
        if method == "kdtree" and points.n_rows > _ARRANGED_ROWS:
            self._arranged = panels.of(by_grid_cell(self._read_rows(), context.empty))
        self._index, order = self._search()
        self._shared_order = panels.of(context.filled(len(order), np.int64, lambda start, stop: order[start:stop]))
        self.order = context.filled(len(order), np.int64, lambda start, stop: self._named(order[start:stop]))
        if method == "pynndescent":
            self._found = panels.of(self._index.indices(np.arange(len(order))))

    def _search(self) -> tuple[_Index, np.ndarray]:
        """Make the index; return it with the storage order that it suggests."""
        X = self._read()
        if self._method == "brute":
            return _Index(X, self._exactly(X)), np.arange(X.shape[0])
        order, indices = self._kdtree(X) if self._method == "kdtree" else self._pynndescent(X)
        return _Index(X, indices), order

    def _kdtree(self, X: np.ndarray) -> tuple[np.ndarray, Indices]:
        from scipy.spatial import cKDTree

        m, doubles = self._n_neighbors, self._empty(X.shape, np.float64)
        for start, stop in pieces(len(X)):
            doubles[start:stop] = X[start:stop]
        tree = cKDTree(doubles)

        def indices(rows: np.ndarray) -> np.ndarray:
            found = np.empty((len(rows), m), np.int32)
            for start, stop in pieces(len(rows), _QUERIED):
                some = rows[start:stop]
                found[start:stop] = drop_self(tree.query(X[some], k=m + 1)[1], some)
            return found

        return np.asarray(tree.indices), indices

    def _exactly(self, X: Any) -> Indices:
        """The function that finds the neighbours of some rows among all rows."""
        products, m = self._products, self._n_neighbors
        if products is None:
            return AllPairs(X, m).neighbors
        return lambda rows: drop_self(nearest(products, X, rows, m + 1), rows)

    def _pynndescent(self, X: np.ndarray) -> tuple[np.ndarray, Indices]:
        from pynndescent import NNDescent

        index = NNDescent(
            np.array(X, order="C"),  # a read-only array makes it compile a second time
            n_neighbors=self._n_neighbors + 1,
            metric="jaccard" if isinstance(self._products, Jaccard) else "euclidean",
            random_state=self._random_state % 2**31,
            n_jobs=self._n_jobs,
        )
        found = repair(drop_self(index.neighbor_graph[0], np.arange(len(X))), self._exactly(X))
        return locality(X), found.__getitem__

    def _named(self, rows: np.ndarray) -> np.ndarray:
        """Rows of the index as row numbers of the source."""
        return rows if self._arranged is None else self._arranged.whole()[rows]

    def _read(self) -> Any:
        """All rows as an array, or as a sparse matrix, as the index has them."""
        if isinstance(self._products, SparseRows):
            return self._products.read(self._points)
        X = self._read_rows()
        if self._arranged is None:
            return X
        arranged, order = self._empty(X.shape, X.dtype), self._arranged.whole()
        for start, stop in pieces(len(X)):
            arranged[start:stop] = X[order[start:stop]]
        return arranged

    def _read_rows(self) -> np.ndarray:
        """All rows of the source."""
        n_rows, n_features = self._points.n_rows, self._points.n_features
        if self._points.resident:
            return np.ascontiguousarray(self._points.read(0, n_rows))
        X = self._empty((n_rows, n_features), np.float32)
        for start, stop in pieces(n_rows, max(1, _READ_ENTRIES // max(n_features, 1))):
            X[start:stop] = self._points.read(start, stop)
        return X

    @cached_property
    def _index(self) -> _Index:
        """The index of a process that was sent these lists."""
        made: _Index = process.once(self._key, self._make)
        return made

    def _make(self) -> _Index:
        if self._found is None:
            return self._search()[0]
        return _Index(self._read(), self._found.whole().__getitem__)

    def __getstate__(self) -> object:
        here = ("_index", "order")
        return {name: value for name, value in vars(self).items() if name not in here} | {"_n_jobs": 1}

    def rows(self, start: int, stop: int) -> np.ndarray:
        """Rows in storage order."""
        X, order = self._index.X, self._shared_order.rows(start, stop)
        return np.take(X, order, axis=0) if isinstance(X, np.ndarray) else X[order].toarray().astype(np.float32)

    def lists(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Lists with exact distances."""
        from scalable_gpe.loops import points as loops

        X, indices = self._index
        rows = self._shared_order.rows(start, stop)
        neighbors = np.ascontiguousarray(indices(rows))
        squared = np.empty(neighbors.shape, np.float32)
        if self._products is None:
            loops.list_squares(X, rows, neighbors, squared)
        else:
            list_squares(self._products, X, rows, neighbors, squared)
        if self._method != "brute" or self._products is not None:  # dense lists of brute force are in order
            rank = np.arange(X.shape[0], dtype=np.int32) if self._arranged is None else self._arranged.whole()
            loops.order_lists(neighbors, squared, rank)
        return self._named(neighbors), squared


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
