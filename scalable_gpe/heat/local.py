r"""One length scale per point, for data of uneven density: epsilon="local".

.. math:: K_{ij} = \exp(-|x_i - x_j|^2 / (\sigma_i \sigma_j)), \qquad \sigma_i = \sqrt{c}\, |x_i - x_{i(r)}|

with i(r) the r-th nearest other point of i. The factor c is found by the rule of epsilon="auto", with every list
measured in units of its own r-th distance, so that both give the median row the same number of effective neighbours.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from scalable_gpe.execution.context import Context
from scalable_gpe.graph.neighbors import NeighborGraph
from scalable_gpe.heat.bandwidth import effective_epsilon
from scalable_gpe.storage.mapped import Empty, pieces
from scalable_gpe.storage.store import Table, read_whole, write_whole

RANK = 7  # r; docs/developers/parameter-measurements.md has the measurements
_SAMPLED = 16_384  # points that c and the quantiles of sigma are found from


@dataclass(frozen=True)
class ScaleMetadata:
    """The rank r, the factor c, and median, 1 % and 99 % quantiles of sigma over sampled points (units of X)."""

    rank: int
    factor: float
    low: float
    median: float
    high: float


@dataclass(frozen=True)
class LocalScales:
    """The length scale sigma of every point, and the rule that gives new points theirs."""

    table: Table
    metadata: ScaleMetadata
    empty: Empty = np.empty

    def __reduce__(self) -> Any:
        return LocalScales, (self.table, self.metadata, self.empty)

    @cached_property
    def sigma(self) -> np.ndarray:
        """Length scales in storage order and stored units, float32."""
        return np.ascontiguousarray(read_whole(self.table, self.empty))

    def of_new(self, squares: np.ndarray) -> np.ndarray:
        """Length scales of new rows from the squared distances of their nearest points, nearest first.

        A row that is its own only neighbour has none; any number will do, because it gets the value of that point.
        """
        scales: np.ndarray = np.sqrt(self.metadata.factor) * _at_rank(np.sqrt(squares), self.metadata.rank)
        return np.where(scales > 0, scales, 1.0)


def make_scales(graph: NeighborGraph, context: Context, name: str) -> LocalScales:
    """Compute the length scales of all points of a graph, and store them as the table `name`."""
    n_points = graph.storage_order.n_points
    reach = context.filled(
        n_points, np.float32, lambda start, stop: _at_rank(graph.list_distances.read(start, stop), RANK)
    )
    lengths = graph.sampled_distances(_SAMPLED)
    own = _at_rank(lengths, RANK)[:, None]
    # a row whose list is empty or all zeros has no scale of its own
    units = np.divide(lengths, own, out=np.full(lengths.shape, np.inf), where=own > 0)
    factor = effective_epsilon(units**2, "local")
    sampled = graph.sampled_points(_SAMPLED)
    usual = reach[sampled]
    usual = np.float32(np.median(usual[usual > 0]))
    table = context.store.table(name, (n_points,), np.float32)
    for start, stop in pieces(n_points):
        some = reach[start:stop]
        some[~(some > 0)] = usual
        some *= np.float32(np.sqrt(factor))
    write_whole(table, reach)
    low, median, high = graph.in_user_units(np.quantile(reach[sampled].astype(np.float64), (0.01, 0.5, 0.99))).tolist()
    return LocalScales(table, ScaleMetadata(RANK, factor, low, median, high), context.empty)


def _at_rank(lengths: np.ndarray, rank: int) -> np.ndarray:
    """The rank-th positive length of each sorted list, or the last one of a shorter list; 0 if there is none."""
    zeros = (lengths == 0).sum(axis=1)
    positive = np.isfinite(lengths).sum(axis=1) - zeros
    column = np.clip(zeros + np.minimum(rank, positive) - 1, 0, None)
    picked = np.take_along_axis(lengths, column[:, None], axis=1)[:, 0]
    return np.where(positive > 0, picked, 0)
