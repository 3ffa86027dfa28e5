"""Matrices and names in AnnData files (.h5ad, .zarr), read without the anndata package.

Its import takes 1 s and 90 MB, backed mode loads obsm whole, and rows by number of chunked matrices take 25 to 1,000
times as long as those of our copy, which the neighbour search needs.
"""

import math
import os
from typing import Any

import numpy as np

from scalable_gpe.io.hdf5 import check_own
from scalable_gpe.io.optional import import_optional
from scalable_gpe.io.points import (
    BATCH_ROWS,
    check_disk,
    check_memory,
    first_names,
    name_array,
    narrowest_float,
    spool,
)

_BATCH_BYTES = 2**26  # bytes of a matrix that are copied at once
MISSING = "missing"  # the label of rows without one
_KEYS = ("obsm/X_pca", "X")  # where points are looked for, as scanpy does


def map_or_copy(dataset: Any, path: str) -> np.ndarray:
    """Map a dense matrix that was written in one piece; copy one that is chunked or compressed."""
    offset = dataset.id.get_offset()
    if offset is not None and dataset.chunks is None and _is_plain(dataset):
        if offset + dataset.nbytes > os.path.getsize(path):
            raise ValueError(f"X: {path!r} ends before the last row of its matrix. Copy it again.")
        return np.memmap(path, dtype=dataset.dtype, mode="r", offset=offset, shape=dataset.shape)
    if len(dataset.shape) != 2:
        return np.empty(dataset.shape, dataset.dtype)  # refused later for its shape
    chunk = dataset.chunks or (1, dataset.shape[1])
    row_bytes = max(1, dataset.shape[1] * dataset.dtype.itemsize)
    # whole chunks at a time, but never more than fits
    step = max(1, min(chunk[0] * max(1, BATCH_ROWS // 4 // chunk[0]), max(chunk[0], _BATCH_BYTES // row_bytes)))
    dtype = narrowest_float([dataset.dtype])
    check_memory(max(step * row_bytes, math.prod(chunk) * dataset.dtype.itemsize), f"a chunk of {path!r}")
    check_disk(dataset.size * np.dtype(dtype).itemsize)
    batches = (dataset[start : start + step] for start in range(0, dataset.shape[0], step))
    return spool(batches, dataset.shape[1], dtype)


def _is_plain(dataset: Any) -> bool:
    """Whether the bytes of a dataset are those of its numpy type; HDF5 can pack numbers in other ways."""
    import h5py

    return bool(dataset.id.get_type().equal(h5py.h5t.py_create(dataset.dtype)))


def choose_key(group: Any, key: str | None, path: str) -> str:
    """Where the points of an AnnData file are: the given key, or the first of those that scanpy would take."""
    there = [name for name in ("X", "raw/X") if name in group]
    there += [f"{part}/{name}" for part in ("obsm", "layers") if part in group for name in group[part]]
    found = next((name for name in _KEYS if name in there), None) if key is None else key
    if found is None or found not in group:
        wanted = "points (X or obsm/X_pca)" if key is None else repr(key)
        way_out = "Name one of them with key=." if there else "Write the points into it first."
        raise ValueError(f"{path!r} does not hold {wanted}; it has {first_names(there) or 'no matrix'}. {way_out}")
    return found


def row_names(group: Any, path: str) -> np.ndarray | None:
    """obs_names of an AnnData file as text."""
    return _index(group.get("obs"), path)


def feature_names(group: Any, key: str, path: str) -> np.ndarray | None:
    """var_names of an AnnData file as text, if a key names a matrix of these variables."""
    return None if key.startswith("obsm/") else _index(group.get("raw/var" if key == "raw/X" else "var"), path)


def _index(table: Any, path: str) -> np.ndarray | None:
    """The names of the rows of a table."""
    name = table.attrs.get("_index") if hasattr(table, "keys") else None
    if name is None or name not in table:
        return None
    item = table[name]
    if hasattr(item, "keys"):  # nullable text: values and a mask
        item = item["values"]
    item = checked(item)
    check_memory(math.prod(item.shape) * max(8, item.dtype.itemsize), "the column of names")
    values = item.asstr()[:] if hasattr(item, "asstr") and item.dtype.kind in "OS" else item[:]
    return name_array([str(value) for value in values])


def read_sparse(group: Any, key: str, path: str) -> Any:
    """Read a CSR or CSC group as a scipy CSR matrix; its row and column numbers are checked, products trust them."""
    from scipy.sparse import csc_matrix, csr_matrix

    kind = str(group.attrs.get("encoding-type", ""))
    if kind not in ("csr_matrix", "csc_matrix"):
        raise TypeError(f"X: {key} of {path!r} is a group of type {kind or 'unknown'!r}; pass the key of a matrix.")
    try:
        shape = tuple(int(size) for size in group.attrs["shape"])
        if max(shape, default=0) >= 2**48:  # scipy would make row pointers for all of them
            raise ValueError(f"it cannot have the shape {shape}")
        parts = tuple(_sparse_part(group, name, path) for name in ("data", "indices", "indptr"))
        matrix = csr_matrix(parts, shape=shape) if kind == "csr_matrix" else csc_matrix(parts, shape=shape)
        matrix.check_format(full_check=True)
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise ValueError(f"X: {key} of {path!r} is not a sound sparse matrix: {error}. Write it again.") from None
    return matrix.tocsr()


def _sparse_part(group: Any, name: str, path: str) -> np.ndarray:
    """An array of a sparse matrix; only its numbers need not be whole: scipy converts NaN to some row number."""
    item = checked(group[name])
    if item.dtype.kind not in ("fiub" if name == "data" else "iu"):
        raise TypeError(f"its {name} have dtype {item.dtype}")
    check_memory(math.prod(item.shape) * item.dtype.itemsize, f"{name} of {path!r}")
    return np.asarray(item[:])


def check_numeric(item: Any, key: str, path: str) -> None:
    """Refuse what is not an array of real numbers."""
    if getattr(item, "shape", None) is None:
        raise TypeError(f"X: {key} of {path!r} is no array. Pass the key of a matrix.")
    if item.dtype.kind not in "fiub":
        raise TypeError(f"X: {key} of {path!r} has dtype {item.dtype}; it must be real and numeric.")


def checked(item: Any) -> Any:
    """A part of a file that holds nothing of other files (HDF5) and no pickles (zarr)."""
    if not hasattr(item, "store"):
        check_own(item)
        return item
    from scalable_gpe.io.zarr_input import check_array

    members = [item] if hasattr(item, "shape") else [member for _, member in item.members(max_depth=None)]
    for array in members:
        if hasattr(array, "shape"):
            check_array(array)
    return item


# --- columns of obs: numbers as they are, text and categories as labels ---------------------------------------


def obs_values(file: Any, column: str | None, path: str) -> np.ndarray:
    """A column of obs of an open file or group."""
    anndata = import_optional("anndata", "anndata", "an .h5ad file")
    obs = file.get("obs", {})
    if not hasattr(obs, "keys") or column is None or column not in obs:
        names = first_names(obs) if hasattr(obs, "keys") else "none"
        raise ValueError(f"column= must name one of obs of {path!r}: {names}; {got_column(column)}.")
    return plain_values(anndata.io.read_elem(checked(obs[column])))


def plain_values(values: Any) -> np.ndarray:
    """A column of pandas: numbers as they are, text and categories as labels."""
    import pandas

    series = pandas.Series(values)
    if pandas.api.types.is_numeric_dtype(series.dtype):
        return np.asarray(series.to_numpy(dtype=np.float64, na_value=np.nan) if series.hasnans else series)
    return np.asarray(series.astype(object).where(series.notna(), MISSING)).astype(str)


def got_column(column: str | None) -> str:
    """The end of a message about a column."""
    return "none was named" if column is None else f"got {column!r}"
