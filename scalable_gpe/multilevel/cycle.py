"""One cycle of two levels for (I - cA) X = B.

A panel holds Z = S M^(1/2) x, for which one application of A is ``Z <- S^2 M K Z`` (see `sketch/powers.py`). A cycle
adds two corrections by the same residual: a step scaled by the diagonal 1 - c A_ii, and one by the aggregates. That
takes one product. (A step before and one after the correction by the aggregates take three, and reduce the error by as
much as two of these cycles.) The basis of the coarse level is the top eigenvector of A cut into aggregates.
"""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy.sparse import csr_array, diags_array

from scalable_gpe.execution.panels import Panel, Panels, replaced
from scalable_gpe.execution.sums import column_totals
from scalable_gpe.graph.edges import Block
from scalable_gpe.heat.normalization import HeatKernel, top_eigenvector
from scalable_gpe.heat.ordinary import OrdinaryRows
from scalable_gpe.heat.sweep import sweep
from scalable_gpe.multilevel.aggregates import RANGE, Aggregates, find_aggregates, range_pieces, ranges_in
from scalable_gpe.multilevel.coarse import Shares, Solver, coarse_solver, solve_in_place

_NEAR = 1e-4  # from NEARLY_ONE: the coarse problem is solved alike
NEARLY_ONE = 1 - 2.0**-30  # a c for I - A, which is singular


@dataclass(frozen=True)
class Residual:
    """``out = right - source + c S^2 M K source``."""

    heat: HeatKernel
    c: float
    right: Panel

    def __call__(self, block: Block, source: np.ndarray, out: np.ndarray) -> None:
        from scalable_gpe.loops import aggregation

        rows = block.first, block.stop
        scale, right = self.c * self.heat.step_scale[slice(*rows)], self.right.rows(*rows)
        aggregation.residual(block.indptr, block.indices, block.values, source, scale, right, block.first, out)


def damping(heat: HeatKernel, c: float, start: int, stop: int) -> np.ndarray:
    """What a step multiplies the residual by: 1 / (1 - c A_ii)."""
    values: np.ndarray = 1 / np.maximum(1 - c * heat.diagonal[start:stop], 1 - min(c, NEARLY_ONE))
    return values


@dataclass(frozen=True)
class CoarseBasis:
    """Aggregates of the rows, the top eigenvector u times the root of their number, and coarse matrices of I and A.

    Rows that are held are left out: u is zero there. The basis `spans_top` if it can represent all of u.
    """

    heat: HeatKernel
    aggregates: Aggregates
    top: Panel
    mass: np.ndarray
    product: csr_array
    spans_top: bool
    _solvers: dict[float, Solver] = field(default_factory=dict, repr=False)

    @staticmethod
    def of(heat: HeatKernel, panels: Panels, held: np.ndarray | None = None) -> "CoarseBasis":
        """Aggregate the rows of a heat kernel that the mask `held` does not name: two passes over K."""
        n_points = heat.kernel.edges.n_points
        unit, length = top_eigenvector(heat), np.sqrt(n_points)

        def free_top(start: int, stop: int) -> np.ndarray:
            values: np.ndarray = length * unit[start:stop]
            return values if held is None else np.where(held[start:stop], 0.0, values)

        top = panels.of(heat.context.filled(n_points, np.float64, free_top))
        root = heat.context.filled(
            n_points, np.float64, lambda start, stop: top.rows(start, stop) * np.sqrt(heat.step_scale[start:stop])
        )
        aggregates, product = find_aggregates(heat, panels, panels.of(root))

        def masses(piece: tuple[int, int]) -> np.ndarray:
            found = []
            for number, start, stop in ranges_in(*piece):
                labels, own = aggregates.labels.rows(start, stop), aggregates.of(number)
                joined = labels >= 0
                squares = top.rows(start, stop)[joined] ** 2
                found.append(np.bincount(labels[joined], squares, own.stop - own.start))
            return np.concatenate(found)

        mass = np.concatenate(heat.context.workers.map(masses, range_pieces(heat.context, n_points), count=False))
        spans_top = bool(mass.sum() >= n_points * (1 - 1e-9))
        mass[mass == 0] = 1.0  # aggregates of held rows alone, which nothing is coupled with
        return CoarseBasis(heat, aggregates, top, mass, product, spans_top)

    @cached_property
    def rows(self) -> OrdinaryRows:
        """All rows, as one component: what lies along the top eigenvector is left out of vectors by it."""
        return OrdinaryRows(self.heat, self.top)

    def solver(self, c: float) -> Solver:
        """A solver of the coarse problem, which is kept; that of I - A, which is singular, for a c near 1."""
        c = min(c, NEARLY_ONE)
        if c not in self._solvers:
            like = self.solver(NEARLY_ONE) if NEARLY_ONE - _NEAR < c < NEARLY_ONE else None
            self._solvers[c] = coarse_solver(csr_array(diags_array(self.mass) - c * self.product), like)
        return self._solvers[c]


class Cycle:
    """Cycles for a given c, on panels with one shape and type; the panel that they work with is kept."""

    def __init__(self, basis: CoarseBasis, c: float, panels: Panels, purpose: str) -> None:
        self.basis, self.c, self._panels, self._purpose = basis, c, panels, purpose
        self._residual: Panel | None = None

    def apply(self, now: Panel | None, right: Panel, target: Panel, shares: Shares = (1.0, 0.0, 0.0)) -> Panel:
        """``target <- a cycle(now) + b now + c target`` for the shares (a, b, c); `now` is zero if it is None."""
        heat, aggregates, top, c = self.basis.heat, self.basis.aggregates, self.basis.top, self.c
        used = shares[0], 0.0 if now is None else shares[0] + shares[1], shares[2]
        residual = right if now is None else self._left_of(now, right)
        shared = self._panels.of(self._solve_coarse(self._restricted(residual)))
        with replaced(target) as fresh:

            def correct(piece: tuple[int, int]) -> None:
                from scalable_gpe.loops import aggregation

                out = target.rows(*piece) if used[2] else fresh.room(*piece)
                left = residual.rows(*piece)
                own = left if now is None else now.rows(*piece)
                for number, start, stop in ranges_in(*piece):
                    rows, labels = slice(start - piece[0], stop - piece[0]), aggregates.labels.rows(start, stop)
                    factor = top.rows(start, stop) * np.sqrt(heat.step_scale[start:stop])
                    coarse = shared.whole()[aggregates.of(number)]
                    damp = damping(heat, c, start, stop)
                    aggregation.correct(left[rows], damp, factor, labels, coarse, own[rows], used, out[rows])
                fresh.put(piece[0], out)

            heat.context.workers.map(correct, range_pieces(heat.context, target.shape[0]), count=False)
        shared.retire()
        return fresh

    def retire(self) -> None:
        """Drop the panel that the cycles worked with."""
        if self._residual is not None:
            self._residual.retire()
        self._residual = None

    def _left_of(self, now: Panel, right: Panel) -> Panel:
        """The residual: one product."""
        heat = self.basis.heat
        spare = self._panels.new(right.shape, right.dtype) if self._residual is None else self._residual
        with replaced(spare) as fresh:
            loop = Residual(heat, self.c, right)
            sweep(heat.kernel, loop, now, fresh, heat.context, purpose=self._purpose)
        self._residual = fresh
        return fresh

    def _restricted(self, residual: Panel) -> np.ndarray:
        """The residual in the basis of the coarse level."""
        from scalable_gpe.loops import aggregation

        heat, aggregates, top = self.basis.heat, self.basis.aggregates, self.basis.top

        def restrict(piece: tuple[int, int]) -> np.ndarray:
            own = slice(piece[0] // RANGE, -(-piece[1] // RANGE))
            first, last = aggregates.offsets[own][0], aggregates.offsets[own.stop]
            out, rows = np.zeros((last - first, residual.shape[1])), residual.rows(*piece)
            for number, start, stop in ranges_in(*piece):
                factor = top.rows(start, stop) / np.sqrt(heat.step_scale[start:stop])
                here = aggregates.of(number)
                values, into = rows[start - piece[0] : stop - piece[0]], out[here.start - first : here.stop - first]
                aggregation.restrict(values, factor, aggregates.labels.rows(start, stop), into)
            return out

        pieces = range_pieces(heat.context, residual.shape[0])
        return np.concatenate(heat.context.workers.map(restrict, pieces, count=False))

    def _solve_coarse(self, right: np.ndarray) -> np.ndarray:
        """The solution on the coarse level, in place of its right side.

        What lies along the top eigenvector is left out if the level is all but singular. Where some rows have no
        aggregate it is not: the constant of the aggregates is then an offset from those rows.
        """
        mass = self.basis.mass[:, None]
        total = mass.sum()
        regular = self.c < NEARLY_ONE or not self.basis.spans_top
        if not regular:
            right -= mass * (column_totals(right) / total)
        solve_in_place(self.basis.solver(self.c), right, self.basis.heat.context.workers.here)
        if not regular:
            right -= column_totals(mass * right) / total
        return right
