"""Make a graph: search, symmetrise, measure, commit."""

from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any

import numpy as np

from scalable_gpe import checks
from scalable_gpe.errors import GPEWarning, StoreError, warn
from scalable_gpe.execution.cluster import check_client, shared_store, workers_for
from scalable_gpe.execution.context import Context, complete, make_context, open_store
from scalable_gpe.execution.panels import Panels
from scalable_gpe.execution.process import release_freed_memory
from scalable_gpe.execution.resources import ProblemSize, parse_bytes
from scalable_gpe.execution.workers import Workers
from scalable_gpe.graph.exact import Jaccard, products_for
from scalable_gpe.graph.neighbors import (
    GraphMetadata,
    NeighborGraph,
    check_search,
    of_input,
    offset_of,
)
from scalable_gpe.graph.points import (
    DistinctRows,
    RowsFingerprint,
    RowSubset,
    add_lost_digits,
    check_rounding,
    content,
    distinct_rows,
    ensure_shared,
    fingerprint,
    hash_rows,
    merges_others,
)
from scalable_gpe.graph.precomputed import ListsFingerprint, PrecomputedLists, check_lists
from scalable_gpe.graph.recall import exact_sample
from scalable_gpe.graph.search import SearchParameters, choose_method, search_all
from scalable_gpe.graph.storage_order import StorageOrder
from scalable_gpe.graph.stored_graph import begin_graph, finish_graph, list_tables, save_lists, save_order, save_points
from scalable_gpe.io.rows import InputRows, Rows, choose_exponent, naming_all_rows, open_rows
from scalable_gpe.io.scaling import ColumnSpread
from scalable_gpe.storage.backends import StorageOptions, check_options
from scalable_gpe.storage.blocks import ranges
from scalable_gpe.storage.records import graph_name
from scalable_gpe.storage.store import ArrayStore, write_whole

_FEW = 10  # different rows that are too few to learn from, of ten times as many


@dataclass(frozen=True)
class Source:
    """Fingerprint of a graph's input: points, precomputed lists, or both."""

    rows: RowsFingerprint | None = None
    neighbors: ListsFingerprint | None = None


def neighbor_graph(
    X: Any,
    n_neighbors: int | None = None,
    *,
    metric: str = "euclidean",
    scale: str | None = None,
    method: str = "auto",
    recall: float = 0.95,
    random_state: Any = 0,
    store: Any = None,
    storage_options: StorageOptions | None = None,
    memory_limit: Any = None,
    n_jobs: int | None = None,
    client: Any = None,
) -> NeighborGraph:
    """Find the nearest neighbours of each row: exactly if that is affordable, else with measured recall.

    Parameters
    ----------
    X : array-like (N, d)
        numpy, memory-mapped, zarr, dask or scipy sparse array, DataFrame, AnnData object, or a path or URL (see
        `read_points`).
    n_neighbors : int, optional
        Number of other (distinct) points in each list; ``min(16, N - 1)`` by default.
    metric : {"euclidean", "cosine", "correlation", "hamming", "jaccard"}
        The distance of rows. Cosine is euclidean on rows scaled to length 1, correlation that of centred rows. For
        rows of 0 and 1, the squared distance is the share of differing entries: among all (hamming), or among those
        that are 1 in either row (jaccard, by the methods "brute" and "pynndescent" only).
    scale : {None, "standard", "robust"}
        As in `embed`.
    method : {"auto", "kdtree", "brute", "cells", "pynndescent"}
        The search; "auto" is exact in low dimension and for few rows.
    recall : float
        Share of true neighbours to aim for; a lower measured share gives a warning.
    random_state : int, None or numpy generator
        Seed of the search and of the sample that measures its recall.
    store : path or URL, optional
        A zarr store for the lists; `embed` with the same store finds them.
    storage_options : dict, optional
        Options of fsspec for the URLs of `store` and `X`.
    memory_limit : int or str, optional
        Largest resident memory of this process; "2GB" is 2e9 bytes.
    n_jobs : int, optional
        Number of threads; all cores by default.
    client : None, False or distributed.Client
        As in `embed`.

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
    seed = checks.check_random_state(random_state)
    check_options(storage_options, store, X)
    check_client(client)
    rows = open_rows(X, metric, storage_options=storage_options)
    parameters = check_search(
        n_neighbors=n_neighbors,
        metric=metric,
        method=method,
        recall=recall,
        random_state=seed,
        n_rows=rows.n_rows,
        scale=scale,
    )
    stage = GraphStage(parameters, rows, is_default=n_neighbors is None)
    size = ProblemSize(rows.n_rows, rows.n_features, parameters.n_neighbors or 1)
    has_store = store is not None
    with workers_for(client, n_jobs, n_rows=rows.n_rows, is_dask=rows.is_dask, has_store=has_store) as workers:
        arrays = open_store(shared_store(workers, store), storage_options)
        context = make_context(arrays, workers, size, parse_bytes(memory_limit), resident_input=stage.resident)
        with arrays.exclusive():
            return complete(stage.scaled(workers).numbered(arrays), context)


@dataclass(frozen=True)
class GraphStage:
    """Stage that makes the graph of points, or of precomputed lists.

    `is_default`: n_neighbors was not given, so that it is lowered where few rows differ.
    """

    parameters: SearchParameters
    rows: InputRows | None
    lists: PrecomputedLists | None = None
    number: int = 0  # how often a store with this graph was started over
    is_default: bool = False
    unscaled: RowsFingerprint | None = None  # of an input whose rows are scaled
    remarks: tuple[str, ...] = ()  # about the columns of the input

    @property
    def n_rows(self) -> int:
        return len(self.lists.indices) if self.lists is not None else self.rows.n_rows if self.rows is not None else 0

    @property
    def n_features(self) -> int:
        """Number of columns of the points; 0 without points."""
        return 0 if self.rows is None else self.rows.n_features

    @property
    def n_neighbors(self) -> int:
        return self.lists.indices.shape[1] if self.lists is not None else self.parameters.n_neighbors or 1

    @property
    def is_dask(self) -> bool:
        return self.rows is not None and self.rows.is_dask

    @property
    def resident(self) -> bool:
        """Whether the points are in the memory of this process, all of their entries."""
        return self.rows is not None and self.rows.resident and not self.rows.is_sparse

    def scaled(self, workers: Workers) -> "GraphStage":
        """The same stage in units in which float32 holds the squares of all distances: one pass over all rows.

        The pass also measures the columns, for `scale` and for what is to be said about them.
        """
        rows, lists = self.rows, self.lists
        spread = (
            None if rows is None or rows.is_mapped else _column_spread(rows, self.parameters.scale == "robust", workers)
        )
        largest = [0.0 if lists is None else lists.largest]
        if rows is not None:
            largest.append(1.0 if spread is None else spread.largest(rows.offset))
        exponent = choose_exponent(max(largest), "X" if lists is None else "neighbors")
        lists = None if lists is None else lists.with_exponent(exponent)
        rows = None if rows is None else rows.with_exponent(exponent)
        stage = replace(self, rows=rows, lists=lists)
        if rows is None or lists is not None:
            return stage
        if spread is None:
            return replace(stage, remarks=rows.remarks)
        kind, element = self.parameters.scale, None if rows.annotations is None else rows.annotations.source
        remarks = spread.remarks(kind, rows.feature_names, element)
        if kind is not None:
            stage = replace(stage, rows=rows.scaled(kind, spread), unscaled=fingerprint(rows))
        return replace(stage, remarks=(*rows.remarks, *remarks))

    def numbered(self, store: ArrayStore, *, again: bool = False) -> "GraphStage":
        """The stage with the number that its graph has in a store, or `again` with one that no graph there has.

        Starting over makes a graph beside the old one, which stays until the new one is complete: the lower number.
        """
        key = self.name.rpartition("/")[2]
        graphs = (one.partition("-") for one in store.names("graph"))
        same = [int(number or 0) for known, _, number in graphs if known == key]
        number = max(same, default=-1) + 1 if again else min(same, default=0)
        return replace(self, number=number) if number else self

    @cached_property
    def source(self) -> Source:
        rows, lists = self.rows, self.lists
        return Source(
            rows=None if rows is None else self.unscaled or fingerprint(rows),
            neighbors=None if lists is None else lists.fingerprint,
        )

    @property
    def name(self) -> str:
        name = graph_name(self.source, self.parameters)
        return f"{name}-{self.number}" if self.number else name

    def find(self, context: Context) -> NeighborGraph | None:
        """Return the complete graph, or None; raise if it was made from other rows."""
        rows, metadata = self.rows, context.store.read(self.name, GraphMetadata)
        if metadata is None:
            return None
        with naming_all_rows(rows):
            same = rows is None or metadata.content in (None, content(hash_rows(rows, context)))
        if not same or (rows is not None and metadata.n_features is not None and metadata.offset != offset_of(rows)):
            raise StoreError(
                "the store was made from another input: its shape and sampled rows are the same, other rows differ "
                "or all are shifted by a constant. Pass another store, or resume=False to start over in this one."
            )
        if self.lists is None:
            self.distinct_neighbors(metadata.n_points)  # another call may have lowered it
        return NeighborGraph.open(context, self.name, rows)

    def make(self, context: Context) -> NeighborGraph:
        """Search for the lists or take the precomputed ones, symmetrise, measure, and commit the graph."""
        if self.lists is not None:
            return _precomputed_graph(self.lists, self.rows, self.parameters.random_state, context, self.name)
        assert self.rows is not None
        with naming_all_rows(self.rows):
            return _make_graph(self, self.rows, context)

    def distinct_neighbors(self, n_points: int) -> int:
        """Number of neighbours in each list, at most the number of other distinct points."""
        if n_points < 2:
            raise ValueError(
                f"X must have at least 2 different rows; all {self.n_rows} rows are equal. There is nothing to embed."
            )
        if self.n_neighbors > n_points - 1 and not self.is_default:
            raise ValueError(
                f"n_neighbors must be at most {n_points - 1}, one less than the number of different rows "
                f"({self.n_rows} rows, {n_points} different); got {self.n_neighbors}. Lower it, or leave it out."
            )
        return min(self.n_neighbors, n_points - 1)


def check_neighbors(neighbors: Any, rows: InputRows | None, n_neighbors: int | None) -> PrecomputedLists | None:
    """Check precomputed lists; without them, there must be points."""
    if neighbors is not None:
        return check_lists(neighbors, None if rows is None else rows.n_rows, n_neighbors)
    if rows is None:
        raise ValueError("embed needs X or neighbors; got neither.")
    return None


def _column_spread(rows: InputRows, sampled: bool, workers: Workers) -> ColumnSpread:
    """How the columns of an input spread: a sum of fixed pieces, so few that their results are small."""
    steps, n_pieces = rows.steps(0, rows.n_rows), max(8, min(256, 2**20 // rows.n_features))
    pieces = [steps[first:last] for first, last in ranges(len(steps), -(-len(steps) // n_pieces))]

    def spread_columns(piece: list[tuple[int, int]]) -> ColumnSpread:
        return rows.spread(piece, sampled=sampled)

    with naming_all_rows(rows):
        found = (workers if rows.shared else workers.here).map(spread_columns, pieces, count=False)
    return reduce(ColumnSpread.joined, found)


def _make_graph(stage: GraphStage, rows: InputRows, context: Context) -> NeighborGraph:
    parameters, name = stage.parameters, stage.name
    shared = ensure_shared(rows, context)
    hashes = hash_rows(shared, context)
    distinct = distinct_rows(hashes, context)
    checksum = content(hashes)
    if distinct is not None and rows.rounds and merges_others(rows, distinct):
        add_lost_digits(hashes, rows, context)
        distinct = distinct_rows(hashes, context)
    del hashes
    n_points = rows.n_rows if distinct is None else len(distinct.first)
    n_neighbors = stage.distinct_neighbors(n_points)
    method = choose_method(parameters.method, n_points, rows.n_features, n_neighbors, parameters.metric)
    panels = Panels(context)
    points: Rows = shared if distinct is None else RowSubset(shared, panels.of(distinct.first))
    products = products_for(rows)
    release_freed_memory()  # of rows that were compared with each other
    context.tune_memory(searching=True)
    sample = exact_sample(points, n_neighbors, parameters.random_state, context, products)
    check_rounding(rows, points, sample, context)
    n_parts = begin_graph(name, checksum, context.store, context.plan.n_parts if method == "cells" else 1)
    remarks = tuple(warn(text, GPEWarning) for text in (*stage.remarks, *_few_different(n_points, rows)))
    if method == "cells":
        from scalable_gpe.graph.cells import search_cells

        workers = context.workers
        found = search_cells(points, n_neighbors, sample, parameters, context, f"{name}/search", n_parts)
    else:
        workers = context.workers.here  # which has the index
        found = search_all(points, n_neighbors, method, parameters.random_state, context, products)
    storage_order = _storage_order(found.order, distinct, context)
    save_order(storage_order, context, name)
    stored: Rows = RowSubset(points, found.order)
    if not isinstance(products, Jaccard):
        stored = save_points(found.rows, stored, context, workers, name)
    save_lists(found, n_neighbors, context, workers, name)
    trace = found.trace
    del found  # a k-d tree is large
    release_freed_memory()
    context.tune_memory()
    panels.clear()
    if rows.dropped is not None:
        write_whole(context.store.table(f"{name}/dropped", rows.dropped.shape, rows.dropped.dtype), rows.dropped)
    return finish_graph(
        storage_order,
        stored,
        sample,
        context,
        name,
        products=products,
        recall=parameters.recall,
        method=method,
        content=checksum,
        remarks=remarks,
        n_dropped=0 if rows.dropped is None else len(rows.dropped),
        n_parts=n_parts,
        recall_trace=trace,
        **of_input(rows),
    )


def _few_different(n_points: int, rows: InputRows) -> list[str]:
    n_all = rows.n_rows + (0 if rows.dropped is None else len(rows.dropped))
    text = f"only {n_points} different rows are left of {n_all:,}: check which columns and rows are used."
    return [text] if n_points < _FEW <= n_all / 10 else []


def _precomputed_graph(
    lists: PrecomputedLists, rows: InputRows | None, random_state: int, context: Context, name: str
) -> NeighborGraph:
    products = None if rows is None else products_for(rows)
    checksum = sample = shared = None
    if rows is not None:
        shared = ensure_shared(rows, context)
        checksum = content(hash_rows(shared, context))
        # ids of the source are the user's rows here: no rows were merged
        sample = exact_sample(shared, lists.indices.shape[1], random_state, context, products)
        check_rounding(rows, shared, sample, context)
    begin_graph(name, checksum, context.store)
    order = _graph_order(lists.indices)
    storage_order = StorageOrder(order, None, context.empty)
    save_order(storage_order, context, name)
    points: Rows | None = None
    if rows is not None and shared is not None:
        points, panels = RowSubset(rows, order), Panels(context)
        if not isinstance(products, Jaccard):
            points = save_points(RowSubset(shared, panels.of(order)).read, points, context, context.workers, name)
        panels.clear()
    position = storage_order.by_user
    relabelled = np.where(lists.indices >= 0, position[lists.indices], -1)[order]
    indices, distances = list_tables(lists.indices.shape, context, name)
    write_whole(indices, relabelled)
    for start, stop in ranges(len(order), distances.shard_rows):
        distances.write(start, lists.distances[order[start:stop]])
    known = {"exponent": lists.exponent} if rows is None else of_input(rows)
    return finish_graph(
        storage_order,
        points,
        sample,
        context,
        name,
        products=products,
        recall=None,
        method="precomputed",
        content=checksum,
        **known,
    )


def _storage_order(order: np.ndarray, distinct: DistinctRows | None, context: Context) -> StorageOrder:
    if distinct is None:
        return StorageOrder(order, None, context.empty)
    user_row = context.filled(len(order), np.int64, lambda start, stop: distinct.first[order[start:stop]])
    return StorageOrder(user_row, distinct.group, context.empty)


def _graph_order(indices: np.ndarray) -> np.ndarray:
    """Reverse Cuthill-McKee order of the lists' graph, which keeps neighbours near each other and needs no X."""
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    n_rows = len(indices)
    kept = indices >= 0
    counts = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
    graph = csr_matrix((np.ones(counts[-1], np.int8), indices[kept], counts), shape=(n_rows, n_rows))
    return np.asarray(reverse_cuthill_mckee((graph + graph.T).tocsr(), symmetric_mode=True)).astype(np.int64)
