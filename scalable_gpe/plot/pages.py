"""HTML files to zoom into: the document, its policy, and the points that its script draws.

A file has its style, its script and its data inside: it loads nothing, its policy allows nothing else. Coordinates are
whole numbers from 0 to 65,535 along each axis: 2 bytes, and fine enough to zoom into.
"""

import base64
import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from scalable_gpe.checks import Power, check_choice, check_row_values
from scalable_gpe.colors import THEMES, ColorColumn, ThemeName, color_column, drawn_rows, label_colors, number_ramp
from scalable_gpe.embedding import Embedding
from scalable_gpe.formatting import Html, element, joined, power_title, shortened, text
from scalable_gpe.io.export import replacing
from scalable_gpe.io.files import check_target
from scalable_gpe.plot.embeddings import Components, default_title, projected
from scalable_gpe.plot.figures import edges_of
from scalable_gpe.projection import PointArray

MAX_POINTS = 50_000  # that a browser draws without a pause
_N_STEPS = 65_535
_COVERAGE = 0.999  # share of the rows within the first view, along each axis
_MAX_NAME = 60  # characters of the name of a row or of a label
_MAX_LABELS = 1_000
_HEIGHT = 660  # pixels of the picture in a notebook

# --- document -------------------------------------------------------------------------------------


def document(title: str, *, body: Html, data: Mapping[str, Any], theme: str = "auto") -> str:
    """A whole page; its script reads `data`. The theme "auto" follows the browser, "light" and "dark" do not."""
    style, script = _asset("page.css"), _asset("page.js")
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", http_equiv="Content-Security-Policy", content=_policy(script, style)),
        element("link", rel="icon", href="data:,"),
        element("title", text(title)),
        element("style", Html(style)),
    )
    content = element(
        "body",
        element("main", body),
        element("script", Html(_safe_json(data)), type="application/json", id="data"),
        element("script", Html(script)),
    )
    return "<!DOCTYPE html>\n" + element("html", head, content, lang="en", class_=theme) + "\n"


def check_path(path: Any) -> Path:
    """Check that a page can be written to a path."""
    target = check_target(path)
    if target.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"a page ends in .html; got {str(target)!r}.")
    return target


def write_page(page: str, path: Any) -> Path:
    """Write a page; an existing one is replaced when the new one is complete."""
    target = check_path(path)
    with replacing(target) as unfinished:
        unfinished.write_text(page, encoding="utf-8", newline="\n")
    return target


def to_base64(values: bytes) -> str:
    """Bytes as text within JSON."""
    return base64.b64encode(values).decode("ascii")


def _safe_json(data: Mapping[str, Any]) -> str:
    """JSON of which no text can end the script element, and which browsers never run."""
    whole = json.dumps(data, ensure_ascii=False)
    return whole.replace("<", "\\u003c").replace("&", "\\u0026").encode("utf-8", "replace").decode("utf-8")


def _asset(name: str) -> str:
    return files("scalable_gpe.plot").joinpath("assets", name).read_text(encoding="utf-8")


def _policy(script: str, style: str) -> str:
    """Allow this script, this style and pictures within the page; nothing else, from nowhere."""
    return (
        f"default-src 'none'; script-src {_digest(script)}; style-src {_digest(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(content: str) -> str:
    return f"'sha256-{to_base64(hashlib.sha256(content.encode()).digest())}'"


# --- explorer -------------------------------------------------------------------------------------


def view_data(title: str, points: np.ndarray) -> dict[str, Any]:
    """What the script draws of some rows along some axes, in steps over three times the range of almost all of them.

    Step 0 is `low` and 65,535 is `high`; rows that lie farther out are drawn there. `first` is the range of the first
    view, before the reader zooms.
    """
    first = np.array([_widened(*edges_of(values, _COVERAGE)) for values in points.T.astype(np.float64)])
    width = first[:, 1] - first[:, 0]
    low, high = first[:, 0] - width, first[:, 1] + width
    shares = (points - low) / (high - low)
    steps = np.round(np.clip(shares, 0, 1) * _N_STEPS).astype("<u2")
    return {
        "title": shortened(title, _MAX_NAME),
        "columns": [to_base64(column.tobytes()) for column in steps.T],
        "low": low.tolist(),
        "high": high.tolist(),
        "first": first.tolist(),
        "outside": int(((shares < 0) | (shares > 1)).any(axis=1).sum()),
    }


def _widened(low: float, high: float) -> tuple[float, float]:
    """A range that is not empty, also when all rows are equal."""
    margin = 0.0 if high > low else max(1e-6 * abs(low), 1e-30)
    return low - margin, high + margin


def share_text(n_drawn: int, n_rows: int) -> str:
    """How many of the rows are drawn."""
    return f"all {n_rows:,} rows" if n_drawn == n_rows else f"a random sample of {n_drawn:,} of {n_rows:,} rows"


@dataclass(frozen=True)
class Explorer:
    """Drawn rows in one or several views, the last of which is shown first, with their colours and names."""

    views: Sequence[dict[str, Any]]  # of `view_data`
    axes: Sequence[str]  # names, the same for all views
    rows: np.ndarray  # numbers of the drawn rows
    n_rows: int  # of the whole embedding
    color: ColorColumn | None = None
    color_label: str = ""
    names: Sequence[Any] | None = None
    theme: str = "light"  # of the points; the background comes from the style of the page

    def html(self) -> Html:
        """The picture and its controls, which the script of the page fills."""
        canvas = element("canvas", id="canvas", tabindex=0, role="img", aria_label="The embedding")
        stage = element("div", canvas, element("div", id="hover", hidden="hidden"), id="stage")
        how = (
            "Drag to move, double-click to zoom, or click the picture and use the wheel; + - 0 and the arrow keys work "
            "too. A click on a label hides it."
        )
        controls = [
            _choice("view", "view", [view["title"] for view in self.views], least=2),
            _choice("x", "horizontal", self.axes, least=3),
            _choice("y", "vertical", self.axes, least=3),
            element("button", text("whole picture"), type="button", id="reset"),
            element("strong", text(self.color_label)),
            element("ul", id="legend"),
            element("div", id="ramp"),
            element("div", id="ends"),
            element("p", id="status", class_="note", aria_live="polite"),
            element("p", text(f"This picture shows {share_text(len(self.rows), self.n_rows)}. {how}"), class_="note"),
            element("noscript", element("p", text("This picture needs JavaScript."))),
        ]
        return element("div", stage, element("div", *controls, id="controls"), id="explorer")

    def data(self) -> dict[str, Any]:
        """What the script draws."""
        return {
            "views": list(self.views),
            "axes": list(self.axes),
            "rows": to_base64(self.rows.astype("<i4").tobytes()),
            "names": None if self.names is None else [shortened(name, _MAX_NAME) for name in self.names],
            "color": None if self.color is None else _color_data(self.color, self.theme),
            "color_label": shortened(self.color_label, _MAX_NAME),
            "single": label_colors(1, self.theme)[0],
        }


def _choice(key: str, name: str, options: Sequence[str], *, least: int) -> Html:
    """A list to choose from; hidden where there is no choice."""
    entries = [element("option", text(option), value=place) for place, option in enumerate(options)]
    hidden = {"hidden": "hidden"} if len(options) < least else {}
    return element("label", text(name), element("select", *entries, id=key), for_=key, **hidden)


def _color_data(color: ColorColumn, theme: str) -> dict[str, Any]:
    values = to_base64(color.values.astype("<i4" if color.labels else "<f4").tobytes())
    labels = [shortened(label, _MAX_NAME) for label in color.labels]
    if labels:
        return {"labels": labels, "shades": color.shades(theme), "values": values}
    return {"labels": None, "ramp": number_ramp(theme), "low": color.low, "high": color.high, "values": values}


# --- interactive ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class InteractivePlot:
    """A picture with hover and zoom. A notebook shows it; `save` writes it as one HTML file that needs no network.

    Attributes
    ----------
    html : str
        The whole page.
    n_rows, n_shown : int
        Rows of the embedding, and those that the picture holds.
    """

    html: str
    n_rows: int
    n_shown: int

    def save(self, path: Any) -> Path:
        """Write the picture as an HTML file; an existing one is replaced."""
        return write_page(self.html, path)

    def __repr__(self) -> str:
        return f"InteractivePlot of {share_text(self.n_shown, self.n_rows)}; save('picture.html') writes it"

    def _repr_html_(self) -> str:
        # a frame of its own: neither script nor style meets those of the notebook
        return element(
            "iframe",
            srcdoc=self.html,
            sandbox="allow-scripts",
            width="100%",
            height=_HEIGHT,
            style="border:0;max-width:900px",
            title="interactive picture",
        )


def interactive(
    embedding: Embedding | PointArray,
    *,
    components: Components = "principal",
    power: Power | None = None,
    color: npt.ArrayLike | None = None,
    color_label: str = "",
    names: npt.ArrayLike | None = None,
    title: str | None = None,
    theme: ThemeName = "light",
    max_labels: int | None = None,
) -> InteractivePlot:
    """Draw the principal plane of an embedding to zoom into; the point under the mouse shows its name, label or value.

    A click on a label hides it. Drag to move, double-click to zoom, or click the picture and use the wheel. Of more
    than 50,000 rows a random sample is shown, and the picture says so. Needs no other package and no network.

    Parameters
    ----------
    embedding : Embedding or array (N, k)
        What to draw.
    components : "principal" or (int, int)
        The two principal axes, or two columns. An array of two columns is drawn as it is.
    power, color, color_label, title, theme, max_labels
        As in `scatter`.
    names : array (N,), optional
        Names of the rows; by default those of the embedding, if its input had any.

    Returns
    -------
    InteractivePlot
        A notebook shows it; ``save(path)`` writes an HTML file.

    Examples
    --------
    >>> import scalable_gpe as gpe
    >>> result = gpe.embed(gpe.datasets.torus(1000), progress=False)
    >>> picture = gpe.plot.interactive(result, color=["left", "right"] * 500)
    >>> picture.save("torus.html").name
    'torus.html'
    """
    check_choice(theme, THEMES, "theme")
    # the default title says which power was taken
    points, axes, chosen = projected(embedding, components, power, logging.INFO if title is None else logging.WARNING)
    n_rows = len(points)
    row_names = _row_names(embedding, names, n_rows)
    most_labels = _MAX_LABELS if max_labels is None else max_labels
    column = None if color is None else color_column(color, n_rows, most_labels, embedding)
    rows = drawn_rows(n_rows, MAX_POINTS, column)
    heading = title if title is not None else default_title(n_rows, chosen)
    explorer = Explorer(
        views=[view_data("" if chosen is None else power_title(chosen), points[rows])],
        axes=axes,
        rows=rows,
        n_rows=n_rows,
        color=None if column is None else column[rows],
        color_label=color_label,
        names=None if row_names is None else row_names[rows],
        theme=theme,
    )
    body = joined([element("h1", text(heading)), explorer.html()])
    return InteractivePlot(document(heading, body=body, data=explorer.data(), theme=theme), n_rows, len(rows))


def _row_names(embedding: Embedding | PointArray, names: Any, n_rows: int) -> np.ndarray | None:
    """Names of all rows: those given, else those of the embedding."""
    given = embedding.names if names is None and isinstance(embedding, Embedding) else names
    if given is None:
        return None
    of_rows, dropped = getattr(embedding, "names", None), getattr(embedding, "dropped", None)
    return np.asarray(check_row_values(given, n_rows, "names", dropped, of_rows))
