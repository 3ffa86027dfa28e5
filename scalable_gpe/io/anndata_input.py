"""AnnData as points: objects in memory, backed by a file, or lazy; .h5ad files; folders of zarr.

Nothing here imports anndata: an object says by itself what it is. In a backed object only X is in the file; a lazy one
(anndata.experimental.read_lazy) holds dask arrays.
"""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from scalable_gpe.errors import GPEWarning, warn
from scalable_gpe.io.containers import (
    as_array,
    check_numeric,
    checked,
    index_of,
    map_or_copy,
    open_hdf5,
    open_node,
    read_sparse,
    row_names,
)
from scalable_gpe.io.labels import Annotations
from scalable_gpe.io.points import Points, first_names
from scalable_gpe.storage.backends import StorageOptions, is_url

_OBJECT = "an AnnData object"
_COUNTED_ROWS = 64
_LEAST_COUNT = 100  # in the mean row: small panels of genes have some hundred
_KEYS = ("obsm/X_pca", "X")  # where points are looked for, as scanpy does


def is_anndata(value: Any) -> bool:
    """Whether a value is an AnnData object."""
    return any(one.__name__ == "AnnData" and one.__module__.split(".")[0] == "anndata" for one in type(value).__mro__)


def read_anndata(adata: Any, key: str | None = None) -> Points:
    """The points of an AnnData object, and its obs_names; `key` is "X", "obsm/NAME", "layers/NAME" or "raw/X"."""
    key = chosen_key(adata, key)
    part, _, name = key.partition("/")
    values = _in_place(getattr(adata, part).X if part == "raw" else getattr(adata, part)[name] if name else adata.X)
    if key == "X" and _are_counts(values):
        warn(
            "X of the AnnData object looks like raw counts, between which distances mean little. Normalise them and "
            "take logarithms first: sc.pp.normalize_total, sc.pp.log1p, sc.pp.pca.",
            GPEWarning,
        )
    annotations = Annotations.of_tables(key, adata.obs, adata.var)
    raw = {} if adata.raw is None else {"raw/var": adata.raw.var}
    return _points({"obs": adata.obs, "var": adata.var} | raw, values, key, _OBJECT, annotations)


def chosen_key(adata: Any, key: str | None) -> str:
    """The key that was given, or where scanpy would look for the points."""
    there = [f"{part}/{name}" for part in ("obsm", "layers") for name in getattr(adata, part)]
    wanted = _KEYS[0] if key is None else key
    if wanted in there:
        return wanted  # X of a view would be copied
    there = [name for name, matrix in (("X", adata.X), ("raw/X", adata.raw)) if matrix is not None] + there
    return _choose(there, key, _OBJECT)


def representation_key(use_rep: str | None) -> str | None:
    """The key of what scanpy calls `use_rep`: "X", or the name of a part of obsm."""
    return use_rep if use_rep in (None, "X") else f"obsm/{use_rep}"


def matrix_in_memory(values: Any) -> Any:
    """A sparse matrix of an object: computed if it is lazy."""
    return values.compute(scheduler="synchronous") if hasattr(values, "dask") else values


def _are_counts(values: Any) -> bool:
    """Whether the first rows hold whole numbers of at least 0 that add up to much."""
    if hasattr(values, "dask"):
        return False  # a lazy matrix is not computed for a hint
    first = values[:_COUNTED_ROWS]
    entries = first.data if hasattr(first, "tocsr") else np.asarray(first)
    if not entries.size or entries.dtype.kind not in "iuf" or not np.isfinite(entries).all():
        return False
    are_whole = entries.min() >= 0 and (entries == np.floor(entries)).all()
    return bool(are_whole and entries.max() > 1 and entries.sum(dtype=np.float64) > _LEAST_COUNT * first.shape[0])


def _in_place(values: Any) -> Any:
    """A matrix of an object in a form that rows are read from block by block."""
    if hasattr(values, "id") and hasattr(values, "chunks"):  # a dense matrix of a backed file
        values.file.flush()
        return map_or_copy(values, values.file.filename)
    if hasattr(values, "to_memory"):  # a sparse matrix of a backed file, or a lazy table in obsm
        return values.to_memory()
    if hasattr(values, "dask") and hasattr(values._meta, "tocsr"):  # lazy and sparse: three arrays, never dense
        return matrix_in_memory(values).tocsr()
    return np.asarray(values) if isinstance(values, np.ndarray) and not isinstance(values, np.memmap) else values


def _choose(there: Sequence[str], key: str | None, path: str) -> str:
    """Where the points are: the given key, or the first of those that scanpy would take."""
    found = next((name for name in _KEYS if name in there), None) if key is None else key
    if found not in there:
        wanted = "points (X or obsm/X_pca)" if key is None else repr(key)
        way_out = (
            "Name one of them with key=, or a part of obsm with use_rep=." if there else "Write the points into it."
        )
        raise ValueError(f"X: {path} does not hold {wanted}; it has {first_names(there) or 'no matrix'}. {way_out}")
    return str(found)


def _points(tables: Any, values: Any, key: str, path: str, annotations: Annotations) -> Points:
    variables = None if key.startswith("obsm/") else tables.get("raw/var" if key == "raw/X" else "var")
    names = row_names(tables)
    if names is not None and len(names) != values.shape[0]:
        raise ValueError(f"X: {path} has {len(names)} names for {values.shape[0]} rows. Write it again.")
    return Points(values, names, f"{key} of {path}", annotations, None if variables is None else index_of(variables))


# --- files ----------------------------------------------------------------------------------------


def _file_key(group: Any, key: str | None, path: str) -> str:
    there = [name for name in ("X", "raw/X") if name in group]
    there += [f"{part}/{name}" for part in ("obsm", "layers") if part in group for name in group[part]]
    return _choose([*there, key] if key is not None and key in group else there, key, repr(path))


def read_h5ad(path: str, key: str | None) -> Points:
    """Read a matrix of an .h5ad file: a dense one in place or as a copy on disk, a sparse one into memory."""
    with open_hdf5(path) as file:
        key = _file_key(file, key, path)
        item = file[key]
        if hasattr(item, "keys"):
            values = read_sparse(item, key, path)
        else:
            check_numeric(item, key, path)
            values = map_or_copy(checked(item), path)
        return _points(file, values, key, path, Annotations.of_file(key, os.path.abspath(path), None))


def read_zarr(path: str, key: str | None, storage_options: StorageOptions | None) -> Points:
    """Open an array, an array of a group, or a matrix of an AnnData group."""
    node: Any = open_node(path, storage_options)
    is_array = hasattr(node, "shape")
    if is_array and key is not None:
        raise ValueError(f"key={key!r}: {path!r} is one zarr array. Leave the key out.")
    is_anndata = not is_array and "obs" in node
    key = _file_key(node, key, path) if is_anndata else key
    if key is None:
        return Points(as_array(node, path), None, path)
    item = open_node(path, storage_options, key)
    values = as_array(item, path) if hasattr(item, "shape") else read_sparse(item, key, path)
    if is_anndata:
        place = path if is_url(path) else os.path.abspath(path)
        return _points(node, values, key, path, Annotations.of_file(key, place, storage_options))
    return Points(values, None, f"{key} of {path}")
