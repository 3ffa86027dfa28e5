"""AnnData as points: objects in memory, backed by a file, or lazy; .h5ad files; folders of zarr.

Nothing here imports anndata: an object says by itself what it is. In a backed object only X is in the file; a lazy one
(anndata.experimental.read_lazy) holds dask arrays.
"""

import os
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
from scalable_gpe.io.points import Points, check_names, first_names, name_array
from scalable_gpe.storage.backends import StorageOptions, is_url

_PCA = "X_pca"
_COUNTED_ROWS = 64
_LEAST_COUNT = 100  # in the mean row: small panels of genes have some hundred
_KEYS = ("obsm/X_pca", "X")  # where points are looked for, as scanpy does


def is_anndata(value: Any) -> bool:
    """Whether a value is an AnnData object."""
    return any(one.__name__ == "AnnData" and one.__module__.split(".")[0] == "anndata" for one in type(value).__mro__)


def read_anndata(adata: Any, key: str | None = None) -> Points:
    """The points of an AnnData object, and its obs_names; `key` is "X", "obsm/NAME", "layers/NAME" or "raw/X"."""
    key = chosen_key(adata, key)
    values = _in_place(_element(adata, key))
    if key == "X" and _are_counts(values):
        warn(
            "X of the AnnData object looks like raw counts, between which distances mean little. Normalise them and "
            "take logarithms first: sc.pp.normalize_total, sc.pp.log1p, sc.pp.pca.",
            GPEWarning,
        )
    names = name_array([str(name) for name in adata.obs_names])
    annotations = Annotations.of_tables(key, adata.obs, adata.var)
    return Points(values, names, f"{key} of an AnnData object", annotations, _feature_names(adata, key))


def representation_key(use_rep: str | None) -> str | None:
    """The key of what scanpy calls `use_rep`: "X", or the name of a part of obsm."""
    return use_rep if use_rep in (None, "X") else f"obsm/{use_rep}"


def matrix_in_memory(values: Any) -> Any:
    """A sparse matrix of an object: computed if it is lazy."""
    return values.compute(scheduler="synchronous") if hasattr(values, "dask") else values


def chosen_key(adata: Any, key: str | None) -> str:
    """The key that was given, or where scanpy would look for the points."""
    if key is not None:
        return key
    if _PCA in adata.obsm:
        return f"obsm/{_PCA}"
    if adata.X is None:
        raise ValueError(
            f"X: the AnnData object has no X and no obsm[{_PCA!r}]; its obsm holds {_names(adata.obsm)}. Choose "
            "one with gpe.read_points(adata, use_rep=...)."
        )
    return "X"


def _element(adata: Any, key: str) -> Any:
    """The matrix of an object that a key names."""
    part, _, name = key.partition("/")
    if key == "raw/X" and adata.raw is not None:
        return adata.raw.X
    if key == "X" and adata.X is not None:
        return adata.X
    if part in ("obsm", "layers") and name in getattr(adata, part):
        return getattr(adata, part)[name]
    raise KeyError(
        f"use_rep must be 'X' or a key of obsm, {sorted(adata.obsm)}; got {name or key!r}."
        if part in ("obsm", "X")
        else f"key must be 'X', 'raw/X', 'obsm/NAME' or 'layers/NAME' of the AnnData object; got {key!r}."
    )


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


def _feature_names(adata: Any, key: str) -> np.ndarray | None:
    """var_names, if a key names a matrix of these variables."""
    if key.startswith("obsm/"):
        return None
    return name_array([str(name) for name in (adata.raw if key == "raw/X" else adata).var_names])


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


def _names(part: Any) -> str:
    return first_names(sorted(part)) or "nothing"


# --- files ----------------------------------------------------------------------------------------


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


def read_h5ad(path: str, key: str | None) -> Points:
    """Read a matrix of an .h5ad file: a dense one in place or as a copy on disk, a sparse one into memory."""
    with open_hdf5(path) as file:
        key = choose_key(file, key, path)
        item = file[key]
        if hasattr(item, "keys"):
            values = read_sparse(item, key, path)
        else:
            check_numeric(item, key, path)
            values = map_or_copy(checked(item), path)
        return _points(file, values, key, path)


def read_zarr(path: str, key: str | None, storage_options: StorageOptions | None) -> Points:
    """Open an array, an array of a group, or a matrix of an AnnData group."""
    node: Any = open_node(path, storage_options)
    is_array = hasattr(node, "shape")
    if is_array and key is not None:
        raise ValueError(f"key={key!r}: {path!r} is one zarr array. Leave the key out.")
    is_anndata = not is_array and "obs" in node
    key = choose_key(node, key, path) if is_anndata else key
    if key is None:
        return Points(as_array(node, path), None, path)
    item = open_node(path, storage_options, key)
    values = as_array(item, path) if hasattr(item, "shape") else read_sparse(item, key, path)
    if is_anndata:
        return _points(node, values, key, path, storage_options)
    return Points(values, None, f"{key} of {path}")


def _points(group: Any, values: Any, key: str, path: str, storage_options: StorageOptions | None = None) -> Points:
    """A matrix of an AnnData file with its names and annotations."""
    variables = "raw/var" if key == "raw/X" else "var"
    feature_names = None if key.startswith("obsm/") else index_of(group.get(variables))
    names = row_names(group)
    check_names(names, values, path)
    annotations = Annotations.of_file(key, path if is_url(path) else os.path.abspath(path), storage_options)
    return Points(values, names, f"{key} of {path}", annotations, feature_names)
