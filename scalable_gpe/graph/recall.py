"""How good are the lists: an exact scan of sampled rows gives recall and the mass the kernel misses."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from scalable_gpe.execution.context import Context
from scalable_gpe.execution.panels import Panels
from scalable_gpe.graph.edges import Edges
from scalable_gpe.storage.protocol import ranges

N_SAMPLES = 256
_LANES = 128  # samples that are scanned together


@dataclass(frozen=True)
class Scan:
    """Exact distances of sampled points to all others, summed up.

    ``missing`` counts, in fine bins of the squared distance, the pairs that the graph leaves out;
    ``listed`` holds the distances of those it has. So the mass lost is known for every epsilon.
    """

    recall: float
    recall_error: float
    missing: np.ndarray
    listed: np.ndarray

    def lost_mass(self, epsilon: float) -> float:
        """``1 - sum K_sparse / sum K_dense`` over the sampled rows, the diagonal left out."""
        filled = np.flatnonzero(self.missing)
        lost = float((self.missing[filled] * np.exp(-bin_centres()[filled] / epsilon)).sum())
        kept = float(np.exp(-(self.listed.astype(np.float64) ** 2) / epsilon).sum())
        return lost / (lost + kept) if lost > 0 else 0.0


def bin_centres() -> np.ndarray:
    """Squared distance that stands for each bin: the middle of the floats that fall into it."""
    from scalable_gpe.loops.points import N_BINS

    bits = (np.arange(N_BINS, dtype=np.int64) << 16) + 2**15
    with np.errstate(all="ignore"):
        centres = bits.astype(np.int32).view(np.float32).astype(np.float64)
    return np.where(np.isfinite(centres), centres, np.finfo(np.float32).max)


def scan_graph(points: Any, edges: Edges, lists: Any, by_user: np.ndarray, random_state: int, context: Context) -> Scan:
    """Compare the lists of sampled points with an exact scan of all points.

    A neighbour counts as found when it is no further than the true last neighbour, so ties do not hurt.
    """
    n_points, n_neighbors = lists.shape
    drawn = np.random.default_rng([random_state, 1]).choice(n_points, min(N_SAMPLES, n_points), replace=False)
    sampled = np.sort(by_user[drawn])
    rows = [(columns.copy(), lengths.copy()) for _, columns, lengths in edges.rows(sampled)]
    nearest, missing = _exact(points, sampled, rows, n_neighbors, context)
    found = lists.take(sampled).astype(np.float64)
    reach = np.sqrt(nearest[:, -1].astype(np.float64)) * (1 + 1e-5)
    recalls = (found <= reach[:, None]).mean(axis=1)
    spread = 1.96 * float(recalls.std()) / np.sqrt(len(recalls))
    listed = np.concatenate([length[column != row] for row, (column, length) in zip(sampled, rows, strict=True)])
    error = max(spread, 3 / found.size) if len(sampled) < n_points else 0.0
    return Scan(float(recalls.mean()), error, missing, listed)


def scan_points(
    points: Any,
    own: np.ndarray,
    samples: np.ndarray,
    loop: Callable[..., None],
    results: Sequence[Any],
    context: Context,
) -> None:
    """Run a compiled loop over all points, block by block, and over samples whose storage numbers are `own`.

    Each task takes some of the samples past all points, and gives back their rows of `results`.
    """
    panels = Panels(context, context.scratch())
    shared = panels.of(np.ascontiguousarray(samples))
    begun = [panels.of(result) for result in results]
    step = max(1024, min(16_384, 2**22 // points.n_features))

    def scan_samples(piece: tuple[int, int]) -> list[np.ndarray]:
        mine = [start.rows(*piece) for start in begun]
        blocks = (
            (np.arange(start, stop), np.ascontiguousarray(points.read(start, stop)))
            for start, stop in ranges(points.n_rows, step)
        )
        scan_blocks(blocks, own[slice(*piece)], shared.rows(*piece), loop, mine, context)
        return mine

    together = _LANES * context.workers.share_of(-(-len(own) // _LANES))
    pieces = ranges(len(own), together)
    for piece, found in zip(pieces, context.workers.map(scan_samples, pieces, count=False, at_once=1), strict=True):
        for result, rows in zip(results, found, strict=True):
            result[slice(*piece)] = rows
    panels.clear()


def scan_blocks(
    blocks: Iterable[tuple[np.ndarray, np.ndarray]],
    own: np.ndarray,
    samples: np.ndarray,
    loop: Callable[..., None],
    results: Sequence[Any],
    context: Context,
) -> None:
    """Run a compiled loop over blocks ``(numbers, rows)`` and over all samples.

    Threads share the samples: each has results of its own, so nothing depends on the threads.
    """
    pieces = [slice(*piece) for piece in ranges(len(own), _LANES)]
    columns = [np.ascontiguousarray(samples[at].T) for at in pieces]

    def some(number: int, ids: np.ndarray, block: np.ndarray) -> None:
        at = pieces[number]
        loop(columns[number], own[at], block, ids, *(result[at] for result in results))

    for ids, block in blocks:
        context.workers.here.map(partial(some, ids=ids, block=block), range(len(pieces)), count=False)


def _exact(
    points: Any, sampled: np.ndarray, rows: list[Any], n_keep: int, context: Context
) -> tuple[np.ndarray, np.ndarray]:
    from scalable_gpe.loops import points as kernels

    panels = Panels(context, context.scratch())
    samples = panels.of(np.ascontiguousarray(points.take(sampled)))
    listed = panels.of(np.concatenate([np.sort(column) for column, _ in rows]))
    bounds = np.cumsum([0, *(len(column) for column, _ in rows)])

    def scan_piece(piece: tuple[int, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        start, stop = piece
        columns = [listed.whole()[first:last] for first, last in itertools.pairwise(bounds)]
        inside = [column[(column >= start) & (column < stop)] - start for column in columns]
        skip = np.full((len(inside), max(1, max(map(len, inside)))), stop, np.int32)
        for number, local in enumerate(inside):
            skip[number, : len(local)] = local
        nearest = np.empty((len(inside), n_keep), np.float32)
        histogram = np.zeros(kernels.N_BINS, np.int64)
        mine = np.ascontiguousarray(samples.whole().T)
        kernels.scan(mine, np.ascontiguousarray(points.read(start, stop)), skip, n_keep, nearest, histogram)
        filled = np.flatnonzero(histogram)
        return nearest, filled, histogram[filled]

    step = max(1024, min(16_384, 2**22 // points.n_features))
    pieces = ranges(points.n_rows, step)
    best = np.full((len(sampled), n_keep), np.inf, np.float32)
    missing = np.zeros(kernels.N_BINS, np.int64)
    with context.workers.progress.stage("recall", len(pieces)):
        for nearest, filled, counts in context.workers.map(scan_piece, pieces):
            best = np.sort(np.concatenate([best, nearest], axis=1), axis=1)[:, :n_keep]
            missing[filled] += counts
    panels.clear()
    return best, missing
