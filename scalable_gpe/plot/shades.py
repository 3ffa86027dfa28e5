"""Colours of points and pixels, and the legend that explains them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from scalable_gpe.colors import ColorColumn
from scalable_gpe.plot.figures import is_dark, is_solid


def color_map(ax: Any) -> Any:
    """Colours of numbers: viridis; on a dark background without its darkest part."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    first = 0.2 if is_dark(ax) else 0.0
    return ListedColormap(colormaps["viridis"](np.linspace(first, 1, 256)), name="shades")


def norm(column: ColorColumn) -> Any:
    """Scale of the colours of numbers: the same for all plots of a column."""
    from matplotlib.colors import Normalize

    return Normalize(column.low, column.high)


def palette(n_labels: int) -> np.ndarray:
    """One colour (red, green, blue) for each label."""
    from matplotlib import colormaps

    return np.array([colormaps["tab10" if n_labels <= 10 else "tab20"](i)[:3] for i in range(n_labels)])


def add_legend(panels: Sequence[Any], column: ColorColumn | None, title: str) -> None:
    """Explain the colours, once for all panels."""
    if column is None:
        for panel in panels:
            for image in panel.get_images():
                panel.figure.colorbar(image, ax=panel, label="points per pixel", shrink=0.8)
    elif column.labels:
        _add_labels(panels[-1], column.labels, title)
    else:
        from matplotlib.cm import ScalarMappable

        shown = ScalarMappable(norm(column), color_map(panels[-1]))
        panels[-1].figure.colorbar(shown, ax=list(panels), label=title, shrink=0.8)


def _add_labels(panel: Any, labels: Sequence[str], title: str) -> None:
    from matplotlib.lines import Line2D

    shades = zip(labels, palette(len(labels)), strict=True)
    marks = [Line2D([], [], marker="o", ls="", color=shade, label=label) for label, shade in shades]
    if is_solid(panel):  # whose own legend the layout would cut off
        panel.figure.legend(handles=marks, title=title or None, fontsize=8, loc="outside right center")
    else:
        panel.legend(handles=marks, title=title or None, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
