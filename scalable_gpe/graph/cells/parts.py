"""The search inside one part: compare rows inside the leaves of trees, then cells with neighbours of neighbours."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scalable_gpe.execution.panels import Panel
from scalable_gpe.graph.cells.plan import SearchPlan
from scalable_gpe.graph.cells.seeds import Seeds
from scalable_gpe.graph.cells.tables import PartedTable
from scalable_gpe.graph.cells.trees import (
    Candidates,
    Each,
    Floats,
    Ints,
    compare,
    groups_of,
    grow,
    on_ranges,
    reduced,
    repair,
    root,
)
from scalable_gpe.loops import search as loops
from scalable_gpe.storage.blocks import inverse_order


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
    is only one part.
    """

    found: Lists
    places: Ints
    inside: Panel
    start: int
    stop: int
    origins: Ints | None

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

    def apply(self, X: Floats, each: Each) -> Floats:
        """Project rows onto the directions."""
        return reduced(X, self.mean.whole(), self.directions.whole(), each)


def search_part(
    X: Floats,
    names: Ints,
    earlier: Earlier | None,
    plan: SearchPlan,
    seeds: Seeds,
    reduction: Reduction | None,
    each: Each,
) -> tuple[Ints, Ints, Floats]:
    """Search one part; return the order of the first tree's cells and the lists in it. X is reordered in place."""
    Z = X if reduction is None else reduction.apply(X, each)
    order, cells, origins, leaves, rows = _cells(Z, earlier, plan, seeds, each)
    loops.permute_rows(X, order)
    Z = X if reduction is None else Z[order]

    shape = len(X), plan.n_neighbors
    neighbors, distances = np.full(shape, -1, np.int32), np.full(shape, np.inf, np.float32)
    nothing = Candidates(np.empty((len(X), 0), np.int32), 0, plan.leaf_rows, origins)
    for tree in range(plan.n_trees if earlier is None else 1):
        if tree > 0 or leaves is None:
            rows, leaves = grow(Z, *root(len(X)), plan.leaf_rows, seeds.of("tree", tree), 1, each)
        compare(each, Z, rows, leaves, nothing, neighbors, distances)

    known, n_used = neighbors, plan.n_used
    if earlier is not None:
        known, n_used = _joined(earlier, order, neighbors), n_used + n_used // 2
    neighbors, distances[:] = np.full(shape, -1, np.int32), np.inf
    joined = Candidates(known, n_used, plan.max_candidates, origins)
    compare(each, X, np.arange(len(X), dtype=np.int32), cells, joined, neighbors, distances)
    del known, joined, distances  # a part is the largest object that a search holds

    names = names[order]
    if earlier is None:
        lists, squares = np.full(shape, -1, np.int32), np.full(shape, np.inf, np.float32)
    else:
        lists, squares = earlier.lists(order)
    on_ranges(each, loops.settle_rows, len(X), (X, names), (neighbors, lists, squares))
    repair(X, names, lists, squares)
    return order, lists, squares


def _cells(
    Z: Floats, earlier: Earlier | None, plan: SearchPlan, seeds: Seeds, each: Each
) -> tuple[Ints, np.ndarray, Ints, np.ndarray | None, Ints]:
    """Order and bounds of the cells, the origin of each row, and the first tree's leaves with their rows."""
    rows = np.arange(len(Z), dtype=np.int32)
    if earlier is not None and earlier.origins is not None:
        groups = groups_of(earlier.origins)
        order, cells = grow(Z, *groups, plan.cell_rows, seeds.of("cells"), 3, each)
        return order, cells, earlier.origins[order], None, rows
    tree, leaves = grow(Z, *root(len(Z)), plan.leaf_rows, seeds.of("leaves"), 3, each)
    order, cells = grow(Z, tree, leaves, plan.cell_rows, seeds.of("cells"), 3, each)
    return order, cells, np.full(len(Z), -1, np.int32), leaves, rows


def _joined(earlier: Earlier, order: Ints, neighbors: Ints) -> Ints:
    """Lists of earlier rounds and of this one, side by side."""
    inside = np.append(inverse_order(order), np.int32(-1))  # -1, a row outside the part, stays -1
    known = np.empty((*neighbors.shape, 2), np.int32)
    known[:, :, 0], known[:, :, 1] = inside[earlier.known(order)], neighbors
    return known.reshape(len(neighbors), -1)
