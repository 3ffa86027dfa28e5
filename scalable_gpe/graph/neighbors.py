"""The neighbour graph: lists, their union, and what is known about them."""

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from scalable_gpe import checks
from scalable_gpe.errors import RecallWarning, StoreError, warn
from scalable_gpe.execution.cluster import workers_for
from scalable_gpe.execution.context import Context, Named, locked, open_store
from scalable_gpe.execution.panels import Panels
from scalable_gpe.execution.workers import Workers, parse_bytes
from scalable_gpe.graph.duplicates import content, distinct_rows, fingerprint, hash_rows
from scalable_gpe.graph.edges import Edges, open_edges, union_edges
from scalable_gpe.graph.points import RowSubset, TableRows, ensure_shared
from scalable_gpe.graph.recall import Scan, scan_graph
from scalable_gpe.graph.search import METHODS, Found, choose_method, search
from scalable_gpe.graph.storage_order import StorageOrder
from scalable_gpe.io.rows import METRICS, InputRows, Rows, open_rows
from scalable_gpe.storage.backends import check_options
from scalable_gpe.storage.protocol import Table, block_rows, ranges

_MOST_ROWS = 2**31 - 1


@dataclass(frozen=True)
class NeighborGraph(Named):
    """Nearest neighbours of every row, and the symmetric graph they make.

    Distances are kept, so another epsilon needs no new search. Rows that are equal share one point
    with a weight. ``indices`` and ``distances`` are N x n_neighbors in the order of the input.
    """

    context: Context
    name: str
    storage_order: StorageOrder
    lists: Table
    list_distances: Table
    edges: Edges
    points: Any
    scan: Scan | None
    metadata: dict[str, Any]

    @staticmethod
    def _open(context: Context, name: str, before: Any) -> "NeighborGraph":
        return open_graph(context, name)

    @property
    def n_rows(self) -> int:
        """Rows of the input."""
        return self.storage_order.n_rows

    @property
    def n_neighbors(self) -> int:
        """Neighbours in each list."""
        return self.lists.shape[1]

    @property
    def n_connected_components(self) -> int:
        """Pieces of the graph that no edge joins."""
        return self.metadata["n_connected_components"]

    @property
    def method(self) -> str:
        """The search that made the lists."""
        return self.metadata["method"]

    @property
    def recall(self) -> float | None:
        """Measured share of true neighbours in the lists; None without X."""
        return None if self.scan is None else self.scan.recall

    @property
    def indices(self) -> np.ndarray:
        """Neighbours of each row, nearest first; -1 where a list is shorter."""
        lists = self.lists.read(0, self.storage_order.n_points)
        mine = np.where(lists >= 0, self.storage_order.user_row[lists], -1)
        return mine[self.storage_order.position]

    @property
    def distances(self) -> np.ndarray:
        """Distances that belong to `indices` (infinite at -1)."""
        return self.list_distances.read(0, self.storage_order.n_points)[self.storage_order.position]

    @cached_property
    def radius(self) -> np.ndarray:
        """Distance of each point (storage order) to its last neighbour."""
        lengths = self.list_distances.read(0, self.storage_order.n_points)
        return np.where(np.isfinite(lengths), lengths, 0).max(axis=1)

    def sampled_distances(self, most: int = 16_384) -> np.ndarray:
        """Lists of distances of at most so many points, at even steps of the user's order."""
        return self.list_distances.take(self.sampled_points(most)).astype(np.float64)

    def sampled_points(self, most: int) -> np.ndarray:
        """At most so many points, at even steps of the user's order, as ascending storage numbers."""
        n_points = self.storage_order.n_points
        drawn = np.unique(np.linspace(0, n_points - 1, min(most, n_points)).astype(np.int64))
        return np.sort(self.storage_order.by_user[drawn])


def neighbor_graph(
    X: Any,
    n_neighbors: int | None = None,
    *,
    metric: str = "euclidean",
    method: str = "auto",
    recall: float = 0.95,
    random_state: Any = 0,
    store: Any = None,
    storage_options: dict[str, Any] | None = None,
    memory_limit: Any = None,
    n_jobs: int | None = None,
) -> NeighborGraph:
    """Nearest neighbours of each row: exact where that is affordable, else approximate with measured recall.

    Parameters
    ----------
    X : array-like of shape (N, d)
        numpy, memory-mapped, zarr, dask or scipy sparse array, DataFrame, or a path or URL (see `read_points`).
    n_neighbors : int, optional
        Other (distinct) points in each list; ``min(32, N - 1)`` by default.
    metric : {"euclidean", "cosine"}
        Cosine is euclidean on rows scaled to length 1.
    method : {"auto", "kdtree", "brute", "cells", "pynndescent"}
        The search; "auto" is exact in low dimension and for few rows.
    recall : float
        Share of true neighbours to aim at; less is warned about.
    random_state : int, None or numpy generator
        Seed of the search and of the sample that measures its recall.
    store : path or URL, optional
        A zarr store for the lists.
    storage_options : dict, optional
        What fsspec needs to reach the URLs of `store` and `X`.
    memory_limit : int or str, optional
        Resident memory of this process, "2GB" is 2e9 bytes.
    n_jobs : int, optional
        Threads; all cores by default.

    Returns
    -------
    NeighborGraph

    Examples
    --------
    >>> import scalable_gpe as gpe
    >>> graph = gpe.neighbor_graph(gpe.datasets.circle(200), 8)
    >>> graph.indices.shape, graph.n_connected_components, graph.recall
    ((200, 8), 1, 1.0)
    """
    parameters = check_parameters(metric=metric, method=method, recall=recall, random_state=random_state)
    check_options(storage_options, store, X)
    rows = open_rows(X, metric, storage_options=storage_options)
    n_neighbors = check_n_neighbors(n_neighbors, rows.n_rows)
    workers = workers_for(n_jobs) if store is not None else Workers(n_jobs)
    context = Context(open_store(store, storage_options), workers, parse_bytes(memory_limit) or workers.memory_limit())
    asked = {"n_neighbors": n_neighbors, **parameters}
    # a name of its own for each input and search, so that graphs that share a store are not mixed up
    name = hashlib.sha256(json.dumps([fingerprint(rows), asked], sort_keys=True).encode()).hexdigest()[:12]
    with context.workers, locked(context.store):
        known = known_graph(rows, context, f"graph/{name}")
        return make_graph(rows, asked, context, f"graph/{name}") if known is None else known


def check_parameters(*, metric: str, method: str, recall: Any, random_state: Any) -> dict[str, Any]:
    """Check what a search is asked for."""
    return {
        "metric": checks.check_choice(metric, METRICS, "metric"),
        "method": checks.check_choice(method, METHODS, "method"),
        "recall": checks.check_fraction(recall, "recall"),
        "random_state": checks.check_random_state(random_state),
    }


def check_n_neighbors(n_neighbors: Any, n_rows: int) -> int:
    """Check a number of neighbours that so many rows can have."""
    if n_rows > _MOST_ROWS:
        raise ValueError(f"X must have at most 2**31 - 1 rows; got {n_rows}. Embed a sample and transform the rest.")
    if n_neighbors is None:
        return min(32, n_rows - 1)
    number = checks.check_count(n_neighbors, "n_neighbors")
    if number > n_rows - 1:
        raise ValueError(
            f"n_neighbors must be between 1 and {n_rows - 1}, the number of other rows; got {number}. Lower it, or "
            "leave it out."
        )
    return number


def make_graph(rows: Rows, parameters: dict[str, Any], context: Context, name: str) -> NeighborGraph:
    """Search, symmetrise, measure, and mark the result under `name`."""
    reach = ensure_shared(rows, context)
    hashes = hash_rows(reach, context)
    first, group = distinct_rows(hashes)
    n_neighbors = _distinct_neighbors(parameters["n_neighbors"], len(first), rows.n_rows)
    method = choose_method(parameters["method"], len(first), rows.n_features, n_neighbors)
    metadata: dict[str, Any] = {"method": method, "content": content(hashes), **_features(rows)}
    del hashes
    panels = Panels(context, context.scratch())
    points = RowSubset(reach, panels.of(first)) if group is not None else reach
    found = search(
        points,
        n_neighbors,
        method,
        random_state=parameters["random_state"],
        recall=parameters["recall"],
        context=context,
        name=name,
    )
    storage_order = StorageOrder(first[found.order], group)
    _save_numbering(storage_order, context, name)
    stored = (
        _save_points(found, points.n_features, context, name)
        if context.store.stored
        else RowSubset(points, found.order)
    )
    _save_lists(found, n_neighbors, context, name)
    panels.clear()
    return _finish(stored, parameters["random_state"], storage_order, metadata, context, name, parameters["recall"])


def precomputed_graph(
    precomputed: tuple[np.ndarray, np.ndarray],
    rows: Rows | None,
    parameters: dict[str, Any],
    context: Context,
    name: str,
) -> NeighborGraph:
    """Make the graph from lists that the user brought, as `check_lists` gives them."""
    indices, distances = precomputed
    if rows is not None:
        context.workers.here.map(lambda piece: rows.read(*piece) is None, rows.steps(0, rows.n_rows), count=False)
    order = _graph_order(indices)
    storage_order = StorageOrder(order)
    _save_numbering(storage_order, context, name)
    stored: Any = RowSubset(rows, order) if rows else None
    if rows and context.store.stored:
        stored = _gather_points(rows, order, context, name)
    place = storage_order.by_user
    relabelled = np.where(indices >= 0, place[indices], -1)[order]
    lists, lengths = _list_tables(indices.shape, context, name)
    for start, stop in ranges(len(order), lists.shard_rows):
        lists.write(start, relabelled[start:stop])
        lengths.write(start, distances[order[start:stop]])
    metadata = {"method": "brought", "content": None, **_features(rows)}
    return _finish(stored, parameters["random_state"], storage_order, metadata, context, name, None)


def _features(rows: Rows | None) -> dict[str, Any]:
    """What new rows must have in common with these."""
    offset = None if rows is None or rows.offset is None else rows.offset.tolist()
    return {"n_features": rows.n_features if rows else None, "offset": offset}


def _distinct_neighbors(n_neighbors: int, n_points: int, n_rows: int) -> int:
    if n_points < 2:
        raise ValueError(
            f"X must have at least 2 different rows; all {n_rows} rows are equal. There is nothing to embed."
        )
    if n_neighbors > n_points - 1:
        if n_neighbors != min(32, n_rows - 1) and n_neighbors != n_rows - 1:
            raise ValueError(
                f"n_neighbors must be at most {n_points - 1}, one less than the number of different rows "
                f"({n_rows} rows, {n_points} different); got {n_neighbors}. Lower it."
            )
        return n_points - 1
    return n_neighbors


def _graph_order(indices: np.ndarray) -> np.ndarray:
    """Reverse Cuthill-McKee order of the lists' graph: neighbours near each other, without X."""
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    n_rows = len(indices)
    kept = indices >= 0
    counts = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
    graph = csr_matrix((np.ones(counts[-1], np.int8), indices[kept], counts), shape=(n_rows, n_rows))
    return np.asarray(reverse_cuthill_mckee((graph + graph.T).tocsr(), symmetric_mode=True)).astype(np.int64)


def _save_numbering(storage_order: StorageOrder, context: Context, name: str) -> None:
    _save(context, f"{name}/user_row", storage_order.user_row)
    if storage_order.group is not None:
        _save(context, f"{name}/group", storage_order.group)


def _save(context: Context, name: str, values: np.ndarray, shard_rows: int | None = None) -> None:
    table = context.store.table(name, values.shape, values.dtype, shard_rows)
    for start, stop in ranges(len(values), table.shard_rows):
        table.write(start, values[start:stop])


def _points_table(n_points: int, n_features: int, context: Context, name: str) -> Table:
    most = max(256, 2**25 // (4 * n_features))
    shard = min(block_rows(n_points), 1 << (most.bit_length() - 1))
    return context.store.table(f"{name}/points", (n_points, n_features), np.float32, shard_rows=shard)


def _save_points(found: Found, n_features: int, context: Context, name: str) -> TableRows:
    """Points in storage order, as the search had them, in a table of the store."""
    table, points = _points_table(len(found.order), n_features, context, name), found.points

    def save_points(piece: tuple[int, int]) -> None:
        if not table.has(piece[0]):
            table.write(piece[0], points(*piece))

    pieces = ranges(len(found.order), table.shard_rows)
    with context.workers.progress.stage("points", len(pieces)):
        context.workers.map(save_points, pieces)
    return TableRows(table)


def _gather_points(source: Any, order: np.ndarray, context: Context, name: str) -> TableRows:
    """Points of an input in an order of their own, in a table of the store.

    It is filled in as few streaming passes over the input as memory allows, because taking rows by number would read
    all of a chunked input for every shard.
    """
    n_points, n_features = len(order), source.n_features
    table = _points_table(n_points, n_features, context, name)
    missing = [piece for piece in ranges(n_points, table.shard_rows) if not table.has(piece[0])]
    together = max(1, context.spare_bytes() // 2 // (4 * n_features * table.shard_rows))
    place = np.empty(n_points, np.int32)
    place[order] = np.arange(n_points, dtype=np.int32)
    with context.workers.progress.stage("points", len(missing)):
        for first in range(0, len(missing), together):
            _fill(table, missing[first : first + together], source, place, context)
    return TableRows(table)


def _fill(table: Table, pieces: list[tuple[int, int]], source: Any, place: np.ndarray, context: Context) -> None:
    """One pass over the input that collects the rows of some shards."""
    low, high = pieces[0][0], pieces[-1][1]
    buffer = np.empty((high - low, source.n_features), np.float32)

    def collect(piece: tuple[int, int]) -> None:
        to = place[piece[0] : piece[1]]
        wanted = (to >= low) & (to < high)
        if wanted.any():
            buffer[to[wanted] - low] = source.read(*piece)[wanted]

    step = max(256, min(65_536, 2**22 // source.n_features))
    context.workers.here.map(collect, ranges(source.n_rows, step), count=False)
    context.workers.here.map(lambda piece: table.write(piece[0], buffer[piece[0] - low : piece[1] - low]), pieces)


def _list_tables(shape: tuple[int, ...], context: Context, name: str) -> tuple[Table, Table]:
    return context.store.table(f"{name}/indices", shape, np.int32), context.store.table(
        f"{name}/distances", shape, np.float32
    )


def _save_lists(found: Found, n_neighbors: int, context: Context, name: str) -> None:
    """Lists in storage numbering, with distances."""
    lists, lengths = _list_tables((len(found.order), n_neighbors), context, name)
    inverse = np.empty(len(found.order), np.int32)
    inverse[found.order] = np.arange(len(found.order), dtype=np.int32)
    panels = Panels(context, context.scratch())
    place, lists_of = panels.of(inverse), found.lists

    def save_lists(piece: tuple[int, int]) -> None:
        if not (lists.has(piece[0]) and lengths.has(piece[0])):
            neighbors, squared = lists_of(*piece)
            lists.write(piece[0], place.whole()[neighbors])
            lengths.write(piece[0], np.sqrt(squared))

    pieces = ranges(len(inverse), lists.shard_rows)
    with context.workers.progress.stage("lists", len(pieces)):
        context.workers.map(save_lists, pieces)
    panels.clear()
    context.store.remove(f"{name}/search")


def _finish(
    points: Any,
    random_state: int,
    storage_order: StorageOrder,
    metadata: dict[str, Any],
    context: Context,
    name: str,
    target: float | None,
) -> NeighborGraph:
    """Symmetrise and measure what stands under `name`, and mark it."""
    n_points = storage_order.n_points
    lists, lengths = context.store.open_table(f"{name}/indices"), context.store.open_table(f"{name}/distances")
    with context.workers.progress.stage("edges", -(-n_points // context.block_rows(n_points))):
        edges = union_edges(lists, lengths, storage_order.user_row, context, f"{name}/edges")
    metadata["n_connected_components"] = count_components(edges)
    if points is not None:
        scan = scan_graph(points, edges, lengths, storage_order.by_user, random_state, context)
        _save(context, f"{name}/missing", scan.missing, len(scan.missing))
        _save(context, f"{name}/listed", scan.listed, len(scan.listed))
        metadata |= {"recall": scan.recall, "recall_error": scan.recall_error}
        if target is not None and scan.recall + scan.recall_error < target:
            metadata["warning"] = warn(
                f"the neighbour lists hold {scan.recall:.3f} of the true neighbours, below recall={target}. "
                "Raise n_neighbors, or choose method='brute'.",
                RecallWarning,
            )
    metadata |= {"n_rows": storage_order.n_rows, "n_points": n_points, "duplicates": storage_order.group is not None}
    metadata["block_rows"] = edges.block_rows
    context.store.commit(name, metadata)
    return open_graph(context, name, points)


def known_graph(rows: Rows | None, context: Context, name: str) -> NeighborGraph | None:
    """Graph that stands complete under `name`, or None; one that was made from other rows is an error."""
    metadata = context.store.metadata(name)
    if metadata is None:
        return None
    if rows is not None and metadata["content"] not in (
        None,
        content(hash_rows(ensure_shared(rows, context), context)),
    ):
        raise StoreError(
            "the store was made from another input: its shape and sampled rows are the same, other rows differ. "
            "Pass another store, or resume=False to start over in this one."
        )
    return open_graph(context, name, rows)


def open_graph(context: Context, name: str, points: Any = None) -> NeighborGraph:
    """Graph that is marked complete under `name`."""
    metadata = context.store.metadata(name)
    if metadata is None:
        raise KeyError(name)
    store, n_points = context.store, metadata["n_points"]
    group = store.open_table(f"{name}/group").read(0, metadata["n_rows"]) if metadata["duplicates"] else None
    storage_order = StorageOrder(store.open_table(f"{name}/user_row").read(0, n_points), group)
    scan = None
    if "recall" in metadata:
        tables = [store.open_table(f"{name}/{table}") for table in ("missing", "listed")]
        scan = Scan(metadata["recall"], metadata["recall_error"], *(table.read(0, table.shape[0]) for table in tables))
        if store.stored:
            points = TableRows(store.open_table(f"{name}/points"))
    if isinstance(points, InputRows):  # brought late, in the user's order
        metadata = {**metadata, **_features(points)}
        points = RowSubset(points, storage_order.user_row)
    return NeighborGraph(
        context=context,
        name=name,
        storage_order=storage_order,
        lists=store.open_table(f"{name}/indices"),
        list_distances=store.open_table(f"{name}/distances"),
        edges=open_edges(context, f"{name}/edges", n_points, metadata["block_rows"]),
        points=points,
        scan=scan,
        metadata=metadata,
    )


def count_components(edges: Edges, most: float = np.inf) -> int:
    """Connected components by the edges that are no longer than `most` (all of them by default)."""
    from scalable_gpe.loops import sparse

    parent = np.arange(edges.n_points, dtype=np.int32)
    for number in range(edges.n_blocks):
        first, indptr, indices, values = edges.block(number)
        sparse.unite(indptr, indices, values, most, first, parent)
    return int((parent == np.arange(edges.n_points)).sum())
