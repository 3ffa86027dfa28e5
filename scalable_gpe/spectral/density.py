"""The spectral density of A, and the size of A^p G."""

from dataclasses import dataclass
from typing import Any

import numpy as np

FEW_DIRECTIONS = 4.0  # effective rank below which a power is too large


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
