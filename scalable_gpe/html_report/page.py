"""One HTML file about a run: parameters, figures, audit, charts and an explorer; below 2 MB, without network.

The script is our own: a page with bokeh 3.9 and inline resources takes 1.66 MB before its first coordinate, and a
policy with hashes refuses its choice of axes, which needs 'unsafe-eval', and its styles, which need 'unsafe-inline'.
"""

import time
from pathlib import Path
from typing import Any

from scalable_gpe.accuracy import LEAST_POINTS, Audit
from scalable_gpe.accuracy import audit as make_audit
from scalable_gpe.embedding import Embedding
from scalable_gpe.formatting import plain
from scalable_gpe.html_report import sections
from scalable_gpe.html_report.sample import sampled_explorer
from scalable_gpe.markup import element, joined, text
from scalable_gpe.plot.document import check_path, document, write_page


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
        ("embedding", "Embedding", sections.pictures(embedding, explorer, color)),
        ("accuracy", "Accuracy", sections.accuracy(figures)),
        ("choices", "Epsilon and power", sections.choices(embedding)),
        ("details", "Parameters and report", sections.details(embedding)),
    ]
    links = [element("li", element("a", text(name), href=f"#{key}")) for key, name, _ in parts]
    heading = title or f"Embedding of {explorer.n_rows:,} rows in {embedding.parameters['n_components']} dimensions"
    body = [
        element("h1", text(heading)),
        element("p", text(_origin(embedding)), class_="note"),
        element("nav", element("ul", *links), aria_label="Sections"),
        sections.tiles(embedding, figures),
        sections.warnings(embedding),
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
