"""Tables (.csv, .tsv, .parquet): columns of numbers as one array, and a column of names, batch by batch."""

import contextlib
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from scalable_gpe.errors import Message
from scalable_gpe.io.csv_format import CsvFormat, csv_format, is_number
from scalable_gpe.io.optional import import_optional
from scalable_gpe.io.points import (
    BATCH_ROWS,
    Points,
    check_disk,
    first_names,
    listed,
    name_array,
    narrowest_float,
    spool,
)

_CSV_BLOCK = 2**23  # bytes of a text that are parsed at once

_LEAST_BYTES = 4  # bytes of a number in the copy
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
    delimiter : str or None
        The character between the cells of a text.
    """

    index: Column | None = None
    columns: Sequence[Column] | None = None
    drop: Sequence[Column] | None = None
    header: bool | None = None
    delimiter: str | None = None

    @property
    def named(self) -> list[Column]:
        """All columns that are named."""
        return [*([] if self.index is None else [self.index]), *(self.columns or ()), *(self.drop or ())]


def read_csv(path: str, options: TableOptions) -> Points:
    """Read numbers as float64."""
    import_optional("pyarrow.csv", "tables", "a .csv file")
    known = csv_format(path, options.delimiter, options.header, options.named)
    index = _find(options.index, known.names, "index", path)
    if index is None and known.has_header and known.names[0] == "":  # pandas writes an unnamed index so
        index = 0
    kept = _kept(options, known.names, index, path)
    text = _Text(path, known, kept, index)
    below = " below a header" if known.has_header else ""
    points = _copy_columns(text.batches(), text.columns, text.index, np.float64, path, below)
    features = name_array([known.names[column] for column in kept]) if known.has_header else None
    return replace(points, feature_names=features)


def read_parquet(path: str, key: str | None, options: TableOptions) -> Points:
    """Read columns of numbers, or one column of equally long lists; a folder of .parquet files counts as one."""
    parquet = import_optional("pyarrow.parquet", "tables", "a .parquet file")
    files = sorted(str(file) for file in Path(path).rglob("*.parquet")) if os.path.isdir(path) else [path]
    if not files:
        raise ValueError(Message(f"`X`: the folder {path!r} holds no .parquet file. Check the path."))
    with sound_parquet(path):
        schema = parquet.read_schema(files[0])
    number = _find(_pandas_index(schema, path) if options.index is None else options.index, schema.names, "index", path)
    index = None if number is None else schema.names[number]
    for name, given in (("columns", options.columns), ("drop", options.drop)):
        if key is not None and given is not None:
            raise ValueError(
                Message(f"`{name}` is about columns of numbers, `key` a column of lists. Pass one of them.")
            )
    key = _only_lists(schema, index) if key is None and options.columns is None else key
    if key is not None:
        return _copy_lists(files, schema, key, index, path)
    kept = [schema.names[column] for column in _kept(options, schema.names, number, path)]
    _check_numeric([schema.field(name) for name in kept], index, path)
    dtype = narrowest_float(schema.field(name).type.to_pandas_dtype() for name in kept)
    points = _copy_columns(_parquet_batches(files, kept, index, path), kept, index, dtype, path)
    return replace(points, feature_names=name_array(kept))


def is_numeric(kind: Any) -> bool:
    """Whether a type of pyarrow is one of real numbers."""
    import pyarrow.types as types

    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


@contextlib.contextmanager
def sound_parquet(path: str, argument: str = "X") -> Iterator[None]:
    """Name a damaged file; pyarrow's errors do not."""
    import pyarrow

    try:
        yield
    except (pyarrow.ArrowException, OSError) as error:
        text = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(
            Message(f"`{argument}`: {path!r} is not a sound .parquet file: {text}. Write it again.")
        ) from None


# --- text -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Text:
    """Some columns of a text, and the column of its row names, by their numbers."""

    path: str
    known: CsvFormat
    kept: list[int]
    names: int | None

    @property
    def columns(self) -> list[str]:
        """The columns of numbers as the parser calls them: by number, because two may have one name."""
        return [str(column) for column in self.kept]

    @property
    def index(self) -> str | None:
        return None if self.names is None else str(self.names)

    def batches(self) -> Iterator[Any]:
        """Record batches; types are given, because types guessed from the first batch can be wrong later."""
        import pyarrow

        try:
            yield from self._parsed(pyarrow.float64())
        except pyarrow.ArrowInvalid as error:
            raise TypeError(Message(f"`X`: {self.path!r} is not a table of numbers: {self._explain(error)}")) from None
        except OSError as error:  # of a damaged .gz
            raise ValueError(Message(f"`X`: {self.path!r} cannot be read: {error}. Write it again.")) from None

    def _parsed(self, kind: Any) -> Iterator[Any]:
        """Record batches with the points in columns of a type."""
        import pyarrow
        import pyarrow.csv

        types = dict.fromkeys(self.columns, kind)
        if self.index is not None:
            types[self.index] = pyarrow.string()
        every = [str(column) for column in range(len(self.known.names))]
        with pyarrow.input_stream(self.path, compression="detect") as stream:
            yield from pyarrow.csv.open_csv(
                stream,
                read_options=pyarrow.csv.ReadOptions(
                    column_names=every, skip_rows=self.known.n_skipped, block_size=_CSV_BLOCK
                ),
                parse_options=pyarrow.csv.ParseOptions(delimiter=self.known.delimiter, newlines_in_values=True),
                convert_options=pyarrow.csv.ConvertOptions(
                    column_types=types, include_columns=list(types), strings_can_be_null=kind == pyarrow.string()
                ),
            )

    def _explain(self, error: Exception) -> str:
        """What pyarrow says, with the names of all columns of text and a way out."""
        text = str(error).splitlines()[0]
        found = re.search(r"column #(\d+): .*?invalid value '(.*?)'", text)
        if not found:
            return text
        wrong = dict(sorted({**self._first_texts(), int(found[1]): found[2]}.items()))
        names = [self.known.names[column] for column in wrong]
        index = None if self.names is None else self.known.names[self.names]
        holds = (f"column {name!r} holds {cell!r}" for name, cell in zip(names, wrong.values(), strict=True))
        return f"{listed(holds)}. {_way_out(names, index)}"

    def _first_texts(self) -> dict[int, str]:
        """The columns with a cell among the first rows that is not a number, and the first such cell."""
        import pyarrow

        try:
            first = next(self._parsed(pyarrow.string()))
        except (pyarrow.ArrowException, OSError):
            return {}
        cells = {column: first.column(str(column)).to_pylist() for column in self.kept}
        texts = {
            column: [one for one in rows if one is not None and not is_number(one)] for column, rows in cells.items()
        }
        return {column: rows[0] for column, rows in texts.items() if rows}


# --- parquet --------------------------------------------------------------------------------------


def _pandas_index(schema: Any, path: str) -> str | None:
    """The column in which pandas keeps the index, if pandas wrote the file and the index is not just counted."""
    try:
        columns = (schema.pandas_metadata or {}).get("index_columns", [])
    except (ValueError, AttributeError, RecursionError):
        raise ValueError(Message(f"`X`: {path!r} has metadata of pandas that is not sound. Write it again.")) from None
    return columns[0] if len(columns) == 1 and isinstance(columns[0], str) else None


def _only_lists(schema: Any, index: str | None) -> str | None:
    """The one column of lists of a table that has no column of numbers."""
    lists = [field.name for field in schema if _is_list(field.type)]
    has_numbers = any(field.name != index and is_numeric(field.type) for field in schema)
    return lists[0] if len(lists) == 1 and not has_numbers else None


def _parquet_batches(files: list[str], kept: list[str], index: str | None, path: str) -> Iterator[Any]:
    import pyarrow.parquet

    columns = [*kept, *([] if index is None else [index])]
    # names stay in the dictionary that the file has: a long one that is used often would fill the memory
    names = [] if index is None else [index]
    for file in files:
        with (
            sound_parquet(path),
            pyarrow.parquet.ParquetFile(file, pre_buffer=False, read_dictionary=names) as opened,
        ):
            check_disk(opened.metadata.num_rows * len(kept) * _LEAST_BYTES)
            yield from opened.iter_batches(batch_size=BATCH_ROWS, columns=columns)


def _is_list(kind: Any) -> bool:
    import pyarrow.types as types

    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _check_numeric(fields: Iterable[Any], index: str | None, path: str) -> None:
    wrong = {field.name: field.type for field in fields if not is_numeric(field.type)}
    if wrong:
        types = listed(f"column {name!r} has type {kind}" for name, kind in wrong.items())
        raise TypeError(Message(f"`X`: {path!r} is not a table of numbers: {types}. {_way_out(list(wrong), index)}"))


# --- copies ---------------------------------------------------------------------------------------


def _copy_columns(
    batches: Iterable[Any], kept: list[str], index: str | None, dtype: npt.DTypeLike, path: str, below: str = ""
) -> Points:
    """Copy columns of numbers to one array; another column holds the names of the rows."""
    if not kept:
        raise ValueError(Message(f"`X`: {path!r} has no column of numbers beside the index. Pass at least one."))
    names = _Names(index)

    def rows() -> Iterator[np.ndarray]:
        for batch in batches:
            names.add(batch)
            yield _matrix(batch, kept, dtype)

    values = spool(rows(), len(kept), dtype)
    return Points(values, names.array(), f"{len(kept)} columns of {path}{below}")


def _matrix(batch: Any, kept: Sequence[str], dtype: npt.DTypeLike) -> np.ndarray:
    import pyarrow

    out = np.empty((batch.num_rows, len(kept)), dtype)
    for number, name in enumerate(kept):
        try:
            out[:, number] = batch.column(name).cast("float64").to_numpy(zero_copy_only=False)  # missing: NaN
        except pyarrow.ArrowInvalid as error:  # of whole numbers above 2**53
            raise ValueError(Message(f"`X`: column {name!r}: {error}. Subtract its smallest value first.")) from None
    return out


def _copy_lists(files: list[str], schema: Any, key: str, index: str | None, path: str) -> Points:
    """Copy a column of lists, one point each, to one array."""
    if key not in schema.names or not _is_list(schema.field(key).type):
        raise ValueError(
            Message(f"`key` must be a column of lists of {path!r}, which has {first_names(schema.names)}; got {key!r}.")
        )
    inner = schema.field(key).type.value_type
    if not is_numeric(inner):
        raise TypeError(Message(f"`X`: column {key!r} of {path!r} holds lists of {inner}; they must be of numbers."))
    dtype = narrowest_float([inner.to_pandas_dtype()])
    batches = _parquet_batches(files, [key], index, path)
    first = next(batches, None)
    if first is None or not len(first.column(key)) or first.column(key)[0].as_py() is None:
        raise ValueError(Message(f"`X`: column {key!r} of {path!r} must begin with a list; it is empty."))
    width = len(first.column(key)[0])
    names = _Names(index)

    def rows() -> Iterator[np.ndarray]:
        for batch in itertools.chain([first], batches):
            lists = batch.column(key)
            if set(lists.value_lengths().to_pylist()) != {width}:
                raise ValueError(
                    Message(f"`X`: column {key!r} of {path!r} must hold lists of one length; it has others.")
                )
            names.add(batch)
            yield lists.flatten().to_numpy(zero_copy_only=False).reshape(-1, width)

    values = spool(rows(), width, dtype)
    return Points(values, names.array(), f"column {key!r} of {path}")


class _Names:
    """Names of rows, collected batch by batch from the index column, if there is one."""

    def __init__(self, index: str | None) -> None:
        self._index = index
        self._names: list[str] = []

    def add(self, batch: Any) -> None:
        if self._index is not None:
            self._names += [str(name) for name in _texts(batch.column(self._index)).to_pylist()]

    def array(self) -> np.ndarray | None:
        return name_array(self._names) if self._names else None


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


def _find(column: Column | None, names: Sequence[str], argument: str, path: str) -> int | None:
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


def _kept(options: TableOptions, names: Sequence[str], index: int | None, path: str) -> list[int]:
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
    return [number for column in columns if (number := _find(column, names, argument, path)) is not None]


def _check_distinct(names: Sequence[str], path: str) -> None:
    if len(set(names)) < len(names):
        raise ValueError(
            Message(f"`X`: {path!r} has two columns of one name. Rename one, or choose by number with `columns=`.")
        )


def _way_out(columns: Sequence[str], index: str | None) -> str:
    """What to do about columns that are not numeric."""
    how, they = "(in Python, of gpe.read_points)", "them" if len(columns) > 1 else "it"
    if index is not None:
        return f"Leave {they} out with `drop` {how}: {index!r} holds the names of the rows; points must be numbers."
    if len(columns) > 1:
        return f"If one holds the names of the rows, pass it as `index`; leave the others out with `drop` {how}."
    return f"If it holds the names of the rows, pass `index={columns[0]!r}`; else leave it out with `drop` {how}."
