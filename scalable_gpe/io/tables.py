"""Tables (.csv, .tsv, .parquet): which columns are read, and their batches as one array and the names of its rows."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from scalable_gpe.io.points import Points, as_whole_numbers, first_names, listed, name_array, narrowest_float, spool

_LONGEST_NAME = 2**16
ADVICE = (
    "Pass the column that holds the names of the rows, if any, as read_points(index=); leave others "
    "out with read_points(drop=), or all such columns with numeric_only=True."
)

Column = str | int  # by its name, or by its number from 0


@dataclass(frozen=True)
class Table:
    """A file of columns, and how it is read.

    `types` are pyarrow's, of a categorical column that of its values; `faults` says why a column is not one of numbers,
    or None. `batches` gives record batches of columns of numbers and of columns of texts, which are called by their
    numbers. pandas has written the index in the column `index`, if it has.
    """

    path: str
    source: str
    names: list[str]
    types: list[Any]
    faults: list[str | None]
    index: int | None
    has_header: bool
    batches: Callable[[Sequence[int], Sequence[int]], Iterator[Any]]
    column: Callable[[int], Any]  # a whole column as pandas has it
    remarks: tuple[str, ...] = ()  # warnings about the order of the rows, where they have no names


def read_table(
    table: Table,
    index: Column | None = None,
    columns: Sequence[Column] | None = None,
    drop: Sequence[Column] | None = None,
    *,
    numeric_only: bool = False,
    key: str | None = None,
) -> Points:
    """Copy columns of numbers, or the column `key` of lists, to one array; the column `index` has names of the rows."""
    for name, given in (("columns", columns), ("drop", drop)):
        if key is not None and given is not None:
            raise ValueError(f"{name} is about columns of numbers, key a column of lists. Pass one of them.")
    number = table.index if index is None else find_column(index, table.names, "index", table.path)
    key = _only_lists(table, number) if key is None and columns is None else key
    if key is None:
        points = _read_numbers(table, number, _kept_columns(table, number, columns, drop), numeric_only)
    else:
        points = _read_lists(table, number, key)
    return points if number is not None else replace(points, remarks=points.remarks + table.remarks)


def _read_numbers(table: Table, index: int | None, kept: list[int], numeric_only: bool) -> Points:
    path = table.path
    wrong = [column for column in kept if table.faults[column] is not None]
    if wrong and not numeric_only:
        faults = listed(f"column {table.names[column]!r} {table.faults[column]}" for column in wrong)
        raise TypeError(f"X: {path!r} is not a table of numbers: {faults}. {ADVICE}")
    kept = [column for column in kept if column not in wrong]
    if not kept:
        raise ValueError(f"X: {path!r} has no column of numbers beside the index. Pass at least one.")
    left_out, titles = [table.names[column] for column in wrong], [table.names[column] for column in kept]
    names, dtype = list[str](), narrowest_float(table.types[column].to_pandas_dtype() for column in kept)

    def rows() -> Iterator[np.ndarray]:
        for batch in table.batches(kept, _index_alone(index)):
            names.extend(_names_in(batch, index))
            yield _matrix(batch, kept, titles, dtype)

    values = spool(rows(), len(kept), dtype)
    without = f", without {first_names(left_out)}" if left_out else ""
    return Points(
        values,
        _row_names(table, index, names),
        f"{len(kept)} columns of {table.source}{without}",
        feature_names=name_array(titles) if table.has_header else None,
        remarks=left_out_remarks(left_out) + _repeated_names(names),
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


def _only_lists(table: Table, index: int | None) -> str | None:
    """The one column of lists of a table that has no column of numbers."""
    lists = [name for name, kind in zip(table.names, table.types, strict=True) if _is_list(kind)]
    has_numbers = any(fault is None and column != index for column, fault in enumerate(table.faults))
    return lists[0] if len(lists) == 1 and not has_numbers else None


def _is_list(kind: Any) -> bool:
    import pyarrow.types as types

    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _read_lists(table: Table, index: int | None, key: str) -> Points:
    path, number = table.path, table.names.index(key) if key in table.names else None
    if number is None or not _is_list(table.types[number]):
        raise ValueError(
            f"key must be a column of lists of {path!r}, which has {first_names(table.names)}; got {key!r}."
        )
    inner = table.types[number].value_type
    if not is_numeric(inner):
        raise TypeError(f"X: column {key!r} of {path!r} holds lists of {inner}; they must be of numbers.")
    names, widths = list[str](), set[int | None]()

    def rows() -> Iterator[np.ndarray]:
        for batch in table.batches([number], _index_alone(index)):
            lists = batch.column(str(number))
            widths.update(lists.value_lengths().to_pylist())
            if len(widths) != 1 or None in widths:
                raise ValueError(f"X: column {key!r} of {path!r} must hold lists of one length.")
            names.extend(_names_in(batch, index))
            yield lists.flatten().to_numpy(zero_copy_only=False).reshape(len(lists), -1)

    values = spool(rows(), 0, narrowest_float([inner.to_pandas_dtype()]))
    return Points(values, _row_names(table, index, names), f"column {key!r} of {path}")


# --- names of rows --------------------------------------------------------------------------------


def _names_in(batch: Any, index: int | None) -> list[str]:
    """The names of the rows of a batch; texts that are too long to be names are refused."""
    import pyarrow.compute
    import pyarrow.types as types

    if index is None:
        return []
    names = batch.column(str(index))
    texts = names.dictionary if types.is_dictionary(names.type) else names
    if types.is_string(texts.type) or types.is_large_string(texts.type):
        longest = pyarrow.compute.max(pyarrow.compute.binary_length(texts)).as_py() or 0
        if longest > _LONGEST_NAME:
            raise ValueError(f"X: a row has a name of {longest:,} bytes. Choose another column with index=.")
    return [str(name) for name in names.cast(texts.type).to_pylist()]


def texts_of(table: Table, columns: Sequence[int]) -> dict[str, np.ndarray]:
    """Whole columns as names of rows: 007 is one."""
    texts: dict[int, list[str]] = {column: [] for column in columns}
    for batch in table.batches([], columns) if columns else ():
        for column in columns:
            texts[column] += _names_in(batch, column)
    return {table.names[column]: name_array(names) for column, names in texts.items()}


def _index_alone(index: int | None) -> list[int]:
    return [] if index is None else [index]


def _row_names(table: Table, index: int | None, names: list[str]) -> np.ndarray | None:
    """All names as one array, of whole numbers where the table has such."""
    import pyarrow.types as types

    if index is None or not names:
        return None
    found = name_array(names)
    return as_whole_numbers(found) if types.is_integer(table.types[index]) else found


def _repeated_names(names: list[str]) -> tuple[str, ...]:
    """A warning about names that several rows share."""
    n_more = len(names) - len(set(names))
    repeated = [name for name, count in Counter(names).items() if count > 1] if n_more else []
    text = f"{n_more:,} of {len(names):,} row names repeat others: {first_names(repeated, 5)}."
    return (text,) if n_more else ()


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


def _kept_columns(
    table: Table, index: int | None, columns: Sequence[Column] | None, drop: Sequence[Column] | None
) -> list[int]:
    """Numbers of the columns that hold the points: those that are named, or all but the index and those to drop."""
    names, path = table.names, table.path
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
