"""The coarse level: (M - c C) e = r for the aggregates, by the same method on ever fewer unknowns.

A level is small enough to be solved by its inverse, or it has aggregates of its own. The number of cycles on a level
is fixed, and so is their acceleration: a solution is one linear map, the same for every column.
"""

from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from scipy.sparse import csr_array

from scalable_gpe.execution.process import process
from scalable_gpe.execution.workers import Workers
from scalable_gpe.storage.blocks import ranges

N_STRONG = 8
DENSE = 600
DAMPING = 1.1  # the middle of [0.2, 2], where steps scaled by the diagonal have to be short
_ITERATIONS = 12  # products that find the interval of a level
_SINGULAR = 1e-14  # share of the largest eigenvalue
_TOL = 0.3  # of a coarse solution: it makes steps, which need not be exact
_SPENT = 0.7  # of `tol`: the contraction is measured, not known
_HIGH = 1.33  # upper end of the spectrum of a cycle: 1, and the error of a coarse solution
_LEAST_COLUMNS = 4  # of a thread
_COLUMN_BYTES = 2**25  # of more columns
_GRID = 128  # the interval is rounded outwards to 1/128


Shares: TypeAlias = tuple[float, float, float]
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
        from scalable_gpe.loops import sparse

        right, inverse = np.ascontiguousarray(right), self.inverse
        out = np.empty_like(right)
        sparse.product(inverse.indptr, inverse.indices, inverse.data, right, np.ones(len(right)), out)
        return out


@dataclass(frozen=True)
class Level:
    """A sparse matrix M with diagonal D, and aggregates: some cycles of steps, and corrections by the next level.

    `beside` is I - D^-1 M: what the other unknowns add to each one. `labels` are the aggregates, -1 for none.
    """

    beside: csr_array
    diagonal: np.ndarray
    labels: np.ndarray
    n_aggregates: int
    coarser: Solver
    shares: tuple[Shares, ...] = ()

    @property
    def n_levels(self) -> int:
        """Number of levels from this one on."""
        return 1 + self.coarser.n_levels

    def cycle(self, now: np.ndarray | None, right: np.ndarray, out: np.ndarray, shares: Shares = (1.0, 0, 0)) -> None:
        """Smooth, correct, smooth: ``out <- a cycle(now) + b now + c out`` for the shares (a, b, c).

        `right` is divided by the diagonal; `now` is zero if it is None.
        """
        from scalable_gpe.loops import aggregation

        matrix, ones = (self.beside.indptr, self.beside.indices, self.beside.data), np.ones(len(right))
        step = ones / DAMPING
        x, left = right / DAMPING, np.empty_like(right)
        if now is not None:
            aggregation.relax(*matrix, now, ones, right, step, 0, now, (1.0, 0.0, 0.0), x)
        aggregation.residual(*matrix, x, ones, right, 0, left)
        coarse = np.zeros((self.n_aggregates, right.shape[1]))
        aggregation.restrict(left, self.diagonal, self.labels, coarse)
        aggregation.prolong(x, ones, self.labels, self.coarser.solve(coarse))
        aggregation.relax(*matrix, x, ones, right, step, 0, right if now is None else now, shares, out)

    def solve(self, right: np.ndarray) -> np.ndarray:
        """The accelerated cycles, from zero on."""
        right, now, before = right / self.diagonal[:, None], None, np.empty_like(right)
        for number, (a, b, c) in enumerate(self.shares):  # the vectors before the first two cycles are zero
            self.cycle(now, right, before, (a, b if number else 0.0, c if number > 1 else 0.0))
            now, before = before, np.empty_like(right) if now is None else now
        assert now is not None  # there are two cycles or more
        return now


def solve_in_place(solver: Solver, right: np.ndarray, workers: Workers) -> None:
    """Replace `right` by the solutions, some columns in each thread: columns do not depend on each other."""
    fitting = _COLUMN_BYTES // right[:, :1].nbytes if len(right) else right.shape[1]
    width = max(_LEAST_COLUMNS, min(fitting, -(-right.shape[1] // workers.n_jobs)))

    def solve(columns: tuple[int, int]) -> None:
        right[:, slice(*columns)] = solver.solve(np.ascontiguousarray(right[:, slice(*columns)]))

    workers.map(solve, ranges(right.shape[1], width), count=False)


def coarse_solver(matrix: csr_array, like: "Solver | None" = None) -> Solver:
    """A solver for a symmetric positive matrix whose entries beside the diagonal are not positive.

    `like` is one for nearly the same matrix, whose aggregates and acceleration it takes.
    """
    if matrix.shape[0] <= DENSE:
        return Inverse.of(matrix.toarray())
    diagonal, rows = matrix.diagonal(), np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    labels, count = _aggregates(matrix, diagonal) if not isinstance(like, Level) else (like.labels, like.n_aggregates)
    joined = labels >= 0
    prolongation = csr_array(
        (np.ones(joined.sum()), (np.flatnonzero(joined), labels[joined])), shape=(matrix.shape[0], count)
    )
    coarser = coarse_solver(
        csr_array(prolongation.T @ matrix @ prolongation), like.coarser if isinstance(like, Level) else None
    )
    values = np.where(matrix.indices == rows, 0.0, -matrix.data / diagonal[rows])
    beside = csr_array((values, matrix.indices, matrix.indptr), shape=matrix.shape)
    level = Level(beside, diagonal, labels, count, coarser)
    return replace(level, shares=like.shares if isinstance(like, Level) else _measured_shares(level))


def _aggregates(matrix: csr_array, diagonal: np.ndarray) -> tuple[np.ndarray, int]:
    """Labels of the unknowns, and the number of aggregates."""
    from scalable_gpe.loops import aggregation

    root = np.sqrt(1 / diagonal)
    strength = -matrix.data
    strength *= np.repeat(root, np.diff(matrix.indptr))
    strength *= root[matrix.indices]
    indptr, indices = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32, copy=False)
    labels, count = aggregation.aggregate_rows(indptr, indices, strength, np.zeros(len(root)), N_STRONG)
    return labels, int(count)


def _measured_shares(level: Level) -> tuple[Shares, ...]:
    """The acceleration of the cycles of a level, from the slowest of what they leave of random vectors."""
    x = np.random.default_rng(0).standard_normal((len(level.labels), 4))
    x -= x.mean(axis=0)
    zero, out = np.zeros_like(x), np.empty_like(x)
    for _ in range(_ITERATIONS):
        level.cycle(x, zero, out)
        x = out - out.mean(axis=0)
        rate = np.sqrt((x**2).sum(axis=0))
        x /= rate
    acceleration = Acceleration(rounded_outwards(1 - 1.02 * float(rate.max())), _HIGH)
    return tuple(acceleration.steps(acceleration.cycles(_TOL)))
