"""Embeddings: points when they are few, else the density of all of them."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from scalable_gpe import checks
from scalable_gpe.checks import Power
from scalable_gpe.colors import ColorColumn, color_column
from scalable_gpe.embedding import Embedding
from scalable_gpe.formatting import power_title
from scalable_gpe.plot.figures import DARK, axes_for, new_figure, set_frame, write_note
from scalable_gpe.plot.shades import add_legend, color_map, norm, palette
from scalable_gpe.projection import Limits, PointArray, Projection, limits_of, pixels, points_of, powers_of, project

_FEW = 5_000  # points up to which each one is drawn
_FEW_SOLID = 20_000  # points of a plot in three dimensions, which cannot show a density
_PANELS = 4  # in one row
_PIXELS = 300

Components = Sequence[int] | Literal["principal"]


def scatter(
    embedding: Embedding | PointArray,
    *,
    components: Components = (0, 1),
    power: Power | None = None,
    color: npt.ArrayLike | None = None,
    color_label: str = "",
    title: str | None = None,
    coverage: float = 0.999,
    legend: bool = True,
    ax: Any = None,
) -> Any:
    """Draw two or three components of an embedding: each point when there are few, else the density on a log scale.

    Three components are drawn as points, at most 20,000 of them at even steps. The limits hold the central share
    `coverage` of the points along each axis, after outliers are left out, so that a few isolated rows do not spoil the
    plot. A note in the corner says how many points lie outside.

    Parameters
    ----------
    embedding : Embedding or array (N, k)
        What to draw. It is read in blocks and need not fit in memory.
    components : (int, int), (int, int, int) or "principal"
        Two or three columns, or the two principal axes of the embedding (a rotation, which keeps distances).
    power : int or "all", optional
        Which power, for an embedding of several; "all" if it is there, or the largest.
    color : array (N,), optional
        A column of numbers (each pixel shows their mean) or labels (each pixel shows the most frequent one).
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

    Returns
    -------
    matplotlib axes

    Examples
    --------
    >>> import scalable_gpe as gpe
    >>> from scalable_gpe import plot
    >>> result = gpe.embed(gpe.datasets.torus(1000), power=[16, 256], progress=False)
    >>> plot.scatter(result, power=256, components="principal").get_xlabel()
    'principal axis 1'
    """
    points, chosen = points_of(embedding, power) if isinstance(embedding, Embedding) else (embedding, power)
    shape: tuple[int, ...] = getattr(points, "shape", ())
    if len(shape) != 2 or shape[1] < 2:
        raise ValueError(f"embedding must have two or more columns to be drawn; got shape {shape}.")
    ordinary = embedding.ordinary if isinstance(embedding, Embedding) else None
    projection = project(points, components, n_axes=(2, 3), ordinary=ordinary)
    n_rows = len(projection.points)
    column = None if color is None else color_column(color, n_rows)
    inside, limits = limits_of(projection.points, checks.check_fraction(coverage, "coverage"))
    ax = axes_for(ax, solid=len(limits) == 3)
    notes = _draw(ax, projection, column, inside, limits)
    if legend:
        add_legend([ax], column, color_label)
    set_frame(ax, limits, projection.names)
    ax.set_title(title if title is not None else _title(n_rows, chosen))
    if notes:
        write_note(ax, ", ".join(notes))
    return ax


def powers(
    embedding: Embedding,
    *,
    components: Components = "principal",
    color: npt.ArrayLike | None = None,
    color_label: str = "",
    title: str | None = None,
) -> Any:
    """Draw an embedding at each of its powers, side by side: the same points at finer and coarser scales.

    Parameters
    ----------
    embedding : Embedding
        An embedding of one or several powers.
    components, color, color_label
        As in `scatter`.
    title : str, optional
        Title above all panels; by default the number of points and of dimensions.

    Returns
    -------
    matplotlib figure

    Examples
    --------
    >>> import scalable_gpe as gpe
    >>> from scalable_gpe import plot
    >>> result = gpe.embed(gpe.datasets.torus(1000), power=[16, 256], progress=False)
    >>> len(plot.powers(result).axes)
    2
    """
    points = powers_of(embedding)
    n_rows, n_components = next(iter(points.values())).shape
    column = None if color is None else color_column(color, n_rows)
    n_across = min(_PANELS, len(points))
    n_down = -(-len(points) // n_across)
    solid = {"projection": "3d"} if not isinstance(components, str) and len(components) == 3 else None
    colorbars = column is None and solid is None and n_rows > _FEW  # one beside each panel
    width = (4.9 if colorbars else 4) * n_across + (0.4 if column is None else 1.2)
    figure = new_figure(width, height=0.4 + 4 * n_down)
    panels = figure.subplots(n_down, n_across, squeeze=False, subplot_kw=solid).ravel()
    for panel in panels[len(points) :]:
        panel.remove()
    panels = panels[: len(points)]
    for panel, power in zip(panels, points, strict=True):
        name = power_title(power)
        scatter(embedding, components=components, color=color, power=power, title=name, legend=False, ax=panel)
    add_legend(panels, column, color_label)
    figure.suptitle(title if title is not None else f"{n_rows:,} points, embedded in {n_components} dimensions")
    figure.get_layout_engine().set(h_pad=0.1)  # between that title and those of the panels
    return figure


def _title(n_rows: int, power: Power | None) -> str:
    return f"{n_rows:,} points" + ("" if power is None else f", {power_title(power)}")


def _draw(
    ax: Any, projection: Projection, column: ColorColumn | None, inside: np.ndarray, limits: list[Limits]
) -> list[str]:
    """Draw points or their density; return what the reader must know about points that are not shown."""
    points, n_inside = projection.points, int(inside.sum())
    n_outside = len(points) - n_inside
    notes = [f"{n_outside:,} point{'s' * (n_outside > 1)} outside"] if n_outside else []
    if len(limits) == 3:
        kept = np.flatnonzero(inside)
        kept = kept[np.unique(np.linspace(0, n_inside - 1, min(n_inside, _FEW_SOLID)).astype(np.int64))]
        _draw_points(ax, points[kept], None if column is None else column[kept])
        return ([f"{len(kept):,} of {len(points):,} points drawn"] if len(kept) < n_inside else []) + notes
    if len(points) <= _FEW:
        _draw_points(ax, points, column)
    else:
        _draw_density(ax, points[inside], None if column is None else column[inside], limits)
    return notes


def _draw_points(ax: Any, points: np.ndarray, column: ColorColumn | None) -> None:
    size = float(np.clip(8000 / max(len(points), 1), 3, 25))
    if column is None:
        ax.scatter(*points.T, s=size, lw=0, alpha=0.7)
    elif column.labels:
        for number, shade in enumerate(palette(len(column.labels))):
            ax.scatter(*points[column.values == number].T, s=size, lw=0, color=shade, alpha=0.8)
    else:
        ax.scatter(*points.T, s=size, lw=0, c=column.values, cmap=color_map(ax), norm=norm(column))


def _draw_density(ax: Any, points: np.ndarray, column: ColorColumn | None, limits: list[Limits]) -> None:
    """Draw pixels whose shade is the logarithm of the points in them; coloured by the column where there is one."""
    from matplotlib.colors import LogNorm

    pixel, counts = pixels(points, limits, _PIXELS)
    extent = (*limits[0], *limits[1])
    ax.set_facecolor(DARK)
    if column is None:
        shown = np.ma.masked_equal(counts.T, 0)
        ax.imshow(shown, origin="lower", extent=extent, norm=LogNorm(1, max(2, counts.max())), cmap=color_map(ax))
        return
    shades = _pixel_colors(ax, column, pixel, counts.size)
    # the least opacity keeps single points visible
    opacity = np.where(counts.ravel() > 0, 0.6 + 0.4 * np.log1p(counts.ravel()) / np.log1p(counts.max()), 0)
    image = np.concatenate([shades, opacity[:, None]], axis=1).reshape(*counts.shape, 4).transpose(1, 0, 2)
    ax.imshow(image, origin="lower", extent=extent)


def _pixel_colors(ax: Any, column: ColorColumn, pixel: np.ndarray, n_pixels: int) -> np.ndarray:
    """Colour of each pixel: that of the mean number, or of the most frequent label."""
    if column.labels:
        n_labels = len(column.labels)
        votes = [np.bincount(pixel[column.values == number], minlength=n_pixels) for number in range(n_labels)]
        winners: np.ndarray = palette(n_labels)[np.argmax(votes, axis=0)]
        return winners
    known = ~np.isnan(column.values)
    total = np.bincount(pixel[known], column.values[known], minlength=n_pixels)
    n_known = np.bincount(pixel[known], minlength=n_pixels)
    colors = np.asarray(color_map(ax)(norm(column)(total / np.maximum(n_known, 1))))[:, :3]
    colors[n_known == 0] = 0.5  # grey: no value is known there
    return colors
