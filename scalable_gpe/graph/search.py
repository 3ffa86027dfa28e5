"""Neighbour search: which one, and its lists in one form, whoever made them."""

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from scalable_gpe.execution.context import Context, once
from scalable_gpe.execution.panels import Panel, Panels
from scalable_gpe.graph.points import RowSubset
from scalable_gpe.storage.protocol import ranges

METHODS = ("auto", "kdtree", "brute", "cells", "pynndescent")
EXACT = ("kdtree", "brute")

Indices = Callable[[np.ndarray], np.ndarray]

_TREE_FEATURES = 8
_BRUTE_ROWS = 20_000
_CHUNK_ROWS = 4096  # shards of the tables of parts are a multiple of their chunks
_SHARD_BYTES = 2**24


class Found(NamedTuple):
    """Lists in storage order: row i stands for row ``order[i]`` of the source, whose row numbers they hold.

    ``lists(start, stop)`` gives neighbours and squared distances (float32 of an exact float64 sum) of some rows, each
    list sorted by (squared distance, row); ``points(start, stop)`` the rows themselves.
    """

    order: np.ndarray
    lists: Callable[[int, int], tuple[np.ndarray, np.ndarray]]
    points: Callable[[int, int], np.ndarray]


def choose_method(method: str, n_points: int, n_features: int, n_neighbors: int) -> str:
    """Search that suits a part: exact where that is affordable."""
    if method != "auto":
        return method
    if n_points <= _BRUTE_ROWS or 4 * n_neighbors >= n_points:
        return "kdtree" if n_features <= 3 and n_points > 1000 and 4 * n_neighbors < n_points else "brute"
    return "kdtree" if n_features <= _TREE_FEATURES else "cells"


def search(
    points: Any, n_neighbors: int, method: str, *, random_state: int, recall: float, context: Context, name: str
) -> Found:
    """Lists of `n_neighbors` other rows for each row of `points` (float32, all distinct)."""
    if method == "cells":
        return _cells(points, n_neighbors, random_state, recall, context, name)
    exact = _Exact(points, n_neighbors, method, random_state, context)
    return Found(exact.order.astype(np.int64), exact.lists, exact.rows)


class _Exact:
    """A search that knows all rows; each process that is asked for lists loads them and makes its own index, once.

    pynndescent searches in this process alone, because its result depends on where it runs.
    """

    def __init__(self, points: Any, n_neighbors: int, method: str, random_state: int, context: Context) -> None:
        self._points, self._n_neighbors, self._method = points, n_neighbors, method
        self._random_state, self._n_jobs, self._key = (
            random_state,
            context.workers.n_jobs,
            (context.token, context.scratch()),
        )
        self._found: Panel | None = None
        self._away = False
        if method == "pynndescent" and context.workers.remote:
            order, indices = self._index[1:]
            self._found = Panels(context, context.scratch()).of(indices(np.arange(len(order))))

    @cached_property
    def _index(self) -> tuple[np.ndarray, np.ndarray, Indices]:
        return once(self._key, self._make) if self._away else self._make()

    def _make(self) -> tuple[np.ndarray, np.ndarray, Indices]:
        X = np.ascontiguousarray(self._points.read(0, self._points.n_rows))
        if self._found is not None:
            return X, locality(X), self._found.whole().__getitem__
        searches = {"kdtree": _kdtree, "brute": _brute, "pynndescent": _pynndescent}
        return X, *searches[self._method](X, self._n_neighbors, self._random_state, self._n_jobs)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_index"} | {"_n_jobs": 1, "_away": True}

    @property
    def order(self) -> np.ndarray:
        """Storage order."""
        return self._index[1]

    def rows(self, start: int, stop: int) -> np.ndarray:
        """Rows in storage order."""
        X, order, _ = self._index
        return X[order[start:stop]]

    def lists(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Lists with exact distances."""
        from scalable_gpe.loops import points as kernels

        X, order, indices = self._index
        rows = order[start:stop]
        neighbors = np.ascontiguousarray(indices(rows))
        squared = np.empty(neighbors.shape, np.float32)
        kernels.list_squares(X, rows, neighbors, squared)
        kernels.order_lists(neighbors, squared, np.arange(len(X)))
        return neighbors, squared


def _cells(points: Any, n_neighbors: int, random_state: int, recall: float, context: Context, name: str) -> Found:
    from scalable_gpe.graph.cells import rounds as cells

    sizes = cells.plan(points.n_rows, points.n_features, n_neighbors)
    tables = _parted_tables(context, f"{name}/search", sizes) if context.store.stored else cells.held
    panels = Panels(context, context.scratch())
    with context.workers.progress.stage("search", 3 * sizes.n_parts):
        lists = cells.search_rows(
            points,
            n_neighbors,
            tables=tables,
            done=Done(context, f"{name}/search/done"),  # type: ignore[arg-type]
            random_state=random_state,
            n_jobs=context.workers.n_jobs,
            n_held=_parts_held(sizes, context),
            recall=recall,
            workers=context.workers,
            share=panels.of,
            piece_rows=context.block_rows(points.n_rows),
        )
    panels.clear()
    found = _Lists(lists.neighbors, lists.distances)
    if lists.rows is not None:
        return Found(lists.order, found.read, lists.rows.read)
    return Found(lists.order, found.read, RowSubset(points, lists.order).read)


class _Lists(NamedTuple):
    """Lists that stand in two tables."""

    neighbors: Any
    distances: Any

    def read(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Lists of some rows."""
        return self.neighbors.read(start, stop), self.distances.read(start, stop)


def _parts_held(sizes: Any, context: Context) -> int:
    """Parts that are searched at once: threads share a part, so more than one only fills gaps."""
    if not context.store.stored:
        return 1
    part = sizes.part_rows * (12 * sizes.n_features + 40 * sizes.n_neighbors)
    return int(np.clip(context.spare_bytes() // part, 1, 2))


class Done:
    """Pieces of work that a home remembers as finished, and that count as progress."""

    def __init__(self, context: Context, name: str) -> None:
        self._home, self._progress, self._name = context.store, context.workers.progress, name

    def _key(self, piece: tuple[Any, ...]) -> str:
        return f"{self._name}/{'-'.join(map(str, piece))}"

    def __contains__(self, piece: tuple[Any, ...]) -> bool:
        return self._home.metadata(self._key(piece)) is not None

    def add(self, piece: tuple[Any, ...]) -> None:
        """Remember a piece."""
        self._home.commit(self._key(piece), {})
        self._progress.advance()


def _parted_tables(context: Context, name: str, sizes: Any) -> Callable[[str, tuple[int, int], type], Any]:
    starts = np.array([sizes.part(part)[0] for part in range(sizes.n_parts)] + [sizes.n_rows])

    def make(table: str, shape: tuple[int, int], dtype: type) -> Any:
        row_bytes = shape[1] * np.dtype(dtype).itemsize
        longest = int(np.diff(starts).max())
        # a shard is copied some times while it is written, so that a part of wide rows has several
        n_shards = max(1, longest * row_bytes // _SHARD_BYTES)
        shard = -(-longest // (n_shards * _CHUNK_ROWS)) * _CHUNK_ROWS
        part_rows = -(-longest // shard) * shard
        shape = (part_rows * sizes.n_parts, shape[1])
        return _Parted(context.store.table(f"{name}/{table}", shape, dtype, shard_rows=shard), starts, part_rows)

    return make


class _Parted:
    """A table that is written part by part; each part begins at a shard of its own, `part_rows` after the last one."""

    def __init__(self, table: Any, starts: np.ndarray, part_rows: int) -> None:
        self._table, self._starts, self._part_rows = table, starts, part_rows

    def _place(self, ids: np.ndarray) -> np.ndarray:
        part = np.searchsorted(self._starts, ids, side="right") - 1
        return part * self._part_rows + ids - self._starts[part]

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows start to stop."""
        bounds = self._starts[(self._starts > start) & (self._starts < stop)]
        cuts = [start, *bounds.tolist(), stop]
        places = self._place(np.array(cuts[:-1]))
        parts = [
            self._table.read(int(place), int(place) + last - first)
            for place, first, last in zip(places, cuts[:-1], cuts[1:], strict=True)
        ]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def take(self, ids: np.ndarray) -> np.ndarray:
        """Rows by number, in any order."""
        places = self._place(np.asarray(ids))
        if (places[1:] >= places[:-1]).all():
            return self._table.take(places)
        by = np.argsort(places, kind="stable")
        out = np.empty((len(places), self._table.shape[1]), self._table.dtype)
        out[by] = self._table.take(places[by])
        return out

    def write(self, start: int, values: np.ndarray, order: np.ndarray | None = None) -> None:
        """Write one whole part, shard by shard: the rows, or the rows in an order."""
        first = int(self._place(np.array([start]))[0])
        for begin, end in ranges(self._part_rows, self._table.shard_rows):
            rows = values[begin:end] if order is None else values[order[begin:end]]
            padding = np.zeros((end - begin - len(rows), self._table.shape[1]), self._table.dtype)
            self._table.write(first + begin, np.concatenate([rows, padding]) if len(padding) else rows)


def _kdtree(X: np.ndarray, n_neighbors: int, random_state: int, n_jobs: int) -> tuple[np.ndarray, Indices]:
    from scipy.spatial import cKDTree

    tree = cKDTree(X)

    def indices(rows: np.ndarray) -> np.ndarray:
        return drop_self(tree.query(X[rows], k=n_neighbors + 1)[1], rows)

    return np.asarray(tree.indices), indices


def _brute(X: np.ndarray, n_neighbors: int, random_state: int, n_jobs: int) -> tuple[np.ndarray, Indices]:
    from sklearn.neighbors import NearestNeighbors
    from threadpoolctl import threadpool_limits

    # centred, so that the expanded square |x|^2 - 2xy + |y|^2 does not cancel; a far point must not move the centre
    centred = X.astype(np.float64) - np.median(X, axis=0)
    model = NearestNeighbors(n_neighbors=n_neighbors + 1, algorithm="brute").fit(centred)

    def indices(rows: np.ndarray) -> np.ndarray:
        # one thread: with several, which of many equally far points are listed depends on their number
        with threadpool_limits(1):
            return drop_self(model.kneighbors(centred[rows], return_distance=False), rows)

    return np.arange(len(X)), indices


def _pynndescent(X: np.ndarray, n_neighbors: int, random_state: int, n_jobs: int) -> tuple[np.ndarray, Indices]:
    from pynndescent import NNDescent

    writable = np.array(X, order="C")  # a read-only array makes it compile a second time
    index = NNDescent(writable, n_neighbors=n_neighbors + 1, random_state=random_state % 2**31, n_jobs=n_jobs)
    found = repair(X, drop_self(index.neighbor_graph[0], np.arange(len(X))))
    return locality(X), found.__getitem__


def drop_self(found: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Lists of m + 1 rows without the row itself; without the last one where the row is not there."""
    own = found == rows[:, None]
    own[~own.any(axis=1), -1] = True
    own &= np.cumsum(own, axis=1) == 1
    return found[~own].reshape(len(found), -1).astype(np.int32)


def repair(X: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Search rows anew, exactly, whose list has a -1, a repeat or the row itself."""
    ranked = np.sort(indices, axis=1)
    bad = (ranked[:, 0] < 0) | (ranked[:, 1:] == ranked[:, :-1]).any(axis=1)
    bad |= (indices == np.arange(len(indices))[:, None]).any(axis=1)
    rows = np.flatnonzero(bad)
    if not len(rows):
        return indices
    from sklearn.neighbors import NearestNeighbors

    model = NearestNeighbors(n_neighbors=indices.shape[1] + 1, algorithm="brute").fit(X)
    indices = indices.copy()
    indices[rows] = drop_self(model.kneighbors(X[rows], return_distance=False), rows)
    return indices


def locality(X: np.ndarray) -> np.ndarray:
    """Leaf order of a k-d tree on the three leading directions of a sample: neighbours near each other."""
    from scipy.spatial import cKDTree

    if X.shape[1] > 3:
        sample = X[:: max(1, len(X) // 4096)].astype(np.float64)
        sample = sample - sample.mean(axis=0)
        directions = np.linalg.svd(sample, full_matrices=False)[2][:3]
        X = X @ directions.T.astype(np.float32)
    return np.asarray(cKDTree(X, balanced_tree=False, compact_nodes=False).indices)
