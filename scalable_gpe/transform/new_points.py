"""New points: y(x) = a(x, .) A^(p-1) G / sqrt(k), with the row of the kernel that x would have had.

The row a(x, .) = s(x) k(x, .) S holds the points j that are among the n_neighbors nearest of x *or* that would list x,
|x - x_j| <= r_j with r_j the distance from j to its last neighbour: the pattern of a training row. Its scale follows
the rule of the training rows,

    bistochastic:  s(x) = 1 / sum_j k(x, x_j) s_j
    symmetric:     s(x) = 1 / (q(x) sqrt(v(x))),  q(x) = sum_j k(x, x_j),  v(x) = sum_j k(x, x_j) / (q(x) q_j)

(each sum over all rows, duplicates included). With local length scales, that of x follows from its distances to the
training points by the rule of the training rows. Both scales leave y(x) unchanged when k(x, .) is multiplied by a
number, so the smallest exponent is subtracted first and no row is ever 0 / 0.

The search for these points is exact: all points are scanned in leaves of neighbouring points, and leaves whose bounding
box is too far are skipped. In low dimension that leaves a few hundred distances per row; in high dimension up to all N.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from scalable_gpe.errors import ConnectivityWarning, GPEWarning, warn
from scalable_gpe.execution.context import Context
from scalable_gpe.graph.neighbors import NeighborGraph, in_stored_units
from scalable_gpe.graph.precomputed import PRECOMPUTED
from scalable_gpe.heat.normalization import HeatKernel, row_sums
from scalable_gpe.io.anndata_input import is_anndata, read_anndata
from scalable_gpe.io.files import read_features
from scalable_gpe.io.labels import Annotations
from scalable_gpe.io.points import Points, first_names
from scalable_gpe.io.rows import InputRows, Rows, naming_all_rows, open_rows
from scalable_gpe.sketch.rotation import Axes
from scalable_gpe.storage.backends import StorageOptions
from scalable_gpe.storage.blocks import ranges
from scalable_gpe.storage.mapped import take_rows
from scalable_gpe.storage.store import Table

_LEAF = 64
_MOST_LEAVES = 2**18
_CHUNK_ROWS = 32  # rows that are searched together, so that a leaf is read from cache
_BLOCK_LEAVES = 256
_BLOCK_ENTRIES = 2**22  # wide rows: fewer leaves in a block
_HEADS_AT_ONCE = 1024
_BATCH_ROWS = 1024
_LEAST_WEIGHT = 1e-12  # a smaller weight connects rows no more than in the components of K


@dataclass
class Chunk:
    """Some new rows, and what the search has found for them so far."""

    rows: np.ndarray
    limits: np.ndarray
    best: np.ndarray
    nearest: np.ndarray
    match: np.ndarray
    hits: list[tuple[np.ndarray, np.ndarray]]


class Leaves:
    """Stored points in leaves of neighbours with bounding boxes; held in memory if they fit, else read in blocks."""

    def __init__(self, points: Rows, radius: np.ndarray, context: Context) -> None:
        self._points, self._context = points, context
        self._radius = np.ascontiguousarray(radius, dtype=np.float32)
        n_points, n_features = points.n_rows, points.n_features
        self._size = _LEAF
        while n_points > self._size * _MOST_LEAVES:
            self._size *= 2
        self._n_leaves = -(-n_points // self._size)
        self._low, self._high, self._heads = (np.empty((n_features, self._n_leaves), np.float32) for _ in range(3))
        self._reach = np.maximum.reduceat(self._radius.astype(np.float64) ** 2, np.arange(0, n_points, self._size))
        # squares of larger coordinates would overflow in single precision
        self._safe = float(np.sqrt(1e37 / n_features))
        # screening adds up float32 squares: its relative error is below this
        self._slack = 1 - 4e-7 * (n_features + 8)
        at_once = max(1, min(_BLOCK_LEAVES, _BLOCK_ENTRIES // (self._size * n_features)))
        self._blocks = ranges(self._n_leaves, at_once)
        self._held: dict[tuple[int, int], np.ndarray] = {}
        self._hold = context.plan.holds(4 * self._n_leaves * self._size * n_features)
        context.workers.here.map(self._box, self._blocks, count=False)
        self._largest = float(max(np.abs(self._low).max(), np.abs(self._high).max()))

    def _box(self, block: tuple[int, int]) -> None:
        leaves, some = self._read(block), slice(*block)
        self._low[:, some], self._heads[:, some] = leaves.min(axis=2).T, leaves[:, :, 0].T
        self._high[:, some] = np.where(np.isinf(leaves), -np.inf, leaves).max(axis=2).T  # the last leaf is filled up
        if self._hold:
            self._held[block] = leaves

    def _read(self, block: tuple[int, int]) -> np.ndarray:
        if block in self._held:
            return self._held[block]
        rows = self._points.read(block[0] * self._size, min(block[1] * self._size, self._points.n_rows))
        padded = np.full(((block[1] - block[0]) * self._size, rows.shape[1]), np.inf, np.float32)
        padded[: len(rows)] = rows
        return np.ascontiguousarray(padded.reshape(-1, self._size, rows.shape[1]).transpose(0, 2, 1))

    def search(self, rows: np.ndarray, n_neighbors: int, user_row: np.ndarray) -> list[Chunk]:
        """Find the nearest points of each row, and the points that would list it."""
        chunks = self._context.workers.here.map(
            lambda piece: self._start(rows[slice(*piece)], n_neighbors), ranges(len(rows), _CHUNK_ROWS), count=False
        )
        for blocks in [self._blocks] if self._hold else [[block] for block in self._blocks]:
            read = [(block, self._read(block)) for block in blocks]

            def visit(chunk: Chunk, read: list[tuple[tuple[int, int], np.ndarray]] = read) -> None:
                for block, leaves in read:
                    self._visit(chunk, block, leaves, user_row)

            self._context.workers.here.map(visit, chunks, count=False)
        return chunks

    def _dtype(self, rows: np.ndarray) -> npt.DTypeLike:
        """Type of the screening sums: float64 where squares might overflow."""
        return np.float32 if max(self._largest, float(np.abs(rows).max())) < self._safe else np.float64

    def _start(self, rows: np.ndarray, n_neighbors: int) -> Chunk:
        from scalable_gpe.loops import points as loops

        n_rows = len(rows)
        limits, best = np.full(n_rows, np.inf), np.full((n_rows, n_neighbors), np.inf)
        nearest = np.full((n_rows, n_neighbors), -1, np.int32)
        if self._n_leaves >= n_neighbors:
            sums = np.empty(min(_HEADS_AT_ONCE, self._n_leaves), self._dtype(rows))
            loops.seed_limits(rows, self._heads, sums, nearest[0], best, limits)
            best[:], nearest[0] = np.inf, -1
        return Chunk(rows, limits / self._slack, best, nearest, np.full(n_rows, -1, np.int64), [])

    def _visit(self, chunk: Chunk, block: tuple[int, int], leaves: np.ndarray, user_row: np.ndarray) -> None:
        from scalable_gpe.loops import points as loops

        dtype = self._dtype(chunk.rows)
        bounds = np.empty((len(chunk.rows), len(leaves)), dtype)
        loops.bound_leaves(chunk.rows, self._low, self._high, block[0], bounds)
        # room for every pair: the system allocates only the pages that are written
        room = len(chunk.rows) * len(leaves) * self._size
        hits, squares = np.empty((room, 2), np.int32), np.empty(room)
        n_hits = loops.search_leaves(
            chunk.rows,
            leaves,
            block[0],
            bounds,
            self._reach,
            self._radius,
            user_row,
            self._slack,
            np.empty(self._size, dtype),
            chunk.limits,
            chunk.best,
            chunk.nearest,
            chunk.match,
            hits,
            squares,
        )
        chunk.hits.append((hits[:n_hits].copy(), squares[:n_hits].copy()))


@dataclass(frozen=True)
class Extension:
    """A function on the training points that is extended to new points: columns Z, and its known values.

    ``tables`` hold Z (storage order) for ranges of columns, of which the first ``n_columns`` are used, ``values`` (a
    numpy or zarr array) the values of the training rows (the user's order); the sums are multiplied by ``factor``, and
    rotated to ``axes`` if there are any.
    """

    tables: Sequence[Table]
    values: Any
    n_columns: int
    factor: float = 1.0
    axes: Axes | None = None

    @property
    def width(self) -> int:
        return int(self.values.shape[1])


@dataclass(frozen=True)
class NewRows:
    """Values of some extensions at new rows, and the distance of each row to its nearest training row.

    Distances are in units of the length scale of that training row: sqrt(epsilon), or its sigma.
    """

    values: list[np.ndarray]
    distance: np.ndarray

    @property
    def n_far(self) -> int:
        return int((self.distance > np.sqrt(-np.log(_LEAST_WEIGHT))).sum())

    def warn_if_far(self) -> None:
        warn_if_far(self.n_far, len(self.distance))


def warn_if_far(n_far: int, n_rows: int) -> None:
    """Warn about new rows that are far from all training rows, if there are any."""
    if n_far:
        warn(
            f"{n_far} of {n_rows} new rows are far from all training rows: even the nearest one would have a weight "
            f"below {_LEAST_WEIGHT:g}. They are placed next to their nearest training rows, so their "
            "coordinates are unreliable. Embedding.transform(X_new, return_distance=True) returns the distances.",
            ConnectivityWarning,
        )


class NewPoints:
    """Finds the rows a(x, .) of new points, batch by batch, and applies them to values at the training points."""

    def __init__(
        self,
        graph: NeighborGraph,
        heat: HeatKernel,
        metric: str,
        feature_names: np.ndarray | None = None,
        key: str | None = None,
    ) -> None:
        self._graph, self._heat, self._context, self._metric = graph, heat, graph.context, metric
        self._feature_names, self._key = feature_names, key  # the key of an AnnData input
        self._points = _check_points(graph, metric)
        self._search = Leaves(self._points, graph.radius, graph.context)
        self._user_row = graph.storage_order.user_row
        weights = heat.weights
        self._vectors: tuple[np.ndarray, ...]
        if heat.normalization == "symmetric":
            q = row_sums(heat.kernel, weights, self._context, "transform")
            divided = self._context.filled(len(q), np.float64, lambda start, stop: weights[start:stop] / q[start:stop])
            self._vectors = (weights, divided)
        else:
            scale = heat.scale_points
            scaled = self._context.filled(
                len(scale), np.float64, lambda start, stop: weights[start:stop] * scale[start:stop]
            )
            self._vectors = (scaled,)

    def apply(self, X: Any, extensions: Sequence[Extension], storage_options: StorageOptions | None = None) -> NewRows:
        """Compute several extensions at new rows; a row that equals a training row gets its value."""
        rows = self.open(X, storage_options)
        out = [np.empty((rows.n_rows, extension.width), extension.values.dtype) for extension in extensions]
        distance, start = np.empty(rows.n_rows), 0
        for batch in self.batches(rows, extensions):
            stop = start + len(batch.distance)
            for result, part in zip(out, batch.values, strict=True):
                result[start:stop] = part
            distance[start:stop] = batch.distance
            start = stop
        return NewRows(out, distance)

    def batches(self, rows: InputRows, extensions: Sequence[Extension]) -> Iterator[NewRows]:
        """Yield the values of the extensions at new rows, some rows at a time, in their order."""
        cuts = ranges(rows.n_rows, _BATCH_ROWS)
        with self._context.workers.progress.stage("transform", len(cuts)):
            for start, stop in cuts:
                yield self._batch(_read(rows, start, stop), extensions)
                self._context.workers.progress.advance()

    def open(self, X: Any, storage_options: StorageOptions | None = None, missing: str = "error") -> InputRows:
        """Open new rows, in the units of the training rows; refuse other features than theirs.

        Of an AnnData object, the rows are those of the key of the training rows.
        """
        is_chosen = isinstance(X, Points)
        X = read_anndata(X, self._key) if self._key is not None and is_anndata(X) else X
        X = X if self._feature_names is None else _select(X, self._feature_names.tolist(), storage_options)
        rows = _open_new(X, self._graph, self._points.n_features, self._metric, storage_options, missing)
        _check_key(rows.annotations, self._key, is_chosen)
        _check_features(rows.feature_names, self._feature_names)
        return rows

    def _batch(self, rows: np.ndarray, extensions: Sequence[Extension]) -> NewRows:
        from scalable_gpe.loops import sparse

        chunks = self._search.search(rows, self._graph.n_neighbors, self._user_row)
        match = np.concatenate([chunk.match for chunk in chunks])
        joined = self._context.workers.here.map(self._weigh, chunks, count=False)
        counts = np.concatenate([np.diff(indptr) for indptr, *_ in joined])
        indptr = np.concatenate([[0], np.cumsum(counts)])
        points, weights, scale = (np.concatenate([part[k] for part in joined]) for k in (1, 2, 3))
        needed, inverse = np.unique(points, return_inverse=True)
        places, results = inverse.astype(np.int32), []
        for extension in extensions:
            columns: list[np.ndarray] = []
            for table in extension.tables:
                left = extension.n_columns - sum(part.shape[1] for part in columns)
                values = np.ascontiguousarray(table.take(needed)[:, :left])
                part = np.empty((len(rows), values.shape[1]), extension.values.dtype)
                sparse.product(indptr, places, weights, values, scale * extension.factor, part)
                columns.append(part)
            result = np.concatenate(columns, axis=1)
            if extension.axes is not None:
                result = extension.axes.rotate(result, extension.width)
            matched = np.flatnonzero(match >= 0)
            if len(matched):
                result[matched] = take_rows(extension.values, self._user_row[match[matched]])
            results.append(result)
        return NewRows(results, np.concatenate([self._distance(chunk) for chunk in chunks]))

    def _distance(self, chunk: Chunk) -> np.ndarray:
        """Distance of each row to its nearest point, in units of the length scale of that point."""
        kernel = self._heat.kernel
        scale = np.sqrt(kernel.stored_epsilon) if kernel.scales is None else kernel.scales.sigma[chunk.nearest[:, 0]]
        units: np.ndarray = np.sqrt(chunk.best[:, 0]) / scale
        return units

    def _weigh(self, chunk: Chunk) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        from scalable_gpe.loops import sparse

        # the nearest points and the hits, each point once, ascending in the user's rows
        hits, squares = (np.concatenate([hit[k] for hit in chunk.hits]) for k in range(2))
        listed = chunk.nearest >= 0
        rows = np.concatenate([np.nonzero(listed)[0], hits[:, 0]])
        by_row, counts = np.argsort(rows, kind="stable"), np.bincount(rows, minlength=len(chunk.rows))
        points = np.concatenate([chunk.nearest[listed], hits[:, 1]])[by_row]
        squares = np.concatenate([chunk.best[listed], squares])[by_row]
        starts, indptr = np.concatenate([[0], np.cumsum(counts)]), np.zeros(len(counts) + 1, np.int64)
        n_kept = sparse.merge_rows(starts, self._user_row, indptr, points, squares)
        points = points[:n_kept]
        weights = self._weights(chunk, indptr, points, squares[:n_kept])
        sums = [np.empty(len(chunk.rows)) for _ in self._vectors]
        for vector, total in zip(self._vectors, sums, strict=True):
            sparse.row_sums(indptr, points, weights, vector, total)
        # sums[1] is q(x) v(x)
        scale = 1 / sums[0] if len(sums) == 1 else 1 / np.sqrt(sums[0] * sums[1])
        return indptr, points, weights, scale

    def _weights(self, chunk: Chunk, indptr: np.ndarray, points: np.ndarray, squares: np.ndarray) -> np.ndarray:
        """Weights of the kernel from squared distances, the largest of each row 1, as exact as those of K."""
        kernel, counts = self._heat.kernel, np.diff(indptr)
        if kernel.scales is None:
            epsilon = kernel.stored_epsilon
        else:
            squares = squares / (np.repeat(kernel.scales.of_new(chunk.best), counts) * kernel.scales.sigma[points])
            epsilon = 1.0
        least = np.repeat(np.minimum.reduceat(squares, indptr[:-1]), counts)
        weights: np.ndarray = np.exp(-(squares - least) / epsilon).astype(np.float32)
        return weights


def nearest_points(X: Any, graph: NeighborGraph, n_neighbors: int, metric: str) -> tuple[np.ndarray, np.ndarray]:
    """The nearest points (storage order) of each new row, nearest first, and their distances in the units of X."""
    stored = _check_points(graph, metric)
    rows = _open_new(X, graph, stored.n_features, metric)
    search, user_row = Leaves(stored, graph.radius, graph.context), graph.storage_order.user_row
    batches = (_read(rows, *piece) for piece in ranges(rows.n_rows, _BATCH_ROWS))
    chunks = [chunk for batch in batches for chunk in search.search(batch, n_neighbors, user_row)]
    squares = np.concatenate([chunk.best for chunk in chunks])
    lengths = graph.in_user_units(np.sqrt(squares).astype(np.float32))
    return np.concatenate([chunk.nearest for chunk in chunks]), lengths


def _read(rows: InputRows, start: int, stop: int) -> np.ndarray:
    """Some new rows; an error about those that are not finite counts all of them."""
    with naming_all_rows(rows):
        return rows.read(start, stop)


def _open_new(
    X: Any,
    graph: NeighborGraph,
    n_features: int,
    metric: str,
    storage_options: StorageOptions | None = None,
    missing: str = "error",
) -> InputRows:
    """Open new rows in the units of the training rows; refuse another number of features than theirs."""
    rows = open_rows(X, metric, name="X_new", min_rows=1, storage_options=storage_options, missing=missing)
    if rows.n_features != n_features:
        raise ValueError(
            f"X_new must have the {n_features} features of the training rows; got {rows.n_features}. Pass the "
            "same columns in the same order."
        )
    return in_stored_units(rows, graph.metadata)


def _check_key(found: Annotations | None, key: str | None, is_chosen: bool) -> None:
    """Refuse another matrix of an AnnData input than that of the training rows; warn where it was chosen."""
    if found is None or found.source == key or (is_chosen and key is None):
        return
    if key is None:
        raise ValueError(
            "X_new is an AnnData object or file, and the training rows were an array: pass the matrix that was "
            "embedded, such as adata.obsm['X_pca'], or gpe.read_points(path, key='obsm/X_pca')."
        )
    text = f"X_new was read from {found.source}, the training rows from {key}. Read it with key={key!r}."
    if not is_chosen:
        raise ValueError(text)
    warn(text, GPEWarning)


def _select(X: Any, names: list[str], storage_options: StorageOptions | None) -> Any:
    """The columns of a table, in a file or in memory, that have the names of the features; other input as it is."""
    if isinstance(X, str | os.PathLike):
        return read_features(X, names, storage_options=storage_options)
    if not hasattr(X, "columns"):
        return X
    at = {str(label): number for number, label in enumerate(X.columns)}
    lacking = [name for name in names if name not in at]
    if len(lacking) == len(names) or len(at) < len(X.columns):
        return X
    if lacking:
        raise ValueError(
            f"X_new must have the columns of the training rows; it lacks {first_names(lacking)}. Add them."
        )
    return X.iloc[:, [at[name] for name in names]]


def _check_features(found: np.ndarray | None, expected: np.ndarray | None) -> None:
    """Refuse columns with other names than those of the training rows, where both have names."""
    if found is None or expected is None or np.array_equal(found, expected):
        return
    at = int(np.flatnonzero(found != expected)[0])
    raise ValueError(
        f"X_new must have the columns of the training rows, in their order; column {at} is '{found[at]}' instead "
        f"of '{expected[at]}'. Select them by name (Embedding.feature_names), or pass an array without names."
    )


def _check_points(graph: NeighborGraph, metric: str) -> Rows:
    """Return the points in storage order; raise if there are none, or if the lists hold other distances."""
    if metric in ("jaccard", PRECOMPUTED):
        raise ValueError(f"transform does not know metric={metric!r}. Embed old and new rows together.")
    if graph.points is None:
        raise ValueError(
            "transform needs the training points; this embedding was made from neighbors= alone. Pass X to "
            "embed as well, or to open for a store."
        )
    if graph.method == "precomputed":
        rows = np.unique(np.linspace(0, graph.storage_order.n_points - 1, 64).astype(np.int64))
        lists, lengths = graph.lists.take(rows)[:, 0], graph.list_distances.take(rows)[:, 0]
        points, neighbors = graph.points.take(rows), graph.points.take(np.maximum(lists, 0))
        expected = np.sqrt(((points.astype(np.float64) - neighbors) ** 2).sum(axis=1))
        wrong = (lists >= 0) & (np.abs(expected - lengths) > 1e-3 * (expected + lengths))
        if wrong.any():
            raise ValueError(
                "transform measures straight-line distances in X; the distances in neighbors= differ from them. "
                "Embed again without neighbors=, or embed old and new rows together."
            )
    return graph.points
