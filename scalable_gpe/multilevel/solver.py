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
_MARGIN, _MARGIN_ABOVE = 1.25, 1.02  # what is seen of a spectrum lies inside of it
_MEASURED = 1e-5  # error of distances down to which cycles are counted; beyond, it follows from the contraction
_SLOW = 0.8  # contraction from which a warning says that the data are hard
_PROBE_SEED = 0x5EED_0F_C
MOST_CYCLES = 200
_LEAST_LEFT = 0.15


@dataclass(frozen=True)
class SolverPlan:
    """How (I - cA) X = B is solved; stored before the first column.

    Attributes
    ----------
    low, high : float
        The interval of the spectrum of a cycle.
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
        return self.acceleration.contraction

    @property
    def remaining(self) -> float:
        """The error after the last cycle, relative to the change in it; the first cycles reduce it by less."""
        left = max(self.contraction, _LEAST_LEFT)
        return left / (1 - left)

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


def measure_plan(basis: CoarseBasis, horizon: float, tol: float) -> SolverPlan:
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
    plan = SolverPlan(horizon, 1.0, 1.0, MOST_CYCLES, 1 + basis.solver(c).n_levels, 0)
    pairs, settled, n_cycles, error = SampledPairs.of(basis), False, 1, np.inf
    with context.workers.progress.stage("interval", 3 * _USUAL_STEPS):
        search.begin(basis.rows.part(random_signs(basis.heat, panels, PROBES, _PROBE_SEED), panels))
        directions = [pairs.images(search.step)]
        while not settled or (error > max(tol, _MEASURED) and n_cycles < MOST_CYCLES):
            search.advance()
            directions.append(pairs.images(search.step))
            if not settled:
                values, lowest = np.concatenate(search.known.ritz_values()), plan.low
                low, high = rounded_outwards(values.min() / _MARGIN), max(1.0, float(values.max()) * _MARGIN_ABOVE)
                plan = replace(plan, low=low, high=high)
                settled = search.known.n_steps >= _FEWEST_STEPS and low >= _SETTLED * lowest
            n_cycles, error = _cycles_to(tol, plan, search.known, directions, pairs)
    if tol < error < np.inf:  # corrections in single precision tell no more: each cycle leaves as much as those before
        more = int(np.ceil(np.log(tol / error) / np.log(plan.contraction)))
        n_cycles, error = min(n_cycles + more, MOST_CYCLES), error * plan.contraction**more
    panels.clear()
    return replace(plan, n_cycles=n_cycles, n_sweeps=context.sweeps["interval"] - before, error=error)


def _cycles_to(
    tol: float, plan: SolverPlan, known: Coefficients, directions: list[np.ndarray], pairs: SampledPairs
) -> tuple[int, float]:
    """The number of cycles after which distances are right to `tol`, or of those that are known, and the error then."""
    length, ratio = np.array(known.steps), np.vstack([np.zeros(len(known.first)), known.ratios])
    inverse = np.divide(1.0, length, out=np.zeros_like(length), where=length > 0)
    later = [now - own * before for own, (before, now) in zip(ratio[1:], pairwise(directions), strict=True)]
    corrections = np.stack([directions[0], *later])

    def product(x: np.ndarray) -> np.ndarray:
        """A cycle times I - cA in coordinates: the corrections satisfy a recurrence of three terms."""
        out = np.zeros_like(x)
        for i in range(len(length)):
            step = (x[i] - ratio[i + 1] * x[i + 1]) * inverse[i]  # the coordinates along the directions
            out[i] += step
            out[i + 1] -= step
        return out

    now = before = np.zeros((len(corrections), directions[0].shape[1]))
    image, error = np.zeros_like(directions[0]), np.inf
    for number, (a, b, c) in enumerate(plan.acceleration.steps(len(corrections)), start=1):
        change = -product(now)
        change[0] += 1
        now, before = a * (now + change) + b * now + c * before, now
        last, image = image, np.einsum("ic,irc->rc", now, corrections)
        if number > 1:
            error = SolverError.of([pairs.change(image, last)], image.shape[1], plan.remaining).mean
        if error <= tol:
            break
    return number, error
