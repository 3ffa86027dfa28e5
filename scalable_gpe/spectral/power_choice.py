"""Choice of the power from the spectral density: the least smoothing at which neighbours stand out from the noise.

A^p separates near rows from far rows by

    rho(p) = sum_ij A_ij |a_i - a_j|^2 / mean_ij |a_i - a_j|^2 / N = 1 - tr A^(2p+1) / tr A^(2p),

the squared diffusion distance of neighbours (weighted by A) relative to that of any two rows; about d / (4p) on a
manifold of d dimensions. The sketch multiplies each squared distance by chi-square(k) / k, and for small k it makes
far rows look near: for one pair in twenty the factor is below the 5 % quantile. Neighbours are recognised when they are
nearer than that by a margin, which gives the rule: the smallest power of two with

    rho(p) <= quantile_5%(chi-square(k) / k) / 17,

unless fewer than four directions would be left (effective rank). The 17 was chosen on a torus, digits and
Fashion-MNIST. A rule by the effective rank alone (a multiple of k) does not fit all of these: the best power leaves a
rank of 13 to 34 k on Fashion-MNIST and of 0.6 to 2 k on digits.
"""

from dataclasses import dataclass

import numpy as np

from scalable_gpe.execution.context import Context
from scalable_gpe.heat.normalization import HeatKernel
from scalable_gpe.spectral.density import Spectrum
from scalable_gpe.spectral.lanczos import Lanczos, steps_for

_POWERS = tuple(2**j for j in range(11))
_MARGIN = 17.0
_QUANTILE = 0.05
FEW_DIRECTIONS = 4.0  # effective rank below which a power is too large


@dataclass(frozen=True)
class PowerRow:
    """Effective rank and roughness rho of one power."""

    power: int
    effective_rank: float
    roughness: float


@dataclass(frozen=True)
class PowerCurve:
    """Effective rank and roughness of the powers of two; stored once measured."""

    curve: tuple[PowerRow, ...]

    def choose(self, n_components: int) -> int:
        """Choose the power by the rule above."""
        from scipy.stats import chi2

        target = float(chi2.ppf(_QUANTILE, n_components)) / n_components / _MARGIN
        chosen = self.curve[0].power
        for row in self.curve:
            if row.effective_rank < FEW_DIRECTIONS:
                break
            chosen = row.power
            if row.roughness <= target:
                break
        return chosen


def power_curve(heat: HeatKernel, seed: int, context: Context, name: str) -> PowerCurve:
    """Read the curve from which a power is chosen, or measure it and store it under `name`."""
    known = context.store.read(name, PowerCurve)
    if known is None:
        known = measure_curve(heat, Lanczos(heat, seed).spectrum(steps_for(_POWERS[-1])))
        context.store.commit(name, known)
    return known


def measure_curve(heat: HeatKernel, spectrum: Spectrum) -> PowerCurve:
    """Measure effective rank and roughness of each power; isolated rows have eigenvalue 1 and are left out."""
    alone = heat.diagonal[heat.isolated]

    def moment(power: int) -> float:
        whole = float((spectrum.weights * np.abs(spectrum.nodes) ** (power - 1) * spectrum.nodes).sum())
        return max(whole - float((alone**power).sum()) / spectrum.n_points, 0.0)

    curve = []
    for power in _POWERS:
        second, next_one, fourth = moment(2 * power), moment(2 * power + 1), moment(4 * power)
        if not (second > 0 and fourth > 0):
            break
        rank, rho = spectrum.n_points * second**2 / fourth, max(1 - next_one / second, 0.0)
        curve.append(PowerRow(power, rank, rho))
    return PowerCurve(tuple(curve or [PowerRow(1, 0.0, 0.0)]))
