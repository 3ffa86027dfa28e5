"""Neighbour lists from a file: a sparse matrix of distances."""

import os
import zipfile
from typing import Any

from scalable_gpe.io.anndata_parts import read_sparse
from scalable_gpe.io.hdf5 import open_hdf5
from scalable_gpe.io.points import check_memory


def read_distances(path: str, key: str = "obsp/distances") -> Any:
    """Read a sparse matrix of distances: scipy's .npz, or obsp/distances of an .h5ad file."""
    if not os.path.exists(path):
        raise FileNotFoundError(f"neighbors: there is no file {path!r}. Check the path.")
    if path.endswith(".h5ad"):
        with open_hdf5(path) as file:
            if key not in file:
                raise ValueError(f"neighbors: {path!r} has no {key}. Run scanpy.pp.neighbors first.")
            return read_sparse(file[key], key, path)
    return _read_npz(path)


def _read_npz(path: str) -> Any:
    """Read a matrix that scipy has saved; its row and column numbers are checked, conversions trust them."""
    from scipy.sparse import load_npz

    try:
        with zipfile.ZipFile(path) as parts:
            check_memory(sum(part.file_size for part in parts.infolist()), path)
        matrix = load_npz(path)
        if matrix.format not in ("csr", "csc", "coo"):
            raise ValueError(f"format {matrix.format!r} is not read; save it with tocsr()")
        if matrix.dtype.kind not in "fiub":
            raise ValueError(f"its numbers have dtype {matrix.dtype}")
        if matrix.format != "coo":
            matrix.check_format(full_check=True)
        return matrix.tocsr()
    except OSError:
        raise
    except Exception as error:  # whatever zipfile, numpy and scipy raise for a file that is not sound
        text = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(
            f"neighbors: {path!r} is not a sound sparse matrix: {text}. Save it with scipy.sparse.save_npz."
        ) from None
