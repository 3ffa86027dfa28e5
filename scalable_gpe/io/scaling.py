"""How the columns of an input spread: what they are divided by, and which of them say nothing or decide alone."""

import re
from dataclasses import dataclass

import numpy as np

from scalable_gpe.io.points import first_names
from scalable_gpe.storage.blocks import ranges

SCALES = ("standard", "robust")
_SAMPLED, _SAMPLED_ENTRIES = 65_536, 2**22  # rows, and their entries, whose quantiles are taken
_AT_ONCE = 2**17  # entries that are added up at once
_EQUAL = 8  # roundings of the largest value within which a column is constant
_DECIDES = (0.9, 0.999, 0.999)  # share of the variance with which one, two or three columns decide
_IDENTIFIER = re.compile(r"(^|[ _.-])(id|index|key|nr|row|unnamed: 0)$", re.IGNORECASE)
_COORDINATES = 3  # columns without names that may be one place in space, where one direction may be long
_COMPONENTS = 5  # columns from which falling variances are no accident, but those of principal components


@dataclass(frozen=True, eq=False)
class ColumnSpread:
    """Extremes, mean and sum of squared deviations of the columns of some rows, and parts of a sample of the rows.

    `precision` is the relative rounding of the values.
    """

    n_rows: int
    low: np.ndarray
    high: np.ndarray
    mean: np.ndarray
    squares: np.ndarray
    sample: tuple[np.ndarray, ...]
    precision: float

    @classmethod
    def of(
        cls, values: np.ndarray, low: np.ndarray, high: np.ndarray, sample: tuple[np.ndarray, ...]
    ) -> "ColumnSpread":
        """The spread of some rows, whose numbers are added in one order, whatever their type and layout."""
        precision = float(np.finfo(values.dtype).eps) if values.dtype.kind == "f" else 0.0
        found = cls(0, low, high, np.zeros(low.shape), np.zeros(low.shape), sample, precision)
        for start, stop in ranges(len(values), max(16, _AT_ONCE // values.shape[1])):
            part = np.ascontiguousarray(values[start:stop], np.float64)
            mean = part.mean(axis=0)
            part = part - mean
            squares = np.einsum("ij,ij->j", part, part)
            found = found.joined(cls(stop - start, low, high, mean, squares, (), precision))
        return found

    def joined(self, other: "ColumnSpread") -> "ColumnSpread":
        """The spread of these rows and those of another."""
        n_rows, step = self.n_rows + other.n_rows, other.mean - self.mean
        return ColumnSpread(
            n_rows,
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
            self.mean + step * (other.n_rows / n_rows),
            self.squares + other.squares + step * step * (self.n_rows * other.n_rows / n_rows),
            self.sample + other.sample,
            self.precision,
        )

    def largest(self, offset: np.ndarray | None, scale: np.ndarray | float = 1.0) -> float:
        """Largest absolute value after a shift and a division."""
        shift = 0.0 if offset is None else offset
        return float(max((np.abs(end - shift) / scale).max() for end in (self.low, self.high)))

    @property
    def deviation(self) -> np.ndarray:
        """Standard deviation of each column."""
        found: np.ndarray = np.sqrt(self.squares / self.n_rows)
        return found

    @property
    def constant(self) -> np.ndarray:
        """Mask of the columns whose values are all equal, up to rounding."""
        largest = np.maximum(np.abs(self.low), np.abs(self.high))
        equal: np.ndarray = self.high - self.low <= _EQUAL * self.precision * largest
        return equal

    def centre_and_scale(self, kind: str) -> tuple[np.ndarray, np.ndarray]:
        """What is subtracted from each column, and what it is then divided by: 1 if it is constant."""
        centre, scale = self.mean, self.deviation
        if kind == "robust":
            low, centre, high = np.quantile(np.concatenate(self.sample).astype(np.float64), [0.25, 0.5, 0.75], axis=0)
            scale = np.where(high > low, high - low, scale)  # more than half of the values are equal
        return centre, np.where(self.constant, 1.0, scale)

    def remarks(self, kind: str | None, names: np.ndarray | None, element: str | None) -> list[str]:
        """Warnings: columns that are constant, and one that decides the distances alone.

        `element` is the part of an AnnData object that the rows are. Where columns have no names (pixels) or are genes,
        constant ones are usual, and change nothing unless they are to be scaled. Principal components, other parts of
        obsm, and two or three columns without names (places) have one unit, though one direction may be long.
        """
        texts, constant = [], np.flatnonzero(self.constant)
        if len(constant) and (kind is not None or (names is not None and element is None)):
            are = "columns {} are" if len(constant) > 1 else "column {} is"
            texts.append(f"{are.format(_named(constant, names))} constant: nothing can be learned from it.")
        for number, name in enumerate([] if names is None or element is not None else names.tolist()):
            if _IDENTIFIER.search(name) and all(float(end[number]).is_integer() for end in (self.low, self.high)):
                texts.append(
                    f"column {name!r} counts as a feature. If it holds the names of the rows, pass it as index."
                )
        share = self.squares / (self.squares.sum() or 1.0)
        first, n_columns = _deciding(share), len(share)
        has_one_unit = (
            n_columns < (_COORDINATES + 1 if names is None else 2)
            or (n_columns >= _COMPONENTS and bool((np.diff(share) <= 0).all()))
            or (element or "").startswith("obsm/")
        )
        if kind is None and len(first) and not has_one_unit:
            percent = np.floor(1e4 * share[first].sum()) / 100  # not 100 % unless it is all
            columns, have, decide = ("columns", "have", "decide") if len(first) > 1 else ("column", "has", "decides")
            texts.append(
                f"{columns} {_named(first, names)} {have} {percent:g} % of the variance of X, and {decide} the "
                "distances nearly alone. If the columns have different units, pass "
                "scale='standard'; scale='robust' if only a few rows are far out."
            )
        return texts


def _deciding(share: np.ndarray) -> np.ndarray:
    """The few columns, at most half of them, that have nearly all of the variance."""
    order = np.argsort(-share, kind="stable")
    for count, enough in enumerate(_DECIDES, start=1):
        if share[order[:count]].sum() > enough and (count == 1 or 2 * count <= len(share)):
            return order[:count]
    return order[:0]


def sampled_step(n_rows: int, n_features: int) -> int:
    """Step between the rows whose quantiles are taken."""
    return max(1, -(-n_rows // max(1, min(_SAMPLED, _SAMPLED_ENTRIES // n_features))))


def _named(columns: np.ndarray, names: np.ndarray | None) -> str:
    return first_names(columns.tolist() if names is None else names[columns].tolist(), 5)
