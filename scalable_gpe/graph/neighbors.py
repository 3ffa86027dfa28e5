"""The neighbour graph: lists, their union, and their metadata."""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from scalable_gpe import checks
from scalable_gpe.errors import DamageError, wrong_numbers
from scalable_gpe.execution.context import Context, StoredResult
from scalable_gpe.graph.edges import Edges, open_edges
from scalable_gpe.graph.exact import Jaccard
from scalable_gpe.graph.points import RowSubset
from scalable_gpe.graph.recall import Scan, TrueNeighbors
from scalable_gpe.graph.search import METHODS, SearchParameters
from scalable_gpe.graph.storage_order import StorageOrder
from scalable_gpe.io.rows import METRICS, InputRows, Rows
from scalable_gpe.io.scaling import SCALES
from scalable_gpe.storage.store import Table, read_whole

_MOST_ROWS = 2**31 - 1
_DEFAULT_NEIGHBORS = 16


@dataclass(frozen=True)
class GraphMetadata:
    """Metadata of a graph, stored with it.

    `content` is a checksum of all rows, `offset` was subtracted from them, which were then divided by `scale`;
    `duplicates` says whether rows repeat. Points and distances are stored in units of ``2**-exponent``. `remarks` are
    the warnings about columns, `n_dropped` rows of the input were left out. `n_parts` are those of the search, None
    where there was none.
    """

    method: str
    n_rows: int
    n_points: int
    block_rows: int
    n_connected_components: int
    duplicates: bool = False
    n_features: int | None = None
    content: str | None = None
    offset: tuple[float, ...] | None = None
    recall: float | None = None
    recall_error: float | None = None
    warning: str | None = None
    exponent: int = 0
    n_parts: int | None = None
    recall_trace: tuple[float, ...] = ()
    scale: tuple[float, ...] | None = None
    remarks: tuple[str, ...] = ()
    n_dropped: int = 0


@dataclass(frozen=True, repr=False)
class NeighborGraph(StoredResult):
    """Nearest neighbours of every row, and their symmetric graph.

    Distances are stored, so another epsilon needs no new search. Equal rows share one point with a weight.
    ``indices`` and ``distances`` are N x n_neighbors in the order of the input. ``distances`` are in the units of X:
    float32, or float64 where the largest value of X is below 1e-6 or above 1e12.
    """

    context: Context
    name: str
    storage_order: StorageOrder
    lists: Table
    list_distances: Table
    edges: Edges
    points: Rows | None
    scan: Scan | None
    metadata: GraphMetadata

    @staticmethod
    def open(context: Context, name: str, points: InputRows | Rows | None = None) -> "NeighborGraph":
        """Open a complete graph; `points` are used if the store keeps none."""
        store, metadata = context.store, context.store.read(name, GraphMetadata)
        if metadata is None:
            raise DamageError(f"the graph {name!r} is not complete", name)
        group = context.read_whole(store.open_table(f"{name}/group")) if metadata.duplicates else None
        user_row = context.read_whole(store.open_table(f"{name}/user_row"))
        storage_order = StorageOrder(user_row, group, context.empty)
        if not storage_order.is_sound(metadata.n_rows, metadata.n_points):
            raise wrong_numbers(f"{name}/user_row")
        scan = None
        if metadata.recall is not None and metadata.recall_error is not None:
            missing, listed = (read_whole(store.open_table(f"{name}/{table}")) for table in ("missing", "listed"))
            nearest = _open_nearest(context, name, metadata.n_points)
            scan = Scan(metadata.recall, metadata.recall_error, missing, listed, nearest)
            stored = store.find_table(f"{name}/points")
            points = points if stored is None else stored
        if isinstance(points, InputRows) and points.metric == "jaccard":
            points = None  # what uses points measures straight lines between them
        if isinstance(points, InputRows):  # in the user's order
            points = in_stored_units(points, metadata)
            metadata = replace(metadata, **of_input(points))
            points = RowSubset(points, storage_order.user_row)
        return NeighborGraph(
            context=context,
            name=name,
            storage_order=storage_order,
            lists=store.open_table(f"{name}/indices"),
            list_distances=store.open_table(f"{name}/distances"),
            edges=open_edges(context, f"{name}/edges", metadata.n_points, metadata.block_rows),
            points=points,
            scan=scan,
            metadata=metadata,
        )

    @property
    def n_rows(self) -> int:
        """Number of rows of the input."""
        return self.storage_order.n_rows

    @property
    def kept_rows(self) -> np.ndarray:
        """Number of each row in the input, which may have had rows that were left out."""
        numbers = np.arange(self.n_rows + self.metadata.n_dropped)
        return numbers if self.dropped is None else np.delete(numbers, self.dropped)

    @property
    def dropped(self) -> np.ndarray | None:
        """Numbers of the rows of the input that were left out, ascending; None without any."""
        if not self.metadata.n_dropped:
            return None
        return read_whole(self.context.store.open_table(f"{self.name}/dropped"))

    @property
    def n_neighbors(self) -> int:
        """Number of neighbours in each list."""
        return self.lists.shape[1]

    @property
    def n_connected_components(self) -> int:
        """Number of connected components."""
        return self.metadata.n_connected_components

    @property
    def method(self) -> str:
        """The search that made the lists."""
        return self.metadata.method

    @property
    def recall(self) -> float | None:
        """Measured share of true neighbours in the lists; None without X."""
        return None if self.scan is None else self.scan.recall

    @property
    def indices(self) -> np.ndarray:
        """Neighbours of each row, nearest first; -1 where a list is shorter."""
        lists = read_whole(self.lists)
        neighbors: np.ndarray = np.where(lists >= 0, self.storage_order.user_row[lists], -1)
        return self.storage_order.spread(neighbors)

    @property
    def distances(self) -> np.ndarray:
        """Distances that belong to `indices` (infinite at -1)."""
        return self.storage_order.spread(self.in_user_units(read_whole(self.list_distances)))

    def to_umap(self) -> tuple[np.ndarray, np.ndarray, None]:
        """Return the lists as ``umap.UMAP(precomputed_knn=...)`` takes them: UMAP then needs no search of its own.

        Returns
        -------
        indices : ndarray (N, n_neighbors + 1) of int32
            Each row itself, then its neighbours, nearest first; -1 where a list is shorter.
        distances : ndarray (N, n_neighbors + 1)
            Distances that belong to `indices`: 0 at the row itself, infinite at -1.
        index : None
            UMAP's search index, which only its ``transform`` needs.

        Examples
        --------
        >>> import scalable_gpe as gpe
        >>> indices, distances, _ = gpe.neighbor_graph(gpe.datasets.circle(200), 15).to_umap()
        >>> indices.shape, indices[:3, 0].tolist(), distances[:3, 0].tolist()
        ((200, 16), [0, 1, 2], [0.0, 0.0, 0.0])
        """
        own, distances = np.arange(self.n_rows, dtype=np.int32), self.distances
        nothing = np.zeros((self.n_rows, 1), distances.dtype)
        indices = np.column_stack([own, self.indices.astype(np.int32)])
        return indices, np.concatenate([nothing, distances], axis=1), None

    @property
    def exponent(self) -> int:
        """Points and distances are stored in units of ``2**-exponent``; 0 in usual units."""
        return self.metadata.exponent

    def summary(self) -> list[tuple[str, str]]:
        """Names and values of what to know about the graph."""
        n_equal = self.n_rows - self.storage_order.n_points
        error = "" if self.scan is None else f" +- {self.scan.recall_error:.2g}"
        return [
            ("rows", f"{self.n_rows:,}" + (f", {n_equal:,} of them duplicates" if n_equal else "")),
            ("neighbours", f"{self.n_neighbors} each ({self.method})"),
            ("recall", "not measured" if self.recall is None else f"{self.recall:.4f}{error}"),
            ("edges", f"{(self.edges.nnz - self.storage_order.n_points) // 2:,}"),
            ("connected components", f"{self.n_connected_components:,}"),
        ]

    def in_user_units(self, lengths: np.ndarray) -> np.ndarray:
        """Stored lengths in the units of X, as float64 where these are not the stored ones."""
        if not self.exponent:
            return lengths
        return np.ldexp(lengths.astype(np.float64), -self.exponent)

    def user_epsilon(self, epsilon: float) -> float:
        """A bandwidth of the stored distances in squared units of X."""
        return math.ldexp(epsilon, -2 * self.exponent)

    def stored_epsilon(self, epsilon: float) -> float:
        """A bandwidth in squared units of X for the stored distances."""
        with np.errstate(over="ignore", under="ignore"):
            # all squares are far inside these limits: beyond them, a bandwidth is as good as 0 or infinite
            return float(np.clip(np.ldexp(np.float64(epsilon), 2 * self.exponent), 1e-200, 1e200))

    @cached_property
    def radius(self) -> np.ndarray:
        """Distance of each point (storage order) to its last neighbour, in stored units."""

        def last(start: int, stop: int) -> np.ndarray:
            lengths = self.list_distances.read(start, stop)
            reach: np.ndarray = np.where(np.isfinite(lengths), lengths, 0).max(axis=1)
            return reach

        return self.context.filled(self.storage_order.n_points, self.list_distances.dtype, last)

    def sampled_distances(self, most: int = 16_384) -> np.ndarray:
        """Lists of stored distances of at most `most` points, at even steps of the user's order."""
        return self.list_distances.take(self.sampled_points(most)).astype(np.float64)

    def sampled_points(self, most: int) -> np.ndarray:
        """At most `most` points, at even steps of the user's order, as ascending numbers in storage order."""
        n_points = self.storage_order.n_points
        drawn = np.unique(np.linspace(0, n_points - 1, min(most, n_points)).astype(np.int64))
        return np.sort(self.storage_order.by_user[drawn])


def _open_nearest(context: Context, name: str, n_points: int) -> TrueNeighbors:
    pairs = read_whole(context.store.open_table(f"{name}/nearest"))
    if pairs.ndim != 2 or pairs.shape[1] != 4 or not ((pairs[:, :2] >= 0) & (pairs[:, :2] < n_points)).all():
        raise wrong_numbers(f"{name}/nearest")
    numbers = pairs[:, :2].astype(np.int64)
    return TrueNeighbors(numbers[:, 0], numbers[:, 1], pairs[:, 2], pairs[:, 3] > 0)


def of_input(rows: InputRows) -> dict[str, Any]:
    """The number of features, the offset, scale and units of an input, which new rows must match."""
    return {
        "n_features": rows.n_features,
        "offset": offset_of(rows),
        "scale": None if rows.scale is None else tuple(rows.scale.tolist()),
        "exponent": rows.exponent,
    }


def offset_of(rows: InputRows) -> tuple[float, ...] | None:
    """The offset that is subtracted from the rows of an input."""
    return None if rows.offset is None else tuple(float(value) for value in rows.offset)


def in_stored_units(rows: InputRows, metadata: GraphMetadata) -> InputRows:
    """Rows in the units of the stored points; those of a graph without points are taken as they come."""
    if metadata.n_features is None:
        return rows.with_exponent(metadata.exponent)
    offset, scale = (None if one is None else np.asarray(one) for one in (metadata.offset, metadata.scale))
    return rows.with_units(offset, scale, metadata.exponent)


def check_search(
    *,
    n_neighbors: Any,
    metric: str,
    method: str,
    recall: Any,
    random_state: int,
    n_rows: int | None,
    choices: tuple[str, ...] = METRICS,
    scale: str | None = None,
) -> SearchParameters:
    """Check the parameters of a search; without `n_rows`, n_neighbors may be None. `choices` are the metrics."""
    if n_rows is not None:
        n_neighbors = check_n_neighbors(n_neighbors, n_rows)
    elif n_neighbors is not None:
        n_neighbors = checks.check_count(n_neighbors, "n_neighbors")
    if metric == "jaccard" and method in METHODS and method not in Jaccard.methods:
        raise ValueError(f"method must be 'brute' or 'pynndescent' for metric='jaccard'; got {method!r}. Leave it out.")
    if scale is not None and metric != "euclidean":
        raise ValueError(f"scale={scale} is for metric='euclidean'; got {metric!r}. Scale X yourself, or leave it out.")
    return SearchParameters(
        n_neighbors=n_neighbors,
        metric=checks.check_choice(metric, choices, "metric"),
        method=checks.check_choice(method, METHODS, "method"),
        recall=checks.check_fraction(recall, "recall"),
        random_state=random_state,
        scale=None if scale is None else checks.check_choice(scale, SCALES, "scale"),
    )


def check_n_neighbors(n_neighbors: Any, n_rows: int) -> int:
    """Check n_neighbors against the number of rows."""
    if n_rows > _MOST_ROWS:
        raise ValueError(f"X must have at most 2**31 - 1 rows; got {n_rows}. Embed a sample and transform the rest.")
    if n_neighbors is None:
        return min(_DEFAULT_NEIGHBORS, n_rows - 1)
    number = checks.check_count(n_neighbors, "n_neighbors")
    if number > n_rows - 1:
        raise ValueError(
            f"n_neighbors must be between 1 and {n_rows - 1}, the number of other rows; got {number}. Lower it, "
            "or leave it out."
        )
    return number
