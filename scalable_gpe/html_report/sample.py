"""The rows that a page shows: as many as keep it below 2 MB for any number of rows, components and powers."""

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from scalable_gpe.colors import color_column
from scalable_gpe.embedding import Embedding
from scalable_gpe.formatting import power_title
from scalable_gpe.plot.explorer import MAX_POINTS, Explorer, drawn_rows, view_data
from scalable_gpe.projection import PointArray, blocks, plane_axes

_MAX_BYTES = 1_300_000  # of coordinates, colours and row numbers, as base64
MAX_POWERS = 12
_MAX_COMPONENTS = 32
_MAX_COLUMNS = 140  # axes of all powers: leaves room for 3,000 rows or more
_N_MORE_COLUMNS = 4  # of 2 bytes: the color and the number of a row take 4 bytes each
MAX_LABELS = 100  # the most frequent ones; the others are joined

_Item = TypeVar("_Item")


def sampled_explorer(embedding: Embedding, color: Any = None, color_label: str = "") -> Explorer:
    """Sample the rows of an embedding, along their principal axes and their first components at each power."""
    powers = embedding.by_power
    n_rows, n_components = next(iter(powers.values())).shape
    shown = spread(list(powers.items()))
    n_principal = min(3, n_components)
    n_shown = min(n_components, _MAX_COMPONENTS, max(2, _MAX_COLUMNS // len(shown) - n_principal))
    axes = [f"principal axis {i + 1}" for i in range(n_principal)] + [f"component {i}" for i in range(n_shown)]
    column = None if color is None else color_column(color, n_rows, MAX_LABELS, embedding)
    rows = drawn_rows(n_rows, min(MAX_POINTS, _n_fitting(len(shown) * len(axes))), column)
    views = []
    for power, points in shown:
        principal = plane_axes(points, n_principal, embedding.ordinary)
        views.append(view_data(power_title(power), _columns(points, principal, n_shown, rows)))
    return Explorer(views, axes, rows, n_rows, None if column is None else column[rows], color_label)


def spread(items: Sequence[_Item]) -> list[_Item]:
    """At most `MAX_POWERS` items, from the first to the last at even steps."""
    places = np.linspace(0, len(items) - 1, min(len(items), MAX_POWERS)).round().astype(int)
    return [items[place] for place in places]


def _n_fitting(n_columns: int) -> int:
    """Rows that fit; base64 takes 4 bytes for 3."""
    return _MAX_BYTES * 3 // 4 // (2 * (n_columns + _N_MORE_COLUMNS))


def _columns(points: PointArray, axes: np.ndarray, n_components: int, rows: np.ndarray) -> np.ndarray:
    """Some rows, in any order, along some axes, then their first components."""
    taken, start = np.empty((len(rows), axes.shape[1] + n_components), np.float32), 0
    for block in blocks(points):
        inside = (rows >= start) & (rows < start + len(block))
        chosen = block[rows[inside] - start]
        taken[inside] = np.hstack([chosen @ axes, chosen[:, :n_components]])
        start += len(block)
    return taken
