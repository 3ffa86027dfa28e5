"""Files of points: the rows as an array that is read block by block, and their names.

A .npy file, a zarr array and a dense matrix of an .h5ad file that was written in one piece are read where they stand.
Tables (.csv, .tsv, .parquet) and compressed .h5ad matrices are copied once, batch by batch, to a temporary file without
a name in TMPDIR, as float32 where that holds their type and else as float64, and mapped from there: memory stays
bounded, the disk must have room for the copy. A sparse matrix is loaded as it is, three arrays, never dense.

Nothing is unpickled, and no array of Python objects is read.
"""

import itertools
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scalable_gpe.io.npy import RemoteFile
from scalable_gpe.storage.backends import is_url, local_path

ENDINGS = ".npy, .zarr, .csv, .tsv, .parquet, .h5ad"
_BATCH = 65_536  # rows of a table that are converted at once
_FIRST_LINE = 2**22  # bytes in which the first line of a text must end
_ANNDATA = ("obsm/X_pca", "X")  # where the points are looked for, as scanpy does


@dataclass(frozen=True)
class Points:
    """The points of a file.

    Attributes
    ----------
    values : array (N, d)
        numpy, memory-mapped, zarr or scipy sparse.
    names : array of str or None
        Labels of the rows, where the file has any.
    source : str
        What was read, in words.
    """

    values: Any
    names: np.ndarray | None
    source: str

    @property
    def shape(self) -> tuple[int, ...]:
        """N x d."""
        return tuple(self.values.shape)


def read_points(
    path: Any, *, key: str | None = None, index: str | None = None, storage_options: dict[str, Any] | None = None
) -> Points:
    """Open a file of points; `embed` takes the result, and its row names go with the embedding.

    A .npy file, a zarr array and an uncompressed matrix of an .h5ad file are read in place, block by block. Tables are
    copied in batches to a temporary file (in TMPDIR; float32 where the columns allow, else float64). Sparse matrices
    are loaded as they are.

    Parameters
    ----------
    path : path or URL
        A .npy, .csv, .tsv, .parquet or .h5ad file, or a .zarr folder; behind a URL .npy or .zarr.
    key : str, optional
        Which array: of an .h5ad file or a zarr group such as ``"obsm/X_pca"`` or ``"X"`` (by default the former where
        it is there, else the latter); of a .parquet file a column of equally long lists.
    index : str, optional
        The column of a table that holds the names of the rows. By default what pandas wrote as the index, or none.
    storage_options : dict, optional
        What fsspec needs to reach a URL.

    Returns
    -------
    Points
        ``values``, ``names`` and ``source``, which says what was read.

    Examples
    --------
    >>> import numpy as np
    >>> import scalable_gpe as gpe
    >>> np.save("circle.npy", gpe.datasets.circle(100))
    >>> gpe.read_points("circle.npy").shape
    (100, 2)
    """
    text = os.fspath(path) if is_url(path) else local_path(path)
    if not is_url(text) and not os.path.exists(text):
        raise FileNotFoundError(f"X: there is no file {text!r}. Check the path.")
    kind = "zarr" if is_url(text) and not text.endswith((".npy", ".csv", ".tsv", ".parquet", ".h5ad")) else _kind(text)
    if is_url(text) and kind not in ("npy", "zarr"):
        raise ValueError(f"X must be .npy or .zarr behind a URL; got {text!r}. Copy the file here first.")
    if key is not None and kind not in ("zarr", "h5ad", "parquet"):
        raise ValueError(f"key={key!r} names an array of an .h5ad, .zarr or .parquet file; {text!r} has no such parts.")
    if index is not None and kind not in ("csv", "parquet"):
        raise ValueError(f"index={index!r} names a column of a .csv or .parquet file; {text!r} has no columns by name.")
    if kind == "npy":
        remote = is_url(text)
        return Points(RemoteFile(text, storage_options) if remote else _load_npy(text), None, text)
    if kind == "csv":
        return _read_csv(text, index)
    if kind == "parquet":
        return _read_parquet(text, key, index)
    return _read_h5ad(text, key) if kind == "h5ad" else _read_zarr(text, key, storage_options)


def _kind(path: str) -> str:
    name = path.rstrip("/").lower()
    for ending, kind in ((".npy", "npy"), (".parquet", "parquet"), (".h5ad", "h5ad"), (".zarr", "zarr")):
        if name.endswith(ending):
            return kind
    if name.removesuffix(".gz").endswith((".csv", ".tsv")):
        return "csv"
    if os.path.exists(os.path.join(path, "zarr.json")) or os.path.exists(os.path.join(path, ".zgroup")):
        return "zarr"
    raise ValueError(
        f"X must be a path that ends in {ENDINGS}; got {path!r}. Convert it, for instance with numpy.save."
    )


def _needs(package: str, extra: str, what: str) -> Any:
    from importlib import import_module

    try:
        return import_module(package)
    except ImportError:
        name = package.partition(".")[0]
        raise ImportError(f'{what} needs {name}; install it with: pip install "scalable-gpe[{extra}]"') from None


def _spool(batches: Iterable[np.ndarray], n_features: int, dtype: Any) -> np.ndarray:
    """Rows that come in batches, as one array in a temporary file without a name, which goes with it."""
    n_rows = 0
    file = tempfile.TemporaryFile(prefix="scalable-gpe-")  # noqa: SIM115
    try:
        for batch in batches:
            np.ascontiguousarray(batch, dtype).tofile(file)
            n_rows += len(batch)
        file.flush()
    except OSError as error:
        raise OSError(
            f"the temporary copy of X could not be written to {tempfile.gettempdir()!r}: {error.strerror or error}."
            " Set TMPDIR to a folder with more room."
        ) from error
    if not n_rows:
        return np.empty((0, n_features), dtype)
    with file:  # the map keeps what it needs
        return np.memmap(file, dtype=dtype, mode="r", shape=(n_rows, n_features))


def _texts(parts: list[Any]) -> np.ndarray | None:
    """Names in pieces as one array."""
    return np.array([str(name) for part in parts for name in part]) if parts else None


# --- tables ---------------------------------------------------------------------------------------


def _load_npy(path: str) -> np.ndarray:
    """A .npy file, mapped."""
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:  # of a file that is none numpy advises to unpickle it
        raise ValueError(f"{path!r} is not a .npy file of numbers. Write one with numpy.save.") from error


def _read_csv(path: str, index: str | None) -> Points:
    """Numbers as float64; a first line that is not numbers names the columns."""
    csv = _needs("pyarrow.csv", "tables", "a .csv file")
    first, delimiter = _first_line(path)
    titled = not all(_is_number(cell) for cell in first)
    columns = first if titled else [f"column {number}" for number in range(len(first))]
    if index is None and columns[0] == "":  # as pandas writes an index without a name
        index = columns[0]
    _check_index(index, columns, path)
    kept = [name for name in columns if name != index]
    if len(set(columns)) < len(columns):
        raise ValueError(f"X: {path!r} has two columns of one name. Rename one of them.")

    def blocks() -> Iterator[Any]:
        import pyarrow as arrow

        types = dict.fromkeys(kept, arrow.float64()) | ({} if index is None else {index: arrow.string()})
        options = {
            "read_options": csv.ReadOptions(column_names=columns, skip_rows=int(titled), block_size=2**23),
            "parse_options": csv.ParseOptions(delimiter=delimiter),
            "convert_options": csv.ConvertOptions(column_types=types),
        }
        with arrow.input_stream(path, compression="detect") as stream:
            try:
                yield from csv.open_csv(stream, **options)
            except arrow.ArrowInvalid as error:
                raise TypeError(f"X: {path!r} is not a table of numbers: {_explain(error, columns, index)}") from None

    return _copy_table(blocks(), kept, index, np.float64, path)


def _first_line(path: str) -> tuple[list[str], str]:
    """Cells of the first line, and what stands between them."""
    import csv

    import pyarrow as arrow

    with arrow.input_stream(path, compression="detect") as stream:
        line = stream.read(_FIRST_LINE).decode("utf-8-sig", errors="replace").partition("\n")[0].rstrip("\r")
    delimiter = max(",\t; ", key=line.count)
    if not line.strip():
        raise ValueError(f"X: {path!r} is empty. Pass a table with one point per row.")
    return next(csv.reader([line], delimiter=delimiter)), delimiter


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _explain(error: Exception, columns: list[str], index: str | None) -> str:
    """What pyarrow says, with the column's name, and what to do."""
    import re

    text = str(error).splitlines()[0]
    found = re.search(r"column #(\d+): .*?invalid value '(.*?)'", text)
    if not found:
        return text
    name = columns[int(found[1])]
    return f"column {name!r} holds {found[2]!r}. {_way_out(name, index)}"


def _way_out(column: str, index: str | None) -> str:
    """What to do about a column that is not numbers."""
    if index is None:
        return f"If it holds the names of the rows, say so with index={column!r}; else drop it from the file."
    return f"Drop it from the file: {index!r} holds the names of the rows, and all other columns must be numbers."


def _check_index(index: str | None, columns: list[str], path: str) -> None:
    if index is not None and index not in columns:
        raise ValueError(f"index must be one of the columns of {path!r}: {_some(columns)}; got {index!r}.")


def _some(names: Iterable[str], most: int = 12) -> str:
    names = list(names)
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + rest


def _copy_table(blocks: Iterable[Any], kept: list[str], index: str | None, dtype: Any, path: str) -> Points:
    """Some columns of record batches as one array, and another one as names."""
    names: list[Any] = []

    def rows() -> Iterator[np.ndarray]:
        for block in blocks:
            if index is not None:
                names.append(block.column(index).to_pylist())
            yield _matrix([block.column(name) for name in kept], block.num_rows, dtype)

    if not kept:
        raise ValueError(f"X: {path!r} has no column of numbers beside the index. Pass at least one.")
    values = _spool(rows(), len(kept), dtype)
    return Points(values, _texts(names), f"{len(kept)} columns of {path}")


def _matrix(columns: list[Any], n_rows: int, dtype: Any) -> np.ndarray:
    out = np.empty((n_rows, len(columns)), dtype)
    for number, column in enumerate(columns):
        out[:, number] = column.cast("float64").to_numpy(zero_copy_only=False)  # a missing value becomes NaN
    return out


def _read_parquet(path: str, key: str | None, index: str | None) -> Points:
    """Columns of numbers, or one column of equally long lists; a folder of .parquet files counts as one."""
    parquet = _needs("pyarrow.parquet", "tables", "a .parquet file")
    files = sorted(str(file) for file in Path(path).rglob("*.parquet")) if os.path.isdir(path) else [path]
    if not files:
        raise ValueError(f"X: the folder {path!r} holds no .parquet file. Check the path.")
    schema = parquet.read_schema(files[0])
    index = _pandas_index(schema) if index is None else index
    _check_index(index, schema.names, path)
    lists = [field.name for field in schema if _is_list(field.type)]
    chosen = key or (lists[0] if len(lists) == 1 and not _numeric(schema, index) else None)
    if chosen is not None:
        return _read_lists(parquet, files, schema, chosen, index, path)
    kept = [name for name in schema.names if name != index]
    for name in kept:
        _check_type(schema.field(name), path, index)
    types = [schema.field(name).type.to_pandas_dtype() for name in kept]
    dtype = np.float32 if all(np.can_cast(one, np.float32) for one in types) else np.float64
    return _copy_table(_batches(parquet, files, kept, index), kept, index, dtype, path)


def _batches(parquet: Any, files: list[str], kept: list[str], index: str | None) -> Iterator[Any]:
    for file in files:
        columns = [*kept, *([] if index is None else [index])]
        with parquet.ParquetFile(file, pre_buffer=False) as opened:
            yield from opened.iter_batches(batch_size=_BATCH, columns=columns)


def _read_lists(parquet: Any, files: list[str], schema: Any, key: str, index: str | None, path: str) -> Points:
    """One column of lists, each a point."""
    if key not in schema.names or not _is_list(schema.field(key).type):
        raise ValueError(f"key must be a column of lists of {path!r}, which has {_some(schema.names)}; got {key!r}.")
    inner = schema.field(key).type.value_type.to_pandas_dtype()
    dtype = np.float32 if np.can_cast(inner, np.float32) else np.float64
    blocks = _batches(parquet, files, [key], index)
    first = next(blocks, None)
    if first is None or not len(first.column(key)) or first.column(key)[0].as_py() is None:
        raise ValueError(f"X: column {key!r} of {path!r} must begin with a list; it is empty.")
    width = len(first.column(key)[0])
    names: list[Any] = []

    def rows() -> Iterator[np.ndarray]:
        for block in itertools.chain([first], blocks):
            lists = block.column(key)
            if set(lists.value_lengths().to_pylist()) != {width}:
                raise ValueError(f"X: column {key!r} of {path!r} must hold lists of one length; it has others.")
            if index is not None:
                names.append(block.column(index).to_pylist())
            yield lists.flatten().to_numpy(zero_copy_only=False).reshape(-1, width)

    values = _spool(rows(), width, dtype)
    return Points(values, _texts(names), f"column {key!r} of {path}")


def _is_list(kind: Any) -> bool:
    import pyarrow.types as types

    return types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)


def _is_numeric(kind: Any) -> bool:
    import pyarrow.types as types

    return types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)


def _numeric(schema: Any, index: str | None) -> list[str]:
    return [field.name for field in schema if field.name != index and _is_numeric(field.type)]


def _check_type(field: Any, path: str, index: str | None = None) -> None:
    if not _is_numeric(field.type):
        raise TypeError(
            f"X: column {field.name!r} of {path!r} has type {field.type}; it must be numeric. "
            f"{_way_out(field.name, index)}"
        )


def _pandas_index(schema: Any) -> str | None:
    """The column in which pandas keeps the index, if it wrote the file and the index was not just counted."""
    columns = (schema.pandas_metadata or {}).get("index_columns", [])
    return columns[0] if len(columns) == 1 and isinstance(columns[0], str) else None


# --- AnnData --------------------------------------------------------------------------------------


def _read_h5ad(path: str, key: str | None) -> Points:
    h5py = _needs("h5py", "anndata", "an .h5ad file")
    with h5py.File(path, "r") as file:
        key = _choose(file, key, path)
        names, item = _row_names(file), file[key]
        if hasattr(item, "keys"):
            values = _sparse(item, key, path)
        else:
            _check_numeric(item, key, path)
            values = _mapped(item, path)
    return Points(values, names, f"{key} of {path}")


def _mapped(dataset: Any, path: str) -> np.ndarray:
    """A dense matrix: in place where it stands in one piece, else a copy."""
    offset = dataset.id.get_offset()
    if offset is not None and dataset.chunks is None and not dataset.external:
        return np.memmap(path, dtype=dataset.dtype, mode="r", offset=offset, shape=dataset.shape)
    if len(dataset.shape) != 2:
        return np.empty(dataset.shape, dataset.dtype)  # refused by its shape
    wide = not np.can_cast(dataset.dtype, np.float32)
    step = (dataset.chunks or (1,))[0]
    rows = max(step, step * (_BATCH // 4 // step))
    pieces = (dataset[start : start + rows] for start in range(0, dataset.shape[0], rows))
    return _spool(pieces, dataset.shape[1], np.float64 if wide else np.float32)


def _read_zarr(path: str, key: str | None, storage_options: dict[str, Any] | None) -> Points:
    from scalable_gpe.io.zarr_input import open_array, open_node

    node = open_node(path, storage_options)
    if hasattr(node, "shape") or (key is None and "obs" not in node):
        if key is not None:
            raise ValueError(f"key={key!r}: {path!r} is one zarr array. Leave the key out.")
        return Points(open_array(path, storage_options), None, path)
    key = _choose(node, key, path) if "obs" in node else str(key)
    names = _row_names(node) if "obs" in node else None
    item = open_node(path, storage_options, key)
    values = open_array(path, storage_options, key) if hasattr(item, "shape") else _sparse(item, key, path)
    return Points(values, names, f"{key} of {path}")


def _choose(group: Any, key: str | None, path: str) -> str:
    """Where the points of an AnnData file are."""
    there = [name for name in ("X", "raw/X") if name in group]
    there += [f"{part}/{name}" for part in ("obsm", "layers") if part in group for name in group[part]]
    found = next((name for name in _ANNDATA if name in there), None) if key is None else key
    if found is None or found not in group:
        wanted = "points (X or obsm/X_pca)" if key is None else repr(key)
        way_out = "Name one of them with key=." if there else "Write the points into it first."
        raise ValueError(f"{path!r} does not hold {wanted}; it has {_some(there) or 'no matrix'}. {way_out}")
    return found


def _row_names(group: Any) -> np.ndarray | None:
    """obs_names of an AnnData file: texts, or numbers written as texts."""
    obs = group.get("obs")
    name = obs.attrs.get("_index") if hasattr(obs, "keys") else None
    if name is None or name not in obs:
        return None
    item = obs[name]
    if hasattr(item, "keys"):  # texts that may be missing: values and a mask
        item = item["values"]
    _check_codecs(item)
    values = item.asstr()[:] if hasattr(item, "asstr") and item.dtype.kind in "OS" else item[:]
    return np.array([str(value) for value in values])


def _check_codecs(item: Any) -> None:
    if hasattr(item, "metadata"):
        from scalable_gpe.io.zarr_input import check_codecs

        check_codecs(item)


def _check_numeric(item: Any, key: str, path: str) -> None:
    if item.dtype.kind not in "fiub":
        raise TypeError(f"X: {key} of {path!r} has dtype {item.dtype}; it must be real and numeric.")


def _sparse(group: Any, key: str, path: str) -> Any:
    """A CSR or CSC group as a scipy matrix; its numbers are checked, because products trust them."""
    import scipy.sparse

    kinds: dict[str, Callable[..., Any]] = {
        "csr_matrix": scipy.sparse.csr_matrix,
        "csc_matrix": scipy.sparse.csc_matrix,
    }
    kind = str(group.attrs.get("encoding-type", ""))
    if kind not in kinds:
        raise TypeError(f"X: {key} of {path!r} is a group of type {kind or 'unknown'!r}; pass the key of a matrix.")
    parts = []
    for name in ("data", "indices", "indptr"):
        _check_codecs(group[name])
        _check_numeric(group[name], f"{key}/{name}", path)
        parts.append(np.asarray(group[name][:]))
    try:
        matrix = kinds[kind](tuple(parts), shape=tuple(int(size) for size in group.attrs["shape"]))
        matrix.check_format(full_check=True)
    except ValueError as error:
        raise ValueError(f"X: {key} of {path!r} is not a sound sparse matrix: {error}. Write it again.") from None
    return matrix.tocsr()


def check_target(path: Any, *, folder: bool = False) -> Path:
    """Check that a file (or a folder) of this name can be written, before the work that it is for."""
    target = Path(os.fspath(path))
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"there is no folder {str(target.parent)!r} to write {target.name!r} into. Make it first."
        )
    if target.is_dir() and not folder:
        raise IsADirectoryError(f"{str(target)!r} is a folder. Name a file in it.")
    return target


# --- one column, and neighbour lists --------------------------------------------------------------


def read_column(path: str, column: str | None = None) -> np.ndarray:
    """One value for each row: of a .npy file, a column of a .csv or .parquet file, or one of obs of an .h5ad file."""
    if not os.path.exists(path):
        raise FileNotFoundError(f"color: there is no file {path!r}. Check the path.")
    kind = _kind(path)
    if kind == "npy":
        return _numpy_column(_load_npy(path), column, path)
    if kind == "csv":
        return _table_column(_needs("pyarrow.csv", "tables", "a .csv file").read_csv, path, column)
    if kind == "parquet":
        return _table_column(_needs("pyarrow.parquet", "tables", "a .parquet file").read_table, path, column)
    if kind == "h5ad":
        return _obs_column(path, column)
    raise ValueError(f"color must be a .npy, .csv, .parquet or .h5ad file; got {path!r}.")


def _numpy_column(array: np.ndarray, column: str | None, path: str) -> np.ndarray:
    if array.ndim == 1:
        return np.asarray(array)
    if array.ndim != 2 or column is None or not column.isdigit() or int(column) >= array.shape[1]:
        raise ValueError(f"color: {path!r} has shape {array.shape}; column= must be the number of a column, from 0.")
    return np.asarray(array[:, int(column)])


def _table_column(read: Callable[..., Any], path: str, column: str | None) -> np.ndarray:
    import pyarrow.compute

    table = read(path)
    column = table.column_names[0] if column is None and table.num_columns == 1 else column
    if column not in table.column_names:
        got = "none was named" if column is None else f"got {column!r}"
        raise ValueError(f"column= must name one of {_some(table.column_names)} of {path!r}; {got}.")
    values = table.column(column)
    if _is_numeric(values.type):
        return values.to_numpy()
    return np.array(pyarrow.compute.fill_null(values.cast("string"), "missing").to_pylist())


def _obs_column(path: str, column: str | None) -> np.ndarray:
    """A column of obs: numbers, texts or categories."""
    h5py = _needs("h5py", "anndata", "an .h5ad file")
    with h5py.File(path, "r") as file:
        obs = file["obs"]
        if column is None or column not in obs:
            got = "none was named" if column is None else f"got {column!r}"
            raise ValueError(f"column= must name one of obs of {path!r}: {_some(obs)}; {got}.")
        item = obs[column]
        if hasattr(item, "keys") and "categories" in item:
            names = [*_plain_column(item["categories"]).astype(str), "missing"]
            return np.array(names)[item["codes"][:]]  # code -1, no category, is the last name
        return _plain_column(item["values"] if hasattr(item, "keys") else item)


def _plain_column(item: Any) -> np.ndarray:
    if hasattr(item, "keys"):  # texts that may be missing: values and a mask
        item = item["values"]
    return np.array(item.asstr()[:].tolist()) if item.dtype.kind in "OS" else np.asarray(item[:])


def read_distances(path: str, key: str = "obsp/distances") -> Any:
    """A sparse matrix of distances: scipy's .npz, or obsp/distances of an .h5ad file."""
    if not os.path.exists(path):
        raise FileNotFoundError(f"neighbors: there is no file {path!r}. Check the path.")
    if path.endswith(".h5ad"):
        h5py = _needs("h5py", "anndata", "an .h5ad file")
        with h5py.File(path, "r") as file:
            if key not in file:
                raise ValueError(f"neighbors: {path!r} has no {key}. Run scanpy.pp.neighbors first.")
            return _sparse(file[key], key, path)
    from scipy.sparse import load_npz

    return load_npz(path).tocsr()
