"""Figures and axes: made here, so that matplotlib is imported only when something is drawn."""

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from scalable_gpe.projection import Limits

DARK = (0.06, 0.06, 0.09)  # behind densities: single points stay visible in every colour


def new_figure(width: float, height: float) -> Any:
    """Make an empty figure, in inches."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError('plot needs matplotlib; install it with: pip install "scalable-gpe[plot]"') from None
    if "matplotlib.pyplot" in sys.modules:  # this process shows figures itself, as a notebook does
        return sys.modules["matplotlib.pyplot"].figure(figsize=(width, height), layout="constrained")
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def axes_for(ax: Any, *, solid: bool = False) -> Any:
    """Check the given axes, or make new ones; `solid` is for three dimensions."""
    if ax is None:
        return new_figure(6.4, 5.4).add_subplot(projection="3d" if solid else None)
    if solid and not is_solid(ax):
        raise ValueError("three components need axes with projection='3d'. Leave ax out, or make such axes.")
    return ax


def is_solid(ax: Any) -> bool:
    """Whether axes have three dimensions."""
    return hasattr(ax, "set_zlim")


def is_dark(ax: Any) -> bool:
    """Whether axes have the background of densities."""
    return bool(ax.get_facecolor()[:3] == DARK)


def set_frame(ax: Any, limits: Sequence[Limits], names: Sequence[str]) -> None:
    """Set limits and names of the axes; a unit has the same length on each."""
    solid = is_solid(ax)
    for axis, limit, name in zip("xyz", limits, names, strict=False):
        getattr(ax, f"set_{axis}lim")(limit)
        getattr(ax, f"set_{axis}label")(name + (_move_exponent(getattr(ax, f"{axis}axis"), limit) if solid else ""))
    ax.set_aspect("equal")
    if solid:
        ax.set_box_aspect(None, zoom=0.82)  # room for the names of the axes
        for axis in (ax.xaxis, ax.yaxis, ax.zaxis):
            axis.labelpad = 9
        ax.tick_params(labelsize=8, pad=1)
    ax.locator_params(nbins=3 if solid else 4)
    if not solid:
        ax.ticklabel_format(style="sci", scilimits=(-2, 3))


def _move_exponent(axis: Any, limit: Limits) -> str:
    """Take the power of ten out of the ticks and return it for the name: 3-D axes would print it over the name."""
    exponent = int(np.floor(np.log10(max(np.abs(limit).max(), 1e-300))))
    if -3 < exponent < 4:
        return ""
    axis.set_major_formatter(lambda value, _: f"{value / 10.0**exponent:.3g}")
    return f" (1e{exponent})"


def write_note(ax: Any, text: str) -> None:
    """Write a small text into a corner of the axes."""
    style = {"transform": ax.transAxes, "fontsize": 8, "color": "white" if is_dark(ax) else "black"}
    if is_solid(ax):
        ax.text2D(0.0, 0.98, text, ha="left", va="top", **style)
    else:
        ax.text(0.99, 0.01, text, ha="right", va="bottom", **style)
