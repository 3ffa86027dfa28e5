"""Recall during a descent: after each step, the lists of sampled rows are compared with their true neighbours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from scalable_gpe.graph.cells.descent import SortedLists, rows_of
from scalable_gpe.graph.cells.trees import Floats, Ints
from scalable_gpe.graph.recall import ExactSample, recall_standard_error
from scalable_gpe.loops import points as loops

ListsAt = Callable[[Ints], tuple[Ints, Floats]]


@dataclass(frozen=True)
class Goal:
    """The recall at which a descent ends, among the true neighbours that are in the part."""

    sample: ExactSample
    recall: float

    def looking(
        self, X: Floats, names: Ints, n_settled: int, part: Ints, earlier: ListsAt | None, trace: list[float]
    ) -> Callable[[SortedLists], bool]:
        """Whether lists of the rows `names` of X have reached the goal: a function; `n_settled` entries count.

        `part` are all rows of the part, `earlier` gives the lists of earlier rounds at some places in it. The recall
        of each look is added to `trace`.
        """
        sample, own = self.sample, np.isin(self.sample.points, part)
        sampled, true, reach = sample.points[own], sample.neighbors[own], sample.reach[own] ** 2
        near, far = np.empty((len(sampled), 0), np.int32), np.empty((len(sampled), 0), np.float32)
        if earlier is not None:
            in_part = np.flatnonzero(np.isin(part, sampled)).astype(np.int32)
            near, far = earlier(in_part[np.argsort(part[in_part])])
        is_listed = (true[:, :, None] == near[:, None, :]).any(axis=2)
        n_inside, n_earlier = (np.isin(true, part) | is_listed).sum(axis=1), (far <= reach[:, None]).sum(axis=1)
        places = np.flatnonzero(np.isin(names, sampled))
        at = np.searchsorted(sampled, names[places])

        def is_reached(lists: SortedLists) -> bool:
            n_found = n_earlier.copy()
            others = rows_of(lists.entries[places, :n_settled])
            squares = np.empty(others.shape, np.float32)
            loops.list_squares(X, places, np.maximum(others, 0), squares)
            is_known = (names[others][:, :, None] == near[at][:, None, :]).any(axis=2)
            n_found[at] += ((others >= 0) & ~is_known & (squares <= reach[at, None])).sum(axis=1)
            shares = np.minimum(n_found / np.maximum(n_inside, 1), 1.0)[n_inside > 0]
            if len(shares) < 2:
                return False
            trace.append(float(shares.mean()))
            error = 0.0 if sample.is_whole else recall_standard_error(shares)
            return trace[-1] - error >= self.recall

        return is_reached
