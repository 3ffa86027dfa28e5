"""What the explorer of a page shows: a sample of the rows as whole numbers, and a picture of all rows at each power.

Coordinates are numbers from 0 to 65,534 along each axis: 2 bytes, and fine enough to zoom into. The sample is as large
as `_MAX_BYTES` allow, so that a page stays below 2 MB for any number of rows, components and powers.
"""

import base64
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from scalable_gpe.checks import Power
from scalable_gpe.colors import ColorColumn, color_column
from scalable_gpe.embedding import Embedding
from scalable_gpe.html_report.palette import BACKGROUND, COUNTS, NUMBERS, density_palette
from scalable_gpe.png import data_address, png
from scalable_gpe.projection import PointArray, blocks, edges_of, plane_axes, powers_of

_MAX_BYTES = 1_600_000  # of coordinates, colours and pictures, as base64
_MAX_PICTURE_BYTES = 400_000  # of these, for all pictures
_MAX_ROWS = 60_000
MAX_POWERS = 12
_MAX_COMPONENTS = 32
_MAX_COLUMNS = 140  # axes of all powers: leaves room for 3,000 rows or more
_MAX_LABELS = 100  # the most frequent ones; the others are joined
_N_STEPS = 65_534  # of a coordinate; one more number marks a row that is out of range
_COVERAGE = 0.999  # share of the rows within the first view, along each axis
_PIXELS = 256

_Item = TypeVar("_Item")


@dataclass(frozen=True)
class PowerView:
    """The rows at one power.

    Attributes
    ----------
    power : int or "all"
        The power.
    steps : array (n_sampled, n_axes) of uint16
        Coordinates of sampled rows: 0 is `low`, 65,534 is `high`, 65,535 is out of range.
    low, high : array (n_axes,)
        Range of the coordinates.
    first : array (n_axes, 2)
        Range of the first view, before the reader zooms.
    n_outside : int
        Rows, of all of them, that are out of range along some axis.
    picture : str
        Address that holds a picture: the density of all rows along the first two axes.
    """

    power: Power
    steps: np.ndarray
    low: np.ndarray
    high: np.ndarray
    first: np.ndarray
    n_outside: int
    picture: str


@dataclass(frozen=True)
class View:
    """What the explorer of a page shows, and of how much it is a part."""

    n_rows: int
    n_components: int
    n_powers: int
    n_shown_components: int
    axes: tuple[str, ...]
    powers: tuple[PowerView, ...]
    color: ColorColumn | None
    color_label: str

    @property
    def n_sampled(self) -> int:
        """Rows that the page carries."""
        return len(self.powers[0].steps)

    def to_json(self) -> str:
        """Data of the page's script."""
        data = {
            "rows": self.n_rows,
            "sampled": self.n_sampled,
            "axes": self.axes,
            "first": [0, min(1, len(self.axes) - 1)],
            "powers": [_power_json(one) for one in self.powers],
            "color": None if self.color is None else _color_json(self.color),
            "ramp": COUNTS if self.color is None else NUMBERS,
            "background": BACKGROUND,
        }
        return json.dumps(data)


def _power_json(view: PowerView) -> dict[str, object]:
    return {
        "power": view.power,
        "columns": [_base64(column.astype("<u2")) for column in view.steps.T],
        "low": view.low.tolist(),
        "high": view.high.tolist(),
        "first": view.first.tolist(),
        "outside": view.n_outside,
    }


def _color_json(color: ColorColumn) -> dict[str, object]:
    if color.labels:
        return {"shades": color.shades("light"), "values": _base64(color.values.astype(np.uint8))}
    clipped = np.clip(color.values, color.low, color.high)
    return {"shades": None, "values": _base64(_to_steps(clipped, color.low, color.high).astype("<u2"))}


def _base64(values: np.ndarray) -> str:
    return base64.b64encode(values.tobytes()).decode("ascii")


def sampled_view(embedding: Embedding, color: Any = None, color_label: str = "") -> View:
    """Sample the rows of an embedding, as many as a page can carry, and draw all of them at each power."""
    powers = powers_of(embedding)
    n_rows, n_components = next(iter(powers.values())).shape
    column = None if color is None else color_column(color, n_rows, _MAX_LABELS)
    shown = spread(list(powers.items()))
    n_principal = min(3, n_components)
    n_shown = min(n_components, _MAX_COMPONENTS, max(2, _MAX_COLUMNS // len(shown) - n_principal))
    axes = [f"principal axis {i + 1}" for i in range(n_principal)] + [f"component {i}" for i in range(n_shown)]
    chosen = np.random.default_rng(0).choice(n_rows, min(n_rows, _MAX_ROWS), replace=False)
    rows = np.sort(chosen)
    side = _picture_side(n_rows, len(shown))
    ordinary = embedding.ordinary
    views = [_power_view(power, _Axes(points, n_principal, n_shown, ordinary), rows, side) for power, points in shown]
    kept = np.sort(chosen[: _n_fitting(views)])
    places = np.searchsorted(rows, kept)
    return View(
        n_rows=n_rows,
        n_components=n_components,
        n_powers=len(powers),
        n_shown_components=n_shown,
        axes=tuple(axes),
        powers=tuple(replace(one, steps=one.steps[places]) for one in views),
        color=None if column is None else column[kept],
        color_label=color_label,
    )


def spread(items: Sequence[_Item], most: int = MAX_POWERS) -> list[_Item]:
    """At most so many items, from the first to the last at even steps."""
    places = np.linspace(0, len(items) - 1, min(len(items), most)).round().astype(int)
    return [items[place] for place in places]


def _picture_side(n_rows: int, n_pictures: int) -> int:
    """Pixels of a side: fewer for few rows, which many pixels would scatter, and for many pictures."""
    affordable = int(np.sqrt(_MAX_PICTURE_BYTES * 3 / 4 / n_pictures))
    return int(np.clip(3 * np.sqrt(n_rows), 48, min(_PIXELS, affordable)))


def _n_fitting(views: Sequence[PowerView]) -> int:
    """Sampled rows that fit beside the pictures, with one more column for colours; base64 takes 4 bytes for 3."""
    room: int = (_MAX_BYTES - sum(len(one.picture) for one in views)) * 3 // 4
    n_columns = 1 + sum(len(one.low) for one in views)
    return room // (2 * n_columns)


class _Axes:
    """Points of one power along their principal axes, then along their first components."""

    def __init__(self, points: PointArray, n_principal: int, n_components: int, ordinary: np.ndarray) -> None:
        self._points, self._n_components = points, n_components
        self._principal = plane_axes(points, n_principal, ordinary)

    def blocks(self) -> Iterator[np.ndarray]:
        """All rows in float64, some at a time."""
        for block in blocks(self._points):
            principal = block @ self._principal
            yield np.hstack([principal, block[:, : self._n_components]]).astype(np.float64)

    def take(self, rows: np.ndarray) -> np.ndarray:
        """Some rows, in ascending order."""
        parts, start = [], 0
        for block in self.blocks():
            inside = rows[(rows >= start) & (rows < start + len(block))]
            parts.append(block[inside - start])
            start += len(block)
        return np.concatenate(parts)


def _power_view(power: Power, axes: _Axes, rows: np.ndarray, side: int) -> PowerView:
    sample = axes.take(rows)
    first = np.array([_widened(*edges_of(values, _COVERAGE)) for values in sample.T])
    width = first[:, 1] - first[:, 0]
    low, high = first[:, 0] - width, first[:, 1] + width
    counts, n_outside = _count(axes, first, low, high, side)
    picture = data_address(png(_shades(counts), density_palette()))
    return PowerView(power, _to_steps(sample, low, high), low, high, first, n_outside, picture)


def _widened(low: float, high: float) -> tuple[float, float]:
    """A range that is not empty, also when all rows are equal."""
    margin = 0.0 if high > low else max(1e-6 * abs(low), 1e-30)
    return low - margin, high + margin


def _to_steps(values: np.ndarray, low: Any, high: Any) -> np.ndarray:
    steps = np.round((values - low) / (high - low) * _N_STEPS)
    return np.where((steps >= 0) & (steps <= _N_STEPS), steps, _N_STEPS + 1).astype(np.uint16)


def _count(axes: _Axes, first: np.ndarray, low: np.ndarray, high: np.ndarray, side: int) -> tuple[np.ndarray, int]:
    """Rows per pixel along the first two axes, top row first, and the rows that are out of range along some axis."""
    pair = [0, min(1, len(first) - 1)]
    half = 0.55 * (first[pair, 1] - first[pair, 0]).max()
    corner = first[pair].mean(axis=1) - half
    counts, n_outside = np.zeros(side**2, np.int64), 0
    for block in axes.blocks():
        n_outside += int(((block < low) | (block > high)).any(axis=1).sum())
        at = np.floor((block[:, pair] - corner) / (2 * half) * side)
        across, up = at[((at >= 0) & (at < side)).all(axis=1)].astype(np.int64).T
        counts += np.bincount((side - 1 - up) * side + across, minlength=side**2)
    return counts.reshape(side, side), n_outside


def _shades(counts: np.ndarray) -> np.ndarray:
    """Colours of the density palette: the logarithm of the counts, 0 for none."""
    shades = np.zeros(counts.shape, np.uint8)
    top = np.log(max(int(counts.max()), 2))
    shades[counts > 0] = 1 + np.round((0.1 + 0.9 * np.log(counts[counts > 0]) / top) * 254).astype(np.uint8)
    return shades
