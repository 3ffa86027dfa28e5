"""Tables in .parquet files: columns of numbers, or one column of equally long lists, read batch by batch."""

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from scalable_gpe.io.optional import import_optional
from scalable_gpe.io.points import BATCH_ROWS, Points, check_disk, first_names, narrowest_float, spool
from scalable_gpe.io.tables import NameColumn, TableFile, TableOptions, find_column, is_numeric, read_table

_ORDER = "the files of {!r} are read by number, 2 before 10, as dask does; pandas reads them in another order."
_LEAST_BYTES = 4  # bytes of a number in the copy


@dataclass(frozen=True)
class ParquetTable(TableFile):
    """A .parquet file, or a folder of such files that counts as one."""

    files: list[str]
    schema: Any

    def type_of(self, column: int) -> Any:
        import pyarrow.types as types

        kind = self.schema.field(column).type
        return kind.value_type if types.is_dictionary(kind) else kind

    def fault(self, column: int) -> str | None:
        kind = self.schema.field(column).type
        return None if is_numeric(kind) else f"has type {kind}"

    def dtype(self, columns: Sequence[int]) -> type[np.floating[Any]]:
        return narrowest_float(self.schema.field(column).type.to_pandas_dtype() for column in columns)

    def batches(self, columns: Sequence[int], index: int | None) -> Iterator[Any]:
        import pyarrow.parquet

        chosen = [*columns, *([] if index is None else [index])]
        names, numbers = [self.names[column] for column in chosen], [str(column) for column in chosen]
        # names stay in the dictionary that the file has: a long one that is used often would fill the memory
        texts = [] if index is None else [self.names[index]]
        for path in self.files:
            with (
                sound_parquet(self.path),
                pyarrow.parquet.ParquetFile(path, pre_buffer=False, read_dictionary=texts) as opened,
            ):
                check_disk(opened.metadata.num_rows * len(columns) * _LEAST_BYTES)
                for batch in opened.iter_batches(batch_size=BATCH_ROWS, columns=names):
                    yield pyarrow.RecordBatch.from_arrays([batch.column(name) for name in names], numbers)

    def read(self, column: int, texts: Sequence[int]) -> Any:
        import pyarrow.parquet

        names = [self.names[one] for one in (column, *texts)]
        with sound_parquet(self.path, "color"):
            table = pyarrow.parquet.ParquetDataset(self.files).read(columns=names)
            return table.select(names).rename_columns([str(one) for one in (column, *texts)])


def open_parquet(path: str) -> ParquetTable:
    """Open a file, or a folder of files."""
    parquet = import_optional("pyarrow.parquet", "tables", "a .parquet file")
    files = parquet_files(path)
    with sound_parquet(path):
        schema = parquet.read_schema(files[0])
    return ParquetTable(path, path, list(schema.names), _pandas_index(schema, path), True, files, schema)


def _pandas_index(schema: Any, path: str) -> int | None:
    """The column in which pandas keeps the index, if pandas wrote the file and the index is not just counted."""
    try:
        columns = (schema.pandas_metadata or {}).get("index_columns", [])
    except (ValueError, AttributeError, RecursionError):
        raise ValueError(f"X: {path!r} has metadata of pandas that is not sound. Write it again.") from None
    named = len(columns) == 1 and isinstance(columns[0], str)
    return find_column(columns[0], schema.names, "index", path) if named else None


def read_parquet(path: str, key: str | None, options: TableOptions) -> Points:
    """Read columns of numbers, or one column of equally long lists."""
    for name, given in (("columns", options.columns), ("drop", options.drop)):
        if key is not None and given is not None:
            raise ValueError(f"{name} is about columns of numbers, key a column of lists. Pass one of them.")
    table = open_parquet(path)
    index = table.index if options.index is None else find_column(options.index, table.names, "index", path)
    key = _only_lists(table, index) if key is None and options.columns is None else key
    points = read_table(table, options) if key is None else _copy_lists(table, key, index)
    in_order = index is not None or table.files == sorted(table.files)
    return points if in_order else replace(points, remarks=(*points.remarks, _ORDER.format(path)))


def parquet_files(path: str) -> list[str]:
    """A file, or those in a folder, part.2 before part.10, as dask has them."""
    if not os.path.isdir(path):
        return [path]
    files = sorted(map(str, Path(path).rglob("*.parquet")), key=_by_numbers)
    if not files:
        raise ValueError(f"X: the folder {path!r} holds no .parquet file. Check the path.")
    return files


def _by_numbers(text: str) -> list[Any]:
    return [int(part) if number % 2 else part for number, part in enumerate(re.split(r"(\d+)", text))]


@contextlib.contextmanager
def sound_parquet(path: str, argument: str = "X") -> Iterator[None]:
    """Name a damaged file; pyarrow's errors do not."""
    import pyarrow

    try:
        yield
    except (pyarrow.ArrowException, OSError) as error:
        text = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"{argument}: {path!r} is not a sound .parquet file: {text}. Write it again.") from None


# --- lists ------------------------------------------------------------------------------------------


def _only_lists(table: ParquetTable, index: int | None) -> str | None:
    """The one column of lists of a table that has no column of numbers."""
    lists = [field.name for field in table.schema if _is_list(field.type)]
    has_numbers = any(column != index and table.fault(column) is None for column in range(len(table.names)))
    return lists[0] if len(lists) == 1 and not has_numbers else None


def _is_list(kind: Any) -> bool:
    import pyarrow.types as types

    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _copy_lists(table: ParquetTable, key: str, index: int | None) -> Points:
    """Copy a column of lists, one point each, to one array."""
    path, schema = table.path, table.schema
    if key not in schema.names or not _is_list(schema.field(key).type):
        raise ValueError(
            f"key must be a column of lists of {path!r}, which has {first_names(schema.names)}; got {key!r}."
        )
    inner = schema.field(key).type.value_type
    if not is_numeric(inner):
        raise TypeError(f"X: column {key!r} of {path!r} holds lists of {inner}; they must be of numbers.")
    number, names, widths = table.names.index(key), NameColumn(index), set[int | None]()

    def rows() -> Iterator[np.ndarray]:
        for batch in table.batches([number], index):
            lists = batch.column(str(number))
            widths.update(lists.value_lengths().to_pylist())
            if len(widths) != 1 or None in widths:
                raise ValueError(f"X: column {key!r} of {path!r} must hold lists of one length.")
            names.add(batch)
            yield lists.flatten().to_numpy(zero_copy_only=False).reshape(len(lists), -1)

    values = spool(rows(), 0, narrowest_float([inner.to_pandas_dtype()]))
    return Points(values, names.array(table), f"column {key!r} of {path}")
