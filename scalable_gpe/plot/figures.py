"""Figures and axes, their colours, legends and limits; matplotlib is imported only when something is drawn."""

import base64
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from io import BytesIO
from typing import Any

import numpy as np

from scalable_gpe.checks import check_choice
from scalable_gpe.colors import THEMES, VIRIDIS_PART, ColorColumn, channels
from scalable_gpe.formatting import shortened
from scalable_gpe.io.points import import_optional

Limits = tuple[float, float]

SOFT = "0.55"  # grey of what is not data, on white and on black
_LEGEND = 1.0  # inches beside the square of a figure
_PAGE_DPI, _PAGE_PIXELS = 110, 1_000_000  # at most, of a figure within a page
_COLUMN = 20  # labels in one column of a legend
FAINTEST = 0.5  # opacity of a coloured pixel with one point
MAX_LEGEND = 60  # labels of a legend; a last line counts the others
_MAX_LETTERS = 40  # of a label in the legend


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
    import_optional("matplotlib", "plot", "plot")
    from matplotlib import rc_context, rcParamsDefault, style

    dark = style.library["dark_background"]
    with rc_context(dark if theme == "dark" else {name: rcParamsDefault[name] for name in dark}):
        yield


def new_figure(width: float, height: float) -> Any:
    """Make an empty figure, in inches."""
    import_optional("matplotlib", "plot", "plot")
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


# --- shades ---------------------------------------------------------------------------------------


def color_map(theme: str) -> Any:
    """Colours of numbers: viridis, without the part that cannot be seen on the background."""
    return _part_of("viridis", *VIRIDIS_PART[theme])


def density_map(theme: str) -> Any:
    """Colours of points per pixel: on white lightly to dark."""
    return _part_of("Blues", 0.25, 1.0) if theme == "light" else color_map(theme)


def _part_of(name: str, low: float, high: float) -> Any:
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    return ListedColormap(colormaps[name](np.linspace(low, high, 256)), name=name)


def _norm(column: ColorColumn) -> Any:
    """Scale of the colours of numbers: the same for all plots of a column."""
    from matplotlib.colors import Normalize

    return Normalize(column.low, column.high)


def palette(column: ColorColumn, theme: str) -> np.ndarray:
    """One colour (red, green, blue, from 0 to 1) for each label."""
    return np.array([channels(shade) for shade in column.shades(theme)]) / 255


def point_colors(column: ColorColumn, theme: str) -> np.ndarray:
    """Colour of each row: of its label, or of its number; grey where a number is missing."""
    if column.labels:
        colors: np.ndarray = palette(column, theme)[column.values]
        return colors
    shown = np.asarray(color_map(theme)(_norm(column)(np.nan_to_num(column.values))))[:, :3]
    shown[np.isnan(column.values)] = 0.75 if theme == "light" else 0.4
    return shown


def add_legend(panels: Sequence[Any], column: ColorColumn | None, title: str, theme: str) -> None:
    """Explain the colours, once for all panels."""
    if column is None:
        for panel in panels:
            for image in panel.get_images():
                _style_bar(panel.figure.colorbar(image, ax=panel, shrink=0.6, aspect=30), "points per pixel")
    elif column.labels:
        _add_labels(panels[-1], column, title, theme)
    else:
        from matplotlib.cm import ScalarMappable

        shown = ScalarMappable(_norm(column), color_map(theme))
        _style_bar(panels[-1].figure.colorbar(shown, ax=list(panels), shrink=0.6, aspect=30), title)


def _style_bar(bar: Any, title: str) -> None:
    bar.set_label(title, fontsize=9)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=8, length=2, which="both")
    bar.ax.minorticks_off()


def _add_labels(panel: Any, column: ColorColumn, title: str, theme: str) -> None:
    """Names of the labels in columns beside the last panel; of very many, the most frequent."""
    from matplotlib.lines import Line2D

    n_labels = len(column.labels)
    counts = np.bincount(column.values, minlength=n_labels)
    shown = np.sort(np.argsort(-counts, kind="stable")[:MAX_LEGEND])
    colors = palette(column, theme)
    dot: dict[str, Any] = {"marker": "o", "ms": 5.5, "mew": 0, "ls": ""}
    marks = [Line2D([], [], color=colors[i], label=short_label(column.labels[i]), **dot) for i in shown]
    if len(shown) < n_labels:
        marks.append(Line2D([], [], ls="", label=f"and {n_labels - len(shown):,} more"))
    style = {
        "title": title or None,
        "fontsize": 9 if len(marks) <= _COLUMN else 8,
        "frameon": False,
        "ncols": -(-len(marks) // _COLUMN),
        "handletextpad": 0.2,
        "columnspacing": 0.8,
    }
    panel.legend(handles=marks, loc="center left", bbox_to_anchor=(1.0, 0.5), **style)


def write_labels(ax: Any, points: np.ndarray, column: ColorColumn) -> None:
    """Write each label at the median of its rows: colours that repeat are not enough to tell labels apart."""
    from matplotlib.patheffects import withStroke

    halo = [withStroke(linewidth=2, foreground=ax.get_facecolor())]
    for number, label in enumerate(column.labels[: len(column.labels) - column.n_grey]):
        mine = points[column.values == number]
        if len(mine):
            at = np.median(mine, axis=0)
            ax.text(*at, short_label(label), fontsize=7, ha="center", va="center", path_effects=halo)


def short_label(label: str) -> str:
    """A label as matplotlib writes it plainly: a dollar would begin a formula, and a long one would widen figures."""
    return shortened(label, _MAX_LETTERS).replace("$", r"\$")


# --- pixels ---------------------------------------------------------------------------------------


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
