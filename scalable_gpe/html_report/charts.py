"""Small charts as SVG: lines, intervals and bars. Their colours come from the style of the page."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from scalable_gpe.formatting import Estimate
from scalable_gpe.markup import Html, element, joined, text

_WIDTH, _HEIGHT = 520, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 14, 12, 46  # margins
_ROW = 34  # height of one row of intervals or bars
_NAMES = 180  # width of the names of intervals
_STAGES, _VALUES = 90, 80  # widths of the names and of the values of bars
_MAX_LABEL = 100  # characters of one label
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Axis:
    """One axis: its label, its range, and whether it is logarithmic."""

    label: str
    low: float
    high: float
    log: bool = False

    def fraction(self, value: float) -> float:
        """Where a value lies on the axis: 0 at its low end, 1 at its high end."""
        if self.log:
            return float(np.log(value / self.low) / np.log(self.high / self.low))
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        """Round numbers along the axis."""
        return self._log_ticks() if self.log else self._even_ticks()

    def _log_ticks(self) -> list[float]:
        first, last = int(np.ceil(np.log10(self.low) - 1e-9)), int(np.floor(np.log10(self.high) + 1e-9))
        if last - first >= 1:
            return [10.0**exponent for exponent in range(first, last + 1, 1 + (last - first) // 6)]
        candidates = [digit * 10.0**exponent for exponent in range(first - 1, last + 1) for digit in (1, 2, 5)]
        return [value for value in candidates if self.low <= value <= self.high]

    def _even_ticks(self) -> list[float]:
        step = 10 ** np.floor(np.log10((self.high - self.low) / 3))
        step *= next(digit for digit in (1, 2, 5, 10) if (self.high - self.low) / (step * digit) <= 6)
        return [float(v) for v in np.arange(np.ceil(self.low / step - 1e-9), self.high / step + 1e-9) * step]


@dataclass(frozen=True)
class Series:
    """A line through points: its name, its coordinates and the number of its colour."""

    name: str
    x: np.ndarray
    y: np.ndarray
    color: int


@dataclass(frozen=True)
class Marks:
    """Vertical lines at some values of x, with one name."""

    values: Sequence[float]
    name: str


@dataclass(frozen=True)
class Band:
    """A range of y, with its name."""

    low: float
    high: float
    name: str


@dataclass(frozen=True)
class IntervalRow:
    """A figure with its interval, the number of its colour, and a value to compare it with."""

    name: str
    figure: Estimate
    color: int
    reference: float | None = None


@dataclass(frozen=True)
class Bar:
    """A value with its name, and the value as text."""

    name: str
    value: float
    text: str


@dataclass(frozen=True)
class LegendKey:
    """A style class of the page, and what it stands for."""

    style: str
    name: str


@dataclass(frozen=True)
class _Scale:
    """An axis that lies between two positions of the drawing."""

    axis: Axis
    start: float
    stop: float

    def at(self, value: float) -> float:
        return self.start + self.axis.fraction(value) * (self.stop - self.start)

    def clipped(self, value: float) -> float:
        return self.start + min(max(self.axis.fraction(value), 0.0), 1.0) * (self.stop - self.start)


def span(values: npt.ArrayLike, *, log: bool = False, floor: float | None = None) -> tuple[float, float]:
    """Range that holds all values, with a margin."""
    known = np.asarray(values, float)
    known = known[np.isfinite(known) & ((known > 0) if log else True)]
    if floor is not None:
        known = np.maximum(known, floor)
    if not known.size:
        return (0.1, 10.0) if log else (0.0, 1.0)
    low, high = float(known.min()), float(known.max())
    if log:
        return low / 1.3, high * 1.3
    margin = 0.05 * (high - low) or 0.5
    return low - margin, high + margin


def number(value: float) -> str:
    """A number as people write it: 0.02, 20,000, 3·10⁻⁷."""
    if value and (abs(value) >= 1e5 or abs(value) < 1e-3):
        mantissa, exponent = f"{value:.0e}".split("e")
        return ("" if mantissa == "1" else f"{mantissa}·") + f"10{str(int(exponent)).translate(_RAISED)}"
    return f"{value or 0.0:,.6g}"  # never -0


def line_chart(
    title: str, x: Axis, y: Axis, series: Sequence[Series], *, marks: Marks | None = None, band: Band | None = None
) -> Html:
    """Lines through points, with marks of x and a band of y."""
    across, up = _Scale(x, _LEFT, _WIDTH - _RIGHT), _Scale(y, _HEIGHT - _BOTTOM, _TOP)
    shown = [value for value in marks.values if x.low <= value <= x.high] if marks else []
    parts = [_grid(across, _HEIGHT), _left_axis(up)]
    parts += [_band(band, up)] if band else []
    parts += [_vertical(across.at(value), _HEIGHT, "mark") for value in shown]
    parts += [_line(one, across, up) for one in series]
    keys = [LegendKey(f"s{one.color}", one.name) for one in series]
    keys += [LegendKey("sband", band.name)] if band else []
    keys += [LegendKey("smark", marks.name)] if marks and shown else []
    return _figure(title, _HEIGHT, parts, keys)


def interval_chart(title: str, x: Axis, rows: Sequence[IntervalRow], keys: Sequence[LegendKey] = ()) -> Html:
    """One line for each figure: its value and its interval."""
    height = _TOP + _BOTTOM + _ROW * len(rows)
    across = _Scale(x, _NAMES, _WIDTH - _RIGHT)
    parts = [_interval(row, across, _TOP + _ROW * (place + 0.5)) for place, row in enumerate(rows)]
    return _figure(title, height, [_grid(across, height), *parts], keys)


def bar_chart(title: str, x: Axis, bars: Sequence[Bar]) -> Html:
    """One bar for each name, with its value as text."""
    height = _TOP + _BOTTOM + _ROW * len(bars)
    across = _Scale(x, _STAGES, _WIDTH - _VALUES)
    parts = [_bar(one, across, _TOP + _ROW * place) for place, one in enumerate(bars)]
    return _figure(title, height, [_grid(across, height), *parts], [])


def _line(series: Series, across: _Scale, up: _Scale) -> Html:
    # a point below the axis is left out: at the bottom of the chart it would look like a measurement
    known = [
        (float(a), float(b)) for a, b in zip(series.x, series.y, strict=True) if np.isfinite(b) and b >= up.axis.low
    ]
    places = [(f"{across.at(a):.1f}", f"{up.clipped(b):.1f}") for a, b in known]
    dots = [
        element("circle", _tip(f"{series.name}: {number(b)} at {number(a)}"), cx=left, cy=top, r=3)
        for (left, top), (a, b) in zip(places, known, strict=True)
    ]
    path = element("polyline", points=" ".join(f"{left},{top}" for left, top in places))
    return element("g", path, *dots, class_=f"line s{series.color}")


def _band(band: Band, up: _Scale) -> Html:
    bottom, top = up.clipped(band.low), up.clipped(band.high)
    size = {"x": _LEFT, "width": _WIDTH - _LEFT - _RIGHT, "y": f"{top:.1f}", "height": f"{max(bottom - top, 0):.1f}"}
    return element("rect", _tip(band.name), class_="band", **size)


def _interval(row: IntervalRow, across: _Scale, at: float) -> Html:
    figure = row.figure
    ends = f"{figure.low:.4g} to {figure.high:.4g}" if figure.is_bounded else f"at least {figure.low:.4g}"
    tip = _tip(f"{row.name}: {figure.value:.4g} ({ends})")
    low, high, value = (f"{across.clipped(end):.1f}" for end in (figure.low, figure.high, figure.value))
    bar = element("line", x1=low, x2=high, y1=f"{at:.1f}", y2=f"{at:.1f}")
    dot = element("circle", tip, cx=value, cy=f"{at:.1f}", r=5)
    parts = [_label(row.name, _NAMES - 10, at + 4, "row"), element("g", bar, dot, class_=f"interval s{row.color}")]
    if row.reference is not None:
        parts.append(_diamond(across.clipped(row.reference), at))
    return joined(parts)


def _diamond(x: float, y: float) -> Html:
    corners = ((x, y - 7), (x + 7, y), (x, y + 7), (x - 7, y))
    return element("polygon", class_="beside", points=" ".join(f"{a:.1f},{b:.1f}" for a, b in corners))


def _bar(bar: Bar, across: _Scale, top: float) -> Html:
    end = across.at(bar.value)
    size = {"x": _STAGES, "y": top + 6, "width": f"{max(end - _STAGES, 1):.1f}", "height": _ROW - 12}
    return joined(
        [
            _label(bar.name, _STAGES - 10, top + 21, "row"),
            element("rect", class_="bar", **size),
            _label(bar.text, end + 6, top + 21, "value"),
        ]
    )


def _grid(across: _Scale, height: int) -> Html:
    """Vertical lines at the ticks of x, their numbers, and the label of x."""
    ticks = across.axis.ticks()
    lines = [_vertical(across.at(tick), height, "grid") for tick in ticks]
    numbers = [_label(number(tick), across.at(tick), height - _BOTTOM + 18, "tick") for tick in ticks]
    name = _label(across.axis.label, (across.start + across.stop) / 2, height - 8, "tick")
    return joined([*lines, *numbers, name])


def _left_axis(up: _Scale) -> Html:
    """Horizontal lines at the ticks of y, their numbers, and the label of y."""
    parts = []
    for tick in up.axis.ticks():
        at = up.at(tick)
        parts.append(element("line", class_="grid", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=f"{at:.1f}", y2=f"{at:.1f}"))
        parts.append(_label(number(tick), _LEFT - 8, at + 4, "row"))
    middle = (up.start + up.stop) / 2
    name = element("text", text(up.axis.label), class_="tick", x=14, y=middle, transform=f"rotate(-90 14 {middle})")
    return joined([*parts, name])


def _vertical(x: float, height: int, style: str) -> Html:
    return element("line", class_=style, x1=f"{x:.1f}", x2=f"{x:.1f}", y1=_TOP, y2=height - _BOTTOM)


def _label(words: str, x: float, y: float, style: str) -> Html:
    return element("text", text(words, _MAX_LABEL), class_=style, x=f"{x:.1f}", y=f"{y:.1f}")


def _tip(words: str) -> Html:
    """Text that a browser shows when the pointer rests on a shape."""
    return element("title", text(words, 2 * _MAX_LABEL))


def _figure(title: str, height: int, parts: Sequence[Html], keys: Sequence[LegendKey]) -> Html:
    entries = [element("li", element("span", class_=f"key {key.style}"), text(key.name, _MAX_LABEL)) for key in keys]
    legend = [element("ul", *entries, class_="legend")] if entries else []
    drawing = element("svg", *parts, viewBox=f"0 0 {_WIDTH} {height}", role="img", aria_label=title)
    return element("figure", element("figcaption", text(title)), drawing, *legend)
