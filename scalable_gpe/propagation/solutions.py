r"""The three problems, for some classes at a time; their solutions are scores g = x / u.

u is the top eigenvector of A, which is constant for a bistochastic kernel. The walk on the rows has the transition
probabilities ``u_i^-1 A_ij u_j``, whose rows sum to 1 for every normalisation.

    spreading:  (I - cA) x = y                                              y: indicators of the labelled rows
    harmonic:   (I - A) x = 0 on rows without a label, x = u y on the others
    poisson:    (I - A) x = (y - mean class) / u                            x without u, in each component
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from scalable_gpe.execution.context import Context
from scalable_gpe.execution.panels import Panel, Panels
from scalable_gpe.execution.sums import chunk_products, sum_rows
from scalable_gpe.heat.kernel import shared_components
from scalable_gpe.heat.normalization import HeatKernel
from scalable_gpe.heat.ordinary import OrdinaryRows
from scalable_gpe.multilevel.conjugate_gradients import Coefficients, ConjugateGradients, Laplacian, inner, zeros
from scalable_gpe.multilevel.cycle import NEARLY_ONE, CoarseBasis, Cycle
from scalable_gpe.multilevel.errors import Iterate
from scalable_gpe.multilevel.solver import HeatSolver, SolverPlan, plan_solver
from scalable_gpe.propagation.labels import Sources
from scalable_gpe.storage.mapped import pieces, take_ascending

METHODS = SPREADING, HARMONIC, POISSON = ("spreading", "harmonic", "poisson")
PURPOSE = "labels"  # that sweeps are counted under
MOST_STEPS = 300
_CLASSES = 3.0  # what is asked of random columns, below `tol`: the hardest of some classes is harder than they are
_SURE = 10  # root mean square errors of a score that is not noise
_SAVE_SECONDS = 30.0


@dataclass(frozen=True)
class Solved:
    """How some classes were solved: iterations, and the relative error that is left."""

    iterations: int
    residual: float
    converged: bool = True


@dataclass(frozen=True)
class State:
    """Progress of an interrupted solution: cycles of spreading, or steps of conjugate gradients."""

    cycles: int = 0
    coefficients: Coefficients = field(default_factory=lambda: Coefficients((), ()))
    errors: tuple[float, ...] = ()


class Addition(NamedTuple):
    """What is added to scores in each component, and the score of each class below which there is only noise."""

    along: np.ndarray
    noise: np.ndarray


Write = Callable[[Panel, Addition | None], None]


class Reached:
    """The components of K that have labels."""

    def __init__(self, heat: HeatKernel, sources: Sources, panels: Panels) -> None:
        self.heat, self.sources = heat, sources
        self.roots = None if heat.kernel.n_connected_components == 1 else shared_components(heat.kernel, panels)

    @cached_property
    def groups(self) -> tuple[np.ndarray, np.ndarray]:
        """First points of the components with labels, and the number of that of each labelled point."""
        points = self.sources.points
        own = np.zeros(len(points), np.int32) if self.roots is None else _taken(self.roots, points)
        components, number = np.unique(own, return_inverse=True)
        return components, number

    def number(self, start: int, stop: int) -> np.ndarray:
        """Number of the component of each point among those with labels; -1 without."""
        components = self.groups[0]
        own = np.zeros(stop - start, np.int32) if self.roots is None else self.roots.rows(start, stop)
        at = np.minimum(np.searchsorted(components, own), len(components) - 1)
        number: np.ndarray = np.where(components[at] == own, at, -1)
        return number

    @cached_property
    def shares(self) -> np.ndarray:
        """Share of each class among the labels of each component (components x classes)."""
        sources, number = self.sources, self.groups[1][self.sources.number]
        totals = np.zeros((len(self.groups[0]), int(sources.codes.max()) + 1))
        np.add.at(totals, (number, sources.codes), sources.weights)
        shares: np.ndarray = totals / totals.sum(axis=1, keepdims=True)
        return shares

    def among(self, components: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Values of the components with labels, of those of all components."""
        found: np.ndarray = values[np.searchsorted(components, self.groups[0])]
        return found

    def count_rows(self) -> tuple[int, int]:
        """Number of the user's rows that no label reaches, and of those that labels of one class alone reach."""
        counts, single = np.zeros(2), (self.shares > 0).sum(axis=1) == 1
        weights = self.heat.kernel.weights
        for start, stop in pieces(self.heat.kernel.edges.n_points):
            number, own = self.number(start, stop), weights[start:stop]
            counts += own[number < 0].sum(), own[(number >= 0) & single[number]].sum()
        return int(counts[0]), int(counts[1])


def _taken(panel: Panel, points: np.ndarray) -> np.ndarray:
    return take_ascending(panel.whole(points), points)


class Problem:
    """One of the three problems, for all classes; `solve` gives the scores of some of them."""

    def __init__(
        self, heat: HeatKernel, sources: Sources, method: str, horizon: float, tol: float, context: Context, name: str
    ) -> None:
        self.heat, self.sources, self.method, self.horizon, self.tol = heat, sources, method, horizon, tol
        self._context, self._name = context, name
        self._panels = Panels(heat.context)
        self.reached = Reached(heat, sources, self._panels)

    @cached_property
    def held(self) -> np.ndarray | None:
        """Mask of the rows that are held: labelled ones, and those that no label reaches."""
        if self.method != HARMONIC:
            return None
        held = np.zeros(self.heat.kernel.edges.n_points, np.bool_)
        held[self.sources.points] = True
        for start, stop in pieces(len(held)):
            held[start:stop] |= self.reached.number(start, stop) < 0
        return held

    @cached_property
    def rows(self) -> OrdinaryRows:
        """The rows that are not held, and the components."""
        return OrdinaryRows.of(self.heat, self._panels, self.held, self.reached.roots)

    @cached_property
    def basis(self) -> CoarseBasis:
        """Aggregates and coarse matrices, without the rows that are held."""
        return CoarseBasis.of(self.heat, self._panels, self.held)

    @cached_property
    def plan(self) -> SolverPlan:
        """The plan of the solver for spreading."""
        return plan_solver(lambda: self.basis, self.horizon, self.tol / _CLASSES, self._context, f"{self._name}/solver")

    @property
    def usual_steps(self) -> int:
        """Number of cycles or steps that a progress bar expects."""
        return self.plan.n_cycles if self.method == SPREADING else MOST_STEPS // 10

    @property
    def n_live(self) -> int:
        """Number of panels that are used at the same time."""
        return 5 if self.method == SPREADING else 7

    def solve(self, first: int, stop: int, write: Write) -> Solved:
        """Solve for some classes, and `write` the panel of solutions, and what is to be added to scores."""
        if self._context.store.persistent:
            panels = Panels(self._context, f"{self._name}/saved/{first}-{stop}", _SAVE_SECONDS)
        else:
            panels = Panels(self.heat.context)
        kind = self._spread if self.method == SPREADING else self._search
        solved = kind(panels, first, stop, write)
        panels.clear()
        return solved

    def clear(self) -> None:
        """Drop the coarse level."""
        self._panels.clear()

    def _start(self, panels: Panels, first: int, stop: int) -> Panel:
        """The right sides, or the solution on rows that are held, as Z = S M^(1/2) x."""
        heat, points = self.heat, self.sources.points
        if self.method == SPREADING:
            return self.sources.panel(panels, first, stop, take_ascending(heat.scale_points, points), None)
        root, top = np.sqrt(take_ascending(heat.step_scale, points)), _taken(self.rows.top, points)
        if self.method == HARMONIC:
            return self.sources.panel(panels, first, stop, root * top / self.sources.totals, None)
        means = self.reached.shares, self.reached.groups[1]
        return self.sources.panel(panels, first, stop, root / top, means)

    def _spread(self, panels: Panels, first: int, stop: int, write: Write) -> Solved:
        """The fixed cycles, for what does not lie along u: that is multiplied by the horizon."""
        plan, loaded = self.plan, panels.load(State, lambda state: state.cycles > 0)
        begun = None if loaded is None else Iterate(loaded[0].cycles, loaded[1]["now"], loaded[1].get("before"))

        def offer(iterate: Iterate) -> None:
            saved = {"now": iterate.now} | ({} if iterate.before is None else {"before": iterate.before})
            panels.offer(State(iterate.step), saved)

        right = self._start(panels, first, stop)
        components, along = self.rows.along_top(right)
        right = self.rows.part(right, panels)
        found = HeatSolver(self.basis, plan, panels, PURPOSE).solve(right, begun, offer)
        right.retire()
        assert found.before is not None
        now, before = (self.rows.part(one, panels) for one in (found.now, found.before))
        shares = self.horizon * self.reached.among(components, along)
        squares = inner(self.heat, now, now) + self._squares_along(shares)
        error = np.sqrt(self._changes(now, before)) * plan.remaining
        before.retire()
        write(now, Addition(shares, _SURE * error))
        now.retire()
        residual = float((error / np.sqrt(squares)).max())
        return Solved(plan.n_cycles, residual, residual <= self.tol)

    def _changes(self, now: Panel, before: Panel) -> np.ndarray:
        heat = self.heat

        def squares(start: int, stop: int) -> np.ndarray:
            change = now.rows(start, stop) - before.rows(start, stop)
            return chunk_products(change, change, heat.step_scale[start:stop])

        return sum_rows(heat.context, now.shape[0], squares)

    def _squares_along(self, shares: np.ndarray) -> np.ndarray:
        """Squared length of u on each component with labels, times the squares of shares of it."""
        lengths, top = np.zeros(len(shares)), self.rows.top
        for start, stop in pieces(self.heat.kernel.edges.n_points):
            number = self.reached.number(start, stop)
            np.add.at(lengths, number[number >= 0], top.rows(start, stop)[number >= 0] ** 2)
        total: np.ndarray = (lengths[:, None] * shares**2).sum(axis=0)
        return total

    def _search(self, panels: Panels, first: int, stop: int, write: Write) -> Solved:
        """Conjugate gradients, until the error of each class is below `tol`."""
        heat, basis = self.heat, self.basis
        clean = self.rows.free if self.method == HARMONIC else lambda some: self.rows.part(some, panels)
        laplacian = Laplacian(heat, self.rows)
        cycle = Cycle(basis, 1.0, panels, PURPOSE, basis.solver(NEARLY_ONE))
        search = ConjugateGradients(laplacian, cycle, panels, clean, PURPOSE)
        loaded = panels.load(State, lambda state: state.cycles == 0)
        if loaded is None:
            self._begin(search, panels, first, stop)
            errors = np.where(np.array(search.known.first) > 0, np.inf, 0.0)
        else:
            search.resume(loaded[0].coefficients, loaded[1])
            errors = np.array(loaded[0].errors)
        assert search.solution is not None
        squares = inner(heat, search.solution, search.solution)
        while (errors > self.tol).any() and search.known.n_steps < MOST_STEPS:
            ended = errors <= self.tol
            moved = search.advance(ended)
            squares = inner(heat, search.solution, search.solution)
            lowest = np.array([values.min() for values in search.known.ritz_values()])
            now = np.divide(search.sizes / lowest, np.sqrt(squares), out=np.zeros_like(squares), where=squares > 0)
            errors = np.where(ended, errors, np.where(moved > 0, now, 0.0))
            panels.offer(State(0, search.known, tuple(errors.tolist())), search.panels)
        write(search.solution, None)
        cycle.retire()
        converged = bool((errors <= self.tol).all())
        return Solved(search.known.n_steps, float(errors.max()), converged)

    def _begin(self, search: ConjugateGradients, panels: Panels, first: int, stop: int) -> None:
        """Right sides without a part along u, from zero on; or what rows that are held give to others."""
        given = self._start(panels, first, stop)
        if self.method == HARMONIC:
            search.begin(search.residual_of(given), given)
            return
        search.begin(self.rows.part(given, panels), zeros(self.heat, panels, given.shape[1]))
