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
from typing import Any, TypeVar

import numpy as np

from scalable_gpe.errors import wrong_numbers
from scalable_gpe.execution.context import Context
from scalable_gpe.execution.panels import Panel, Panels
from scalable_gpe.execution.process import process, release_freed_memory
from scalable_gpe.execution.workers import Workers
from scalable_gpe.graph.parts import (
    Earlier,
    Lists,
    PartSearch,
    SearchPlan,
    mend_borders,
    plan_search,
    search_part,
    seed_of,
)
from scalable_gpe.graph.points import RowSubset
from scalable_gpe.graph.recall import ExactSample, recall_standard_error
from scalable_gpe.graph.search import NeighborLists, SearchParameters
from scalable_gpe.graph.trees import Floats, Ints, fit_reduction, halve, root
from scalable_gpe.io.rows import Rows
from scalable_gpe.loops import search as loops
from scalable_gpe.storage.blocks import block_rows, ranges
from scalable_gpe.storage.mapped import inverse_order, pieces, take_rows
from scalable_gpe.storage.store import Table, write_whole

_CELL_SAMPLE = 64  # sampled rows per cell of the tree that cuts the parts
_MAX_ROUNDS = 8
_WORTHWHILE = 0.004  # a round over all rows that gained less recall than this is the last
_SHARD_BYTES = 2**24

Load = Callable[[int, Ints], Floats]
Result = TypeVar("Result")


def search_cells(
    source: Rows,
    n_neighbors: int,
    sample: ExactSample,
    parameters: SearchParameters,
    context: Context,
    name: str,
    n_parts: int = 1,
) -> NeighborLists:
    """Find the nearest other rows of each row of `source`; tables and finished parts are stored under `name`.

    No two rows may be equal. `sample` measures the recall after each round. The storage order is that of the first
    round. The trace is the recall of the sampled rows before and after each step of a search in one part, and after
    each round of one in several.
    """
    plan = plan_search(source.n_rows, source.n_features, n_neighbors, part_rows=-(-source.n_rows // n_parts))
    recall = parameters.recall
    # rows along the borders of one cut have poor lists even if the mean recall is good: a second cut repairs them
    least_rounds = 1 if plan.n_parts == 1 else 2
    with process.one_blas_thread(), context.workers.progress.stage("search", 3 * plan.n_parts):
        search = _Search(source, plan, context, name, parameters, sample)
        found = search.round(0, None)
        measured, n_rounds, gain, borders_only = search.recall_after(0, found), 1, 1.0, False
        trace = measured.trace
        while n_rounds < least_rounds or (
            measured.least < recall and (gain >= _WORTHWHILE or borders_only) and n_rounds < _MAX_ROUNDS
        ):
            # borders that gained little are followed by all rows
            pays = gain >= _WORTHWHILE or not borders_only
            borders_only = plan.n_parts > 1 and measured.inside >= recall and pays
            found = search.round(n_rounds, found, borders_only=borders_only)
            before, measured = measured, search.recall_after(n_rounds, found)
            gain, trace = measured.mean - before.mean, trace + measured.trace
            n_rounds += 1
    shared_order = search.order
    by_storage = shared_order.whole()
    order = context.filled(plan.n_rows, np.int64, lambda start, stop: by_storage[start:stop])
    points = RowSubset(source, order) if search.rows is None else search.rows
    return NeighborLists(order, lambda start, stop: found.of_rows(shared_order.rows(start, stop)), points.read, trace)


@dataclass(frozen=True)
class _Recall:
    """Recall after a round: its mean, the same less a standard error, and that of rows away from borders of parts."""

    mean: float
    least: float
    inside: float
    trace: tuple[float, ...]


@dataclass(frozen=True)
class _Finished:
    """Empty record of a finished part."""


class _Search:
    """State that all rounds of one search share."""

    order: Panel  # storage order and its inverse, once the first round is done
    position: Panel

    def __init__(
        self,
        source: Rows,
        plan: SearchPlan,
        context: Context,
        name: str,
        parameters: SearchParameters,
        sample: ExactSample,
    ) -> None:
        self.source, self.plan, self.sample, recall = source, plan, sample, parameters.recall
        self.recall = recall if plan.n_parts == 1 else (1 + recall) / 2  # at which descents end
        self.seed_of, self.threads = partial(seed_of, parameters.random_state), context.workers.here
        self._context, self._panels, self._name = context, Panels(context), name
        # rows that are in memory are not copied, nor is anything into it
        is_copied = context.store.persistent and not source.resident
        self.rows = self._table("rows", plan.n_features, np.float32) if is_copied else None
        self._reduction = self._fit_reduction() if plan.n_reduced else ()
        self._trace: tuple[float, ...] = ()  # of the last round, if it was one search of all rows

    def __getstate__(self) -> object:
        # a task in another process is one thread
        return {**vars(self), "_panels": None, "threads": Workers(1)}

    def _table(self, name: str, width: int, dtype: type) -> Table:
        """Make a table, or open the one that an interrupted search left behind.

        A shard is a whole part, or an equal share of a large one, as a shard is copied while it is written.
        """
        plan = self.plan
        shard = plan.part_rows if plan.n_parts > 1 else block_rows(plan.n_rows)
        while shard * width * np.dtype(dtype).itemsize > _SHARD_BYTES and shard % 2 == 0:
            shard //= 2
        return self._context.store.table(f"{self._name}/{name}", (plan.n_rows, width), dtype, shard_rows=shard)

    def _run(self, task: Callable[[int], Result], *step: Any) -> list[Result]:
        """Run a task for every part that is not finished yet, as many at a time as memory allows."""
        store, workers, n_parts = self._context.store, self._context.workers, self.plan.n_parts
        names = [f"{self._name}/done/{'-'.join(map(str, (*step, part)))}" for part in range(n_parts)]
        left = [part for part in range(n_parts) if store.read(names[part], _Finished) is None]

        def finish(part: int) -> None:
            store.commit(names[part], _Finished())
            workers.progress.advance()
            release_freed_memory()  # freed memory would count against the limit

        return workers.map(task, left, count=False, at_once=self._context.plan.parts_at_once(), done=finish)

    def _fit_reduction(self) -> tuple[Panel, ...]:
        found = fit_reduction(self._sample(4096, "reduction"), self.plan.n_reduced, self.seed_of("directions"))
        return tuple(map(self._panels.of, found))

    def _sample(self, n: int, *names: Any) -> Floats:
        """Sample some rows, each at most once, in ascending order."""
        draw = np.random.default_rng(int(self.seed_of("sample", *names)))
        rows = np.sort(draw.choice(self.plan.n_rows, min(n, self.plan.n_rows), replace=False))
        return np.array(self.source.take(rows), np.float32, order="C")

    def recall_after(self, n: int, found: Lists) -> _Recall:
        """Recall of the sampled rows after a round; recorded, because a later round removes its lists."""
        store, name = self._context.store, f"{self._name}/done/recall-{n}"
        known = store.read(name, _Recall)
        if known is None:
            known = self._measured(found)
            store.commit(name, known)
        return known

    def _measured(self, found: Lists) -> _Recall:
        sample, position = self.sample, found.position.whole()
        shares = sample.shares(np.sqrt(found.of_rows(sample.points.astype(np.int32))[1]))
        own, others = (self.plan.part_of(take_rows(position, rows)) for rows in (sample.points, sample.neighbors))
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
        for used in ("moved", f"neighbors-{n - 1}", f"distances-{n - 1}"):
            self._context.store.remove(f"{self._name}/{used}")
        return later

    def _search_parts(self, n: int, members: Ints, found: Lists | None, borders_only: bool) -> Lists:
        plan, panels = self.plan, self._panels
        inside, by_part = panels.of(inverse_order(members, self._context.empty)), panels.of(members)
        load = self._load(inside, is_first=found is None)
        order = self._table(f"order-{n}", 1, np.int32)
        neighbors = self._table(f"neighbors-{n}", plan.n_neighbors, np.int32)
        distances = self._table(f"distances-{n}", plan.n_neighbors, np.float32)

        def search_one(part: int) -> tuple[float, ...]:
            start, stop = plan.part(part)
            ids = by_part.rows(start, stop)
            X = np.require(load(part, ids), np.float32, ["C", "W"])
            of_round, of_part = plan.of_round(n, borders_only=borders_only), partial(self.seed_of, n, part)
            how = PartSearch(of_round, of_part, self.sample, self.recall, self.threads, *self._reduction)
            earlier = None
            if found is not None:
                earlier = Earlier(found, take_rows(found.position.whole(), ids), inside, start, stop)
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
        traces = self._run(search_one, "part", n)
        self._trace = traces[0] if plan.n_parts == len(traces) == 1 else ()
        final = self._context.empty((plan.n_rows,), np.int32)
        for start, stop in map(plan.part, range(plan.n_parts)):
            final[start:stop] = order.read(start, stop)[:, 0]
        _check_order(final, self._context, f"{self._name}/order-{n}")
        position = panels.of(inverse_order(final, self._context.empty))
        if found is None:
            self.order, self.position = panels.of(final), position
        return Lists(position, neighbors, distances)

    def _load(self, inside: Panel, *, is_first: bool) -> Load:
        """Return the function that loads the rows of a part; `inside` are places in the parts.

        Rows that are not in memory are first sorted by part, range by range: one pass that reads and writes everything
        once. Taking the rows of each part directly would read everything once per part.
        """
        plan, rows = self.plan, self.rows
        if rows is None or (is_first and plan.n_parts == 1):
            return lambda part, ids: self.source.take(ids)
        if not is_first:
            return lambda part, ids: rows.take(take_rows(self.position.whole(), ids))

        def parts_of(part: int) -> Ints:
            return plan.part_of(inside.rows(*plan.part(part)))

        counts = np.stack([np.bincount(parts_of(part), minlength=plan.n_parts) for part in range(plan.n_parts)])
        ends = np.cumsum(counts, axis=1) + np.arange(plan.n_parts)[:, None] * plan.part_rows
        moved = self._table("moved", plan.n_features, np.float32)

        def move_part(part: int) -> None:
            start, stop = plan.part(part)
            rows = np.empty((stop - start, plan.n_features), np.float32)
            for first, last in ranges(len(rows), plan.read_rows):
                rows[first:last] = self.source.read(start + first, start + last)
            order = np.argsort(parts_of(part), kind="stable")
            for first, last in ranges(len(rows), moved.shard_rows):
                moved.write(start + first, rows[order[first:last]])

        self._run(move_part, "moved")

        def load(part: int, ids: Ints) -> Floats:
            out, filled = np.empty((len(ids), plan.n_features), np.float32), 0
            for stop, count in zip(ends[:, part], counts[:, part], strict=True):
                out[filled : filled + count] = moved.read(int(stop - count), int(stop))
                filled += int(count)
            return out

        return load

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
