"""The column that colours the rows of a picture, checked once for plots and pages; colours of labels."""

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal

import numpy as np

from scalable_gpe.checks import check_choice, check_count, check_row_values

ThemeName = Literal["light", "dark"]
THEMES = ("light", "dark")

# on white, the first 8 differ by 25 or more in CIELAB for each pair, also with deuteranopia and protanopia
# (tests/test_plot.py), all 20 by 12 or more; no palette of matplotlib has 20 colours that do
_PALETTE = (
    *("#087adb", "#f5a11c", "#24ae5b", "#c83208", "#782b84", "#1eccff", "#862c38", "#ff9eb7", "#ab8f00", "#274ba7"),
    *("#c77042", "#ae22c3", "#1ed2bc", "#ce6374", "#428228", "#9496f7", "#8b2c00", "#ba1f5f", "#4f6d8a", "#61d45c"),
)
_BLACK, _WHITE = 0.0, 1.0
_ROUNDS = ((_WHITE, 0.0), (_WHITE, 0.45), (_BLACK, 0.4))  # each repeat of the palette is mixed with this, by this share

_LIGHTER = {"light": 0.0, "dark": 0.3}  # share of white in the palette
_GREYS = {"light": ("#a8a8a8", "#d9d9d9"), "dark": ("#6a6a72", "#45454d")}  # of "other" and "missing"
VIRIDIS_PART = {"light": (0.0, 0.95), "dark": (0.2, 1.0)}  # of numbers: what can be seen on the background

# matplotlib's maps at even steps, for pages and notebooks, which work without it
_VIRIDIS = (
    *("#440154", "#482475", "#414487", "#355f8d", "#2a788e", "#21918c"),
    *("#22a884", "#44bf70", "#7ad151", "#bddf26", "#fde725"),
)


N_COLORS = 20  # labels with a colour of their own; more repeat the palette paler, then darker
_FEW_NUMBERS = 20  # whole numbers with so few different values are labels
_FEW_CLUSTERS = 100  # and so are 0, 1, ..., n - 1 (or 1, ..., n), as clusters are numbered, for so many
_LIMITS = (0.01, 0.99)  # quantiles at the ends of the colour scale: a few extreme values do not use it up
OTHER, MISSING = "other", "missing"
_MISSING = ("NoneType", "NAType", "NaTType")  # types of missing values; NaN is not equal to itself


@dataclass(frozen=True)
class ColorColumn:
    """One value per row: numbers, or labels.

    Attributes
    ----------
    values : array (N,)
        float64, NaN where missing; of labels, their positions in `labels` (int32).
    labels : tuple of str
        Names of the labels; empty for numbers.
    low, high : float
        Ends of the colour scale of numbers.
    n_grey : int
        The last so many labels are grey: "other", which joins rare labels, and "missing".
    """

    values: np.ndarray
    labels: tuple[str, ...] = ()
    low: float = 0.0
    high: float = 1.0
    n_grey: int = 0

    def __getitem__(self, rows: np.ndarray) -> "ColorColumn":
        """Give the column of some rows, with the same labels and the same scale."""
        return ColorColumn(self.values[rows], self.labels, self.low, self.high, self.n_grey)

    def shades(self, theme: str = "light") -> tuple[str, ...]:
        """Colour of each label, as ``#rrggbb``."""
        greys = dict(zip((OTHER, MISSING), _GREYS[theme], strict=True))
        n_own = len(self.labels) - self.n_grey
        return label_colors(n_own, theme) + tuple(greys[name.split(" (")[0]] for name in self.labels[n_own:])


def label_colors(n_labels: int, theme: str = "light") -> tuple[str, ...]:
    """So many colours: the palette, then the palette paler, then darker, and so on.

    Examples
    --------
    >>> label_colors(2)
    ('#087adb', '#f5a11c')
    """
    lighter = _LIGHTER[check_choice(theme, THEMES, "theme")]
    rounds = [[_mixed(_mixed(color, _WHITE, lighter), *mix) for color in _PALETTE] for mix in _ROUNDS]
    return tuple(rounds[i // N_COLORS % len(rounds)][i % N_COLORS] for i in range(n_labels))


def _mixed(color: str, level: float, share: float) -> str:
    """A colour mixed with black (level 0) or white (level 1)."""
    return _hex((1 - share) * np.array(channels(color)) + share * 255 * level)


def _hex(color: np.ndarray) -> str:
    return "#" + "".join(f"{round(float(one)):02x}" for one in color)


def channels(color: str) -> list[int]:
    """Red, green and blue of ``#rrggbb``, from 0 to 255."""
    return [int(color[i : i + 2], 16) for i in (1, 3, 5)]


def number_ramp(theme: str) -> list[str]:
    """Some colours, as ``#rrggbb``, from the lowest number to the highest."""
    stops, shares = np.array([channels(color) for color in _VIRIDIS], float), np.linspace(0, 1, len(_VIRIDIS))
    shown = np.linspace(*VIRIDIS_PART[theme], len(_VIRIDIS))
    return [_hex(color) for color in np.stack([np.interp(shown, shares, channel) for channel in stops.T], axis=1)]


def color_column(color: Any, n_rows: int, max_labels: int | None = None, embedding: Any = None) -> ColorColumn:
    """Check the values of `color=`, and tell numbers from labels.

    Texts, bools and pandas categoricals are labels. So are whole numbers with at most 20 different values, or numbered
    without gaps from 0 or 1, up to 100, as clusters are. With `max_labels`, all but the most frequent ones are joined.
    Values for all rows of the input of an `embedding` lose those of rows that it dropped, and those of a pandas Series
    go by its index.

    Examples
    --------
    >>> color_column(["b", "a", "b"], 3).labels
    ('a', 'b')
    >>> color_column(["b", "a", "b", "c"], 4, max_labels=1).labels
    ('b', 'other (2 labels)')
    """
    if max_labels is not None:
        max_labels = check_count(max_labels, "max_labels")
    dropped, names = getattr(embedding, "dropped", None), getattr(embedding, "names", None)
    color = check_row_values(color, n_rows, "color", dropped, names)
    categorical = getattr(color, "cat", color)  # of a pandas Series
    codes, categories = getattr(categorical, "codes", None), getattr(categorical, "categories", None)
    if codes is not None and categories is not None:
        return _labels(np.asarray(codes, np.int64), [str(one) for one in categories], max_labels)
    given = np.asarray(color)
    if given.dtype.kind == "O":
        known = np.array([type(one).__name__ not in _MISSING and bool(one == one) for one in given], bool)
        if not all(isinstance(value, Real) for value in given[known]):
            return _texts(given.astype(str), known, max_labels)
        given = np.array(np.where(known, given, np.nan).tolist())  # bools and ints stay so where none is missing
    if given.dtype.kind in "US":
        return _texts(np.char.decode(given, "utf-8", "replace") if given.dtype.kind == "S" else given, None, max_labels)
    if given.dtype.kind in "iub":
        distinct, positions = np.unique(given, return_inverse=True)
        if given.dtype.kind == "b" or len(distinct) <= _FEW_NUMBERS or _are_clusters(distinct):
            return _labels(positions, [str(one) for one in distinct], max_labels)
    return _numbers(given)


def _are_clusters(numbers: np.ndarray) -> bool:
    """Whether ascending whole numbers are 0, ..., n - 1 or 1, ..., n, and not too many."""
    return bool(len(numbers) <= _FEW_CLUSTERS and numbers[0] in (0, 1) and numbers[-1] - numbers[0] == len(numbers) - 1)


def _texts(given: np.ndarray, known: np.ndarray | None, max_labels: int | None) -> ColorColumn:
    distinct, positions = np.unique(given if known is None else given[known], return_inverse=True)
    names = [str(one) for one in distinct]
    if all(name.isdecimal() for name in names):  # "10" comes after "2"
        by = sorted(range(len(names)), key=lambda i: int(names[i]))
        positions, names = np.argsort(by)[positions] if by else positions, [names[i] for i in by]
    codes = np.full(len(given), -1, np.int64)
    codes[slice(None) if known is None else known] = positions
    return _labels(codes, names, max_labels)


def _labels(codes: np.ndarray, names: Sequence[str], max_labels: int | None) -> ColorColumn:
    """Labels by position (-1: missing); those without rows are left out, rare ones joined."""
    counts = np.bincount(codes[codes >= 0], minlength=len(names))
    kept = np.flatnonzero(counts)
    rare = np.zeros(0, np.int64)
    if max_labels is not None and len(kept) > max_labels:
        by = kept[np.argsort(-counts[kept], kind="stable")]
        kept, rare = np.sort(by[:max_labels]), by[max_labels:]
    shown = [names[int(i)] for i in kept]
    place = np.full(len(names) + 1, len(shown) + bool(len(rare)), np.int32)  # the last one is of -1: missing
    place[kept] = np.arange(len(kept))
    place[rare] = len(shown)
    greys = [f"{OTHER} ({len(rare):,} labels)"] * bool(len(rare)) + [MISSING] * bool((codes < 0).any())
    return ColorColumn(place[codes], (*shown, *greys), n_grey=len(greys))


def _numbers(given: np.ndarray) -> ColorColumn:
    values = np.where(np.isfinite(wide := given.astype(np.float64)), wide, np.nan)
    known = values[~np.isnan(values)]
    if not known.size:
        raise ValueError("color has no finite number. Pass other values.")
    low, high = (float(end) for end in np.quantile(known, _LIMITS))
    return ColorColumn(values, low=low, high=high if high > low else low + 1)


def drawn_rows(n_rows: int, most: int, column: ColorColumn | None) -> np.ndarray:
    """Some rows in the order in which they are drawn: random, so that no label hides another, but grey labels first."""
    rows = np.random.default_rng(0).permutation(n_rows)[:most]
    if column is not None and column.n_grey:
        rows = rows[np.argsort(column.values[rows] < len(column.labels) - column.n_grey, kind="stable")]
    return rows
