"""Tables in .parquet files: columns of numbers, or one column of equally long lists, read batch by batch."""

import contextlib
import itertools
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from scalable_gpe.errors import Message
from scalable_gpe.io.left_out import SAMPLE_ROWS, left_out_remarks
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
from scalable_gpe.io.tables import (
    NameColumn,
    TableOptions,
    copy_columns,
    find_column,
    is_numeric,
    kept_columns,
    way_out,
    without,
)

_ORDER = "the files of {!r} are read by number, 2 before 10, as dask does; pandas reads them in another order."
_LEAST_BYTES = 4  # bytes of a number in the copy


def read_parquet(path: str, key: str | None, options: TableOptions) -> Points:
    """Read columns of numbers, or one column of equally long lists; a folder of .parquet files counts as one."""
    files, schema = _files_and_schema(path)
    named = _pandas_index(schema, path) if options.index is None else options.index
    number = find_column(named, schema.names, "index", path)
    index = None if number is None else schema.names[number]
    for name, given in (("columns", options.columns), ("drop", options.drop)):
        if key is not None and given is not None:
            raise ValueError(
                Message(f"`{name}` is about columns of numbers, `key` a column of lists. Pass one of them.")
            )
    key = _only_lists(schema, index) if key is None and options.columns is None else key
    order = () if index is not None or files == sorted(files) else (_ORDER.format(path),)
    if key is not None:
        return replace(_copy_lists(files, schema, key, index, path), remarks=order)
    kept = [schema.names[column] for column in kept_columns(options, schema.names, number, path)]
    others = [name for name in kept if not is_numeric(schema.field(name).type)] if options.numeric_only else []
    kept = [name for name in kept if name not in others]
    _check_numeric([schema.field(name) for name in kept], index, path)
    dtype = narrowest_float(schema.field(name).type.to_pandas_dtype() for name in kept)
    points = copy_columns(_parquet_batches(files, kept, index, path), kept, index, dtype, path, without(others))
    remarks = left_out_remarks(_first_cells(files, schema, others, path)) + points.remarks
    return replace(points, feature_names=name_array(kept), remarks=remarks + order)


def parquet_columns(path: str) -> list[str]:
    """The names of the columns of a file."""
    return list(_files_and_schema(path)[1].names)


def _files_and_schema(path: str) -> tuple[list[str], Any]:
    """The files that a path stands for, and the schema of the first one."""
    parquet = import_optional("pyarrow.parquet", "tables", "a .parquet file")
    files = parquet_files(path)
    with sound_parquet(path):
        return files, parquet.read_schema(files[0])


def parquet_files(path: str) -> list[str]:
    """A file, or those in a folder, part.2 before part.10, as dask has them."""
    if not os.path.isdir(path):
        return [path]
    files = sorted(map(str, Path(path).rglob("*.parquet")), key=_by_numbers)
    if not files:
        raise ValueError(Message(f"`X`: the folder {path!r} holds no .parquet file. Check the path."))
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
        raise ValueError(
            Message(f"`{argument}`: {path!r} is not a sound .parquet file: {text}. Write it again.")
        ) from None


# --- columns and lists --------------------------------------------------------------------------------------


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


def _first_cells(files: list[str], schema: Any, columns: list[str], path: str) -> dict[str, list[Any]]:
    """The first cells of columns of text and decimals; none of others."""
    import pyarrow.types as types

    def may_be_number(kind: Any) -> bool:
        kind = kind.value_type if types.is_dictionary(kind) else kind
        return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_decimal(kind))

    texts = [name for name in columns if may_be_number(schema.field(name).type)]
    batch = next(_parquet_batches(files, texts, None, path), None) if texts else None
    cells = {} if batch is None else {name: batch.column(name)[:SAMPLE_ROWS].to_pylist() for name in texts}
    return {name: cells.get(name, []) for name in columns}


def _is_list(kind: Any) -> bool:
    import pyarrow.types as types

    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _check_numeric(fields: Iterable[Any], index: str | None, path: str) -> None:
    wrong = {field.name: field.type for field in fields if not is_numeric(field.type)}
    if wrong:
        types = listed(f"column {name!r} has type {kind}" for name, kind in wrong.items())
        raise TypeError(Message(f"`X`: {path!r} is not a table of numbers: {types}. {way_out(list(wrong), index)}"))


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
    names = NameColumn(index)

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
    return Points(values, names.array(), f"column {key!r} of {path}", integer_names=names.are_integers)
