"""The error that cycles leave in distances, from the change of sampled distances in the last one."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from scalable_gpe.execution.panels import Panel
from scalable_gpe.execution.sums import chunk_totals, sum_rows
from scalable_gpe.multilevel.cycle import CoarseBasis

_SAMPLED = 500  # pairs of rows, near and far
_SEED = 0x5EED_0F_E


class Iterate(NamedTuple):
    """The solution after some cycles, and after one cycle less."""

    step: int
    now: Panel
    before: Panel | None


@dataclass(frozen=True)
class SolverError:
    """The relative error of distances that is left after the last cycle, estimated from the change in it."""

    mean: float  # root mean square over near pairs and over far ones, the larger of both
    worst: float


def measure_error(basis: CoarseBasis, found: Iterate, remaining: float) -> SolverError:
    """The change of sampled distances in the last cycle, times what is `remaining` of such a change after it."""
    edges, rng = basis.heat.kernel.edges, np.random.default_rng(_SEED)
    n_points = edges.n_points
    own = rng.integers(0, n_points, _SAMPLED)
    near = own.copy()
    for number, columns, weights in edges.rows(own):
        others = columns[(columns != own[number]) & (weights > 0)]
        if len(others):
            near[number] = others[rng.integers(0, len(others))] if len(others) > 1 else others[0]
    points, place = np.unique(np.concatenate([own, near, rng.integers(0, n_points, _SAMPLED)]), return_inverse=True)
    one, neighbour, other = place.reshape(3, -1)
    assert found.before is not None
    images = [_images(basis, panel, points) for panel in (found.now, found.before)]
    # squares of few columns are small by chance: distances of 4 scatter as twice as large ones do
    n_columns = found.now.shape[1]
    few = np.sqrt((n_columns - 2) / n_columns) if n_columns > 2 else 1.0
    means, worst = [], 0.0
    for second in (neighbour, other):
        new, old = (np.linalg.norm(image[one] - image[second], axis=1) for image in images)
        changes = np.abs(new[old > 0] / old[old > 0] - 1) * remaining
        if len(changes):
            means.append(float(few * np.sqrt(np.mean(changes**2))))
            worst = max(worst, float(changes.max()))
    return SolverError(max(means, default=0.0), worst)


def _images(basis: CoarseBasis, panel: Panel, points: np.ndarray) -> np.ndarray:
    """``s (K Z)`` of some points, without what lies along the top eigenvector."""
    heat = basis.heat
    top = basis.top.whole(points)[points] / np.sqrt(heat.weights[points])
    out: np.ndarray = -top[:, None] * share_of_top(basis, panel)
    for i, columns, weights in heat.kernel.edges.rows(points):
        values: Any = panel.whole(columns)[columns]
        out[i] += heat.scale_points[points[i]] * (weights.astype(np.float64) @ values)
    return out


def share_of_top(basis: CoarseBasis, vectors: Panel) -> np.ndarray:
    """What lies along the top eigenvector, in units of it."""
    heat, top = basis.heat, basis.top

    def along(start: int, stop: int) -> np.ndarray:
        factor = top.rows(start, stop) / np.sqrt(heat.step_scale[start:stop])
        return chunk_totals(vectors.rows(start, stop) * factor[:, None])

    total: np.ndarray = sum_rows(heat.context, vectors.shape[0], along)
    return total / vectors.shape[0]
