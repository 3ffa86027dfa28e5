"""Power iteration: A^p applied to a panel of columns of G.

A panel is kept as Z = S x (times the multiplicities), for which one application of A is ``Z <- S^2 M K Z``: the inner
loop then multiplies by K alone. For a power p, Z is stored after p - 1 applications; the last application gives the
embedding, ``y = s (K Z) / sqrt(k)``, and the same formula embeds new points.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from scalable_gpe.execution.panels import Panel, Panels, replaced, updated
from scalable_gpe.execution.sums import chunk_totals, sum_rows
from scalable_gpe.heat.normalization import HeatKernel, top_eigenvector
from scalable_gpe.heat.sweep import Accumulator, Product, RecurrenceStep, Shares, sweep
from scalable_gpe.sketch.polynomial import Coefficients, PowerPlan
from scalable_gpe.sketch.random_matrix import Sketch
from scalable_gpe.spectral.filters import Power, power_order
from scalable_gpe.storage.mapped import pieces


@dataclass(frozen=True)
class Removed:
    """A direction that is removed from G: ``G - u (u'G)`` for a vector u of unit length.

    `direction` is u on one row of each point (storage order); with None nothing is removed. `divisor` makes the
    coefficients readable: for the constant vector they are the means of the columns.
    """

    direction: np.ndarray | None
    divisor: float = 1.0

    def shared(self, panels: Panels) -> Panel | None:
        """The direction as tasks read it; None for a constant one, or none at all."""
        direction = self.direction
        if direction is None or all((direction[start:stop] == 1).all() for start, stop in pieces(len(direction))):
            return None
        return panels.of(direction)

    def coefficients(self, totals: np.ndarray) -> np.ndarray:
        """What is multiplied by `direction` and subtracted, from the sums over all rows of ``direction * G``."""
        return np.zeros_like(totals) if self.direction is None else totals / self.divisor


def removed_direction(heat: HeatKernel, *, top: bool) -> Removed:
    """The constant vector of a bistochastic kernel, which shifts all rows alike.

    With `top` the eigenvector with eigenvalue 1 of any kernel: the sum of all powers would be little else.
    """
    if heat.is_centred:
        constant = heat.context.filled(heat.kernel.edges.n_points, np.float64, lambda start, stop: 1.0)
        return Removed(constant, heat.total_weight)
    if not top:
        return Removed(None)
    direction, weights = top_eigenvector(heat), heat.weights
    for start, stop in pieces(len(direction)):
        direction[start:stop] /= np.sqrt(weights[start:stop])
    return Removed(direction)


def column_coefficients(heat: HeatKernel, sketch: Sketch, columns: np.ndarray, removed: Removed) -> np.ndarray:
    """Coefficients of the removed direction in some columns of G: their means if it is the constant vector."""
    if removed.direction is None:
        return np.zeros(len(columns))
    panels = Panels(heat.context)
    direction = removed.shared(panels)

    def totals(start: int, stop: int) -> np.ndarray:
        return chunk_totals(_weighted(_point_entries(heat, sketch, columns, start, stop), direction, start, stop))

    found = removed.coefficients(sum_rows(heat.context, heat.kernel.storage_order.n_points, totals))
    panels.clear()
    return found


def start_panel(
    heat: HeatKernel, sketch: Sketch, columns: np.ndarray, panels: Panels, removed: Removed
) -> tuple[Panel, np.ndarray]:
    """``Z = S P'(G - u c')``, the sketch summed over equal rows, in storage order; and the coefficients c."""
    from scalable_gpe.loops import sparse

    n_points = heat.kernel.storage_order.n_points
    panel, vectors = panels.new((n_points, len(columns)), sketch.dtype), Panels(heat.context)
    direction = removed.shared(vectors)

    def sketch_rows(start: int, stop: int) -> np.ndarray:
        entries = _point_entries(heat, sketch, columns, start, stop)
        out = panel.room(start, stop)
        out[:] = entries
        panel.put(start, out)
        return chunk_totals(_weighted(entries, direction, start, stop))

    coefficients = removed.coefficients(sum_rows(heat.context, n_points, sketch_rows))

    def centre_rows(start: int, stop: int) -> np.ndarray:
        rows, out = slice(start, stop), panel.rows(start, stop)
        along = heat.weights[rows] if direction is None else heat.weights[rows] * direction.rows(start, stop)
        sparse.centre_rows(out, along, coefficients, heat.scale_points[rows])
        return out

    centred = updated(panel, centre_rows, heat.context)
    vectors.clear()
    return centred, coefficients


def _weighted(entries: np.ndarray, direction: Panel | None, start: int, stop: int) -> np.ndarray:
    """``diag(direction) entries``; as they are if the direction is constant."""
    return entries if direction is None else entries * direction.rows(start, stop)[:, None]


def _point_entries(heat: HeatKernel, sketch: Sketch, columns: np.ndarray, start: int, stop: int) -> np.ndarray:
    """``P'G``: entries of G, times the root of the sample weight, summed over the rows of each of some points."""
    storage_order, weight = heat.kernel.storage_order, heat.sample_weight
    wanted, begins = storage_order.rows_of(start, stop)
    entries = sketch.entries(wanted, columns)
    if weight is not None:
        entries *= np.sqrt(weight[wanted])[:, None]
    if storage_order.group is None:
        return entries
    return np.add.reduceat(entries, begins, axis=0)


def multiply(heat: HeatKernel, source: Panel, target: Panel, purpose: str = "sketch") -> Panel:
    """``A source``, which replaces `target`."""
    with replaced(target) as fresh:
        sweep(heat.kernel, Product(heat.step_rows), source, fresh, heat.context, purpose=purpose)
    return fresh


def chebyshev(
    heat: HeatKernel,
    current: Panel,
    previous: Panel,
    sums: Sequence["Term"],
    *,
    beginning: bool = False,
    purpose: str = "sketch",
) -> tuple[Panel, list[Panel]]:
    """Compute ``T_(j+1)``, which replaces T_(j-1), and add its share to each of `sums`, if it is due.

    The first step makes T_1 from T_0 and zeros; it takes half of the recurrence.
    """
    factor = 1.0 if beginning else 2.0
    loop = RecurrenceStep(heat.step_rows, np.full(current.shape[1], factor), np.ones(current.shape[1]))
    with ExitStack() as stack:
        fresh = stack.enter_context(replaced(previous))
        totals = [Accumulator(one.total, stack.enter_context(replaced(one.total)), one.shares) for one in sums]
        sweep(heat.kernel, loop, current, fresh, heat.context, purpose=purpose, update=previous, sums=totals)
    return fresh, [total.new for total in totals]


@dataclass(frozen=True)
class Term:
    """What a step of a recurrence adds to a sum: shares of the vector that it replaces, the current and the new one."""

    total: Panel
    shares: Shares

    @staticmethod
    def due(total: Panel, coefficients: Coefficients, degree: int) -> "Term | None":
        """The terms of a series that are added at a degree: three at each multiple of three, the rest at the end.

        So a sum is read and written in every third sweep only.
        """
        left = degree % 3
        if left == 0:
            return Term(total, Shares(*coefficients[degree - 2 : degree + 1]))
        if degree < len(coefficients) - 1:
            return None
        return Term(total, Shares(0.0, coefficients[degree - 1] if left == 2 else 0.0, coefficients[degree]))


@dataclass(frozen=True)
class IterationState:
    """Progress of an interrupted iteration.

    `powers` are the filters left. `phase` is "plain", or "threes" in an expansion, whose terms are added by threes;
    `factor` is the number of the factor that is being expanded: 0 is the first one of all filters together, a later one
    belongs to the first filter left.
    """

    powers: tuple[Power, ...]
    phase: str
    step: int
    n_sweeps: int = 0
    began_with: tuple[Power, ...] = ()
    factor: int = 0


class PowerIteration:
    """Applies several filters to one panel; iterating yields ``(label, Z before the last application of A)``.

    Powers by plain products come first, in ascending order, then those by expansion. `start` makes the panel.
    `n_sweeps` counts all sweeps, including those before an interruption.
    """

    def __init__(
        self,
        heat: HeatKernel,
        start: Callable[[], Panel],
        plans: Sequence[PowerPlan],
        panels: Panels,
        purpose: str = "sketch",
    ) -> None:
        self._heat, self._start, self._panels, self._purpose = heat, start, panels, purpose
        plans = sorted(plans, key=lambda plan: power_order(plan.label))
        self._plain = [plan.power for plan in plans if not plan.coefficients]
        self._expanded = [plan for plan in plans if plan.coefficients]
        self.n_sweeps = 0
        self.began_with: tuple[Power, ...] = tuple(plan.label for plan in plans)

    def __iter__(self) -> Iterator[tuple[Power, Panel]]:
        state, saved = self._saved()
        if self._plain:
            resumes = state is not None and state.phase == "plain"
            yield from self._multiply(state, saved) if resumes else self._multiply(None, {})
            state, saved = None, {}
        if self._expanded:
            yield from self._expand(state, saved)

    def _saved(self) -> tuple[IterationState | None, dict[str, Panel]]:
        """Load the state that was saved for exactly these filters, if there is one."""
        found = self._panels.load(
            IterationState, lambda state: state.powers == self._labels() and state.phase in ("plain", "threes")
        )
        if found is None:
            return None, {}
        self.n_sweeps = found[0].n_sweeps
        self.began_with = found[0].began_with or self.began_with
        return found

    def _labels(self) -> tuple[Power, ...]:
        return (*self._plain, *(plan.label for plan in self._expanded))

    def _multiply(self, state: IterationState | None, saved: dict[str, Panel]) -> Iterator[tuple[int, Panel]]:
        """Apply plain products; a yielded panel is valid until the next one is requested."""
        panel = self._start() if state is None else saved["panel"]
        done, other = 0 if state is None else state.step, self._panels.new(panel.shape, panel.dtype)
        while self._plain:
            if done + 1 == self._plain[0]:
                self._plain.pop(0)
                yield done + 1, panel
                continue
            panel, other = multiply(self._heat, panel, other, self._purpose), panel
            done += 1
            self.n_sweeps += 1
            self._panels.offer(
                IterationState(self._labels(), "plain", done, self.n_sweeps, self.began_with), {"panel": panel}
            )
        panel.retire()
        other.retire()

    def _expand(self, state: IterationState | None, saved: dict[str, Panel]) -> Iterator[tuple[Power, Panel]]:
        """Sum the first series of all filters together, then the other factors of each filter.

        A yielded panel is valid until the next one is requested.
        """
        sums = {} if state is None else {plan.label: saved[f"sum-{plan.label}"] for plan in self._expanded}
        begun = None if state is None else _Series(saved["current"], saved["previous"], state.step)
        factor = 0 if state is None else state.factor
        if factor == 0:
            series = begun or _Series(self._start())
            self._sum(series, {plan.label: plan.coefficients for plan in self._expanded}, sums, 0)
            begun = None
        while self._expanded:
            plan = self._expanded[0]
            for number in range(max(factor, 1), len(plan.expansions)):
                series, begun = begun or _Series(sums.pop(plan.label)), None
                self._sum(series, {plan.label: plan.expansions[number]}, sums, number)
            factor = 1
            self._expanded.pop(0)
            total = sums.pop(plan.label)
            yield plan.label, total
            total.retire()

    def _sum(self, series: "_Series", terms: dict[Power, Coefficients], sums: dict[Power, Panel], factor: int) -> None:
        """Run one recurrence up to the longest of some series."""
        if series.step == 0 and series.previous is None:
            series.previous = self._first_terms(series.current, terms, sums)
        ends = {label: len(coefficients) - 1 for label, coefficients in terms.items()}
        for degree in range(series.step + 1, max(ends.values()) + 1):
            due = {
                label: term
                for label in terms
                if ends[label] >= degree and (term := Term.due(sums[label], terms[label], degree)) is not None
            }
            assert series.previous is not None
            fresh, totals = chebyshev(
                self._heat,
                series.current,
                series.previous,
                list(due.values()),
                beginning=degree == 1,
                purpose=self._purpose,
            )
            series.current, series.previous, series.step = fresh, series.current, degree
            self.n_sweeps += 1
            sums |= dict(zip(due, totals, strict=True))
            state = IterationState(self._labels(), "threes", degree, self.n_sweeps, self.began_with, factor)
            kept = {f"sum-{label}": panel for label, panel in sums.items()}
            self._panels.offer(state, {"current": series.current, "previous": series.previous, **kept})
        series.retire()

    def _first_terms(self, current: Panel, terms: dict[Power, Coefficients], sums: dict[Power, Panel]) -> Panel:
        """Return zeros in place of T_(-1), and begin the sum of each series with its constant term."""
        for label, coefficients in terms.items():
            share = current.dtype.type(coefficients[0])

            def constant_term(start: int, stop: int, share: Any = share) -> Any:
                return np.multiply(current.rows(start, stop), share)

            sums[label] = self._panels.filled(current.shape, current.dtype, constant_term)
        return self._panels.filled(current.shape, current.dtype, lambda start, stop: 0)


@dataclass
class _Series:
    """A Chebyshev recurrence: T_step and T_(step - 1) of a panel."""

    current: Panel
    previous: Panel | None = None
    step: int = 0

    def retire(self) -> None:
        """Drop the vectors of a series that is summed."""
        for panel in (self.current, self.previous):
            if panel is not None:
                panel.retire()
