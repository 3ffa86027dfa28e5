"""Points of AnnData files: .h5ad, or a folder of zarr."""

import os
from typing import Any

from scalable_gpe.io.anndata_parts import (
    check_numeric,
    checked,
    choose_key,
    feature_names,
    map_or_copy,
    read_sparse,
    row_names,
)
from scalable_gpe.io.annotations import FileAnnotations
from scalable_gpe.io.hdf5 import open_hdf5
from scalable_gpe.io.points import Points, check_names
from scalable_gpe.io.zarr_input import as_array, open_node
from scalable_gpe.storage.backends import StorageOptions, is_url


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
    names = row_names(group, path)
    check_names(names, values, path)
    annotations = FileAnnotations(key, path if is_url(path) else os.path.abspath(path), storage_options)
    return Points(values, names, f"{key} of {path}", annotations, feature_names(group, key, path))
