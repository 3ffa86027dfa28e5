"""Recall during a descent: after each step, the lists of sampled rows are compared with their true neighbours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from scalable_gpe.graph.cells.descent import SortedLists, rows_of
from scalable_gpe.graph.cells.trees import Floats, Ints
from scalable_gpe.graph.recall import ExactSample, recall_standard_error
from scalable_gpe.loops import points as loops


@dataclass(frozen=True)
class Goal:
    """The recall at which a descent ends, among the true neighbours that are in the part."""

    sample: ExactSample
    recall: float

    def is_reached(self, shares: np.ndarray) -> bool:
        """Whether the mean over sampled rows, less its standard error, is high enough."""
        if len(shares) < 2:
            return False
        error = 0.0 if self.sample.is_whole else recall_standard_error(shares)
        return float(shares.mean()) - error >= self.recall


@dataclass(frozen=True)
class SampledRows:
    """The sampled rows of one part.

    `names` are their row numbers, `near` and `far` their lists of earlier rounds, `n_inside` counts the true neighbours
    of each that the part or these lists hold.
    """

    goal: Goal
    names: Ints
    near: Ints
    far: Floats
    n_inside: np.ndarray
    reach: np.ndarray

    @staticmethod
    def of_part(goal: Goal, names: Ints, near: Ints, far: Floats) -> SampledRows:
        """Those of a part with the rows `names`; `near` and `far` are lists of earlier rounds of its sampled rows."""
        sample = goal.sample
        own = np.isin(sample.points, names)
        true = sample.neighbors[own]
        is_listed = (true[:, :, None] == near[:, None, :]).any(axis=2)
        n_inside = (np.isin(true, names) | is_listed).sum(axis=1)
        return SampledRows(goal, sample.points[own], near, far, n_inside, sample.reach[own] ** 2)

    def looking(self, X: Floats, names: Ints, n_settled: int) -> Callable[[SortedLists], bool]:
        """Whether lists of the rows `names` of X have reached the goal: a function; `n_settled` entries count."""
        places = np.flatnonzero(np.isin(names, self.names))
        at = np.searchsorted(self.names, names[places])
        n_earlier = (self.far <= self.reach[:, None]).sum(axis=1)  # true neighbours in the lists of earlier rounds

        def is_reached(lists: SortedLists) -> bool:
            n_found = n_earlier.copy()
            others = rows_of(lists.entries[places, :n_settled])
            squares = np.empty(others.shape, np.float32)
            loops.list_squares(X, places, np.maximum(others, 0), squares)
            is_known = (names[others][:, :, None] == self.near[at][:, None, :]).any(axis=2)
            is_near = (others >= 0) & ~is_known & (squares <= self.reach[at, None])
            n_found[at] += is_near.sum(axis=1)
            inside = self.n_inside > 0
            return self.goal.is_reached(np.minimum(n_found / np.maximum(self.n_inside, 1), 1.0)[inside])

        return is_reached
