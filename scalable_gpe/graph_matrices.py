"""The graph of an embedding as CSR matrices in the user's order: neighbour lists, and the kernel.

Both are stored by points, in storage order. One pass over their blocks sorts the entries into pieces of the user's
rows, in memory or in scratch files; then one piece after another is put together.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from scalable_gpe.errors import Message
from scalable_gpe.execution.context import Context
from scalable_gpe.execution.panels import Panel, Panels
from scalable_gpe.execution.shuffle import ENTRY_BYTES, Sorted, shuffle
from scalable_gpe.graph.edges import check_listed
from scalable_gpe.graph.neighbors import NeighborGraph
from scalable_gpe.graph.storage_order import StorageOrder
from scalable_gpe.heat.kernel import SparseKernel
from scalable_gpe.io.export import CsrPieces
from scalable_gpe.storage.mapped import mapped, pieces

Source = TypeVar("Source", NeighborGraph, SparseKernel)

_MOST_ENTRIES = 2**33  # of a matrix that is mostly duplicates
_MOST_REPEATS = 8  # entries for each one between distinct points, from which it is mostly duplicates


def graph_matrices(graph: NeighborGraph, kernel: SparseKernel) -> tuple[Any, Any]:
    """Distances of the lists, and the kernel without its diagonal: scipy matrices in the order of the input."""
    matrices = distances(graph, graph.context), connectivities(kernel, kernel.context)
    return _to_scipy(matrices[0], graph.n_rows), _to_scipy(matrices[1], graph.n_rows)


def _to_scipy(matrix: CsrPieces, n_rows: int) -> Any:
    from scipy.sparse import csr_matrix

    columns, values = np.empty(matrix.nnz, np.int32), np.empty(matrix.nnz, matrix.dtype)
    start = 0
    for some_columns, some_values in matrix.pieces:
        stop = start + len(some_columns)
        columns[start:stop], values[start:stop] = some_columns, some_values
        start = stop
    return csr_matrix((values, columns, matrix.indptr), shape=(n_rows, n_rows))


def distances(graph: NeighborGraph, context: Context) -> CsrPieces:
    """Neighbour lists as CSR rows; `context` has workers, memory plan, and a store for scratch files."""
    panels = Panels(context)
    lists = _Lists(graph, panels.of(graph.storage_order.user_row))
    pointers = _pointers(lists, panels, context)
    found = _pieces(lists, pointers, panels, context)
    converted = ((columns, graph.in_user_units(lengths)) for columns, lengths in found)
    return CsrPieces(pointers, converted, np.float64 if graph.exponent else np.float32)


def connectivities(kernel: SparseKernel, context: Context) -> CsrPieces:
    """K without its diagonal as CSR rows; `context` has workers, memory plan, and a store for scratch files."""
    panels = Panels(context)
    rows = _KernelRows(kernel, panels.of(kernel.storage_order.user_row))
    pointers = _pointers(rows, panels, context)
    if pointers[-1] > max(_MOST_ENTRIES, _MOST_REPEATS * kernel.edges.nnz):
        raise ValueError(
            Message(
                f"connectivities would have {pointers[-1]:.1e} entries, because many rows are equal. Export with "
                "`graph=False`, or embed the distinct rows."
            )
        )
    return CsrPieces(pointers, _pieces(rows, pointers, panels, context))


# --- rows of a matrix -----------------------------------------------------------------------------


class _Entries(NamedTuple):
    """Entries of a matrix in the user's order, row by row."""

    rows: np.ndarray
    columns: np.ndarray
    values: np.ndarray


@dataclass(frozen=True)
class _Matrix(ABC, Generic[Source]):
    """A sparse matrix that is stored in blocks of points; `user_rows` are the user's rows of these."""

    source: Source
    user_rows: Panel

    @property
    def n_blocks(self) -> int:
        """As many blocks as the edges have."""
        return self.source.edges.n_blocks

    def rows_of(self, number: int) -> tuple[int, int]:
        """The first point of a block, and the point after its last one."""
        return self.source.edges.rows_of(number)

    @abstractmethod
    def lengths(self, number: int) -> np.ndarray:
        """Entries of each point of a block."""

    @abstractmethod
    def entries(self, number: int) -> _Entries:
        """Entries of the user's rows of a block."""


class _Lists(_Matrix[NeighborGraph]):
    """The neighbour lists: each of the user's rows has the list of its point."""

    def lengths(self, number: int) -> np.ndarray:
        """Neighbours of each point of a block."""
        lengths: np.ndarray = np.count_nonzero(self.source.lists.read(*self.rows_of(number)) >= 0, axis=1)
        return lengths

    def entries(self, number: int) -> _Entries:
        """Neighbours and distances of the user's rows of a block; columns of a row in any order."""
        graph, piece = self.source, self.rows_of(number)
        lists = graph.lists.read(*piece)
        check_listed(lists, graph.storage_order.n_points, graph.lists.name)
        rows, points = _rows_of_points(graph.storage_order, *piece)
        lists, lengths = lists[points], graph.list_distances.read(*piece)[points]
        present = lists >= 0
        neighbors = lists[present]
        columns = self.user_rows.whole(neighbors)[neighbors]
        return _Entries(np.repeat(rows, np.count_nonzero(present, axis=1)), columns, lengths[present])


class _KernelRows(_Matrix[SparseKernel]):
    """K without its diagonal; an entry between two points is one between any two rows that are equal to them."""

    def lengths(self, number: int) -> np.ndarray:
        """Entries of each point of a block."""
        order, edges = self.source.storage_order, self.source.edges
        if order.group is None:
            start, stop = self.rows_of(number)
            return edges.degrees(start, stop) - 1
        _, bounds = order.rows_by_point
        block = edges.block(number)
        ends = np.concatenate([[0], np.cumsum(bounds[block.indices + 1] - bounds[block.indices])])
        lengths: np.ndarray = np.diff(ends[block.indptr]) - 1
        return lengths

    def entries(self, number: int) -> _Entries:
        """Entries of the user's rows of a block, columns ascending."""
        order = self.source.storage_order
        block = self.source.edges.block(number)
        rows, points = _rows_of_points(order, block.first, block.stop)
        begin = block.indptr[points]
        lengths = block.indptr[points + 1] - begin
        at = _spans(begin, lengths)
        place, neighbors, values = np.repeat(np.arange(len(rows)), lengths), block.indices[at], block.values[at]
        if order.group is None:
            columns = self.user_rows.whole(neighbors)[neighbors]  # ascend already: K is stored so
        else:
            place, columns, values = _repeated(order, place, neighbors, values)
        owners = rows[place]
        other = columns != owners
        return _Entries(owners[other], columns[other], values[other])


def _rows_of_points(order: StorageOrder, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
    """The user's rows of some points, ascending, and the point of each, counted from `start`."""
    rows, points = order.members(start, stop)
    ascending = np.argsort(rows, kind="stable")
    return rows[ascending], points[ascending]


def _repeated(
    order: StorageOrder, place: np.ndarray, points: np.ndarray, values: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One entry for each of the user's rows of a point; rows of several points interleave and are sorted."""
    rows, bounds = order.rows_by_point
    counts = bounds[points + 1] - bounds[points]
    place, values = np.repeat(place, counts), np.repeat(values, counts)
    columns = rows[_spans(bounds[points], counts)]
    by = np.lexsort((columns, place))
    return place[by], columns[by], values[by]


def _spans(begin: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Join the ranges begin[i], begin[i] + 1, ... of so many numbers each.

    Examples
    --------
    >>> _spans(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    before = np.cumsum(lengths, dtype=np.int64) - lengths
    spans: np.ndarray = np.arange(int(lengths.sum()), dtype=np.int64) + np.repeat(begin - before, lengths)
    return spans


# --- from blocks of points to pieces of rows -------------------------------------------------------


def _pointers(matrix: _Matrix[Any], panels: Panels, context: Context) -> np.ndarray:
    """Where the entries of each of the user's rows begin, and where the last ones end."""
    order = matrix.source.storage_order
    lengths = panels.new((order.n_points,), np.int64)

    def measure(number: int) -> None:
        start, stop = matrix.rows_of(number)
        room = lengths.room(start, stop)
        room[:] = matrix.lengths(number)
        lengths.put(start, room)

    context.workers.map_blocks(measure, matrix.n_blocks)
    by_point, position = lengths.whole(), order.position
    pointers, total = context.empty((order.n_rows + 1,), np.int64), 0
    pointers[0] = 0
    for start, stop in pieces(order.n_rows):
        pointers[start + 1 : stop + 1] = total + np.cumsum(by_point[position[start:stop]])
        total = int(pointers[stop])
    lengths.retire()
    return pointers


def _pieces(
    matrix: _Matrix[Any], pointers: np.ndarray, panels: Panels, context: Context
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Columns and values of consecutive rows, as many at a time as the memory plan allows."""
    from scalable_gpe.loops import sparse

    cuts = _cuts(pointers, context.plan.exported_entries())
    block_bytes = max(1, ENTRY_BYTES * int(pointers[-1]) // matrix.n_blocks)
    together = context.plan.exported_blocks(matrix.n_blocks, block_bytes)
    in_memory = together == matrix.n_blocks and not context.workers.remote

    def sort(number: int) -> Sorted:
        rows, columns, values = matrix.entries(number)
        offsets = np.searchsorted(rows, cuts)
        return Sorted(offsets, rows.astype(np.int32), columns.astype(np.int32), values)

    shuffled = shuffle(sort, range(matrix.n_blocks), len(cuts) - 1, context, together=together, n_held=int(in_memory))
    panels.clear()
    try:
        for number, (start, stop) in enumerate(pairwise(cuts)):
            rows, columns, values = shuffled.entries(number)
            starts = np.array(pointers[start : stop + 1])
            placed = np.empty(len(rows), np.int32), np.empty(len(rows), np.float32)
            sparse.place_entries(rows, columns, values, start, starts, *placed)
            mapped.trim()
            yield placed
    finally:
        shuffled.clear()


def _cuts(pointers: np.ndarray, room: int) -> np.ndarray:
    """Bounds of pieces of rows with at most about `room` entries.

    Examples
    --------
    >>> _cuts(np.array([0, 2, 4, 9, 10, 11]), 4).tolist()
    [0, 2, 3, 5]
    """
    cuts = [0]
    while cuts[-1] < len(pointers) - 1:
        stop = int(np.searchsorted(pointers, pointers[cuts[-1]] + room, side="right")) - 1
        cuts.append(max(cuts[-1] + 1, stop))
    return np.array(cuts)
