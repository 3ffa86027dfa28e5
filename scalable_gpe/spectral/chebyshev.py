"""Chebyshev series of powers."""

from functools import lru_cache

import numpy as np


@lru_cache(maxsize=256)
def series(power: int, lower: float) -> np.ndarray:
    """Chebyshev coefficients of x^power on [lower, 1]."""
    from scipy.fft import dct

    n_nodes = min(power + 1, 64 + int(8 * np.sqrt(power + 1)))
    nodes = np.cos(np.pi * (np.arange(n_nodes) + 0.5) / n_nodes)
    values = ((1 + lower) / 2 + (1 - lower) / 2 * nodes) ** power
    coefficients = np.asarray(dct(values, type=2)) / n_nodes
    coefficients[0] /= 2
    return coefficients
