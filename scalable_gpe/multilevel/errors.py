"""The error that cycles leave in distances, from the change of sampled distances in the last one."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from scalable_gpe.execution.panels import Panel
from scalable_gpe.multilevel.cycle import CoarseBasis
from scalable_gpe.storage.mapped import take_rows

_SAMPLED = 500  # pairs of rows, near and far
_SEED = 0x5EED_0F_E


@dataclass(frozen=True)
class LastChange:
    """Squared distances of sampled pairs, near ones and then far ones, after the last cycle and the one before it.

    Those of several ranges of columns add up: in few columns a distance may be small by chance.
    """

    now: tuple[float, ...]
    before: tuple[float, ...]


@dataclass(frozen=True)
class SolverError:
    """The relative error of distances that is left after the last cycle, estimated from the change in it."""

    mean: float  # root mean square over near pairs and over far ones, the larger of both
    worst: float

    @staticmethod
    def of(changes: Sequence[LastChange], n_columns: int, remaining: float) -> "SolverError":
        """The change of distances in all columns, times what is `remaining` of such a change after it."""
        # squares of few columns are small by chance: distances of 4 scatter as twice as large ones do
        few = np.sqrt((n_columns - 2) / n_columns) if n_columns > 2 else 1.0
        now, before = (np.sum([getattr(one, name) for one in changes], axis=0) for name in ("now", "before"))
        means, worst = [], 0.0
        for new, old in zip(np.split(now, 2), np.split(before, 2), strict=True):
            relative = np.abs(np.sqrt(new[old > 0] / old[old > 0]) - 1) * remaining
            if len(relative):
                means.append(float(few * np.sqrt(np.mean(relative**2))))
                worst = max(worst, float(relative.max()))
        return SolverError(max(means, default=0.0), worst)


@dataclass(frozen=True)
class SampledPairs:
    """Pairs of rows, near and far, whose distances tell how much a cycle changes."""

    basis: CoarseBasis
    top: np.ndarray
    matrix: csr_array
    columns: np.ndarray
    pairs: tuple[tuple[np.ndarray, np.ndarray], ...]

    @staticmethod
    def of(basis: CoarseBasis) -> "SampledPairs":
        """Draw pairs of neighbours and pairs of any rows, and take their rows of K: at most two passes over it."""
        heat, edges, rng = basis.heat, basis.heat.kernel.edges, np.random.default_rng(_SEED)
        own = rng.integers(0, edges.n_points, _SAMPLED)
        near = own.copy()
        for number, columns, weights in edges.rows(own):
            others = columns[(columns != own[number]) & (weights > 0)]
            if len(others):
                near[number] = others[rng.integers(0, len(others))] if len(others) > 1 else others[0]
        far = rng.integers(0, edges.n_points, _SAMPLED)
        points, place = np.unique(np.concatenate([own, near, far]), return_inverse=True)
        one, neighbour, other = place.reshape(3, -1)
        rows = sorted((i, columns.copy(), weights.astype(np.float64)) for i, columns, weights in edges.rows(points))
        columns, at = np.unique(np.concatenate([columns for _, columns, _ in rows]), return_inverse=True)
        values = np.concatenate([heat.scale_points[points[i]] * weights for i, _, weights in rows])
        indptr = np.cumsum([0, *(len(columns) for _, columns, _ in rows)])
        matrix = csr_array((values, at, indptr), shape=(len(points), len(columns)))
        top = take_rows(basis.top.whole(points), points) / np.sqrt(heat.weights[points])
        return SampledPairs(basis, top, matrix, columns, ((one, neighbour), (one, other)))

    def images(self, panel: Panel) -> np.ndarray:
        """``s (K Z)`` of the rows."""
        out: np.ndarray = self.matrix @ take_rows(panel.whole(self.columns), self.columns).astype(np.float64)
        return out

    def shape_images(self, panel: Panel) -> np.ndarray:
        """``s (K Z)`` of the rows, without what lies along the top eigenvector."""
        _, along = self.basis.rows.along_top(panel)
        out: np.ndarray = self.images(panel) - self.top[:, None] * along
        return out

    def change(self, now: np.ndarray, before: np.ndarray) -> LastChange:
        """The distances in two images."""
        squares = [
            [float(square) for one, other in self.pairs for square in ((image[one] - image[other]) ** 2).sum(axis=1)]
            for image in (now, before)
        ]
        return LastChange(*map(tuple, squares))
