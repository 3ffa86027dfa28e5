"""The search inside one part: compare rows inside the leaves of trees, then neighbours of one row with each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_gpe.execution.panels import Panel
from scalable_gpe.execution.workers import Workers
from scalable_gpe.graph.cells.descent import Labels, SortedLists, descend, listed_rows, start_lists
from scalable_gpe.graph.cells.looks import Goal
from scalable_gpe.graph.cells.plan import SearchPlan
from scalable_gpe.graph.cells.quantized import in_bytes
from scalable_gpe.graph.cells.trees import Bytes, Floats, Ints, compare_leaves, grow, reduced, root, run
from scalable_gpe.loops import search as loops
from scalable_gpe.storage.mapped import inverse_order, take_rows
from scalable_gpe.storage.store import Table

Bounds = NDArray[np.int64]
Tree = tuple[Ints, Bounds]
IsEnough = Callable[[SortedLists], bool]

_SPARE = 2  # entries beyond n_neighbors whose exact distances are computed: float32 may order the last ones wrongly


@dataclass(frozen=True)
class Lists:
    """Lists after a round, in the order of its parts, and the position of each row in it."""

    position: Panel
    neighbors: Table
    distances: Table

    def of_rows(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Lists of some rows, and their squared distances."""
        places = take_rows(self.position.whole(rows), rows)
        return self.neighbors.take(places), self.distances.take(places)


@dataclass(frozen=True)
class Earlier:
    """Results of earlier rounds for the rows of a part, read only when needed, because a part is large.

    `positions` are those of the rows in the parts of the last round.
    """

    found: Lists
    positions: Ints
    inside: Panel
    start: int
    stop: int

    def lists(self, order: Ints) -> tuple[Ints, Floats]:
        """Row numbers and distances."""
        places = self.positions[order]
        return self.found.neighbors.take(places), self.found.distances.take(places)

    def farthest(self, order: Ints) -> Floats:
        """Squared distance of the last entry of each list."""
        last: Floats = self.found.distances.take(self.positions[order])[:, -1].copy()
        return last

    def known(self, order: Ints) -> Ints:
        """Lists as rows of the part, in its order (-1: outside)."""
        known: Ints = take_rows(self.inside.whole(), self.found.neighbors.take(self.positions[order]))
        known -= np.int32(self.start)
        known[(known < 0) | (known >= self.stop - self.start)] = -1
        in_order: Ints = np.append(inverse_order(order), np.int32(-1))[known]
        return in_order


@dataclass(frozen=True)
class PartSearch:
    """How a part is searched: its plan, the seeds of its steps, and what all parts share.

    Wide rows are projected for the trees onto some directions, after a mean is subtracted.
    """

    plan: SearchPlan
    seed_of: Callable[..., np.uint64]
    goal: Goal
    workers: Workers
    mean: Panel | None = None
    directions: Panel | None = None

    def reduced(self, X: Floats) -> Floats:
        """The rows for the trees: projected ones if X is wide."""
        if self.mean is None or self.directions is None:
            return X
        return reduced(X, self.mean.whole(), self.directions.whole(), self.workers)

    def grow(self, Z: Floats, rows: Ints, bounds: Bounds, leaf_rows: int, n_powers: int, *step: Any) -> Tree:
        """Halve nodes to at most `leaf_rows` rows each."""
        return grow(Z, rows, bounds, leaf_rows, self.seed_of(*step), n_powers, self.workers)

    def compared(self, X: Floats) -> tuple[Floats | Bytes, bool]:
        """The rows as they are compared: wide ones in bytes if that is exact enough; and whether they are X itself."""
        quantized = None if self.mean is None else in_bytes(X, self.workers)
        return (X, True) if quantized is None else (quantized, False)

    def improve(self, X: Floats | Bytes, labels: Labels, lists: SortedLists, is_enough: IsEnough) -> Ints:
        """Descend, and return the rows that the lists hold then."""
        descend(X, labels, lists, self.plan.effort, self.seed_of, self.workers, is_enough)
        return listed_rows(lists, self.workers)


@dataclass(frozen=True)
class PartLists:
    """Lists of a part in the order of its cells; `trace` is the recall of its sampled rows after each step."""

    order: Ints
    neighbors: Ints
    squares: Floats
    trace: tuple[float, ...] = ()


def search_part(X: Floats, part: Ints, earlier: Earlier | None, how: PartSearch) -> PartLists:
    """Search the rows X of a part, which have the numbers `part`; X is reordered in place.

    Return the order of the first tree's cells, and the lists in it.
    """
    plan, workers = how.plan, how.workers
    Z = how.reduced(X)
    is_reduced = Z is not X
    order, leaves = how.grow(Z, *root(len(Z)), plan.leaf_rows, 3, "leaves")
    order, _ = how.grow(Z, order, leaves, plan.cell_rows, 3, "cells")
    loops.permute_rows(X, order)
    Z = Z[order] if is_reduced else X

    labels = Labels(len(X))
    compared, is_exact = how.compared(X)
    # a projection ranks rows of a leaf only roughly: then they are compared again
    rough = is_reduced and is_exact
    found = _from_trees(Z, Z if rough else compared, leaves, None if rough else labels, how)
    del Z  # a part is the largest object that a search holds
    known = np.empty((len(X), 0), np.int32) if earlier is None else earlier.known(order)
    lists = start_lists(compared, known, found, plan.effort.list_length, workers)
    del known, found
    names, n_settled = part[order], plan.n_neighbors + _SPARE if is_exact else plan.effort.list_length
    trace: list[float] = []
    is_enough = how.goal.looking(X, names, n_settled, part, None if earlier is None else earlier.lists, trace)
    candidates = how.improve(compared, labels, lists, is_enough)
    del lists, compared
    near, far = _empty_lists(len(X), plan.n_neighbors) if earlier is None else earlier.lists(order)
    run(workers, loops.settle_rows, len(X), (X, names), (candidates, n_settled, near, far))
    return PartLists(order, near, far, tuple(trace))


def mend_borders(X: Floats, part: Ints, earlier: Earlier, how: PartSearch) -> PartLists:
    """Search near the borders between the parts of the last round; return an order and the lists in it.

    Rows in leaves that hold rows of several of these parts are compared, and descend with the neighbours that they
    know. All others keep their lists. X is reordered in place.
    """
    plan, workers = how.plan, how.workers
    Z = how.reduced(X)
    is_reduced = Z is not X
    order, bounds = how.grow(Z, *root(len(Z)), plan.leaf_rows, 3, "leaves")
    origins, sizes = plan.part_of(earlier.positions[order]), np.diff(bounds)
    is_mixed = np.minimum.reduceat(origins, bounds[:-1]) != np.maximum.reduceat(origins, bounds[:-1])
    in_mixed = np.repeat(is_mixed, sizes)
    known = earlier.known(order)
    is_kept, touched = in_mixed.copy(), known[in_mixed]
    is_kept[touched[touched >= 0]] = True
    kept = np.flatnonzero(is_kept)
    if not len(kept):
        return PartLists(order, *earlier.lists(order))
    place = np.full(len(order) + 1, -1, np.int32)  # the last one: a row outside the part stays -1
    place[kept] = np.arange(len(kept), dtype=np.int32)

    # a part is the largest object that a search holds: nothing of it is copied, or kept longer than it is needed
    reduced_rows = Z[order[kept]] if is_reduced else None
    del touched, Z
    loops.permute_rows(X, np.concatenate([order[kept], order[~is_kept]]))
    X, known, names = X[: len(kept)], place[known[kept]], part[order[kept]]
    labels = Labels(len(kept))
    labels.add(origins[kept])
    labels.add(np.repeat(np.arange(len(sizes)), sizes)[kept])
    compared, is_exact = how.compared(X)
    in_leaves = reduced_rows if reduced_rows is not None and is_exact else compared
    found, far = _empty_lists(len(kept), plan.effort.list_length)
    leaves = np.concatenate([[0], np.cumsum(sizes[is_mixed])])
    compare_leaves(workers, in_leaves, place[np.flatnonzero(in_mixed)], leaves, found, far)
    del in_leaves, reduced_rows, far
    if is_exact:  # only what is better than a list enters it, also where some of its rows are not here
        length, most = plan.n_neighbors, earlier.farthest(order[kept]) * np.float32(1 + 1e-5)
    else:
        length, most = plan.effort.list_length, None
    lists = start_lists(compared, known, found, length, workers, most)
    del known, found
    candidates = how.improve(compared, labels, lists, how.goal.looking(X, names, length, part, earlier.lists, []))
    del lists, labels, compared
    near, far = earlier.lists(order)
    near_kept, far_kept = near[kept], far[kept]
    run(workers, loops.settle_rows, len(X), (X, names), (candidates, length, near_kept, far_kept))
    near[kept], far[kept] = near_kept, far_kept
    return PartLists(order, near, far)


def _empty_lists(n_rows: int, length: int) -> tuple[Ints, Floats]:
    return np.full((n_rows, length), -1, np.int32), np.full((n_rows, length), np.inf, np.float32)


def _from_trees(Z: Floats, compared: Floats | Bytes, leaves: Bounds, labels: Labels | None, how: PartSearch) -> Ints:
    """The nearest rows of each row among those in its leaves, in the order of the first tree.

    Trees are grown on Z; the rows of a leaf are compared as `compared` has them.
    """
    neighbors, distances = _empty_lists(len(Z), how.plan.effort.list_length)
    rows = np.arange(len(Z), dtype=np.int32)
    for tree in range(how.plan.n_trees):
        if tree > 0:
            rows, leaves = how.grow(Z, *root(len(Z)), how.plan.leaf_rows, 1, "tree", tree)
        compare_leaves(how.workers, compared, rows, leaves, neighbors, distances)
        if labels is not None:
            labels.add_leaves(rows, leaves)
    return neighbors
