"""Approximate nearest neighbours by cells: each round cuts the rows into parts and searches every part.

The next round cuts along other directions, so that rows which were separated by a border meet, and starts from the
lists found so far, until the recall of sampled rows is high enough or the gain becomes too small.

The search of a part is a pure function that writes its own range, leaves are disjoint, and a list keeps the best of
what it is offered in any order: threads, the storage of rows and lists, and the parts held at once change nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from scalable_gpe.errors import wrong_numbers
from scalable_gpe.execution.context import Context
from scalable_gpe.execution.panels import Panel, Panels
from scalable_gpe.execution.process import process
from scalable_gpe.execution.workers import Workers
from scalable_gpe.graph.cells.looks import Goal
from scalable_gpe.graph.cells.parts import Earlier, Lists, PartSearch, mend_borders, search_part
from scalable_gpe.graph.cells.plan import SearchPlan, plan_search, seed_of
from scalable_gpe.graph.cells.tables import SearchTables
from scalable_gpe.graph.cells.trees import Floats, Ints, fit_reduction, halve, root
from scalable_gpe.graph.points import RowSubset
from scalable_gpe.graph.recall import ExactSample, recall_standard_error
from scalable_gpe.io.rows import Rows
from scalable_gpe.loops import search as loops
from scalable_gpe.storage.blocks import ranges
from scalable_gpe.storage.mapped import inverse_order, pieces, take_rows
from scalable_gpe.storage.store import write_whole

_CELL_SAMPLE = 64  # sampled rows per cell of the tree that cuts the parts
_MAX_ROUNDS = 8
_WORTHWHILE = 0.004  # a round over all rows that gained less recall than this is the last

Load = Callable[[int, Ints], Floats]


@dataclass(frozen=True)
class CellsResult:
    """Lists in storage order, which is the order of the first round, as `NeighborLists` has them.

    `found` has them in the order of the last round; `shared_order` is `order` as tasks read it. `trace` is the recall
    of the sampled rows before and after each step of a search in one part, and after each round of one in several.
    """

    order: np.ndarray
    shared_order: Panel
    found: Lists
    points: Rows
    recall: float
    n_rounds: int
    trace: tuple[float, ...]

    def __getstate__(self) -> object:
        return {**vars(self), "order": None}  # tasks read tables, never the whole order

    def lists(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Lists of some rows."""
        return self.found.of_rows(self.shared_order.rows(start, stop))

    def rows(self, start: int, stop: int) -> np.ndarray:
        """Rows in storage order."""
        return self.points.read(start, stop)


def search_cells(
    source: Rows,
    n_neighbors: int,
    sample: ExactSample,
    context: Context,
    name: str,
    *,
    random_state: int = 0,
    recall: float = 0.95,
    part_rows: int | None = None,
) -> CellsResult:
    """Find the nearest other rows of each row of `source`; tables and finished parts are stored under `name`.

    No two rows may be equal. `sample` measures the recall after each round.
    """
    plan = plan_search(source.n_rows, source.n_features, n_neighbors, part_rows=part_rows)
    panels = Panels(context)
    with process.one_blas_thread(), context.workers.progress.stage("search", 3 * plan.n_parts):
        goal = Goal(sample, recall if plan.n_parts == 1 else (1 + recall) / 2)
        search = _Search(source, plan, context, name, panels, random_state, goal)
        found = search.round(0, None)
        measured, n_rounds, gain, borders_only = search.recall(0, sample, found), 1, 1.0, False
        trace = measured.trace
        while n_rounds < plan.least_rounds or (
            measured.least < recall and (gain >= _WORTHWHILE or borders_only) and n_rounds < _MAX_ROUNDS
        ):
            # borders that gained little are followed by all rows
            pays = gain >= _WORTHWHILE or not borders_only
            borders_only = plan.n_parts > 1 and measured.inside >= recall and pays
            found = search.round(n_rounds, found, borders_only=borders_only)
            before, measured = measured, search.recall(n_rounds, sample, found)
            gain, trace = measured.mean - before.mean, trace + measured.trace
            n_rounds += 1
        by_storage = search.order.whole()
        order = context.filled(plan.n_rows, np.int64, lambda start, stop: by_storage[start:stop])
    points = RowSubset(source, order) if search.rows is None else search.rows
    return CellsResult(order, search.order, found, points, measured.mean, n_rounds, trace)


@dataclass(frozen=True)
class _Recall:
    """Recall after a round: its mean, the same less a standard error, and that of rows away from borders of parts."""

    mean: float
    least: float
    inside: float
    trace: tuple[float, ...]


class _Search:
    """State that all rounds of one search share."""

    def __init__(
        self,
        source: Rows,
        plan: SearchPlan,
        context: Context,
        name: str,
        panels: Panels,
        random_state: int,
        goal: Goal,
    ) -> None:
        self.source, self.plan, self.goal = source, plan, goal
        self.seed_of, self.threads = partial(seed_of, random_state), context.workers.here
        self._context, self._panels = context, panels
        self._tables = SearchTables(context, name, plan)
        # rows that are in memory are not copied, nor is anything into it
        is_copied = context.store.persistent and not source.resident
        self.rows = self._tables.table("rows", plan.n_features, np.float32) if is_copied else None
        # storage order and its inverse, once the first round is done
        self.order: Panel = panels.of(np.empty(0, np.int32))
        self.position: Panel = self.order
        self._reduction = self._fit_reduction() if plan.n_reduced else ()
        self._trace: tuple[float, ...] = ()  # of the last round, if it was one search of all rows

    def __getstate__(self) -> object:
        # a task in another process is one thread
        return {**vars(self), "_tables": None, "_panels": None, "threads": Workers(1)}

    def _fit_reduction(self) -> tuple[Panel, ...]:
        """The mean and the directions onto which wide rows are projected for the trees."""
        found = fit_reduction(self._sample(4096, "reduction"), self.plan.n_reduced, self.seed_of("directions"))
        return tuple(map(self._panels.of, found))

    def _sample(self, n: int, *names: Any) -> Floats:
        """Sample some rows, each at most once, in ascending order."""
        draw = np.random.default_rng(int(self.seed_of("sample", *names)))
        rows = np.sort(draw.choice(self.plan.n_rows, min(n, self.plan.n_rows), replace=False))
        return np.array(self.source.take(rows), np.float32, order="C")

    def recall(self, n: int, sample: ExactSample, found: Lists) -> _Recall:
        """Recall of the sampled rows after a round; recorded, because a later round removes its lists."""
        store, name = self._context.store, self._tables.name(f"done/recall-{n}")
        known = store.read(name, _Recall)
        if known is None:
            known = self._measured(sample, found)
            store.commit(name, known)
        return known

    def _measured(self, sample: ExactSample, found: Lists) -> _Recall:
        position, part_of = found.position.whole(), self.plan.part_of
        shares = sample.shares(np.sqrt(found.of_rows(sample.points.astype(np.int32))[1]))
        own, others = (part_of(take_rows(position, rows)) for rows in (sample.points, sample.neighbors))
        is_inside = (others == own[:, None]).all(axis=1)

        def least(some: np.ndarray) -> float:
            if len(some) < 2:
                return 0.0
            return float(some.mean()) - (0.0 if sample.is_whole else recall_standard_error(some))

        mean = float(shares.mean())
        return _Recall(mean, least(shares), least(shares[is_inside]), self._trace or (mean,))

    def round(self, n: int, found: Lists | None, *, borders_only: bool = False) -> Lists:
        """Cut the rows into parts and search each of them, starting from the lists found so far.

        With `borders_only`, only rows near borders of the last round are compared with others.
        A part is written cell by cell, so that lists which the next round or the final order reads together are stored
        near each other.
        """
        members = self._partition(n)
        if found is not None:  # in storage order, for the same reason
            order, position = self.order.whole(), self.position.whole()
            for start, stop in map(self.plan.part, range(self.plan.n_parts)):
                places = np.sort(take_rows(position, members[start:stop]))
                members[start:stop] = take_rows(order, places)
        later = self._search_parts(n, members, found, borders_only)
        self._tables.drop("moved")
        if found is not None:
            self._tables.drop(f"neighbors-{n - 1}")
            self._tables.drop(f"distances-{n - 1}")
        return later

    def _search_parts(self, n: int, members: Ints, found: Lists | None, borders_only: bool) -> Lists:
        plan, panels = self.plan, self._panels
        inside, by_part = panels.of(inverse_order(members, self._context.empty)), panels.of(members)
        load = self._first_load(inside) if found is None else self._later_load
        order = self._tables.table(f"order-{n}", 1, np.int32)
        neighbors = self._tables.table(f"neighbors-{n}", plan.n_neighbors, np.int32)
        distances = self._tables.table(f"distances-{n}", plan.n_neighbors, np.float32)

        def search_one(part: int) -> tuple[float, ...]:
            start, stop = plan.part(part)
            ids = by_part.rows(start, stop)
            X = np.require(load(part, ids), np.float32, ["C", "W"])
            earlier = None if found is None else self._earlier(found, ids, inside, start, stop)
            of_round, of_part = plan.of_round(n, borders_only=borders_only), partial(self.seed_of, n, part)
            how = PartSearch(of_round, of_part, self.goal, self.threads, *self._reduction)
            if earlier is not None and borders_only:
                searched = mend_borders(X, ids, earlier, how)
            else:
                searched = search_part(X, ids, earlier, how)
            if found is None and self.rows is not None:
                write_whole(self.rows, X, start)
            write_whole(order, ids[searched.order][:, None], start)
            write_whole(neighbors, searched.neighbors, start)
            write_whole(distances, searched.squares, start)
            return searched.trace

        search_one.__name__ = "search_part"  # the task's name on a dashboard
        traces = self._tables.run(search_one, "part", n)
        self._trace = traces[0] if plan.n_parts == len(traces) == 1 else ()
        final = self._context.empty((plan.n_rows,), np.int32)
        for start, stop in map(plan.part, range(plan.n_parts)):
            final[start:stop] = order.read(start, stop)[:, 0]
        _check_order(final, self._context, self._tables.name(f"order-{n}"))
        position = panels.of(inverse_order(final, self._context.empty))
        if found is None:
            self.order, self.position = panels.of(final), position
        return Lists(position, neighbors, distances)

    def _first_load(self, inside: Panel) -> Load:
        """Return the function that loads the rows of a part in the first round; `inside` are places in the parts.

        Rows that are not in memory are first sorted by part, range by range: one pass that reads and writes everything
        once. Taking the rows of each part directly would read everything once per part.
        """
        plan = self.plan
        if self.rows is None or plan.n_parts == 1:
            return lambda part, ids: self.source.take(ids)

        def parts_of(part: int) -> Ints:
            return plan.part_of(inside.rows(*plan.part(part)))

        counts = np.stack([np.bincount(parts_of(part), minlength=plan.n_parts) for part in range(plan.n_parts)])
        ends = np.cumsum(counts, axis=1) + np.arange(plan.n_parts)[:, None] * plan.part_rows
        moved = self._tables.table("moved", plan.n_features, np.float32)

        def move_part(part: int) -> None:
            start, stop = plan.part(part)
            rows = np.empty((stop - start, plan.n_features), np.float32)
            for first, last in ranges(len(rows), plan.read_rows):
                rows[first:last] = self.source.read(start + first, start + last)
            order = np.argsort(parts_of(part), kind="stable")
            for first, last in ranges(len(rows), moved.shard_rows):
                moved.write(start + first, rows[order[first:last]])

        self._tables.run(move_part, "moved")

        def load(part: int, ids: Ints) -> Floats:
            out, filled = np.empty((len(ids), plan.n_features), np.float32), 0
            for stop, count in zip(ends[:, part], counts[:, part], strict=True):
                out[filled : filled + count] = moved.read(int(stop - count), int(stop))
                filled += int(count)
            return out

        return load

    def _later_load(self, part: int, ids: Ints) -> Floats:
        """Load the rows of a part in a later round."""
        return self.source.take(ids) if self.rows is None else self.rows.take(take_rows(self.position.whole(), ids))

    def _earlier(self, found: Lists, ids: Ints, inside: Panel, start: int, stop: int) -> Earlier:
        """Results of earlier rounds for the rows `ids`, which are at `start` to `stop` of this round's parts."""
        return Earlier(found, take_rows(found.position.whole(), ids), inside, start, stop)

    def _partition(self, n: int) -> Ints:
        """Return the rows part by part, ascending inside each part."""
        plan = self.plan
        if plan.n_parts == 1:
            return self._context.filled(plan.n_rows, np.int32, lambda start, stop: np.arange(start, stop))
        n_levels = min(15, int(np.ceil(np.log2(plan.n_parts))) + 3)
        sample = self._sample(_CELL_SAMPLE << n_levels, "partition", n)
        rows, bounds = root(len(sample))
        levels = []
        for level in range(n_levels):
            levels.append(halve(sample, rows, bounds, 1, self.seed_of("partition", n, level), 1, self.threads))
            bounds = np.sort(np.concatenate([bounds, bounds[:-1] + np.diff(bounds) // 2]))
        planes = [self._panels.of(np.concatenate(some)) for some in zip(*levels, strict=True)]
        cells = self._panels.new((plan.n_rows,), np.uint16)
        source = self.source

        def route_rows(piece: tuple[int, int]) -> None:
            out = cells.room(*piece)
            out[:] = 0
            for start in range(*piece, plan.read_rows):
                stop = min(start + plan.read_rows, piece[1])
                block = np.array(source.read(start, stop), np.float32, order="C")
                at = slice(start - piece[0], stop - piece[0])
                loops.route_rows(block, *(plane.whole() for plane in planes), n_levels, out[at])
            cells.put(piece[0], out)

        blocks = ranges(plan.n_rows, self._context.block_rows(plan.n_rows))
        self._context.workers.map(route_rows, blocks, count=False)
        members = self._context.empty((plan.n_rows,), np.int32)
        loops.sort_by_cell(cells.rows(0, plan.n_rows), 2**n_levels, members)
        for start, stop in map(plan.part, range(plan.n_parts)):
            members[start:stop].sort()
        return members


def _check_order(order: Ints, context: Context, name: str) -> None:
    """Refuse an order that does not hold every row once: positions would be whatever memory held."""
    seen = context.filled(len(order), np.bool_, lambda start, stop: False)
    for start, stop in pieces(len(order)):
        some = order[start:stop]
        seen[some[(some >= 0) & (some < len(order))]] = True
    if not all(seen[start:stop].all() for start, stop in pieces(len(order))):
        raise wrong_numbers(name)
