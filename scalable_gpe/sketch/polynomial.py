"""How a power of A is carried out: plain products, or a Chebyshev expansion and a few plain products.

x^p on [lower, 1] needs about sqrt(p) Chebyshev polynomials instead of p products. Rounding of the Chebyshev
vectors is relative to G, which may be much larger than A^p G; trailing plain products smooth it away, so the
plan is: expand x^(p - q), then multiply q times by A, with the smallest cost that meets the tolerance.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from scalable_gpe.sketch.spectrum import Spectrum

# measured rounding per product, relative to the vector, of panels in single and in double precision
_ROUNDING = {"single": 1.2e-7, "double": 4e-16}
# float32 weights and float32 results, whatever the panels are, and what many products make of the former
_FLOOR, _DRIFT = 1.2e-7, 3e-9
# the part of tol that the cut may take: distances feel some ten times the error of the whole matrix
_SHARE = {"single": 0.1, "double": 1e-3}
_TRAILING = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096)


@dataclass(frozen=True)
class Plan:
    """How A^power is carried out.

    Attributes
    ----------
    coefficients : tuple of float
        Of the Chebyshev expansion of x^(power - trailing) on [lower, 1]; empty when all products are plain.
    trailing : int
        Plain products after that; at least 1.
    error : float
        Estimated relative error of A^p G in the Frobenius norm: cut and rounding.
    n_probes : int
        Sweeps that found the interval.
    """

    power: int
    lower: float
    coefficients: tuple[float, ...]
    trailing: int
    error: float
    n_probes: int = 0

    @property
    def degree(self) -> int:
        """Chebyshev products."""
        return max(0, len(self.coefficients) - 1)

    @property
    def cost(self) -> int:
        """Products in all."""
        return self.degree + self.trailing


def plan_power(power: int, spectrum: Spectrum | None, precision: str, tol: float, residual: float = 0.0) -> Plan:
    """Cheapest way to A^power within `tol`; without a spectrum, or when nothing else meets `tol`, plain products.

    `residual` is that of the scaling: so much of each product leaks into the constant, which no power shrinks.
    """
    rounding = _ROUNDING[precision]
    floor = _FLOOR + _DRIFT * power
    plain = Plan(power, -1.0, (), power, floor)
    if spectrum is None:
        return plain
    bound, left = spectrum.lower, spectrum.size(power)
    floor += residual / left if left > 0 else 0.0
    best = plain = Plan(power, -1.0, (), power, floor, spectrum.n_sweeps)
    for trailing in (q for q in _TRAILING if q < power):
        if left <= 0 or trailing >= best.cost:
            break
        coefficients = series(power - trailing, bound)
        tails = _tails(coefficients)
        fits = np.flatnonzero(tails <= _SHARE[precision] * tol * left)
        degree = int(fits[0]) - 1 if fits.size else power
        if degree < 1 or degree + trailing >= best.cost:
            continue
        noise = rounding * np.sqrt(degree) * spectrum.size(trailing) / left
        if noise > _SHARE[precision] * tol:
            continue
        cut = float(tails[degree + 1]) / left if degree + 1 < len(tails) else 0.0
        best = Plan(
            power,
            bound,
            tuple(coefficients[: degree + 1].tolist()),
            trailing,
            float(cut + noise + floor),
            spectrum.n_sweeps,
        )
    return best


def widen(plan: Plan) -> Plan:
    """Make the same power on [-1, 1], which always holds the spectrum, cut where its tail is as small."""
    tail = float(np.abs(series(plan.power - plan.trailing, plan.lower)[plan.degree + 1 :]).sum())
    coefficients = series(plan.power - plan.trailing, -1.0)
    degree = int(np.flatnonzero(_tails(coefficients) > max(tail, 1e-15))[-1])
    return Plan(plan.power, -1.0, tuple(coefficients[: max(degree, 1) + 1].tolist()), plan.trailing, plan.error)


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


def _tails(coefficients: np.ndarray) -> np.ndarray:
    """Sum of the absolute coefficients from each one on."""
    return np.cumsum(np.abs(coefficients[::-1]))[::-1]
