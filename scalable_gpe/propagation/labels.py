"""The labels of some rows, and the columns that a solution begins with.

Equal rows are one point and share their labels: a point has the sum of the weights of its labelled rows for each class.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np

from scalable_gpe.checks import check_row_values, in_order_of
from scalable_gpe.errors import GPEWarning, warn
from scalable_gpe.execution.panels import Panel, Panels
from scalable_gpe.execution.sums import row_pieces
from scalable_gpe.heat.normalization import HeatKernel
from scalable_gpe.storage.mapped import take_rows

_UNKNOWN = ("unknown", "unassigned", "unlabeled", "unlabelled", "missing", "nan", "none", "na", "n/a", "<na>", "-1")
_MOST_FLOATS = 100  # different floats that may be classes


@dataclass(frozen=True)
class GivenLabels:
    """The classes (ascending), and the class number of each labelled row of the user."""

    classes: np.ndarray
    rows: np.ndarray
    codes: np.ndarray

    @property
    def content(self) -> str:
        """Checksum of the labels; it enters the name of the result."""
        digest = hashlib.sha256("\n".join(map(str, self.classes.tolist())).encode())
        for values in (self.rows, self.codes):
            digest.update(np.ascontiguousarray(values, np.int64).tobytes())
        return digest.hexdigest()[:12]

    def by_row(self, n_rows: int) -> np.ndarray:
        """The class number of each row; -1 for rows without a label."""
        codes = np.full(n_rows, -1, np.int32)
        codes[self.rows] = self.codes
        return codes


def check_labels(labels: Any, n_rows: int, name: str = "labels", dropped: np.ndarray | None = None) -> GivenLabels:
    """Read one label for each row; -1, None, NaN and empty text are rows without one.

    Examples
    --------
    >>> given = check_labels(["b", None, "a", float("nan")], 4)
    >>> given.classes.tolist(), given.rows.tolist(), given.codes.tolist()
    (['a', 'b'], [0, 2], [1, 0])
    """
    values = check_row_values(labels, n_rows, name, dropped)
    # in a list NaN is not a text, even beside texts
    values = np.array(list(values), object) if isinstance(values, list | tuple) else np.asarray(values)
    rows = np.flatnonzero(_known(values))
    try:
        classes, codes = np.unique(_plain(values[rows]), return_inverse=True)
    except TypeError:
        raise TypeError(f"{name} must be numbers or texts, not both. Convert them, such as with astype(str).") from None
    if len(classes) < 2:
        found = "there is none" if not len(rows) else f"all {len(rows)} labelled rows have {classes[0]!r}"
        raise ValueError(
            f"{name} must have rows of at least two classes; {found}. Rows without a label are -1 or None."
        )
    _check_classes(classes, name)
    return GivenLabels(classes, rows, codes.astype(np.int32))


def _check_classes(classes: np.ndarray, name: str) -> None:
    """Refuse measurements; warn about classes that look like rows without a label."""
    if classes.dtype.kind == "f" and len(classes) > _MOST_FLOATS:
        raise ValueError(
            f"{name} holds {len(classes)} different floats, which look like measurements, not classes. Convert "
            "them to whole numbers or texts if they are classes."
        )
    unknown = [one for one in classes.tolist() if isinstance(one, str) and one.strip().lower() in _UNKNOWN]
    if unknown:
        they = "are classes" if len(unknown) > 1 else "is a class"
        warn(
            f"{', '.join(map(repr, unknown))} {they} of {name} like any other: pass None, NaN or an empty text for "
            "rows without a label.",
            GPEWarning,
        )


def _known(values: np.ndarray) -> Any:
    """Mask of the rows with a label."""
    if values.dtype.kind in "iubf":
        return (values == values) & (values != -1)
    if values.dtype.kind == "U":
        return values != ""
    return np.fromiter((_is_label(one) for one in values), np.bool_, len(values))


def _is_label(value: Any) -> bool:
    """Whether a Python object is a label: NaN differs from itself, and pandas' NA has no truth value."""
    try:
        none = value is None or value == "" or (isinstance(value, Real) and value == -1)
        return not none and bool(value == value)
    except TypeError:
        return False


def _plain(values: np.ndarray) -> np.ndarray:
    """Labels of Python objects as numbers or texts; numpy would make texts of a mixture of both."""
    is_mixed = values.dtype != object or len({isinstance(one, str) for one in values}) != 1
    return values if is_mixed else np.array(values.tolist())


class Groups(NamedTuple):
    """Groups of rows: their names, and the group of each row (-1: none)."""

    names: list[Any]
    codes: np.ndarray


def check_groups(
    terminal: Any, n_rows: int, row_of: Callable[[Any], int], names: np.ndarray | None, name: str = "terminal"
) -> Groups:
    """Number the rows of ``{group: rows}``, or of rows that are a group each; none may be in two.

    Rows are given by number, name or mask, one or several; `row_of` gives the number of one.
    """
    groups, codes = terminal if isinstance(terminal, Mapping) else {one: one for one in terminal}, np.full(n_rows, -1)
    for number, (group, given) in enumerate(groups.items()):
        rows = np.array([row_of(one) for one in _members(given, n_rows, names, name)])
        if not len(rows):
            raise ValueError(f"{name} must have a row in each group; {group!r} has none.")
        again = rows[(codes[rows] >= 0) | (np.bincount(rows)[rows] > 1)]
        if len(again):
            raise ValueError(f"{name} must name each row once; {group!r} has row {again[0]} again.")
        codes[rows] = number
    if len(groups) < 2:
        raise ValueError(f"{name} must name two groups or more; got {len(groups)}.")
    return Groups(list(groups), codes.astype(np.int32))


def _members(given: Any, n_rows: int, names: np.ndarray | None, name: str) -> Iterable[Any]:
    """The rows of a group; a mask that is a pandas Series goes by its index where the rows have names."""
    if isinstance(given, str | Integral):
        return [given]
    values = np.asarray(given)
    if values.dtype != np.bool_:
        if values.shape == (n_rows,) and len(np.unique(values)) < n_rows:
            raise ValueError(
                f"{name} must have numbers, names or masks; {n_rows} numbers look like a mask: use astype(bool)."
            )
        return given  # type: ignore[no-any-return]
    values = np.asarray(in_order_of(names, given, name))
    if values.shape != (n_rows,):
        raise ValueError(f"{name} must have masks of the {n_rows} rows; got one of {values.shape}.")
    return np.flatnonzero(values).tolist()


@dataclass(frozen=True)
class Sources:
    """The labelled points (storage order, ascending), and entries (number of the point, class, weight) by point."""

    heat: HeatKernel
    points: np.ndarray
    number: np.ndarray
    codes: np.ndarray
    weights: np.ndarray

    @staticmethod
    def of(heat: HeatKernel, given: GivenLabels) -> "Sources":
        """Add the weights of equal rows of a class."""
        position = heat.kernel.storage_order.position
        points = np.asarray(take_rows(position, given.rows), np.int64)
        weight = np.ones(len(points)) if heat.sample_weight is None else heat.sample_weight[given.rows]
        order = np.lexsort((given.codes, points))  # stable: rows of a point and class are added in their order
        points, codes = points[order], given.codes[order]
        new = np.ones(len(points), np.bool_)
        new[1:] = (points[1:] != points[:-1]) | (codes[1:] != codes[:-1])
        weights = np.add.reduceat(weight[order], np.flatnonzero(new))
        own, number = np.unique(points[new], return_inverse=True)
        return Sources(heat, own, number, codes[new], weights)

    @cached_property
    def totals(self) -> np.ndarray:
        """Weight of the labelled rows of each labelled point."""
        return np.bincount(self.number, self.weights)

    def panel(
        self, panels: Panels, first: int, stop: int, factor: np.ndarray, shares: np.ndarray, group: np.ndarray
    ) -> Panel:
        """The weights of some classes, times the `factor` of each labelled point; zeros elsewhere.

        From these the whole weight of a point is subtracted, times the `shares` of the classes in its group.
        """
        context, n_points = self.heat.context, self.heat.kernel.edges.n_points
        out, shares = panels.new((n_points, stop - first), np.float64), shares[:, first:stop]

        def place(work: tuple[tuple[int, int], list[np.ndarray], list[np.ndarray]]) -> None:
            piece, (at, factor, totals, group), (number, codes, weights) = work
            room, rows = out.room(*piece), np.zeros((len(at), stop - first))
            wanted = (codes >= first) & (codes < stop)
            rows[number[wanted], codes[wanted] - first] = weights[wanted]
            rows -= totals[:, None] * shares[group]
            room[:] = 0
            room[at] = rows * factor[:, None]
            out.put(piece[0], room)

        pieces = row_pieces(context, n_points)
        ends = np.searchsorted(self.points, [0, *(piece[1] for piece in pieces)])
        begins = np.searchsorted(self.number, ends)
        work = []
        for i, piece in enumerate(pieces):  # a task gets what concerns its rows
            own, entries = slice(ends[i], ends[i + 1]), slice(begins[i], begins[i + 1])
            of_points = [self.points[own] - piece[0], factor[own], self.totals[own], group[own]]
            of_entries = [self.number[entries] - ends[i], self.codes[entries], self.weights[entries]]
            work.append((piece, of_points, of_entries))
        context.workers.map(place, work, count=False)
        return out
