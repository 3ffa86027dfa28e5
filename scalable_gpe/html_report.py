"""One HTML file about a run: parameters, figures, audit, charts and an explorer; below 2 MB, without network.

The script is our own: a page with bokeh 3.9 and inline resources takes 1.66 MB before its first coordinate, and a
policy with hashes refuses its choice of axes, which needs 'unsafe-eval', and its styles, which need 'unsafe-inline'.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from scalable_gpe import plot
from scalable_gpe.accuracy import LEAST_POINTS, Audit
from scalable_gpe.accuracy import audit as make_audit
from scalable_gpe.colors import color_column, drawn_rows
from scalable_gpe.embedding import Embedding
from scalable_gpe.formatting import (
    Html,
    element,
    in_bytes,
    in_time,
    joined,
    plain,
    power_title,
    report_lines,
    table,
    text,
)
from scalable_gpe.heat.bandwidth import epsilon_sweep
from scalable_gpe.plot.figures import has_matplotlib, picture_of, short_label
from scalable_gpe.plot.pages import MAX_POINTS, Explorer, check_path, document, view_data, write_page
from scalable_gpe.projection import PointArray, blocks, plane_axes
from scalable_gpe.spectral.filters import power_order
from scalable_gpe.spectral.lanczos import spectrum

_MAX_BYTES = 1_300_000  # of coordinates, colours and row numbers, as base64
MAX_POWERS = 12
_MAX_COMPONENTS = 32
_MAX_COLUMNS = 140  # axes of all powers: leaves room for 3,000 rows or more
_N_MORE_COLUMNS = 4  # of 2 bytes: the color and the number of a row take 4 bytes each
MAX_LABELS = 100  # the most frequent ones; the others are joined
_Item = TypeVar("_Item")
_MAX_PICTURE_BYTES = 250_000  # of one picture; a chart of lines takes 40,000

# --- page -----------------------------------------------------------------------------------------


def write_report(
    embedding: Embedding,
    path: Any,
    *,
    audit: bool | Audit = True,
    color: Any = None,
    color_label: str = "",
    title: str = "",
) -> Path:
    """Write one HTML page about a run: a single file, smaller than 2 MB, that needs no network.

    The page shows the parameters, the report, the audit, what other epsilons would mean, the effective rank of A^p, all
    rows at each power, and an explorer to zoom into with a choice of components. The explorer draws a random sample of
    at most 50,000 rows; the page says how many. The charts need matplotlib (extra ``plot``): without it, the page says
    so in their place.

    Parameters
    ----------
    embedding : Embedding
        Of `embed` or `open`.
    path : path
        The page, such as ``"page.html"``; an existing one is replaced.
    audit : bool or Audit
        Measure the accuracy (True), leave it out (False), or show an audit that was made before.
    color : array (N,), optional
        A column of numbers or labels to colour the rows by, as in `plot.scatter`. Of more than 100 labels, the most
        frequent 100 are shown and the others joined.
    color_label : str
        What the colours mean.
    title : str
        Title of the page.

    Returns
    -------
    Path
        The page.

    Examples
    --------
    >>> import scalable_gpe as gpe
    >>> result = gpe.embed(gpe.datasets.torus(500), power=[4, 16], progress=False)
    >>> gpe.write_report(result, "torus.html", audit=False).name
    'torus.html'
    """
    if not isinstance(embedding, Embedding):
        raise TypeError(f"embedding must be an Embedding, as embed or open gives it; got {type(embedding).__name__}.")
    if not isinstance(audit, bool | Audit):
        raise TypeError(f"audit must be True, False or an Audit; got {type(audit).__name__}.")
    check_path(path)
    explorer = sampled_explorer(embedding, color, color_label)
    figures = _measured(embedding, audit)
    parts = [
        ("embedding", "Embedding", pictures(embedding, explorer, color)),
        ("accuracy", "Accuracy", accuracy(figures)),
        ("choices", "Epsilon and power", choices(embedding)),
        ("details", "Parameters and report", details(embedding)),
    ]
    links = [element("li", element("a", text(name), href=f"#{key}")) for key, name, _ in parts]
    heading = title or f"Embedding of {explorer.n_rows:,} rows in {embedding.parameters['n_components']} dimensions"
    body = [
        element("h1", text(heading)),
        element("p", text(_origin(embedding)), class_="note"),
        element("nav", element("ul", *links), aria_label="Sections"),
        tiles(embedding, figures),
        warnings(embedding),
        *(element("section", element("h2", text(name)), content, id=key) for key, name, content in parts),
        element("footer", text("This page contains everything it shows. It loads nothing from elsewhere.")),
    ]
    return write_page(document(heading, body=joined(body), data=explorer.data()), path)


def _measured(embedding: Embedding, audit: bool | Audit) -> Audit | None:
    if isinstance(audit, Audit):
        return audit
    return make_audit(embedding) if audit and embedding.graph.storage_order.n_points >= LEAST_POINTS else None


def _origin(embedding: Embedding) -> str:
    report = embedding.report
    finished = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(report["finished_at"]))
    version = report["versions"].get("scalable_gpe", "unknown")
    return f"Gaussian process embedding, power {plain(report['power'])}; finished {finished}, scalable_gpe {version}."


# --- sample ---------------------------------------------------------------------------------------


def sampled_explorer(embedding: Embedding, color: Any = None, color_label: str = "") -> Explorer:
    """Sample the rows of an embedding, along their principal axes and their first components at each power."""
    powers = embedding.by_power
    n_rows, n_components = next(iter(powers.values())).shape
    shown = spread(list(powers.items()))
    n_principal = min(3, n_components)
    n_shown = min(n_components, _MAX_COMPONENTS, max(2, _MAX_COLUMNS // len(shown) - n_principal))
    axes = [f"principal axis {i + 1}" for i in range(n_principal)] + [f"component {i}" for i in range(n_shown)]
    column = None if color is None else color_column(color, n_rows, MAX_LABELS, embedding)
    rows = drawn_rows(n_rows, min(MAX_POINTS, _n_fitting(len(shown) * len(axes))), column)
    views = []
    for power, points in shown:
        principal = plane_axes(points, n_principal, embedding.ordinary)
        views.append(view_data(power_title(power), _columns(points, principal, n_shown, rows)))
    return Explorer(views, axes, rows, n_rows, None if column is None else column[rows], color_label)


def spread(items: Sequence[_Item]) -> list[_Item]:
    """At most `MAX_POWERS` items, from the first to the last at even steps."""
    places = np.linspace(0, len(items) - 1, min(len(items), MAX_POWERS)).round().astype(int)
    return [items[place] for place in places]


def _n_fitting(n_columns: int) -> int:
    """Rows that fit; base64 takes 4 bytes for 3."""
    return _MAX_BYTES * 3 // 4 // (2 * (n_columns + _N_MORE_COLUMNS))


def _columns(points: PointArray, axes: np.ndarray, n_components: int, rows: np.ndarray) -> np.ndarray:
    """Some rows, in any order, along some axes, then their first components."""
    taken, start = np.empty((len(rows), axes.shape[1] + n_components), np.float32), 0
    for block in blocks(points):
        inside = (rows >= start) & (rows < start + len(block))
        chosen = block[rows[inside] - start]
        taken[inside] = np.hstack([chosen @ axes, chosen[:, :n_components]])
        start += len(block)
    return taken


# --- sections -------------------------------------------------------------------------------------


def tiles(embedding: Embedding, audit: Audit | None) -> Html:
    """The figures to see first."""
    report, limit = embedding.report, embedding.parameters.get("memory_limit")
    n_duplicates = report["n_duplicates"]
    shown = [
        _tile("rows", f"{report['n_rows']:,}", f"{n_duplicates:,} duplicates" if n_duplicates else ""),
        _tile("neighbours found", _share(report["recall"], "{:.1%}"), _missing(report.get("missing_weight"))),
        _tile("kernel mass lost", _share(report["lost_mass"], "{:.2%}"), "by keeping neighbours only"),
    ]
    if audit:
        power, figures = max(audit["powers"].items(), key=lambda one: power_order(one[0]))
        note = f"median, {power_title(power)}; the sketch alone {figures['sketch']['median_error']:.1%}"
        shown.append(_tile("error of distances", f"{figures['median_error']['value']:.1%}", note))
    shown += [
        _tile("time", in_time(report["total_seconds"]), "all stages, resumed runs included"),
        _tile("peak memory", in_bytes(report["peak_memory"]), f"of {in_bytes(limit)} allowed" if limit else ""),
    ]
    return element("dl", *shown, class_="tiles")


def _tile(name: str, value: str, note: str) -> Html:
    return element("div", element("dt", text(name)), element("dd", text(value), element("small", text(note))))


def _missing(weight: float | None) -> str:
    """What the neighbours cost that were not found."""
    return "recall, on sampled rows" if not weight else f"recall; the others hold {weight:.2%} of the weight"


def _share(value: float | None, form: str) -> str:
    return "not measured" if value is None else form.format(value)


def warnings(embedding: Embedding) -> Html:
    """What a reader must know before trusting the rest."""
    report = embedding.report
    lines = [line[:1].upper() + line[1:] for line in map(str, report.get("warnings", []))]
    n_graph, n_kernel = report["n_connected_components"], report.get("n_kernel_components") or 1
    if max(n_graph, n_kernel) > 1:
        what = f"neighbour graph has {n_graph:,}" if n_graph >= n_kernel else f"kernel has {n_kernel:,}"
        lines.append(f"The {what} connected components. Distances between them mean only that they are apart.")
    if report["n_isolated"] and not any("no effective neighbours" in line for line in lines):
        lines.append(f"{report['n_isolated']:,} rows have no effective neighbours: the sketch alone places them.")
    if not lines:
        return Html("")
    return element("ul", *(element("li", text(line)) for line in lines), class_="warnings")


# --- pictures -------------------------------------------------------------------------------------


def pictures(embedding: Embedding, explorer: Explorer, color: Any) -> Html:
    """The picture to zoom into, and all rows at each power."""
    powers = embedding.by_power
    n_rows, n_components = next(iter(powers.values())).shape
    parts = [element("p", text(_explanation(explorer, n_components, len(powers))), class_="note"), explorer.html()]
    if n_components > 1:
        shown = dict(spread(list(powers.items())))
        some = replace(embedding, points=shown) if len(shown) > 1 else embedding
        title = f"All {n_rows:,} rows at each power, along the principal axes"
        label = short_label(explorer.color_label)
        draw = partial(plot.powers, some, color=color, color_label=label, max_labels=MAX_LABELS)
        parts += [element("h3", text(title)), _charts((title, draw))]
    return joined(parts)


def _explanation(explorer: Explorer, n_components: int, n_powers: int) -> str:
    n_shown = sum(axis.startswith("component") for axis in explorer.axes)
    sentences = [
        "Principal axes are a rotation of the embedding and keep distances.",
        "The address of the page keeps the view.",
    ]
    if n_shown < n_components:
        sentences.append(f"The page carries the first {n_shown} of {n_components} components.")
    if len(explorer.views) < n_powers:
        sentences.append(f"It shows {len(explorer.views)} of {n_powers} powers.")
    return " ".join(sentences)


# --- charts ---------------------------------------------------------------------------------------


def accuracy(audit: Audit | None) -> Html:
    """The audit as charts of intervals, and as a table."""
    if audit is None:
        return element(
            "p",
            text(
                f"No audit was made for this page: it was not asked for, or there are fewer than {LEAST_POINTS} rows."
            ),
        )
    meaning = (
        "Straight-line distances of the embedding against exact diffusion distances. Where a dot lies at its diamond, "
        "all of the error comes from the sketch, and only more components make it smaller."
    )
    source = (
        f"Bars are 95 % intervals, from {audit['n_exact']} rows with exact diffusion distances and "
        f"{audit['n_probes']} rows with exact neighbours; the audit took {in_time(audit['seconds'])}."
    )
    drawn = {**audit, "powers": dict(spread(list(audit["powers"].items())))}
    title = "Relative error of distances, beside that of the sketch alone; shares that are 1 at best"
    return joined(
        [
            element("p", text(meaning)),
            _charts((title, lambda: plot.audit(drawn))),
            element("p", text(source), class_="note"),
            element("details", element("summary", text("All figures of the audit")), table(audit.lines())),
        ]
    )


def choices(embedding: Embedding) -> Html:
    """What other epsilons and other powers would mean."""
    epsilon, k = embedding.kernel.epsilon or None, embedding.parameters["n_components"]
    powers = spread(sorted(one for one in embedding.by_power if isinstance(one, int)))
    return _charts(
        (
            "What each epsilon would mean",
            lambda: plot.epsilon_sweep(epsilon_sweep(embedding.graph), epsilon=epsilon),
        ),
        (
            "Effective dimension at each diffusion time",
            lambda: plot.spectrum(spectrum(embedding.heat), n_components=k, marks=powers),
        ),
    )


def _charts(*charts: tuple[str, Callable[[], Any]]) -> Html:
    """The figures of some axes, which have their titles in them; without matplotlib, what to install for them."""
    if not has_matplotlib():
        titles = "; ".join(title for title, _ in charts)
        missing = f'Not drawn here: {titles}. Charts need matplotlib: pip install "scalable-gpe[plot]".'
        return element("p", text(missing), class_="note")
    pictures = [
        element("figure", element("img", src=picture_of(np.ravel(draw())[0].figure, _MAX_PICTURE_BYTES), alt=title))
        for title, draw in charts
    ]
    return element("div", *pictures, class_="charts")


def details(embedding: Embedding) -> Html:
    """All parameters, the report and the versions."""
    report = embedding.report
    tables = [
        ("Parameters", [(name, plain(value)) for name, value in embedding.parameters.items()]),
        ("Report", report_lines(report, embedding.parameters.get("memory_limit"))),
        ("Versions", [(name, str(value)) for name, value in report.get("versions", {}).items()]),
    ]
    columns = [element("div", element("h3", text(name)), table(rows)) for name, rows in tables]
    return element("div", *columns, class_="columns")
