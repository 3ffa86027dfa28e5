"""Sampled rows of f(A), nearly exact, and sampled rows compared with all rows and with the dense kernel.

Rows of f(A) come from products with unit vectors. The sum of all powers is solved for as in the sketch, with more
cycles.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import cached_property, partial
from itertools import groupby
from typing import Any

import numpy as np

from scalable_gpe.accuracy.statistics import NOTHING, Interval, distances, share
from scalable_gpe.checks import Power
from scalable_gpe.embedding import Embedding
from scalable_gpe.execution.panels import Panel, Panels
from scalable_gpe.execution.resources import live_panels
from scalable_gpe.execution.sums import CHUNK, row_pieces
from scalable_gpe.graph.points import RowSubset
from scalable_gpe.graph.recall import Scanned, nearest_points, scan_points
from scalable_gpe.heat.kernel import row_masses
from scalable_gpe.heat.normalization import HeatKernel, top_eigenvector
from scalable_gpe.io.rows import Rows, open_rows
from scalable_gpe.multilevel.solver import measure_plan
from scalable_gpe.sketch.all_scales import AllScales, ScalesPlan
from scalable_gpe.sketch.columns import Plan, apply_filters, sweeps_of
from scalable_gpe.sketch.polynomial import PowerPlan, series, tail_sums
from scalable_gpe.sketch.powers import Removed, multiply, removed_direction
from scalable_gpe.spectral.filters import Filter
from scalable_gpe.storage.blocks import ranges
from scalable_gpe.storage.mapped import take_rows

_CUT = 1e-15  # truncation of a Chebyshev series, relative to its largest value
_SOLVED = 1e-6  # error of a solution for exact rows
_N_NEIGHBORS = 10  # of the trustworthiness


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


class Dense:
    """Rows of f(A) of the dense kernel at the same epsilon."""

    def __init__(self, embedding: Embedding, points: Rows, exact: ExactRows) -> None:
        self._embedding, self._points, self._exact = embedding, points, exact

    @cached_property
    def _eigenvectors(self) -> tuple[np.ndarray, np.ndarray]:
        from scalable_gpe import exact

        embedding, storage_order = self._embedding, self._embedding.graph.storage_order
        X = self._points.read(0, storage_order.n_points)[storage_order.position].astype(np.float64)
        kernel, heat = embedding.kernel, embedding.heat
        if kernel.scales is not None:
            K = exact.local_affinity(X, storage_order.spread(kernel.scales.sigma))
        else:
            K = exact.affinity(X, kernel.stored_epsilon)
        normalise = exact.symmetric if heat.normalization == "symmetric" else exact.bistochastic
        values, vectors = np.linalg.eigh(normalise(K, sample_weight=heat.sample_weight))
        return values, vectors

    def compare(self, wanted: Filter, covariance: np.ndarray) -> dict[str, float]:
        """Errors of the diffusion distances of the truncated kernel against those of the dense one."""
        rows, n_rows = self._exact.rows, self._exact.n_rows
        heat = self._embedding.heat
        root = np.ones(n_rows) if heat.sample_weight is None else np.sqrt(heat.sample_weight)
        columns = np.zeros((n_rows, len(rows)))
        columns[rows, np.arange(len(rows))] = 1 / root[rows]
        if heat.is_centred or wanted.cumulative:
            top = heat.kernel.storage_order.spread(top_eigenvector(heat) / np.sqrt(heat.weights))
            columns -= np.outer(top * root, top[rows])
        values, vectors = self._eigenvectors
        image = vectors @ (wanted(values)[:, None] * (vectors.T @ columns))
        above = np.triu_indices(len(rows), 1)
        dense, sparse = distances(image.T @ image)[above], distances(covariance)[above]
        errors = np.abs(sparse[dense > 0] / dense[dense > 0] - 1)
        errors = errors if errors.size else np.zeros(1)
        return {
            "median": float(np.median(errors)),
            "bound_95": float(np.quantile(errors, 0.95)),
            "max": float(errors.max()),
        }


class Probes:
    """Sampled points, scanned exactly against all points."""

    def __init__(self, embedding: Embedding, points: Rows, n_probes: int, seed: int) -> None:
        self._graph, self._kernel, self._context = embedding.graph, embedding.kernel, embedding.graph.context
        self.points = points
        storage_order = self._graph.storage_order
        self.n_points = storage_order.n_points
        drawn = np.random.default_rng([seed, 1]).choice(self.n_points, min(n_probes, self.n_points), replace=False)
        self.own = np.sort(storage_order.by_user[drawn]).astype(np.int64)
        self.n_probes = len(self.own)
        self._sample = nearest_points(points, self.own, self._graph.n_neighbors, self._context)

    def recall(self) -> Interval:
        """Share of true neighbours in the lists; a neighbour counts when it is no further than the true last one."""
        found = self._graph.list_distances.take(self.own).astype(np.float64)
        return share(*self._sample.recall(found))

    def lost_mass(self) -> Interval:
        """``1 - sum K_sparse / sum K_dense`` over the sampled rows, the diagonal left out; error of a ratio."""
        dense, kept = row_masses(self._kernel, self.points, self.own)
        if not dense.sum() > 0:
            return NOTHING
        ratio = kept.sum() / dense.sum()
        spread = float((kept - ratio * dense).std(ddof=1)) / dense.mean() / np.sqrt(self.n_probes)
        return share(max(0.0, 1 - ratio), 1.96 * spread * np.sqrt(1 - self.n_probes / self.n_points))

    def trustworthiness(self, values: Any) -> dict[str, Any] | None:
        """``1 - 2 / (m (2n - 3m - 1)) * mean sum (rank in X - m)`` over the m nearest in the embedding."""
        m = min(_N_NEIGHBORS, (self.n_points - 1) // 2)
        if m < 1:
            return None
        from scalable_gpe.loops import points as loops

        limits = self._squares_of_nearest(values, m)

        def count(some: Scanned, counts: np.ndarray) -> None:
            loops.count_closer(*some[1:], limits[some.lane], counts[some.lane])

        counts = scan_points(self.points, self.own, lambda: np.zeros(limits.shape, np.int64), count, self._context)
        penalty = np.maximum(np.cumsum(counts, axis=1) + 1 - m, 0).sum(axis=1)
        each = 1 - 2 * penalty / (m * (2 * self.n_points - 3 * m - 1))
        error = 1.96 * float(each.std(ddof=1)) * np.sqrt((1 - self.n_probes / self.n_points) / self.n_probes)
        return {**asdict(share(float(each.mean()), error)), "n_neighbors": m}

    def _squares_of_nearest(self, values: Any, m: int) -> np.ndarray:
        """Squared distances in X of each probe to its m nearest points in the embedding, ascending."""
        from scalable_gpe.loops import points as loops

        storage_order = self._graph.storage_order
        first_rows = storage_order.user_row[storage_order.by_user]
        ranks = np.empty(self.n_points, np.int64)  # of each point among the first rows
        ranks[storage_order.by_user] = np.arange(self.n_points)
        order = np.argsort(ranks[self.own])
        own = ranks[self.own][order]
        # times a power of two, because a large power leaves values whose squares float32 cannot hold
        exponent = -int(np.frexp(np.abs(take_rows(values, first_rows[own])).max())[1])
        embedded = RowSubset(open_rows(values, name="points").with_units(None, None, exponent), first_rows)
        # the embedding may be an array of this process, so its threads scan it
        here = replace(self._context, workers=self._context.workers.here)
        found = nearest_points(embedded, own, m, here)
        nearest = np.empty((self.n_probes, m), np.int64)
        nearest[order] = storage_order.by_user[found.neighbors]
        unique, inverse = np.unique(nearest, return_inverse=True)
        others = self.points.take(unique)[inverse.ravel()]
        samples = np.repeat(self.points.take(self.own), m, axis=0)
        squares = np.empty(nearest.size, np.float32)
        loops.pair_squares(samples, others, squares)
        return np.sort(squares.reshape(nearest.shape), axis=1)
