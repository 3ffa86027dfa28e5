"""Colours of points and pixels, and the legend that explains them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from scalable_gpe.colors import VIRIDIS_PART, ColorColumn, channels

_COLUMN = 20  # labels in one column of a legend
FAINTEST = 0.5  # opacity of a coloured pixel with one point
MAX_LEGEND = 60  # labels of a legend; a last line counts the others
_MAX_LETTERS = 40  # of a label in the legend


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


def norm(column: ColorColumn) -> Any:
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
    shown = np.asarray(color_map(theme)(norm(column)(np.nan_to_num(column.values))))[:, :3]
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

        shown = ScalarMappable(norm(column), color_map(theme))
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
    return (label if len(label) <= _MAX_LETTERS else label[: _MAX_LETTERS - 1] + "…").replace("$", r"\$")
