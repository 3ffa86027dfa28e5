"""One HTML file about a run: parameters, figures, audit, charts and an explorer; below 2 MB, without network.

Script, charts and PNG writer are our own, 19 kB of assets: a page with bokeh 3.9 and inline resources takes 1.66 MB
before its first coordinate (9.7 MB against our 9.2 MB for 60,000 rows, 16 components and 3 powers in 16 bits), and a
policy with hashes refuses its choice of axes, which needs 'unsafe-eval', and its styles, which need 'unsafe-inline'.
Static pictures of matplotlib (349 kB each for these rows) fit five times into 2 MB, without zoom and without a choice
of axes, and would make matplotlib a requirement.
"""

import time
from pathlib import Path
from typing import Any

from scalable_gpe import __version__
from scalable_gpe.accuracy import LEAST_POINTS, Audit
from scalable_gpe.accuracy import audit as make_audit
from scalable_gpe.embedding import Embedding
from scalable_gpe.formatting import plain
from scalable_gpe.html_report import sections
from scalable_gpe.html_report.document import asset, document
from scalable_gpe.html_report.palette import style_rules
from scalable_gpe.html_report.view import View, sampled_view
from scalable_gpe.io.files import check_target
from scalable_gpe.markup import Html, element, joined, text


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

    The page shows the parameters, the report, the seconds of each stage, the audit, what other epsilons would mean, the
    effective rank of A^p, the density of all rows at each power, and an explorer to zoom into with a choice of
    components. The explorer draws a random sample of at most 60,000 rows; the page says how many.

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
    target = check_path(path)
    view = sampled_view(embedding, color, color_label)
    page = _page(embedding, _measured(embedding, audit), view, title)
    unfinished = target.with_name(f".unfinished-{target.name}")
    unfinished.write_text(page, encoding="utf-8", newline="\n")
    unfinished.replace(target)
    return target


def check_path(path: Any) -> Path:
    """Check that a page can be written to a path."""
    target = check_target(path)
    if target.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"a page ends in .html; got {str(target)!r}.")
    return target


def _measured(embedding: Embedding, audit: bool | Audit) -> Audit | None:
    if isinstance(audit, Audit):
        return audit
    return make_audit(embedding) if audit and embedding.graph.storage_order.n_points >= LEAST_POINTS else None


def _page(embedding: Embedding, audit: Audit | None, view: View, title: str) -> str:
    style = asset("page.css") + style_rules(() if view.color is None else view.color.shades("light"))
    heading = title or f"Embedding of {view.n_rows:,} rows in {view.n_components} dimensions"
    return document(
        heading, body=_main(embedding, audit, view, heading), style=style, data=view.to_json(), script=asset("page.js")
    )


def _main(embedding: Embedding, audit: Audit | None, view: View, heading: str) -> Html:
    parts = [
        ("embedding", "Embedding", sections.explorer(view)),
        ("accuracy", "Accuracy", sections.accuracy(audit)),
        ("choices", "Epsilon and power", sections.choices(embedding)),
        ("stages", "Cost", sections.stages(embedding)),
        ("details", "Parameters and report", sections.details(embedding)),
    ]
    links = [element("li", element("a", text(name), href=f"#{key}")) for key, name, _ in parts]
    header = element(
        "header",
        element("h1", text(heading)),
        element("p", text(_origin(embedding)), class_="soft"),
        element("nav", element("ul", *links), aria_label="Sections"),
        sections.tiles(embedding, audit),
        sections.warnings(embedding),
    )
    body = joined(element("section", element("h2", text(name)), content, id=key) for key, name, content in parts)
    footer = element("footer", text("This page contains everything it shows. It loads nothing from elsewhere."))
    return element("main", header, body, footer)


def _origin(embedding: Embedding) -> str:
    report = embedding.report
    finished = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(report.get("finished_at", time.time())))
    version = report.get("versions", {}).get("scalable_gpe", __version__)
    return f"Gaussian process embedding, power {plain(report['power'])}; finished {finished}, scalable_gpe {version}."
