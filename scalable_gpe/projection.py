"""One power of an embedding, and two axes of it that are drawn."""

import logging
from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np

from scalable_gpe import checks
from scalable_gpe.checks import Power
from scalable_gpe.embedding import Embedding
from scalable_gpe.errors import logger
from scalable_gpe.execution.workers import Workers
from scalable_gpe.formatting import plain, power_title
from scalable_gpe.sketch.rotation import principal_axes
from scalable_gpe.spectral.filters import power_order

_BLOCK_ROWS = 262_144  # rows of an embedding that are read at once
PointArray: TypeAlias = Any  # N x k points: a numpy array, or a zarr array that is read in blocks of rows


def points_of(
    embedding: Embedding, power: Power | None = None, *, log_level: int = logging.INFO
) -> tuple[PointArray, Power]:
    """N x k points of one power of an embedding ("all" if it is there, or the largest), and that power.

    The log says which one of several was taken; `log_level` is a warning where the result does not say it.
    """
    if power is not None:
        return embedding.at(power), power
    by_power = embedding.by_power
    chosen = max(by_power, key=power_order)
    if len(by_power) > 1:
        why = "" if isinstance(chosen, str) else ", the largest"
        taken = f"the embedding has the powers {plain(list(by_power))}: took {power_title(chosen)}{why}."
        logger.log(log_level, "%s", f"{taken} Pass power to choose.")
    return by_power[chosen], chosen


def blocks(points: PointArray) -> Iterator[np.ndarray]:
    """Rows in float32, some at a time; pictures of what is not finite are refused."""
    for start in range(0, points.shape[0], _BLOCK_ROWS):
        block = np.asarray(points[start : start + _BLOCK_ROWS], dtype=np.float32)
        checks.check_finite(block, "points", start)
        yield block


def project(
    points: PointArray, components: Any, ordinary: np.ndarray | None = None
) -> tuple[np.ndarray, tuple[str, ...]]:
    """N x 2 points and the names of their axes: two columns, or the two principal axes of the ordinary rows."""
    if isinstance(components, str):
        checks.check_choice(components, ("principal",), "components")
        axes = plane_axes(points, 2, ordinary)
        rotated = np.concatenate([block @ axes for block in blocks(points)])
        return rotated, ("principal axis 1", "principal axis 2")
    chosen, n_columns = [checks.check_count(column, "components", minimum=0) for column in components], points.shape[1]
    if len(chosen) != 2 or chosen[0] == chosen[1] or max(chosen) >= n_columns:
        raise ValueError(f"components must be two different columns below {n_columns}; got {components!r}.")
    columns = np.concatenate([block[:, chosen] for block in blocks(points)])
    return columns, tuple(f"component {column}" for column in chosen)


def plane_axes(points: PointArray, n_axes: int, ordinary: np.ndarray | None = None) -> np.ndarray:
    """Leading principal axes of the ordinary rows, in columns.

    For points without an embedding, the farthest hundredth is left out: a few rows would determine the axes alone.
    """
    mask = _not_far(points) if ordinary is None else ordinary
    n_rows = int(points.shape[0])
    axes = principal_axes(lambda a, b: points[a:b], n_rows, lambda a, b: mask[a:b], Workers(1))
    return axes.leading(n_axes).astype(np.float32)


def _not_far(points: PointArray) -> np.ndarray:
    """Rows that are not among the farthest hundredth from the median row of a sample."""
    step = max(1, points.shape[0] // _BLOCK_ROWS)
    centre = np.median(np.concatenate([block[::step] for block in blocks(points)]), axis=0)
    squared = np.concatenate([((block - centre) ** 2).sum(axis=1) for block in blocks(points)])
    near: np.ndarray = squared <= np.quantile(squared, 0.99)
    return near
