"""Plan of a power of A: plain products, or a Chebyshev expansion and one plain product.

x^p on [lower, 1] needs about sqrt(p) Chebyshev polynomials instead of p products. Rounding of the Chebyshev
vectors is relative to G, which may be much larger than A^p G; if that error would exceed the tolerance, all
products are plain. The last product is always plain: it publishes the embedding, and embeds new points.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scalable_gpe.spectral.chebyshev import series
from scalable_gpe.spectral.density import Spectrum

# measured rounding of a whole expansion, relative to G, with panels in single and in double precision
_ROUNDING = {"single": 4e-8, "double": 1e-16}
# error of float32 weights and results, whatever the type of the panels, and its growth per product
_FLOOR, _DRIFT = 1.2e-7, 3e-9
# share of tol for the truncation: the error of distances is about ten times that of the whole matrix
_SHARE = {"single": 0.2, "double": 1e-3}
_NOISE = 0.5  # share of tol for rounding


@dataclass(frozen=True)
class PowerPlan:
    """How A^power is computed; stored with the sketch.

    Attributes
    ----------
    coefficients : tuple of float
        Chebyshev coefficients of x^(power - 1) on [lower, 1]; empty if all products are plain.
    error : float
        Estimated relative error of A^p G in the Frobenius norm, from truncation and rounding.
    n_probes : int
        Number of sweeps that found the interval.
    lambda_min : float or None
        The smallest Ritz value of these sweeps.
    """

    power: int = 0
    lower: float = -1.0
    coefficients: tuple[float, ...] = ()
    error: float = 0.0
    n_probes: int = 0
    lambda_min: float | None = None

    @property
    def degree(self) -> int:
        """Degree of the expansion, which is its number of products."""
        return max(0, len(self.coefficients) - 1)


def plan_power(power: int, spectrum: Spectrum | None, precision: str, tol: float, residual: float = 0.0) -> PowerPlan:
    """Choose the cheapest plan within `tol`; plain products without a spectrum, or if nothing else meets `tol`.

    `residual` is that of the scaling: this share of each product leaks into the constant vector, which no power
    shrinks.
    """
    floor = _FLOOR + _DRIFT * power
    if spectrum is None:
        return PowerPlan(power, -1.0, (), floor)
    left = spectrum.size(power)
    floor += residual / left if left > 0 else 0.0
    lowest = float(spectrum.nodes.min())
    plain = PowerPlan(power, -1.0, (), floor, spectrum.n_sweeps, lowest)
    noise = _ROUNDING[precision] / left if left > 0 else np.inf
    if noise > _NOISE * tol:
        return plain
    coefficients = series(power - 1, spectrum.lower)
    tails = _tails(coefficients)
    fits = np.flatnonzero(tails <= _SHARE[precision] * tol * left)
    degree = int(fits[0]) - 1 if fits.size else power
    if not 1 <= degree < power - 1:
        return plain
    error = float(tails[degree + 1]) / left + noise + floor
    kept = tuple(coefficients[: degree + 1].tolist())
    return PowerPlan(power, spectrum.lower, kept, error, spectrum.n_sweeps, lowest)


def widen(plan: PowerPlan) -> PowerPlan:
    """Plan the same power on [-1, 1], which always contains the spectrum, with as small a truncation error."""
    tail = float(np.abs(series(plan.power - 1, plan.lower)[plan.degree + 1 :]).sum())
    coefficients = series(plan.power - 1, -1.0)
    degree = int(np.flatnonzero(_tails(coefficients) > max(tail, 1e-15))[-1])
    return PowerPlan(plan.power, -1.0, tuple(coefficients[: max(degree, 1) + 1].tolist()), plan.error)


def _tails(coefficients: np.ndarray) -> np.ndarray:
    """Sums of the absolute coefficients from each index to the end."""
    return np.cumsum(np.abs(coefficients[::-1]))[::-1]


def n_sweeps(plans: Sequence[PowerPlan]) -> int:
    """Number of sweeps of one panel for several plans together, including the last ones, which publish."""
    plain = max((plan.power - 1 for plan in plans if not plan.coefficients), default=0)
    degree = max((plan.degree for plan in plans), default=0)
    return plain + degree + len(plans)
