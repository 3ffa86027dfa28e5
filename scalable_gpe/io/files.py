"""Files of points: the rows as an array that is read block by block, and their names; distances of neighbours.

What cannot be read in place is copied to an unnamed temporary file. Nothing is unpickled.
"""

import io
import os
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from scalable_gpe.io.anndata_input import is_anndata, read_anndata, representation_key
from scalable_gpe.io.containers import open_hdf5, read_sparse
from scalable_gpe.io.points import Points, check_disk, check_memory, first_line, spool
from scalable_gpe.io.table_files import open_csv, open_parquet
from scalable_gpe.io.tables import read_table
from scalable_gpe.storage.backends import StorageOptions, is_url, local_path, open_backend
from scalable_gpe.storage.blocks import ranges

ENDINGS = ".npy, .zarr, .csv, .tsv, .parquet, .h5ad"
_HEADER = 2**16  # bytes that hold the header of any .npy file of numbers
_BYTES_AT_ONCE = 2**25  # of one request
_KINDS = ((".npy", "npy"), (".parquet", "parquet"), (".h5ad", "h5ad"), (".zarr", "zarr"))


def read_points(
    path: Any,
    *,
    key: str | None = None,
    use_rep: str | None = None,
    index: str | int | None = None,
    columns: Sequence[str | int] | None = None,
    drop: Sequence[str | int] | None = None,
    header: bool | None = None,
    sep: str | None = None,
    numeric_only: bool = False,
    storage_options: StorageOptions | None = None,
) -> Points:
    """Open a file of points, or an AnnData object; `embed` takes the result, and the embedding keeps its row names.

    A .npy file, a zarr array and an uncompressed matrix of an .h5ad file are read in place, block by block. A .npy file
    behind a URL is copied to a temporary file (in TMPDIR), and so are tables, in batches (as float32 where the columns
    allow, else float64). Sparse matrices are loaded into memory and stay sparse.

    Parameters
    ----------
    path : path, URL or AnnData
        A .npy, .csv, .tsv, .parquet or .h5ad file, or a .zarr folder; behind a URL .npy or .zarr. Or an AnnData object:
        in memory, backed (``anndata.read_h5ad(path, backed="r")``) or lazy (``anndata.experimental.read_lazy``).
    key : str, optional
        Which array: of an .h5ad file, a zarr group or an AnnData object such as ``"obsm/X_pca"`` or ``"X"`` (by default
        the former if it exists, else the latter); of a .parquet file a column of equally long lists.
    use_rep : str, optional
        The same as scanpy calls it: "X", or the name of a part of obsm ("X_scvi").
    index : str or int, optional
        The column of a table that holds the names of the rows, by name or by number from 0. By default what pandas
        wrote as the index, or none.
    columns : sequence of str or int, optional
        The columns of a table that hold the points, by name or by number from 0. By default all but the index.
    drop : sequence of str or int, optional
        Columns of a table that do not hold points, instead of `columns`.
    header : bool, optional
        Whether the first line of a .csv or .tsv file names its columns. By default it does if it holds words, or the
        numbers 0 to d - 1, which pandas writes for columns without names. One of different whole numbers, or with words
        and numbers, is an error.
    sep : str, optional
        The character between the cells of a .csv or .tsv file. By default a comma, in .tsv files a tab.
    numeric_only : bool
        Leave out the columns of a table that are neither numbers nor bools (of a text, by its first rows): `source`
        names them. By default they are an error.
    storage_options : dict, optional
        Options that fsspec needs to reach a URL.

    Returns
    -------
    Points
        ``values``, ``names`` and ``source``, a description of what was read.

    Examples
    --------
    >>> import numpy as np
    >>> import scalable_gpe as gpe
    >>> np.save("circle.npy", gpe.datasets.circle(100))
    >>> gpe.read_points("circle.npy").shape
    (100, 2)
    """
    key = _check_representation(key, use_rep)
    if is_anndata(path):
        given = {"index": index, "columns": columns, "drop": drop, "header": header, "sep": sep}
        _check_table(given, False, "table", "X", "AnnData")
        return read_anndata(path, key)
    text = os.fspath(path) if is_url(path) else local_path(path)
    kind = _remote_kind(text) if is_url(text) else _local_kind(text)
    if key is not None and kind not in ("zarr", "h5ad", "parquet"):
        raise ValueError(f"key={key!r} names an array of an .h5ad, .zarr or .parquet file; {text!r} has no such parts.")
    of_tables = {"index": index, "columns": columns, "drop": drop}
    _check_table(of_tables, kind in ("csv", "parquet"), ".csv, .tsv or .parquet", text, kind)
    _check_table({"header": header, "sep": sep}, kind == "csv", ".csv or .tsv", text, kind)
    if kind == "npy":
        return Points(copy_npy(text, storage_options) if is_url(text) else map_npy(text), None, text)
    if kind in ("zarr", "h5ad"):
        from scalable_gpe.io.anndata_input import read_h5ad, read_zarr

        return read_zarr(text, key, storage_options) if kind == "zarr" else read_h5ad(text, key)
    table = open_csv(text, sep, header) if kind == "csv" else open_parquet(text)
    return read_table(table, index, columns, drop, numeric_only=numeric_only, key=key)


def read_features(path: Any, feature_names: Sequence[str], **reading: Any) -> Points:
    """Open a file of new rows; of a table that has some of these columns by name, they are read, in this order."""
    chosen = any(reading.get(name) is not None for name in ("key", "columns", "drop"))
    names = [] if chosen else _column_names(path, reading.get("sep"), reading.get("header"))
    if not set(names).isdisjoint(feature_names):
        reading |= {"columns": list(feature_names), "numeric_only": False}
    return read_points(path, **reading)


def _column_names(path: Any, sep: str | None, header: bool | None) -> Sequence[str]:
    """The names of the columns of a table; none of other files."""
    kind = "" if is_url(path) or is_anndata(path) else _local_kind(local_path(path))
    if kind not in ("csv", "parquet"):
        return []
    text = local_path(path)
    table = open_csv(text, sep, header) if kind == "csv" else open_parquet(text)
    return table.names if table.has_header else []


def _check_representation(key: str | None, use_rep: str | None) -> str | None:
    if use_rep is not None and key is not None:
        raise ValueError(f"key={key!r} and use_rep={use_rep!r} both name an array. Pass one of them.")
    return key if use_rep is None else representation_key(use_rep)


def _check_table(given: Mapping[str, object], applies: bool, kinds: str, path: str, of: str) -> None:
    for argument, value in given.items():
        if value is not None and not applies:
            raise ValueError(f"{argument} is about a {kinds} file; {path!r} is a {of} file. Leave it out.")


def _remote_kind(url: str) -> str:
    """A .npy file, else zarr: a URL of a zarr array may end in anything."""
    if url.endswith((".csv", ".tsv", ".parquet", ".h5ad")):
        raise ValueError(f"X must be .npy or .zarr behind a URL; got {url!r}. Copy the file here first.")
    return "npy" if url.endswith(".npy") else "zarr"


def _local_kind(path: str) -> str:
    if not os.path.exists(path):
        raise FileNotFoundError(f"X: there is no file {path!r}. Check the path.")
    return file_kind(path)


def file_kind(path: str) -> str:
    """Return npy, parquet, h5ad, zarr or csv, by the ending of a path or by what is in the folder."""
    name = path.rstrip("/").lower()
    for ending, kind in _KINDS:
        if name.endswith(ending):
            return kind
    if name.removesuffix(".gz").endswith((".csv", ".tsv")):
        return "csv"
    if os.path.isdir(path) and any(Path(path).glob("*.parquet")):
        return "parquet"
    if os.path.exists(os.path.join(path, "zarr.json")) or os.path.exists(os.path.join(path, ".zgroup")):
        return "zarr"
    raise ValueError(
        f"X must be a path that ends in {ENDINGS}; got {path!r}. Convert it, for instance with numpy.save."
    )


def check_target(path: Any, *, folder: bool = False) -> Path:
    """Check, before the work it is for, that a file (or a folder) of this name can be written."""
    target = Path(os.fspath(path))
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"there is no folder {str(target.parent)!r} to write {target.name!r} into. Make it first."
        )
    if target.is_dir() and not folder:
        raise IsADirectoryError(f"{str(target)!r} is a folder. Name a file in it.")
    return target


# --- files of numpy and scipy ---------------------------------------------------------------------


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
