"""Embeddings: points when they are few, else the density of all of them."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from scalable_gpe import checks
from scalable_gpe.checks import Power
from scalable_gpe.colors import N_COLORS, ColorColumn, ThemeName, color_column, drawn_rows, label_colors
from scalable_gpe.embedding import Embedding
from scalable_gpe.formatting import power_title
from scalable_gpe.plot.figures import (
    FAINTEST,
    MAX_LEGEND,
    Limits,
    add_legend,
    axes_for,
    density_map,
    limits_of,
    make_room,
    new_figure,
    palette,
    pixels,
    point_colors,
    set_frame,
    themed,
    write_labels,
    write_note,
)
from scalable_gpe.projection import PointArray, points_of, project

_FEW = 100_000  # points up to which each one is drawn
_PANELS = 4  # in one row
_PIXELS = (150, 600)  # fewest and most of a density

Components = Sequence[int] | Literal["principal"]


def scatter(
    embedding: Embedding | PointArray,
    *,
    components: Components = "principal",
    power: Power | None = None,
    color: npt.ArrayLike | None = None,
    color_label: str = "",
    title: str | None = None,
    coverage: float = 0.999,
    legend: bool = True,
    ax: Any = None,
    theme: ThemeName = "light",
    max_labels: int | None = None,
) -> Any:
    """Draw the principal plane of an embedding: each point up to 100,000 of them, else the density on a log scale.

    Points are small, solid and in random order, so that no label hides another. The limits hold the central share
    `coverage` of the points along each axis, after outliers are left out, so that a few isolated rows do not spoil the
    plot. A note in the corner says how many points lie outside.

    Parameters
    ----------
    embedding : Embedding or array (N, k)
        What to draw. It is read in blocks and need not fit in memory.
    components : "principal" or (int, int)
        The two principal axes of the embedding (a rotation, which keeps distances), or two columns. An array
        of two columns is drawn as it is.
    power : int or "all", optional
        Which power, for an embedding of several; "all" if it is there, or the largest. The title says which, or the log
        if a title is given.
    color : array (N,), optional
        A column of numbers (each pixel of a density shows their mean) or labels (each pixel shows the most frequent
        one). Texts, bools and pandas categoricals are labels, and so are whole numbers with at most 20 different
        values, or numbered without gaps from 0 or 1 up to 100, as clusters are. ``values.astype(str)`` makes labels of
        any numbers, ``values.astype(float)`` numbers of any labels.
    color_label : str
        What the colours mean.
    title : str, optional
        Title; by default the number of points and the power.
    coverage : float
        Share of the points that lies within the limits of each axis.
    legend : bool
        Explain the colours beside the plot.
    ax : matplotlib axes, optional
        Where to draw; a new figure by default.
    theme : {"light", "dark"}
        White or dark background.
    max_labels : int, optional
        Keep so many of the labels, the most frequent ones, and join the others in a grey label "other". By default
        each label is drawn: 20 have colours of their own, more repeat them paler, then darker.

    Returns
    -------
    matplotlib axes

    Examples
    --------
    >>> import scalable_gpe as gpe
    >>> result = gpe.embed(gpe.datasets.torus(1000), power=[16, 256], progress=False)
    >>> gpe.plot.scatter(result, power=256).get_xlabel()
    'principal axis 1'
    """
    with themed(theme):
        # the default title says which power was taken
        log_level = logging.INFO if title is None else logging.WARNING
        drawn, names, chosen = projected(embedding, components, power, log_level)
        n_rows = len(drawn)
        column = None if color is None else color_column(color, n_rows, max_labels, embedding)
        inside, limits = limits_of(drawn, checks.check_fraction(coverage, "coverage"))
        points, colors = drawn[inside], None if column is None else column[inside]
        given, ax = ax, axes_for(ax)
        if given is not None and theme == "dark":
            ax.set_facecolor("black")
        if n_rows <= _FEW:
            _draw_points(ax, points, colors, theme)
        else:
            _draw_density(ax, points, colors, limits, theme)
        if legend:
            add_legend([ax], column, color_label, theme)
            if given is None:
                make_room(ax)
        set_frame(ax, limits, names)
        if colors is not None and N_COLORS < len(colors.labels) <= MAX_LEGEND:
            write_labels(ax, points, colors)
        ax.set_title(title if title is not None else default_title(n_rows, chosen), fontsize=11)
        if n_outside := n_rows - len(points):
            write_note(ax, f"{n_outside:,} point{'s' * (n_outside > 1)} outside")
    return ax


def projected(
    embedding: Embedding | PointArray, components: Components, power: Power | None, log_level: int = logging.INFO
) -> tuple[np.ndarray, tuple[str, ...], Power | None]:
    """N x 2 points to draw, the names of their axes, and the power that they belong to; a plane is drawn as it is."""
    points, ordinary = embedding, None
    if isinstance(embedding, Embedding):
        (points, power), ordinary = points_of(embedding, power, log_level=log_level), embedding.ordinary
    shape: tuple[int, ...] = getattr(points, "shape", ())
    if len(shape) != 2 or shape[1] < 2:
        raise ValueError(f"embedding must have two or more columns to be drawn; got shape {shape}.")
    if ordinary is None and shape[1] == 2 and isinstance(components, str) and components == "principal":
        components = (0, 1)
    return *project(points, components, ordinary), power


def powers(
    embedding: Embedding,
    *,
    components: Components = "principal",
    color: npt.ArrayLike | None = None,
    color_label: str = "",
    title: str | None = None,
    theme: ThemeName = "light",
    max_labels: int | None = None,
) -> Any:
    """Draw an embedding at each of its powers, side by side: the same points at finer and coarser scales.

    Parameters
    ----------
    embedding : Embedding
        An embedding of one or several powers.
    components, color, color_label, theme, max_labels
        As in `scatter`.
    title : str, optional
        Title above all panels; by default the number of points and of dimensions.

    Returns
    -------
    array of matplotlib axes, one for each power
        ``axes[0].figure`` is their figure.

    Examples
    --------
    >>> import scalable_gpe as gpe
    >>> from scalable_gpe import plot
    >>> result = gpe.embed(gpe.datasets.torus(1000), power=[16, 256], progress=False)
    >>> [ax.get_title() for ax in plot.powers(result)]
    ['power 16', 'power 256']
    """
    points = embedding.by_power
    n_rows, n_components = next(iter(points.values())).shape
    column = None if color is None else color_column(color, n_rows, max_labels, embedding)
    n_across = min(_PANELS, len(points))
    n_down = -(-len(points) // n_across)
    colorbars = column is None and n_rows > _FEW  # one beside each panel
    width = (4.9 if colorbars else 4) * n_across + (0.4 if column is None else 1.2)
    with themed(theme):
        figure = new_figure(width, height=0.4 + 4 * n_down)
        panels = figure.subplots(n_down, n_across, squeeze=False).ravel()
        for panel in panels[len(points) :]:
            panel.remove()
        panels = panels[: len(points)]
        for panel, power in zip(panels, points, strict=True):
            scatter(
                embedding,
                components=components,
                color=color,
                power=power,
                title=power_title(power),
                legend=False,
                ax=panel,
                theme=theme,
                max_labels=max_labels,
            )
        add_legend([*panels[n_across:], *panels[:n_across]], column, color_label, theme)  # beside the first row
        make_room(panels[n_across - 1])
        figure.suptitle(title if title is not None else f"{n_rows:,} points, embedded in {n_components} dimensions")
    figure.get_layout_engine().set(h_pad=0.1)  # between that title and those of the panels
    return panels


def default_title(n_rows: int, power: Power | None) -> str:
    """Number of points, and the power."""
    return f"{n_rows:,} points" + ("" if power is None else f", {power_title(power)}")


def _draw_points(ax: Any, points: np.ndarray, column: ColorColumn | None, theme: str) -> None:
    """Draw small solid points, in random order: a label that is drawn last would hide the others. Grey comes first."""
    order = drawn_rows(len(points), len(points), column)
    size = float(np.clip(40_000 / max(len(points), 1), 0.8, 25)) * min(1.0, _side(ax) / 4) ** 2
    colors = label_colors(1, theme)[0] if column is None else point_colors(column, theme)[order]
    ax.scatter(*points[order].T, s=size, lw=0, c=colors, rasterized=True)


def _draw_density(ax: Any, points: np.ndarray, column: ColorColumn | None, limits: list[Limits], theme: str) -> None:
    """Draw pixels whose shade is the logarithm of the points in them; coloured by the column where there is one."""
    from matplotlib.colors import LogNorm

    pixel, counts = pixels(points, limits, _n_pixels(ax))
    extent = (*limits[0], *limits[1])
    if column is None:
        shown = np.ma.masked_equal(counts.T, 0)
        scale = LogNorm(1, max(2, counts.max()))
        ax.imshow(shown, origin="lower", extent=extent, norm=scale, cmap=density_map(theme), interpolation="nearest")
        return
    shades = _pixel_colors(column, pixel, counts.size, theme)
    many = np.quantile(counts[counts > 0], 0.95)  # a few crowded pixels would make the others pale
    depth = np.minimum(np.log1p(counts.ravel()) / np.log1p(many), 1)
    opacity = np.where(counts.ravel() > 0, FAINTEST + (1 - FAINTEST) * depth, 0)
    image = np.concatenate([shades, opacity[:, None]], axis=1).reshape(*counts.shape, 4).transpose(1, 0, 2)
    ax.imshow(image, origin="lower", extent=extent, interpolation="nearest")


def _n_pixels(ax: Any) -> int:
    """Pixels of a density: somewhat larger than those of the screen, which would leave out some of smaller ones."""
    return int(np.clip(100 * _side(ax), *_PIXELS))


def _side(ax: Any) -> float:
    extent = ax.get_window_extent()
    return float(min(extent.width, extent.height) / ax.figure.dpi)


def _pixel_colors(column: ColorColumn, pixel: np.ndarray, n_pixels: int, theme: str) -> np.ndarray:
    """Colour of each pixel: that of the mean number, or of the most frequent label."""
    if column.labels:
        winners: np.ndarray = palette(column, theme)[_winners(column.values, pixel, n_pixels)]
        return winners
    known = ~np.isnan(column.values)
    total = np.bincount(pixel[known], column.values[known], minlength=n_pixels)
    n_known = np.bincount(pixel[known], minlength=n_pixels)
    means = np.where(n_known > 0, total / np.maximum(n_known, 1), np.nan)
    return point_colors(replace(column, values=means), theme)


def _winners(values: np.ndarray, pixel: np.ndarray, n_pixels: int) -> np.ndarray:
    """The most frequent label of each pixel, the first one of several."""
    n_labels = int(values.max(initial=0)) + 1
    most, winner = np.zeros(n_pixels, np.int64), np.zeros(n_pixels, np.int64)
    pairs, votes = np.unique(pixel * n_labels + values, return_counts=True)
    np.maximum.at(most, pairs // n_labels, votes)
    best = pairs[votes == most[pairs // n_labels]][::-1]
    winner[best // n_labels] = best % n_labels
    return winner
