"""One value for each row from a file: labels, and what pictures are coloured by."""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from scalable_gpe.io.anndata_parts import MISSING, got_column, obs_values, plain_values, row_names
from scalable_gpe.io.csv_files import open_csv, usual_separator
from scalable_gpe.io.files import file_kind
from scalable_gpe.io.hdf5 import open_hdf5
from scalable_gpe.io.npy import map_npy
from scalable_gpe.io.parquet_files import open_parquet
from scalable_gpe.io.points import first_names
from scalable_gpe.io.tables import NameColumn, TableFile

_IN_ORDER = "values are taken in the order of the rows"


class _Column(NamedTuple):
    """A column of a file, and the columns that may hold the names of its rows."""

    values: np.ndarray
    names: Mapping[str, np.ndarray]


def read_row_values(
    path: str,
    column: str | None = None,
    names: np.ndarray | None = None,
    index: str | None = None,
    missing: str = MISSING,
) -> tuple[Any, str | None]:
    """Read one value for each row from a .npy, .csv or .parquet file, or from obs of an .h5ad file.

    Where a column of the file (`index`, if given) holds the `names` of rows, the values are a Series with these as its
    index; else they are in the order of the rows. A sentence about this is returned too, where it may surprise.
    """
    if index is not None and names is None:
        raise ValueError("index: the store has no names of rows. Embed with index=, or leave it out.")
    values, texts = _read_table(path, column, index, names is not None)
    values = np.where(values == MISSING, missing, values) if values.dtype.kind == "U" else values
    if names is None:
        return values, None if file_kind(path) == "npy" else f"{_IN_ORDER}, which have no names in the store"
    of_rows = names.astype(str)
    chosen = [name for name in texts if np.array_equal(texts[name], of_rows)][:1]
    chosen = chosen or [name for name in texts if name == index or _are_names(texts[name], of_rows)]
    if not chosen:
        return values, f"{_IN_ORDER}: no column of it holds their names"
    if len(chosen) > 1:
        raise ValueError(f"index must say which column of {path!r} holds the names of the rows: {first_names(chosen)}.")
    (name,) = chosen
    is_same = np.array_equal(texts[name], of_rows)
    if not is_same and name != index and np.array_equal(texts[name], np.arange(len(values)).astype(str)):
        raise ValueError(
            f"column {name!r} of {path!r} counts its rows, and may hold names of rows of the store: pass it as "
            "index= if it does, or leave it out."
        )
    import pandas

    series = pandas.Series(values, pandas.Index(texts[name]))
    return series, None if is_same else f"rows are matched by name, with column {name!r}"


def _are_names(texts: np.ndarray, names: np.ndarray) -> bool:
    """Whether a column holds names of rows: most of either are among the others, and most do not repeat."""
    most = 2 * np.count_nonzero(np.isin(names, texts)) > len(names)
    most |= 2 * np.count_nonzero(np.isin(texts, names)) > len(texts)
    return bool(most) and 2 * len(np.unique(texts)) >= len(texts)


def _read_table(path: str, column: str | None, index: str | None, named: bool) -> _Column:
    """The values of a column, and the names of the rows if they are `named`."""
    if not os.path.exists(path):
        raise FileNotFoundError(f"color: there is no file {path!r}. Check the path.")
    kind = file_kind(path)
    if kind == "npy":
        if index is not None:
            raise ValueError(f"index: {path!r} is a .npy file, which has no names of rows. Leave it out.")
        return _Column(_numpy_column(map_npy(path), column, path), {})
    if kind == "csv":
        return _table_column(open_csv(path, usual_separator(path), header=True), column, index, named)
    if kind == "parquet":
        return _table_column(open_parquet(path), column, index, named)
    if kind == "h5ad":
        return _obs_column(column, path)
    raise ValueError(f"color must be a .npy, .csv, .parquet or .h5ad file; got {path!r}.")


def _numpy_column(array: np.ndarray, column: str | None, path: str) -> np.ndarray:
    if array.ndim == 1:
        return np.asarray(array)
    if array.ndim != 2 or column is None or not column.isdigit() or int(column) >= array.shape[1]:
        raise ValueError(f"color: {path!r} has shape {array.shape}; column= must be the number of a column, from 0.")
    return np.asarray(array[:, int(column)])


def _table_column(table: TableFile, column: str | None, index: str | None, named: bool) -> _Column:
    """A column of a table, and those that may hold the names of its rows as texts, as they are read with points."""
    value = _number(column, [name.strip() for name in table.names], table.path)
    others = _name_columns(table, value, index) if named else []
    read, names = table.read(value, others), {}
    for other in others:
        texts = NameColumn(other)
        for batch in read.to_batches():
            texts.add(batch)
        if (found := texts.texts()) is not None:
            names[table.names[other]] = found
    return _Column(plain_values(read.column(str(value)).to_pandas()), names)


def _name_columns(table: TableFile, value: int, index: str | None) -> list[int]:
    """The columns that may hold names: the index if it is given, else those of texts and whole numbers."""
    import pyarrow.types as types

    if index is not None:
        if table.names.count(index) != 1:
            raise ValueError(f"index must be one column of {table.path!r}: {first_names(table.names)}.")
        chosen = [table.names.index(index)]
    else:
        counts = Counter(table.names)
        of_names = (types.is_integer, types.is_string, types.is_large_string)
        kinds = [(column, table.type_of(column)) for column, name in enumerate(table.names) if counts[name] == 1]
        chosen = [column for column, kind in kinds if any(is_one(kind) for is_one in of_names)]
    return [column for column in chosen if column != value]


def _number(column: str | None, names: Sequence[str], path: str) -> int:
    """The number of the column with a name, or of the only one."""
    found = [number for number, name in enumerate(names) if name == column or (column is None and len(names) == 1)]
    if len(found) != 1:
        raise ValueError(
            f"column= must name one of {first_names(names)} of {path!r}, and only one; {got_column(column)}."
        )
    return found[0]


def _obs_column(column: str | None, path: str) -> _Column:
    """A column of obs of an .h5ad file."""
    with open_hdf5(path) as file:
        names = row_names(file, path)
        return _Column(obs_values(file, column, path), {} if names is None else {"obs_names": names})
