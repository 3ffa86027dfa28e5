"""One value for each row from a file: what pictures are coloured by."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from scalable_gpe.errors import Message
from scalable_gpe.io.csv_files import usual_separator
from scalable_gpe.io.files import file_kind
from scalable_gpe.io.hdf5 import open_hdf5
from scalable_gpe.io.npy import map_npy
from scalable_gpe.io.obs_columns import MISSING, got_column, obs_values
from scalable_gpe.io.optional import import_optional
from scalable_gpe.io.points import first_names
from scalable_gpe.io.tables import is_numeric


def read_column(path: str, column: str | None = None) -> np.ndarray:
    """Read one value for each row: of a .npy, .csv or .parquet file, or of obs of an .h5ad file."""
    if not os.path.exists(path):
        raise FileNotFoundError(Message(f"`color`: there is no file {path!r}. Check the path."))
    kind = file_kind(path)
    if kind == "npy":
        return _numpy_column(map_npy(path), column, path)
    if kind == "csv":
        return _csv_column(column, path)
    if kind == "parquet":
        return _parquet_column(column, path)
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


def _csv_column(column: str | None, path: str) -> np.ndarray:
    csv = import_optional("pyarrow.csv", "tables", "a .csv file")
    import pyarrow

    sep = usual_separator(path)
    parsing = csv.ParseOptions(delimiter=sep, newlines_in_values=True)
    try:
        with csv.open_csv(path, parse_options=parsing) as reader:
            names = reader.schema.names
        found = names[_number(column, [name.strip() for name in names], path)]
        table = csv.read_csv(path, parse_options=parsing, convert_options=csv.ConvertOptions(include_columns=[found]))
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(
            Message(f"`color`: {path!r} is not a table with a header and {sep!r} between its cells: {error}")
        ) from None
    return _values(table.column(0))


def _parquet_column(column: str | None, path: str) -> np.ndarray:
    parquet = import_optional("pyarrow.parquet", "tables", "a .parquet file")
    from scalable_gpe.io.parquet_files import sound_parquet

    with sound_parquet(path, "color"):
        dataset = parquet.ParquetDataset(path)
        names = dataset.schema.names
        return _values(dataset.read(columns=[names[_number(column, names, path)]]).column(0))


def _number(column: str | None, names: Sequence[str], path: str) -> int:
    """The number of the column with a name, or of the only one."""
    found = [number for number, name in enumerate(names) if name == column or (column is None and len(names) == 1)]
    if len(found) != 1:
        raise ValueError(
            Message(f"`column=` must name one of {first_names(names)} of {path!r}, and only one; {got_column(column)}.")
        )
    return found[0]


def _values(values: Any) -> np.ndarray:
    """A column of pyarrow: numbers as they are, all else as labels."""
    import pyarrow.compute

    if is_numeric(values.type):
        return np.asarray(values.to_numpy())
    return np.array(pyarrow.compute.fill_null(values.cast("string"), MISSING).to_pylist())


def _obs_column(column: str | None, path: str) -> np.ndarray:
    """A column of obs of an .h5ad file."""
    with open_hdf5(path) as file:
        return obs_values(file, column, path)
