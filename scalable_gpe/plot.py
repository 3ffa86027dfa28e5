"""Pictures of embeddings, of the choice of epsilon and of the spectrum. Needs ``pip install "scalable-gpe[plot]"``."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from scalable_gpe.engine import checks

__all__ = ["scatter", "powers", "epsilon_sweep", "spectrum"]

_FEW = 5_000  # points up to which each one is drawn
_PIXELS = 300
_NIGHT = (0.06, 0.06, 0.09)  # behind densities: single points stay visible in every colour
_MANY_LABELS = 20
_COLORS = "viridis"
_ROWS = 262_144  # rows of an embedding that are read at once


def scatter(
    embedding: Any,
    *,
    components: Any = (0, 1),
    power: int | None = None,
    color: Any = None,
    color_label: str = "",
    title: str | None = None,
    coverage: float = 0.999,
    legend: bool = True,
    ax: Any = None,
) -> Any:
    """Draw two components of an embedding: points when they are few, else their density in logarithmic shades.

    The limits hold the central part `coverage` of the points along each axis, so that a few isolated rows do not
    ruin the picture; how many lie outside stands in the corner.

    Parameters
    ----------
    embedding : Embedding or array (N, k)
        What to draw; read in blocks, so that it need not fit in memory.
    components : (int, int) or "principal"
        Two columns, or the two principal axes of the embedding (a rotation: distances stay).
    power : int, optional
        Which power, for an embedding of several; the largest by default.
    color : array (N,), optional
        A column of numbers (each pixel shows their mean) or labels (the most frequent one).
    color_label : str
        What the colours mean.
    title : str, optional
        Title; by default size and power.
    coverage : float
        Part of the points that lies within the limits of each axis.
    legend : bool
        Say beside the picture what the colours mean.
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
    points, chosen = _points(embedding, power)
    ax = _axes(ax)
    plane, names = _plane(points, components)
    column = None if color is None else _column(color, len(plane))
    inside, limits = _limits(plane, checks.check_fraction(coverage, "coverage"))
    if len(plane) <= _FEW:
        _draw_points(ax, plane, column)
    else:
        _draw_density(ax, plane[inside], None if column is None else column[inside], limits, _norm(column))
    if legend:
        _legend([ax], column, color_label)
    ax.set(xlim=limits[0], ylim=limits[1], xlabel=names[0], ylabel=names[1], aspect="equal")
    ax.locator_params(nbins=4)
    ax.ticklabel_format(style="sci", scilimits=(-2, 3))
    ax.set_title(title if title is not None else _title(len(plane), chosen))
    if outside := int(len(plane) - inside.sum()):
        place = {"transform": ax.transAxes, "ha": "right", "va": "bottom", "fontsize": 8}
        ax.text(0.99, 0.01, f"{outside:,} points outside", color=_ink(ax), **place)
    return ax


def powers(
    embedding: Any, *, components: Any = "principal", color: Any = None, color_label: str = "", title: str | None = None
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
    points = (
        embedding.points if isinstance(embedding.points, dict) else {embedding.parameters["power"]: embedding.points}
    )
    figure = _figure(width=4 * len(points) + (0.4 if color is None else 1.2), height=4.4)
    panels = figure.subplots(1, len(points), squeeze=False)[0]
    for panel, (power, values) in zip(panels, points.items(), strict=True):
        scatter(values, components=components, color=color, title=f"power {power}", legend=False, ax=panel)
    _legend(panels, None if color is None else np.asarray(color), color_label)
    n_rows, n_components = next(iter(points.values())).shape
    figure.suptitle(title if title is not None else f"{n_rows:,} points, embedded in {n_components} dimensions")
    return figure


def epsilon_sweep(table: Any, *, epsilon: float | None = None, ax: Any = None) -> Any:
    """Draw what each epsilon would mean: effective neighbours, lost mass and connected components.

    Parameters
    ----------
    table : dict of arrays
        The result of ``scalable_gpe.epsilon_sweep``.
    epsilon : float, optional
        A value to mark, such as ``embedding.kernel.epsilon``.
    ax : matplotlib axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    matplotlib axes

    Examples
    --------
    >>> import scalable_gpe as gpe
    >>> from scalable_gpe import plot
    >>> ax = plot.epsilon_sweep(gpe.epsilon_sweep(gpe.neighbor_graph(gpe.datasets.circle(300), 16)))
    >>> ax.get_xscale()
    'log'
    """
    ax = _axes(ax)
    x = np.asarray(table["epsilon"])
    counts = [("effective_neighbors", "effective neighbours (median row)"), ("n_connected_components", "components")]
    for number, (name, label) in enumerate(counts):
        ax.plot(x, table[name], "o-", ms=3, color=f"C{number}", label=label)
    most = max(float(np.max(table[name])) for name, _ in counts)
    ax.set(xscale="log", yscale="log", xlabel="epsilon (squared units of X)", ylabel="number", ylim=(0.1, 2 * most))
    shares = ax.twinx()
    for number, (name, label) in enumerate([("lost_mass", "lost mass"), ("last_weight", "last weight (median row)")]):
        values = np.asarray(table[name], dtype=float)
        if np.isfinite(values).any():
            shares.plot(x, np.maximum(values, 1e-12), "s--", ms=3, color=f"C{number + 2}", label=label)
    shares.set(yscale="log", ylabel="share", ylim=(1e-6, 2))
    if epsilon is not None:
        ax.axvline(checks.check_positive(epsilon, "epsilon"), color="0.4", lw=1, label=f"epsilon = {epsilon:.3g}")
    handles = [*ax.get_legend_handles_labels()[0], *shares.get_legend_handles_labels()[0]]
    ax.legend(handles=handles, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2, frameon=False)
    ax.set_title("what each epsilon would mean")
    return ax


def spectrum(spectrum: Any, *, powers: Any = None, n_components: int | None = None, ax: Any = None) -> Any:
    """Draw the effective rank of A^p for every power p: how many directions are left to embed.

    Parameters
    ----------
    spectrum : Spectrum
        The result of ``scalable_gpe.spectrum``.
    powers : sequence of int, optional
        Powers to draw; by default those which the quadrature resolves.
    n_components : int, optional
        A dimension k to mark: useful powers leave some 10 to 20 times as many directions.
    ax : matplotlib axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    matplotlib axes

    Examples
    --------
    >>> import scalable_gpe as gpe
    >>> from scalable_gpe import plot
    >>> heat = gpe.heat_kernel(gpe.gaussian_kernel(gpe.neighbor_graph(gpe.datasets.circle(300), 16)))
    >>> plot.spectrum(gpe.spectrum(heat), n_components=2).get_xlabel()
    'power p'
    """
    ax = _axes(ax)
    if powers is None:
        powers = np.unique(np.geomspace(1, max(2, spectrum.n_sweeps**2 // 4), 60).astype(int))
    ax.plot(powers, spectrum.effective_rank(powers), "o-", ms=3, label="effective rank of $A^p$")
    if n_components is not None:
        k = checks.check_count(n_components, "n_components")
        ax.axhspan(10 * k, 20 * k, color="C1", alpha=0.25, lw=0, label=f"10 to 20 times k = {k}")
    ax.set(xscale="log", yscale="log", xlabel="power p", ylabel="effective rank", title="what a power leaves")
    ax.legend(fontsize=8, frameon=False)
    return ax


# --- what is drawn --------------------------------------------------------------------------------


def _axes(ax: Any) -> Any:
    return _figure(6, 5).add_subplot() if ax is None else ax


def _figure(width: float, height: float) -> Any:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError('plot needs matplotlib; install it with: pip install "scalable-gpe[plot]"') from None
    import sys

    if "matplotlib.pyplot" in sys.modules:  # a session that shows figures itself, such as a notebook
        return sys.modules["matplotlib.pyplot"].figure(figsize=(width, height), layout="constrained")
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _points(embedding: Any, power: int | None) -> tuple[Any, int | None]:
    """N x k rows, and the power they belong to."""
    points = getattr(embedding, "points", embedding)
    if isinstance(points, dict):
        power = max(points) if power is None else power
        if power not in points:
            raise ValueError(f"power must be one of {sorted(points)}; got {power!r}.")
        points = points[power]
    elif power is None and hasattr(embedding, "parameters"):
        power = embedding.parameters["power"]
    if getattr(points, "ndim", 0) != 2 or points.shape[1] < 2:
        raise ValueError(
            f"embedding must have two or more columns to be drawn; got shape {getattr(points, 'shape', ())}."
        )
    return points, power


def _blocks(points: Any) -> Iterator[np.ndarray]:
    for start in range(0, points.shape[0], _ROWS):
        yield np.asarray(points[start : start + _ROWS], dtype=np.float32)


def _plane(points: Any, components: Any) -> tuple[np.ndarray, tuple[str, str]]:
    """N x 2 float32: the chosen columns, or the points turned to their principal axes."""
    if isinstance(components, str):
        checks.check_choice(components, ("principal",), "components")
        mean, axes = _principal_axes(points)
        plane = np.concatenate([(block - mean) @ axes for block in _blocks(points)])
        return plane, ("principal axis 1", "principal axis 2")
    first, second = (checks.check_count(one, "components", minimum=0) for one in components)
    if max(first, second) >= points.shape[1]:
        raise ValueError(f"components must be below {points.shape[1]}; got {components!r}.")
    plane = np.concatenate([block[:, [first, second]] for block in _blocks(points)])
    return plane, (f"component {first}", f"component {second}")


def _principal_axes(points: Any) -> tuple[np.ndarray, np.ndarray]:
    """Mean and two leading axes, without the farthest rows: isolated ones would choose the axes alone."""
    step = max(1, points.shape[0] // _ROWS)
    sample = np.concatenate([block[::step] for block in _blocks(points)])
    mean = np.median(sample, axis=0)
    squared = ((sample - mean) ** 2).sum(axis=1)
    kept = sample[squared <= np.quantile(squared, 0.99)]
    mean = kept.mean(axis=0)
    covariance = np.cov(kept.T.astype(np.float64))
    axes = np.linalg.eigh(covariance)[1][:, :-3:-1]
    return mean, (axes * np.sign(axes[np.abs(axes).argmax(axis=0), [0, 1]])).astype(np.float32)


def _column(color: Any, n_rows: int) -> np.ndarray:
    column = np.asarray(color)
    if column.shape != (n_rows,):
        raise ValueError(f"color must have one value for each of the {n_rows} rows; got shape {column.shape}.")
    return column


def _limits(plane: np.ndarray, coverage: float) -> tuple[np.ndarray, list[tuple[float, float]]]:
    """Rows inside, and the limits of each axis: equally wide, with a margin."""
    aside = (1 - coverage) / 2
    edges = [np.quantile(values, [aside, 1 - aside]) for values in plane.T]
    half = 0.55 * max(float(high - low) for low, high in edges) or 1.0
    limits = [(float(low + high) / 2 - half, float(low + high) / 2 + half) for low, high in edges]
    inside = np.all([(v >= low) & (v <= high) for v, (low, high) in zip(plane.T, limits, strict=True)], axis=0)
    return inside, limits


def _ink(ax: Any) -> str:
    return "white" if ax.get_facecolor()[:3] == _NIGHT else "black"


def _title(n_rows: int, power: Any) -> str:
    return f"{n_rows:,} points" + ("" if power is None else f", power {power}")


def _labels(column: np.ndarray) -> np.ndarray | None:
    """Different labels, or None for a column of numbers."""
    values = np.unique(column[~_missing(column)])
    few = len(values) <= _MANY_LABELS and column.dtype.kind in "iubUSO"
    if not few and column.dtype.kind in "USO":
        raise ValueError(f"color has {len(values)} labels; at most {_MANY_LABELS} can be told apart. Merge some.")
    return values if few else None


def _missing(column: np.ndarray) -> np.ndarray:
    return np.isnan(column) if column.dtype.kind == "f" else np.zeros(len(column), bool)


def _palette(n_labels: int) -> np.ndarray:
    from matplotlib import colormaps

    return np.array([colormaps["tab10" if n_labels <= 10 else "tab20"](i)[:3] for i in range(n_labels)])


def _norm(column: np.ndarray | None) -> Any:
    """Scale of the colours of a column of numbers: without its extremes, and the same for all pictures of it."""
    if column is None or _labels(column) is not None:
        return None
    from matplotlib.colors import Normalize

    low, high = np.quantile(column[~_missing(column)], [0.01, 0.99])
    return Normalize(low, high if high > low else low + 1)


def _draw_points(ax: Any, plane: np.ndarray, column: np.ndarray | None) -> None:
    size = float(np.clip(8000 / len(plane), 3, 25))
    labels = None if column is None else _labels(column)
    if column is None:
        ax.scatter(*plane.T, s=size, lw=0, alpha=0.7)
    elif labels is None:
        ax.scatter(*plane.T, s=size, lw=0, c=column, cmap=_COLORS, norm=_norm(column))
    else:
        for label, shade in zip(labels, _palette(len(labels)), strict=True):
            ax.scatter(*plane[column == label].T, s=size, lw=0, color=shade, alpha=0.8)


def _legend(panels: Any, column: np.ndarray | None, title: str) -> None:
    """What the colours mean, once for all panels."""
    labels = None if column is None else _labels(column)
    if column is None:
        for panel in panels:
            for image in panel.get_images():
                panel.figure.colorbar(image, ax=panel, label="points per pixel", shrink=0.8)
    elif labels is None:
        from matplotlib.cm import ScalarMappable

        panels[-1].figure.colorbar(ScalarMappable(_norm(column), _COLORS), ax=list(panels), label=title, shrink=0.8)
    else:
        from matplotlib.lines import Line2D

        shades = zip(labels, _palette(len(labels)), strict=True)
        marks = [Line2D([], [], marker="o", ls="", color=shade, label=str(label)) for label, shade in shades]
        place = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}
        panels[-1].legend(handles=marks, title=title or None, fontsize=8, **place)


def _draw_density(ax: Any, plane: np.ndarray, column: np.ndarray | None, limits: Any, norm: Any) -> None:
    """Pixels shaded by log(1 + points); coloured by the column where there is one."""
    from matplotlib import colormaps
    from matplotlib.colors import LogNorm

    place, counts = _pixels(plane, limits)
    extent = (*limits[0], *limits[1])
    ax.set_facecolor(_NIGHT)
    if column is None:
        shown = np.ma.masked_equal(counts.T, 0)
        ax.imshow(shown, origin="lower", extent=extent, norm=LogNorm(1, max(2, counts.max())), cmap=_COLORS)
        return
    labels = _labels(column)
    if labels is None:
        known = ~_missing(column)
        total = np.bincount(place[known], column[known].astype(np.float64), minlength=counts.size)
        mean = total / np.maximum(np.bincount(place[known], minlength=counts.size), 1)
        shades = colormaps[_COLORS](norm(mean))[:, :3]
    else:
        votes = np.array([np.bincount(place[column == label], minlength=counts.size) for label in labels])
        shades = _palette(len(labels))[votes.argmax(axis=0)]
    # the floor keeps single points visible
    opacity = np.where(counts.ravel() > 0, 0.35 + 0.65 * np.log1p(counts.ravel()) / np.log1p(counts.max()), 0)
    image = np.concatenate([shades, opacity[:, None]], axis=1).reshape(*counts.shape, 4).transpose(1, 0, 2)
    ax.imshow(image, origin="lower", extent=extent)


def _pixels(plane: np.ndarray, limits: Any) -> tuple[np.ndarray, np.ndarray]:
    """Pixel of each point, and points per pixel."""
    at = [
        np.clip(((values - low) / (high - low) * _PIXELS).astype(np.int64), 0, _PIXELS - 1)
        for values, (low, high) in zip(plane.T, limits, strict=True)
    ]
    place = at[0] * _PIXELS + at[1]
    return place, np.bincount(place, minlength=_PIXELS**2).reshape(_PIXELS, _PIXELS)
