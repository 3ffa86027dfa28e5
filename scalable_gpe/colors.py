"""The column that colours the rows of a picture, checked once for plots and for the report page."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from scalable_gpe.errors import Message

MAX_LABELS = 20  # more colours cannot be told apart
_LIMITS = (0.01, 0.99)  # quantiles at the ends of the colour scale: a few extreme values do not use it up


@dataclass(frozen=True)
class ColorColumn:
    """One value per row: numbers, or a few labels.

    Attributes
    ----------
    values : array (N,)
        float64, NaN where missing; of labels, their positions in `labels`.
    labels : tuple of str
        Names of the labels; empty for numbers.
    low, high : float
        Ends of the colour scale of numbers.
    """

    values: np.ndarray
    labels: tuple[str, ...]
    low: float
    high: float

    def __getitem__(self, rows: np.ndarray) -> "ColorColumn":
        """Give the column of some rows, with the same labels and the same scale."""
        return ColorColumn(self.values[rows], self.labels, self.low, self.high)


def color_column(color: Any, n_rows: int) -> ColorColumn:
    """Check the values of `color=`: whole numbers with few different values, and texts, are labels.

    Examples
    --------
    >>> color_column(["b", "a", "b"], 3).labels
    ('a', 'b')
    """
    given = np.asarray(color)
    if given.shape != (n_rows,):
        raise ValueError(
            Message(f"`color` must have one value for each of the {n_rows} rows; got shape {given.shape}.")
        )
    if given.dtype.kind == "O":
        given = np.array([str(value) for value in given])
    is_text = given.dtype.kind in "US"
    labels, positions = np.unique(given, return_inverse=True) if is_text or given.dtype.kind in "iub" else ((), None)
    if len(labels) > MAX_LABELS and is_text:
        raise ValueError(
            Message(f"`color` has {len(labels)} labels; at most {MAX_LABELS} can be told apart. Merge some.")
        )
    if positions is not None and len(labels) <= MAX_LABELS:
        return ColorColumn(positions.astype(np.uint8), tuple(str(one) for one in labels), 0.0, 1.0)
    return _numbers(given)


def _numbers(given: np.ndarray) -> ColorColumn:
    values = np.where(np.isfinite(wide := given.astype(np.float64)), wide, np.nan)
    known = values[~np.isnan(values)]
    if not known.size:
        raise ValueError(Message("`color` has no finite number. Pass other values."))
    low, high = (float(end) for end in np.quantile(known, _LIMITS))
    return ColorColumn(values, (), low, high if high > low else low + 1)
