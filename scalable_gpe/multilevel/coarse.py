"""The coarse level: (M - c C) e = r for the aggregates, by the same method on ever fewer unknowns.

A level is small enough to be solved by its inverse, or it has aggregates of its own. The number of cycles on a level
is fixed, and so is their acceleration: a solution is one linear map, the same for every column.
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from scipy.sparse import csr_array

from scalable_gpe.execution.process import process
from scalable_gpe.execution.workers import Workers
from scalable_gpe.storage.blocks import ranges

N_STRONG = 4
DENSE = 600
DAMPING = 1.1  # the middle of [0.2, 2], where steps scaled by the diagonal have to be short
_ITERATIONS = 20  # products that find the interval of a level
_SINGULAR = 1e-14  # share of the largest eigenvalue
_TOL = 0.0125  # of a coarse solution
_SPENT = 0.7  # of `tol`: the contraction is measured, not known
HIGH = 1.05  # upper end of the spectrum of a cycle: 1, and the error of a coarse solution
_LEAST_COLUMNS = 4  # of a thread
_COLUMN_BYTES = 2**25  # of more columns
_GRID = 128  # the interval is rounded outwards to 1/128


Solver: TypeAlias = "Inverse | Level"  # a fixed linear map, near the inverse of a matrix


@dataclass(frozen=True)
class Acceleration:
    """Chebyshev acceleration of a cycle for an interval [low, high] of its spectrum, with fixed coefficients."""

    low: float
    high: float

    @property
    def _ratio(self) -> float:
        return (self.high - self.low) / (self.high + self.low)

    @property
    def contraction(self) -> float:
        """Factor by which a cycle reduces the error in the long run."""
        ratio = self._ratio
        return ratio / (1 + float(np.sqrt(1 - ratio**2)))

    def steps(self, count: int) -> list[tuple[float, float, float]]:
        """Shares (a, b, c) of each step: ``x_next = a cycle(x) + b x + c x_before``."""
        gamma, weight, found = 2 / (self.high + self.low), 1.0, []
        for number in range(count):
            if number == 1:
                weight = 1 / (1 - self._ratio**2 / 2)
            elif number > 1:
                weight = 1 / (1 - self._ratio**2 * weight / 4)
            found.append((weight * gamma, weight * (1 - gamma), 1 - weight))
        return found

    def cycles(self, tol: float) -> int:
        """Number of cycles after which the error is about `tol`."""
        return max(2, int(np.ceil(np.log(_SPENT * tol) / np.log(self.contraction))))


def rounded_outwards(low: float) -> float:
    """A lower end of an interval, with a margin."""
    return float(max(np.floor(low * _GRID), 0.5) / _GRID)


@dataclass(frozen=True)
class Inverse:
    """The inverse of a small matrix; what lies along `top` is left out, if there is one."""

    inverse: csr_array
    n_levels = 1

    @staticmethod
    def of(matrix: np.ndarray) -> "Inverse":
        """Invert a positive matrix; directions without a share in it, such as a constant if c is 1, are left out."""
        with process.one_blas_thread():
            values, vectors = np.linalg.eigh(matrix)
            kept = values > _SINGULAR * values.max(initial=0.0)
            inverse = (vectors[:, kept] / values[kept]) @ vectors[:, kept].T
        return Inverse(csr_array(inverse))

    def solve(self, right: np.ndarray) -> np.ndarray:
        """The solution for each column of `right`."""
        return np.asarray(self.inverse @ right)


@dataclass(frozen=True)
class Level:
    """A sparse matrix with aggregates: some cycles of steps, and corrections by the next level."""

    matrix: csr_array
    step: np.ndarray
    restriction: csr_array
    prolongation: csr_array
    coarser: Solver
    shares: tuple[tuple[float, float, float], ...] = ()

    @property
    def n_levels(self) -> int:
        """Number of levels from this one on."""
        return 1 + self.coarser.n_levels

    def cycle(self, x: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Smooth, correct, smooth."""
        x = x + self.step * (right - self.matrix @ x)
        x = x + self.prolongation @ self.coarser.solve(self.restriction @ (right - self.matrix @ x))
        smooth: np.ndarray = x + self.step * (right - self.matrix @ x)
        return smooth

    def solve(self, right: np.ndarray) -> np.ndarray:
        """The accelerated cycles, from zero on."""
        before = now = np.zeros_like(right)
        for a, b, c in self.shares:
            before, now = now, a * self.cycle(now, right) + b * now + c * before
        return now


def solve_in_place(solver: Solver, right: np.ndarray, workers: Workers) -> None:
    """Replace `right` by the solutions, some columns in each thread: columns do not depend on each other."""
    fitting = _COLUMN_BYTES // right[:, :1].nbytes if len(right) else right.shape[1]
    width = max(_LEAST_COLUMNS, min(fitting, -(-right.shape[1] // workers.n_jobs)))

    def solve(columns: tuple[int, int]) -> None:
        right[:, slice(*columns)] = solver.solve(np.ascontiguousarray(right[:, slice(*columns)]))

    workers.map(solve, ranges(right.shape[1], width), count=False)


def coarse_solver(matrix: csr_array) -> Solver:
    """A solver for a symmetric positive matrix whose entries beside the diagonal are not positive."""
    from scalable_gpe.loops import aggregation

    if matrix.shape[0] <= DENSE:
        return Inverse.of(matrix.toarray())
    diagonal = matrix.diagonal()
    indptr, indices = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32, copy=False)
    root = np.sqrt(1 / diagonal)
    strength = -matrix.data
    strength *= np.repeat(root, np.diff(matrix.indptr))
    strength *= root[matrix.indices]
    labels, count = aggregation.aggregate_rows(indptr, indices, strength, np.zeros(len(root)), N_STRONG)
    joined = labels >= 0
    prolongation = csr_array(
        (np.ones(joined.sum()), (np.flatnonzero(joined), labels[joined])), shape=(matrix.shape[0], count)
    )
    restriction = csr_array(prolongation.T)
    coarser = coarse_solver(csr_array(restriction @ matrix @ prolongation))
    step = (1 / (DAMPING * diagonal))[:, None]
    level = Level(matrix, step, restriction, prolongation, coarser)
    x = np.random.default_rng(0).standard_normal((matrix.shape[0], 4))
    x -= x.mean(axis=0)
    zero = np.zeros_like(x)
    for _ in range(_ITERATIONS):
        x = level.cycle(x, zero)
        x -= x.mean(axis=0)
        rate = np.sqrt((x**2).sum(axis=0))
        x /= rate
    acceleration = Acceleration(rounded_outwards(1 - 1.02 * float(rate.max())), HIGH)
    shares = acceleration.steps(acceleration.cycles(_TOL))
    return Level(matrix, step, restriction, prolongation, coarser, tuple(shares))
