"""Products in double precision: unit vectors of sampled rows, and some columns of the sketch again.

All powers share one expansion on [-1, 1], which needs no knowledge of the spectrum.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from scalable_gpe.embedding import Embedding
from scalable_gpe.execution.panels import Panel, Panels
from scalable_gpe.heat.normalization import HeatKernel, OutputScale
from scalable_gpe.heat.sweep import Product, sweep
from scalable_gpe.sketch.polynomial import PowerPlan, n_sweeps
from scalable_gpe.sketch.powers import PowerIteration, start_panel
from scalable_gpe.sketch.random_matrix import Sketch
from scalable_gpe.spectral.chebyshev import series
from scalable_gpe.storage.blocks import ranges

_N_COLUMNS = 4  # columns of G that are multiplied again
_CUT = 1e-15  # truncation of the Chebyshev series, relative to a unit vector


@dataclass(frozen=True)
class Rounding:
    """Relative error of A^p G from polynomial and rounding: measured on some columns, and as reported."""

    measured: float
    reported: float
    n_columns: int


class ExactRows:
    """Sampled rows of A^p, represented by the entries of A^{2p} between them."""

    def __init__(self, heat: HeatKernel, n_exact: int, seed: int) -> None:
        self._heat = heat
        n_rows = heat.shape[0]
        self.rows = np.sort(np.random.default_rng([seed, 2]).choice(n_rows, min(n_exact, n_rows), replace=False))
        self.n_exact, self.n_rows, self.seed = len(self.rows), n_rows, seed
        self.points = heat.kernel.storage_order.position[self.rows]

    def covariances(self, powers: Sequence[int]) -> dict[int, np.ndarray]:
        """``C = (A^{2p})_ij`` of the sampled rows, without the constant direction if the embedding is centred."""
        parts: dict[int, list[np.ndarray]] = {power: [] for power in powers}
        for first, stop in ranges(self.n_exact, _width(self._heat, len(powers), self.n_exact)):
            start = partial(self._units, self.points[first:stop])
            for twice, panel in _iterate(self._heat, start, powers, times=2):
                parts[twice // 2].append(_rows_of_product(self._heat, panel, self.points))
        whole = {power: np.concatenate(columns, axis=1) for power, columns in parts.items()}
        return {power: (one + one.T) / 2 for power, one in whole.items()}

    def _units(self, points: np.ndarray, panels: Panels) -> Panel:
        """``Z = S e_i``, one column per point; centred if the embedding is."""
        heat = self._heat
        panel = np.zeros((heat.kernel.edges.n_points, len(points)))
        if heat.is_centred:
            panel -= (heat.weights / self.n_rows)[:, None]
        panel[points, np.arange(len(points))] += 1
        return panels.of(panel * heat.scale_points[:, None])


def measure_rounding(embedding: Embedding) -> dict[int, Rounding]:
    """Recompute some columns of A^p G for each power, to measure the error of polynomial and rounding."""
    heat, sketching, published = embedding.heat, embedding.settings.sketching, embedding.by_power
    k = sketching.n_components
    columns = np.unique(np.linspace(0, k - 1, min(_N_COLUMNS, k)).astype(np.int64))
    sketch = Sketch(sketching.sketch.kind, sketching.sketch.seed, "double")
    error, size = dict.fromkeys(published, 0.0), dict.fromkeys(published, 0.0)
    for first, stop in ranges(len(columns), _width(heat, len(published), len(columns))):
        chosen = columns[first:stop]
        start = partial(_columns, heat, sketch, chosen)
        for power, panel in _iterate(heat, start, list(published)):
            for rows, truth in _images(heat, panel):
                shown = np.asarray(published[power][slice(*rows)], dtype=np.float64)[:, chosen] * np.sqrt(k)
                error[power] += float(((shown - truth) ** 2).sum())
                size[power] += float((truth**2).sum())
    reported = embedding.report["polynomial_error"]
    return {
        power: Rounding(
            measured=float(np.sqrt(error[power] / size[power])) if size[power] > 0 else 0.0,
            reported=float(reported[power] if isinstance(reported, dict) else reported),
            n_columns=len(columns),
        )
        for power in published
    }


def _columns(heat: HeatKernel, sketch: Sketch, columns: np.ndarray, panels: Panels) -> Panel:
    return start_panel(heat, sketch, columns, panels)[0]


def _width(heat: HeatKernel, n_powers: int, wanted: int) -> int:
    """Number of columns in double precision that are multiplied together."""
    return heat.context.plan.audit_columns(heat.kernel.edges.n_points, n_powers, wanted)


def _iterate(
    heat: HeatKernel, start: Callable[[Panels], Panel], powers: Sequence[int], times: int = 1
) -> Iterator[tuple[int, Panel]]:
    """Yield ``Z`` after ``times * power - 1`` applications of A, for each power, in double precision."""
    panels = Panels(heat.context)
    plans = [_plan(times * power) for power in powers]
    with heat.context.workers.progress.stage("audit", n_sweeps(plans) - len(plans)):
        yield from PowerIteration(heat, lambda: start(panels), plans, panels, purpose="audit")
    panels.clear()


def _plan(power: int) -> PowerPlan:
    """The series of x^(power - 1) on [-1, 1], or plain products where they are fewer."""
    coefficients = series(power - 1, -1.0) if power > 1 else np.zeros(0)
    tails = np.cumsum(np.abs(coefficients[::-1]))[::-1]
    plan = PowerPlan(power, -1.0, tuple(coefficients[: int((tails > _CUT).sum())].tolist()), _CUT)
    return plan if 1 < plan.degree < power - 1 else PowerPlan(power, -1.0, (), _CUT)


def _rows_of_product(heat: HeatKernel, panel: Panel, points: np.ndarray) -> np.ndarray:
    """``s (K Z)`` of some points only: rows of A times a panel."""
    out = np.empty((len(points), panel.shape[1]))
    for i, columns, weights in heat.kernel.edges.rows(points):
        out[i] = heat.scale_points[points[i]] * (weights.astype(np.float64) @ panel.whole(columns)[columns])
    return out


def _images(heat: HeatKernel, panel: Panel) -> Iterator[tuple[tuple[int, int], np.ndarray]]:
    """Yield ranges of the user's rows and their ``s (K Z)``, the last application of A."""
    context, storage_order = heat.context, heat.kernel.storage_order
    panels = Panels(context)
    target = panels.new(panel.shape, panel.dtype)
    sweep(heat.kernel, Product(OutputScale(heat)), panel, target, context, purpose="audit")
    whole = target.rows(0, target.shape[0])
    for rows in ranges(storage_order.n_rows, heat.kernel.edges.block_rows):
        yield rows, whole[storage_order.position[slice(*rows)]]
    panels.clear()
