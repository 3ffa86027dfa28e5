"""Approximate nearest neighbours by cells: rows in parts, trees and joins inside a part, parts cut anew each round.

One round cuts the rows into parts of at most `part_rows` along a tree that a sample of the rows has grown. Inside a
part, trees of median splits end in leaves where all pairs are compared by one matrix product; then each small cell
of rows is compared, again at once, with the neighbours of its neighbours. The next round cuts along other
directions, so that rows which a border had kept apart meet, and takes the lists it finds as a start. Recall is
measured on sampled rows, and rounds are spent until it suffices or the gain no longer pays.

The lists are a function of the rows, the parameters and `random_state`: a part is a pure function that writes its
own range, leaves and cells are disjoint, and joins read a snapshot. How many parts are held at once, where rows and
lists live (arrays in memory, or anything with the same three methods) and the number of threads change nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from scalable_gpe.execution import memory_plan
from scalable_gpe.execution.context import release_freed_memory
from scalable_gpe.execution.panels import MemoryPanel, Panel
from scalable_gpe.execution.workers import Workers
from scalable_gpe.graph.cells.trees import (
    Candidates,
    Each,
    Floats,
    Ints,
    alone,
    compare,
    fit_reduction,
    groups_of,
    grow,
    halve,
    inverse_of,
    on_ranges,
    reduced,
    repair,
    root,
    threads,
)
from scalable_gpe.loops import search as loops
from scalable_gpe.storage.protocol import ranges

_READ_BYTES = 2**23  # one streaming read
_CELL_SAMPLE = 64  # sampled rows per cell of the tree that cuts the parts
_MAX_ROUNDS = 8
_WORTHWHILE = 0.004  # a round that gained less recall than this is the last

Load = Callable[[int, Ints], Floats]


class Rows(Protocol):
    """Where rows come from."""

    n_rows: int
    n_features: int

    def read(self, start: int, stop: int) -> Floats: ...
    def take(self, rows: NDArray[np.integer]) -> Floats: ...


class Table(Protocol):
    """Where lists go: a matrix that is written in whole ranges of rows, as they are or in an order."""

    def read(self, start: int, stop: int) -> NDArray[Any]: ...
    def take(self, rows: NDArray[np.integer]) -> NDArray[Any]: ...
    def write(self, start: int, values: NDArray[Any], order: NDArray[np.integer] | None = None) -> None: ...


Tables = Callable[[str, tuple[int, int], type], Table]
Share = Callable[[NDArray[Any]], Panel]


class Held:
    """Rows or a table in memory."""

    resident = True

    def __init__(self, values: NDArray[Any]):
        self.values = values
        self.n_rows, self.n_features = values.shape

    def read(self, start: int, stop: int) -> NDArray[Any]:
        return self.values[start:stop]

    def take(self, rows: NDArray[np.integer]) -> NDArray[Any]:
        return self.values[rows]

    def write(self, start: int, values: NDArray[Any], order: NDArray[np.integer] | None = None) -> None:
        self.values[start : start + len(values)] = values if order is None else values[order]


def held(name: str, shape: tuple[int, int], dtype: type) -> Held:
    """A new table in memory (`name` is for those who keep tables elsewhere)."""
    return Held(np.empty(shape, dtype))


@dataclass(frozen=True)
class Plan:
    """The sizes of a search: a function of the shape of the data and of n_neighbors, never of the machine."""

    n_rows: int
    n_features: int
    n_neighbors: int
    part_rows: int
    leaf_rows: int
    cell_rows: int
    n_trees: int
    n_reduced: int

    @property
    def n_parts(self) -> int:
        return -(-self.n_rows // self.part_rows)

    @property
    def rows_per_part(self) -> int:
        return -(-self.n_rows // self.n_parts)

    @property
    def read_rows(self) -> int:
        """Rows of one streaming read."""
        return max(1, min(16_384, _READ_BYTES // (4 * self.n_features), self.rows_per_part // 2))

    @property
    def n_used(self) -> int:
        return min(self.n_neighbors, 20)

    @property
    def max_candidates(self) -> int:
        return max(4096, self.cell_rows * (1 + 3 * self.n_neighbors))

    def part(self, part: int) -> tuple[int, int]:
        """The range of positions of one part; all but the last are equally large."""
        return part * self.rows_per_part, min((part + 1) * self.rows_per_part, self.n_rows)

    def part_of(self, positions: Ints) -> Ints:
        """The part in which each position lies."""
        return (positions // np.int32(self.rows_per_part)).astype(np.int32)


def plan(n_rows: int, n_features: int, n_neighbors: int, *, part_rows: int | None = None) -> Plan:
    """Choose the sizes of a search."""
    if n_rows >= 2**31:
        raise ValueError(f"n_rows must be below 2**31 = {2**31} (row numbers are int32); got {n_rows}.")
    if not 1 <= n_neighbors < n_rows:
        raise ValueError(f"n_neighbors must be between 1 and n_rows - 1 = {n_rows - 1}; got {n_neighbors}.")
    leaf_rows = max(512, 8 * (n_neighbors + 1))
    if part_rows is None:
        part_rows = memory_plan.part_rows(n_features, n_neighbors)
    return Plan(
        n_rows=n_rows,
        n_features=n_features,
        n_neighbors=n_neighbors,
        part_rows=min(n_rows, max(part_rows, 2 * leaf_rows)),
        leaf_rows=leaf_rows,
        cell_rows=64,
        n_trees=4 if n_features > 128 else 3,
        n_reduced=64 if n_features > 128 else 0,
    )


@dataclass(frozen=True)
class Lists:
    """What a search found, row by row in storage order: row i stands for the source's row order[i].

    `neighbors` holds row numbers of the source, `distances` squared distances (float32 of a float64 sum), each list
    sorted by (distance, row); `rows` the rows themselves, in that order, where the source is not in memory.
    """

    order: NDArray[np.int64]
    neighbors: Table
    distances: Table
    recall: float
    recall_error: float
    n_rounds: int
    plan: Plan
    rows: Table | None = None


@dataclass(frozen=True)
class Neighbors:
    """The lists in the source's own order."""

    indices: Ints
    squared_distances: Floats
    order: NDArray[np.int64]
    recall: float
    recall_error: float
    n_rounds: int


def search(
    X: Floats,
    n_neighbors: int,
    *,
    random_state: int = 0,
    n_jobs: int | None = None,
    recall: float = 0.95,
    part_rows: int | None = None,
) -> Neighbors:
    """The nearest other rows of each row of an array in memory (approximate; no two rows may be equal)."""
    lists = search_rows(
        Held(X), n_neighbors, random_state=random_state, n_jobs=n_jobs, recall=recall, part_rows=part_rows
    )
    indices = np.empty((len(X), n_neighbors), np.int32)
    distances = np.empty((len(X), n_neighbors), np.float32)
    indices[lists.order] = lists.neighbors.read(0, len(X))
    distances[lists.order] = lists.distances.read(0, len(X))
    return Neighbors(indices, distances, lists.order, lists.recall, lists.recall_error, lists.n_rounds)


def search_rows(
    source: Rows,
    n_neighbors: int,
    *,
    tables: Tables = held,
    done: set[tuple[Any, ...]] | None = None,
    random_state: int = 0,
    n_jobs: int | None = None,
    n_held: int = 1,
    recall: float = 0.95,
    n_sampled: int = 256,
    part_rows: int | None = None,
    workers: Workers | None = None,
    share: Share = MemoryPanel,
    piece_rows: int = 65_536,
) -> Lists:
    """The nearest other rows of each row of `source`, holding `n_held` parts at once.

    Rows that are not in memory (`source.resident`) are kept in storage order in the table "rows".
    `tables(name, shape, dtype)` makes a table, or opens the one an interrupted search has left; `done` is what that
    search had finished (anything with `in` and `add`). A table is written one part (`Plan.part`) at a time.
    `workers` run the parts; what all of them need goes through `share`, whose panels are written in whole pieces of
    `piece_rows` rows.
    """
    sizes = plan(source.n_rows, source.n_features, n_neighbors, part_rows=part_rows)
    with threads(n_jobs) as each, Workers(n_jobs) as own:
        parts = _Parts(workers or own, set() if done is None else done, n_held)
        work = _Work(source, sizes, tables, parts, random_state, each, share, piece_rows)
        truth = _Truth(work, min(n_sampled, sizes.n_rows))
        found = work.round(0, None)
        measured, error = truth.recall(found)
        n_rounds = 1
        gain = 1.0
        # one cut leaves the rows along its borders with poor lists, however good the mean: a second cut mends them
        least = 1 if sizes.n_parts == 1 else 2
        while n_rounds < least or (measured - error < recall and gain >= _WORTHWHILE and n_rounds < _MAX_ROUNDS):
            found = work.round(n_rounds, found)
            before, (measured, error) = measured, truth.recall(found)
            gain = measured - before
            n_rounds += 1
        found = work.restored(found)
        order = work.order.whole().astype(np.int64)
    points = None if work.resident else work.rows
    return Lists(order, found.neighbors, found.distances, measured, error, n_rounds, sizes, points)


@dataclass(frozen=True)
class _Found:
    """Lists after a round, and at which position the list of each row stands."""

    position: Panel
    neighbors: Table
    distances: Table


@dataclass(frozen=True)
class _Parts:
    """Who runs the parts, and which are done."""

    workers: Workers
    done: set[tuple[Any, ...]]
    n_held: int

    def run(self, task: Callable[[int], None], n_parts: int, *name: Any) -> None:
        """Run a task for every part that is not done yet, `n_held` at a time."""
        left = [part for part in range(n_parts) if (*name, part) not in self.done]

        def done(part: int) -> None:
            self.done.add((*name, part))
            release_freed_memory()  # what a part has freed would count against the limit

        self.workers.map(task, left, count=False, at_once=self.n_held, done=done)


@dataclass(frozen=True)
class _Earlier:
    """What earlier rounds know about the rows of a part; read when it is needed, because a part is large.

    `places` is where the list of each row stands; `origins` the part of the last round that a row was in, None where
    there is only one part.
    """

    found: _Found
    places: Ints
    inside: Panel
    range: tuple[int, int]
    origins: Ints | None

    def lists(self, order: Ints) -> tuple[Ints, Floats]:
        """Row numbers and distances."""
        places = self.places[order]
        return _taken(self.found.neighbors, places), _taken(self.found.distances, places)

    def known(self, order: Ints) -> Ints:
        """Lists of places inside the part (-1: outside)."""
        known = self.inside.whole()[_taken(self.found.neighbors, self.places[order])]
        known -= np.int32(self.range[0])
        known[(known < 0) | (known >= self.range[1] - self.range[0])] = -1
        return known


class _Work:
    """One search: what all its rounds share."""

    def __init__(
        self,
        source: Rows,
        sizes: Plan,
        tables: Tables,
        parts: _Parts,
        random_state: int,
        each: Each,
        share: Share,
        piece_rows: int,
    ):
        self.source, self.plan, self.tables, self.parts = source, sizes, tables, parts
        self.random_state, self.each, self.share, self.piece_rows = random_state, each, share, piece_rows
        self.resident = tables is held or bool(getattr(source, "resident", False))  # no second copy in memory
        self.rows = held("", (0, 0), np.float32) if self.resident else self.table("rows", sizes.n_features, np.float32)
        # storage order and its inverse, once the first round is done
        self.order: Panel = MemoryPanel(np.empty(0, np.int32))
        self.position: Panel = self.order
        self.reduction: tuple[Panel, Panel] | None = None
        if sizes.n_reduced:
            found = fit_reduction(self.sample(4096, "reduction"), sizes.n_reduced, self.seed("directions"))
            self.reduction = share(found[0]), share(found[1])

    def __getstate__(self) -> dict[str, Any]:
        # for a task in another process: it works alone there
        away = {"parts": None, "tables": None, "share": None, "each": alone}
        return {**vars(self), **away}

    def seed(self, *names: Any) -> np.uint64:
        text = repr((self.random_state, *names)).encode()
        return np.uint64(int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little"))

    def sampled(self, n: int, *names: Any) -> NDArray[np.int64]:
        """Some rows, each at most once, ascending."""
        draw = np.random.default_rng(int(self.seed("sample", *names)))
        return np.sort(draw.choice(self.plan.n_rows, min(n, self.plan.n_rows), replace=False))

    def sample(self, n: int, *names: Any) -> Floats:
        return np.array(self.source.take(self.sampled(n, *names)), np.float32, order="C")

    def pieces(self) -> list[tuple[int, int]]:
        """Ranges of rows for work that is not done part by part."""
        return ranges(self.plan.n_rows, self.piece_rows)

    def table(self, name: str, width: int, dtype: type) -> Table:
        return self.tables(name, (self.plan.n_rows, width), dtype)

    def round(self, n: int, found: _Found | None) -> _Found:
        """Cut the rows into parts and search each of them, starting from what has been found.

        A part is written cell after cell, so that lists which the next round or the final order needs together are
        near each other.
        """
        members = self.partition(n)
        if found is None:
            load = self.loader(members)
        else:  # in storage order, for the same reason
            for part in range(self.plan.n_parts):
                start, stop = self.plan.part(part)
                members[start:stop] = self.order.whole()[np.sort(self.position.whole()[members[start:stop]])]
            load = self.reload
        inside, mine = self.share(inverse_of(members)), self.share(members)
        order = self.table(f"order-{n}", 1, np.int32)
        neighbors = self.table(f"neighbors-{n}", self.plan.n_neighbors, np.int32)
        distances = self.table(f"distances-{n}", self.plan.n_neighbors, np.float32)

        def search_part(part: int) -> None:
            start, stop = self.plan.part(part)
            ids = mine.rows(start, stop)
            X = np.require(load(part, ids), np.float32, ["C", "W"])
            earlier = None if found is None else self.earlier(found, ids, inside, start, stop)
            cell_order, near, far = self.search_part(X, ids, earlier, (n, part))
            if found is None and not self.resident:
                self.rows.write(start, X)
            order.write(start, ids[cell_order][:, None])
            neighbors.write(start, near)
            distances.write(start, far)

        self.parts.run(search_part, self.plan.n_parts, "part", n)
        final = np.concatenate([order.read(*self.plan.part(part))[:, 0] for part in range(self.plan.n_parts)])
        position = self.share(inverse_of(final))
        if found is None:
            self.order, self.position = self.share(final), position
        return _Found(position, neighbors, distances)

    def loader(self, members: Ints) -> Load:
        """How the first round gets the rows of a part.

        Rows that are not in memory are first moved, range by range, next to those of the same part: one pass that
        reads and writes everything once, where taking the rows of every part would read everything once per part.
        """
        sizes = self.plan
        if self.resident or sizes.n_parts == 1:
            return lambda part, ids: self.source.take(ids)
        home = np.empty(sizes.n_rows, np.int32)
        for part in range(sizes.n_parts):
            start, stop = sizes.part(part)
            home[members[start:stop]] = part
        counts = np.stack(
            [np.bincount(home[slice(*sizes.part(part))], minlength=sizes.n_parts) for part in range(sizes.n_parts)]
        )
        ends = np.cumsum(counts, axis=1) + np.arange(sizes.n_parts)[:, None] * sizes.rows_per_part
        homes, moved = self.share(home), self.table("moved", sizes.n_features, np.float32)

        def move_part(part: int) -> None:
            start, stop = sizes.part(part)
            rows = np.empty((stop - start, sizes.n_features), np.float32)
            for first, last in ranges(len(rows), sizes.read_rows):
                rows[first:last] = self.source.read(start + first, start + last)
            moved.write(start, rows, np.argsort(homes.rows(start, stop), kind="stable"))

        self.parts.run(move_part, sizes.n_parts, "moved")

        def load(part: int, ids: Ints) -> Floats:
            out, filled = np.empty((len(ids), sizes.n_features), np.float32), 0
            for stop, count in zip(ends[:, part], counts[:, part], strict=True):
                out[filled : filled + count] = moved.read(int(stop - count), int(stop))
                filled += int(count)
            return out

        return load

    def reload(self, part: int, ids: Ints) -> Floats:
        """The rows of a part in a later round."""
        return self.source.take(ids) if self.resident else self.rows.take(self.position.whole()[ids])

    def earlier(self, found: _Found, ids: Ints, inside: Panel, start: int, stop: int) -> _Earlier:
        """What has been found about the rows `ids`, which stand at `start` to `stop` of this round's parts."""
        places = found.position.whole()[ids]
        origins = None if self.plan.n_parts == 1 else self.plan.part_of(places)
        return _Earlier(found, places, inside, (start, stop), origins)

    def restored(self, found: _Found) -> _Found:
        """The lists in storage order, the order of the first round."""
        if found.position is self.position:
            return found
        neighbors = self.table("neighbors", self.plan.n_neighbors, np.int32)
        distances = self.table("distances", self.plan.n_neighbors, np.float32)

        def restore_part(part: int) -> None:
            start, stop = self.plan.part(part)
            places = found.position.whole()[self.order.rows(start, stop)]
            neighbors.write(start, _taken(found.neighbors, places))
            distances.write(start, _taken(found.distances, places))

        self.parts.run(restore_part, self.plan.n_parts, "restored")
        return _Found(self.position, neighbors, distances)

    def partition(self, n: int) -> Ints:
        """The rows, part after part and ascending inside a part."""
        sizes = self.plan
        if sizes.n_parts == 1:
            return np.arange(sizes.n_rows, dtype=np.int32)
        n_levels = min(15, int(np.ceil(np.log2(sizes.n_parts))) + 3)
        sample = self.sample(_CELL_SAMPLE << n_levels, "partition", n)
        rows, bounds = root(len(sample))
        levels = []
        for level in range(n_levels):
            levels.append(halve(sample, rows, bounds, 1, self.seed("partition", n, level), 1, self.each))
            bounds = np.sort(np.concatenate([bounds, bounds[:-1] + np.diff(bounds) // 2]))
        planes = [self.share(np.concatenate(some)) for some in zip(*levels, strict=True)]
        cells = self.share(np.zeros(sizes.n_rows, np.uint16))

        def route_rows(piece: tuple[int, int]) -> None:
            out = cells.room(*piece)
            for start in range(*piece, sizes.read_rows):
                stop = min(start + sizes.read_rows, piece[1])
                rows = np.array(self.source.read(start, stop), np.float32, order="C")
                at = slice(start - piece[0], stop - piece[0])
                loops.route_rows(rows, *(plane.whole() for plane in planes), n_levels, out[at])
            cells.put(piece[0], out)

        self.parts.workers.map(route_rows, self.pieces(), count=False)
        members = np.argsort(cells.rows(0, sizes.n_rows), kind="stable").astype(np.int32)
        for part in range(sizes.n_parts):
            start, stop = sizes.part(part)
            members[start:stop].sort()
        return members

    def search_part(
        self, X: Floats, names: Ints, earlier: _Earlier | None, where: tuple[int, int]
    ) -> tuple[Ints, Ints, Floats]:
        """The order of the first tree's cells, and in that order the lists; X is put into that order too."""
        sizes, each = self.plan, self.each
        shape = len(X), sizes.n_neighbors
        Z = X if self.reduction is None else reduced(X, self.reduction[0].whole(), self.reduction[1].whole(), each)
        if earlier is None or earlier.origins is None:
            rows, leaves = grow(Z, *root(len(X)), sizes.leaf_rows, self.seed(*where, "leaves"), 3, each)
            order, cells = grow(Z, rows, leaves, sizes.cell_rows, self.seed(*where, "cells"), 3, each)
            origins = np.full(len(X), -1, np.int32)
        else:
            leaves = None
            groups = groups_of(earlier.origins)
            order, cells = grow(Z, *groups, sizes.cell_rows, self.seed(*where, "cells"), 3, each)
            origins = earlier.origins[order]
        loops.permute_rows(X, order)
        Z = X if self.reduction is None else Z[order]

        neighbors = np.full(shape, -1, np.int32)
        distances = np.full(shape, np.inf, np.float32)
        rows = identity = np.arange(len(X), dtype=np.int32)
        nothing = Candidates(np.empty((len(X), 0), np.int32), 0, sizes.leaf_rows, origins)
        for tree in range(sizes.n_trees if earlier is None else 1):
            if tree > 0 or leaves is None:
                seed = self.seed(*where, "tree", tree)
                rows, leaves = grow(Z, *root(len(X)), sizes.leaf_rows, seed, 1, each)
            compare(each, Z, rows, leaves, nothing, neighbors, distances)

        known, n_used = neighbors, sizes.n_used
        if earlier is not None:
            inside = np.append(inverse_of(order), np.int32(-1))  # -1, a row outside the part, stays -1
            known = np.empty((*shape, 2), np.int32)
            known[:, :, 0], known[:, :, 1] = inside[earlier.known(order)], neighbors
            known = known.reshape(len(X), -1)
            n_used += n_used // 2
        neighbors, distances[:] = np.full(shape, -1, np.int32), np.inf
        joined = Candidates(known, n_used, sizes.max_candidates, origins)
        compare(each, X, identity, cells, joined, neighbors, distances)
        del known, joined, distances  # a part is the largest thing that a search holds

        names = names[order]
        if earlier is None:
            near, far = np.full(shape, -1, np.int32), np.full(shape, np.inf, np.float32)
        else:
            near, far = earlier.lists(order)
        on_ranges(each, loops.settle_rows, len(X), (X, names), (neighbors, near, far))
        repair(X, names, near, far)
        return order, near, far


class _Truth:
    """The exact k-th distance of some sampled rows, by one scan of all rows."""

    def __init__(self, work: _Work, n_sampled: int):
        self.rows = work.sampled(n_sampled, "recall")
        self.radius: Floats | None = None
        self.work = work

    def recall(self, found: _Found) -> tuple[float, float]:
        """The mean share of each sampled list that is no farther than the true k-th, and its standard error."""
        if self.radius is None:
            self.radius = self.scan()
        far = _taken(found.distances, found.position.whole()[self.rows])
        shares = (far <= self.radius[:, None]).mean(axis=1)
        return float(shares.mean()), float(shares.std() / np.sqrt(len(shares)))

    def scan(self) -> Floats:
        work, sizes = self.work, self.work.plan
        width = min(sizes.n_neighbors + 8, sizes.n_rows - 1) + 1
        sample = work.share(np.array(work.source.take(self.rows), np.float32, order="C"))

        def scan_rows(piece: tuple[int, int]) -> tuple[Ints, Floats]:
            rows = sample.whole()
            mean = rows.mean(axis=0, dtype=np.float64).astype(np.float32)
            centred = rows - mean
            squares = np.einsum("ij,ij->i", centred, centred)
            neighbors = np.full((len(rows), width), -1, np.int32)
            distances = np.full((len(rows), width), np.inf, np.float32)
            for start in range(*piece, sizes.read_rows):
                stop = min(start + sizes.read_rows, piece[1])
                block = np.array(work.source.read(start, stop), np.float32, order="C") - mean
                ids = np.arange(start, stop, dtype=np.int32)
                with_what = (block, np.einsum("ij,ij->i", block, block), ids, neighbors, distances)
                loops.scan_block(centred, squares, 0, len(rows), *with_what)
            return neighbors, distances

        found = work.parts.workers.map(scan_rows, work.pieces(), count=False)
        neighbors, distances = (np.concatenate(one, axis=1) for one in zip(*found, strict=True))
        best = np.lexsort((neighbors, distances))[:, :width]
        neighbors = np.take_along_axis(neighbors, best, axis=1)
        some = range(0, len(neighbors), 32)
        return np.concatenate([self.settled(self.rows[i : i + 32], neighbors[i : i + 32]) for i in some])

    def settled(self, rows: NDArray[np.int64], neighbors: Ints) -> Floats:
        """The exact distance of each row to the last of the best among its candidates."""
        k = self.work.plan.n_neighbors
        names, where = np.unique(np.append(rows, neighbors[neighbors >= 0]), return_inverse=True)
        X = np.array(self.work.source.take(names), np.float32, order="C")
        candidates = np.full((len(X), neighbors.shape[1]), -1, np.int32)
        own = where[: len(rows)]
        lists = np.full(neighbors.shape, -1, np.int32)
        lists[neighbors >= 0] = where[len(rows) :]
        candidates[own] = np.where(lists == own[:, None], -1, lists)
        best, radius = np.full((len(X), k), -1, np.int32), np.full((len(X), k), np.inf, np.float32)
        loops.settle_rows(X, names.astype(np.int32), 0, len(X), candidates, best, radius)
        return radius[own, -1]


def _taken(table: Table, places: Ints) -> NDArray[Any]:
    """Rows of a table, asked for in ascending order."""
    by = np.argsort(places, kind="stable").astype(np.int32)
    return table.take(places[by])[inverse_of(by)]
