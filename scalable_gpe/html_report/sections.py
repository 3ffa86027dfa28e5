"""The parts of a report page, each a piece of HTML."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from scalable_gpe import plot
from scalable_gpe.accuracy import LEAST_POINTS, Audit
from scalable_gpe.embedding import Embedding
from scalable_gpe.formatting import in_bytes, in_time, plain, power_title, report_lines
from scalable_gpe.heat.bandwidth import epsilon_sweep
from scalable_gpe.html_report.sample import MAX_LABELS, spread
from scalable_gpe.markup import Html, element, joined, table, text
from scalable_gpe.plot.explorer import Explorer
from scalable_gpe.plot.figures import has_matplotlib, picture_of
from scalable_gpe.plot.shades import short_label
from scalable_gpe.spectral.filters import power_order
from scalable_gpe.spectral.lanczos import spectrum

_MAX_PICTURE_BYTES = 250_000  # of one picture; a chart of lines takes 40,000


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
