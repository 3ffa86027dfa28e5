"""Pictures of millions of points by datashader, which is made for them."""

from importlib.util import find_spec
from typing import Any

import numpy as np

from scalable_gpe.colors import ColorColumn
from scalable_gpe.pixels import Limits
from scalable_gpe.plot.shades import FAINTEST, color_map, density_map, palette

_FILLED = 0.5  # spread single points until this share of the pixels beside points is filled
_SPREAD = 2  # pixels at most


def has_datashader() -> bool:
    """Whether datashader is installed."""
    return find_spec("datashader") is not None


def datashade(
    points: np.ndarray, column: ColorColumn | None, limits: list[Limits], n_pixels: int, theme: str
) -> np.ndarray:
    """The picture of some points: red, green, blue, opacity of each pixel, the lowest row first.

    Shades are spread evenly over the pixels (histogram equalisation), so that sparse and dense regions both show their
    structure. A pixel of several labels mixes their colours by their shares; one of numbers has that of their mean.
    """
    try:
        import datashader
        from datashader import transfer_functions
    except ImportError:
        raise ImportError(
            'engine="datashader" needs datashader; install it with: pip install "scalable-gpe[datashader]"'
        ) from None
    canvas = datashader.Canvas(n_pixels, n_pixels, x_range=limits[0], y_range=limits[1])
    if column is None:
        counts = canvas.points(_frame(points), "x", "y")
        shown = transfer_functions.shade(counts, cmap=_hexes(density_map(theme).colors), how="eq_hist")
    elif column.labels:
        votes = canvas.points(_frame(points, column), "x", "y", datashader.count_cat("color"))
        colors = _hexes(palette(column, theme))
        shown = transfer_functions.shade(votes, color_key=colors, how="eq_hist", min_alpha=int(255 * FAINTEST))
    else:
        means = canvas.points(_frame(points, column), "x", "y", datashader.mean("color"))
        colors = _hexes(color_map(theme).colors)
        shown = transfer_functions.shade(means, cmap=colors, how="linear", span=(column.low, column.high))
    shown = transfer_functions.dynspread(shown, threshold=_FILLED, max_px=_SPREAD)
    values = np.ascontiguousarray(shown.values)
    return values.view(np.uint8).reshape(*values.shape, 4)


def _frame(points: np.ndarray, column: ColorColumn | None = None) -> Any:
    import pandas as pd

    frame = pd.DataFrame({"x": points[:, 0], "y": points[:, 1]}, copy=False)
    if column is not None and column.labels:
        frame["color"] = pd.Categorical.from_codes(column.values, categories=list(column.labels))
    elif column is not None:
        frame["color"] = column.values
    return frame


def _hexes(colors: np.ndarray) -> list[str]:
    from matplotlib.colors import to_hex

    return [to_hex(color) for color in colors]
