r"""The three problems, for some classes at a time; their solutions are scores g = x / u.

u is the top eigenvector of A, which is constant for a bistochastic kernel. The walk on the rows has the transition
probabilities ``u_i^-1 A_ij u_j``, whose rows sum to 1 for every normalisation.

    spreading:  (I - cA) x = y                                              y: indicators of the labelled rows
    harmonic:   (I - A) x = 0 on rows without a label, x = u y on the others
    poisson:    (I - A) x = (y - mean class) / u                            x without u, in each component
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from scalable_gpe.execution.context import Context
from scalable_gpe.execution.panels import Panel, Panels
from scalable_gpe.heat.kernel import shared_components
from scalable_gpe.heat.normalization import HeatKernel
from scalable_gpe.heat.ordinary import OrdinaryRows
from scalable_gpe.multilevel.conjugate_gradients import Coefficients, ConjugateGradients, Laplacian, inner, zeros
from scalable_gpe.multilevel.cycle import CoarseBasis, Cycle
from scalable_gpe.propagation.labels import Sources
from scalable_gpe.storage.mapped import pieces, take_rows

METHODS = SPREADING, HARMONIC, POISSON = ("spreading", "harmonic", "poisson")
PURPOSE = "labels"  # that sweeps are counted under
USUAL_STEPS, MOST_STEPS = 20, 300
N_LIVE = 7  # panels that are used at the same time
_SURE = 10  # root mean square errors of a score that is not noise
_SAVE_SECONDS = 30.0


@dataclass(frozen=True)
class Solved:
    """How the classes up to `stop` were solved: steps, and the relative error that is left."""

    stop: int
    iterations: int
    residual: float
    converged: bool = True


@dataclass(frozen=True)
class State:
    """Progress of an interrupted solution."""

    coefficients: Coefficients
    errors: tuple[float, ...]


class Scores(NamedTuple):
    """Scores of some classes: what is added to them in each component, and below what there is only noise."""

    solution: Panel
    along: np.ndarray
    noise: np.ndarray
    solved: Solved


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
        return np.where(components[at] == own, at, -1)

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
        return values[np.searchsorted(components, self.groups[0])]

    def count_rows(self) -> tuple[int, int]:
        """Number of the user's rows that no label reaches, and of those that labels of one class alone reach."""
        counts, single = np.zeros(2), (self.shares > 0).sum(axis=1) == 1
        weights = self.heat.kernel.storage_order.weights
        for start, stop in pieces(self.heat.kernel.edges.n_points):
            number, own = self.number(start, stop), weights[start:stop]
            counts += own[number < 0].sum(), own[(number >= 0) & single[number]].sum()
        return int(counts[0]), int(counts[1])


def _taken(panel: Panel, points: np.ndarray) -> np.ndarray:
    return take_rows(panel.whole(points), points)


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

    @contextmanager
    def solve(self, first: int, stop: int) -> Iterator[Scores]:
        """Solve for some classes; their panel is there inside the block."""
        if self._context.store.persistent:
            panels = Panels(self._context, f"{self._name}/saved/{first}-{stop}", _SAVE_SECONDS)
        else:
            panels = Panels(self.heat.context)
        yield self._search(panels, first, stop)
        panels.clear()

    def clear(self) -> None:
        """Drop the coarse level."""
        self._panels.clear()

    def _start(self, panels: Panels, first: int, stop: int) -> Panel:
        """The right sides, or the solution on rows that are held, as Z = S M^(1/2) x."""
        heat, points, (shares, (_, group)) = self.heat, self.sources.points, (self.reached.shares, self.reached.groups)
        nothing = np.zeros_like(shares)
        if self.method == SPREADING:
            factor = take_rows(heat.scale_points, points)
            return self.sources.panel(panels, first, stop, factor, nothing, group)
        root, top = np.sqrt(take_rows(heat.step_scale, points)), _taken(self.rows.top, points)
        if self.method == HARMONIC:
            return self.sources.panel(panels, first, stop, root * top / self.sources.totals, nothing, group)
        return self.sources.panel(panels, first, stop, root / top, shares, group)

    def _search(self, panels: Panels, first: int, stop: int) -> Scores:
        """Conjugate gradients, until the error of each class is below `tol`."""
        heat, c = self.heat, 1 - 1 / self.horizon if self.method == SPREADING else 1.0
        clean = self.rows.free if self.method == HARMONIC else lambda some: self.rows.part(some, panels)
        cycle = Cycle(self.basis, c, panels, PURPOSE)
        search = ConjugateGradients(Laplacian(heat, self.rows, c=c), cycle, panels, clean, PURPOSE)
        right, loaded = self._start(panels, first, stop), panels.load(State, lambda state: True)
        along = np.zeros_like(self.reached.shares[:, first:stop])
        if self.method == SPREADING:  # what lies along u in the right sides, times the horizon
            along = self.horizon * self.reached.among(*self.rows.along_top(right))
        if loaded is None:
            self._begin(search, panels, right)
            errors = np.where(np.array(search.known.first) > 0, np.inf, 0.0)
        else:
            right.retire()
            search.resume(loaded[0].coefficients, loaded[1])
            errors = np.array(loaded[0].errors)
        assert search.solution is not None
        while self._goes_on(search.known, errors):
            moved = search.advance(errors <= self.tol) > 0
            sizes = np.sqrt(inner(heat, search.solution, search.solution))
            lowest = np.array([values.min() for values in search.known.ritz_values()])
            now = np.divide(search.sizes / lowest, sizes, out=np.zeros_like(sizes), where=sizes > 0)
            errors = np.where(moved, now, errors)
            panels.offer(State(search.known, tuple(errors.tolist())), search.panels)
        noise = np.full(stop - first, -np.inf)
        if self.method == SPREADING:
            noise = _SURE * errors * np.sqrt(inner(heat, search.solution, search.solution))
        cycle.retire()
        solved = Solved(stop, search.known.n_steps, float(errors.max()), bool((errors <= self.tol).all()))
        return Scores(search.solution, along, noise, solved)

    def _goes_on(self, known: Coefficients, errors: np.ndarray) -> bool:
        """Whether a class is not solved yet, and still moves."""
        moves = not known.steps or any(known.steps[-1])
        return bool((errors > self.tol).any()) and moves and known.n_steps < MOST_STEPS

    def _begin(self, search: ConjugateGradients, panels: Panels, right: Panel) -> None:
        """From zero on, for right sides without a part along u; or from what rows that are held give to others."""
        if self.method == HARMONIC:
            search.begin(search.residual_of(right), right)
            return
        search.begin(self.rows.part(right, panels), zeros(self.heat, panels, right.shape[1]))
