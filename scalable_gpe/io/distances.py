"""Neighbour lists from a file: a sparse matrix of distances."""

import os
from typing import Any

from scalable_gpe.errors import Message
from scalable_gpe.io.anndata_file import read_sparse
from scalable_gpe.io.hdf5 import open_hdf5


def read_distances(path: str, key: str = "obsp/distances") -> Any:
    """Read a sparse matrix of distances: scipy's .npz, or obsp/distances of an .h5ad file."""
    if not os.path.exists(path):
        raise FileNotFoundError(Message(f"`neighbors`: there is no file {path!r}. Check the path."))
    if path.endswith(".h5ad"):
        with open_hdf5(path) as file:
            if key not in file:
                raise ValueError(Message(f"`neighbors`: {path!r} has no {key}. Run scanpy.pp.neighbors first."))
            return read_sparse(file[key], key, path)
    from scipy.sparse import load_npz

    return load_npz(path).tocsr()
