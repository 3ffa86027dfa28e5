"""Planes of an embedding: the components that are drawn, their limits, and how many points each pixel holds."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from scalable_gpe import checks

_ROWS = 262_144  # rows of an embedding that are read at once


def powers_of(embedding: Any) -> dict[int, Any]:
    """N x k points of each power of an embedding."""
    points = embedding.points
    return points if isinstance(points, dict) else {embedding.report["power"]: points}


def points_of(embedding: Any, power: int | None = None) -> tuple[Any, Any]:
    """N x k points of one power (the largest by default) of an embedding or an array, and that power."""
    if not hasattr(embedding, "points"):
        return embedding, power
    known = powers_of(embedding)
    power = max(known) if power is None else power
    if power not in known:
        raise ValueError(f"power must be one of {sorted(known)}; got {power!r}.")
    return known[power], power


def blocks(points: Any) -> Iterator[np.ndarray]:
    """Rows of a numpy or zarr array, float32, some at a time."""
    for start in range(0, points.shape[0], _ROWS):
        yield np.asarray(points[start : start + _ROWS], dtype=np.float32)


def plane(points: Any, components: Any, n_axes: Sequence[int] = (2,)) -> tuple[np.ndarray, tuple[str, ...]]:
    """N x 2 (or 3) float32 and the names of the axes: some columns, or the points turned to their principal axes."""
    if isinstance(components, str):
        checks.check_choice(components, ("principal",), "components")
        mean, axes = principal_axes(points)
        turned = np.concatenate([(block - mean) @ axes[:, :2] for block in blocks(points)])
        return turned, ("principal axis 1", "principal axis 2")
    chosen = [checks.check_count(one, "components", minimum=0) for one in components]
    if len(chosen) not in n_axes:
        raise ValueError(f"components must be {' or '.join(map(str, n_axes))} columns; got {components!r}.")
    if len(set(chosen)) < len(chosen):
        raise ValueError(f"components must be different columns; got {components!r}.")
    if max(chosen) >= points.shape[1]:
        raise ValueError(f"components must be below {points.shape[1]}; got {components!r}.")
    return np.concatenate([block[:, chosen] for block in blocks(points)]), tuple(f"component {c}" for c in chosen)


def principal_axes(points: Any, n_axes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Mean and leading axes, without the farthest rows: isolated ones would choose the axes alone."""
    step = max(1, points.shape[0] // _ROWS)
    sample = np.concatenate([block[::step] for block in blocks(points)])
    mean = np.median(sample, axis=0)
    squared = ((sample - mean) ** 2).sum(axis=1)
    kept = sample[squared <= np.quantile(squared, 0.99)]
    mean = kept.mean(axis=0)
    covariance = np.atleast_2d(np.cov(kept.T.astype(np.float64)))
    axes = np.linalg.eigh(covariance)[1][:, ::-1][:, :n_axes]
    return mean, (axes * np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])])).astype(np.float32)


def limits_of(plane: np.ndarray, coverage: float) -> tuple[np.ndarray, list[tuple[float, float]]]:
    """Rows inside, and the limits of each axis: equally wide, with a margin."""
    edges = [edges_of(values, coverage) for values in plane.T]
    half = 0.55 * max(float(high - low) for low, high in edges) or 1.0
    limits = [(float(low + high) / 2 - half, float(low + high) / 2 + half) for low, high in edges]
    inside = np.all([(v >= low) & (v <= high) for v, (low, high) in zip(plane.T, limits, strict=True)], axis=0)
    return inside, limits


def edges_of(values: np.ndarray, coverage: float) -> tuple[float, float]:
    """Ends between which the central part of some numbers lies, once those that are far from all others are left out.

    Far are numbers that lie beyond the central 98 % (without at least one number at each end) by twice their width.

    Examples
    --------
    >>> edges_of(np.array([0.0, 1.0, 2.0, 3.0, 4.0, 1000.0]), 1.0)
    (0.0, 4.0)
    """
    cut = max(1, len(values) // 100) if len(values) > 4 else 0
    low, high = np.partition(values, [cut, len(values) - 1 - cut])[[cut, len(values) - 1 - cut]]
    near = values[(values >= low - 2 * (high - low)) & (values <= high + 2 * (high - low))] if high > low else values
    aside = (1 - coverage) / 2
    first, last = np.quantile(near, [aside, 1 - aside])
    return float(first), float(last)


def pixels(plane: np.ndarray, limits: Any, n_pixels: int) -> tuple[np.ndarray, np.ndarray]:
    """Pixel of each point, and points per pixel."""
    at = [
        np.clip(((values - low) / (high - low) * n_pixels).astype(np.int64), 0, n_pixels - 1)
        for values, (low, high) in zip(plane.T, limits, strict=True)
    ]
    place = at[0] * n_pixels + at[1]
    return place, np.bincount(place, minlength=n_pixels**2).reshape(n_pixels, n_pixels)
