"""Errors of distances, their intervals, and the distribution that the sketch alone would give."""

from dataclasses import dataclass

import numpy as np

_TAIL = 1.2  # few rows make the tail: without this factor, 95 % intervals covered 87 to 99 %
_END = 0.025  # chance that the truth is beyond one end of an interval
_N_LEVELS = 4096  # errors at which the distribution is evaluated
_KEPT = 1e-6  # eigenvalues of C below this share of the largest are rounding


@dataclass(frozen=True)
class Interval:
    """A figure with its 95 % interval; `high` is None where the sample is too small to tell."""

    value: float
    low: float
    high: float | None


NOTHING = Interval(0.0, 0.0, 0.0)


def share(value: float, half_width: float) -> Interval:
    """A figure between 0 and 1 with its interval."""
    return Interval(float(value), float(max(0.0, value - half_width)), float(min(1.0, value + half_width)))


@dataclass(frozen=True)
class DistanceErrors:
    """Relative errors of the distances of some pairs: the median, and a bound for 95 % of the pairs."""

    n_pairs: int
    median_error: Interval
    bound_95: Interval


def distances(covariance: np.ndarray) -> np.ndarray:
    """``d_ij = sqrt(C_ii + C_jj - 2 C_ij)``."""
    diagonal = np.diag(covariance)
    found: np.ndarray = np.sqrt(np.maximum(diagonal[:, None] + diagonal - 2 * covariance, 0))
    return found


def distance_errors(
    covariance: np.ndarray, embedded: np.ndarray, points: np.ndarray, *, scaled: bool = False
) -> DistanceErrors:
    """Errors of the distances of all pairs of rows; equal rows have the same entry in `points`.

    With `scaled` the distances are first divided by one common factor, the median of their ratios to the truth: kept
    principal axes are a little too short, all alike.
    """
    wide = embedded.astype(np.float64)
    truth = distances(covariance)
    shown = np.linalg.norm(wide[:, None] - wide[None], axis=2)
    valid = (points[:, None] != points) & (truth > 0)
    if not valid.any():
        return DistanceErrors(0, NOTHING, NOTHING)
    ratios = np.divide(shown, truth, out=np.ones_like(shown), where=valid)
    common = float(np.median(ratios[valid])) if scaled else 1.0
    errors = np.abs(ratios / (common or 1.0) - 1)
    n_pairs = int(valid.sum()) // 2
    return DistanceErrors(n_pairs, _quantile(errors, valid, 0.5, 1.0), _quantile(errors, valid, 0.95, _TAIL))


def _quantile(errors: np.ndarray, valid: np.ndarray, share: float, wider: float) -> Interval:
    """Quantile of a symmetric table of errors of pairs of sampled rows, with its 95 % interval.

    Pairs that share a row are not independent. The share F(t) of pairs with an error up to t is a U-statistic, whose
    variance is that of the shares of the single rows, 4 var / n; the interval holds the t at which the quantile's share
    is within the 95 % interval of F(t), taken on the logit scale, where F is closer to normal. Away from the quantile,
    where few rows are left to show a variance, the relative error of F(t) is at least what it was nearer to it.

    No sampled error bounds a quantile that all of them may miss. As many independent pairs as give F its variance at
    the quantile, n_eff (at least n / 2, as no two of these share a row), lie all below it with probability share^n_eff,
    all above it with probability (1 - share)^n_eff. Where that is more than 0.025, the end is None, or 0.
    """
    from scipy.stats import t as student

    held = valid.any(axis=1)
    errors, valid = errors[held][:, held], valid[held][:, held]
    pairs = np.sort(errors[np.triu(valid)])
    levels = pairs[np.unique(np.linspace(0, len(pairs) - 1, min(len(pairs), _N_LEVELS)).astype(np.int64))]
    rows = [
        np.searchsorted(np.sort(row[known]), levels, side="right") for row, known in zip(errors, valid, strict=True)
    ]
    counts, known = np.stack(rows), valid.sum(axis=1)
    n = len(known)
    reached = np.clip(counts.sum(axis=0) / known.sum(), 1e-3, 1 - 1e-3)
    variance = (counts / known[:, None]).var(axis=0, ddof=1) if n > 2 else np.full(len(levels), 0.25)
    spread = 2 * np.sqrt(variance * (n - 1) / (n * max(n - 2, 1))) / (reached * (1 - reached))
    logit, wanted = np.log(reached / (1 - reached)), np.log(share / (1 - share))
    at = min(int(np.searchsorted(logit, wanted)), len(levels) - 1)
    spread[at:] = np.maximum.accumulate(spread[at:])
    spread[: at + 1] = np.maximum.accumulate(spread[at::-1])[::-1]
    reach = wider * student.ppf(0.975, n - 1) * spread
    low, high = (int(np.searchsorted(np.maximum.accumulate(logit + side * reach), wanted)) for side in (1, -1))
    last = len(levels) - 1
    n_effective = max(n / 2, min(len(pairs), 1 / (share * (1 - share) * (max(float(reach[at]), 1e-9) / 1.96) ** 2)))
    below, above = (chance**n_effective <= _END for chance in (1 - share, share))
    return Interval(
        value=float(np.quantile(pairs, share)),
        low=float(levels[low]) if low > 0 or below else 0.0,
        high=float(levels[min(high, last)]) if high < last or above else None,
    )


def sketch_alone(k: int) -> dict[str, float]:
    """Relative error of distances when |y|^2 / d^2 is exactly chi-square(k) / k."""
    from scipy.optimize import brentq
    from scipy.stats import chi2

    def within(share: float) -> float:
        def missing(bound: float) -> float:
            low = max(0.0, 1 - bound)
            return float(chi2.cdf(k * (1 + bound) ** 2, k) - chi2.cdf(k * low**2, k)) - share

        return float(brentq(missing, 1e-9, 10.0))

    return {
        "standard_deviation": float(np.sqrt(2 / k) / 2),
        "median_error": within(0.5),
        "bound_95": within(0.95),
    }


def chi_square_test(
    covariance: np.ndarray, embedded: np.ndarray, k: int, kind: str = "gaussian"
) -> dict[str, float | None]:
    """Compare squared ratios with chi-square(k) / k, and test the entries made independent by whitening.

    The columns of the sketch are independent with covariance C / k, so C^(-1/2) Y sqrt(k) has independent standard
    entries: its sum of squares is chi-square, its entries are normal. The ratios themselves are not independent.

    For a Bernoulli sketch the entries B g (B: orthonormal rows, g: signs) are uncorrelated and not normal: their shape
    is not tested. The sum of squares has the mean of chi-square and a smaller variance, 2 (r - sum_j (B'B)_jj^2) per
    column of r entries instead of 2 r, so its p-value is an upper bound.
    """
    from scipy.stats import chi2, kstest

    above = np.triu_indices(len(covariance), 1)
    wide = embedded.astype(np.float64)
    truth = distances(covariance)[above] ** 2
    shown = ((wide[above[0]] - wide[above[1]]) ** 2).sum(axis=1)
    ratios = shown[truth > 0] / truth[truth > 0]
    values, vectors = np.linalg.eigh(covariance)
    kept = values > _KEPT * values[-1]
    white = (vectors[:, kept].T @ wide) * np.sqrt(k) / np.sqrt(values[kept])[:, None]
    below = float(chi2.cdf((white**2).sum(), white.size))
    return {
        "ratio_mean": float(ratios.mean()),
        "ratio_sd": float(ratios.std()),
        "expected_sd": float(np.sqrt(2 / k)),
        "ks_distance": float(kstest(ratios * k, chi2(k).cdf).statistic),
        "n_independent": int(white.size),
        "size_pvalue": 2 * min(below, 1 - below),
        "ks_pvalue": float(kstest(white.ravel(), "norm").pvalue) if kind == "gaussian" else None,
    }
