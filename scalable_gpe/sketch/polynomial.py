"""Plan of a filter of A: plain products, or Chebyshev expansions and one plain product.

x^p on [lower, 1] needs about sqrt(p) Chebyshev polynomials instead of p products. Rounding of the Chebyshev
vectors is relative to the vector that the expansion begins with, which may be much larger than its result. If that
error would exceed the tolerance, the filter is a product of several expansions, each of which begins with what the
one before has left. The last product is always plain: it publishes the embedding, and embeds new points.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from scalable_gpe.spectral.chebyshev import factor_series
from scalable_gpe.spectral.density import Spectrum
from scalable_gpe.spectral.filters import Factor, Filter, Power

# measured rounding of a whole expansion, relative to its first vector and to the size of its coefficients
_ROUNDING = {"single": 4e-8, "double": 1e-16}
# error of float32 weights and results, whatever the type of the panels, and its growth per product
_FLOOR, _DRIFT = 1.2e-7, 3e-9
# share of tol for the truncation: the error of distances is about ten times that of the whole matrix
_SHARE = {"single": 0.2, "double": 1e-3}
_NOISE = 0.5  # share of tol for rounding
_SMALLEST_TAIL = {"single": 1e-10, "double": 2e-15}  # a smaller truncation error is far below rounding
_MOST_FACTORS = 16
_NOTHING_LEFT = 0.1  # relative error from which on a result is rounding
_MOST_SWEEPS, _SWEEPS_PER_ROOT = 260, 8.125  # most sweeps: 260 up to power 1024, then 8.125 sqrt(power)

Coefficients = tuple[float, ...]


@dataclass(frozen=True)
class PowerPlan:
    """How a filter of A is computed; stored with the sketch.

    Attributes
    ----------
    power : int
        The power p, or the horizon T if `cumulative`.
    coefficients : tuple of float
        Chebyshev coefficients of f(x) / x, or of its first factor, on [lower, 1]; empty if all products are plain.
    error : float
        Estimated relative error of f(A) G in the Frobenius norm over rows that are not isolated, from truncation and
        rounding.
    n_probes : int
        Number of sweeps that found the interval.
    lambda_min : float or None
        The smallest Ritz value of these sweeps.
    cumulative : bool
        Whether the filter is the sum of `power` powers.
    more : tuple of tuple of float
        Coefficients of the other factors.
    size : float or None
        Estimated |f(A) G| / |G| over rows that are not isolated.
    first : int
        The smallest power of the sum.
    """

    power: int = 0
    lower: float = -1.0
    coefficients: Coefficients = ()
    error: float = 0.0
    n_probes: int = 0
    lambda_min: float | None = None
    cumulative: bool = False
    more: tuple[Coefficients, ...] = ()
    size: float | None = None
    first: int = 1

    @staticmethod
    def of(wanted: Filter, lower: float = -1.0, coefficients: Coefficients = (), error: float = 0.0) -> "PowerPlan":
        """A plan of a filter by plain products, or by one series."""
        return PowerPlan(wanted.power, lower, coefficients, error, cumulative=wanted.cumulative, first=wanted.first)

    @property
    def filter(self) -> Filter:
        """The function of the eigenvalues."""
        return Filter(self.power, self.cumulative, self.first)

    @property
    def label(self) -> Power:
        """The power as users write it."""
        return self.filter.label

    @property
    def warning(self) -> str | None:
        """What to tell the user if nothing of the data is left, known before any product; or None."""
        if self.error < _NOTHING_LEFT:
            return None
        what = f"`horizon={self.power}`" if self.cumulative else f"`power={self.power}`"
        return (
            f"{what} leaves nothing of the data: differences between rows fall to {self.size or 0.0:.0e} of those of "
            "the sketch, below rounding. Choose a smaller one."
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


def plan_filter(
    wanted: Filter, spectrum: Spectrum | None, precision: str, tol: float, residual: float = 0.0
) -> PowerPlan:
    """Choose the cheapest plan within `tol`, or the most accurate one that is cheap enough.

    Without a spectrum all products are plain. `residual` is that of the scaling: this share of each product leaks into
    the constant vector, which no power shrinks.
    """
    floor = _FLOOR + _DRIFT * wanted.power
    if spectrum is None:
        return PowerPlan.of(wanted, error=floor)
    left = spectrum.size(wanted)
    if left > 0:  # the sum of all powers adds up what leaks
        floor += residual * (wanted.power if wanted.cumulative else 1) / left
    lowest = float(spectrum.nodes.min())
    plain = replace(PowerPlan.of(wanted, error=floor), n_probes=spectrum.n_sweeps, lambda_min=lowest, size=left)
    best: PowerPlan | None = None
    for count in _counts(wanted):
        plan, noise = _expand(plain, wanted.factors(count), spectrum, precision, tol)
        if not wanted.cumulative and plan.n_products >= plain.n_products:
            continue
        if plan.n_products > most_sweeps(wanted.power) and best is not None:
            break
        if noise <= _NOISE * tol:
            return plan
        if best is None or plan.error < best.error:
            best = plan
    return best if best is not None and (wanted.cumulative or plain.n_products > most_sweeps(wanted.power)) else plain


def most_sweeps(power: int) -> int:
    """Largest number of products for a power or horizon, on any data."""
    return max(_MOST_SWEEPS, int(_SWEEPS_PER_ROOT * np.sqrt(power)))


def _counts(wanted: Filter) -> list[int]:
    """Numbers of factors to try."""
    if wanted.cumulative:
        return list(range(1, len(wanted.factors(_MOST_FACTORS)) + 1))
    return [count for count in (1, 2, 4, 8, 16) if count == 1 or count < wanted.power // 8]


def _expand(
    plain: PowerPlan, factors: Sequence[Factor], spectrum: Spectrum, precision: str, tol: float
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
        coefficients = factor_series(factor, spectrum.lower)
        tails = tail_sums(coefficients)
        passed = _size(spectrum, (*before, *after))
        share = _SHARE[precision] * tol * left / len(factors)
        fits = np.flatnonzero(tails * passed <= max(share, _SMALLEST_TAIL[precision] * tails[0] * passed))
        degree = max(int(fits[0]) - 1 if fits.size else len(coefficients) - 1, min(1, len(coefficients) - 1))
        tail = float(tails[degree + 1]) if degree + 1 < len(tails) else 0.0
        noise += expansion_noise(coefficients, precision) * _size(spectrum, before) * _size(spectrum, after)
        truncation += tail * passed
        expansions.append(tuple(coefficients[: degree + 1].tolist()))
    noise = noise / left if left > 0 else np.inf
    error = noise + (truncation / left if left > 0 else np.inf) + plain.error
    plan = replace(
        plain, lower=spectrum.lower, coefficients=expansions[0], more=tuple(expansions[1:]), error=float(error)
    )
    return plan, float(noise)


def expansion_noise(coefficients: np.ndarray, precision: str) -> float:
    """Rounding error of an expansion, relative to the vector that it begins with."""
    return _ROUNDING[precision] * max(1.0, float(np.sqrt((coefficients**2).sum())))


def _size(spectrum: Spectrum, factors: Sequence[Factor]) -> float:
    """|P(A) G| / |G| for the product P of some factors; the last application of A is left out."""

    def product(x: np.ndarray) -> np.ndarray:
        values = np.ones_like(x)
        for factor in factors:
            values = values * factor(x)
        return values

    return spectrum.size(product) if factors else 1.0


def widen(plan: PowerPlan) -> PowerPlan:
    """Plan the same filter on [-1, 1], which always contains the spectrum, with as small truncation errors."""
    wide = []
    factors = plan.filter.factors(len(plan.expansions))
    for factor, kept in zip(factors, plan.expansions, strict=True):
        tail = float(np.abs(factor_series(factor, plan.lower)[len(kept) :]).sum())
        coefficients = factor_series(factor, -1.0)
        beyond = np.flatnonzero(tail_sums(coefficients) > max(tail, 1e-15))
        degree = max(int(beyond[-1]) if beyond.size else 0, min(1, len(coefficients) - 1))
        wide.append(tuple(coefficients[: degree + 1].tolist()))
    return replace(plan, lower=-1.0, coefficients=wide[0], more=tuple(wide[1:]))


def tail_sums(coefficients: np.ndarray) -> np.ndarray:
    """Sums of the absolute coefficients from each index to the end."""
    return np.cumsum(np.abs(coefficients[::-1]))[::-1]


def n_sweeps(plans: Sequence[PowerPlan]) -> int:
    """Number of sweeps of one panel for several plans together, including the last ones, which publish."""
    plain = max((plan.power - 1 for plan in plans if not plan.coefficients), default=0)
    degree = max((plan.degree for plan in plans), default=0)
    others = sum(plan.n_products - plan.degree for plan in plans if plan.coefficients)
    return plain + degree + others + len(plans)
