"""A graph in the store: its order, points and lists are saved, its edges made and measured, and it is committed.

Another input, or other libraries, must not resume an unfinished graph. Its name depends on sampled rows only. All rows
are hashed before the search, and the checksum is committed then, with the versions of the libraries: another one may
order the points otherwise.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from scalable_gpe.errors import RecallWarning, StoreError, logger, warn
from scalable_gpe.execution.context import Context
from scalable_gpe.execution.panels import Panels
from scalable_gpe.execution.process import process, versions
from scalable_gpe.execution.workers import Workers
from scalable_gpe.graph.edges import count_components, union_edges
from scalable_gpe.graph.exact import Jaccard, Products
from scalable_gpe.graph.neighbors import GraphMetadata, NeighborGraph
from scalable_gpe.graph.points import rows_per_shard
from scalable_gpe.graph.recall import ExactSample, measure_graph
from scalable_gpe.graph.search import NeighborLists
from scalable_gpe.graph.storage_order import StorageOrder
from scalable_gpe.io.rows import Rows
from scalable_gpe.storage.blocks import block_rows, ranges
from scalable_gpe.storage.mapped import inverse_order, take_rows
from scalable_gpe.storage.records import input_name
from scalable_gpe.storage.store import ArrayStore, Table, write_whole


def finish_graph(
    storage_order: StorageOrder,
    points: Rows | None,
    sample: ExactSample | None,
    context: Context,
    name: str,
    *,
    products: Products | None,
    recall: float | None,
    **known: Any,
) -> NeighborGraph:
    """Symmetrise the lists, measure the graph if there are points, and commit it with what is `known` about it."""
    store, n_points = context.store, storage_order.n_points
    lists, lengths = (store.open_table(f"{name}/{table}") for table in ("indices", "distances"))
    with context.workers.progress.stage("edges", -(-n_points // context.block_rows(n_points))):
        edges = union_edges(lists, lengths, storage_order.user_row, context, f"{name}/edges")
    metadata = GraphMetadata(
        n_rows=storage_order.n_rows,
        n_points=n_points,
        block_rows=edges.block_rows,
        n_connected_components=count_components(edges, context),
        duplicates=storage_order.group is not None,
        **known,
    )
    if points is not None and sample is not None:
        scan = measure_graph(sample, points, edges, lengths, storage_order.by_user, products)
        nearest = scan.nearest
        pairs = np.column_stack([nearest.points, nearest.neighbors, nearest.distances, nearest.held])
        for table, values in (("missing", scan.missing), ("listed", scan.listed), ("nearest", pairs)):
            write_whole(store.table(f"{name}/{table}", values.shape, values.dtype, len(values)), values)
        metadata = replace(metadata, recall=scan.recall, recall_error=scan.recall_error)
        if recall is not None and scan.recall + scan.recall_error < recall:
            text = (
                f"the neighbour lists hold {scan.recall:.3f} of the true neighbours, below recall={recall}. "
                "Raise n_neighbors, or choose method='brute'; missing_weight of the report says what it costs."
            )
            metadata = replace(metadata, warning=warn(text, RecallWarning))
    _complete(name, store)
    store.commit(name, metadata)
    return NeighborGraph.open(context, name, None if isinstance(products, Jaccard) else points)


def save_order(storage_order: StorageOrder, context: Context, name: str) -> None:
    """Write the storage order, after what is stored in another one is removed."""
    _check_order(name, storage_order.user_row, context.store)
    for table, values in (("user_row", storage_order.user_row), ("group", storage_order.group)):
        if values is not None:
            write_whole(context.store.table(f"{name}/{table}", values.shape, values.dtype), values)


def save_points(
    read: Callable[[int, int], np.ndarray], points: Rows, context: Context, workers: Workers, name: str
) -> Rows:
    """Return the points in storage order: as given, or from a table in the store, so that a later process needs no X.

    `read` gives the `workers` what is written there.
    """
    if not context.store.persistent:
        return points
    shape = points.n_rows, points.n_features
    shard = min(block_rows(points.n_rows), rows_per_shard(points.n_features))
    table = context.store.table(f"{name}/points", shape, np.float32, shard)

    def save_points(piece: tuple[int, int]) -> None:
        if not table.has(piece[0]):
            table.write(piece[0], read(*piece))

    pieces = ranges(table.shape[0], table.shard_rows)
    with context.workers.progress.stage("points", len(pieces)):
        workers.map(save_points, pieces)
    return table


def list_tables(shape: tuple[int, ...], context: Context, name: str) -> tuple[Table, Table]:
    """The tables of the lists and of their distances."""
    store = context.store
    return store.table(f"{name}/indices", shape, np.int32), store.table(f"{name}/distances", shape, np.float32)


def save_lists(found: NeighborLists, n_neighbors: int, context: Context, workers: Workers, name: str) -> None:
    """Write the lists as numbers in storage order, with distances."""
    order, find = found.order, found.lists  # tasks get no whole order
    lists, lengths = list_tables((len(order), n_neighbors), context, name)
    panels = Panels(context)
    position = panels.of(inverse_order(order, context.empty))

    def save_lists(piece: tuple[int, int]) -> None:
        if not (lists.has(piece[0]) and lengths.has(piece[0])):
            neighbors, squared = find(*piece)
            lists.write(piece[0], take_rows(position.whole(), neighbors))
            lengths.write(piece[0], np.sqrt(squared))

    pieces = ranges(len(order), lists.shard_rows)
    with context.workers.progress.stage("lists", len(pieces)), process.one_blas_thread():
        workers.map(save_lists, pieces)
    panels.clear()
    # first what says that parts are finished: a run that is killed now must not trust tables that are half removed
    context.store.remove(f"{name}/search/done")
    context.store.remove(f"{name}/search")


@dataclass(frozen=True)
class GraphInput:
    """Checksum of all rows (None without points), and versions of the libraries, when a graph was begun.

    `complete`: the graph was committed, so that a kernel may have been made from it.
    `n_parts`: those of its search; None in stores of earlier versions.
    """

    content: str | None
    versions: dict[str, str]
    complete: bool = False
    n_parts: int | None = None


def begin_graph(name: str, content: str | None, store: ArrayStore, n_parts: int = 1) -> int:
    """Commit the input of a graph before it is made; remove an unfinished graph of another one.

    A graph that was complete once may have a kernel, which belongs to its rows and to its order: it is repaired from
    the same input only. Returns the number of parts of the search: `n_parts`, or those of the search that is resumed if
    they are no fewer.
    """
    now, begun = GraphInput(content, versions(), n_parts=n_parts), store.read(input_name(name), GraphInput)
    same = begun is not None and (begun.content, begun.versions) == (now.content, now.versions)
    if begun is not None and same and begun.n_parts is not None and begun.n_parts >= n_parts:
        return begun.n_parts
    if name.rpartition("/")[2] in store.names("graph"):
        _start_over(begun, [name], store)
    store.commit(input_name(name), now)
    return n_parts


def _complete(name: str, store: ArrayStore) -> None:
    """Record that a graph is about to be committed."""
    begun = store.read(input_name(name), GraphInput)
    if begun is not None and not begun.complete:
        store.commit(input_name(name), replace(begun, complete=True))


def _check_order(name: str, user_row: np.ndarray, store: ArrayStore) -> None:
    """Remove what is stored in another order than that of this search, which another build of a library may give."""
    stored = store.find_table(f"{name}/user_row")
    if stored is None or stored.shape != user_row.shape:
        return
    pieces = ranges(len(user_row), stored.shard_rows)
    if any(stored.has(start) and (stored.read(start, stop) != user_row[start:stop]).any() for start, stop in pieces):
        in_order = [f"{name}/{table}" for table in ("points", "indices", "distances", "edges")]
        _start_over(store.read(input_name(name), GraphInput), in_order, store)


def _start_over(begun: GraphInput | None, arrays: list[str], store: ArrayStore) -> None:
    """Remove arrays of a graph that was never complete; refuse to replace one that was."""
    if begun is None or begun.complete:
        raise StoreError(
            "the graph of the store is damaged, and cannot be repaired: it was made from another input, in larger "
            "parts or with other versions of libraries. Pass another store, or resume=False to start over in "
            "this one."
        )
    logger.warning("the unfinished graph has other rows, larger parts or other versions: starting over")
    for array in arrays:
        store.remove(array)
