"""Chebyshev series of a power."""

from functools import lru_cache

import numpy as np


@lru_cache(maxsize=256)
def series(power: int) -> np.ndarray:
    """Chebyshev coefficients of x^power on [-1, 1]."""
    n_nodes = min(power + 1, 64 + int(8 * np.sqrt(power + 1)))
    nodes = np.cos(np.pi * (np.arange(n_nodes) + 0.5) / n_nodes)
    values = nodes**power
    # a cosine transform by numpy: importing scipy's takes a quarter of a second
    waves = np.fft.rfft(np.concatenate([values, values[::-1]]))[:n_nodes]
    coefficients: np.ndarray = (waves * np.exp(-0.5j * np.pi * np.arange(n_nodes) / n_nodes)).real / n_nodes
    coefficients[0] /= 2
    return coefficients
