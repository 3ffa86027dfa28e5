"""The spectral density of A by stochastic Lanczos quadrature: its lower end, and what A^p leaves of G."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from scalable_gpe.engine import checks
from scalable_gpe.engine.tables import ranges
from scalable_gpe.heat.normalization import HeatKernel

_INTERVAL_STEPS = 16
_GRID = 128  # the lower end is rounded outwards to 1/128
_PROBE_SEED = 0x5EED_0F_A


@dataclass(frozen=True)
class Spectrum:
    """Quadrature of the spectral density: `nodes` in [-1, 1] and `weights` that sum to the share of the space left.

    ``size(p)`` is |A^p G| / |G| for a random G; ``effective_rank(p)`` is (tr A^2p)^2 / tr A^4p.
    """

    nodes: np.ndarray
    weights: np.ndarray
    lower: float
    n_points: int
    n_sweeps: int

    def size(self, power: int) -> float:
        """Root mean square of the eigenvalues to the power p."""
        return float(np.sqrt((self.weights * np.abs(self.nodes) ** (2.0 * power)).sum()))

    def effective_rank(self, power: Any) -> Any:
        """Number of directions that A^p keeps: (tr A^2p)^2 / tr A^4p; for a sequence of powers, an array."""
        if np.ndim(power):
            return np.array([self.effective_rank(one) for one in power])
        second = (self.weights * np.abs(self.nodes) ** (2.0 * power)).sum()
        fourth = (self.weights * np.abs(self.nodes) ** (4.0 * power)).sum()
        return float(self.n_points * second**2 / fourth) if fourth > 0 else 0.0


def spectrum(heat: HeatKernel, *, n_steps: int = 64, n_probes: int | None = None, random_state: Any = 0) -> Spectrum:
    """Spectral density of A from a few random vectors.

    Parameters
    ----------
    heat : HeatKernel
        The operator.
    n_steps : int
        Lanczos steps; powers up to about ``n_steps**2 / 4`` are resolved.
    n_probes : int, optional
        Random vectors; 1 to 4 by default, fewer for more points.
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
    """Lanczos steps that resolve A^power."""
    return int(np.clip(np.ceil(2 * np.sqrt(power)), 8, 256))


class Lanczos:
    """Lanczos iteration on several random vectors at once; the first steps are the same however many follow."""

    def __init__(self, heat: HeatKernel, seed: int, n_probes: int | None = None) -> None:
        self._heat, self._seed = heat, seed
        n_points = heat.kernel.edges.n_points
        self._n_probes = n_probes or (4 if n_points <= 50_000 else 2 if n_points <= 250_000 else 1)
        self._scale = heat.step_scale
        self._weight = 1 / self._scale
        self._alpha: list[np.ndarray] = []
        self._beta: list[np.ndarray] = []
        self._share = np.ones(self._n_probes)
        self._current: np.ndarray | None = None
        self._previous: np.ndarray | None = None

    def spectrum(self, n_steps: int) -> Spectrum:
        """Quadrature of the first `n_steps` steps."""
        self._extend(max(n_steps, _INTERVAL_STEPS))
        nodes, weights = zip(*(self._quadrature(probe, n_steps) for probe in range(self._n_probes)), strict=True)
        points = self._heat.kernel.edges.n_points
        return Spectrum(
            np.concatenate(nodes), np.concatenate(weights) / self._n_probes, self._lower(), points, len(self._alpha)
        )

    def _quadrature(self, probe: int, n_steps: int) -> tuple[np.ndarray, np.ndarray]:
        from scipy.linalg import eigh_tridiagonal

        size = min(n_steps, self._length(probe))
        diagonal = np.array([alpha[probe] for alpha in self._alpha[:size]])
        beside = np.array([beta[probe] for beta in self._beta[: size - 1]])
        nodes, vectors = eigh_tridiagonal(diagonal, beside)
        return nodes, vectors[0] ** 2 * self._share[probe]

    def _length(self, probe: int) -> int:
        """Steps until the iteration of one probe ended (its Krylov space was exhausted)."""
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
            self._previous = np.zeros_like(self._current)
        missing = n_steps - len(self._alpha)
        with self._heat.run.workers.progress.stage("interval", max(missing, 0)):
            for _ in range(missing):
                self._step()
                self._heat.run.workers.progress.advance()

    def _step(self) -> None:
        """One product and the three-term recurrence, on Z = S x (see `powers`), whose inner product is Z'S^-2 Z.

        The vectors keep their lengths (the betas); factors normalise them where they are used.
        """
        from scalable_gpe.engine.kernels import sparse

        heat, edges, workers = self._heat, self._heat.kernel.edges, self._heat.run.workers
        assert self._current is not None and self._previous is not None
        current, image = self._current, self._previous
        norms = [np.ones(self._n_probes), np.ones(self._n_probes), *self._beta]
        inverse, earlier = (np.where(norm > 0, 1 / np.where(norm > 0, norm, 1.0), 0.0) for norm in norms[:-3:-1])
        before = norms[-1] * earlier if self._beta else np.zeros(self._n_probes)

        def multiply(block: int) -> None:
            first, indptr, indices, weights = edges.block(block)
            scale = self._scale[first : first + len(indptr) - 1]
            sparse.lanczos_step(indptr, indices, weights, current, image, scale, first, inverse, before)

        workers.map(multiply, range(edges.n_blocks), count=False)
        heat.run.count_sweep("interval")
        alpha = self._inner(current, image) * inverse
        workers.map(
            lambda piece: sparse.subtract(image[slice(*piece)], current[slice(*piece)], alpha * inverse),
            ranges(len(image), edges.block_rows),
            count=False,
        )
        beta = np.sqrt(self._inner(image, image))
        beta[beta < 1e-10] = 0.0
        self._alpha.append(alpha)
        self._beta.append(beta)
        self._previous, self._current = current, image

    def _inner(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return self._heat.kernel.numbering.inner(left, right, self._weight, self._heat.run.workers)

    def _start(self) -> tuple[np.ndarray, np.ndarray]:
        """Random signs of unit length, without the constant direction where that is removed; and what is left."""
        from scalable_gpe.engine.kernels import random

        heat, numbering = self._heat, self._heat.kernel.numbering
        n_points = numbering.n_points
        probes = np.empty((n_points, self._n_probes))
        columns = np.arange(self._n_probes)
        random.fill_bernoulli(probes, numbering.user_row, columns, np.uint64(self._seed ^ _PROBE_SEED))
        probes *= np.sqrt(self._scale / n_points)[:, None]
        if heat.is_centred:
            top = np.sqrt(self._scale * heat.weights / heat.weights.sum())[:, None] * np.ones(self._n_probes)
            probes -= self._inner(top, probes) * top
        share = self._inner(probes, probes)
        return probes / np.sqrt(np.where(share > 0, share, 1.0)), share


def symmetric_product(heat: HeatKernel, vectors: np.ndarray) -> np.ndarray:
    """``A V`` in the space of distinct points, storage order, float64: one sweep."""
    from scalable_gpe.engine.kernels import sparse

    root = np.sqrt(heat.step_scale)
    scaled = np.ascontiguousarray(root[:, None] * vectors)
    out = np.empty_like(scaled)

    def one(block: int) -> None:
        first, indptr, indices, weights = heat.kernel.edges.block(block)
        rows = slice(first, first + len(indptr) - 1)
        sparse.product(indptr, indices, weights, scaled, root[rows], out[rows])

    heat.run.workers.map(one, range(heat.kernel.edges.n_blocks), count=False)
    heat.run.count_sweep("interval")
    return out
