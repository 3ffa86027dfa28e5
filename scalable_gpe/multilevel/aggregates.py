"""Aggregates: neighbouring rows that the coarse level moves together.

No aggregate crosses the border of a range of 16,384 rows in storage order, whatever the blocks of K are, so that each
range is one task and the aggregates are a function of the data alone.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array, vstack

from scalable_gpe.execution.context import Context
from scalable_gpe.execution.panels import Panel, Panels
from scalable_gpe.execution.resources import coarse_share
from scalable_gpe.graph.edges import Block, Edges
from scalable_gpe.heat.normalization import HeatKernel
from scalable_gpe.multilevel.coarse import DENSE
from scalable_gpe.storage.blocks import ranges

RANGE = 16_384  # rows: a power of two
N_STRONG, _N_LATER = 8, 2  # neighbours that an aggregate begins with, and those of aggregates that are joined again
_WEAK = 0.01  # share of the strongest coupling of a row below which a neighbour is not one
_LEAST = 1 / 64  # share of the heat that leaves an aggregate below which it joins no other; later, a quarter of it
_CLOSED = 0.1  # share of the heat of its rows that leaves an aggregate: with less, it joins no other
_SAMPLED = 4  # ranges whose part of the coarse matrix is measured first
_MOST_ROUNDS = 7


@dataclass(frozen=True)
class Aggregates:
    """The label of each row inside its range (-1: none), and the number of the first aggregate of each range."""

    labels: Panel
    offsets: np.ndarray

    @property
    def count(self) -> int:
        """Number of aggregates."""
        return int(self.offsets[-1])

    def of(self, number: int) -> slice:
        """The aggregates of one range."""
        return slice(int(self.offsets[number]), int(self.offsets[number + 1]))


def row_ranges(n_points: int) -> list[tuple[int, int]]:
    """The ranges of rows that aggregates stay inside."""
    return ranges(n_points, RANGE)


def range_pieces(context: Context, n_points: int) -> list[tuple[int, int]]:
    """Pieces of rows for tasks that work on whole ranges, and write whole shards of panels."""
    return ranges(n_points, max(RANGE, context.block_rows(n_points) // RANGE * RANGE))


def ranges_in(start: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """The ranges of a piece: the number of each one, its first row, and the row after its last one."""
    for first in range(start, stop, RANGE):
        yield first // RANGE, first, min(first + RANGE, stop)


def rows_of(edges: Edges, start: int, stop: int) -> Block:
    """Rows `start` to `stop` of K, from the blocks that hold them."""
    parts = []
    for number in range(start // edges.block_rows, -(-stop // edges.block_rows)):
        block = edges.block(number)
        first, last = max(start, block.first) - block.first, min(stop, block.stop) - block.first
        at = slice(block.indptr[first], block.indptr[last])
        own = np.diff(block.indptr[first : last + 1])
        parts.append((own, block.indices[at].copy(), block.values[at].copy()))
    lengths, indices, values = (np.concatenate(part) for part in zip(*parts, strict=True))
    return Block(start, np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]), indices, values)


def find_aggregates(heat: HeatKernel, panels: Panels, weight: Panel) -> tuple[Aggregates, csr_array]:
    """Aggregate the rows of each range by the entries of A between them; return the coarse matrix too.

    It is ``Z' diag(weight) K diag(weight) Z`` for the indicators Z of the aggregates. Where the graph is like an
    expander, almost all aggregates are neighbours: then they are aggregated again, until the matrix is small.
    """
    edges = heat.kernel.edges
    pieces = row_ranges(edges.n_points)
    sampled = pieces[:: -(-len(pieces) // _SAMPLED)]
    most = coarse_share(edges.n_points) * sum(int(edges.degree.read(*piece).sum(dtype=np.int64)) for piece in sampled)
    for n_rounds in range(_first_rounds(heat, weight, sampled[(len(sampled) - 1) // 2], len(pieces)), _MOST_ROUNDS + 1):
        aggregates = _aggregate(heat, panels, weight, n_rounds)
        measured = _coarse_rows(heat, aggregates, weight, sampled)
        if sum(part.nnz for part in measured) <= most or aggregates.count <= DENSE:
            break
        if n_rounds < _MOST_ROUNDS:
            aggregates.labels.retire()
    others = [piece for piece in pieces if piece not in sampled]
    by_piece = dict(zip(sampled + others, measured + _coarse_rows(heat, aggregates, weight, others), strict=True))
    return aggregates, vstack([by_piece[piece] for piece in pieces], format="csr")


def _first_rounds(heat: HeatKernel, weight: Panel, piece: tuple[int, int], n_pieces: int) -> int:
    """The number of rounds after which the part of the coarse matrix inside one range is small."""
    inside = _inside(heat.kernel.edges, weight, piece)
    most = coarse_share(heat.kernel.edges.n_points) * inside[0].nnz
    for n_rounds in range(1, _MOST_ROUNDS):
        own, count = _aggregate_range(*inside, n_rounds)
        if _joined(inside[0], own, count).nnz <= most or count * n_pieces <= DENSE:
            return n_rounds
    return _MOST_ROUNDS


def _aggregate(heat: HeatKernel, panels: Panels, weight: Panel, n_rounds: int) -> Aggregates:
    """Aggregate the rows of each range, then the aggregates, as many times as `n_rounds` says."""
    n_points, edges = heat.kernel.edges.n_points, heat.kernel.edges
    labels = panels.new((n_points,), np.int32)

    def aggregate(piece: tuple[int, int]) -> list[int]:
        out, counts = labels.room(*piece), []
        for _, start, stop in ranges_in(*piece):
            inside, flow, least = _inside(edges, weight, (start, stop))
            own, count = _aggregate_range(inside, flow, least, n_rounds)
            alone = (own < 0) & (flow > 0)  # all neighbours are in other ranges
            own[alone] = count + np.arange(alone.sum())
            out[start - piece[0] : stop - piece[0]] = own
            counts.append(count + int(alone.sum()))
        labels.put(piece[0], out)
        return counts

    counts = heat.context.workers.map(aggregate, range_pieces(heat.context, n_points), count=False)
    return Aggregates(labels, np.concatenate([[0], np.cumsum(np.concatenate(counts))]))


def _aggregate_range(inside: csr_array, flow: np.ndarray, least: np.ndarray, n_rounds: int) -> tuple[np.ndarray, int]:
    """Labels of the rows of one range, and the number of its aggregates."""
    own, count = aggregate_matrix(inside, least)
    joining = own  # labels of the rows of `inside`, which are the aggregates of the round before
    for number in range(n_rounds - 1):
        inside = _joined(inside, joining, count)
        flow = np.bincount(joining[joining >= 0], flow[joining >= 0], count)
        leaving = flow - inside.diagonal()
        least = np.where(leaving < _CLOSED * flow, np.inf, _LEAST / 4**number * leaving)
        joining, count = aggregate_matrix(inside, least, _N_LATER)
        alone = joining < 0  # aggregates without neighbours stay as they are
        joining[alone] = count + np.arange(alone.sum())
        own, count = np.where(own < 0, own, joining[own]), count + int(alone.sum())
    return own, count


def aggregate_matrix(coupling: csr_array, least: np.ndarray, n_strong: int = N_STRONG) -> tuple[np.ndarray, int]:
    """Aggregate the rows of a symmetric matrix of couplings; return their labels and the number of aggregates."""
    from scalable_gpe.loops import aggregation

    indptr, indices = coupling.indptr.astype(np.int64), coupling.indices.astype(np.int32)
    labels, count = aggregation.aggregate_rows(indptr, indices, coupling.data, least, n_strong)
    return labels, int(count)


def _inside(edges: Edges, weight: Panel, piece: tuple[int, int]) -> tuple[csr_array, np.ndarray, np.ndarray]:
    """The couplings between the rows of a range, the flow of heat out of each row, and its least coupling."""
    from scalable_gpe.loops import aggregation

    rows, n_rows = rows_of(edges, *piece), piece[1] - piece[0]
    indptr = np.zeros(n_rows + 1, np.int64)
    columns, coupling = np.empty(len(rows.indices), np.int32), np.empty(len(rows.indices))
    flow, least = np.empty(n_rows), np.empty(n_rows)
    matrix = rows.indptr, rows.indices, rows.values
    values = weight.whole(rows.indices)
    n_used = aggregation.select_inside(*matrix, *piece, values, _WEAK, indptr, columns, coupling, flow, least)
    return csr_array((coupling[:n_used], columns[:n_used], indptr), shape=(n_rows, n_rows)), flow, least


def _joined(coupling: csr_array, labels: np.ndarray, count: int) -> csr_array:
    """The couplings between aggregates."""
    rows, whole = Block(0, coupling.indptr, coupling.indices, coupling.data), np.array([0, count])
    return _coarse_part(rows, labels, np.ones(len(labels)), labels, whole, len(labels))


def _coarse_rows(
    heat: HeatKernel, aggregates: Aggregates, weight: Panel, pieces: list[tuple[int, int]]
) -> list[csr_array]:
    """Rows of the coarse matrix for the aggregates of some ranges."""
    edges = heat.kernel.edges

    def coarse_rows(piece: tuple[int, int]) -> csr_array:
        rows, own = rows_of(edges, *piece), aggregates.labels.rows(*piece)
        values, labels = weight.whole(rows.indices), aggregates.labels.whole(rows.indices)
        return _coarse_part(rows, own, values, labels, aggregates.offsets, RANGE)

    return heat.context.workers.map(coarse_rows, pieces, count=False)


def _coarse_part(
    rows: Block, own: np.ndarray, weight: np.ndarray, labels: np.ndarray, offsets: np.ndarray, range_rows: int
) -> csr_array:
    """Rows of ``Z' diag(weight) K diag(weight) Z`` from some rows of K, whose labels are `own`."""
    from scalable_gpe.loops import aggregation

    members, n_own = np.argsort(own, kind="stable"), int(own.max(initial=-1)) + 1
    starts = np.searchsorted(own[members], np.arange(n_own + 1))
    columns, values = np.empty(len(rows.indices), np.int32), np.empty(len(rows.indices))
    ends = aggregation.add_coarse_rows(
        *(rows.indptr, rows.indices, rows.values, rows.first, weight, labels, offsets, range_rows),
        *(members, starts, np.zeros(int(offsets[-1])), columns, values),
    )
    last = int(ends[-1])
    return csr_array((values[:last].copy(), columns[:last].copy(), ends), shape=(n_own, int(offsets[-1])))
