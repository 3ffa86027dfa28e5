"""Sampled rows of f(A) from products with unit vectors.

The sum of all powers is solved for as in the sketch, with more cycles.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby

import numpy as np

from scalable_gpe.checks import Power
from scalable_gpe.execution.panels import Panel, Panels
from scalable_gpe.execution.resources import live_panels
from scalable_gpe.execution.sums import CHUNK, row_pieces
from scalable_gpe.heat.normalization import HeatKernel
from scalable_gpe.multilevel.solver import measure_plan
from scalable_gpe.sketch.all_scales import AllScales, ScalesPlan
from scalable_gpe.sketch.columns import Plan, apply_filters, sweeps_of
from scalable_gpe.sketch.polynomial import PowerPlan, series, tail_sums
from scalable_gpe.sketch.powers import Removed, multiply, removed_direction
from scalable_gpe.spectral.filters import Filter
from scalable_gpe.storage.blocks import ranges

_CUT = 1e-15  # truncation of a Chebyshev series, relative to its largest value
_SOLVED = 1e-6  # error of a solution for exact rows


class NearlyExact:
    """Filters that start alike, applied to panels nearly exactly: by long series, or solved with more cycles."""

    def __init__(self, heat: HeatKernel, filters: Sequence[Filter]) -> None:
        self._heat, self._filters, self._panels = heat, filters, Panels(heat.context)
        self._scales = AllScales(heat, heat.context, "audit")
        self._plans = {one.label: self._plan(one) for one in filters}
        self.removed = removed_direction(heat, self._panels, top=filters[0].cumulative)

    @staticmethod
    def of(heat: HeatKernel, filters: Iterable[Filter]) -> "Iterator[NearlyExact]":
        """One for all powers, which share their products, and one for the sum of all powers."""
        for _, group in groupby(sorted(filters, key=lambda one: one.cumulative), lambda one: one.cumulative):
            nearly_exact = NearlyExact(heat, list(group))
            yield nearly_exact
            nearly_exact._scales.clear()
            nearly_exact._panels.clear()

    def _plan(self, wanted: Filter) -> Plan:
        """The series of x^(p - 1), or plain products where they are fewer; or many cycles."""
        if wanted.cumulative:
            return ScalesPlan(wanted, measure_plan(self._scales.basis, wanted.power, _SOLVED))
        coefficients = series(wanted.power - 1)
        tails = tail_sums(coefficients)  # those at the end are rounding
        plan = PowerPlan(wanted.power, tuple(coefficients[: int((tails > _CUT * tails[0]).sum())].tolist()), _CUT)
        return plan if 1 < plan.degree < wanted.power - 1 else replace(plan, coefficients=())

    def width(self, wanted: int) -> int:
        """Number of columns that are multiplied together."""
        n_live = live_panels([one.label for one in self._filters])
        return self._heat.context.plan.audit_columns(self._heat.kernel.edges.n_points, n_live, wanted)

    def apply(self, start: Callable[[Panels], Panel], only: Power | None = None) -> Iterator[tuple[Power, Panel]]:
        """Yield each filter, or `only` one, of the panel that `start` makes, before the last application of A."""
        plans = [plan for label, plan in self._plans.items() if only in (None, label)]
        panels, heat = Panels(self._heat.context), self._heat
        with heat.context.workers.progress.stage("audit", sweeps_of(plans) - len(plans)):
            for label, panel, _ in apply_filters(heat, lambda: start(panels), plans, panels, self._scales, "audit"):
                yield label, panel
        panels.clear()


class ExactRows:
    """Sampled rows of f(A), represented by the entries of f(A)^2 between them."""

    def __init__(self, heat: HeatKernel, n_exact: int, seed: int) -> None:
        self._heat = heat
        n_rows = heat.shape[0]
        self.rows = np.sort(np.random.default_rng([seed, 2]).choice(n_rows, min(n_exact, n_rows), replace=False))
        self.n_exact, self.n_rows = len(self.rows), n_rows
        self.points = heat.kernel.storage_order.position[self.rows]

    def covariances(self, filters: Sequence[Filter]) -> dict[Power, np.ndarray]:
        """``C = f(A)^2`` between the sampled rows, without the direction that the embedding leaves out.

        They are products of all pairs of rows of f(A); or, where not all rows fit in memory, rows of f(A) f(A).
        """
        heat, parts = self._heat, {one.label: list[np.ndarray]() for one in filters}
        for nearly_exact in NearlyExact.of(heat, filters):
            for first, stop in ranges(self.n_exact, nearly_exact.width(self.n_exact)):
                start = partial(self._units, self.points[first:stop], nearly_exact.removed)
                for label, panel in nearly_exact.apply(start):
                    image = multiply(heat, panel, Panels(heat.context).new(panel.shape, panel.dtype), purpose="audit")
                    if stop - first == self.n_exact:
                        parts[label].append(_products(heat, image))
                        image.retire()
                    else:
                        for _, again in nearly_exact.apply(partial(_same, image), label):
                            parts[label].append(_rows_of_product(heat, again, self.points))
        whole = {label: np.concatenate(columns, axis=1) for label, columns in parts.items()}
        return {label: (one + one.T) / 2 for label, one in whole.items()}

    def _units(self, points: np.ndarray, removed: Removed, panels: Panels) -> Panel:
        """``Z = S (e_i - u u_i)``, one column per point; u is the removed direction."""
        heat, direction = self._heat, removed.direction
        own = np.ones(len(points)) if direction is None else direction.whole(points)[points]

        def unit_rows(start: int, stop: int) -> np.ndarray:
            out: np.ndarray = -removed.along(start, stop)[:, None] * (own / removed.divisor)
            here = np.flatnonzero((points >= start) & (points < stop))
            out[points[here] - start, here] += 1
            out *= heat.scale_points[start:stop, None]
            return out

        return panels.filled((heat.kernel.edges.n_points, len(points)), np.float64, unit_rows)


def _same(panel: Panel, panels: Panels) -> Panel:
    return panel


def _products(heat: HeatKernel, image: Panel) -> np.ndarray:
    """``X'X`` for the rows X of f(A): products of all pairs of columns."""
    context = heat.context

    def column_products(piece: tuple[int, int]) -> np.ndarray:
        total = np.zeros((image.shape[1], image.shape[1]))
        for start, stop in ranges(piece[1] - piece[0], CHUNK):
            rows = image.rows(piece[0] + start, piece[0] + stop)
            total += (rows / heat.step_scale[piece[0] + start : piece[0] + stop, None]).T @ rows
        return total

    parts = context.workers.map(column_products, row_pieces(context, image.shape[0]), count=False)
    total: np.ndarray = np.sum(parts, axis=0)
    return total


def _rows_of_product(heat: HeatKernel, panel: Panel, points: np.ndarray) -> np.ndarray:
    """``s (K Z)`` of some points only: rows of A times a panel."""
    out = np.empty((len(points), panel.shape[1]))
    for i, columns, weights in heat.kernel.edges.rows(points):
        out[i] = heat.scale_points[points[i]] * (weights.astype(np.float64) @ panel.whole(columns)[columns])
    return out
