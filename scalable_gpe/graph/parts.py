"""The search inside one part: compare rows inside the leaves of trees, then neighbours of one row with each other."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scalable_gpe.execution import resources
from scalable_gpe.execution.panels import Panel
from scalable_gpe.execution.workers import Workers
from scalable_gpe.graph.descent import Labels, SortedLists, descend, listed_rows, start_lists
from scalable_gpe.graph.recall import ExactSample, recall_standard_error
from scalable_gpe.graph.trees import Bytes, Floats, Ints, compare_leaves, grow, in_bytes, reduced, root, run
from scalable_gpe.loops import points as point_loops
from scalable_gpe.loops import search as loops
from scalable_gpe.storage.mapped import inverse_order, take_rows
from scalable_gpe.storage.store import Table

Bounds = NDArray[np.int64]

_READ_BYTES = 2**23  # one streaming read
_FEW, _FEW_LATER = 0.002, 0.1  # share of new entries at which descents end; later ones over all rows of several parts
_SPARE = 2  # entries beyond n_neighbors whose exact distances are computed: float32 may order the last ones wrongly


@dataclass(frozen=True)
class SearchPlan:
    """The sizes of a search: a function of the shape of the data, n_neighbors and the rows of a part.

    `list_length` is the length of lists during the search (short ones miss neighbours), `n_sampled` the most entries
    that a step of a descent samples for a row, `few` the share of new entries at which it ends.
    """

    n_rows: int
    n_features: int
    n_neighbors: int
    part_rows: int  # of every part but the last one
    leaf_rows: int
    cell_rows: int
    list_length: int
    n_sampled: int
    few: float
    n_trees: int
    n_reduced: int

    @property
    def n_parts(self) -> int:
        return -(-self.n_rows // self.part_rows)

    @property
    def read_rows(self) -> int:
        return max(1, min(16_384, _READ_BYTES // (4 * self.n_features), self.part_rows // 2))

    def of_round(self, n: int, *, borders_only: bool = False) -> SearchPlan:
        """The plan of one round.

        Rounds over all rows that are made for want of recall keep longer lists. With several parts their descents end
        early: another round may follow, and its trees find what is missing at less cost than the last steps.
        """
        if borders_only or n == 0:
            return self
        length = min(resources.longest_list(self.n_neighbors), min(self.part_rows, self.n_rows) - 1)
        return replace(self, list_length=length, few=self.few if self.n_parts == 1 else _FEW_LATER)

    def part(self, part: int) -> tuple[int, int]:
        """The range of positions of one part."""
        return part * self.part_rows, min((part + 1) * self.part_rows, self.n_rows)

    def part_of(self, positions: Ints) -> Ints:
        return (positions // np.int32(self.part_rows)).astype(np.int32)


def plan_search(n_rows: int, n_features: int, n_neighbors: int, *, part_rows: int | None = None) -> SearchPlan:
    """Choose the sizes of a search; without `part_rows` all rows are one part."""
    if n_rows >= 2**31:
        raise ValueError(f"n_rows must be below 2**31 = {2**31} (row numbers are int32); got {n_rows}.")
    if not 1 <= n_neighbors < n_rows:
        raise ValueError(f"n_neighbors must be between 1 and n_rows - 1 = {n_rows - 1}; got {n_neighbors}.")
    leaf_rows = max(512, 8 * (n_neighbors + 1))
    part_rows = _equal_parts(n_rows, min(n_rows, max(part_rows or n_rows, 2 * leaf_rows)))
    return SearchPlan(
        n_rows=n_rows,
        n_features=n_features,
        n_neighbors=n_neighbors,
        part_rows=part_rows,
        leaf_rows=leaf_rows,
        cell_rows=64,
        list_length=min(resources.list_length(n_neighbors), min(part_rows, n_rows) - 1),
        n_sampled=resources.most_sampled(n_neighbors),
        few=_FEW,
        n_trees=2 if part_rows >= n_rows else 4,
        n_reduced=64 if n_features > resources.WIDE else 0,
    )


def _equal_parts(n_rows: int, most: int) -> int:
    """Rows of parts of at most `most` rows, or 1 % more: they can be halved often, into shards and chunks of tables."""
    rows = -(-n_rows // -(-n_rows // most))
    step = 1 << max(0, (rows // 128).bit_length() - 1)
    return -(-rows // step) * step


def seed_of(random_state: int, *step: Any) -> np.uint64:
    """The seed of one step of a search, from the user's seed and the name of the step."""
    text = repr((random_state, *step)).encode()
    return np.uint64(int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little"))


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

    `positions` are those of the rows in the parts of the last round, `inside` those of all rows in the parts of this
    one, of which this part is `start` to `stop`.
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

    def known(self, order: Ints) -> Ints:
        """Lists as rows of the part, in its order (-1: outside)."""
        known: Ints = take_rows(self.inside.whole(), self.found.neighbors.take(self.positions[order]))
        known -= np.int32(self.start)
        known[(known < 0) | (known >= self.stop - self.start)] = -1
        return np.append(inverse_order(order), np.int32(-1))[known]


class PartLists(NamedTuple):
    """Lists of a part in the order of its cells; `trace` is the recall of its sampled rows after each step."""

    order: Ints
    neighbors: Ints
    squares: Floats
    trace: tuple[float, ...] = ()


@dataclass(frozen=True)
class PartSearch:
    """How a part is searched: its plan, the seeds of its steps, the recall of sampled rows at which a descent ends.

    Wide rows are projected for the trees onto some directions, after a mean is subtracted.
    """

    plan: SearchPlan
    seed_of: Callable[..., np.uint64]
    sample: ExactSample
    recall: float
    workers: Workers
    mean: Panel | None = None
    directions: Panel | None = None

    def reduced(self, X: Floats) -> Floats:
        """The rows for the trees: projected ones if X is wide."""
        if self.mean is None or self.directions is None:
            return X
        return reduced(X, self.mean.whole(), self.directions.whole(), self.workers)

    def leaves(self, Z: Floats, n_powers: int, *step: Any) -> tuple[Ints, Bounds]:
        return grow(Z, *root(len(Z)), self.plan.leaf_rows, self.seed_of(*step), n_powers, self.workers)

    def compared(self, X: Floats) -> tuple[Floats | Bytes, bool]:
        """The rows as they are compared: wide ones in bytes if that is exact enough; and whether they are X itself."""
        quantized = None if self.mean is None else in_bytes(X, self.workers)
        return (X, True) if quantized is None else (quantized, False)

    def improve(
        self, X: Floats | Bytes, labels: Labels, lists: SortedLists, is_enough: Callable[[SortedLists], bool]
    ) -> Ints:
        """Descend, and return the rows that the lists hold then."""
        descend(X, labels, lists, self.plan.n_sampled, self.plan.few, self.seed_of, self.workers, is_enough)
        return listed_rows(lists.entries, self.workers)

    def is_enough(
        self, X: Floats, names: Ints, n_settled: int, part: Ints, earlier: Earlier | None, trace: list[float]
    ) -> Callable[[SortedLists], bool]:
        """Whether lists of the rows `names` of X have reached the recall: a function; `n_settled` entries count.

        `part` are all rows of the part: only true neighbours that are in it can be found. The recall of each look is
        added to `trace`.
        """
        own = np.isin(self.sample.points, part)
        sampled, true, reach = self.sample.points[own], self.sample.neighbors[own], self.sample.reach[own] ** 2
        near, far = _empty_lists(len(sampled), 0)
        if earlier is not None:
            in_part = np.flatnonzero(np.isin(part, sampled)).astype(np.int32)
            near, far = earlier.lists(in_part[np.argsort(part[in_part])])
        is_listed = (true[:, :, None] == near[:, None, :]).any(axis=2)
        n_inside, n_earlier = (np.isin(true, part) | is_listed).sum(axis=1), (far <= reach[:, None]).sum(axis=1)
        places = np.flatnonzero(np.isin(names, sampled))
        at = np.searchsorted(sampled, names[places])

        def is_reached(lists: SortedLists) -> bool:
            n_found = n_earlier.copy()
            others = listed_rows(np.ascontiguousarray(lists.entries[places, :n_settled]), self.workers)
            squares = np.empty(others.shape, np.float32)
            point_loops.list_squares(X, places, np.maximum(others, 0), squares)
            is_known = (names[others][:, :, None] == near[at][:, None, :]).any(axis=2)
            n_found[at] += ((others >= 0) & ~is_known & (squares <= reach[at, None])).sum(axis=1)
            shares = np.minimum(n_found / np.maximum(n_inside, 1), 1.0)[n_inside > 0]
            if len(shares) < 2:
                return False
            trace.append(float(shares.mean()))
            error = 0.0 if self.sample.is_whole else recall_standard_error(shares)
            return trace[-1] - error >= self.recall

        return is_reached


def search_part(X: Floats, part: Ints, earlier: Earlier | None, how: PartSearch) -> PartLists:
    """Search the rows X of a part, which have the numbers `part`; X is reordered in place.

    Return the order of the first tree's cells, and the lists in it.
    """
    plan, workers = how.plan, how.workers
    Z = how.reduced(X)
    is_reduced = Z is not X
    order, leaves = how.leaves(Z, 3, "leaves")
    order, _ = grow(Z, order, leaves, plan.cell_rows, how.seed_of("cells"), 3, workers)
    loops.permute_rows(X, order)
    Z = Z[order] if is_reduced else X

    labels = Labels(len(X))
    compared, is_exact = how.compared(X)
    # a projection ranks rows of a leaf only roughly: then they are compared again
    rough = is_reduced and is_exact
    found = _from_trees(Z, Z if rough else compared, leaves, None if rough else labels, how)
    del Z  # a part is the largest object that a search holds
    known = np.empty((len(X), 0), np.int32) if earlier is None else earlier.known(order)
    lists = start_lists(compared, known, found, plan.list_length, workers)
    del known, found
    names, n_settled = part[order], plan.n_neighbors + _SPARE if is_exact else plan.list_length
    trace: list[float] = []
    is_enough = how.is_enough(X, names, n_settled, part, earlier, trace)
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
    order, bounds = how.leaves(Z, 3, "leaves")
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
    found, far = _empty_lists(len(kept), plan.list_length)
    leaves = np.concatenate([[0], np.cumsum(sizes[is_mixed])])
    compare_leaves(workers, in_leaves, place[np.flatnonzero(in_mixed)], leaves, found, far)
    del in_leaves, reduced_rows, far
    length, most = plan.list_length, None
    if is_exact:  # only what is better than a list enters it, also where some of its rows are not here
        farthest: Floats = earlier.found.distances.take(earlier.positions[order[kept]])[:, -1].copy()
        length, most = plan.n_neighbors, farthest * np.float32(1 + 1e-5)
    lists = start_lists(compared, known, found, length, workers, most)
    del known, found
    candidates = how.improve(compared, labels, lists, how.is_enough(X, names, length, part, earlier, []))
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
    neighbors, distances = _empty_lists(len(Z), how.plan.list_length)
    rows = np.arange(len(Z), dtype=np.int32)
    for tree in range(how.plan.n_trees):
        if tree > 0:
            rows, leaves = how.leaves(Z, 1, "tree", tree)
        compare_leaves(how.workers, compared, rows, leaves, neighbors, distances)
        if labels is not None:
            labels.add(np.repeat(np.arange(len(leaves) - 1), np.diff(leaves)), rows)
    return neighbors
