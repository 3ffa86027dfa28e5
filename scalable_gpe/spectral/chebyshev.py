"""Chebyshev series of the factors of a filter."""

from functools import lru_cache

import numpy as np

from scalable_gpe.spectral.filters import Factor


def series(power: int, lower: float) -> np.ndarray:
    """Chebyshev coefficients of x^power on [lower, 1]."""
    return factor_series(Factor(power=power), lower)


@lru_cache(maxsize=256)
def factor_series(factor: Factor, lower: float) -> np.ndarray:
    """Chebyshev coefficients of a factor on [lower, 1]."""
    n_nodes = min(factor.degree + 1, 64 + int(8 * np.sqrt(factor.degree + 1)))
    nodes = np.cos(np.pi * (np.arange(n_nodes) + 0.5) / n_nodes)
    values = factor((1 + lower) / 2 + (1 - lower) / 2 * nodes)
    # a cosine transform by numpy: importing scipy's takes a quarter of a second
    waves = np.fft.rfft(np.concatenate([values, values[::-1]]))[:n_nodes]
    coefficients: np.ndarray = (waves * np.exp(-0.5j * np.pi * np.arange(n_nodes) / n_nodes)).real / n_nodes
    coefficients[0] /= 2
    return coefficients
