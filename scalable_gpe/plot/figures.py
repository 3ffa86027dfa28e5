"""Figures and axes: made here, so that matplotlib is imported only when something is drawn."""

import base64
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from io import BytesIO
from typing import Any

from scalable_gpe.checks import check_choice
from scalable_gpe.colors import THEMES
from scalable_gpe.pixels import Limits

SOFT = "0.55"  # grey of what is not data, on white and on black
_LEGEND = 1.0  # inches beside the square of a figure
_PAGE_DPI, _PAGE_PIXELS = 110, 1_000_000  # at most, of a figure within a page


def has_matplotlib() -> bool:
    """Whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def picture_of(figure: Any, max_bytes: int) -> str:
    """Address that holds a figure as WebP; the figure is closed, so that no notebook shows it again."""
    dpi = min(_PAGE_DPI, (_PAGE_PIXELS / figure.get_size_inches().prod()) ** 0.5)
    address = _address_of(figure, dpi)
    while len(address) > max_bytes:
        dpi *= 0.9 * (max_bytes / len(address)) ** 0.5
        address = _address_of(figure, dpi)
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close(figure)
    return address


def _address_of(figure: Any, dpi: float) -> str:
    stream = BytesIO()
    figure.savefig(stream, format="webp", dpi=dpi, pil_kwargs={"quality": 85})
    return "data:image/webp;base64," + base64.b64encode(stream.getvalue()).decode("ascii")


@contextmanager
def themed(theme: str) -> Iterator[None]:
    """Draw with matplotlib's colours for dark backgrounds, or with its default ones in their place."""
    check_choice(theme, THEMES, "theme")
    _require_matplotlib()
    from matplotlib import rc_context, rcParamsDefault, style

    dark = style.library["dark_background"]
    with rc_context(dark if theme == "dark" else {name: rcParamsDefault[name] for name in dark}):
        yield


def _require_matplotlib() -> None:
    if not has_matplotlib():
        raise ImportError('plot needs matplotlib; install it with: pip install "scalable-gpe[plot]"')


def new_figure(width: float, height: float) -> Any:
    """Make an empty figure, in inches."""
    _require_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    if "matplotlib.pyplot" in sys.modules:  # this process shows figures itself, as a notebook does
        figure = sys.modules["matplotlib.pyplot"].figure(figsize=(width, height), layout="constrained")
    else:
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
    figure.get_layout_engine().set(w_pad=0.08, h_pad=0.08)
    return figure


def axes_for(ax: Any) -> Any:
    """Take the given axes, or make new ones."""
    return new_figure(6.4, 5.4).add_subplot() if ax is None else ax


def make_room(ax: Any) -> None:
    """Widen the figure of axes by what their legend takes beyond the room that every figure has for one."""
    legend = ax.get_legend()
    if legend is not None:
        figure = ax.figure
        width = legend.get_window_extent(figure.canvas.get_renderer()).width / figure.dpi
        figure.set_figwidth(figure.get_figwidth() + max(0.0, 1.05 * width + 0.15 - _LEGEND))


def set_frame(ax: Any, limits: Sequence[Limits], names: Sequence[str]) -> None:
    """Set limits and names of the axes; a unit has the same length on each.

    The frame is quiet and without numbers, as in pictures of UMAP: what counts is who is near whom.
    """
    for axis, limit, name in zip("xy", limits, names, strict=True):
        ax.set(**{f"{axis}lim": limit, f"{axis}label": name, f"{axis}ticks": []})
    ax.set_aspect("equal")
    for side, spine in ax.spines.items():
        spine.set(visible=side in ("left", "bottom"), color=SOFT, linewidth=0.6)
    ax.xaxis.label.set(color=SOFT, fontsize=9, ha="left", x=0.0)
    ax.yaxis.label.set(color=SOFT, fontsize=9, ha="left", y=0.0)


def write_note(ax: Any, text: str) -> None:
    """Write a small text below the axes, where no points are."""
    ax.text(1.0, -0.012, text, ha="right", va="top", transform=ax.transAxes, fontsize=8, color=SOFT)
