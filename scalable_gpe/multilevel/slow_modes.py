"""Slow modes: the eigenvectors of A with the largest eigenvalues, by LOBPCG with the cycles of the solver.

Vectors are panels Z = S M^(1/2) x, so that inner products of x are ``Z' S^-2 M^-1 Z``. In every step the space of the
current vectors, their preconditioned residuals and the last changes is searched for the best vectors (Knyazev, 2001).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from scalable_gpe.execution.panels import Panel, Panels
from scalable_gpe.execution.process import process
from scalable_gpe.execution.sums import CHUNK, row_pieces, sum_rows
from scalable_gpe.heat.ordinary import OrdinaryRows
from scalable_gpe.heat.sweep import sweep
from scalable_gpe.multilevel.aggregates import RANGE
from scalable_gpe.multilevel.coarse import Acceleration, solve_in_place
from scalable_gpe.multilevel.conjugate_gradients import Laplacian
from scalable_gpe.multilevel.cycle import NEARLY_ONE, CoarseBasis, Cycle
from scalable_gpe.storage.blocks import ranges

_DEPENDENT = 1e-11  # directions with a smaller share of the space that is searched are left out
_NOISE_ROWS = 8191
_ACCELERATION = Acceleration(0.1, 3.4)  # of the cycles of a step; their spectrum ends below 2 + 1.33
_COARSE_STEPS = 8  # products with the coarse inverse that find where to begin


class Mode(NamedTuple):
    """How fast a mode decays, 1 - eigenvalue; the share of the rows that it lives on; its residual."""

    decay: float
    share: float
    residual: float

    @property
    def time(self) -> float:
        """The steps within which it decays."""
        return 1 / self.decay if self.decay > 0 else np.inf


@dataclass
class Subspace:
    """Some vectors, and what I - A makes of them."""

    vectors: Panel
    images: Panel

    def retire(self) -> None:
        """Drop the panels."""
        self.vectors.retire()
        self.images.retire()


@dataclass
class ModeSearch:
    """LOBPCG for the slow modes of the rows that are not held; `decays` ascend."""

    basis: CoarseBasis
    rows: OrdinaryRows
    panels: Panels
    lost: Panel | None = None
    n_cycles: int = 2  # of each step: more where vectors are many, and combining them takes most of the time
    decays: np.ndarray = field(default_factory=lambda: np.zeros(0))
    current: Subspace | None = None
    _last: Subspace | None = None
    _cycle: Cycle | None = None

    def begin(self, n_modes: int) -> None:
        """Begin with the slow modes of the coarse level."""
        self._cycle = Cycle(self.basis, NEARLY_ONE, self.panels, "interval")
        heat, aggregates, top = self.basis.heat, self.basis.aggregates, self.basis.top
        coarse = np.random.default_rng(0).standard_normal((aggregates.count, n_modes))
        mass = np.sqrt(self.basis.mass)[:, None]
        constant = mass / np.linalg.norm(mass)
        for _ in range(_COARSE_STEPS):
            coarse = coarse - constant * (constant.T @ coarse)
            coarse = mass * coarse
            solve_in_place(self.basis.solver(NEARLY_ONE), coarse, heat.context.workers.here)
            coarse *= mass
            coarse = np.linalg.qr(coarse)[0] if aggregates.count >= n_modes else coarse
        shared = self.panels.of(np.ascontiguousarray(coarse / mass))
        largest = float(np.abs(shared.whole()).max())
        noise = np.random.default_rng([0, 1]).standard_normal((_NOISE_ROWS, n_modes))

        def spread(start: int, stop: int) -> np.ndarray:
            labels, first = aggregates.labels.rows(start, stop), aggregates.offsets[np.arange(start, stop) // RANGE]
            out = np.where(labels[:, None] >= 0, shared.whole()[labels + first], 0.0)
            out += 1e-3 * largest * noise[np.arange(start, stop) % _NOISE_ROWS]  # for rows without an aggregate
            out *= (top.rows(start, stop) * np.sqrt(heat.step_scale[start:stop]))[:, None]
            return out

        vectors = self.panels.filled((heat.kernel.edges.n_points, n_modes), np.float64, spread)
        shared.retire()
        self._search([self._subspace(vectors)], n_modes)

    def step(self) -> None:
        """One step: as many products as it has cycles."""
        assert self.current is not None and self._cycle is not None
        residuals = self._residuals()
        changes, before = None, self.panels.new(residuals.shape, residuals.dtype)
        for number, (a, b, c) in enumerate(_ACCELERATION.steps(self.n_cycles)):
            used = (a, b if number else 0.0, c if number > 1 else 0.0)
            spare = self.panels.new(residuals.shape, residuals.dtype) if changes is None else changes
            changes, before = self._cycle.apply(changes, residuals, before, used), spare
        assert changes is not None
        before.retire()
        residuals.retire()
        spaces = [self.current, self._subspace(changes), *([] if self._last is None else [self._last])]
        self._search(spaces, self.current.vectors.shape[1])

    def modes(self) -> list[Mode]:
        """What is known of each vector."""
        assert self.current is not None
        heat, vectors, images = self.basis.heat, self.current.vectors, self.current.images
        decays, n_rows = self.decays, heat.total_weight

        def moments(start: int, stop: int) -> np.ndarray:
            from scalable_gpe.loops import aggregation

            found, values, products = [], vectors.rows(start, stop), images.rows(start, stop)
            for first, last in ranges(stop - start, CHUNK):
                out, rows = np.zeros((3, len(decays))), slice(start + first, start + last)
                scale, weights = heat.step_scale[rows], heat.weights[rows]
                aggregation.moments(values[first:last], products[first:last], decays, scale, weights, out)
                found.append(out.ravel())
            return np.array(found)

        second, fourth, off = sum_rows(heat.context, vectors.shape[0], moments).reshape(3, -1)
        shares = second**2 / np.where(fourth > 0, fourth, 1.0) / n_rows
        residuals = np.sqrt(off / np.where(second > 0, second, 1.0))
        return [Mode(*map(float, one)) for one in zip(decays, shares, residuals, strict=True)]

    def _subspace(self, vectors: Panel) -> Subspace:
        """The part of some vectors on the rows that count, and what I - A makes of it: one product."""
        part = self.rows.part(vectors, self.panels)
        images = self.panels.new(part.shape, np.float64)
        heat = self.basis.heat
        sweep(heat.kernel, Laplacian(heat, self.rows, self.lost), part, images, heat.context, purpose="interval")
        return Subspace(part, images)

    def _residuals(self) -> Panel:
        """In single precision: what a cycle makes of them need not be exact."""
        assert self.current is not None
        vectors, images, decays = self.current.vectors, self.current.images, self.decays

        def subtract(start: int, stop: int) -> Any:
            return images.rows(start, stop) - vectors.rows(start, stop) * decays

        return self.panels.filled(vectors.shape, np.float32, subtract)

    def _search(self, spaces: list[Subspace], n_modes: int) -> None:
        """Find the best vectors in some subspaces together."""
        with process.one_blas_thread():
            inner, energy = self._gram(spaces)
            values, shares = _lowest(inner, energy, n_modes)
            found = self._combined(spaces, shares)
            changes = None
            if len(spaces) > 1:
                later = shares.copy()
                later[: spaces[0].vectors.shape[1]] = 0
                changes = self._combined(spaces[1:], later[spaces[0].vectors.shape[1] :])
        for space in spaces:
            space.retire()
        self.current, self._last, self.decays = found, changes, values

    def _gram(self, spaces: Sequence[Subspace]) -> tuple[np.ndarray, np.ndarray]:
        """Inner products of all vectors, and with what I - A makes of them; chunks are added in order."""
        heat = self.basis.heat

        def products(piece: tuple[int, int]) -> list[np.ndarray]:
            found = []
            for start, stop in ranges(piece[1] - piece[0], CHUNK):
                rows = piece[0] + start, piece[0] + stop
                vectors = np.hstack([one.vectors.rows(*rows) for one in spaces])
                images = np.hstack([one.images.rows(*rows) for one in spaces])
                left = (vectors / heat.step_scale[slice(*rows)][:, None]).T
                found.append(np.hstack([left @ vectors, left @ images]))
            return found

        parts = heat.context.workers.map(products, row_pieces(heat.context, spaces[0].vectors.shape[0]), count=False)
        total = np.zeros_like(parts[0][0])
        for part in parts:
            for chunk in part:
                total += chunk
        inner, energy = np.hsplit(total, 2)
        return (inner + inner.T) / 2, (energy + energy.T) / 2

    def _combined(self, spaces: Sequence[Subspace], shares: np.ndarray) -> Subspace:
        """Combinations of the vectors of all subspaces, and of their images."""
        context, shape = self.basis.heat.context, (spaces[0].vectors.shape[0], shares.shape[1])
        made = Subspace(self.panels.new(shape, np.float64), self.panels.new(shape, np.float64))
        sources = [one.vectors for one in spaces], [one.images for one in spaces]

        def combine(piece: tuple[int, int]) -> None:
            for target, panels in zip((made.vectors, made.images), sources, strict=True):
                out = target.room(*piece)
                for start, stop in ranges(piece[1] - piece[0], CHUNK):
                    rows = [one.rows(piece[0] + start, piece[0] + stop) for one in panels]
                    np.matmul(np.hstack(rows), shares, out=out[start:stop])
                target.put(piece[0], out)

        context.workers.map(combine, row_pieces(context, shape[0]), count=False)
        return made


def _lowest(inner: np.ndarray, energy: np.ndarray, n_modes: int) -> tuple[np.ndarray, np.ndarray]:
    """The lowest values of ``energy v = value inner v``, and such v; dependent directions are left out."""
    length = np.sqrt(np.maximum(np.diag(inner), 0.0))
    scale = np.divide(1.0, length, out=np.zeros_like(length), where=length > 0)
    values, vectors = np.linalg.eigh(inner * np.outer(scale, scale))
    kept = values > _DEPENDENT * values[-1]
    basis = scale[:, None] * (vectors[:, kept] / np.sqrt(values[kept]))
    decays, rotation = np.linalg.eigh(basis.T @ energy @ basis)
    shares = basis @ rotation[:, :n_modes]
    missing = n_modes - shares.shape[1]
    if missing > 0:
        shares = np.hstack([shares, np.zeros((len(shares), missing))])
        decays = np.concatenate([decays, np.full(missing, 2.0)])
    return decays[:n_modes], np.ascontiguousarray(shares)
