"""Tables (.csv, .tsv, .parquet): columns of numbers as one array, and a column of names, batch by batch."""

import csv
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from scalable_gpe.errors import Message
from scalable_gpe.io.optional import import_optional
from scalable_gpe.io.points import BATCH_ROWS, Points, first_names, narrowest_float, spool

_FIRST_LINE = 2**22  # bytes in which the first line of a text must end
_CSV_BLOCK = 2**23  # bytes of a text that are parsed at once


def read_csv(path: str, index: str | None) -> Points:
    """Read numbers as float64; a first line that is not numbers names the columns."""
    import_optional("pyarrow.csv", "tables", "a .csv file")
    first, delimiter = _first_line(path)
    has_header = not all(_is_number(cell) for cell in first)
    columns = first if has_header else [f"column {number}" for number in range(len(first))]
    if index is None and columns[0] == "":  # pandas writes an unnamed index so
        index = columns[0]
    _check_index(index, columns, path)
    if len(set(columns)) < len(columns):
        raise ValueError(Message(f"`X`: {path!r} has two columns of one name. Rename one of them."))
    batches = _csv_batches(path, columns, index, delimiter, n_skipped=int(has_header))
    return _copy_columns(batches, _others(columns, index), index, np.float64, path)


def read_parquet(path: str, key: str | None, index: str | None) -> Points:
    """Read columns of numbers, or one column of equally long lists; a folder of .parquet files counts as one."""
    parquet = import_optional("pyarrow.parquet", "tables", "a .parquet file")
    files = sorted(str(file) for file in Path(path).rglob("*.parquet")) if os.path.isdir(path) else [path]
    if not files:
        raise ValueError(Message(f"`X`: the folder {path!r} holds no .parquet file. Check the path."))
    schema = parquet.read_schema(files[0])
    index = _pandas_index(schema) if index is None else index
    _check_index(index, schema.names, path)
    key = _only_lists(schema, index) if key is None else key
    if key is not None:
        return _copy_lists(files, schema, key, index, path)
    kept = _others(schema.names, index)
    for name in kept:
        _check_numeric(schema.field(name), index, path)
    dtype = narrowest_float(schema.field(name).type.to_pandas_dtype() for name in kept)
    return _copy_columns(_parquet_batches(files, kept, index), kept, index, dtype, path)


def is_numeric(kind: Any) -> bool:
    """Whether a type of pyarrow is one of real numbers."""
    import pyarrow.types as types

    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


# --- text -----------------------------------------------------------------------------------------


def _first_line(path: str) -> tuple[list[str], str]:
    """Cells of the first line, and their delimiter."""
    import pyarrow

    with pyarrow.input_stream(path, compression="detect") as stream:
        line = stream.read(_FIRST_LINE).decode("utf-8-sig", errors="replace").partition("\n")[0].rstrip("\r")
    if not line.strip():
        raise ValueError(Message(f"`X`: {path!r} is empty. Pass a table with one point per row."))
    delimiter = max(",\t; ", key=line.count)
    return next(csv.reader([line], delimiter=delimiter)), delimiter


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _csv_batches(path: str, columns: list[str], index: str | None, delimiter: str, n_skipped: int) -> Iterator[Any]:
    """Record batches of a text; types are given, because types guessed from the first batch can be wrong later."""
    import pyarrow
    import pyarrow.csv

    types = dict.fromkeys(columns, pyarrow.float64()) | ({} if index is None else {index: pyarrow.string()})
    with pyarrow.input_stream(path, compression="detect") as stream:
        try:
            yield from pyarrow.csv.open_csv(
                stream,
                read_options=pyarrow.csv.ReadOptions(column_names=columns, skip_rows=n_skipped, block_size=_CSV_BLOCK),
                parse_options=pyarrow.csv.ParseOptions(delimiter=delimiter),
                convert_options=pyarrow.csv.ConvertOptions(column_types=types),
            )
        except pyarrow.ArrowInvalid as error:
            raise TypeError(
                Message(f"`X`: {path!r} is not a table of numbers: {_explain(error, columns, index)}")
            ) from None


def _explain(error: Exception, columns: list[str], index: str | None) -> str:
    """What pyarrow says, with the name of the column and a way out."""
    text = str(error).splitlines()[0]
    found = re.search(r"column #(\d+): .*?invalid value '(.*?)'", text)
    if not found:
        return text
    name = columns[int(found[1])]
    return f"column {name!r} holds {found[2]!r}. {_way_out(name, index)}"


# --- parquet --------------------------------------------------------------------------------------


def _pandas_index(schema: Any) -> str | None:
    """The column in which pandas keeps the index, if pandas wrote the file and the index is not just counted."""
    columns = (schema.pandas_metadata or {}).get("index_columns", [])
    return columns[0] if len(columns) == 1 and isinstance(columns[0], str) else None


def _only_lists(schema: Any, index: str | None) -> str | None:
    """The one column of lists of a table that has no column of numbers."""
    lists = [field.name for field in schema if _is_list(field.type)]
    has_numbers = any(field.name != index and is_numeric(field.type) for field in schema)
    return lists[0] if len(lists) == 1 and not has_numbers else None


def _parquet_batches(files: list[str], kept: list[str], index: str | None) -> Iterator[Any]:
    import pyarrow.parquet

    columns = [*kept, *([] if index is None else [index])]
    for file in files:
        with pyarrow.parquet.ParquetFile(file, pre_buffer=False) as opened:
            yield from opened.iter_batches(batch_size=BATCH_ROWS, columns=columns)


def _is_list(kind: Any) -> bool:
    import pyarrow.types as types

    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _check_numeric(field: Any, index: str | None, path: str) -> None:
    if not is_numeric(field.type):
        raise TypeError(
            Message(
                f"`X`: column {field.name!r} of {path!r} has type {field.type}; it must be numeric. "
                f"{_way_out(field.name, index)}"
            )
        )


# --- copies ---------------------------------------------------------------------------------------


def _copy_columns(
    batches: Iterable[Any], kept: list[str], index: str | None, dtype: npt.DTypeLike, path: str
) -> Points:
    """Copy columns of numbers to one array; another column holds the names of the rows."""
    if not kept:
        raise ValueError(Message(f"`X`: {path!r} has no column of numbers beside the index. Pass at least one."))
    names = _Names(index)

    def rows() -> Iterator[np.ndarray]:
        for batch in batches:
            names.add(batch)
            yield _matrix([batch.column(name) for name in kept], batch.num_rows, dtype)

    values = spool(rows(), len(kept), dtype)
    return Points(values, names.array(), f"{len(kept)} columns of {path}")


def _matrix(columns: Sequence[Any], n_rows: int, dtype: npt.DTypeLike) -> np.ndarray:
    out = np.empty((n_rows, len(columns)), dtype)
    for number, column in enumerate(columns):
        out[:, number] = column.cast("float64").to_numpy(zero_copy_only=False)  # a missing value becomes NaN
    return out


def _copy_lists(files: list[str], schema: Any, key: str, index: str | None, path: str) -> Points:
    """Copy a column of lists, one point each, to one array."""
    if key not in schema.names or not _is_list(schema.field(key).type):
        raise ValueError(
            Message(f"`key` must be a column of lists of {path!r}, which has {first_names(schema.names)}; got {key!r}.")
        )
    dtype = narrowest_float([schema.field(key).type.value_type.to_pandas_dtype()])
    batches = _parquet_batches(files, [key], index)
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
            self._names += [str(name) for name in batch.column(self._index).to_pylist()]

    def array(self) -> np.ndarray | None:
        return np.array(self._names) if self._names else None


# --- columns --------------------------------------------------------------------------------------


def _others(columns: Iterable[str], index: str | None) -> list[str]:
    return [name for name in columns if name != index]


def _check_index(index: str | None, columns: list[str], path: str) -> None:
    if index is not None and index not in columns:
        raise ValueError(
            Message(f"`index` must be one of the columns of {path!r}: {first_names(columns)}; got {index!r}.")
        )


def _way_out(column: str, index: str | None) -> str:
    """What to do about a column that is not numeric."""
    if index is None:
        return f"If it holds the names of the rows, say so with index={column!r}; else drop it from the file."
    return f"Drop it from the file: {index!r} holds the names of the rows, and all other columns must be numbers."
