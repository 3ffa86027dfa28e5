"""One value for each row from a file: what pictures are coloured by."""

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from scalable_gpe.errors import Message
from scalable_gpe.io.files import file_kind
from scalable_gpe.io.npy import map_npy
from scalable_gpe.io.optional import import_optional
from scalable_gpe.io.points import first_names

MISSING = "missing"  # the label of rows without one


def read_column(path: str, column: str | None = None) -> np.ndarray:
    """Read one value for each row: of a .npy, .csv or .parquet file, or of obs of an .h5ad file."""
    if not os.path.exists(path):
        raise FileNotFoundError(Message(f"`color`: there is no file {path!r}. Check the path."))
    kind = file_kind(path)
    if kind == "npy":
        return _numpy_column(map_npy(path), column, path)
    if kind == "csv":
        return _table_column(import_optional("pyarrow.csv", "tables", "a .csv file").read_csv, column, path)
    if kind == "parquet":
        return _table_column(import_optional("pyarrow.parquet", "tables", "a .parquet file").read_table, column, path)
    if kind == "h5ad":
        return _obs_column(column, path)
    raise ValueError(Message(f"`color` must be a .npy, .csv, .parquet or .h5ad file; got {path!r}."))


def _numpy_column(array: np.ndarray, column: str | None, path: str) -> np.ndarray:
    if array.ndim == 1:
        return np.asarray(array)
    if array.ndim != 2 or column is None or not column.isdigit() or int(column) >= array.shape[1]:
        raise ValueError(
            Message(f"`color`: {path!r} has shape {array.shape}; `column=` must be the number of a column, from 0.")
        )
    return np.asarray(array[:, int(column)])


def _table_column(read: Callable[[str], Any], column: str | None, path: str) -> np.ndarray:
    import pyarrow.compute

    from scalable_gpe.io.tables import is_numeric

    table = read(path)
    column = table.column_names[0] if column is None and table.num_columns == 1 else column
    if column not in table.column_names:
        raise ValueError(
            Message(f"`column=` must name one of {first_names(table.column_names)} of {path!r}; {_got(column)}.")
        )
    values = table.column(column)
    if is_numeric(values.type):
        return np.asarray(values.to_numpy())
    return np.array(pyarrow.compute.fill_null(values.cast("string"), MISSING).to_pylist())


def _obs_column(column: str | None, path: str) -> np.ndarray:
    """A column of obs: numbers as they are, text and categories as labels."""
    anndata = import_optional("anndata", "anndata", "an .h5ad file")
    import h5py
    import pandas

    with h5py.File(path, "r") as file:
        obs = file.get("obs", {})
        if column is None or column not in obs:
            raise ValueError(
                Message(f"`column=` must name one of obs of {path!r}: {first_names(obs)}; {_got(column)}.")
            )
        values = pandas.Series(anndata.io.read_elem(obs[column]))
    if pandas.api.types.is_numeric_dtype(values.dtype):
        return np.asarray(values.to_numpy(dtype=np.float64, na_value=np.nan) if values.hasnans else values)
    return np.asarray(values.astype(object).where(values.notna(), MISSING)).astype(str)


def _got(column: str | None) -> str:
    return "none was named" if column is None else f"got {column!r}"
