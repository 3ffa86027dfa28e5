"""The parts of a report page, each a piece of HTML."""

import numpy as np

from scalable_gpe.accuracy import LEAST_POINTS, Audit
from scalable_gpe.embedding import Embedding
from scalable_gpe.formatting import Estimate, audit_shares, in_bytes, in_time, plain, power_title, report_lines
from scalable_gpe.heat.bandwidth import epsilon_sweep
from scalable_gpe.html_report.charts import (
    Axis,
    Band,
    Bar,
    IntervalRow,
    LegendKey,
    Marks,
    Series,
    bar_chart,
    interval_chart,
    line_chart,
    number,
    span,
)
from scalable_gpe.html_report.view import View, spread
from scalable_gpe.markup import Html, element, joined, shortened, table, text
from scalable_gpe.projection import powers_of
from scalable_gpe.spectral.density import FEW_DIRECTIONS
from scalable_gpe.spectral.filters import power_order
from scalable_gpe.spectral.lanczos import spectrum

_MAX_BARS = 20
_MAX_LABEL = 100  # characters of the name of a colour
_MAX_WARNING_BYTES = 20_000


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
    shown, n_left = shortened((element("li", text(line)) for line in lines), _MAX_WARNING_BYTES)
    more = [element("li", text(f"{n_left:,} more warnings."))] if n_left else []
    return element("ul", *shown, *more, class_="warnings")


# --- explorer -------------------------------------------------------------------------------------


def explorer(view: View) -> Html:
    """The picture to zoom into, its controls, and the density of all rows at each power."""
    canvas = element("canvas", id="canvas", tabindex=0, role="img", aria_label="The embedding")
    density = (
        "Density along the first two principal axes of each power, on a logarithmic scale. "
        "Click a picture to explore that power."
    )
    return joined(
        [
            element("p", text(_explanation(view)), class_="note"),
            element("div", canvas, _controls(view), id="explorer"),
            element("h3", text(f"All {view.n_rows:,} rows at each power")),
            element("p", text(density), class_="note"),
            element("div", *_pictures(view), class_="overview"),
        ]
    )


def _explanation(view: View) -> str:
    rows = f"{view.n_rows:,} rows"
    sentences = [
        f"Drawn from all {rows}."
        if view.n_sampled == view.n_rows
        else f"Drawn from a random sample of {view.n_sampled:,} of the {rows}.",
        "Principal axes are a rotation of the embedding and keep distances.",
        "Click the picture, then scroll to zoom and drag to move; or use the buttons, or + - 0 and the arrow keys.",
        "The address of the page keeps the view.",
    ]
    if view.n_shown_components < view.n_components:
        sentences.append(f"The page carries the first {view.n_shown_components} of {view.n_components} components.")
    if len(view.powers) < view.n_powers:
        sentences.append(f"It shows {len(view.powers)} of {view.n_powers} powers.")
    return " ".join(sentences)


def _controls(view: View) -> Html:
    choices = (("power", "power"), ("x", "horizontal"), ("y", "vertical"))
    labels = [element("label", text(name), element("select", id=key), for_=key) for key, name in choices]
    buttons = [
        element("button", text("+"), type="button", id="closer", aria_label="Zoom in"),
        element("button", text("−"), type="button", id="farther", aria_label="Zoom out"),
        element("button", text("whole picture"), type="button", id="reset"),
    ]
    no_script = element("p", text("This picture needs JavaScript; the pictures below do not."))
    return element(
        "div",
        *labels,
        element("p", *buttons, class_="buttons"),
        _color_legend(view),
        element("p", id="status", aria_live="polite"),
        element("noscript", no_script),
        id="controls",
    )


def _color_legend(view: View) -> Html:
    color = view.color
    if color is None:
        ends = [element("span", text("1 per pixel")), element("span", id="most")]
        return joined([element("div", id="ramp", class_="counts"), element("div", *ends, id="ends")])
    title = [element("p", text(view.color_label), class_="note")] if view.color_label else []
    if not color.labels:
        ends = [element("span", text(number(float(f"{end:.3g}")))) for end in (color.low, color.high)]
        return joined([*title, element("div", id="ramp"), element("div", *ends, id="ends")])
    keys = [
        element("li", element("span", class_=f"key label{place}"), text(name, _MAX_LABEL))
        for place, name in enumerate(color.labels)
    ]
    return joined([*title, element("ul", *keys, class_="legend")])


def _pictures(view: View) -> list[Html]:
    return [
        element(
            "button",
            element("img", src=one.picture, alt=f"Density of all rows, {power_title(one.power)}, principal axes"),
            element("span", text(power_title(one.power))),
            type="button",
            data_power=place,
        )
        for place, one in enumerate(view.powers)
    ]


# --- accuracy -------------------------------------------------------------------------------------


def accuracy(audit: Audit | None) -> Html:
    """The audit as charts of intervals, and as a table."""
    if audit is None:
        return element("p", text(f"No audit was made for this page (it needs {LEAST_POINTS} different rows or more)."))
    meaning = (
        "Straight-line distances of the embedding against exact diffusion distances. Where a dot lies at its diamond, "
        "all of the error comes from the sketch, and only more components make it smaller."
    )
    source = (
        f"Bars are 95 % intervals, from {audit['n_exact']} rows with exact diffusion distances and "
        f"{audit['n_probes']} rows with exact neighbours; the audit took {in_time(audit['seconds'])}."
    )
    return joined(
        [
            element("p", text(meaning)),
            element("div", _error_chart(audit), *_share_chart(audit), class_="charts"),
            element("p", text(source), class_="note"),
            element("details", element("summary", text("All figures of the audit")), table(audit.lines())),
        ]
    )


def _error_chart(audit: Audit) -> Html:
    rows = [
        IntervalRow(f"{power_title(power)}, {name}", Estimate.of(figures[key]), color, figures["sketch"][key])
        for power, figures in spread(list(audit["powers"].items()))
        for color, (key, name) in enumerate((("median_error", "median"), ("bound_95", "95 %")))
    ]
    ends = [row.figure.high if row.figure.is_bounded else row.figure.value for row in rows]
    most = max(*ends, *(row.reference or 0.0 for row in rows)) or 1.0
    keys = [
        LegendKey("s0", "half of the pairs within"),
        LegendKey("s1", "95 % of the pairs within"),
        LegendKey("sbeside", "the sketch alone"),
    ]
    return interval_chart("Relative error of distances", Axis("relative error", 0, 1.08 * most), rows, keys)


def _share_chart(audit: Audit) -> list[Html]:
    rows = [IntervalRow(name, share, 2) for name, share in spread(audit_shares(audit))]
    if not rows:
        return []
    least = min(row.figure.low for row in rows)
    axis = Axis("share (1 is best)", least - 0.1 * (1 - least) - 1e-4, 1 + 0.02 * (1 - least) + 1e-5)
    return [interval_chart("Neighbours and mass", axis, rows)]


# --- epsilon and power ----------------------------------------------------------------------------


def choices(embedding: Embedding) -> Html:
    """What other epsilons and other powers would mean."""
    return element("div", *_epsilon_charts(embedding), _rank_chart(embedding), class_="charts")


def _epsilon_charts(embedding: Embedding) -> list[Html]:
    epsilon = embedding.kernel.epsilon
    sweep = epsilon_sweep(embedding.graph)
    values = sweep["epsilon"]
    x = Axis("epsilon (squared units of X)", *span(values, log=True), log=True)
    marks = Marks([epsilon], f"this run: {epsilon:.3g}") if epsilon else None
    counts = [
        Series("effective neighbours (median row)", values, sweep["effective_neighbors"], 0),
        Series("connected components", values, sweep["n_connected_components"], 1),
    ]
    y = Axis("number", *span([one.y for one in counts], log=True, floor=0.5), log=True)
    shares = [
        Series("mass lost", values, np.maximum(sweep["lost_mass"], 1e-8), 2),
        Series("weight of the last neighbour", values, np.maximum(sweep["last_weight"], 1e-8), 3),
    ]
    z = Axis("share", 1e-6, 1.5, log=True)
    return [
        line_chart("What each epsilon would mean: numbers", x, y, counts, marks=marks),
        line_chart("What each epsilon would mean: shares", x, z, shares, marks=marks),
    ]


def _rank_chart(embedding: Embedding) -> Html:
    density = spectrum(embedding.heat)
    powers = np.unique(np.geomspace(1, max(2, density.n_sweeps**2 // 4), 30).astype(int))
    ranks = density.effective_rank(powers)
    k = embedding.parameters["n_components"]
    x = Axis("power p", *span(powers, log=True), log=True)
    y = Axis("directions left", *span([*ranks, k, 1.0], log=True, floor=0.5), log=True)
    curves = [
        Series("effective rank of Aᵖ", powers, ranks, 0),
        Series(f"k = {k} dimensions", powers[[0, -1]], np.array([k, k]), 1),
    ]
    marks = Marks(spread(sorted(one for one in powers_of(embedding) if isinstance(one, int))), "powers of this run")
    band = Band(0.5, FEW_DIRECTIONS, f"fewer than {FEW_DIRECTIONS:g} directions left")
    return line_chart("What a power leaves", x, y, curves, marks=marks, band=band)


# --- cost, parameters, report ---------------------------------------------------------------------


def stages(embedding: Embedding) -> Html:
    """Seconds of each stage, and sweeps over K."""
    report = embedding.report
    seconds = {stage: value for stage, value in report["stage_seconds"].items() if np.isfinite(value)}
    bars = [Bar(str(stage), value, in_time(value)) for stage, value in seconds.items()]
    top = max([one.value for one in bars] + [1e-3])
    sweeps = [(f"sweeps, {stage}", plain(count)) for stage, count in report["sweeps"].items()]
    note = element("p", text("A sweep is one pass over all blocks of K."), class_="note")
    chart = bar_chart("Seconds of each stage", Axis("seconds", 0, top), bars[:_MAX_BARS])
    return element("div", chart, element("div", note, table(sweeps)), class_="charts")


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
