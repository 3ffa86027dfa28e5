"""A picture to zoom into, with the name, the label and the value of each point: in a notebook, or as an HTML file."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from scalable_gpe.checks import Power, check_choice, check_row_values
from scalable_gpe.colors import THEMES, ThemeName, color_column
from scalable_gpe.embedding import Embedding
from scalable_gpe.formatting import element, joined, power_title, text
from scalable_gpe.plot.embeddings import Components, default_title, projected
from scalable_gpe.plot.pages import MAX_POINTS, Explorer, document, drawn_rows, share_text, view_data, write_page
from scalable_gpe.projection import PointArray

_MAX_LABELS = 1_000
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
