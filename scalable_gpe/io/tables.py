"""Tables (.csv, .tsv, .parquet): which columns are read, and their batches as one array and the names of its rows."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from scalable_gpe.io.points import Points, as_whole_numbers, first_names, listed, name_array, spool

_LONGEST_NAME = 2**16

Column = str | int  # by its name, or by its number from 0


@dataclass(frozen=True)
class TableOptions:
    """What a caller says about a table, as in `read_points`; None is decided from the file."""

    index: Column | None = None
    columns: Sequence[Column] | None = None
    drop: Sequence[Column] | None = None
    numeric_only: bool = False


@dataclass(frozen=True)
class TableFile(ABC):
    """A file of columns with their names; pandas has written the index in the column `index`, if it has."""

    path: str
    source: str
    names: list[str]
    index: int | None
    has_header: bool

    @abstractmethod
    def type_of(self, column: int) -> Any:
        """The type of a column, as pyarrow calls it; of a categorical one that of its values."""

    @abstractmethod
    def fault(self, column: int) -> str | None:
        """Why a column is not one of numbers, or None."""

    @abstractmethod
    def dtype(self, columns: Sequence[int]) -> type[np.floating[Any]]:
        """The type of a copy of some columns."""

    @abstractmethod
    def batches(self, columns: Sequence[int], index: int | None) -> Iterator[Any]:
        """Record batches of columns of numbers and of one of names, which are called by their numbers."""

    @abstractmethod
    def read(self, column: int, texts: Sequence[int]) -> Any:
        """A whole column as it is, and others that may hold names, which are called by their numbers."""


def read_table(table: TableFile, options: TableOptions) -> Points:
    """Copy columns of numbers to one array; another column holds the names of the rows."""
    path, index = table.path, find_column(options.index, table.names, "index", table.path)
    index = table.index if index is None else index
    kept = _kept_columns(options, table.names, index, path)
    faults = {column: fault for column in kept if (fault := table.fault(column)) is not None}
    if faults and not options.numeric_only:
        raise TypeError(f"X: {path!r} is not a table of numbers: {wrong_columns(faults, table)}")
    kept = [column for column in kept if column not in faults]
    if not kept:
        raise ValueError(f"X: {path!r} has no column of numbers beside the index. Pass at least one.")
    names, titles, dtype = NameColumn(index), [table.names[column] for column in kept], table.dtype(kept)

    def rows() -> Iterator[np.ndarray]:
        for batch in table.batches(kept, index):
            names.add(batch)
            yield _matrix(batch, kept, titles, dtype)

    values, left_out = spool(rows(), len(kept), dtype), [table.names[column] for column in faults]
    without = f", without {first_names(left_out)}" if left_out else ""
    return Points(
        values,
        names.array(table),
        f"{len(kept)} columns of {table.source}{without}",
        feature_names=name_array(titles) if table.has_header else None,
        remarks=left_out_remarks(left_out) + names.remarks(),
    )


def left_out_remarks(columns: Sequence[Any]) -> tuple[str, ...]:
    """A warning about the columns that `numeric_only` leaves out.

    Examples
    --------
    >>> left_out_remarks(["city", "age"])
    ("columns left out, because they do not hold numbers alone: 'city', 'age'.",)
    """
    text = f"columns left out, because they do not hold numbers alone: {listed(map(repr, columns))}."
    return (text,) if len(columns) else ()


def wrong_columns(faults: Mapping[int, str], table: TableFile) -> str:
    """What is wrong with columns that do not hold numbers, and what to do about them."""
    text = listed(f"column {table.names[column]!r} {fault}" for column, fault in faults.items())
    return (
        f"{text}. Pass the column that holds the names of the rows, if any, as read_points(index=); leave others "
        "out with read_points(drop=), or all such columns with numeric_only=True."
    )


def _matrix(batch: Any, columns: Sequence[int], titles: Sequence[str], dtype: npt.DTypeLike) -> np.ndarray:
    import pyarrow

    out = np.empty((batch.num_rows, len(columns)), dtype)
    for place, (column, name) in enumerate(zip(columns, titles, strict=True)):
        try:
            values = batch.column(str(column)).cast("float64")
        except pyarrow.ArrowInvalid as error:  # of whole numbers above 2**53
            raise ValueError(f"X: column {name!r}: {error}. Subtract its smallest value first.") from None
        out[:, place] = values.to_numpy(zero_copy_only=False)  # missing: NaN
    return out


class NameColumn:
    """Names of rows, collected batch by batch from the index column, if there is one."""

    def __init__(self, column: int | None) -> None:
        self._column = column
        self._names: list[str] = []

    def add(self, batch: Any) -> None:
        if self._column is not None:
            self._names += [str(name) for name in _texts(batch.column(str(self._column))).to_pylist()]

    def texts(self) -> np.ndarray | None:
        """All names as texts."""
        return name_array(self._names) if self._names else None

    def array(self, table: TableFile) -> np.ndarray | None:
        """All names, as whole numbers where the table has such."""
        import pyarrow.types as types

        if self._column is None or (names := self.texts()) is None:
            return None
        return as_whole_numbers(names) if types.is_integer(table.type_of(self._column)) else names

    def remarks(self) -> tuple[str, ...]:
        """A warning about names that several rows share."""
        n_more = len(self._names) - len(set(self._names))
        repeated = [name for name, count in Counter(self._names).items() if count > 1] if n_more else []
        text = f"{n_more:,} of {len(self._names):,} row names repeat others: {first_names(repeated, 5)}."
        return (text,) if n_more else ()


def _texts(names: Any) -> Any:
    """A column of names without its dictionary; refuse texts that are too long to be names."""
    import pyarrow.compute
    import pyarrow.types as types

    texts = names.dictionary if types.is_dictionary(names.type) else names
    if types.is_string(texts.type) or types.is_large_string(texts.type):
        longest = pyarrow.compute.max(pyarrow.compute.binary_length(texts)).as_py() or 0
        if longest > _LONGEST_NAME:
            raise ValueError(f"X: a row has a name of {longest:,} bytes. Choose another column with index=.")
    return names.cast(texts.type)


# --- columns --------------------------------------------------------------------------------------


def find_column(column: Column | None, names: Sequence[str], argument: str, path: str) -> int | None:
    """The number of a column; a text of digits that names no column is a number."""
    if column is None:
        return None
    if isinstance(column, bool) or not isinstance(column, str | int | np.integer):
        raise TypeError(f"{argument}: a column is a name or a number from 0; got {column!r}.")
    found = [number for number, name in enumerate(names) if name == column]
    if not found and (not isinstance(column, str) or column.isdecimal()):
        found = [int(column)] if 0 <= int(column) < len(names) else []
    if not found:
        raise ValueError(
            f"{argument} must be one of the columns of {path!r}, by name or by number from 0: "
            f"{first_names(names)}; got {column!r}."
        )
    if len(found) > 1:
        raise ValueError(f"{argument}: {path!r} has two columns named {column!r}. Choose by number, from 0.")
    return found[0]


def _kept_columns(options: TableOptions, names: Sequence[str], index: int | None, path: str) -> list[int]:
    """Numbers of the columns that hold the points: those that are named, or all but the index and those to drop."""
    columns, drop = options.columns, options.drop
    if columns is None:
        _check_distinct(names, path)
        dropped = {index, *([] if drop is None else _find_all(drop, names, "drop", path))}
        kept = [number for number in range(len(names)) if number not in dropped]
        if not kept:
            raise ValueError(f"drop and index leave no column of {path!r}.")
        return kept
    if drop is not None:
        raise ValueError("columns names the columns to keep, drop those to leave out. Pass one of them.")
    kept = _find_all(columns, names, "columns", path)
    if not kept or len(set(kept)) < len(kept) or index in kept:
        raise ValueError(f"columns must name at least one column, each once, and not the index; got {list(columns)!r}.")
    return kept


def _find_all(columns: Sequence[Column], names: Sequence[str], argument: str, path: str) -> list[int]:
    """Numbers of some columns."""
    if isinstance(columns, str) or not isinstance(columns, Iterable):
        raise TypeError(f"{argument} must be a list of names or numbers; got {columns!r}.")
    return [number for column in columns if (number := find_column(column, names, argument, path)) is not None]


def _check_distinct(names: Sequence[str], path: str) -> None:
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise ValueError(
            f"X: {path!r} has two columns of one name: {first_names(repeated, 5)}. Rename one, or choose by "
            "number with read_points(columns=)."
        )


def is_numeric(kind: Any) -> bool:
    """Whether a type of pyarrow is one of real numbers."""
    import pyarrow.types as types

    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))
