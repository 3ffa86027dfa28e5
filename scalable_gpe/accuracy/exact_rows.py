"""Sampled rows of f(A) from products with unit vectors, and some columns of the sketch again.

In double precision all powers share one expansion on [-1, 1], which needs no knowledge of the spectrum. Where single
precision is enough, rows are computed in it, with fewer products of half as many bytes.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.polynomial.chebyshev import chebmul, chebmulx

from scalable_gpe.checks import Power
from scalable_gpe.embedding import Embedding
from scalable_gpe.execution.panels import Panel, Panels
from scalable_gpe.execution.sums import CHUNK, row_pieces
from scalable_gpe.heat.normalization import HeatKernel, OutputScale
from scalable_gpe.heat.sweep import Product, sweep
from scalable_gpe.sketch.polynomial import Coefficients, PowerPlan, expansion_noise, n_sweeps, tail_sums
from scalable_gpe.sketch.powers import PowerIteration, Removed, multiply, removed_direction, start_panel
from scalable_gpe.sketch.random_matrix import Sketch
from scalable_gpe.spectral.chebyshev import factor_series
from scalable_gpe.spectral.filters import Filter
from scalable_gpe.storage.blocks import ranges
from scalable_gpe.storage.mapped import take_ascending
from scalable_gpe.storage.protocol import read_whole

_N_COLUMNS = 4  # columns of G that are multiplied again
_CUT = 1e-15  # truncation of a Chebyshev series, relative to its largest value
_SINGLE_ERROR = 1e-3  # most error of rows in single precision, relative to their smallest singular value


@dataclass(frozen=True)
class Rounding:
    """Relative error of A^p G from polynomial and rounding: measured on some columns, and as reported."""

    measured: float
    reported: float
    n_columns: int


class ExactRows:
    """Sampled rows of f(A), represented by the entries of f(A)^2 between them.

    `lower` is a lower bound of the spectrum of A, as far as one is known. It makes single precision faster; if it is
    wrong, the products show it, and double precision does without.
    """

    def __init__(self, heat: HeatKernel, n_exact: int, seed: int, lower: float = -1.0) -> None:
        self._heat, self._lower = heat, lower
        n_rows = heat.shape[0]
        self.rows = np.sort(np.random.default_rng([seed, 2]).choice(n_rows, min(n_exact, n_rows), replace=False))
        self.n_exact, self.n_rows, self.seed = len(self.rows), n_rows, seed
        self.points = heat.kernel.storage_order.position[self.rows]

    def covariances(self, filters: Sequence[Filter], *, single: bool = True) -> dict[Power, np.ndarray]:
        """``C = f(A)^2`` between the sampled rows, without the direction that the embedding leaves out.

        In single precision where it is enough, unless `single` is False.
        """
        found: dict[Power, np.ndarray] = {}
        for removed, together in _by_start(self._heat, filters):
            if single:
                found |= self._in_single(removed, together)
            found |= self._in_double(removed, [one for one in together if one.label not in found])
        return found

    def _in_single(self, removed: Removed, filters: Sequence[Filter]) -> dict[Power, np.ndarray]:
        """C from the products of all pairs of rows of f(A), for those filters for which single precision is enough.

        The error of a row is that of the expansion. It is small enough if no combination of rows is nearly zero:
        distances, and the test of the law of the sketch, divide by such combinations.
        """
        heat, found = self._heat, dict[Power, np.ndarray]()
        if _width(heat, len(filters), self.n_exact, 4) < self.n_exact:  # all pairs need all rows at a time
            return found
        plans = {one.label: _single_plan(one, self._lower) for one in filters}
        start = partial(self._units, self.points, removed, np.float32)
        for label, panel, wrong in _iterate(heat, start, plans):
            covariance = _products(heat, panel)
            smallest = float(np.linalg.eigvalsh(covariance)[0])
            if not len(wrong) and plans[label].error ** 2 <= _SINGLE_ERROR**2 * smallest:
                found[label] = covariance
        return found

    def _in_double(self, removed: Removed, filters: Sequence[Filter]) -> dict[Power, np.ndarray]:
        """C from unit vectors times f(A)^2, of as many rows at a time as there is memory for."""
        parts: dict[Power, list[np.ndarray]] = {one.label: [] for one in filters}
        squares = {one.label: _square(one) for one in filters}
        for first, stop in ranges(self.n_exact, _width(self._heat, len(filters), self.n_exact)) if filters else []:
            start = partial(self._units, self.points[first:stop], removed, np.float64)
            for label, panel, _ in _iterate(self._heat, start, squares):
                parts[label].append(_rows_of_product(self._heat, panel, self.points))
        whole = {label: np.concatenate(columns, axis=1) for label, columns in parts.items()}
        return {label: (one + one.T) / 2 for label, one in whole.items()}

    def sketched(self, embedding: Embedding, power: Power) -> np.ndarray:
        """The sampled rows of the sketch of one power, all its columns before any rotation."""
        width, heat = embedding.settings.sketching.n_columns, self._heat
        out = np.empty((self.n_exact, width))
        for part in embedding.sketch_columns(power):
            stop = min(part.stop, width)
            for i, columns, weights in heat.kernel.edges.rows(self.points):
                values = part.table.take(columns)[:, : stop - part.first].astype(np.float64)
                out[i, part.first : stop] = heat.scale_points[self.points[i]] * (weights.astype(np.float64) @ values)
        out /= np.sqrt(width)
        return out

    def _units(self, points: np.ndarray, removed: Removed, dtype: type[np.floating], panels: Panels) -> Panel:
        """``Z = S (e_i - u u_i)``, one column per point; u is the removed direction."""
        heat, direction = self._heat, removed.direction
        along = None if direction is None else removed.coefficients(direction[points])
        panel = panels.new((heat.kernel.edges.n_points, len(points)), dtype)

        def unit_rows(piece: tuple[int, int]) -> None:
            some, out = slice(*piece), panel.room(*piece)
            out[:] = 0
            if direction is not None:
                out -= (heat.weights[some] * direction[some])[:, None] * along
            here = np.flatnonzero((points >= piece[0]) & (points < piece[1]))
            out[points[here] - piece[0], here] += 1
            out *= heat.scale_points[some][:, None]
            panel.put(piece[0], out)

        heat.context.workers.here.map(unit_rows, row_pieces(heat.context, panel.shape[0]), count=False)
        return panel


def _by_start(heat: HeatKernel, filters: Sequence[Filter]) -> Iterator[tuple[Removed, list[Filter]]]:
    """Filters that begin with the same panel, and the direction that it leaves out."""
    for top in (False, True):
        together = [one for one in filters if (one.cumulative and not heat.is_centred) == top]
        if together:
            yield removed_direction(heat, top=top), together


def measure_rounding(embedding: Embedding) -> dict[Power, Rounding]:
    """Recompute some columns of f(A) G for each power, to measure the error of polynomial and rounding.

    Isolated rows keep their sketch and are large: they are left out.
    """
    heat, sketching, published = embedding.heat, embedding.settings.sketching, embedding.by_power
    k, ordinary = sketching.n_columns, ~heat.isolated
    columns = np.unique(np.linspace(0, k - 1, min(_N_COLUMNS, k)).astype(np.int64))
    sketch = Sketch(sketching.sketch.kind, sketching.sketch.seed, "double")
    error, size = dict.fromkeys(published, 0.0), dict.fromkeys(published, 0.0)
    for removed, together in _by_start(heat, list(embedding.filters.values())):
        plans = {one.label: _plan(one) for one in together}
        for first, stop in ranges(len(columns), _width(heat, len(together), len(columns))):
            chosen = columns[first:stop]
            start = partial(_columns, heat, sketch, chosen, removed)
            for power, panel, _ in _iterate(heat, start, plans):
                shown = _shown(embedding, power, chosen)
                for rows, truth in _images(heat, panel):
                    counted = ordinary[heat.kernel.storage_order.position[slice(*rows)]]
                    error[power] += float(((shown(rows) - truth)[counted] ** 2).sum())
                    size[power] += float((truth[counted] ** 2).sum())
    reported = embedding.report["polynomial_error"]
    return {
        power: Rounding(
            measured=float(np.sqrt(error[power] / size[power])) if size[power] > 0 else 0.0,
            reported=float(reported[power] if isinstance(reported, dict) else reported),
            n_columns=len(columns),
        )
        for power in published
    }


def _shown(embedding: Embedding, power: Power, chosen: np.ndarray) -> Callable[[tuple[int, int]], np.ndarray]:
    """Rows of some columns of f(A) G as the embedding has them; a rotated one has them before its rotation."""
    if not embedding.is_rotated:
        points, k = embedding.at(power), embedding.settings.n_components
        return lambda rows: np.asarray(points[slice(*rows)], dtype=np.float64)[:, chosen] * np.sqrt(k)
    heat, parts = embedding.heat, embedding.sketch_columns(power)
    own = [chosen[(chosen >= part.first) & (chosen < part.stop)] - part.first for part in parts]
    columns = [read_whole(part.table)[:, some] for part, some in zip(parts, own, strict=True)]
    panel = Panels(heat.context).of(np.ascontiguousarray(np.hstack(columns), dtype=np.float64))
    whole = np.concatenate([image for _, image in _images(heat, panel)])
    return lambda rows: whole[slice(*rows)]


def _columns(heat: HeatKernel, sketch: Sketch, columns: np.ndarray, removed: Removed, panels: Panels) -> Panel:
    return start_panel(heat, sketch, columns, panels, removed)[0]


def _width(heat: HeatKernel, n_powers: int, wanted: int, itemsize: int = 8) -> int:
    """Number of columns that are multiplied together."""
    return heat.context.plan.audit_columns(heat.kernel.edges.n_points, n_powers, wanted, itemsize)


def _iterate(
    heat: HeatKernel, start: Callable[[Panels], Panel], plans: dict[Power, PowerPlan]
) -> Iterator[tuple[Power, Panel, np.ndarray]]:
    """Yield each power, its ``Z`` before the last application of A, and the columns for which the interval is wrong."""
    panels = Panels(heat.context)
    power_of = {plan.label: power for power, plan in plans.items()}
    with heat.context.workers.progress.stage("audit", n_sweeps(list(plans.values())) - len(plans)):
        iteration = PowerIteration(heat, lambda: start(panels), list(plans.values()), panels, purpose="audit")
        for label, panel in iteration:
            yield power_of[label], panel, iteration.wrong
    panels.clear()


def _plan(wanted: Filter) -> PowerPlan:
    """The series of f(x) / x on [-1, 1], or plain products where they are fewer."""
    (factor,) = wanted.factors(1)
    plan = PowerPlan.of(wanted, -1.0, _cut(factor_series(factor, -1.0)), _CUT)
    return plan if wanted.cumulative or 1 < plan.degree < wanted.power - 1 else replace(plan, coefficients=())


def _single_plan(wanted: Filter, lower: float) -> PowerPlan:
    """The series of f(x) / x on [lower, 1], without terms below the rounding of single precision; or plain products."""
    (factor,) = wanted.factors(1)
    coefficients = factor_series(factor, lower)
    noise = expansion_noise(coefficients, "single")
    plan = PowerPlan.of(wanted, lower, error=2 * noise)
    degree = max(int((tail_sums(coefficients) > noise).sum()) - 1, min(1, len(coefficients) - 1))
    if not wanted.cumulative and degree >= wanted.power - 1:
        return plan
    return replace(plan, coefficients=tuple(coefficients[: degree + 1].tolist()))


def _square(wanted: Filter) -> PowerPlan:
    """The series of f(x)^2 / x: a power has twice the exponent, the sum of all powers is x (f(x) / x)^2."""
    if not wanted.cumulative:
        return _plan(Filter(2 * wanted.power))
    (factor,) = wanted.factors(1)
    once = factor_series(factor, -1.0)
    return replace(_plan(wanted), coefficients=_cut(chebmulx(chebmul(once, once))))


def _cut(coefficients: np.ndarray) -> Coefficients:
    """A series without the terms at its end that are rounding."""
    tails = tail_sums(coefficients)
    return tuple(coefficients[: int((tails > _CUT * tails[0]).sum())].tolist())


def _products(heat: HeatKernel, panel: Panel) -> np.ndarray:
    """``X'X`` for the rows X of f(A): one more application of A, then products of all pairs of columns."""
    context, panels = heat.context, Panels(heat.context)
    image = multiply(heat, panel, panels.new(panel.shape, panel.dtype), purpose="audit")

    def column_products(piece: tuple[int, int]) -> np.ndarray:
        total = np.zeros((image.shape[1], image.shape[1]))
        for start, stop in ranges(piece[1] - piece[0], CHUNK):
            rows = image.rows(piece[0] + start, piece[0] + stop).astype(np.float64)
            total += (rows / heat.step_scale[piece[0] + start : piece[0] + stop, None]).T @ rows
        return total

    parts = context.workers.map(column_products, row_pieces(context, image.shape[0]), count=False)
    panels.clear()
    total: np.ndarray = np.sum(parts, axis=0)
    return total


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
        yield rows, take_ascending(whole, storage_order.position[slice(*rows)])
    panels.clear()
