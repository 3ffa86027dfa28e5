"""Small charts as SVG text, in colours that the page around them chooses: lines, intervals and bars."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

_WIDTH, _HEIGHT = 520, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 14, 12, 46
_LINE = 34  # height of one row of intervals or bars


@dataclass(frozen=True)
class Axis:
    """One axis: its label, its range, and whether it is logarithmic."""

    label: str
    low: float
    high: float
    log: bool = False

    def part(self, value: Any) -> Any:
        """Where values lie between the ends of the axis, from 0 to 1."""
        if self.log:
            return np.log(np.asarray(value, float) / self.low) / np.log(self.high / self.low)
        return (np.asarray(value, float) - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        """Round numbers along the axis."""
        if self.log:
            first, last = int(np.ceil(np.log10(self.low) - 1e-9)), int(np.floor(np.log10(self.high) + 1e-9))
            if last - first >= 1:
                return [10.0**e for e in range(first, last + 1, 1 + (last - first) // 6)]
            return [
                v for e in range(first - 1, last + 1) for m in (1, 2, 5) if self.low <= (v := m * 10.0**e) <= self.high
            ]
        step = 10 ** np.floor(np.log10((self.high - self.low) / 3))
        step *= next(m for m in (1, 2, 5, 10) if (self.high - self.low) / (step * m) <= 6)
        return [float(v) for v in np.arange(np.ceil(self.low / step - 1e-9), self.high / step + 1e-9) * step]


@dataclass(frozen=True)
class Series:
    """A line with its name and the number of its colour."""

    name: str
    x: Any
    y: Any
    color: int


def span(values: Any, *, log: bool = False, floor: float | None = None) -> tuple[float, float]:
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
    aside = 0.05 * (high - low) or 0.5
    return low - aside, high + aside


def number(value: float) -> str:
    """A tick as a reader writes it."""
    if value and (abs(value) >= 1e5 or abs(value) < 1e-3):
        mantissa, exponent = f"{value:.0e}".split("e")
        return (f"{mantissa}·" if mantissa not in ("1",) else "") + f"10{_raised(int(exponent))}"
    return f"{value or 0.0:,.6g}"  # never -0


def _raised(exponent: int) -> str:
    return str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def lines(
    title: str,
    x: Axis,
    y: Axis,
    series: Sequence[Series],
    *,
    marks: Sequence[float] = (),
    marks_name: str = "",
    band: tuple[float, float, str] | None = None,
) -> str:
    """Lines through points; `marks` are values of x, `band` a range of y with its name."""
    across = lambda v: _LEFT + x.part(v) * (_WIDTH - _LEFT - _RIGHT)  # noqa: E731
    down = lambda v: _HEIGHT - _BOTTOM - y.part(v) * (_HEIGHT - _TOP - _BOTTOM)  # noqa: E731
    parts = [_frame(x, y, across, down, _HEIGHT)]
    if band:
        top, bottom = (float(np.clip(down(v), _TOP, _HEIGHT - _BOTTOM)) for v in (band[1], band[0]))
        size = f'x="{_LEFT}" width="{_WIDTH - _LEFT - _RIGHT}" y="{top:.1f}" height="{max(bottom - top, 0):.1f}"'
        parts.append(f'<rect class="band" {size}><title>{escape(band[2])}</title></rect>')
    shown = [one for one in marks if x.low <= one <= x.high]
    for one in shown:
        at = float(across(one))
        parts.append(f'<line class="mark" x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}"/>')
    parts += [_line(one, across, down, y) for one in series]
    names = [(f"s{one.color}", one.name) for one in series]
    names += [("sband", band[2])] if band else []
    names += [("smark", marks_name)] if shown else []
    return _figure(title, _HEIGHT, parts, names)


def _line(one: Series, across: Any, down: Any, y: Axis) -> str:
    # what lies below the axis is left out: on its floor it would look like a measurement
    known = [(a, b) for a, b in zip(one.x, one.y, strict=True) if np.isfinite(b) and b >= y.low]
    points = [(float(across(a)), float(down(np.clip(b, y.low, y.high))), a, b) for a, b in known]
    path = " ".join(f"{a:.1f},{b:.1f}" for a, b, *_ in points)
    words = [escape(f"{one.name}: {number(v)} at {number(u)}") for *_, u, v in points]
    dots = "".join(
        f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3"><title>{text}</title></circle>'
        for (a, b, *_), text in zip(points, words, strict=True)
    )
    return f'<g class="line s{one.color}"><polyline points="{path}"/>{dots}</g>'


def intervals(title: str, x: Axis, rows: Sequence[tuple[str, dict[str, float], int, float | None]], names: Any) -> str:
    """One row for each figure: its value, its interval, its colour, and a value to compare it with."""
    height = _TOP + _BOTTOM + _LINE * len(rows)
    left = 150
    across = lambda v: left + np.clip(x.part(v), 0, 1) * (_WIDTH - left - _RIGHT)  # noqa: E731
    parts = [_grid(x, across, height)]
    for place, (name, figure, color, beside) in enumerate(rows):
        at = _TOP + _LINE * (place + 0.5)
        low, value, high = (float(across(figure[part])) for part in ("low", "value", "high"))
        words = f"{name}: {figure['value']:.4g} ({figure['low']:.4g} to {figure['high']:.4g})"
        parts.append(f'<text class="row" x="{left - 10}" y="{at + 4:.1f}">{escape(name)}</text>')
        parts.append(
            f'<g class="interval s{color}"><line x1="{low:.1f}" x2="{high:.1f}" y1="{at:.1f}" y2="{at:.1f}"/>'
            f'<circle cx="{value:.1f}" cy="{at:.1f}" r="5"><title>{escape(words)}</title></circle></g>'
        )
        if beside is not None:
            a = float(across(beside))
            diamond = f"{a:.1f},{at - 7:.1f} {a + 7:.1f},{at:.1f} {a:.1f},{at + 7:.1f} {a - 7:.1f},{at:.1f}"
            parts.append(f'<polygon class="beside" points="{diamond}"/>')
    return _figure(title, height, parts, names)


def bars(title: str, x: Axis, rows: Sequence[tuple[str, float, str]]) -> str:
    """One bar for each name, with its value in words."""
    height = _TOP + _BOTTOM + _LINE * len(rows)
    left = 90
    across = lambda v: left + x.part(v) * (_WIDTH - left - 80)  # noqa: E731
    parts = [_grid(x, across, height)]
    for place, (name, value, words) in enumerate(rows):
        at, end = _TOP + _LINE * place + 6, float(across(value))
        parts.append(f'<text class="row" x="{left - 10}" y="{at + 15}">{escape(name)}</text>')
        parts.append(f'<rect class="bar" x="{left}" y="{at}" width="{max(end - left, 1):.1f}" height="{_LINE - 12}"/>')
        parts.append(f'<text x="{end + 6:.1f}" y="{at + 15}">{escape(words)}</text>')
    return _figure(title, height, parts, [])


def _grid(x: Axis, across: Any, height: int) -> str:
    parts = []
    for tick in x.ticks():
        at = float(across(tick))
        parts.append(f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP}" y2="{height - _BOTTOM}"/>')
        parts.append(f'<text class="tick" x="{at:.1f}" y="{height - _BOTTOM + 18}">{number(tick)}</text>')
    parts.append(f'<text class="tick" x="{(_WIDTH + _LEFT) / 2}" y="{height - 8}">{escape(x.label)}</text>')
    return "".join(parts)


def _frame(x: Axis, y: Axis, across: Any, down: Any, height: int) -> str:
    parts = [_grid(x, across, height)]
    for tick in y.ticks():
        at = float(down(tick))
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(f'<text class="row" x="{_LEFT - 8}" y="{at + 4:.1f}">{number(tick)}</text>')
    middle = (_TOP + height - _BOTTOM) / 2
    turn = f'transform="rotate(-90 14 {middle})"'
    parts.append(f'<text class="tick" x="14" y="{middle}" {turn}>{escape(y.label)}</text>')
    return "".join(parts)


def _figure(title: str, height: int, parts: list[str], names: Sequence[tuple[str, str]]) -> str:
    keys = "".join(f'<li><span class="key {kind}"></span>{escape(name)}</li>' for kind, name in names)
    legend = f'<ul class="legend">{keys}</ul>' if keys else ""
    drawing = f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape(title)}">{"".join(parts)}</svg>'
    return f"<figure><figcaption>{escape(title)}</figcaption>{drawing}{legend}</figure>"
