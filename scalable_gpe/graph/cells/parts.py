"""The search inside one part: compare rows inside the leaves of trees, then neighbours of one row with each other."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from scalable_gpe.execution.panels import Panel
from scalable_gpe.graph.cells.descent import Labels, descend, listed_rows, start_lists
from scalable_gpe.graph.cells.plan import SearchPlan
from scalable_gpe.graph.cells.quantized import in_bytes
from scalable_gpe.graph.cells.seeds import Seeds
from scalable_gpe.graph.cells.tables import PartedTable
from scalable_gpe.graph.cells.threads import Threads
from scalable_gpe.graph.cells.trees import Bytes, Floats, Ints, compare_leaves, grow, reduced, repair, root
from scalable_gpe.loops import search as loops
from scalable_gpe.storage.blocks import inverse_order

_SPARE = 2  # entries beyond n_neighbors whose exact distances are computed: float32 may order the last ones wrongly


@dataclass(frozen=True)
class Lists:
    """Lists after a round, and the position of each row's list."""

    position: Panel
    neighbors: PartedTable
    distances: PartedTable


@dataclass(frozen=True)
class Earlier:
    """Results of earlier rounds for the rows of a part, read only when needed, because a part is large.

    `places` holds the position of each row's list; `origins` the part of each row in the last round, or None if there
    is only one part. `borders_only` says that the lists are good but for those of rows near a border of these parts.
    """

    found: Lists
    places: Ints
    inside: Panel
    start: int
    stop: int
    origins: Ints | None
    borders_only: bool

    def lists(self, order: Ints) -> tuple[Ints, Floats]:
        """Row numbers and distances."""
        places = self.places[order]
        return self.found.neighbors.take(places), self.found.distances.take(places)

    def known(self, order: Ints) -> Ints:
        """Lists as positions inside the part (-1: outside)."""
        known: Ints = self.inside.whole()[self.found.neighbors.take(self.places[order])]
        known -= np.int32(self.start)
        known[(known < 0) | (known >= self.stop - self.start)] = -1
        return known


@dataclass(frozen=True)
class Reduction:
    """The mean and the directions onto which wide rows are projected for the trees."""

    mean: Panel
    directions: Panel

    def apply(self, X: Floats, threads: Threads) -> Floats:
        """Project rows onto the directions."""
        return reduced(X, self.mean.whole(), self.directions.whole(), threads)


def search_part(
    X: Floats,
    names: Ints,
    earlier: Earlier | None,
    plan: SearchPlan,
    seeds: Seeds,
    reduction: Reduction | None,
    threads: Threads,
) -> tuple[Ints, Ints, Floats]:
    """Search one part; return the order of the first tree's cells and the lists in it. X is reordered in place."""
    Z = X if reduction is None else reduction.apply(X, threads)
    order, leaves = grow(Z, *root(len(Z)), plan.leaf_rows, seeds.of("leaves"), 3, threads)
    borders_only = earlier is not None and earlier.origins is not None and earlier.borders_only
    if borders_only:  # lists are full: only what is better than their entries enters them
        plan = replace(plan, list_length=plan.n_neighbors)
    else:
        order, _ = grow(Z, order, leaves, plan.cell_rows, seeds.of("cells"), 3, threads)
    loops.permute_rows(X, order)
    Z = X if reduction is None else Z[order]

    labels, n_trees, origins = Labels(len(X)), plan.n_trees, None
    if earlier is not None and earlier.origins is not None:
        origins = earlier.origins[order]
        labels.add(origins)
        n_trees = 1  # most rows have found their neighbours: only those near a border have not
    quantized = None if reduction is None else in_bytes(X, threads)
    compared = X if quantized is None else quantized
    # a projection ranks rows of a leaf only roughly: then they are compared again
    rough = reduction is not None and quantized is None
    across = origins if borders_only else None
    found = _from_trees(
        Z, Z if rough else compared, leaves, across, None if rough else labels, n_trees, plan, seeds, threads
    )
    del Z  # a part is the largest object that a search holds
    known = np.empty((len(X), 0), np.int32) if earlier is None else _known(earlier, order)
    lists = start_lists(compared, known, found, plan.list_length, threads)
    del known, found
    descend(compared, labels, lists, plan.n_sampled, seeds, threads)
    candidates = listed_rows(lists, threads)
    n_settled = plan.n_neighbors + _SPARE if quantized is None else plan.list_length
    del lists, compared, quantized

    names = names[order]
    shape = len(X), plan.n_neighbors
    if earlier is None:
        near, far = np.full(shape, -1, np.int32), np.full(shape, np.inf, np.float32)
    else:
        near, far = earlier.lists(order)
    threads.loop(loops.settle_rows, len(X), (X, names), (candidates, n_settled, near, far))
    repair(X, names, near, far)
    return order, near, far


def _from_trees(
    Z: Floats,
    compared: Floats | Bytes,
    leaves: NDArray[np.int64],
    across: Ints | None,
    labels: Labels | None,
    n_trees: int,
    plan: SearchPlan,
    seeds: Seeds,
    threads: Threads,
) -> Ints:
    """The nearest rows of each row among those in its leaves, in the order of the first tree.

    Trees are grown on Z; the rows of a leaf are compared as `compared` has them, in all leaves, or in those whose rows
    differ in their number `across`.
    """
    shape = len(Z), plan.list_length
    neighbors, distances = np.full(shape, -1, np.int32), np.full(shape, np.inf, np.float32)
    rows = np.arange(len(Z), dtype=np.int32)
    for tree in range(n_trees):
        if tree > 0:
            rows, leaves = grow(Z, *root(len(Z)), plan.leaf_rows, seeds.of("tree", tree), 1, threads)
        chosen = (rows, leaves) if across is None else _mixed_leaves(rows, leaves, across[rows])
        compare_leaves(threads, compared, *chosen, neighbors, distances)
        if labels is not None:
            labels.add_leaves(rows, leaves)
    return neighbors


def _mixed_leaves(rows: Ints, bounds: NDArray[np.int64], origins: Ints) -> tuple[Ints, NDArray[np.int64]]:
    """The rows and the bounds of those leaves whose rows are of different origins.

    Examples
    --------
    >>> rows, bounds = _mixed_leaves(np.arange(7), np.array([0, 2, 5, 7]), np.array([1, 1, 1, 2, 1, 2, 2]))
    >>> rows.tolist(), bounds.tolist()
    ([2, 3, 4], [0, 3])
    """
    lowest, highest = (find.reduceat(origins, bounds[:-1]) for find in (np.minimum, np.maximum))
    sizes, mixed = np.diff(bounds), lowest != highest
    return rows[np.repeat(mixed, sizes)], np.concatenate([[0], np.cumsum(sizes[mixed])])


def _known(earlier: Earlier, order: Ints) -> Ints:
    """Lists of earlier rounds as rows of the part, in its order."""
    inside = np.append(inverse_order(order), np.int32(-1))  # -1, a row outside the part, stays -1
    known: Ints = inside[earlier.known(order)]
    return known
