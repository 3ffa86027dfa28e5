"""Conjugate gradients for (I - cA) X = B, preconditioned by a cycle of the two-level solver.

Residuals and solutions are in double precision, corrections and directions in single precision: what matters is that
the residual is that of the solution. Vectors are panels Z = S M^(1/2) x, so that inner products of x are
``Z' S^-2 M^-1 Z``. Columns do not depend on each other: one that has ended stays as it is while others go on.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from scalable_gpe.execution.panels import Panel, Panels, replaced, updated
from scalable_gpe.execution.sums import chunk_products, sum_rows
from scalable_gpe.graph.edges import Block
from scalable_gpe.heat.normalization import HeatKernel
from scalable_gpe.heat.ordinary import OrdinaryRows
from scalable_gpe.heat.sweep import sweep
from scalable_gpe.multilevel.cycle import Cycle

_ROUNDING = 1e-26  # share of the first squared residual below which a direction has converged


@dataclass(frozen=True)
class Laplacian:
    """``out = source - c A source``, where A acts between rows that are not held, and heat for others stays."""

    heat: HeatKernel
    rows: OrdinaryRows
    lost: Panel | None = None
    c: float = 1.0

    def __call__(self, block: Block, source: np.ndarray, out: np.ndarray) -> None:
        from scalable_gpe.loops import sparse

        rows = block.first, block.stop
        scale = np.where(self.rows.are_held(*rows), 0.0, self.c * self.heat.step_scale[slice(*rows)])
        sparse.product(block.indptr, block.indices, block.values, source, scale, out)
        kept = 1.0 if self.lost is None else 1 - self.lost.rows(*rows)[:, None]
        np.subtract(source[slice(*rows)] * kept, out, out=out)


@dataclass(frozen=True)
class Coefficients:
    """What is known of each column: the first and the last product of residual and correction, steps and ratios."""

    first: tuple[float, ...]
    last: tuple[float, ...]
    steps: tuple[tuple[float, ...], ...] = ()
    ratios: tuple[tuple[float, ...], ...] = ()

    @property
    def n_steps(self) -> int:
        """Number of steps of the columns that needed most."""
        return len(self.steps)

    def ritz_values(self) -> list[np.ndarray]:
        """Eigenvalues of the matrices that the steps have made, for each column."""
        if not self.steps:
            return [np.ones(1) for _ in self.first]
        return [_tridiagonal(*one) for one in zip(np.transpose(self.steps), np.transpose(self.ratios), strict=True)]


class ConjugateGradients:
    """Some columns: their residuals, directions and, if they are wanted, solutions.

    `clean` gives the part of vectors in the space that is searched, and replaces them.
    """

    def __init__(
        self, laplacian: Laplacian, cycle: Cycle, panels: Panels, clean: Callable[[Panel], Panel], purpose: str
    ) -> None:
        self._laplacian, self._cycle, self._panels, self._clean = laplacian, cycle, panels, clean
        self._heat, self._purpose = laplacian.heat, purpose
        self._image: Panel | None = None
        self._spare: Panel | None = None
        self.sizes = np.zeros(0)  # of the last corrections

    def begin(self, residual: Panel, solution: Panel | None = None) -> None:
        """Begin with some residuals, and the solutions that they belong to."""
        self.residual, self.solution = residual, solution
        self.step = self._correction()
        product = tuple(inner(self._heat, residual, self.step).tolist())
        self.known = Coefficients(product, product)

    def resume(self, known: Coefficients, panels: dict[str, Panel]) -> None:
        """Go on with a state that was saved."""
        self.known = known
        self.residual, self.step, self.solution = (panels[name] for name in ("residual", "step", "solution"))

    @property
    def panels(self) -> dict[str, Panel]:
        """The panels of a state."""
        assert self.solution is not None
        return {"residual": self.residual, "step": self.step, "solution": self.solution}

    def advance(self, ended: np.ndarray | None = None) -> np.ndarray:
        """One step of the columns that have not `ended`: one product. Return the lengths of the steps."""
        heat, product, first = self._heat, np.array(self.known.last), np.array(self.known.first)
        self._image = self._applied(self.step, self._image)
        energy = inner(heat, self.step, self._image)
        moving = (energy > 0) & (product > _ROUNDING * first) & (True if ended is None else ~ended)
        length: np.ndarray = np.divide(product, energy, out=np.zeros_like(product), where=moving)
        self.residual = added(heat, self.residual, self._image, -length)
        if self.solution is not None:
            self.solution = added(heat, self.solution, self.step, length)
        fresh = self._correction()
        later, squares = np.split(inner(heat, fresh, self.residual, fresh), 2)
        ratio = np.divide(later, product, out=np.zeros_like(later), where=moving)
        self.sizes = np.sqrt(squares)
        self.step, self._spare = added(heat, fresh, self.step, ratio), self.step
        known = self.known
        steps, ratios = (*known.steps, tuple(length.tolist())), (*known.ratios, tuple(ratio.tolist()))
        self.known = Coefficients(known.first, tuple(later.tolist()), steps, ratios)
        return length

    def residual_of(self, solution: Panel) -> Panel:
        """The residual of a solution for B = 0."""
        image = self._applied(solution, None)
        residual = added(self._heat, zeros(self._heat, self._panels, image.shape[1]), image, -np.ones(image.shape[1]))
        image.retire()
        return self._clean(residual)

    def _applied(self, vectors: Panel, target: Panel | None) -> Panel:
        """``(I - cA) vectors``: one product."""
        target, context = self._panels.new(vectors.shape, np.float64) if target is None else target, self._heat.context
        with replaced(target) as image:
            sweep(self._heat.kernel, self._laplacian, vectors, image, context, purpose=self._purpose)
        return image

    def _correction(self) -> Panel:
        """What a cycle makes of the residuals, in single precision: a direction need not be exact."""
        spare = self._panels.new(self.residual.shape, np.float32) if self._spare is None else self._spare
        return self._clean(self._cycle.apply(None, self.residual, spare))


def zeros(heat: HeatKernel, panels: Panels, n_columns: int) -> Panel:
    """A panel of zeros."""
    return panels.filled((heat.kernel.edges.n_points, n_columns), np.float64, lambda start, stop: 0)


def random_signs(heat: HeatKernel, panels: Panels, n_columns: int, seed: int) -> Panel:
    """A panel of random signs x."""
    from scalable_gpe.loops import random

    def draw(start: int, stop: int) -> np.ndarray:
        out = np.empty((stop - start, n_columns))
        user_row = heat.kernel.storage_order.user_row[start:stop]
        random.fill_bernoulli(out, user_row, np.arange(n_columns), np.uint64(seed))
        out *= np.sqrt(heat.step_scale[start:stop])[:, None]
        return out

    return panels.filled((heat.kernel.edges.n_points, n_columns), np.float64, draw)


def inner(heat: HeatKernel, left: Panel, *others: Panel) -> np.ndarray:
    """Inner products of the columns of a panel with those of others."""

    def products(start: int, stop: int) -> np.ndarray:
        own, scale = left.rows(start, stop), heat.step_scale[start:stop]
        return np.hstack([chunk_products(own, other.rows(start, stop), scale) for other in others])

    return sum_rows(heat.context, left.shape[0], products)


def added(heat: HeatKernel, vectors: Panel, more: Panel, shares: np.ndarray) -> Panel:
    """``vectors + shares * more``, which replaces `vectors`."""

    def add(start: int, stop: int) -> np.ndarray:
        out = vectors.rows(start, stop)
        out += more.rows(start, stop) * shares
        return out

    return updated(vectors, add, heat.context)


def _tridiagonal(steps: np.ndarray, ratios: np.ndarray) -> np.ndarray:
    """Eigenvalues of the matrix that conjugate gradients have made, until they ended."""
    size = int(np.argmin(steps > 0)) if not (steps > 0).all() else len(steps)
    if size == 0:
        return np.ones(1)
    diagonal = 1 / steps[:size]
    diagonal[1:] += ratios[: size - 1] / steps[: size - 1]
    beside = np.sqrt(np.maximum(ratios[: size - 1], 0.0)) / steps[: size - 1]
    found: np.ndarray = np.linalg.eigvalsh(np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1))
    return found
