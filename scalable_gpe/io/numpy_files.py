"""Files of numpy and scipy: .npy mapped from disk, or copied from behind a URL; sparse matrices of distances."""

import io
import os
import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np

from scalable_gpe.io.containers import open_hdf5, read_sparse
from scalable_gpe.io.points import check_disk, check_memory, first_line, spool
from scalable_gpe.storage.backends import StorageOptions, open_backend
from scalable_gpe.storage.blocks import ranges

# --- npy ------------------------------------------------------------------------------------------

_HEADER = 2**16  # bytes that hold the header of any file of numbers
_BYTES_AT_ONCE = 2**25  # of one request


def map_npy(path: str) -> np.ndarray:
    """Map a .npy file; never unpickle it."""
    try:
        array: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError:
        raise
    except Exception as error:  # numpy would advise to unpickle a file that is not .npy
        raise _not_npy(path) from error
    if not isinstance(array, np.ndarray):  # an .npz under another name
        raise _not_npy(path)
    return array


def _not_npy(path: str) -> ValueError:
    return ValueError(f"{path!r} is not a .npy file of numbers. Write one with numpy.save.")


def copy_npy(url: str, storage_options: StorageOptions | None = None) -> np.ndarray:
    """Copy a matrix of a .npy file behind a URL to an unnamed temporary file, and map it."""
    folder, _, name = url.rpartition("/")
    backend = open_backend(folder, storage_options)
    try:
        head = io.BytesIO(backend.read(name, 0, _HEADER))
    except FileNotFoundError as error:
        raise FileNotFoundError(f"X: there is no file {url!r}. Check the URL.") from error
    n_rows, n_columns, dtype = _read_header(head, url)
    first, row_bytes = head.tell(), max(1, n_columns * dtype.itemsize)
    check_disk(n_rows * row_bytes)

    def batches() -> Iterator[np.ndarray]:
        for start, stop in ranges(n_rows, max(1, _BYTES_AT_ONCE // row_bytes)):
            data = backend.read(name, first + start * row_bytes, first + stop * row_bytes)
            if len(data) != (stop - start) * row_bytes:
                raise ValueError(f"X: {url!r} ends before its last row. Copy it again.")
            yield np.frombuffer(data, dtype).reshape(stop - start, n_columns)

    return spool(batches(), n_columns, dtype)


def _read_header(head: io.BytesIO, url: str) -> tuple[int, int, np.dtype[Any]]:
    try:
        version = np.lib.format.read_magic(head)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, columns_first, dtype = read(head)
    except Exception as error:  # whatever numpy raises for a header that is not sound
        raise _not_npy(url) from error
    if len(shape) != 2 or columns_first or dtype.kind not in "fiub" or min(shape) < 0:
        raise ValueError(f"X: {url!r} must hold a matrix of numbers in C order. Save numpy.ascontiguousarray(X).")
    return int(shape[0]), int(shape[1]), dtype


# --- distances ------------------------------------------------------------------------------------


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
        raise ValueError(
            f"neighbors: {path!r} is not a sound sparse matrix: {first_line(error)}. "
            "Save it with scipy.sparse.save_npz."
        ) from None
