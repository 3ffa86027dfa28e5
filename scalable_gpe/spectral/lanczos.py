"""The spectral density of A by stochastic Lanczos quadrature."""

from typing import Any

import numpy as np

from scalable_gpe import checks
from scalable_gpe.execution.panels import Panel, Panels, replaced, updated
from scalable_gpe.execution.sums import row_pieces
from scalable_gpe.heat.kernel import shared_components
from scalable_gpe.heat.normalization import HeatKernel
from scalable_gpe.heat.ordinary import OrdinaryRows
from scalable_gpe.heat.sweep import RecurrenceStep, sweep
from scalable_gpe.multilevel.conjugate_gradients import added, inner
from scalable_gpe.spectral.density import Spectrum

_INTERVAL_STEPS = 16
_GRID = 128  # the lower end is rounded outwards to 1/128
_PROBE_SEED = 0x5EED_0F_A


def spectrum(heat: HeatKernel, *, n_steps: int = 64, n_probes: int | None = None, random_state: Any = 0) -> Spectrum:
    """Spectral density of A from a few random vectors.

    Parameters
    ----------
    heat : HeatKernel
        The operator.
    n_steps : int
        Number of Lanczos steps; powers up to about ``n_steps**2 / 4`` are resolved.
    n_probes : int, optional
        Number of random vectors; 1 to 4 by default, fewer for more points.
    random_state : int
        Seed of the random vectors.

    Returns
    -------
    Spectrum

    Examples
    --------
    >>> import scalable_gpe as gpe
    >>> heat = gpe.heat_kernel(gpe.gaussian_kernel(gpe.neighbor_graph(gpe.datasets.circle(500), 16)))
    >>> ranks = gpe.spectrum(heat).effective_rank([1, 16, 256])
    >>> bool(ranks[0] > ranks[1] > ranks[2])
    True
    """
    n_steps = checks.check_count(n_steps, "n_steps")
    seed = checks.check_random_state(random_state)
    return Lanczos(heat, seed, n_probes).spectrum(n_steps)


def steps_for(power: int) -> int:
    """Number of Lanczos steps that resolve A^power."""
    return int(np.clip(np.ceil(2 * np.sqrt(power)), 8, 384))


class Lanczos:
    """Lanczos iteration on several random vectors at once; the first steps do not depend on how many follow.

    With `ordinary`, isolated rows are left out of the vectors, and so is what no power shrinks within a component of
    the kernel, if there are isolated rows or several components. Then the density is that of the differences between
    ordinary rows of one component.
    """

    def __init__(self, heat: HeatKernel, seed: int, n_probes: int | None = None, *, ordinary: bool = False) -> None:
        self._heat, self._seed, self._context = heat, seed, heat.context
        self._ordinary, self._leaves_out = ordinary, False
        n_points = heat.kernel.edges.n_points
        self._n_probes = n_probes or (4 if n_points <= 50_000 else 2 if n_points <= 250_000 else 1)
        self._panels = Panels(self._context)
        self._alpha: list[np.ndarray] = []
        self._beta: list[np.ndarray] = []
        self._share = np.ones(self._n_probes)
        self._current: Panel | None = None
        self._previous: Panel | None = None

    def spectrum(self, n_steps: int) -> Spectrum:
        """Quadrature of the first `n_steps` steps."""
        self._extend(max(n_steps, _INTERVAL_STEPS))
        nodes, weights = zip(*(self._quadrature(probe, n_steps) for probe in range(self._n_probes)), strict=True)
        return Spectrum(
            nodes=np.concatenate(nodes),
            weights=np.concatenate([w * share for w, share in zip(weights, self._share, strict=True)]) / self._n_probes,
            lower=self._lower(),
            n_points=self._heat.kernel.edges.n_points,
            n_sweeps=len(self._alpha),
        )

    def clear(self) -> None:
        """Drop the vectors: no more steps are needed."""
        self._panels.clear()

    def _quadrature(self, probe: int, n_steps: int) -> tuple[np.ndarray, np.ndarray]:
        """Nodes of one vector, ascending, and their weights, whose sum is 1."""
        from scipy.linalg import eigh_tridiagonal

        size = min(n_steps, self._length(probe))
        diagonal = np.array([alpha[probe] for alpha in self._alpha[:size]])
        off_diagonal = np.array([beta[probe] for beta in self._beta[: size - 1]])
        try:
            nodes, vectors = eigh_tridiagonal(diagonal, off_diagonal)
        except np.linalg.LinAlgError:  # some LAPACKs fail when coefficients are as small as rounding
            matrix = np.diag(diagonal) + np.diag(off_diagonal, 1) + np.diag(off_diagonal, -1)
            nodes, vectors = np.linalg.eigh(matrix)
        return nodes, vectors[0] ** 2

    def _length(self, probe: int) -> int:
        """Number of steps until the iteration of one probe ended (its Krylov space was exhausted)."""
        ended = [step + 1 for step, beta in enumerate(self._beta) if beta[probe] == 0]
        return ended[0] if ended else len(self._alpha)

    def _lower(self) -> float:
        """Lower end of the spectrum as seen by the first steps, with a margin, rounded outwards."""
        lowest = 1.0
        for probe in range(self._n_probes):
            size = min(_INTERVAL_STEPS, self._length(probe))
            nodes, _ = self._quadrature(probe, size)
            lowest = min(lowest, float(nodes[0]) - 0.05 * float(nodes[-1] - nodes[0]) / max(size / 8, 1))
        return float(max(-1.0, np.floor(min(lowest, 0.0) * _GRID) / _GRID))

    def _extend(self, n_steps: int) -> None:
        if self._current is None:
            self._current, self._share = self._start()
            self._previous = self._panels.filled(self._current.shape, np.float64, lambda start, stop: 0)
        missing = n_steps - len(self._alpha)
        with self._context.workers.progress.stage("interval", max(missing, 0)):
            for _ in range(missing):
                self._step()

    def _step(self) -> None:
        """One product and the three-term recurrence, on Z = S x, whose inner product is Z'S^-2 Z.

        The vectors keep their lengths (the betas); factors normalise them where they are used.
        """
        heat, context = self._heat, self._context

        def ordinary_rows(start: int, stop: int) -> np.ndarray:
            """The diagonal of S^2 M with zeros for isolated rows: A between ordinary rows."""
            return np.where(heat.isolated[start:stop], 0.0, heat.step_rows(start, stop))

        assert self._current is not None and self._previous is not None
        current, previous = self._current, self._previous
        norm, norm_before = [*[np.ones(self._n_probes)] * 2, *self._beta][:-3:-1]
        inverse = _inverse(norm)
        before = norm * _inverse(norm_before) if self._beta else np.zeros(self._n_probes)
        with replaced(previous) as image:
            loop = RecurrenceStep(ordinary_rows if self._leaves_out else heat.step_rows, inverse, before)
            sweep(heat.kernel, loop, current, image, context, purpose="interval", update=previous)
        alpha = inner(heat, current, image) * inverse
        fresh = added(heat, image, current, -alpha * inverse)
        beta = np.sqrt(inner(heat, fresh, fresh))
        beta[beta < 1e-10] = 0.0
        self._alpha.append(alpha)
        self._beta.append(beta)
        self._previous, self._current = current, fresh

    def _is_parted(self) -> bool:
        """Whether something must be left out within the components of the kernel."""
        heat = self._heat
        return self._ordinary and (heat.kernel.n_connected_components > 1 or heat.n_isolated_points > 0)

    def _start(self) -> tuple[Panel, np.ndarray]:
        """Random sign vectors of unit length, without the constant direction if centred; and the share left of each."""
        from scalable_gpe.loops import random

        heat, n_points = self._heat, self._heat.kernel.storage_order.n_points
        columns, seed = np.arange(self._n_probes), np.uint64(self._seed ^ _PROBE_SEED)
        probes, top = (self._panels.new((n_points, self._n_probes), np.float64) for _ in range(2))

        def draw(piece: tuple[int, int]) -> None:
            rows, out, constant = slice(*piece), probes.room(*piece), top.room(*piece)
            random.fill_bernoulli(out, heat.kernel.storage_order.user_row[rows], columns, seed)
            out *= np.sqrt(heat.step_scale[rows] / n_points)[:, None]
            constant[:] = np.sqrt(heat.step_scale[rows] * heat.weights[rows] / heat.total_weight)[:, None]
            probes.put(piece[0], out)
            top.put(piece[0], constant)

        blocks = row_pieces(self._context, n_points)
        self._context.workers.map(draw, blocks, count=False)
        self._leaves_out = self._is_parted()
        if not self._leaves_out:
            along = inner(heat, top, probes) if heat.is_centred else np.zeros(self._n_probes)
            left = added(heat, probes, top, -along)
        else:
            roots = shared_components(heat.kernel, self._panels) if heat.kernel.n_connected_components > 1 else None
            ordinary = OrdinaryRows.of(heat, self._panels, np.asarray(heat.isolated[:]), roots)
            left = ordinary.part(probes, self._panels)
        share = inner(heat, left, left)
        top.retire()
        norm = np.sqrt(np.where(share > 0, share, 1.0))

        def normalise(start: int, stop: int) -> np.ndarray:
            out = left.rows(start, stop)
            out /= norm
            return out

        return updated(left, normalise, self._context), share


def _inverse(norm: np.ndarray) -> np.ndarray:
    """1 / norm, and 0 for 0."""
    inverse: np.ndarray = np.where(norm > 0, 1 / np.where(norm > 0, norm, 1.0), 0.0)
    return inverse
