"""(I - cA)^-1 B with c = 1 - 1/T: a fixed number of cycles of two levels, accelerated with fixed coefficients.

The contraction of a cycle is measured once per heat kernel and horizon, on a few random vectors; the coefficients of
the acceleration and the number of cycles follow from it. So a solution is one linear map, the same for every column,
and whatever is computed from it later (new rows, more columns) speaks of one operator.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from scalable_gpe.execution.context import Context
from scalable_gpe.execution.panels import Panel, Panels
from scalable_gpe.heat.normalization import HeatKernel
from scalable_gpe.multilevel.coarse import Acceleration, rounded_outwards
from scalable_gpe.multilevel.conjugate_gradients import ConjugateGradients, Laplacian
from scalable_gpe.multilevel.cycle import CoarseBasis, Cycle
from scalable_gpe.multilevel.errors import Iterate, SampledPairs

PROBES, _PROBE_STEPS = 4, 10  # random vectors and steps, at most, that measure the spectrum of a cycle
_FEWEST_STEPS, _SETTLED = 4, 0.96  # they end when the lowest value changes by less
_MARGIN, _MARGIN_ABOVE = 1.25, 1.02  # what is seen of a spectrum lies inside of it
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
                f"all scales are not as exact as `tol` asks: {MOST_CYCLES} cycles leave an error of {self.error:.1e} "
                "in distances. Pass a smaller `horizon`, or lower `epsilon`."
            )
        if self.contraction < _SLOW:
            return None
        return (
            f"all scales need {self.n_cycles} cycles: each one reduces the error to {self.contraction:.0%} only. The "
            "result is as exact as `tol` says, but takes longer. A smaller `horizon` needs fewer cycles."
        )


class HeatSolver:
    """Solves (I - cA) X = B for panels B, as a plan says."""

    def __init__(self, basis: CoarseBasis, plan: SolverPlan, panels: Panels, purpose: str = "sketch") -> None:
        self.basis, self.plan, self._panels = basis, plan, panels
        c = 1 - 1 / plan.horizon
        self._cycle = Cycle(basis, c, panels, purpose, basis.solver(c))

    def solve(
        self, right: Panel, begun: Iterate | None = None, offer: Callable[[Iterate], None] | None = None
    ) -> Iterate:
        """The solution, and that of a cycle before; `offer` gets each iterate, `begun` is one that it got."""
        found = begun
        for found in self.iterates(right, begun, self.plan.n_cycles):
            if offer is not None:
                offer(found)
        self._cycle.retire()
        assert found is not None
        return found

    def iterates(self, right: Panel, begun: Iterate | None, n_cycles: int) -> Iterator[Iterate]:
        """Yield what each cycle gives; each but the last two is overwritten."""
        shares, found = self.plan.acceleration.steps(n_cycles), begun
        for step in range(0 if begun is None else begun.step, n_cycles):
            now, target = (None, None) if found is None else (found.now, found.before)
            if target is None:
                target = self._panels.new(right.shape, right.dtype)
            # the vectors before the first two steps are zero
            used = shares[step] if step > 1 else (shares[step][0], shares[step][1] if step else 0.0, 0.0)
            found = Iterate(step + 1, self._cycle.apply(now, right, target, used), now)
            yield found


def plan_solver(
    basis: Callable[[], CoarseBasis], horizon: float, tol: float, context: Context, name: str
) -> SolverPlan:
    """Read the plan of a heat kernel and a horizon, or measure it and store it under `name`."""
    known = context.store.read(name, SolverPlan)
    if known is None:
        known = measure_plan(basis(), horizon, tol)
        context.store.commit(name, known)
    return known


def measure_plan(basis: CoarseBasis, horizon: float, tol: float) -> SolverPlan:
    """Measure the spectrum of a cycle, and the number of cycles after which distances are right, on random vectors."""
    context, c, panels = basis.heat.context, 1 - 1 / horizon, Panels(basis.heat.context)
    before = context.sweeps["interval"]
    coarse = basis.solver(c)
    with context.workers.progress.stage("interval", 3 * _PROBE_STEPS):
        values = _ritz_values(basis, Cycle(basis, c, panels, "interval", coarse), panels)
    low, high = rounded_outwards(values.min() / _MARGIN), max(1.0, float(values.max()) * _MARGIN_ABOVE)
    plan = SolverPlan(horizon, low, high, MOST_CYCLES, 1 + coarse.n_levels, 0)
    with context.workers.progress.stage("interval", 3 * plan.acceleration.cycles(tol)):
        n_cycles, error = _cycles_to(tol, basis, plan, panels)
    panels.clear()
    return replace(plan, n_cycles=n_cycles, n_sweeps=context.sweeps["interval"] - before, error=error)


def _cycles_to(tol: float, basis: CoarseBasis, plan: SolverPlan, panels: Panels) -> tuple[int, float]:
    """The number of cycles after which distances in random columns are right to `tol`, and their error then."""
    right, pairs = basis.rows.part(_random(basis.heat, panels), panels), SampledPairs.of(basis)
    error, before = np.inf, None
    for found in HeatSolver(basis, plan, panels, "interval").iterates(right, None, MOST_CYCLES):
        images = pairs.images(found.now)
        error = np.inf if before is None else pairs.error(images, before, plan.remaining).mean
        if error <= tol:
            break
        before = images
    return found.step, error


def _ritz_values(basis: CoarseBasis, cycle: Cycle, panels: Panels) -> np.ndarray:
    """Extreme eigenvalues of a cycle times I - cA, from conjugate gradients on random vectors."""
    heat, lowest = basis.heat, 1.0
    laplacian = Laplacian(heat, basis.rows, c=cycle.c)
    search = ConjugateGradients(laplacian, cycle, panels, lambda some: basis.rows.part(some, panels), "interval")
    search.begin(basis.rows.part(_random(heat, panels), panels))
    while search.known.n_steps < _PROBE_STEPS:
        search.advance()
        found = np.concatenate(search.known.ritz_values())
        if search.known.n_steps >= _FEWEST_STEPS and found.min() > _SETTLED * lowest:
            break
        lowest = float(found.min())
    return found


def _random(heat: HeatKernel, panels: Panels) -> Panel:
    """Random signs."""
    from scalable_gpe.loops import random

    def draw(start: int, stop: int) -> np.ndarray:
        out = np.empty((stop - start, PROBES))
        user_row = heat.kernel.storage_order.user_row[start:stop]
        random.fill_bernoulli(out, user_row, np.arange(PROBES), np.uint64(_PROBE_SEED))
        out *= np.sqrt(heat.step_scale[start:stop])[:, None]
        return out

    return panels.filled((heat.kernel.edges.n_points, PROBES), np.float64, draw)
