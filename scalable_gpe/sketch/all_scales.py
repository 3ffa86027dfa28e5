"""The sum of all powers: A^(m-1) (I - cA)^-1 G, by the two-level solver and m - 1 products.

The system is solved first and multiplied by A after, which smooths away what error is left on near rows. The top
eigenvector is removed before and after: it does not matter for distances, and the sum would be little else.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from scalable_gpe.checks import ALL, Power
from scalable_gpe.execution.context import Context
from scalable_gpe.execution.panels import Panel, Panels
from scalable_gpe.heat.normalization import HeatKernel
from scalable_gpe.multilevel.cycle import CoarseBasis
from scalable_gpe.multilevel.errors import LastChange, SampledPairs
from scalable_gpe.multilevel.horizon import Horizon, measure_horizon
from scalable_gpe.multilevel.solver import HeatSolver, SolverPlan, SolveState, measure_plan
from scalable_gpe.sketch.powers import multiply
from scalable_gpe.spectral.filters import Filter
from scalable_gpe.storage.records import horizon_name


@dataclass(frozen=True)
class ScalesPlan:
    """How the sum of all powers is computed: the horizon, the first power, and the plan of the solver."""

    filter: Filter
    solver: SolverPlan
    n_passes: int = 0  # over K, which chose the horizon

    lambda_min = None

    @property
    def label(self) -> Power:
        """The power as users write it."""
        return ALL

    @property
    def n_probes(self) -> int:
        """Number of sweeps that were made before the first column."""
        return self.n_passes + self.solver.n_sweeps

    @property
    def n_products(self) -> int:
        """Number of products before the last one."""
        return self.solver.n_cycles - 1 + self.filter.first - 1

    @property
    def warning(self) -> str | None:
        """What to tell the user about slow cycles, or None."""
        return self.solver.warning


class AllScales:
    """The coarse level of a heat kernel, made when it is needed, and what is chosen and solved with it."""

    def __init__(self, heat: HeatKernel, context: Context, name: str) -> None:
        self._heat, self._context, self._name = heat, context, name
        self._panels = Panels(heat.context)

    @cached_property
    def basis(self) -> CoarseBasis:
        """Aggregates and coarse matrices."""
        return CoarseBasis.of(self._heat, self._panels)

    @cached_property
    def pairs(self) -> SampledPairs:
        """Pairs of rows whose distances tell how exact a solution is."""
        return SampledPairs.of(self.basis)

    def horizon(self, given: int | str) -> Horizon:
        """The horizon that the user gave, or one by the relaxation time: measured, or read."""
        if isinstance(given, int):
            return Horizon(given)
        name = horizon_name(self._name)
        horizon = self._context.store.read(name, Horizon)
        if horizon is None:
            horizon = measure_horizon(self.basis)
            self._context.store.commit(name, horizon)
        return horizon

    def plan(self, horizon: Horizon, first: int, tol: float) -> ScalesPlan:
        """Measure how fast the solver converges, or read it."""
        name = f"{self._name}/solver-{horizon.horizon}"
        solver = self._context.store.read(name, SolverPlan)
        if solver is None:
            solver = measure_plan(self.basis, horizon.horizon, tol, self.pairs)
            self._context.store.commit(name, solver)
        return ScalesPlan(Filter(horizon.horizon, cumulative=True, first=first), solver, horizon.n_sweeps)

    def solve(
        self, start: Callable[[], Panel], plan: ScalesPlan, panels: Panels, purpose: str = "sketch"
    ) -> tuple[Panel, LastChange]:
        """The sum of all powers of a panel before the last application of A, and the change in the last cycle."""
        n_cycles, heat = plan.solver.n_cycles, self._heat
        state, saved = panels.load(SolveState, lambda state: True) or (SolveState(0), dict[str, Panel]())
        if state.change is None:
            now, before = HeatSolver(self.basis, plan.solver, panels, purpose).solve(start, state, saved)
            change = self.pairs.change(*(self.pairs.shape_images(one) for one in (now, before)))
            before.retire()
            panel = self.basis.rows.part(now, panels)
        else:
            panel, change = saved["panel"], state.change
        spare: Panel | None = None
        for step in range(max(state.step - n_cycles, 0) + 1, plan.filter.first):
            spare = panels.new(panel.shape, panel.dtype) if spare is None else spare
            panel, spare = multiply(heat, panel, spare, purpose), panel
            panels.offer(SolveState(n_cycles + step, change), {"panel": panel})
        if spare is not None:
            spare.retire()
        return panel, change

    def clear(self) -> None:
        """Drop the coarse level."""
        self._panels.clear()
        vars(self).pop("pairs", None)
        vars(self).pop("basis", None)
