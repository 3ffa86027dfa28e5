"""New rows that are known by their distances to the training rows; the formulas are those of `new_points`."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from scalable_gpe.errors import Message
from scalable_gpe.graph.distance_matrix import new_distances
from scalable_gpe.graph.neighbors import NeighborGraph
from scalable_gpe.storage.backends import StorageOptions
from scalable_gpe.storage.blocks import ranges
from scalable_gpe.transform.leaves import CHUNK_ROWS, Chunk
from scalable_gpe.transform.new_points import NewPoints

_BYTES_AT_ONCE = 2**26


@dataclass(frozen=True)
class _Distances:
    """Distances of new rows to all training rows, infinite where a sparse matrix has no entry."""

    matrix: Any
    exponent: int
    names: np.ndarray | None = None

    @property
    def n_rows(self) -> int:
        """Number of new rows."""
        return int(self.matrix.shape[0])

    def read(self, start: int, stop: int) -> np.ndarray:
        """Distances of some rows in stored units, float32 as those of the lists."""
        part = self.matrix[start:stop]
        if hasattr(part, "tocsr"):
            lengths = np.full(part.shape, np.inf)
            rows = np.repeat(np.arange(stop - start), np.diff(part.indptr))
            np.minimum.at(lengths, (rows, part.indices), part.data)
        else:
            lengths = np.asarray(part, np.float64)
        scaled: np.ndarray = np.ldexp(lengths, self.exponent).astype(np.float32)
        return scaled


class NewDistances(NewPoints):
    """Finds the rows a(x, .) of new rows from their distances."""

    @property
    def _batch_rows(self) -> int:
        return max(CHUNK_ROWS, min(super()._batch_rows, _BYTES_AT_ONCE // (8 * self._graph.n_rows)))

    def _make_search(self) -> "_ListedRows":
        return _ListedRows(self._graph)

    def open(self, X: Any, storage_options: StorageOptions | None = None, missing: str = "error") -> _Distances:
        """Check the distances of new rows to the training rows."""
        return _Distances(new_distances(X, self._graph.n_rows), self._graph.exponent)


class _ListedRows:
    """The search among given distances: sort them."""

    def __init__(self, graph: NeighborGraph) -> None:
        self._graph = graph

    def search(self, rows: np.ndarray, n_neighbors: int, user_row: np.ndarray) -> list[Chunk]:
        """Find the nearest points of each row, and the points that would list it."""
        pieces = ranges(len(rows), CHUNK_ROWS)
        return self._graph.context.workers.here.map(
            lambda piece: self._find(rows[slice(*piece)], n_neighbors, user_row), pieces, count=False
        )

    def _find(self, lengths: np.ndarray, n_neighbors: int, user_row: np.ndarray) -> Chunk:
        alone = np.flatnonzero(~np.isfinite(lengths).any(axis=1))
        if alone.size:
            raise ValueError(Message("`X_new` must hold a distance to some training row in each of its rows."))
        for row in np.flatnonzero((lengths > 0).all(axis=1) & np.isinf(lengths).any(axis=1)):
            lengths[row, self._left_out(lengths[row])] = 0
        position = self._graph.storage_order.position
        order = np.argsort(lengths, axis=1, kind="stable")[:, :n_neighbors]  # of equal distances, the first rows
        best = np.take_along_axis(lengths, order, axis=1).astype(np.float64)
        nearest = np.where(np.isfinite(best), position[order], -1).astype(np.int32)
        match = np.where(best[:, 0] == 0, nearest[:, 0], -1).astype(np.int64)
        stored = lengths[:, user_row]
        hits = np.argwhere(stored <= self._graph.radius)
        squares = stored[hits[:, 0], hits[:, 1]].astype(np.float64) ** 2
        return Chunk(
            lengths, np.full(len(lengths), np.inf), best**2, nearest, match, [(hits.astype(np.int32), squares)]
        )

    def _left_out(self, lengths: np.ndarray) -> np.ndarray:
        """The training row with these distances that is not among them: sparse matrices may not store its 0."""
        graph, user_row = self._graph, self._graph.storage_order.user_row
        order = np.argsort(lengths, kind="stable")[: min(graph.n_neighbors, np.isfinite(lengths).sum())]
        nearest, best = graph.storage_order.position[order], lengths[order]
        ((_, near, _),) = graph.edges.rows(nearest[:1])
        near = np.sort(near[np.isinf(lengths[user_row[near]])])
        same = graph.list_distances.take(near)[:, : len(best)] == best
        # of rows that are as far as the last one, another may be listed
        same &= (graph.lists.take(near)[:, : len(best)] == nearest) | (best == best[-1])
        own: np.ndarray = np.sort(user_row[near[same.all(axis=1)]])[:1]
        return own
