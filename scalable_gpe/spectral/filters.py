"""The function f of the eigenvalues of A that an embedding sketches: one power, or the sum of all powers.

Y = f(A) G / sqrt(k) with f(x) = x^p, or f(x) = x^m + c x^(m+1) + c^2 x^(m+2) + ... = x^m / (1 - c x) for all scales
from the first power m on, with c = 1 - 1/T for the horizon T: f(1) = T. The last application of A is always a plain
product, which publishes the embedding, and embeds new points.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from scalable_gpe.checks import ALL, Power


def power_order(power: Power) -> tuple[bool, int]:
    """Sort key: powers in ascending order, then "all"."""
    return (True, 0) if isinstance(power, str) else (False, power)


@dataclass(frozen=True)
class Filter:
    """``f(x) = x^power``; or, if `cumulative`, the sum of all powers from `first` on: `power` is the horizon T."""

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
        return x**self.first / (1 - x + x / self.power) if self.cumulative else x**self.power

    def parts(self, count: int) -> tuple[int, ...]:
        """Split ``x^(power - 1)`` into `count` nearly equal powers."""
        edges = [round((self.power - 1) * part / count) for part in range(count + 1)]
        return tuple(stop - start for start, stop in pairwise(edges) if stop > start) or (0,)
