"""A picture to zoom into, with the name, the label and the value of each point: in a notebook, or as an HTML file."""

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from scalable_gpe.checks import Power
from scalable_gpe.colors import DENSITIES, ColorColumn, ThemeName, color_column
from scalable_gpe.embedding import Embedding
from scalable_gpe.errors import Message
from scalable_gpe.html_report.document import asset, document, to_base64
from scalable_gpe.html_report.page import check_path
from scalable_gpe.markup import element, joined, text
from scalable_gpe.plot.embeddings import Components, default_title, projected
from scalable_gpe.plot.themes import Theme, theme_of
from scalable_gpe.projection import Limits, PointArray, limits_of

_MAX_POINTS = 50_000  # that a browser draws without a pause
_MAX_NAME = 60  # letters of a name
_MAX_LABELS = 1_000
_NUMBERS = {"light": ("#440154", "#3b528b", "#21918c", "#5ec962", "#d8e219"), "dark": DENSITIES["dark"]}  # viridis
_HEIGHT = 660  # pixels of the picture in a notebook


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
        target = check_path(path)
        target.write_text(self.html, encoding="utf-8", newline="\n")
        return target

    def __repr__(self) -> str:
        return f"InteractivePlot of {_share(self.n_shown, self.n_rows)}; save('picture.html') writes it"

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
    look = theme_of(theme)
    # the default title says which power was taken
    projection, chosen = projected(embedding, components, power, logging.INFO if title is None else logging.WARNING)
    n_rows, n_axes = projection.points.shape
    if n_axes != 2:
        raise ValueError(Message(f"`components` must be 2 columns; got {components!r}."))
    given = embedding.names if names is None and isinstance(embedding, Embedding) else names
    kept = _drawn_rows(n_rows, column := _column(color, n_rows, max_labels))
    page = _Page(
        points=projection.points[kept],
        rows=kept.astype(np.int32),
        names=_names(given, n_rows, kept),
        color=None if column is None else column[kept],
        color_label=color_label,
        limits=limits_of(projection.points, 0.999)[1],
        theme=look,
    )
    heading = title if title is not None else default_title(n_rows, chosen)
    note = f"{projection.names[0]} (across) and {projection.names[1]} (up); {_share(len(kept), n_rows)}."
    return InteractivePlot(page.html(heading, note), n_rows, len(kept))


def _share(n_shown: int, n_rows: int) -> str:
    return f"all {n_rows:,} rows" if n_shown == n_rows else f"a random sample of {n_shown:,} of {n_rows:,} rows"


def _column(color: Any, n_rows: int, max_labels: int | None) -> ColorColumn | None:
    return None if color is None else color_column(color, n_rows, _MAX_LABELS if max_labels is None else max_labels)


def _drawn_rows(n_rows: int, column: ColorColumn | None) -> np.ndarray:
    """At most 50,000 rows in the order in which they are drawn: random, but grey labels first."""
    rows = np.random.default_rng(0).permutation(n_rows)[:_MAX_POINTS]
    if column is not None and column.n_grey:
        rows = rows[np.argsort(column.values[rows] < len(column.labels) - column.n_grey, kind="stable")]
    return rows


def _names(names: Any, n_rows: int, kept: np.ndarray) -> list[str] | None:
    """Names of the rows that are drawn, cut where they are long."""
    if names is None:
        return None
    given = np.asarray(names)
    if given.shape != (n_rows,):
        raise ValueError(Message(f"`names` must have one name for each of the {n_rows} rows; got shape {given.shape}."))
    whole = [str(name) for name in given[kept]]
    return [name if len(name) <= _MAX_NAME else f"{name[: _MAX_NAME - 1]}…" for name in whole]


@dataclass(frozen=True)
class _Page:
    """What the script of the picture draws."""

    points: np.ndarray
    rows: np.ndarray
    names: list[str] | None
    color: ColorColumn | None
    color_label: str
    limits: list[Limits]
    theme: Theme

    def html(self, heading: str, note: str) -> str:
        """The whole page."""
        how = "Drag to move, double-click to zoom, or click and use the wheel; + - 0 and the arrow keys work too."
        canvas = element("canvas", id="canvas", tabindex=0, role="img", aria_label=heading)
        stage = element("div", canvas, element("div", id="hover", hidden="hidden"), id="stage")
        parts = [
            element("strong", text(self.color_label)),
            element("ul", id="legend"),
            element("div", id="ramp"),
            element("div", id="ends"),
            element("button", text("whole picture"), type="button", id="reset"),
            element("p", text(note), class_="soft"),
            element("p", text(how), class_="soft"),
            element("noscript", element("p", text("This picture needs JavaScript."))),
        ]
        view = element("div", stage, element("div", *parts, id="side"), id="view")
        body = joined([element("h1", text(heading)), view])
        return document(
            heading, body=body, style=asset("interactive.css"), data=self.json(), script=asset("interactive.js")
        )

    def json(self) -> str:
        """Data of the script."""
        (left, right), (low, high) = self.limits
        data = {
            "x": _floats(self.points[:, 0]),
            "y": _floats(self.points[:, 1]),
            "rows": to_base64(self.rows.astype("<i4").tobytes()),
            "names": self.names,
            "color": None if self.color is None else _color_json(self.color, self.theme),
            "color_label": self.color_label,
            "centre": [(left + right) / 2, (low + high) / 2],
            "half": (right - left) / 2,
            "theme": self.theme.name,
            "background": self.theme.background,
            "single": self.theme.single,
            "missing": self.theme.soft,
            "ramp": _NUMBERS[self.theme.name],
        }
        return json.dumps(data, ensure_ascii=False)


def _color_json(color: ColorColumn, theme: Theme) -> dict[str, object]:
    if color.labels:
        values = to_base64(color.values.astype("<i4").tobytes())
        return {"labels": color.labels, "shades": color.shades(theme.name), "values": values}
    return {"labels": None, "low": color.low, "high": color.high, "values": _floats(color.values)}


def _floats(values: np.ndarray) -> str:
    return to_base64(values.astype("<f4").tobytes())
