"""HDF5 files and zarr stores that others have written: matrices and tables of AnnData, and arrays.

Only what a file itself holds is read. An HDF5 file can name other files: external links, datasets whose raw data or
whose parts (virtual datasets) are elsewhere. Following them would read files that the user never named. A file with a
link to another one is refused before anything in it is read: the links that are left lead to places in the file itself.
`check_own` refuses such datasets. Zarr arrays that reading would unpickle are refused too.

Matrices are read without the anndata package: its import takes 1 s and 90 MB, backed mode loads obsm whole, and rows by
number of chunked matrices take 25 to 1,000 times as long as those of our copy, which the neighbour search needs.
"""

import contextlib
import json
import math
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import zarr

from scalable_gpe.io.points import (
    BATCH_ROWS,
    check_disk,
    check_memory,
    first_line,
    first_names,
    import_optional,
    name_array,
    narrowest_float,
    spool,
)
from scalable_gpe.storage.backends import StorageOptions, open_backend

_BATCH_BYTES = 2**26  # bytes of a matrix that are copied at once
MISSING = "missing"  # the label of rows without one


@contextlib.contextmanager
def open_hdf5(path: str) -> Iterator[Any]:
    """Open an .h5ad file for reading, as a file of h5py; damage and links to other files are named."""
    h5py = import_optional("h5py", "anndata", "an .h5ad file")
    try:
        with h5py.File(path, "r") as file:
            _refuse_other_files(file, path)
            yield file
    except (OSError, KeyError, RuntimeError) as error:  # what HDF5 raises for damaged content
        if getattr(error, "errno", None) or error.__cause__ is not None:
            raise
        raise ValueError(f"{path!r} is not a sound .h5ad file: {error}. Write it again.") from None


def _refuse_other_files(file: Any, path: str) -> None:
    """Look at every link of a file; none is followed."""
    from h5py import h5l

    own = (h5l.TYPE_HARD, h5l.TYPE_SOFT)
    # the layer of h5py that makes no object of each link: 0.014 ms instead of 0.1 ms
    found = file.id.links.visit(lambda name, link: None if link.type in own else name, info=True)
    if found is not None:
        raise _elsewhere(path, found.decode(errors="replace"), "is a link to another file")


def check_own(item: Any) -> None:
    """Refuse a dataset, or a group with one, whose values or whose labels (in early AnnData) are in other files."""
    import h5py

    if hasattr(item, "keys"):
        for part in filter(None, map(item.get, item)):
            check_own(part)
    if not isinstance(item, h5py.Dataset):
        return
    if item.external or item.is_virtual:
        raise _elsewhere(item.file.filename, (item.name or "a dataset").lstrip("/"), "has its values in other files")
    labels = item.attrs.get("categories")
    if isinstance(labels, h5py.Reference) and labels:
        check_own(item.file[labels])


def _elsewhere(path: str, name: str, why: str) -> ValueError:
    return ValueError(
        f"{path!r}: {name!r} {why}, which is not followed. Copy the values into the file with h5repack or h5py."
    )


# --- zarr -----------------------------------------------------------------------------------------


def as_array(found: "zarr.Array[Any] | zarr.Group", path: str) -> "zarr.Array[Any]":
    """Refuse what is not a zarr array of numbers (format 2 or 3)."""
    if isinstance(found, zarr.Group):
        raise ValueError(f"X: {path!r} is a zarr group, not an array; {_arrays_of(found)}")
    if np.dtype(found.dtype).kind not in "fiub":
        raise TypeError(f"X: the zarr array {path!r} has dtype {found.dtype}; it must be real and numeric.")
    check_array(found)
    return found


def _arrays_of(group: zarr.Group) -> str:
    """What a group holds, and what to do about it."""
    arrays = ", ".join(name for name, _ in group.arrays())
    if arrays:
        return f"it holds the arrays {arrays}. Name one of them with key=, or pass its path."
    return "it holds no array itself. Pass the path of an array; if it is a run of this library, use gpe.open."


def open_node(
    path: str, storage_options: StorageOptions | None = None, key: str | None = None
) -> "zarr.Array[Any] | zarr.Group":
    """Open an array or a group of a zarr store for reading."""
    backend = open_backend(path, storage_options)
    try:
        with backend.io(f"X {path!r}", missing=True):
            found: Any = zarr.open(backend.zarr(read_only=True), mode="r")
            if key is not None:
                found = found[key] if isinstance(found, zarr.Group) and key in found else None
    except FileNotFoundError as error:
        raise FileNotFoundError(f"X: there is no zarr array at {path!r}. Check the path.") from error
    except (OSError, ImportError, MemoryError):
        raise
    except Exception as error:  # whatever zarr raises for metadata that is not sound
        raise ValueError(f"X: {path!r} is not a sound zarr array: {first_line(error)}. Write it again.") from None
    if not isinstance(found, zarr.Array | zarr.Group):
        raise ValueError(f"X: {path!r} holds no {key!r}. Check the key.")
    return found


def check_array(array: "zarr.Array[Any]") -> None:
    """Refuse chunks that need more memory than there is, and those that would be unpickled: that runs code of the file.

    Pickles are a codec of format 2.
    """
    described = array.metadata.to_dict()
    codecs = [described.get(part) for part in ("codecs", "filters", "compressor")]
    if "pickle" in json.dumps(codecs, default=repr).lower():
        raise TypeError(
            f"X: the zarr array {str(array.store_path)!r} is stored as pickles, which are never read. Convert it."
        )
    if array.dtype.kind in "fiub":
        check_memory(
            math.prod(array.chunks) * array.dtype.itemsize, f"a chunk of the zarr array {str(array.store_path)!r}"
        )


# --- matrices -------------------------------------------------------------------------------------


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


def row_names(tables: Any) -> np.ndarray | None:
    """obs_names of an AnnData file, or of the tables of an object, as text."""
    return index_of(tables.get("obs"))


def index_of(table: Any) -> np.ndarray | None:
    """The names of the rows of a table: one of pandas, or a group of a file."""
    if hasattr(table, "iloc"):
        return name_array([str(name) for name in table.index])
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
    members = [item] if hasattr(item, "shape") else [member for _, member in item.members(max_depth=None)]
    for array in members:
        if hasattr(array, "shape"):
            check_array(array)
    return item


# --- tables: numbers as they are, text and categories as labels -----------------------------------


def obs_values(tables: Any, column: str | None, path: str) -> np.ndarray:
    """A column of obs of an open file, or of the tables of an object."""
    obs = tables.get("obs", {})
    names = list(getattr(obs, "columns", obs)) if hasattr(obs, "keys") or hasattr(obs, "columns") else []
    if column not in names:
        raise ValueError(
            f"column= must name one of obs of {path!r}: {first_names(names) or 'none'}; {got_column(column)}."
        )
    return plain_values(in_pandas(obs[column]))


def in_pandas(part: Any) -> Any:
    """A table, or a column, in memory: of pandas already, of a lazy object, or a group of a file."""
    if hasattr(part, "to_memory"):
        return part.to_memory()
    if hasattr(part, "to_pandas"):
        return part.to_pandas()
    return (
        part if hasattr(part, "iloc") else import_optional("anndata", "anndata", "AnnData").io.read_elem(checked(part))
    )


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
