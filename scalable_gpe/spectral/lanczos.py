"""The spectral density of A by stochastic Lanczos quadrature, and the size of A^p G."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from scalable_gpe import checks
from scalable_gpe.execution.panels import Panel, Panels, replaced, updated
from scalable_gpe.heat.kernel import shared_components
from scalable_gpe.heat.normalization import HeatKernel
from scalable_gpe.heat.ordinary import OrdinaryRows
from scalable_gpe.heat.sweep import RecurrenceStep, sweep
from scalable_gpe.multilevel.conjugate_gradients import added, inner, random_signs, zeros

FEW_DIRECTIONS = 4.0  # effective rank below which a power is too large
_PROBE_SEED = 0x5EED_0F_A


@dataclass(frozen=True)
class Spectrum:
    """Quadrature of the spectral density of A.

    ``size(p)`` is ``|A^p G| / |G|`` for a random G; ``effective_rank(p)`` is (tr A^2p)^2 / tr A^4p.

    Attributes
    ----------
    nodes, weights : ndarray
        Eigenvalues in [-1, 1] and the share of the spectrum that each stands for. The shares sum to 1 (less if G is
        centred).
    n_points : int
        Number of distinct rows, the number of eigenvalues.
    n_sweeps : int
        Passes over K that were made.
    """

    nodes: np.ndarray
    weights: np.ndarray
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
        self._heat, self._seed = heat, seed
        self._is_parted = ordinary and (heat.kernel.n_connected_components > 1 or heat.n_isolated_points > 0)
        n_points = heat.kernel.edges.n_points
        self._n_probes = n_probes or (4 if n_points <= 50_000 else 2 if n_points <= 250_000 else 1)
        self._panels = Panels(heat.context)
        self._alpha: list[np.ndarray] = []
        self._beta: list[np.ndarray] = []
        self._current: Panel
        self._previous: Panel

    def spectrum(self, n_steps: int) -> Spectrum:
        missing = n_steps - len(self._alpha)
        with self._heat.context.workers.progress.stage("interval", max(missing, 0)):
            for _ in range(missing):
                self._step()
        nodes, weights = zip(*(self._quadrature(probe, n_steps) for probe in range(self._n_probes)), strict=True)
        return Spectrum(
            nodes=np.concatenate(nodes),
            weights=np.concatenate([w * share for w, share in zip(weights, self._share, strict=True)]) / self._n_probes,
            n_points=self._heat.kernel.edges.n_points,
            n_sweeps=len(self._alpha),
        )

    def clear(self) -> None:
        """Drop the vectors: no more steps are needed."""
        self._panels.clear()

    def _quadrature(self, probe: int, n_steps: int) -> tuple[np.ndarray, np.ndarray]:
        """Nodes of one vector, ascending, and their weights, whose sum is 1."""
        from scipy.linalg import eigh_tridiagonal

        # an iteration ends early if its Krylov space is exhausted
        ended = [step + 1 for step, beta in enumerate(self._beta) if beta[probe] == 0]
        size = min([n_steps, *ended[:1]])
        diagonal = np.array([alpha[probe] for alpha in self._alpha[:size]])
        off_diagonal = np.array([beta[probe] for beta in self._beta[: size - 1]])
        try:
            nodes, vectors = eigh_tridiagonal(diagonal, off_diagonal)
        except np.linalg.LinAlgError:  # some LAPACKs fail when coefficients are as small as rounding
            matrix = np.diag(diagonal) + np.diag(off_diagonal, 1) + np.diag(off_diagonal, -1)
            nodes, vectors = np.linalg.eigh(matrix)
        return nodes, vectors[0] ** 2

    def _step(self) -> None:
        """One product and the three-term recurrence, on Z = S x, whose inner product is Z'S^-2 Z.

        The vectors keep their lengths (the betas); factors normalise them where they are used.
        """
        heat = self._heat
        if not self._alpha:
            self._begin()
        current, previous = self._current, self._previous
        norm, norm_before = [*[np.ones(self._n_probes)] * 2, *self._beta][:-3:-1]
        inverse = _inverse(norm)
        before = norm * _inverse(norm_before) if self._beta else np.zeros(self._n_probes)

        def ordinary_rows(start: int, stop: int) -> np.ndarray:
            """The diagonal of S^2 M with zeros for isolated rows: A between ordinary rows."""
            return np.where(heat.isolated[start:stop], 0.0, heat.step_rows(start, stop))

        with replaced(previous) as image:
            loop = RecurrenceStep(ordinary_rows if self._is_parted else heat.step_rows, inverse, before)
            sweep(heat.kernel, loop, current, image, heat.context, purpose="interval", update=previous)
        alpha = inner(heat, current, image) * inverse
        fresh = added(heat, image, current, -alpha * inverse)
        beta = np.sqrt(inner(heat, fresh, fresh))
        beta[beta < 1e-10] = 0.0
        self._alpha.append(alpha)
        self._beta.append(beta)
        self._previous, self._current = current, fresh

    def _begin(self) -> None:
        """Begin with random signs of unit length, without what no power shrinks; keep the share left of each."""
        heat, panels = self._heat, self._panels
        signs = random_signs(heat, panels, self._n_probes, self._seed ^ _PROBE_SEED)
        if self._is_parted:
            roots = shared_components(heat.kernel, panels) if heat.kernel.n_connected_components > 1 else None
            signs = OrdinaryRows.of(heat, panels, np.asarray(heat.isolated[:]), roots).part(signs, panels)
        elif heat.is_centred:
            signs = OrdinaryRows.of(heat, panels).part(signs, panels)
        squares = inner(heat, signs, signs)
        self._share = squares / heat.kernel.edges.n_points
        length = np.sqrt(np.where(squares > 0, squares, 1.0))
        self._current = updated(signs, lambda start, stop: signs.rows(start, stop) / length, heat.context)
        self._previous = zeros(heat, panels, self._n_probes)


def _inverse(norm: np.ndarray) -> np.ndarray:
    """1 / norm, and 0 for 0."""
    inverse: np.ndarray = np.divide(1.0, norm, out=np.zeros_like(norm), where=norm > 0)
    return inverse
