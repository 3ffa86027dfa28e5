"""The function f of the eigenvalues of A that an embedding sketches: one power, or the sum of all powers.

Y = f(A) G / sqrt(k) with f(x) = x^p, or f(x) = x^m + x^(m+1) + ... + x^(m+T-1) for all scales from the first power m
up to the horizon T. The last application of A is always a plain product, so what is expanded is f(x) / x, whole or as a
product of factors.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from scalable_gpe.checks import ALL, Power


def power_order(power: Power) -> tuple[bool, int]:
    """Sort key: powers in ascending order, then "all"."""
    return (True, 0) if isinstance(power, str) else (False, power)


@dataclass(frozen=True)
class Factor:
    """The polynomial ``x^power (1 + x^step + x^(2 step) + ... )`` with `terms` terms in the sum."""

    power: int = 0
    terms: int = 1
    step: int = 1

    @property
    def degree(self) -> int:
        """Degree of the polynomial."""
        return self.power + self.step * (self.terms - 1)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        values: np.ndarray = np.asarray(x, np.float64) ** self.power
        return values if self.terms == 1 else values * _geometric(x, self.step, self.terms)


def _geometric(x: np.ndarray, step: int, terms: int) -> np.ndarray:
    """``(1 - y^terms) / (1 - y)`` for y = x^step in [-1, 1], without cancellation near y = 1."""
    y = np.asarray(x, np.float64) ** step
    near = y > 0.5
    logarithm = step * np.log(np.abs(np.where(near, x, 0.5)))
    safe = near & (logarithm < 0)
    numerator = np.where(safe, -np.expm1(terms * logarithm), 1 - y**terms)
    denominator = np.where(safe, -np.expm1(logarithm), 1 - y)
    total: np.ndarray = np.where(denominator != 0, numerator / np.where(denominator != 0, denominator, 1.0), terms)
    return total


@dataclass(frozen=True)
class Filter:
    """``f(x) = x^power``; or, if `cumulative`, the sum of `power` powers from x^first on: `power` is the horizon T."""

    power: int
    cumulative: bool = False
    first: int = 1

    @property
    def label(self) -> Power:
        """The power as users write it."""
        return ALL if self.cumulative else self.power

    @property
    def name(self) -> str:
        """The part of a stored name: the power, or "all", the horizon, and the first power if it is not 1."""
        if not self.cumulative:
            return str(self.power)
        return f"{ALL}-{self.power}" + (f"-from-{self.first}" if self.first > 1 else "")

    def __call__(self, x: np.ndarray) -> np.ndarray:
        x = np.asarray(x, np.float64)
        values: np.ndarray = x * self.factors(1)[0](x)
        return values

    def factors(self, count: int) -> tuple[Factor, ...]:
        """Split ``f(x) / x`` into `count` factors.

        x^(p - 1) is split into nearly equal powers. The sum of all powers is split by
        ``f_2T(x) = f_T(x) (1 + x^T)``; an odd horizon cannot be split further.
        """
        if self.cumulative:
            horizon, doublings = self.power, list[Factor]()
            while len(doublings) < count - 1 and horizon % 2 == 0:
                horizon //= 2
                doublings.append(Factor(terms=2, step=horizon))
            return (Factor(power=self.first - 1, terms=horizon), *reversed(doublings))
        edges = [round((self.power - 1) * part / count) for part in range(count + 1)]
        pieces = (stop - start for start, stop in pairwise(edges))
        return tuple(Factor(power=piece) for piece in pieces if piece) or (Factor(),)
