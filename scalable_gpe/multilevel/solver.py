"""(I - cA)^-1 B with c = 1 - 1/T: a fixed number of cycles of two levels, accelerated with fixed coefficients.

The contraction of a cycle is measured once per heat kernel and horizon, on a few random vectors; the coefficients of
the acceleration and the number of cycles follow from it. So a solution is one linear map, the same for every column,
and whatever is computed from it later (new rows, more columns) speaks of one operator.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from scalable_gpe.execution.panels import Panel, Panels
from scalable_gpe.multilevel.coarse import Acceleration, rounded_outwards
from scalable_gpe.multilevel.conjugate_gradients import Coefficients, ConjugateGradients, Laplacian, random_signs
from scalable_gpe.multilevel.cycle import CoarseBasis, Cycle
from scalable_gpe.multilevel.errors import LastChange, SampledPairs, SolverError

PROBES, _USUAL_STEPS = 4, 8  # random vectors and steps that measure the spectrum of a cycle
_FEWEST_STEPS, _SETTLED = 4, 0.96  # it is known when the lowest value changes by less
_BELOW_LOWEST, _ABOVE_HIGHEST = 0.8, 1.05  # ends of the interval: what is seen of the spectrum lies inside
_MEASURED = 1e-5  # error of distances down to which cycles are counted; beyond, it follows from the contraction
_SLOW = 0.9  # contraction from which a warning says that the data are hard
_PROBE_SEED = 0x5EED_0F_C
MOST_CYCLES = 200
_FORESEEN = 4  # cycles, at most, that follow from the rate of those before
_LEAST_LEFT, _MOST_LEFT = 0.15, 0.97  # of a change, that the next cycle makes


@dataclass(frozen=True)
class SolverPlan:
    """How (I - cA) X = B is solved; stored before the first column.

    Attributes
    ----------
    low, high : float
        The interval that the cycles are accelerated for: their spectrum, as far as it is seen.
    rate : float
        Factor by which the last cycles reduced the change of distances in random columns.
    n_cycles : int
        Number of cycles.
    n_levels : int
        Number of levels, that of the rows included.
    n_sweeps : int
        Passes over K that measured the plan.
    error : float
        The error of distances in random columns after these cycles.
    """

    horizon: float
    low: float
    high: float
    rate: float
    n_cycles: int
    n_levels: int
    n_sweeps: int
    error: float = 0.0

    @property
    def acceleration(self) -> Acceleration:
        """The acceleration of the cycles."""
        return Acceleration(self.low, self.high)

    @property
    def contraction(self) -> float:
        """Factor by which each cycle reduces the error."""
        return max(self.acceleration.contraction, self.rate)

    @property
    def remaining(self) -> float:
        """The error after the last cycle, relative to the change in it; the first cycles reduce it by less."""
        left = max(self.contraction, _LEAST_LEFT)
        return left / (1 - left)

    @property
    def error_later(self) -> float:
        """The error after a few cycles more, if each one reduces it as the last ones did."""
        return self.error * self.contraction**_FORESEEN

    @property
    def warning(self) -> str | None:
        """What to tell the user about data on which the cycles converge slowly, or None."""
        if self.n_cycles == MOST_CYCLES:
            return (
                f"all scales are not as exact as tol asks: {MOST_CYCLES} cycles leave an error of {self.error:.1e} "
                "in distances. Pass a smaller horizon, or lower epsilon."
            )
        if self.contraction < _SLOW:
            return None
        return (
            f"all scales need {self.n_cycles} cycles: each one reduces the error to {self.contraction:.0%} only. The "
            "result is as exact as tol says, but takes longer. A smaller horizon needs fewer cycles."
        )


@dataclass(frozen=True)
class SolveState:
    """Progress of an interrupted solution; with a `change`, of the products after the cycles."""

    step: int
    change: LastChange | None = None


@dataclass(frozen=True)
class HeatSolver:
    """Solves (I - cA) X = B for panels B, as a plan says."""

    basis: CoarseBasis
    plan: SolverPlan
    panels: Panels
    purpose: str = "sketch"

    def solve(self, start: Callable[[], Panel], state: SolveState, saved: dict[str, Panel]) -> tuple[Panel, Panel]:
        """The solutions after all cycles, and after one cycle less; `start` makes B, `saved` are those of `state`."""
        right, shares = start(), self.plan.acceleration.steps(self.plan.n_cycles)
        cycle = Cycle(self.basis, 1 - 1 / self.plan.horizon, self.panels, self.purpose)
        now, before = saved.get("now"), saved.get("before")
        for step in range(state.step, self.plan.n_cycles):
            target = self.panels.new(right.shape, right.dtype) if before is None else before
            # the vectors before the first two steps are zero
            used = shares[step] if step > 1 else (shares[step][0], shares[step][1] if step else 0.0, 0.0)
            now, before = cycle.apply(now, right, target, used), now
            self.panels.offer(SolveState(step + 1), {"now": now} | ({} if before is None else {"before": before}))
        cycle.retire()
        right.retire()
        assert now is not None and before is not None  # there are two cycles or more
        return now, before


def measure_plan(basis: CoarseBasis, horizon: float, tol: float, pairs: SampledPairs | None = None) -> SolverPlan:
    """Measure the spectrum of a cycle, and the number of cycles after which distances are right, on random vectors.

    Conjugate gradients give both: their Ritz values the spectrum, and their corrections a basis in which the vectors
    after each accelerated cycle have known coordinates. So no cycle is made for the second.
    """
    context, c, panels = basis.heat.context, 1 - 1 / horizon, Panels(basis.heat.context)
    before = context.sweeps["interval"]
    search = ConjugateGradients(
        Laplacian(basis.heat, basis.rows, c=c),
        Cycle(basis, c, panels, "interval"),
        panels,
        lambda some: basis.rows.part(some, panels),
        "interval",
    )
    plan = SolverPlan(horizon, 1.0, 1.0, 0.0, 1, 1 + basis.solver(c).n_levels, 0, np.inf)
    pairs, settled = SampledPairs.of(basis) if pairs is None else pairs, False
    with context.workers.progress.stage("interval", _USUAL_STEPS):
        search.begin(basis.rows.part(random_signs(basis.heat, panels, PROBES, _PROBE_SEED), panels))
        directions = [pairs.images(search.step)]
        while not settled or (plan.error_later > max(tol, _MEASURED) and plan.n_cycles < MOST_CYCLES):
            search.advance()
            directions.append(pairs.images(search.step))
            values, lowest = np.concatenate(search.known.ritz_values()), plan.low
            low, high = rounded_outwards(values.min() * _BELOW_LOWEST), float(values.max()) * _ABOVE_HIGHEST
            plan = replace(plan, low=min(low, lowest), high=max(high, plan.high))
            settled = settled or (search.known.n_steps >= _FEWEST_STEPS and low >= _SETTLED * lowest)
            if settled:
                measured = Corrections.of(search.known, directions, pairs)
                plan = measured.after(len(directions), plan)
    while plan.n_cycles > 2 and (fewer := measured.after(plan.n_cycles - 1, plan)).error <= tol:
        plan = fewer
    n_cycles, error = plan.n_cycles, plan.error
    if tol < error < np.inf:  # each cycle leaves as much as those before
        more = int(np.ceil(np.log(tol / error) / np.log(plan.contraction)))
        n_cycles, error = min(n_cycles + more, MOST_CYCLES), error * plan.contraction**more
    panels.clear()
    return replace(plan, n_cycles=n_cycles, n_sweeps=context.sweeps["interval"] - before, error=error)


@dataclass(frozen=True)
class Corrections:
    """What conjugate gradients know of some columns: a basis in which cycles are a matrix of three diagonals."""

    inverse: np.ndarray  # of the lengths of the steps
    ratio: np.ndarray
    images: np.ndarray  # of the corrections in sampled rows
    pairs: SampledPairs

    @staticmethod
    def of(known: Coefficients, directions: list[np.ndarray], pairs: SampledPairs) -> "Corrections":
        """The corrections of some steps, from the directions."""
        length, ratio = np.array(known.steps), np.vstack([np.zeros(len(known.first)), known.ratios])
        inverse = np.divide(1.0, length, out=np.zeros_like(length), where=length > 0)
        later = [now - own * before for own, (before, now) in zip(ratio[1:], pairwise(directions), strict=True)]
        return Corrections(inverse, ratio, np.stack([directions[0], *later]), pairs)

    def after(self, n_cycles: int, plan: SolverPlan) -> SolverPlan:
        """The plan with so many cycles, as many as there are corrections or fewer: the error of distances then."""
        now = before = np.zeros((len(self.images), self.images.shape[2]))
        vectors = [now]
        for a, b, c in plan.acceleration.steps(n_cycles):
            change = -self._product(now)
            change[0] += 1
            now, before = a * (now + change) + b * now + c * before, now
            vectors.append(now)
        seen = [np.einsum("ic,irc->rc", one, self.images) for one in vectors[-4:]]
        changes = [self._change(*both) for both in pairwise(seen)]
        rate = np.sqrt(changes[-1] / changes[0]) if len(changes) > 2 and changes[0] > 0 else 0.0
        plan = replace(plan, n_cycles=n_cycles, rate=float(min(rate, _MOST_LEFT)))
        largest = max(changes[-1], plan.contraction * changes[-2])  # one alone may be small by chance
        return replace(plan, error=largest * plan.remaining)

    def _change(self, before: np.ndarray, now: np.ndarray) -> float:
        return SolverError.of([self.pairs.change(now, before)], now.shape[1], 1.0).mean

    def _product(self, x: np.ndarray) -> np.ndarray:
        """A cycle times I - cA in coordinates: the corrections satisfy a recurrence of three terms."""
        out = np.zeros_like(x)
        for i in range(len(self.inverse)):
            step = (x[i] - self.ratio[i + 1] * x[i + 1]) * self.inverse[i]  # the coordinates along the directions
            out[i] += step
            out[i + 1] -= step
        return out
