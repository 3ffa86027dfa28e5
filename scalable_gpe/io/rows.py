"""Any input as float32 rows, read block by block."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any, Protocol

import numpy as np

from scalable_gpe import checks
from scalable_gpe.io.labels import Annotations
from scalable_gpe.io.points import Points, first_names
from scalable_gpe.io.scaling import ColumnSpread, sampled_step
from scalable_gpe.io.sources import Source, open_points
from scalable_gpe.storage.backends import StorageOptions
from scalable_gpe.storage.blocks import ranges

MISSING = ("error", "drop")
METRICS = ("euclidean", "cosine", "correlation", "hamming", "jaccard")
_SAMPLE = 1024  # rows that are looked at before any work
_BYTES_AT_ONCE = 2**24
_USUAL = (-20, 40)  # powers of two between which the largest value is left as it is: float32 holds its squares
_MOST = 1e120  # largest value: double precision holds epsilon, which is in squared units


class Rows(Protocol):
    """Points as float32 rows, in ranges or by number: an input, a table, or some rows of these in another order.

    `resident`: they are in the memory of this process.
    """

    @property
    def n_rows(self) -> int: ...
    @property
    def n_features(self) -> int: ...
    @property
    def resident(self) -> bool: ...
    def read(self, start: int, stop: int) -> np.ndarray: ...
    def take(self, ids: np.ndarray) -> np.ndarray: ...


@dataclass(frozen=True, eq=False)
class InputRows:
    """Rows of the user's input.

    Input wider than float32 is shifted before it is rounded, so that large offsets (dates, coordinates) do not swallow
    the differences between rows. Other metrics than euclidean map each row, so that straight-line distances of the
    mapped rows are those of the metric; these rows are not shifted. Very small and very large values are multiplied by
    a power of two, so that float32 holds the squares of distances.
    """

    source: Source
    metric: str = "euclidean"
    names: np.ndarray | None = None  # labels of the rows, where the input has any; not sent to other processes
    offset: np.ndarray | None = None  # float64, subtracted from each row
    name: str = "X"  # the argument, for error messages
    exponent: int = 0  # rows are multiplied by 2**exponent
    annotations: Annotations | None = None  # obs and var of an AnnData input; not sent to other processes
    feature_names: np.ndarray | None = None
    scale: np.ndarray | None = None  # float64, by which each row is divided after the shift
    remarks: tuple[str, ...] = ()  # warnings about what was read

    def __getstate__(self) -> object:
        return vars(self) | {"annotations": None, "names": None}

    @property
    def n_rows(self) -> int:
        return int(self.source.shape[0])

    @property
    def n_features(self) -> int:
        return int(self.source.shape[1])

    @property
    def dropped(self) -> np.ndarray | None:
        """Numbers of the rows of the input that are left out, ascending; None without any."""
        return self.source.dropped

    @property
    def resident(self) -> bool:
        """Whether the input is in the memory of this process already."""
        return self.source.resident

    @property
    def is_sparse(self) -> bool:
        return self.source.library == "scipy"

    @property
    def is_dask(self) -> bool:
        return self.source.library == "dask"

    @property
    def shared(self) -> bool:
        """Whether other processes can read the same rows: an input in a file or a store."""
        return self.source.shared

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows start to stop, C-contiguous float32."""
        return self._convert(self.source.rows(slice(start, stop)), np.arange(start, stop))

    def take(self, ids: np.ndarray) -> np.ndarray:
        return self._convert(self.source.rows(ids), ids)

    def exact(self, at: slice | np.ndarray) -> np.ndarray:
        """Rows of a range, or by number, as float64: what `read` and `take` round to float32."""
        ids = np.arange(at.start, at.stop) if isinstance(at, slice) else at
        return np.asarray(self._in_units(self.source.rows(at), ids), np.float64)

    @cached_property
    def rounds(self) -> bool:
        """Whether float32 may not hold the rows."""
        if self.metric in _MAPS:
            return self.metric in ("cosine", "correlation")
        return self.scale is not None or not np.can_cast(self.source.rows(slice(0, 1)).dtype, np.float32)

    def sample_parts(self) -> Iterator[np.ndarray]:
        """Rows at even steps, at most 1024, in parts that are not large: the input's fingerprint."""
        return (self.take(ids) for ids in _sample_parts(self.source))

    def steps(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Cut a range into ranges that are read at once."""
        rows = rows_at_once(self.n_features)
        return [(start + first, start + last) for first, last in ranges(stop - start, rows)]

    def with_units(self, offset: np.ndarray | None, scale: np.ndarray | None, exponent: int) -> "InputRows":
        """The same rows, shifted and scaled as others were: new points as the training rows."""
        return replace(self, offset=offset, scale=scale, exponent=exponent)

    def with_exponent(self, exponent: int) -> "InputRows":
        """The same rows in other units."""
        return self if exponent == self.exponent else replace(self, exponent=exponent)

    @property
    def is_mapped(self) -> bool:
        """Whether the metric maps the rows, to values of at most 1."""
        return self.metric in _MAPS

    def spread(self, steps: Sequence[tuple[int, int]], *, sampled: bool = False) -> ColumnSpread:
        """How the columns of some ranges of rows spread, in the units of the input; with a sample for quantiles."""
        return reduce(ColumnSpread.joined, (self._spread(*step, sampled) for step in steps))

    def _spread(self, start: int, stop: int, sampled: bool) -> ColumnSpread:
        values, ids = self.source.rows(slice(start, stop)), np.arange(start, stop)
        step = sampled_step(self.n_rows, self.n_features)
        sample = (values[-start % step :: step].copy(),) if sampled else ()
        return ColumnSpread.of(values, *_extremes(values, ids, self.name), sample)

    def scaled(self, kind: str, spread: ColumnSpread) -> "InputRows":
        """The same rows with equal spread of all columns; sparse rows keep their zeros, so they are not shifted."""
        centre, scale = spread.centre_and_scale(kind)
        offset = None if self.is_sparse else centre
        return self.with_units(offset, scale, choose_exponent(spread.largest(offset, scale), self.name))

    def _convert(self, values: np.ndarray, ids: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            block = np.require(self._in_units(values, ids), dtype=np.float32, requirements=["C", "W"])
        most = f"{math.ldexp(3e38, -self.exponent):.0e}".replace("+", "")
        checks.check_finite(block, self.name, ids if len(ids) else 0, most)
        return block

    def _in_units(self, values: np.ndarray, ids: np.ndarray) -> np.ndarray:
        """Rows of the source as the metric maps them, shifted and scaled, before they are rounded."""
        checks.check_whole(values, self.name)
        if self.metric in _MAPS:
            values = _MAPS[self.metric](np.ascontiguousarray(values, dtype=np.float64), ids, self.name)
        elif self.offset is not None or self.scale is not None:
            values = np.asarray(values, dtype=np.float64) - (0.0 if self.offset is None else self.offset)
            values = values if self.scale is None else values / self.scale
        if self.exponent:
            values = np.ldexp(values if values.dtype == np.float32 else values.astype(np.float64), self.exponent)
        return values


def choose_exponent(largest: float, name: str = "X") -> int:
    """Exponent of the power of two that brings the largest value of an input into the range of float32 squares.

    Examples
    --------
    >>> choose_exponent(1.0), choose_exponent(0.75 * 2.0**-70), choose_exponent(2.0**90)
    (0, 110, -51)
    """
    if largest == 0 or 2.0 ** _USUAL[0] <= largest <= 2.0 ** _USUAL[1]:
        return 0
    if largest < 1 / _MOST:
        raise ValueError(
            f"{name} must have values above 1e-120, because epsilon is in squared units; the largest is "
            f"{largest:.3g}. Multiply {name} by a constant."
        )
    return _USUAL[1] - math.frexp(largest)[1]


def open_rows(
    X: Any,
    metric: str = "euclidean",
    *,
    name: str = "X",
    min_rows: int = 2,
    storage_options: StorageOptions | None = None,
    missing: str = "error",
    numeric_only: bool = False,
) -> InputRows:
    """Open any input: an array of any library, a DataFrame, an AnnData object, a path, `Points` or `InputRows`.

    A sample of the rows is checked; the rest is checked as it is read. With ``missing="drop"`` all rows are read first.
    """
    checks.check_choice(metric, METRICS, "metric")
    if isinstance(X, InputRows):
        points = Points(X.source, X.names, "", X.annotations, X.feature_names, X.remarks)
    else:
        points = open_points(X, name, storage_options, numeric_only)
    _check_shape(points.shape, name, min_rows)
    rows = InputRows(points.values, metric, points.names, name=name, remarks=points.remarks)
    rows = replace(rows, annotations=points.annotations, feature_names=points.feature_names)
    rows = _without_missing(rows) if missing == "drop" else rows
    _check_shape(rows.source.shape, name, min_rows)
    with naming_all_rows(rows):
        return _checked(rows)


def _without_missing(rows: InputRows) -> InputRows:
    """The rows without NaN, which stands for a missing value; reads all rows."""
    found, empty = [np.zeros(0, np.int64)], np.ones(rows.n_features, np.bool_)
    for start, stop in rows.steps(0, rows.n_rows):
        values = rows.source.rows(slice(start, stop))
        lacks = np.isnan(values) if values.dtype.kind == "f" else np.zeros(values.shape, np.bool_)
        found.append(start + np.flatnonzero(lacks.any(axis=1)))
        empty &= lacks.all(axis=0)
    dropped = np.concatenate(found)
    if not len(dropped):
        return rows
    if empty.any():
        columns = np.flatnonzero(empty).astype(str) if rows.feature_names is None else rows.feature_names[empty]
        raise ValueError(f"{rows.name}: no row has a value in column {first_names(columns.tolist(), 5)}. Leave it out.")
    source, labels = replace(rows.source, dropped=dropped), rows.annotations
    names = None if rows.names is None else np.delete(rows.names, dropped)
    labels = None if labels is None else labels.take(source.numbers(np.arange(source.shape[0])))
    return replace(rows, source=source, names=names, annotations=labels)


@contextmanager
def naming_all_rows(rows: InputRows | None) -> Iterator[None]:
    """Let an error about rows that are not finite count all of them, and name their columns: reads all rows again."""
    try:
        yield
    except checks.NotFiniteError as error:
        assert rows is not None
        where = _not_finite(rows)
        raise error if where is None else checks.not_finite(rows.name, *where) from None


def _not_finite(rows: InputRows) -> tuple[str, str] | None:
    """The largest number that is finite, and which rows and columns hold others."""
    most = float(np.finfo(np.float64).max) if rows.metric in _MAPS else _MOST
    first, n_wrong, columns = np.zeros(0, np.int64), 0, np.zeros(rows.n_features, bool)
    for start, stop in rows.steps(0, rows.n_rows):
        wrong = ~(np.abs(rows.source.rows(slice(start, stop)).astype(np.float64)) <= most)
        found = start + np.flatnonzero(wrong.any(axis=1))
        first, n_wrong = np.concatenate([first, found])[:5], n_wrong + len(found)
        columns |= wrong.any(axis=0)
    first = rows.source.numbers(first)
    names, numbers = rows.feature_names, np.flatnonzero(columns)
    shown = checks.some(numbers) if names is None else first_names(names[numbers].tolist(), 5)
    where = f"{checks.rows_named(first, n_wrong)}, column{'s' * (len(numbers) > 1)} {shown}"
    return (f"{most:.0e}".replace("+", ""), where) if n_wrong else None


def _checked(rows: InputRows) -> InputRows:
    """The rows with the units of a sample, until all rows have been looked at; the sample is checked.

    Sparse rows are made dense in parts. They keep their zeros, so they are never shifted.
    """
    offset, largest, parts = None, 0.0, _sample_parts(rows.source)
    for ids in parts:
        values = rows.source.rows(ids)
        checks.check_whole(values, rows.name)
        if not rows.is_mapped:
            offset = None if rows.is_sparse else _offset(values, ids, rows.name)
            largest = max(largest, _largest(values, offset, ids, rows.name))
    rows = rows.with_units(offset, None, 0 if rows.is_mapped else choose_exponent(largest, rows.name))
    for ids in parts:
        rows._convert(values if len(parts) == 1 else rows.source.rows(ids), ids)
    return rows


def _sample_parts(source: Source) -> list[np.ndarray]:
    """Numbers of rows at even steps; those of sparse rows in parts, which are made dense one by one."""
    n_rows, n_features = (int(size) for size in source.shape)
    ids = np.unique(np.linspace(0, n_rows - 1, min(n_rows, _SAMPLE)).astype(np.int64))
    if source.library != "scipy":
        return [ids]
    return [ids[start:stop] for start, stop in ranges(len(ids), rows_at_once(n_features))]


def rows_at_once(n_features: int) -> int:
    """Rows that are read at once."""
    return max(16, min(65_536, _BYTES_AT_ONCE // (8 * n_features)))


def _check_shape(shape: tuple[int, ...], name: str, min_rows: int) -> None:
    if any(not size >= 0 for size in shape):  # NaN: dask does not know the lengths of its chunks
        raise ValueError(f"{name} has an unknown number of rows; call {name}.compute_chunk_sizes() first.")
    checks.check_shape(tuple(int(size) for size in shape), name, min_rows)


def _offset(values: np.ndarray, ids: np.ndarray, name: str) -> np.ndarray | None:
    """Median of sampled rows if float32 cannot hold their numbers, else None."""
    if values.dtype == np.float32:
        return None
    wide = values.astype(np.float64)
    # in units in which float32 neither overflows nor underflows
    scaled = np.ldexp(wide, choose_exponent(_largest(values, None, ids, name), name))
    narrow = scaled.astype(np.float32)
    # equal numbers give equal bytes, whatever their type; the median, because a far row must not move the offset
    return None if (narrow == scaled).all() else np.median(wide, axis=0)


def _largest(values: np.ndarray, offset: np.ndarray | None, ids: np.ndarray, name: str) -> float:
    shift = 0.0 if offset is None else offset
    # only the extreme values of each column are shifted: no copy of the rows
    return float(max(np.abs(end - shift).max(initial=0.0) for end in _extremes(values, ids, name)))


def _extremes(values: np.ndarray, ids: np.ndarray, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Least and largest value of each column of some rows, which are checked."""
    low, high = (np.asarray(end, np.float64) for end in (values.min(axis=0), values.max(axis=0)))
    if not max(np.abs(low).max(initial=0), np.abs(high).max(initial=0)) <= _MOST:  # NaN too
        checks.check_finite(np.where(np.abs(values) <= np.float64(_MOST), 0.0, np.nan), name, ids, "1e120")
    return low, high


# --- metrics: rows whose straight-line distances are those of the metric (but for jaccard) --------


def _unit(values: np.ndarray, ids: np.ndarray, name: str) -> np.ndarray:
    values = _scaled(values, ids, name)
    length = np.sqrt((values * values).sum(axis=1))
    _refuse(length == 0, ids, "metric='cosine' has no meaning for rows of zeros; got {rows}. Drop them first.")
    unit: np.ndarray = values / length[:, None]
    return unit


def _centred_unit(values: np.ndarray, ids: np.ndarray, name: str) -> np.ndarray:
    """Rows minus their means, divided by their lengths."""
    values = _scaled(values, ids, name)
    constant = values.max(axis=1) == values.min(axis=1)
    _refuse(constant, ids, "metric='correlation' has no meaning for constant rows; got {rows}. Drop them first.")
    return _unit(values - values.mean(axis=1)[:, None], ids, name)


def _scaled(values: np.ndarray, ids: np.ndarray, name: str) -> np.ndarray:
    """Finite rows, each multiplied by a power of two, so that no square overflows or underflows."""
    checks.check_finite(values, name, ids if len(ids) else 0)
    scaled: np.ndarray = np.ldexp(values, -np.frexp(np.abs(values).max(axis=1, initial=0))[1][:, None])
    return scaled


def _shares(values: np.ndarray, ids: np.ndarray, name: str) -> np.ndarray:
    """Rows of 0 and 1 divided by the root of their length: squared distances are shares of differing entries."""
    shares: np.ndarray = _binary(values, ids, name) / np.sqrt(values.shape[1])
    return shares


def _binary(values: np.ndarray, ids: np.ndarray, name: str) -> np.ndarray:
    """Rows of 0 and 1 as they are; their distances are computed elsewhere."""
    other = ((values != 0) & (values != 1)).any(axis=1)
    text = f"{name} must hold 0 and 1 only (or bool) for this metric; got other values in {{rows}}."
    _refuse(other, ids, f"{text} Set a threshold first, or choose another metric.")
    return values


def _refuse(wrong: np.ndarray, ids: np.ndarray, text: str) -> None:
    if wrong.any():
        raise ValueError(text.format(rows=checks.rows_named(ids[wrong])))


_MAPS: dict[str, Callable[[np.ndarray, np.ndarray, str], np.ndarray]] = {
    "cosine": _unit,
    "correlation": _centred_unit,
    "hamming": _shares,
    "jaccard": _binary,
}
