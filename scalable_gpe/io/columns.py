"""One value for each row from a file: labels, and what pictures are coloured by."""

import os
from typing import Any

import numpy as np

from scalable_gpe.io.containers import MISSING, got_column, obs_values, open_hdf5, plain_values, row_names
from scalable_gpe.io.files import file_kind, map_npy
from scalable_gpe.io.points import first_names
from scalable_gpe.io.table_files import open_csv, open_parquet
from scalable_gpe.io.tables import Table, texts_of

_IN_ORDER = "values are taken in the order of the rows"


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
    values, texts = _read(path, column, index, names)
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


def _read(
    path: str, column: str | None, index: str | None, names: np.ndarray | None
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The values of a column, and the columns that may hold the names of the rows, as texts."""
    if not os.path.exists(path):
        raise FileNotFoundError(f"color: there is no file {path!r}. Check the path.")
    kind = file_kind(path)
    if kind == "npy":
        if index is not None:
            raise ValueError(f"index: {path!r} is a .npy file, which has no names of rows. Leave it out.")
        return _numpy_column(map_npy(path), column, path), {}
    if kind == "h5ad":
        with open_hdf5(path) as file:
            obs_names = row_names(file)
            return obs_values(file, column, path), {} if obs_names is None else {"obs_names": obs_names}
    if kind not in ("csv", "parquet"):
        raise ValueError(f"color must be a .npy, .csv, .parquet or .h5ad file; got {path!r}.")
    table = open_csv(path, header=True) if kind == "csv" else open_parquet(path)
    number = _number(column, table)
    others = [] if names is None else [one for one in _name_columns(table, index) if one != number]
    return plain_values(table.column(number)), texts_of(table, others)


def _numpy_column(array: np.ndarray, column: str | None, path: str) -> np.ndarray:
    if array.ndim == 1:
        return np.asarray(array)
    if array.ndim != 2 or column is None or not column.isdigit() or int(column) >= array.shape[1]:
        raise ValueError(f"color: {path!r} has shape {array.shape}; column= must be the number of a column, from 0.")
    return np.asarray(array[:, int(column)])


def _number(column: str | None, table: Table) -> int:
    names = table.names
    found = [number for number, name in enumerate(names) if name == column or (column is None and len(names) == 1)]
    if len(found) != 1:
        raise ValueError(
            f"column= must name one of {first_names(names)} of {table.path!r}, and only one; {got_column(column)}."
        )
    return found[0]


def _name_columns(table: Table, index: str | None) -> list[int]:
    """The columns that may hold names: the index if it is given, else those of texts and whole numbers."""
    import pyarrow.types as types

    if index is not None:
        if table.names.count(index) != 1:
            raise ValueError(f"index must be one column of {table.path!r}: {first_names(table.names)}.")
        return [table.names.index(index)]
    of_names = (types.is_integer, types.is_string, types.is_large_string)
    kinds = zip(table.names, table.types, strict=True)
    may_name = [table.names.count(name) == 1 and any(is_one(kind) for is_one in of_names) for name, kind in kinds]
    return np.flatnonzero(may_name).tolist()
