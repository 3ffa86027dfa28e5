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
from scalable_gpe.storage.mapped import pieces


@dataclass(frozen=True)
class Removed:
    """What is removed from G: ``u (u'G) / divisor`` for a vector u, which is constant without a `direction`.

    `direction` is u on one row of each point (storage order). With an infinite divisor nothing is removed.
    """

    heat: HeatKernel
    divisor: float = np.inf
    direction: Panel | None = None

    def along(self, start: int, stop: int) -> np.ndarray:
        """``M u`` for some points."""
        weights: np.ndarray = self.heat.weights[start:stop]
        return weights if self.direction is None else weights * self.direction.rows(start, stop)


def removed_direction(heat: HeatKernel, panels: Panels, *, top: bool) -> Removed:
    """The constant vector of a bistochastic kernel, which shifts all rows alike.

    With `top` the eigenvector with eigenvalue 1 of any kernel: the sum of all powers would be little else.
    """
    if heat.is_centred:
        return Removed(heat, heat.total_weight)
    if not top:
        return Removed(heat)
    direction, weights = top_eigenvector(heat), heat.weights
    for start, stop in pieces(len(direction)):
        direction[start:stop] /= np.sqrt(weights[start:stop])
    return Removed(heat, 1.0, panels.of(direction))


def start_panel(heat: HeatKernel, sketch: Sketch, columns: np.ndarray, panels: Panels, removed: Removed) -> Panel:
    """``Z = S P'(G - u c')``, the sketch summed over equal rows, in storage order."""
    from scalable_gpe.loops import sparse

    n_points = heat.kernel.storage_order.n_points
    panel = panels.new((n_points, len(columns)), sketch.dtype)

    def sketch_rows(start: int, stop: int) -> np.ndarray:
        entries = _point_entries(heat, sketch, columns, start, stop)
        out = panel.room(start, stop)
        out[:] = entries
        panel.put(start, out)
        if removed.direction is not None:
            entries *= removed.direction.rows(start, stop)[:, None]
        return chunk_totals(entries)

    coefficients = sum_rows(heat.context, n_points, sketch_rows) / removed.divisor

    def centre_rows(start: int, stop: int) -> np.ndarray:
        out = panel.rows(start, stop)
        sparse.centre_rows(out, removed.along(start, stop), coefficients, heat.scale_points[start:stop])
        return out

    return updated(panel, centre_rows, heat.context)


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


def due(coefficients: Coefficients, degree: int) -> Shares | None:
    """What is added to the sum of a series at a degree: three terms at each multiple of three, the rest at the end.

    So a sum is read and written in every third sweep only.
    """
    left = degree % 3
    if left == 0:
        return Shares(*coefficients[degree - 2 : degree + 1])
    if degree < len(coefficients) - 1:
        return None
    return Shares(0.0, coefficients[degree - 1] if left == 2 else 0.0, coefficients[degree])


@dataclass(frozen=True)
class IterationState:
    """Progress of an interrupted iteration with the filters `powers` left, of which the first decides what a step is.

    Of an expansion, `factor` is the number of the factor that is being expanded: 0 is the first one of all filters
    together, a later one belongs to the first filter left.
    """

    powers: tuple[int, ...]
    step: int
    factor: int = 0


class PowerIteration:
    """Applies several filters to one panel; iterating yields ``(power, Z before the last application of A)``.

    Powers by plain products come first, in ascending order, then those by expansion. `start` makes the panel. A yielded
    panel is valid until the next one is requested.
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
        plans = sorted(plans, key=lambda plan: plan.power)
        self._plain = [plan.power for plan in plans if not plan.coefficients]
        self._expanded = [plan for plan in plans if plan.coefficients]

    def __iter__(self) -> Iterator[tuple[int, Panel]]:
        found = self._panels.load(IterationState, lambda state: state.powers == self._left())
        state, saved = found or (None, dict[str, Panel]())
        if self._plain:
            yield from self._multiply(state, saved)
            state, saved = None, {}
        if self._expanded:
            yield from self._expand(state, saved)

    def _left(self) -> tuple[int, ...]:
        return (*self._plain, *(plan.power for plan in self._expanded))

    def _multiply(self, state: IterationState | None, saved: dict[str, Panel]) -> Iterator[tuple[int, Panel]]:
        """Apply plain products."""
        panel = self._start() if state is None else saved["panel"]
        done, other = 0 if state is None else state.step, self._panels.new(panel.shape, panel.dtype)
        while self._plain:
            if done + 1 == self._plain[0]:
                self._plain.pop(0)
                yield done + 1, panel
                continue
            panel, other = multiply(self._heat, panel, other, self._purpose), panel
            done += 1
            self._panels.offer(IterationState(self._left(), done), {"panel": panel})
        panel.retire()
        other.retire()

    def _expand(self, state: IterationState | None, saved: dict[str, Panel]) -> Iterator[tuple[int, Panel]]:
        """Sum the first series of all filters together, then the other factors of each filter."""
        sums = {} if state is None else {plan.power: saved[f"sum-{plan.power}"] for plan in self._expanded}
        factor = 0 if state is None else state.factor
        if factor == 0:
            self._sum(0, self._expanded, sums, state, saved)
            factor, state = 1, None
        while self._expanded:
            plan = self._expanded[0]
            for number in range(factor, len(plan.expansions)):
                self._sum(number, [plan], sums, state, saved)
                state = None
            factor = 1
            self._expanded.pop(0)
            total = sums.pop(plan.power)
            yield plan.power, total
            total.retire()

    def _sum(
        self,
        factor: int,
        plans: Sequence[PowerPlan],
        sums: dict[int, Panel],
        state: IterationState | None,
        saved: dict[str, Panel],
    ) -> None:
        """Sum the series of one factor of some filters by one recurrence, T_(j+1) = 2 A T_j - T_(j-1)."""
        heat, terms = self._heat, {plan.power: plan.expansions[factor] for plan in plans}
        if state is None:
            current = self._start() if factor == 0 else sums.pop(plans[0].power)
            previous, done = self._first_terms(current, terms, sums), 0
        else:
            current, previous, done = saved["current"], saved["previous"], state.step
        width = current.shape[1]
        for degree in range(done + 1, max(map(len, terms.values()))):
            # the first step makes T_1 from T_0 and zeros; it takes half of the recurrence
            loop = RecurrenceStep(heat.step_rows, np.full(width, 1.0 if degree == 1 else 2.0), np.ones(width))
            with ExitStack() as stack:
                fresh, added = stack.enter_context(replaced(previous)), dict[int, Accumulator]()
                for power, coefficients in terms.items():
                    if degree < len(coefficients) and (shares := due(coefficients, degree)) is not None:
                        total = stack.enter_context(replaced(sums[power]))
                        added[power] = Accumulator(sums[power], total, shares)
                sweep(
                    *(heat.kernel, loop, current, fresh, heat.context),
                    purpose=self._purpose,
                    update=previous,
                    sums=list(added.values()),
                )
            current, previous = fresh, current
            sums |= {power: accumulator.new for power, accumulator in added.items()}
            panels = {"current": current, "previous": previous}
            panels |= {f"sum-{power}": total for power, total in sums.items()}
            self._panels.offer(IterationState(self._left(), degree, factor), panels)
        current.retire()
        previous.retire()

    def _first_terms(self, current: Panel, terms: dict[int, Coefficients], sums: dict[int, Panel]) -> Panel:
        """Return zeros in place of T_(-1), and begin the sum of each series with its constant term."""
        for power, coefficients in terms.items():
            share = current.dtype.type(coefficients[0])

            def constant_term(start: int, stop: int, share: Any = share) -> Any:
                return np.multiply(current.rows(start, stop), share)

            sums[power] = self._panels.filled(current.shape, current.dtype, constant_term)
        return self._panels.filled(current.shape, current.dtype, lambda start, stop: 0)
