"""Pictures of embeddings, of epsilon, of the spectrum and of an audit. Needs ``pip install "scalable-gpe[plot]"``."""

from typing import Any

import numpy as np

from scalable_gpe import checks
from scalable_gpe.projection import limits_of, pixels, plane, points_of, powers_of
from scalable_gpe.spectral.power_choice import FEW_DIRECTIONS

__all__ = ["scatter", "powers", "epsilon_sweep", "spectrum", "audit"]

_FEW = 5_000  # points up to which each one is drawn
_FEW_3D = 20_000  # points of a picture in three dimensions, where no density can be drawn
_PANELS = 4  # in one row
_PIXELS = 300
_NIGHT = (0.06, 0.06, 0.09)  # behind densities: single points stay visible in every colour
_MANY_LABELS = 20


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
    """Draw two or three components of an embedding: points when they are few, else their density in shades of log.

    Three components are drawn as points, at most 20,000 of them at even steps. The limits hold the central part
    `coverage` of the points along each axis, those far from all others left out, so that a few isolated rows do not
    ruin the picture; how many lie outside stands in the corner.

    Parameters
    ----------
    embedding : Embedding or array (N, k)
        What to draw; read in blocks, so that it need not fit in memory.
    components : (int, int), (int, int, int) or "principal"
        Two or three columns, or the two principal axes of the embedding (a rotation: distances stay).
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
    points, chosen = points_of(embedding, power)
    if getattr(points, "ndim", 0) != 2 or points.shape[1] < 2:
        raise ValueError(
            f"embedding must have two or more columns to be drawn; got shape {getattr(points, 'shape', ())}."
        )
    drawn, names = plane(points, components, n_axes=(2, 3))
    column = None if color is None else _column(color, len(drawn))
    inside, limits = limits_of(drawn, checks.check_fraction(coverage, "coverage"))
    ax = _axes(ax, solid=len(names) == 3)
    notes = []
    if outside := int(len(drawn) - inside.sum()):
        notes.append(f"{outside:,} point{'s' * (outside > 1)} outside")
    if len(names) == 3:
        kept = np.flatnonzero(inside)
        kept = kept[np.unique(np.linspace(0, len(kept) - 1, min(len(kept), _FEW_3D)).astype(np.int64))]
        if len(kept) < inside.sum():
            notes.insert(0, f"{len(kept):,} of {len(drawn):,} points drawn")
        _draw_points(ax, drawn[kept], column if column is None else column[kept], column)
    elif len(drawn) <= _FEW:
        _draw_points(ax, drawn, column, column)
    else:
        _draw_density(ax, drawn[inside], None if column is None else column[inside], limits, _norm(column))
    if legend:
        _legend([ax], column, color_label)
    _frame(ax, limits, names)
    ax.set_title(title if title is not None else _title(len(drawn), chosen))
    if notes:
        _note(ax, ", ".join(notes))
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
    points = powers_of(embedding)
    across = min(_PANELS, len(points))
    down = -(-len(points) // across)
    figure = _figure(width=4 * across + (0.4 if color is None else 1.2), height=0.4 + 4 * down)
    solid = {"projection": "3d"} if not isinstance(components, str) and len(components) == 3 else None
    panels = figure.subplots(down, across, squeeze=False, subplot_kw=solid).ravel()
    for panel in panels[len(points) :]:
        panel.remove()
    panels = panels[: len(points)]
    for panel, (power, values) in zip(panels, points.items(), strict=True):
        scatter(values, components=components, color=color, title=f"power {power}", legend=False, ax=panel)
    n_rows, n_components = next(iter(points.values())).shape
    _legend(panels, None if color is None else _column(color, n_rows), color_label)
    figure.suptitle(title if title is not None else f"{n_rows:,} points, embedded in {n_components} dimensions")
    figure.get_layout_engine().set(h_pad=0.1)  # between that title and those of the panels
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
    counts = [
        ("effective_neighbors", "effective neighbours (median row)"),
        ("n_connected_components", "connected components"),
    ]
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


def spectrum(
    spectrum: Any, *, powers: Any = None, n_components: int | None = None, marks: Any = (), ax: Any = None
) -> Any:
    """Draw the effective rank of A^p for every power p: how many directions are left to embed.

    With fewer than four left, little of the data can be told apart: a band marks that.

    Parameters
    ----------
    spectrum : Spectrum
        The result of ``scalable_gpe.spectrum``.
    powers : sequence of int, optional
        Powers to draw; by default those which the quadrature resolves.
    n_components : int, optional
        A dimension k to mark.
    marks : sequence of int
        Powers to mark, such as those of an embedding.
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
        ax.axhline(k, color="C1", ls="--", lw=1, label=f"k = {k} dimensions")
    low = min(ax.get_ylim()[0], 1.0)
    ax.axhspan(
        low, FEW_DIRECTIONS, color="0.6", alpha=0.25, lw=0, label=f"fewer than {FEW_DIRECTIONS:g} directions left"
    )
    for number, power in enumerate(marks):
        ax.axvline(power, color="0.4", lw=1, label="_" * (number > 0) + "powers of the embedding")
    ax.set(xscale="log", yscale="log", xlabel="power p", ylabel="effective rank", title="what a power leaves")
    ax.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2, frameon=False)
    return ax


def audit(found: Any) -> Any:
    """Draw an audit: the error of distances beside that of the sketch alone, and the shares that were measured.

    Bars are 95 % intervals. Where the error of distances lies at the mark of the sketch alone, more components are the
    only way to a smaller one.

    Parameters
    ----------
    found : Audit
        The result of ``scalable_gpe.audit``.

    Returns
    -------
    matplotlib figure

    Examples
    --------
    >>> import scalable_gpe as gpe
    >>> from scalable_gpe import plot
    >>> found = gpe.audit(gpe.embed(gpe.datasets.torus(500), power=[4, 16], progress=False), n_probes=50)
    >>> plot.audit(found).axes[0].get_xlabel()
    'relative error of distances'
    """
    rows = [(power, one) for power, one in found["powers"].items()]
    shares = _shares(found)
    figure = _figure(width=11, height=1.9 + 0.5 * max(2 * len(rows), len(shares)))
    left, right = figure.subplots(1, 2)
    for number, (_, one) in enumerate(rows):
        for color, place, name in (("C0", -0.17, "median_error"), ("C1", 0.17, "bound_95")):
            _interval(left, one[name], number + place, color)
            left.plot(one["sketch"][name], number + place, "D", ms=7, mfc="none", mec="0.35", zorder=3)
    marks = [
        ("o", "C0", "C0", "median"),
        ("o", "C1", "C1", "95 % of pairs within"),
        ("D", "none", "0.35", "sketch alone"),
    ]
    for mark, inner, edge, label in marks:
        left.plot([], [], mark, mfc=inner, mec=edge, label=label)
    left.set(xlabel="relative error of distances", xlim=(0, None), ylim=(len(rows) - 0.5, -0.5))
    left.set_yticks(range(len(rows)), [f"power {power}" for power, _ in rows])
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower left", ncols=3, fontsize=8, frameon=False)
    for number, (_, share) in enumerate(shares):
        _interval(right, share, number, "C2")
        aside = "right" if share["value"] > 0.99 else "center"
        words = {"xytext": (0, 7), "textcoords": "offset points", "ha": aside, "fontsize": 8}
        right.annotate(f"{share['value']:.4f}", (share["value"], number), **words)
    least = min([one["low"] for _, one in shares], default=0.0)
    right.set(xlabel="share (1 is best)", xlim=(least - 0.05 * (1.02 - least) - 0.002, 1 + 0.05 * (1.02 - least)))
    right.set_yticks(range(len(shares)), [name for name, _ in shares])
    right.locator_params(axis="x", nbins=5)
    right.set_ylim(max(len(shares), 1) - 0.5, -0.6)
    for panel in (left, right):
        panel.grid(axis="x", color="0.9")
        panel.set_axisbelow(True)
    if not shares:
        right.text(0.5, 0.5, "not measured: there is no X", transform=right.transAxes, ha="center")
    figure.suptitle(f"audit of {found['n_rows']:,} rows in {found['n_components']} dimensions; bars are 95 % intervals")
    return figure


def _shares(found: Any) -> list[tuple[str, dict[str, float]]]:
    """Figures of an audit that should be 1."""
    shares = [("recall", found["recall"])] if found["recall"] else []
    if found["lost_mass"]:
        lost = found["lost_mass"]
        shares.append(("mass kept", {"value": 1 - lost["value"], "low": 1 - lost["high"], "high": 1 - lost["low"]}))
    for power, one in found["powers"].items():
        if one["trustworthiness"]:
            shares.append((f"trustworthiness,\npower {power}", one["trustworthiness"]))
    return shares


def _interval(ax: Any, figure: dict[str, float], place: float, color: str) -> None:
    aside = [[figure["value"] - figure["low"]], [figure["high"] - figure["value"]]]
    ax.errorbar([figure["value"]], [place], xerr=np.maximum(aside, 0), fmt="o", ms=5, color=color, capsize=3)


# --- what is drawn --------------------------------------------------------------------------------


def _axes(ax: Any, solid: bool = False) -> Any:
    if ax is None:
        return _figure(6.4, 5.4).add_subplot(projection="3d" if solid else None)
    if solid and not hasattr(ax, "set_zlim"):
        raise ValueError("three components need axes with projection='3d'. Leave ax out, or make such axes.")
    return ax


def _frame(ax: Any, limits: Any, names: tuple[str, ...]) -> None:
    """Limits and names of the axes, the same length for a unit of each."""
    solid = hasattr(ax, "set_zlim")
    for axis, limit, name in zip("xyz", limits, names, strict=False):
        getattr(ax, f"set_{axis}lim")(limit)
        getattr(ax, f"set_{axis}label")(name + (_in_tens(getattr(ax, f"{axis}axis"), limit) if solid else ""))
    ax.set_aspect("equal")
    if solid:
        ax.set_box_aspect(None, zoom=0.82)  # room for the names of the axes
        for axis in (ax.xaxis, ax.yaxis, ax.zaxis):
            axis.labelpad = 9
        ax.tick_params(labelsize=8, pad=1)
    ax.locator_params(nbins=3 if solid else 4)
    if not solid:
        ax.ticklabel_format(style="sci", scilimits=(-2, 3))


def _in_tens(axis: Any, limit: Any) -> str:
    """Write the power of ten of the ticks beside the name: a solid's axis would print it over the name."""
    exponent = int(np.floor(np.log10(max(np.abs(limit).max(), 1e-300))))
    if -3 < exponent < 4:
        return ""
    axis.set_major_formatter(lambda value, _: f"{value / 10.0**exponent:.3g}")
    return f" (1e{exponent})"


def _note(ax: Any, text: str) -> None:
    place = {"transform": ax.transAxes, "ha": "right", "va": "bottom", "fontsize": 8, "color": _ink(ax)}
    if hasattr(ax, "text2D"):
        ax.text2D(0.0, 0.98, text, **{**place, "ha": "left", "va": "top"})
    else:
        ax.text(0.99, 0.01, text, **place)


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


def _column(color: Any, n_rows: int) -> np.ndarray:
    column = np.asarray(color)
    if column.dtype.kind == "O":
        column = np.array([str(value) for value in column])
    if column.shape != (n_rows,):
        raise ValueError(f"color must have one value for each of the {n_rows} rows; got shape {column.shape}.")
    return column


def _ink(ax: Any) -> str:
    return "white" if ax.get_facecolor()[:3] == _NIGHT else "black"


def _shades(ax: Any) -> Any:
    """The colours of numbers: viridis, by night without its darkest part."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    least = 0.2 if _ink(ax) == "white" else 0.0
    return ListedColormap(colormaps["viridis"](np.linspace(least, 1, 256)), name="shades")


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


def _draw_points(ax: Any, drawn: np.ndarray, column: np.ndarray | None, whole: np.ndarray | None) -> None:
    """Each point; colours have the scale of the whole column."""
    size = float(np.clip(8000 / max(len(drawn), 1), 3, 25))
    labels = None if whole is None else _labels(whole)
    if column is None:
        ax.scatter(*drawn.T, s=size, lw=0, alpha=0.7)
    elif labels is None:
        ax.scatter(*drawn.T, s=size, lw=0, c=column, cmap=_shades(ax), norm=_norm(whole))
    else:
        for label, shade in zip(labels, _palette(len(labels)), strict=True):
            ax.scatter(*drawn[column == label].T, s=size, lw=0, color=shade, alpha=0.8)


def _legend(panels: Any, column: np.ndarray | None, title: str) -> None:
    """What the colours mean, once for all panels."""
    labels = None if column is None else _labels(column)
    if column is None:
        for panel in panels:
            for image in panel.get_images():
                panel.figure.colorbar(image, ax=panel, label="points per pixel", shrink=0.8)
    elif labels is None:
        from matplotlib.cm import ScalarMappable

        shown = ScalarMappable(_norm(column), _shades(panels[-1]))
        panels[-1].figure.colorbar(shown, ax=list(panels), label=title, shrink=0.8)
    else:
        from matplotlib.lines import Line2D

        shades = zip(labels, _palette(len(labels)), strict=True)
        marks = [Line2D([], [], marker="o", ls="", color=shade, label=str(label)) for label, shade in shades]
        words = {"handles": marks, "title": title or None, "fontsize": 8}
        if hasattr(panels[-1], "set_zlim"):  # whose legend the layout would cut off
            panels[-1].figure.legend(**words, loc="outside right center")
        else:
            panels[-1].legend(**words, loc="center left", bbox_to_anchor=(1.0, 0.5))


def _draw_density(ax: Any, drawn: np.ndarray, column: np.ndarray | None, limits: Any, norm: Any) -> None:
    """Pixels shaded by log(1 + points); coloured by the column where there is one."""
    from matplotlib.colors import LogNorm

    place, counts = pixels(drawn, limits, _PIXELS)
    extent = (*limits[0], *limits[1])
    ax.set_facecolor(_NIGHT)
    if column is None:
        shown = np.ma.masked_equal(counts.T, 0)
        ax.imshow(shown, origin="lower", extent=extent, norm=LogNorm(1, max(2, counts.max())), cmap=_shades(ax))
        return
    labels = _labels(column)
    if labels is None:
        known = ~_missing(column)
        total = np.bincount(place[known], column[known].astype(np.float64), minlength=counts.size)
        mean = total / np.maximum(np.bincount(place[known], minlength=counts.size), 1)
        shades = _shades(ax)(norm(mean))[:, :3]
    else:
        votes = np.array([np.bincount(place[column == label], minlength=counts.size) for label in labels])
        shades = _palette(len(labels))[votes.argmax(axis=0)]
    # the floor keeps single points visible
    opacity = np.where(counts.ravel() > 0, 0.35 + 0.65 * np.log1p(counts.ravel()) / np.log1p(counts.max()), 0)
    image = np.concatenate([shades, opacity[:, None]], axis=1).reshape(*counts.shape, 4).transpose(1, 0, 2)
    ax.imshow(image, origin="lower", extent=extent)
