"""Plan of a power of A: plain products, or Chebyshev expansions and one plain product.

x^p on [-1, 1], which contains the spectrum of A, needs about sqrt(p) Chebyshev polynomials instead of p products.
Rounding of the Chebyshev vectors is relative to the vector that the expansion begins with, which may be much larger
than its result. If that error would exceed the tolerance, the power is a product of several expansions, each of which
begins with what the one before has left. The last product is always plain: it publishes the embedding, and embeds new
points.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from scalable_gpe.spectral.filters import Filter, Power
from scalable_gpe.spectral.lanczos import Spectrum

# measured rounding of a whole expansion, relative to its first vector and to the size of its coefficients
_ROUNDING = {"single": 4e-8, "double": 1e-16}
# error of float32 weights and results, whatever the type of the panels, and its growth per product
_FLOOR, _DRIFT = 1.2e-7, 3e-9
# share of tol for the truncation: the error of distances is about ten times that of the whole matrix
_SHARE = {"single": 0.2, "double": 1e-3}
_NOISE = 0.5  # share of tol for rounding
_SMALLEST_TAIL = {"single": 1e-10, "double": 2e-15}  # a smaller truncation error is far below rounding
_NOTHING_LEFT = 0.1  # relative error from which on a result is rounding
_MOST_SWEEPS, _SWEEPS_PER_ROOT = 260, 8.125  # most sweeps: 260 up to power 1024, then 8.125 sqrt(power)

Coefficients = tuple[float, ...]


@dataclass(frozen=True)
class PowerPlan:
    """How a power of A is computed; stored with the sketch.

    Attributes
    ----------
    power : int
        The power p.
    coefficients : tuple of float
        Chebyshev coefficients of x^(p - 1), or of its first factor; empty if all products are plain.
    error : float
        Estimated relative error of A^p G in the Frobenius norm over rows that are not isolated, from truncation and
        rounding.
    n_probes : int
        Number of sweeps that measured the spectrum.
    lambda_min : float or None
        The smallest Ritz value of these sweeps.
    more : tuple of tuple of float
        Coefficients of the other factors.
    size : float or None
        Estimated |A^p G| / |G| over rows that are not isolated.
    """

    power: int = 0
    coefficients: Coefficients = ()
    error: float = 0.0
    n_probes: int = 0
    lambda_min: float | None = None
    more: tuple[Coefficients, ...] = ()
    size: float | None = None

    @property
    def filter(self) -> Filter:
        """The function of the eigenvalues."""
        return Filter(self.power)

    @property
    def label(self) -> Power:
        """The power as users write it."""
        return self.filter.label

    @property
    def warning(self) -> str | None:
        """What to tell the user if nothing of the data is left, known before any product; or None."""
        if self.error < _NOTHING_LEFT:
            return None
        return (
            f"power={self.power} leaves nothing of the data: differences between rows fall to {self.size or 0.0:.0e} "
            "of those of the sketch, below rounding. Choose a smaller one."
        )

    @property
    def expansions(self) -> tuple[Coefficients, ...]:
        """Coefficients of all factors; none if all products are plain."""
        return (self.coefficients, *self.more) if self.coefficients else ()

    @property
    def degree(self) -> int:
        """Degree of the first expansion, which is its number of products."""
        return max(0, len(self.coefficients) - 1)

    @property
    def n_products(self) -> int:
        """Number of products before the last one."""
        return sum(len(one) - 1 for one in self.expansions) if self.coefficients else self.power - 1


def plan_power(power: int, spectrum: Spectrum | None, precision: str, tol: float, residual: float = 0.0) -> PowerPlan:
    """Choose the cheapest plan within `tol`, or the most accurate one that is cheap enough.

    Without a spectrum all products are plain. `residual` is that of the scaling: this share of each product leaks into
    the constant vector, which no power shrinks.
    """
    floor = _FLOOR + _DRIFT * power
    if spectrum is None:
        return PowerPlan(power, error=floor)
    left = spectrum.size(power)
    if left > 0:
        floor += residual / left
    lowest = float(spectrum.nodes.min())
    plain = PowerPlan(power, error=floor, n_probes=spectrum.n_sweeps, lambda_min=lowest, size=left)
    best: PowerPlan | None = None
    for count in [count for count in (1, 2, 4, 8, 16) if count == 1 or count < power // 8]:
        plan, noise = _expand(plain, Filter(power).parts(count), spectrum, precision, tol)
        if plan.n_products >= plain.n_products:
            continue
        if plan.n_products > most_sweeps(power) and best is not None:
            break
        if noise <= _NOISE * tol:
            return plan
        if best is None or plan.error < best.error:
            best = plan
    return best if best is not None and plain.n_products > most_sweeps(power) else plain


def most_sweeps(power: int) -> int:
    """Largest number of products for a power, on any data."""
    return max(_MOST_SWEEPS, int(_SWEEPS_PER_ROOT * np.sqrt(power)))


def _expand(
    plain: PowerPlan, factors: Sequence[int], spectrum: Spectrum, precision: str, tol: float
) -> tuple[PowerPlan, float]:
    """Plan one expansion per factor; return it with its rounding error.

    An error of one expansion passes through all later ones. Rounding errors are random vectors, truncation errors are
    polynomials of A; both are relative to the vector that the expansion begins with.
    """
    left = plain.size
    assert left is not None
    noise = truncation = 0.0
    expansions: list[Coefficients] = []
    for number, factor in enumerate(factors):
        before, after = factors[:number], factors[number + 1 :]
        coefficients = series(factor)
        tails = tail_sums(coefficients)
        passed = spectrum.size(sum(before) + sum(after))
        share = _SHARE[precision] * tol * left / len(factors)
        fits = np.flatnonzero(tails * passed <= max(share, _SMALLEST_TAIL[precision] * tails[0] * passed))
        degree = max(int(fits[0]) - 1 if fits.size else len(coefficients) - 1, min(1, len(coefficients) - 1))
        tail = float(tails[degree + 1]) if degree + 1 < len(tails) else 0.0
        rounding = _ROUNDING[precision] * max(1.0, float(np.sqrt((coefficients**2).sum())))
        noise += rounding * spectrum.size(sum(before)) * spectrum.size(sum(after))
        truncation += tail * passed
        expansions.append(tuple(coefficients[: degree + 1].tolist()))
    noise = noise / left if left > 0 else np.inf
    error = noise + (truncation / left if left > 0 else np.inf) + plain.error
    plan = replace(plain, coefficients=expansions[0], more=tuple(expansions[1:]), error=float(error))
    return plan, float(noise)


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


def tail_sums(coefficients: np.ndarray) -> np.ndarray:
    """Sums of the absolute coefficients from each index to the end."""
    return np.cumsum(np.abs(coefficients[::-1]))[::-1]


def n_sweeps(plans: Sequence[PowerPlan]) -> int:
    """Number of sweeps of one panel for several powers together, including the last ones, which publish."""
    plain = max((plan.n_products for plan in plans if not plan.coefficients), default=0)
    others = sum(plan.n_products - plan.degree for plan in plans if plan.coefficients)
    return plain + max((plan.degree for plan in plans), default=0) + others + len(plans)
