"""Exact scans of sampled points: recall of the neighbour lists, and the weight and the mass that they lack.

There is one scan: it compares sampled points with all points, block by block.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, NamedTuple, TypeVar

import numpy as np

from scalable_gpe.execution.context import Context
from scalable_gpe.execution.panels import Panels
from scalable_gpe.graph.edges import Edges
from scalable_gpe.graph.exact import Products, keep_nearest
from scalable_gpe.io.rows import Rows
from scalable_gpe.storage.blocks import ranges
from scalable_gpe.storage.store import Table

N_SAMPLES = 256
_LANES = 128  # samples that are compared together
_MOST_PIECES = 64  # tasks of one scan
_EDGES_AT_ONCE = 2**16

Result = TypeVar("Result")
_Nearest = tuple[np.ndarray, np.ndarray, Any]  # squares and numbers of the nearest points, counts of all distances


class Scanned(NamedTuple):
    """Some samples (`lane` of all, as columns in whole tiles, and their numbers), and a block of points."""

    lane: slice
    columns: np.ndarray
    own: np.ndarray
    block: np.ndarray
    ids: np.ndarray


def scan_points(
    points: Rows,
    own: np.ndarray,
    begin: Callable[[], Result],
    update: Callable[[Scanned, Result], None],
    context: Context,
    *,
    pack: Callable[[Result], Result] = lambda results: results,
    merge: Callable[[Result, Result], Result] = add,
    stage: str = "",
) -> Result:
    """Compare the points `own` (numbers, ascending) with all points, exactly.

    The points are cut into pieces. Of each, `begin` makes empty results, `update` adds blocks, and `pack` makes them
    small, as they may be sent between processes; `merge` joins the results of two pieces, in order.
    """
    panels = Panels(context)
    shared, numbers = panels.of(np.ascontiguousarray(points.take(own))), panels.of(np.asarray(own, np.int64))
    step = max(64, min(16_384, 2**22 // points.n_features))
    # depends on the rows alone, because sums depend on it
    piece_rows = step * -(-points.n_rows // (step * _MOST_PIECES))

    def scan_piece(piece: tuple[int, int]) -> Result:
        rows, sample_ids = shared.whole(), numbers.whole()
        lanes = [slice(*lane) for lane in ranges(len(sample_ids), _LANES)]
        columns = [_in_tiles(rows[lane]) for lane in lanes]
        results = begin()
        for start in range(*piece, step):
            stop = min(start + step, piece[1])
            block, ids = np.ascontiguousarray(points.read(start, stop)), np.arange(start, stop)
            for lane, some in zip(lanes, columns, strict=True):
                update(Scanned(lane, some, sample_ids[lane], block, ids), results)
        return pack(results)

    pieces = ranges(points.n_rows, piece_rows)
    with context.workers.progress.stage(stage, len(pieces)) if stage else nullcontext():
        results = context.workers.map(scan_piece, pieces, count=bool(stage))
    panels.clear()
    return reduce(merge, results)


def _in_tiles(samples: np.ndarray) -> np.ndarray:
    """Samples as columns, filled up with zeros to whole tiles."""
    from scalable_gpe.loops.vectors import TILE

    columns = np.zeros((samples.shape[1], -(-len(samples) // TILE) * TILE), np.float32)
    columns[:, : len(samples)] = samples.T
    return columns


def recall_half_width(shares: np.ndarray) -> float:
    """Half width of the 95 % interval of a mean over sampled rows; rows are independent, pairs of one row are not.

    If no row misses a neighbour, 3 / n bounds the share of rows that do (the rule of three). If few rows do, their
    spread is too small an estimate: 1 / n, one more row that misses its whole list, is added.
    """
    n_rows = len(shares)
    if (shares == 1).all():
        return 3 / n_rows
    return 1.96 * float(shares.std(ddof=1) / np.sqrt(n_rows)) + 1 / n_rows


def recall_standard_error(shares: np.ndarray) -> float:
    """Standard error of the recall of sampled rows, for the search to decide on another round."""
    n_rows = len(shares)
    least = (3 if (shares == 1).all() else 1) / 1.96 / n_rows
    return max(float(shares.std(ddof=1) / np.sqrt(n_rows)), least)


@dataclass(frozen=True)
class ExactSample:
    """Sampled points with their true neighbours, nearest first, and a histogram of all distances.

    `points` are numbers in the order of the source, ascending; so are `neighbors`, the rows at the squared distances
    `nearest`.
    """

    points: np.ndarray
    nearest: np.ndarray
    neighbors: np.ndarray
    histogram: np.ndarray
    n_points: int

    def recall(self, lengths: np.ndarray) -> tuple[float, float]:
        """Share of true neighbours in the lists of the sampled points, and the half width of its 95 % interval.

        A neighbour counts as found when it is no further than the true last one, so ties do not hurt.
        """
        shares = self.shares(lengths)
        return float(shares.mean()), 0.0 if self.is_whole else recall_half_width(shares)

    @property
    def is_whole(self) -> bool:
        return len(self.points) == self.n_points

    def shares(self, lengths: np.ndarray) -> np.ndarray:
        found: np.ndarray = (lengths <= self.reach[:, None]).mean(axis=1)
        return found

    @property
    def reach(self) -> np.ndarray:
        """Distance of each sampled point to its last true neighbour, and a little more than rounding."""
        return np.sqrt(self.nearest[:, -1].astype(np.float64)) * (1 + 1e-5)


def nearest_points(
    points: Rows,
    own: np.ndarray,
    n_keep: int,
    context: Context,
    *,
    n_bins: int = 0,
    products: Products | None = None,
    stage: str = "",
) -> ExactSample:
    """Find the nearest points of the points `own`, and count all distances in `n_bins` bins.

    `products` computes the distances; by default they are those of straight lines.
    """
    from scipy.sparse import csr_matrix

    from scalable_gpe.loops import points as loops

    shape = len(own), n_keep

    def begin() -> _Nearest:
        return np.full(shape, np.inf, np.float32), np.full(shape, -1, np.int64), np.zeros(n_bins, np.int64)

    def update(scanned: Scanned, into: _Nearest) -> None:
        (lane, columns, numbers, block, ids), (kept_squares, kept_ids, counts) = scanned, into
        if products is None:
            loops.nearest_rows(columns, numbers, block, ids, kept_squares[lane], kept_ids[lane], counts)
            return
        squares = products.all_squares(*map(products.matrix, (columns.T[: len(numbers)], block))).astype(np.float32)
        squares[numbers[:, None] == ids] = np.inf
        loops.count_bins(squares[squares < np.inf], counts, 1)
        all_ids = np.concatenate([kept_ids[lane], np.broadcast_to(ids, squares.shape)], axis=1)
        all_squares = np.concatenate([kept_squares[lane], squares], axis=1)
        kept_squares[lane], kept_ids[lane] = keep_nearest(all_squares, all_ids, n_keep)

    def pack(found: _Nearest) -> _Nearest:
        return *found[:2], csr_matrix(found[2])

    def merge(left: _Nearest, right: _Nearest) -> _Nearest:
        squares, ids = (np.concatenate(sides, axis=1) for sides in zip(left[:2], right[:2], strict=True))
        return *keep_nearest(squares, ids, n_keep), left[2] + right[2]

    squares, ids, counts = scan_points(points, own, begin, update, context, pack=pack, merge=merge, stage=stage)
    return ExactSample(own, squares, ids, counts.toarray().ravel(), points.n_rows)


def exact_sample(
    points: Rows, n_neighbors: int, random_state: int, context: Context, products: Products | None = None
) -> ExactSample:
    """Sample some points, and scan all points once."""
    from scalable_gpe.loops.points import N_BINS

    n_points = points.n_rows
    drawn = np.random.default_rng([random_state, 1]).choice(n_points, min(N_SAMPLES, n_points), replace=False)
    own = np.sort(drawn)
    return nearest_points(points, own, n_neighbors, context, n_bins=N_BINS, products=products, stage="recall")


@dataclass(frozen=True)
class TrueNeighbors:
    """Pairs of a sampled point and a true neighbour of it, as numbers in storage order.

    `held` says whether the graph has the pair, in the list of either point.
    """

    points: np.ndarray
    neighbors: np.ndarray
    distances: np.ndarray
    held: np.ndarray

    def missing_weight(self, epsilon: float | np.ndarray) -> float:
        """``sum K_ij`` over the true neighbours that the graph lacks, as a share of the sum over all of them.

        `epsilon` is the bandwidth, or one for each pair.
        """
        weights = np.exp(-(self.distances.astype(np.float64) ** 2) / epsilon)
        total = float(weights.sum())
        return float(weights[~self.held].sum()) / total if total > 0 else 0.0


@dataclass(frozen=True)
class Scan:
    """Summary of the exact distances from sampled points to all others.

    ``missing`` counts, in fine bins of the squared distance, the pairs that the graph leaves out; ``listed`` holds the
    distances of the pairs that it has. Together they give the lost mass for every epsilon.
    """

    recall: float
    recall_error: float
    missing: np.ndarray
    listed: np.ndarray
    nearest: TrueNeighbors

    def lost_mass(self, epsilon: float) -> float:
        """``1 - sum K_sparse / sum K_dense`` over the sampled rows, the diagonal left out."""
        filled = np.flatnonzero(self.missing)
        lost = float((self.missing[filled] * np.exp(-bin_centres()[filled] / epsilon)).sum())
        kept = float(np.exp(-(self.listed.astype(np.float64) ** 2) / epsilon).sum())
        return lost / (lost + kept) if lost > 0 else 0.0


def bin_centres() -> np.ndarray:
    """Squared distance that represents each bin: the middle of the floats that fall into it."""
    from scalable_gpe.loops.points import N_BINS

    bits = (np.arange(N_BINS, dtype=np.int64) << 16) + 2**15
    with np.errstate(all="ignore"):
        centres = bits.astype(np.int32).view(np.float32).astype(np.float64)
    return np.where(np.isfinite(centres), centres, np.finfo(np.float32).max)


def measure_graph(
    sample: ExactSample,
    points: Rows,
    edges: Edges,
    lists: Table,
    by_user: np.ndarray,
    products: Products | None = None,
) -> Scan:
    """Compare the lists and the edges of the sampled points with the exact scan.

    `products` computes distances as the scan did; by default they are those of straight lines.
    """
    own = by_user[sample.points].astype(np.int64)
    ascending = np.argsort(own)
    lengths = np.empty((len(own), lists.shape[1]))
    lengths[ascending] = lists.take(own[ascending])
    recall, error = sample.recall(lengths)
    rows = []
    for i, columns, values in edges.rows(own):
        others = columns != own[i]
        rows.append((i, columns[others], values[others]))
    missing = sample.histogram.copy()
    _subtract_listed(points, [(own[i], columns) for i, columns, _ in rows], missing, products)
    listed = np.concatenate([lengths for _, _, lengths in rows])
    return Scan(recall, error, np.maximum(missing, 0), listed, _true_neighbors(sample, by_user, rows))


def _true_neighbors(
    sample: ExactSample, by_user: np.ndarray, rows: Sequence[tuple[int, np.ndarray, np.ndarray]]
) -> TrueNeighbors:
    """Look for the true neighbours of the sampled points in their rows of the graph: sample, columns, lengths."""
    neighbors, reach = by_user[sample.neighbors], sample.reach
    held = np.ones(neighbors.shape, bool)
    for i, columns, lengths in rows:
        absent = np.flatnonzero(~np.isin(neighbors[i], columns))
        # another row that is as far as the last true neighbour is as good as that one
        n_absent = held.shape[1] - np.count_nonzero(lengths <= reach[i])
        held[i, absent[: max(n_absent, 0)]] = False
    own = np.repeat(by_user[sample.points], held.shape[1])
    return TrueNeighbors(own, neighbors.ravel(), np.sqrt(sample.nearest).ravel(), held.ravel())


def _subtract_listed(
    points: Rows, rows: Sequence[tuple[int, np.ndarray]], histogram: np.ndarray, products: Products | None
) -> None:
    """Subtract the pairs of the graph from a histogram of all pairs."""
    from scalable_gpe.loops import points as loops

    left = np.concatenate([np.full(len(columns), row, np.int64) for row, columns in rows])
    right = np.concatenate([columns.astype(np.int64) for _, columns in rows])
    for start, stop in ranges(len(left), max(16, _EDGES_AT_ONCE // max(1, points.n_features // 16))):
        ids, inverse = np.unique(np.concatenate([left[start:stop], right[start:stop]]), return_inverse=True)
        values = points.take(ids)
        squares = np.empty(stop - start, np.float32)
        own, others = values[inverse[: stop - start]], values[inverse[stop - start :]]
        if products is None:
            loops.pair_squares(own, others, squares)
        else:
            squares[:] = products.row_squares(products.matrix(own), products.matrix(others))
        loops.count_bins(squares, histogram, -1)
