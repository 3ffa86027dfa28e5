"""Figures and axes: made here, so that matplotlib is imported only when something is drawn."""

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from scalable_gpe.plot.themes import Theme
from scalable_gpe.projection import Limits

_LEGEND = 1.0  # inches beside the square of a figure


def new_figure(width: float, height: float) -> Any:
    """Make an empty figure, in inches."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError('plot needs matplotlib; install it with: pip install "scalable-gpe[plot]"') from None
    if "matplotlib.pyplot" in sys.modules:  # this process shows figures itself, as a notebook does
        figure = sys.modules["matplotlib.pyplot"].figure(figsize=(width, height), layout="constrained")
    else:
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
    figure.get_layout_engine().set(w_pad=0.08, h_pad=0.08)
    return figure


def axes_for(ax: Any, *, solid: bool = False) -> Any:
    """Check the given axes, or make new ones; `solid` is for three dimensions."""
    if ax is None:
        return new_figure(6.4, 5.4).add_subplot(projection="3d" if solid else None)
    if solid and not is_solid(ax):
        raise ValueError("three components need axes with projection='3d'. Leave ax out, or make such axes.")
    return ax


def make_room(ax: Any) -> None:
    """Widen the figure of axes by what their legend takes beyond the room that every figure has for one."""
    legend = ax.get_legend()
    if legend is not None:
        figure = ax.figure
        width = legend.get_window_extent(figure.canvas.get_renderer()).width / figure.dpi
        figure.set_figwidth(figure.get_figwidth() + max(0.0, 1.05 * width + 0.15 - _LEGEND))


def is_solid(ax: Any) -> bool:
    """Whether axes have three dimensions."""
    return hasattr(ax, "set_zlim")


def set_background(ax: Any, theme: Theme, *, whole: bool) -> None:
    """Set the background of axes, and of the `whole` figure if it is ours; axes of the user stay white or dark."""
    if whole:
        ax.figure.set_facecolor(theme.background)
    if whole or theme.name == "dark":
        ax.set_facecolor(theme.background)


def set_frame(ax: Any, limits: Sequence[Limits], names: Sequence[str], theme: Theme) -> None:
    """Set limits and names of the axes; a unit has the same length on each.

    Two axes have a quiet frame without numbers, as pictures of UMAP have: what counts is who is near whom.
    """
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
        ax.locator_params(nbins=3)
        return
    ax.set(xticks=[], yticks=[])
    for side, spine in ax.spines.items():
        spine.set(visible=side in ("left", "bottom"), color=theme.soft, linewidth=0.6)
    ax.xaxis.label.set(color=theme.soft, fontsize=9, ha="left", x=0.0)
    ax.yaxis.label.set(color=theme.soft, fontsize=9, ha="left", y=0.0)


def _move_exponent(axis: Any, limit: Limits) -> str:
    """Take the power of ten out of the ticks and return it for the name: 3-D axes would print it over the name."""
    exponent = int(np.floor(np.log10(max(np.abs(limit).max(), 1e-300))))
    if -3 < exponent < 4:
        return ""
    axis.set_major_formatter(lambda value, _: f"{value / 10.0**exponent:.3g}")
    return f" (1e{exponent})"


def write_title(ax: Any, text: str, theme: Theme) -> None:
    """Write the title of axes."""
    ax.set_title(text, color=theme.ink, fontsize=11)


def write_note(ax: Any, text: str, theme: Theme) -> None:
    """Write a small text into a corner: below flat axes, where no points are."""
    style = {"transform": ax.transAxes, "fontsize": 8, "color": theme.soft}
    if is_solid(ax):
        ax.text2D(0.0, 0.98, text, ha="left", va="top", **style)
    else:
        ax.text(1.0, -0.012, text, ha="right", va="top", **style)
