"""What is carried through A again in double precision: unit vectors of sampled rows, and some columns of the sketch.

All powers share one expansion, on [-1, 1], where no spectrum need be known.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from scalable_gpe.embedding import Embedding
from scalable_gpe.execution.memory_plan import n_panels
from scalable_gpe.execution.panels import Panel, Panels
from scalable_gpe.heat.normalization import HeatKernel
from scalable_gpe.projection import powers_of
from scalable_gpe.sketch.gaussian_process import sweeps_of
from scalable_gpe.sketch.polynomial import Plan
from scalable_gpe.sketch.powers import PowerIteration, Sketch, start_panel
from scalable_gpe.spectral.chebyshev import series
from scalable_gpe.storage.protocol import ranges

_N_COLUMNS = 4  # columns of G that are carried again
_CUT = 1e-15  # of the Chebyshev series, relative to a unit vector


class ExactRows:
    """Sampled rows of A^p, by way of the entries of A^{2p} between them."""

    def __init__(self, heat: HeatKernel, n_exact: int, seed: int) -> None:
        self._heat = heat
        n_rows = heat.shape[0]
        self.rows = np.sort(np.random.default_rng([seed, 2]).choice(n_rows, min(n_exact, n_rows), replace=False))
        self.n_exact, self.n_rows, self.seed = len(self.rows), n_rows, seed
        self.points = heat.kernel.storage_order.position[self.rows]

    def covariances(self, powers: Sequence[int]) -> dict[int, np.ndarray]:
        """``C = (A^{2p})_ij`` of the sampled rows, without the constant direction where the embedding has none."""
        parts: dict[int, list[np.ndarray]] = {power: [] for power in powers}
        for first, stop in ranges(self.n_exact, _width(self._heat, len(powers), self.n_exact)):
            start = partial(self._units, self.points[first:stop])
            for twice, carried in _carry(self._heat, start, powers, times=2):
                parts[twice // 2].append(_rows_of_product(self._heat, carried, self.points))
        whole = {power: np.concatenate(columns, axis=1) for power, columns in parts.items()}
        return {power: (one + one.T) / 2 for power, one in whole.items()}

    def _units(self, points: np.ndarray, panels: Panels) -> Panel:
        """``Z = S e_i``, one column for each point; centred with the embedding."""
        heat = self._heat
        panel = np.zeros((heat.kernel.edges.n_points, len(points)))
        if heat.is_centred:
            panel -= (heat.weights / self.n_rows)[:, None]
        panel[points, np.arange(len(points))] += 1
        return panels.of(panel * heat.scale_points[:, None])


def measure_rounding(embedding: Embedding) -> dict[int, dict[str, Any]]:
    """Some columns of A^p G again, for each power: what polynomial and rounding have done."""
    heat, parameters, published = embedding.heat, embedding.parameters, powers_of(embedding)
    k = parameters["n_components"]
    columns = np.unique(np.linspace(0, k - 1, min(_N_COLUMNS, k)).astype(np.int64))
    sketch = Sketch(parameters["sketch"], parameters["random_state"], "double")
    error, size = dict.fromkeys(published, 0.0), dict.fromkeys(published, 0.0)
    for first, stop in ranges(len(columns), _width(heat, len(published), len(columns))):
        chosen = columns[first:stop]
        start = partial(_columns, heat, sketch, chosen)
        for power, carried in _carry(heat, start, list(published)):
            for rows, truth in _images(heat, carried):
                shown = np.asarray(published[power][slice(*rows)], dtype=np.float64)[:, chosen] * np.sqrt(k)
                error[power] += float(((shown - truth) ** 2).sum())
                size[power] += float((truth**2).sum())
    promised = embedding.report["polynomial_error"]
    return {
        power: {
            "measured": float(np.sqrt(error[power] / size[power])) if size[power] > 0 else 0.0,
            "reported": float(promised[power] if isinstance(promised, dict) else promised),
            "n_columns": len(columns),
        }
        for power in published
    }


def _columns(heat: HeatKernel, sketch: Sketch, columns: np.ndarray, panels: Panels) -> Panel:
    return start_panel(heat, sketch, columns, panels)[0]


def _width(heat: HeatKernel, n_powers: int, wanted: int) -> int:
    """Columns in double precision that half of the free memory holds at once."""
    column = 8 * heat.kernel.edges.n_points * (1 + n_panels(n_powers, remote=heat.context.workers.remote))
    return int(np.clip(heat.context.spare_bytes() // 2 // column, 1, wanted))


def _carry(
    heat: HeatKernel, start: Callable[[Panels], Panel], powers: Sequence[int], times: int = 1
) -> Iterator[tuple[int, Panel]]:
    """``Z`` after one application of A less than each power (times a number), in double precision."""
    panels = Panels(heat.context, heat.context.scratch())
    plans = [_plan(times * power) for power in powers]
    with heat.context.workers.progress.stage("audit", sweeps_of(plans) - len(plans)):
        yield from PowerIteration(heat, lambda: start(panels), plans, panels)
    panels.clear()


def _plan(power: int) -> Plan:
    """The series of x^(power - 1) on [-1, 1], or plain products where they are fewer."""
    coefficients = series(power - 1, -1.0) if power > 1 else np.zeros(0)
    tails = np.cumsum(np.abs(coefficients[::-1]))[::-1]
    plan = Plan(power, -1.0, tuple(coefficients[: int((tails > _CUT).sum())].tolist()), _CUT)
    return plan if 1 < plan.degree < power - 1 else Plan(power, -1.0, (), _CUT)


def _rows_of_product(heat: HeatKernel, carried: Panel, points: np.ndarray) -> np.ndarray:
    """``s (K Z)`` of some points only: rows of A times what was carried."""
    out = np.empty((len(points), carried.shape[1]))
    for number, columns, weights in heat.kernel.edges.rows(points):
        out[number] = heat.scale_points[points[number]] * (weights.astype(np.float64) @ carried.whole(columns)[columns])
    return out


def _images(heat: HeatKernel, carried: Panel) -> Iterator[tuple[tuple[int, int], np.ndarray]]:
    """``s (K Z)``, the last application of A, in the user's order: ranges of rows and their values."""
    from scalable_gpe.loops import sparse

    storage_order, edges = heat.kernel.storage_order, heat.kernel.edges
    panels = Panels(heat.context, heat.context.scratch())
    target = panels.new(carried.shape, carried.dtype)

    def multiply(block: int) -> None:
        first, indptr, indices, weights = edges.block(block)
        stop = first + len(indptr) - 1
        out = target.room(first, stop)
        sparse.product(indptr, indices, weights, carried.whole(indices), heat.scale_points[first:stop], out)
        target.put(first, out)

    heat.context.workers.map(multiply, range(edges.n_blocks), count=False)
    whole = target.rows(0, target.shape[0])
    for rows in ranges(storage_order.n_rows, edges.block_rows):
        yield rows, whole[storage_order.position[slice(*rows)]]
    panels.clear()
