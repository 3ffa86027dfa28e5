"""Choosing the power from the spectral density: as little smoothing as lets neighbours stand out of the sketch.

A^p sets apart what is near from what is far by

    rho(p) = sum_ij A_ij |a_i - a_j|^2 / mean_ij |a_i - a_j|^2 / N = 1 - tr A^(2p+1) / tr A^(2p),

the squared diffusion distance of neighbours (weighted by A) relative to that of any two rows; about d / (4p) on a
manifold of d dimensions. The sketch multiplies each squared distance by chi-square(k) / k, and with k small it makes
far rows look near: one pair in twenty is shortened to the 5 % quantile of that law, or more. Neighbours are recognised
when they are nearer than that by a margin, which gives the rule: the smallest power of two with

    rho(p) <= quantile_5%(chi-square(k) / k) / 17,

unless fewer than four directions would be left (effective rank). The 17 was chosen on a torus, digits and
Fashion-MNIST. A rule by the effective rank alone, so many times k, does not fit all of these: the best power leaves a
rank of 13 to 34 k on Fashion-MNIST and of 0.6 to 2 k on digits.
"""

from typing import Any

import numpy as np

from scalable_gpe.execution.context import Context
from scalable_gpe.heat.normalization import HeatKernel
from scalable_gpe.spectral.density import Lanczos, Spectrum, steps_for

_POWERS = tuple(2**j for j in range(11))
_MARGIN = 17.0
_QUANTILE = 0.05
FEW_DIRECTIONS = 4.0  # effective rank below which a power is too large
_ISOLATED = 0.99


def choose_power(
    heat: HeatKernel, n_components: int, seed: int, context: Context, name: str
) -> tuple[int, list[dict[str, Any]]]:
    """Power for so many components, and the curve it was read from: power, effective rank and roughness rho.

    The curve stands under `name` once it is known.
    """
    metadata = context.store.metadata(name)
    if metadata is None:
        metadata = {"curve": _curve(heat, Lanczos(heat, seed).spectrum(steps_for(_POWERS[-1])))}
        context.store.commit(name, metadata)
    return read_power(metadata["curve"], n_components), metadata["curve"]


def _curve(heat: HeatKernel, spectrum: Spectrum) -> list[dict[str, Any]]:
    """Effective rank and roughness of each power; rows without neighbours have eigenvalues of 1 and are left out."""
    scale = heat.step_scale
    alone = scale[scale > _ISOLATED]

    def moment(power: int) -> float:
        whole = float((spectrum.weights * np.abs(spectrum.nodes) ** (power - 1) * spectrum.nodes).sum())
        return max(whole - float((alone**power).sum()) / spectrum.n_points, 0.0)

    curve = []
    for power in _POWERS:
        second, next_one, fourth = moment(2 * power), moment(2 * power + 1), moment(4 * power)
        if not (second > 0 and fourth > 0):
            break
        rank, rho = spectrum.n_points * second**2 / fourth, max(1 - next_one / second, 0.0)
        curve.append({"power": power, "effective_rank": rank, "roughness": rho})
    return curve or [{"power": 1, "effective_rank": 0.0, "roughness": 0.0}]


def read_power(curve: list[dict[str, Any]], n_components: int) -> int:
    """Apply the rule to a curve."""
    from scipy.stats import chi2

    wanted = float(chi2.ppf(_QUANTILE, n_components)) / n_components / _MARGIN
    chosen = curve[0]["power"]
    for row in curve:
        if row["effective_rank"] < FEW_DIRECTIONS:
            break
        chosen = row["power"]
        if row["roughness"] <= wanted:
            break
    return chosen
