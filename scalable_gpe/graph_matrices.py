"""The graph of an embedding as CSR matrices in the user's order: neighbour lists, and the kernel.

Both are stored by points, in storage order. A piece of the rows of the user is put together from all blocks that have
some of them: in one pass over the blocks, or in several where the plan has no room for the whole matrix.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from scalable_gpe.execution.context import Context
from scalable_gpe.graph.edges import Block, check_numbers
from scalable_gpe.graph.neighbors import NeighborGraph
from scalable_gpe.graph.storage_order import StorageOrder
from scalable_gpe.heat.kernel import SparseKernel
from scalable_gpe.io.export import CsrPieces
from scalable_gpe.storage.mapped import mapped, pieces, take_rows

_MOST_ENTRIES = 2**33  # of a matrix that is mostly duplicates
_MOST_REPEATS = 8  # entries for each one between distinct points, from which it is mostly duplicates


def graph_matrices(graph: NeighborGraph, kernel: SparseKernel) -> tuple[Any, Any]:
    """Distances of the lists, and the kernel without its diagonal: scipy matrices in the order of the input."""
    return _to_scipy(distances(graph)), _to_scipy(connectivities(kernel))


def _to_scipy(matrix: CsrPieces) -> Any:
    columns, values = np.empty(matrix.nnz, np.int32), np.empty(matrix.nnz, matrix.dtype)
    start, n_rows = 0, len(matrix.indptr) - 1
    for some_columns, some_values in matrix.pieces:
        stop = start + len(some_columns)
        columns[start:stop], values[start:stop] = some_columns, some_values
        start = stop
    return csr_matrix((values, columns, matrix.indptr), shape=(n_rows, n_rows))


def distances(graph: NeighborGraph) -> CsrPieces:
    """Neighbour lists as CSR rows: each of the user's rows has the list of its point."""
    n_points = graph.storage_order.n_points

    def block(number: int) -> Block:
        start, stop = graph.edges.rows_of(number)
        lists = graph.lists.read(start, stop)
        check_numbers(lists, n_points, graph.lists.name, least=-1)
        listed = lists >= 0
        ends = np.cumsum(np.count_nonzero(listed, axis=1))
        return Block(start, np.append(0, ends), lists[listed], graph.list_distances.read(start, stop)[listed])

    matrix = _Matrix(graph.storage_order, graph.edges.n_blocks, block)
    pointers = _pointers(matrix, graph.context)
    found = _pieces(matrix, pointers, graph.context)
    converted = ((columns, graph.in_user_units(lengths)) for columns, lengths in found)
    return CsrPieces(pointers, converted, np.float64 if graph.exponent else np.float32)


def connectivities(kernel: SparseKernel) -> CsrPieces:
    """K without its diagonal as CSR rows; an entry between two points is one between any two rows that equal them."""
    order, edges = kernel.storage_order, kernel.edges
    matrix = _Matrix(order, edges.n_blocks, edges.block, has_diagonal=True, repeats=order.group is not None)
    pointers = _pointers(matrix, kernel.context)
    if pointers[-1] > max(_MOST_ENTRIES, _MOST_REPEATS * edges.nnz):
        raise ValueError(
            f"connectivities would have {pointers[-1]:.1e} entries, because many rows are equal. Export with "
            "graph=False, or embed the distinct rows."
        )
    return CsrPieces(pointers, _pieces(matrix, pointers, kernel.context))


@dataclass(frozen=True)
class _Matrix:
    """A sparse matrix in blocks of points; with `repeats`, a column stands for all of the user's rows of its point."""

    order: StorageOrder
    n_blocks: int
    block: Callable[[int], Block]
    has_diagonal: bool = False
    repeats: bool = False

    def lengths(self, block: Block) -> np.ndarray:
        """Entries of the user's rows of each point of a block, without the diagonal."""
        ends = block.indptr
        if self.repeats:
            _, bounds = self.order.rows_by_point
            ends = np.append(0, np.cumsum(bounds[block.indices + 1] - bounds[block.indices]))[ends]
        lengths: np.ndarray = np.diff(ends) - int(self.has_diagonal)
        return lengths

    def entries(self, number: int, first: int, last: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The user's rows of a block from `first` up to `last`, and the columns and values of one after the other."""
        block = self.block(number)
        rows, points = self.order.members(block.first, block.stop)
        chosen = (first <= rows) & (rows < last)
        rows, points = rows[chosen], points[chosen]
        lengths = np.diff(block.indptr)[points]
        at = _spans(block.indptr[points], lengths)
        owners, neighbors, values = np.repeat(rows, lengths), block.indices[at], block.values[at]
        if self.repeats:
            equal_rows, bounds = self.order.rows_by_point
            counts = bounds[neighbors + 1] - bounds[neighbors]
            owners, values = np.repeat(owners, counts), np.repeat(values, counts)
            columns = equal_rows[_spans(bounds[neighbors], counts)]
        else:
            columns = take_rows(self.order.user_row, neighbors)
        other = columns != owners
        return rows, columns[other], values[other]


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


def _pointers(matrix: _Matrix, context: Context) -> np.ndarray:
    """Where the entries of each of the user's rows begin, and where the last ones end."""
    order = matrix.order
    by_point = context.empty((order.n_points,), np.int64)

    def measure(number: int) -> None:
        block = matrix.block(number)
        by_point[block.first : block.stop] = matrix.lengths(block)

    context.workers.map(measure, range(matrix.n_blocks), count=False)
    pointers, total = context.empty((order.n_rows + 1,), np.int64), 0
    pointers[0] = 0
    for start, stop in pieces(order.n_rows):
        pointers[start + 1 : stop + 1] = total + np.cumsum(take_rows(by_point, order.position[start:stop]))
        total = int(pointers[stop])
    return pointers


def _pieces(matrix: _Matrix, pointers: np.ndarray, context: Context) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Columns and values of consecutive rows, as many at a time as the memory plan allows."""
    for first, last in pairwise(_cuts(pointers, context.plan.exported_entries()).tolist()):
        yield _piece(matrix, first, pointers[first : last + 1] - pointers[first], context)


def _piece(matrix: _Matrix, first: int, starts: np.ndarray, context: Context) -> tuple[np.ndarray, np.ndarray]:
    """Columns (ascending) and values of the rows from `first` on, whose entries begin at `starts`."""
    n_rows, lengths = len(starts) - 1, np.diff(starts)
    columns, values = np.empty(starts[-1], np.int32), np.empty(starts[-1], np.float32)

    def place(number: int) -> None:
        rows, some_columns, some_values = matrix.entries(number, first, first + n_rows)
        at = _spans(starts[rows - first], lengths[rows - first])
        columns[at], values[at] = some_columns, some_values
        mapped.trim()

    context.workers.map(place, range(matrix.n_blocks), count=False)
    piece = csr_matrix((values, columns, starts), shape=(n_rows, matrix.order.n_rows))
    piece.sort_indices()
    return piece.indices, piece.data


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
