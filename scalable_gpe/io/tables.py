"""Tables (.csv, .tsv, .parquet): which columns are read, and their batches as one array and the names of its rows."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from scalable_gpe.errors import Message
from scalable_gpe.io.points import Points, are_whole_numbers, first_names, name_array, spool

_LONGEST_NAME = 2**16

Column = str | int  # by its name, or by its number from 0


@dataclass(frozen=True)
class TableOptions:
    """What a caller says about a table; None is decided from the file.

    Attributes
    ----------
    index : str, int or None
        The column that holds the names of the rows.
    columns : sequence of str or int, or None
        The columns that hold the points, in this order.
    drop : sequence of str or int, or None
        Columns that do not: the points are in all others but the index.
    header : bool or None
        Whether the first line of a text names its columns.
    sep : str or None
        The character between the cells of a text.
    numeric_only : bool
        Whether other columns than those of numbers and bools are left out, instead of an error.
    """

    index: Column | None = None
    columns: Sequence[Column] | None = None
    drop: Sequence[Column] | None = None
    header: bool | None = None
    sep: str | None = None
    numeric_only: bool = False


# --- copies ---------------------------------------------------------------------------------------


def copy_columns(
    batches: Iterable[Any], kept: list[str], index: str | None, dtype: npt.DTypeLike, path: str, note: str = ""
) -> Points:
    """Copy columns of numbers to one array; another column holds the names of the rows."""
    if not kept:
        raise ValueError(Message(f"`X`: {path!r} has no column of numbers beside the index. Pass at least one."))
    names = NameColumn(index)

    def rows() -> Iterator[np.ndarray]:
        for batch in batches:
            names.add(batch)
            yield _matrix(batch, kept, dtype)

    values = spool(rows(), len(kept), dtype)
    source = f"{len(kept)} columns of {path}{note}"
    return Points(values, names.array(), source, remarks=names.remarks(), integer_names=names.are_integers)


def _matrix(batch: Any, kept: Sequence[str], dtype: npt.DTypeLike) -> np.ndarray:
    import pyarrow

    out = np.empty((batch.num_rows, len(kept)), dtype)
    for number, name in enumerate(kept):
        try:
            out[:, number] = batch.column(name).cast("float64").to_numpy(zero_copy_only=False)  # missing: NaN
        except pyarrow.ArrowInvalid as error:  # of whole numbers above 2**53
            raise ValueError(Message(f"`X`: column {name!r}: {error}. Subtract its smallest value first.")) from None
    return out


class NameColumn:
    """Names of rows, collected batch by batch from the index column, if there is one."""

    def __init__(self, index: str | None) -> None:
        self._index = index
        self._names: list[str] = []
        self._type: Any = None

    def add(self, batch: Any) -> None:
        if self._index is not None:
            column = _texts(batch.column(self._index))
            self._names += [str(name) for name in column.to_pylist()]
            self._type = column.type

    def array(self) -> np.ndarray | None:
        return name_array(self._names) if self._names else None

    @property
    def are_integers(self) -> bool:
        """Whether the column holds whole numbers."""
        import pyarrow.types

        return self._type is not None and pyarrow.types.is_integer(self._type) and are_whole_numbers(self.array())

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
            raise ValueError(
                Message(f"`X`: a row has a name of {longest:,} bytes. Choose another column with `index=`.")
            )
    return names.cast(texts.type)


# --- columns --------------------------------------------------------------------------------------


def find_column(column: Column | None, names: Sequence[str], argument: str, path: str) -> int | None:
    """The number of a column; a text of digits that names no column is a number."""
    if column is None:
        return None
    if isinstance(column, bool) or not isinstance(column, str | int | np.integer):
        raise TypeError(Message(f"`{argument}`: a column is a name or a number from 0; got {column!r}."))
    found = [number for number, name in enumerate(names) if name == column]
    if not found and (not isinstance(column, str) or column.isdecimal()):
        found = [int(column)] if 0 <= int(column) < len(names) else []
    if not found:
        raise ValueError(
            Message(
                f"`{argument}` must be one of the columns of {path!r}, by name or by number from 0: "
                f"{first_names(names)}; got {column!r}."
            )
        )
    if len(found) > 1:
        raise ValueError(Message(f"`{argument}`: {path!r} has two columns named {column!r}. Choose by number, from 0."))
    return found[0]


def kept_columns(options: TableOptions, names: Sequence[str], index: int | None, path: str) -> list[int]:
    """Numbers of the columns that hold the points: those that are named, or all but the index and those to drop."""
    columns, drop = options.columns, options.drop
    if columns is None:
        _check_distinct(names, path)
        dropped = {index, *([] if drop is None else _find_all(drop, names, "drop", path))}
        kept = [number for number in range(len(names)) if number not in dropped]
        if not kept:
            raise ValueError(Message(f"`drop` and `index` leave no column of {path!r}."))
        return kept
    if drop is not None:
        raise ValueError(Message("`columns` names the columns to keep, `drop` those to leave out. Pass one of them."))
    kept = _find_all(columns, names, "columns", path)
    if not kept or len(set(kept)) < len(kept) or index in kept:
        raise ValueError(
            Message(f"`columns` must name at least one column, each once, and not the index; got {list(columns)!r}.")
        )
    return kept


def _find_all(columns: Sequence[Column], names: Sequence[str], argument: str, path: str) -> list[int]:
    """Numbers of some columns."""
    if isinstance(columns, str) or not isinstance(columns, Iterable):
        raise TypeError(Message(f"`{argument}` must be a list of names or numbers; got {columns!r}."))
    return [number for column in columns if (number := find_column(column, names, argument, path)) is not None]


def _check_distinct(names: Sequence[str], path: str) -> None:
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise ValueError(
            Message(
                f"`X`: {path!r} has two columns of one name: {first_names(repeated, 5)}. Rename one, or choose by "
                "number with `read_points(columns=)`."
            )
        )


def is_numeric(kind: Any) -> bool:
    """Whether a type of pyarrow is one of real numbers."""
    import pyarrow.types as types

    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


def way_out(columns: Sequence[str], index: str | None) -> str:
    """What to do about columns that are not numeric."""
    others = "out with `read_points(drop=)`, or all such columns with `numeric_only=True`"
    them = "them" if len(columns) > 1 else "it"
    if index is not None:
        return f"Leave {them} {others}: {index!r} holds the names of the rows; points must be numbers."
    if len(columns) > 1:
        return f"If one holds the names of the rows, pass it as `read_points(index=)`; leave the others {others}."
    return f"If it holds the names of the rows, pass `read_points(index={columns[0]!r})`; else leave it {others}."


def without(names: Sequence[str]) -> str:
    """Say which columns were left out."""
    return f", without {first_names(names)}" if names else ""
