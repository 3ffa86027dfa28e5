"""The sum of all powers: A^(m-1) (I - cA)^-1 G, by the two-level solver and m - 1 products.

The system is solved first and multiplied by A after, which smooths away what error is left on near rows. The top
eigenvector is removed before and after: it does not matter for distances, and the sum would be little else.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from scalable_gpe.checks import ALL, Power
from scalable_gpe.execution.context import Context
from scalable_gpe.execution.panels import Panel, Panels
from scalable_gpe.heat.normalization import HeatKernel
from scalable_gpe.multilevel.cycle import CoarseBasis
from scalable_gpe.multilevel.errors import Iterate, SolverError, measure_error
from scalable_gpe.multilevel.horizon import Horizon, choose_horizon
from scalable_gpe.multilevel.solver import HeatSolver, SolverPlan, plan_solver
from scalable_gpe.sketch.powers import multiply
from scalable_gpe.spectral.filters import Filter
from scalable_gpe.storage.keys import horizon_name


@dataclass(frozen=True)
class ScalesPlan:
    """How the sum of all powers is computed: the horizon, the first power, and the plan of the solver."""

    filter: Filter
    solver: SolverPlan
    n_passes: int = 0  # over K, which chose the horizon

    coefficients = ()
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
        return 3 * self.solver.n_cycles - 1 + self.filter.first - 1

    @property
    def warning(self) -> str | None:
        """What to tell the user about slow cycles, or None."""
        return self.solver.warning


class AllScales:
    """The coarse level of a heat kernel, made when it is needed, and what was chosen with it."""

    def __init__(self, heat: HeatKernel, context: Context, name: str) -> None:
        self._heat, self._context, self._name = heat, context, name
        self.panels = Panels(heat.context)

    @cached_property
    def basis(self) -> CoarseBasis:
        """Aggregates and coarse matrices."""
        return CoarseBasis.of(self._heat, self.panels)

    def horizon(self, given: int | str) -> Horizon:
        """The horizon that the user gave, or one by the relaxation time."""
        if isinstance(given, int):
            return Horizon(given)
        return choose_horizon(lambda: self.basis, self._context, horizon_name(self._name))

    def plan(self, horizon: Horizon, first: int, tol: float) -> ScalesPlan:
        """Measure how fast the solver converges, or read it."""
        wanted = Filter(horizon.horizon, cumulative=True, first=first)
        name = f"{self._name}/solver-{horizon.horizon}"
        solver = plan_solver(lambda: self.basis, horizon.horizon, tol, self._context, name)
        return ScalesPlan(wanted, solver, horizon.n_sweeps)

    def clear(self) -> None:
        """Drop the coarse level."""
        self.panels.clear()
        vars(self).pop("basis", None)


@dataclass(frozen=True)
class SolveState:
    """Progress of an interrupted solution, or of the products after it (`phase`)."""

    phase: str
    step: int
    n_sweeps: int
    error: SolverError | None = None


class ScalesIteration:
    """Computes the sum of all powers of one panel; iterating yields it once, before the last application of A.

    `n_sweeps` counts all sweeps, including those before an interruption.
    """

    def __init__(
        self,
        scales: AllScales,
        start: Callable[[], Panel],
        plan: ScalesPlan,
        panels: Panels,
        purpose: str = "sketch",
    ) -> None:
        self._scales, self._start, self._plan, self._panels, self._purpose = scales, start, plan, panels, purpose
        self.n_sweeps = 0
        self.began_with: tuple[Power, ...] = (ALL,)
        self.error: SolverError | None = None

    def __iter__(self) -> Iterator[tuple[Power, Panel]]:
        found = self._panels.load(SolveState, lambda state: state.phase in ("solve", "multiply"))
        state, saved = (None, dict[str, Panel]()) if found is None else found
        self.n_sweeps = 0 if state is None else state.n_sweeps
        if state is not None and state.phase == "multiply":
            panel, done = saved["panel"], state.step
            self.error = state.error
        else:
            panel, done = self._solve(state, saved), 0
        other: Panel | None = None
        heat = self._scales.basis.heat
        for step in range(done, self._plan.filter.first - 1):
            other = self._panels.new(panel.shape, panel.dtype) if other is None else other
            panel, other = multiply(heat, panel, other, self._purpose), panel
            self.n_sweeps += 1
            self._panels.offer(SolveState("multiply", step + 1, self.n_sweeps, self.error), {"panel": panel})
        yield ALL, panel
        for one in (panel, other):
            if one is not None:
                one.retire()

    def _solve(self, state: SolveState | None, saved: dict[str, Panel]) -> Panel:
        basis, begun = self._scales.basis, None
        if state is not None:
            begun = Iterate(state.step, saved["now"], saved.get("before"))

        def offer(iterate: Iterate) -> None:
            self.n_sweeps += 2 if iterate.step == 1 else 3
            panels = {"now": iterate.now} | ({} if iterate.before is None else {"before": iterate.before})
            self._panels.offer(SolveState("solve", iterate.step, self.n_sweeps), panels)

        right = self._start()
        solution = HeatSolver(basis, self._plan.solver, self._panels, self._purpose).solve(right, begun, offer)
        right.retire()
        if solution.before is not None:
            self.error = measure_error(basis, solution, self._plan.solver.remaining)
            solution.before.retire()
        return basis.rows.part(solution.now, self._panels)
