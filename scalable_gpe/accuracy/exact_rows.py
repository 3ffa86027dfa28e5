"""Sampled rows of f(A) from products with unit vectors, and some columns of the sketch again.

Where single precision is enough, rows are computed in it, with fewer products of half as many bytes. The sum of all
powers is solved for as in the sketch, with more cycles.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from scalable_gpe.checks import Power
from scalable_gpe.embedding import Embedding
from scalable_gpe.execution.panels import Panel, Panels
from scalable_gpe.execution.problem_size import live_panels
from scalable_gpe.execution.sums import CHUNK, row_pieces
from scalable_gpe.heat.normalization import HeatKernel
from scalable_gpe.heat.sweep import Product, sweep
from scalable_gpe.multilevel.solver import measure_plan
from scalable_gpe.sketch.all_scales import AllScales, ScalesIteration, ScalesPlan
from scalable_gpe.sketch.polynomial import Coefficients, PowerPlan, expansion_noise, n_sweeps, tail_sums
from scalable_gpe.sketch.powers import PowerIteration, Removed, multiply, removed_direction, start_panel
from scalable_gpe.sketch.publish import sketched_rows
from scalable_gpe.sketch.random_matrix import Sketch
from scalable_gpe.spectral.chebyshev import series
from scalable_gpe.spectral.filters import Filter
from scalable_gpe.storage.blocks import ranges
from scalable_gpe.storage.mapped import take_ascending
from scalable_gpe.storage.protocol import read_whole

_N_COLUMNS = 4  # columns of G that are multiplied again
_CUT = 1e-15  # truncation of a Chebyshev series, relative to its largest value
_SOLVED = 1e-6  # error of a solution for exact rows
_SINGLE_ERROR = 1e-3  # most error of rows in single precision, relative to their smallest singular value


@dataclass(frozen=True)
class Rounding:
    """Relative error of A^p G from polynomial and rounding: measured on some columns, and as reported."""

    measured: float
    reported: float
    n_columns: int


class ExactRows:
    """Sampled rows of f(A), represented by the entries of f(A)^2 between them."""

    def __init__(self, heat: HeatKernel, n_exact: int, seed: int) -> None:
        self._heat = heat
        n_rows = heat.shape[0]
        self.rows = np.sort(np.random.default_rng([seed, 2]).choice(n_rows, min(n_exact, n_rows), replace=False))
        self.n_exact, self.n_rows, self.seed = len(self.rows), n_rows, seed
        self.points = heat.kernel.storage_order.position[self.rows]

    def covariances(self, filters: Sequence[Filter], *, single: bool = True) -> dict[Power, np.ndarray]:
        """``C = f(A)^2`` between the sampled rows, without the direction that the embedding leaves out.

        In single precision where it is enough, unless `single` is False.
        """
        powers, found = [one for one in filters if not one.cumulative], dict[Power, np.ndarray]()
        if single:
            found |= self._in_single(powers)
        found |= self._in_double([one for one in powers if one.label not in found])
        for one in filters:
            if one.cumulative:
                found[one.label] = self._of_all(one)
        return found

    def _of_all(self, wanted: Filter) -> np.ndarray:
        """C from the products of all pairs of rows of the sum of all powers."""
        parts, iterate = [], SolvedScales(self._heat, wanted)
        width = _width(self._heat, [wanted], self.n_exact)
        for first, stop in ranges(self.n_exact, width):
            start = partial(self._units, self.points[first:stop], iterate.removed, np.float64)
            for panel in iterate(start):
                if stop - first == self.n_exact:
                    parts.append(_products(self._heat, panel))
                    continue
                image = _applied(self._heat, panel)
                for again in iterate(partial(_same, image)):
                    parts.append(_rows_of_product(self._heat, again, self.points))
        iterate.clear()
        whole: np.ndarray = np.concatenate(parts, axis=1)
        return np.asarray((whole + whole.T) / 2)

    def _in_single(self, filters: Sequence[Filter]) -> dict[Power, np.ndarray]:
        """C from the products of all pairs of rows of f(A), for those filters for which single precision is enough.

        The error of a row is that of the expansion. It is small enough if no combination of rows is nearly zero:
        distances, and the test of the law of the sketch, divide by such combinations.
        """
        heat, found, removed = self._heat, dict[Power, np.ndarray](), removed_direction(self._heat, top=False)
        if not filters or _width(heat, filters, self.n_exact, 4) < self.n_exact:  # all pairs need all rows at a time
            return found
        plans = {one.label: _single_plan(one) for one in filters}
        start = partial(self._units, self.points, removed, np.float32)
        for label, panel in _iterate(heat, start, plans):
            covariance = _products(heat, panel)
            smallest = float(np.linalg.eigvalsh(covariance)[0])
            if plans[label].error ** 2 <= _SINGLE_ERROR**2 * smallest:
                found[label] = covariance
        return found

    def _in_double(self, filters: Sequence[Filter]) -> dict[Power, np.ndarray]:
        """C from unit vectors times f(A)^2, of as many rows at a time as there is memory for."""
        removed = removed_direction(self._heat, top=False)
        parts: dict[Power, list[np.ndarray]] = {one.label: [] for one in filters}
        squares = {one.label: _square(one) for one in filters}
        for first, stop in ranges(self.n_exact, _width(self._heat, filters, self.n_exact)) if filters else []:
            start = partial(self._units, self.points[first:stop], removed, np.float64)
            for label, panel in _iterate(self._heat, start, squares):
                parts[label].append(_rows_of_product(self._heat, panel, self.points))
        whole = {label: np.concatenate(columns, axis=1) for label, columns in parts.items()}
        return {label: (one + one.T) / 2 for label, one in whole.items()}

    def sketched(self, embedding: Embedding, power: Power) -> np.ndarray:
        """The sampled rows of the sketch of one power, all its columns before any rotation."""
        width = embedding.settings.sketching.n_columns
        return sketched_rows(self._heat, embedding.sketch_columns(power), width, self.points)

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


class SolvedScales:
    """The sum of all powers before its last product, solved for nearly exactly."""

    def __init__(self, heat: HeatKernel, wanted: Filter) -> None:
        self._heat = heat
        self._scales = AllScales(heat, heat.context, "audit")
        self._plan = ScalesPlan(wanted, measure_plan(self._scales.basis, wanted.power, _SOLVED))
        self.removed = removed_direction(heat, top=True)

    def __call__(self, start: Callable[[Panels], Panel]) -> Iterator[Panel]:
        """Yield the panel that begins as `start` says."""
        panels = Panels(self._heat.context)
        with self._heat.context.workers.progress.stage("audit", self._plan.n_products):
            for _, panel in ScalesIteration(self._scales, lambda: start(panels), self._plan, panels, purpose="audit"):
                yield panel
        panels.clear()

    def clear(self) -> None:
        """Drop the coarse level."""
        self._scales.clear()


def measure_rounding(embedding: Embedding) -> dict[Power, Rounding]:
    """Recompute some columns of f(A) G for each power, to measure the error of polynomial and rounding.

    Isolated rows keep their sketch and are large: they are left out.
    """
    heat, sketching, published = embedding.heat, embedding.settings.sketching, embedding.by_power
    k, ordinary = sketching.n_columns, ~heat.isolated
    columns = np.unique(np.linspace(0, k - 1, min(_N_COLUMNS, k)).astype(np.int64))
    sketch = Sketch(sketching.sketch.kind, sketching.sketch.seed, "double")
    error, size = dict.fromkeys(published, 0.0), dict.fromkeys(published, 0.0)

    def compare(power: Power, panel: Panel, chosen: np.ndarray) -> None:
        shown = _shown(embedding, power, chosen)
        for rows, truth in _images(heat, panel):
            counted = ordinary[heat.kernel.storage_order.position[slice(*rows)]]
            error[power] += float(((shown(rows) - truth)[counted] ** 2).sum())
            size[power] += float((truth[counted] ** 2).sum())

    powers = [one for one in embedding.filters.values() if not one.cumulative]
    removed, plans = removed_direction(heat, top=False), {one.label: _plan(one) for one in powers}
    for first, stop in ranges(len(columns), _width(heat, powers, len(columns))) if powers else []:
        start = partial(_columns, heat, sketch, columns[first:stop], removed)
        for power, panel in _iterate(heat, start, plans):
            compare(power, panel, columns[first:stop])
    for one in embedding.filters.values():
        if one.cumulative:
            iterate = SolvedScales(heat, one)
            for panel in iterate(partial(_columns, heat, sketch, columns, iterate.removed)):
                compare(one.label, panel, columns)
            iterate.clear()
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
    """Rows of some columns of f(A) G as the embedding has them; one that keeps fewer axes had them before."""
    points, k = embedding.at(power), embedding.settings.n_components
    if embedding.settings.n_sketch is None:
        return lambda rows: embedding.columns_of(power, np.asarray(points[slice(*rows)]), chosen) * np.sqrt(k)
    heat, parts = embedding.heat, embedding.sketch_columns(power)
    own = [chosen[(chosen >= part.first) & (chosen < part.stop)] - part.first for part in parts]
    columns = [read_whole(part.table)[:, some] for part, some in zip(parts, own, strict=True)]
    panel = Panels(heat.context).of(np.ascontiguousarray(np.hstack(columns), dtype=np.float64))
    whole = np.concatenate([image for _, image in _images(heat, panel)])
    return lambda rows: whole[slice(*rows)]


def _columns(heat: HeatKernel, sketch: Sketch, columns: np.ndarray, removed: Removed, panels: Panels) -> Panel:
    return start_panel(heat, sketch, columns, panels, removed)[0]


def _width(heat: HeatKernel, filters: Sequence[Filter], wanted: int, itemsize: int = 8) -> int:
    """Number of columns that are multiplied together."""
    n_live = live_panels([one.label for one in filters])
    return heat.context.plan.audit_columns(heat.kernel.edges.n_points, n_live, wanted, itemsize)


def _iterate(
    heat: HeatKernel, start: Callable[[Panels], Panel], plans: dict[Power, PowerPlan]
) -> Iterator[tuple[Power, Panel]]:
    """Yield each power, and its ``Z`` before the last application of A."""
    panels = Panels(heat.context)
    power_of = {plan.label: power for power, plan in plans.items()}
    with heat.context.workers.progress.stage("audit", n_sweeps(list(plans.values())) - len(plans)):
        iteration = PowerIteration(heat, lambda: start(panels), list(plans.values()), panels, purpose="audit")
        for label, panel in iteration:
            yield power_of[label], panel
    panels.clear()


def _plan(wanted: Filter) -> PowerPlan:
    """The series of x^(p - 1), or plain products where they are fewer."""
    plan = PowerPlan(wanted.power, _cut(series(wanted.power - 1)), _CUT)
    return plan if 1 < plan.degree < wanted.power - 1 else replace(plan, coefficients=())


def _single_plan(wanted: Filter) -> PowerPlan:
    """The series of x^(p - 1) without terms below single precision's rounding; or plain products."""
    coefficients = series(wanted.power - 1)
    noise = expansion_noise(coefficients, "single")
    plan = PowerPlan(wanted.power, error=2 * noise)
    degree = max(int((tail_sums(coefficients) > noise).sum()) - 1, min(1, len(coefficients) - 1))
    if degree >= wanted.power - 1:
        return plan
    return replace(plan, coefficients=tuple(coefficients[: degree + 1].tolist()))


def _square(wanted: Filter) -> PowerPlan:
    """The series for the square of a power."""
    return _plan(Filter(2 * wanted.power))


def _cut(coefficients: np.ndarray) -> Coefficients:
    """A series without the terms at its end that are rounding."""
    tails = tail_sums(coefficients)
    return tuple(coefficients[: int((tails > _CUT * tails[0]).sum())].tolist())


def _applied(heat: HeatKernel, panel: Panel) -> Panel:
    """``A panel``."""
    return multiply(heat, panel, Panels(heat.context).new(panel.shape, panel.dtype), purpose="audit")


def _same(panel: Panel, panels: Panels) -> Panel:
    return panel


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
    loop = Product(lambda start, stop: heat.scale_points[start:stop])
    sweep(heat.kernel, loop, panel, target, context, purpose="audit")
    whole = target.rows(0, target.shape[0])
    for rows in ranges(storage_order.n_rows, heat.kernel.edges.block_rows):
        yield rows, take_ascending(whole, storage_order.position[slice(*rows)])
    panels.clear()
