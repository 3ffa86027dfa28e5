"""The limits of a picture, and its points per pixel."""

from collections.abc import Sequence

import numpy as np

Limits = tuple[float, float]


def limits_of(points: np.ndarray, coverage: float) -> tuple[np.ndarray, list[Limits]]:
    """Which rows lie inside, and the limits of each axis: equally wide, with a margin."""
    edges = [edges_of(values, coverage) for values in points.T]
    half = 0.55 * max(high - low for low, high in edges) or 1.0
    limits = [((low + high) / 2 - half, (low + high) / 2 + half) for low, high in edges]
    inside = np.all([(v >= low) & (v <= high) for v, (low, high) in zip(points.T, limits, strict=True)], axis=0)
    return inside, limits


def edges_of(values: np.ndarray, coverage: float) -> Limits:
    """Ends of the central share `coverage` of some numbers; outliers are left out first.

    An outlier lies beyond the central 98 % by more than twice the width of that range. At least one number at each end
    does not count for the range.

    Examples
    --------
    >>> edges_of(np.array([0.0, 1.0, 2.0, 3.0, 4.0, 1000.0]), 1.0)
    (0.0, 4.0)
    """
    cut = max(1, len(values) // 100) if len(values) > 4 else 0
    low, high = np.partition(values, [cut, len(values) - 1 - cut])[[cut, len(values) - 1 - cut]]
    near = values[(values >= low - 2 * (high - low)) & (values <= high + 2 * (high - low))] if high > low else values
    tail = (1 - coverage) / 2
    first, last = np.quantile(near, [tail, 1 - tail])
    return float(first), float(last)


def pixels(points: np.ndarray, limits: Sequence[Limits], n_pixels: int) -> tuple[np.ndarray, np.ndarray]:
    """Pixel of each point (x-major), and an `n_pixels` x `n_pixels` array of points per pixel."""
    across, up = (
        np.clip(((values - low) / (high - low) * n_pixels).astype(np.int64), 0, n_pixels - 1)
        for values, (low, high) in zip(points.T, limits, strict=True)
    )
    pixel = across * n_pixels + up
    return pixel, np.bincount(pixel, minlength=n_pixels**2).reshape(n_pixels, n_pixels)
