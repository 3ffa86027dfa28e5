"""Embeddings for other tools: AnnData (.h5ad or .zarr), .npy and .parquet, written block by block."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from scalable_gpe.checks import check_choice
from scalable_gpe.embedding import Embedding
from scalable_gpe.graph.edges import Edges
from scalable_gpe.graph.storage_order import StorageOrder
from scalable_gpe.io.files import check_target
from scalable_gpe.projection import blocks, points_of, powers_of
from scalable_gpe.storage.protocol import ranges

FORMATS = (".h5ad", ".zarr", ".npy", ".parquet")
_CHUNK = 2**22  # entries of one chunk of a zarr array: few files
_LEAST_ENTRIES = 2**20  # of K that are held at once, however little memory is left
_MOST_ENTRIES = 2**33  # of a matrix that is mostly duplicates
_MOST_REPEATS = 8  # entries for each one between distinct points, from which it is mostly duplicates

# how pandas is told that a column of a .parquet file is the index
_NAMES = {"name": "name", "field_name": "name", "pandas_type": "unicode", "numpy_type": "object", "metadata": None}


def export(
    embedding: Embedding, path: Any, *, power: int | None = None, graph: bool = True, overwrite: bool = False
) -> Path:
    r"""Write an embedding for other tools, by the ending of the path.

    ``.h5ad`` and ``.zarr`` are AnnData: ``obsm["X_gpe"]`` is the embedding, ``obsp["distances"]`` holds the neighbour
    lists, ``obsp["connectivities"]`` the kernel without its diagonal,

    .. math:: K_{ij} = \exp(-|x_i - x_j|^2 / \epsilon), \quad i \ne j,

    and ``uns["neighbors"]`` names both as scanpy does, so that ``scanpy.tl.leiden`` and ``scanpy.tl.umap`` work at
    once. Names of rows become ``obs_names``. ``.npy`` is the N x k array alone; ``.parquet`` has a column for each
    component, and the names as its index.

    Parameters
    ----------
    embedding : Embedding
        Of `embed` or `open`.
    path : path
        The file (or folder, for .zarr).
    power : int, optional
        Which power of an embedding of several; by default the largest, and AnnData gets all of them, as
        ``obsm["X_gpe_<power>"]``.
    graph : bool
        Write distances and connectivities too (AnnData only).
    overwrite : bool
        Replace what stands at the path, once the new one is complete; an error without.

    Returns
    -------
    Path
        What was written.

    Examples
    --------
    >>> import numpy as np
    >>> import scalable_gpe as gpe
    >>> result = gpe.embed(gpe.datasets.torus(500), n_components=8, power=16)
    >>> np.load(gpe.export(result, "torus.npy")).shape
    (500, 8)
    """
    target = check_target(path, folder=os.fspath(path).lower().endswith(".zarr"))
    if not isinstance(embedding, Embedding):
        raise TypeError(f"embedding must be an Embedding, as embed or open gives it; got {type(embedding).__name__}.")
    kind = check_choice(target.suffix.lower(), FORMATS, "the ending of the path")
    points, chosen = points_of(embedding, power)
    _check_replaceable(target, overwrite)
    unfinished = target.with_name(f".unfinished-{target.name}")
    _remove(unfinished)
    try:
        if kind == ".npy":
            _write_npy(points, unfinished)
        elif kind == ".parquet":
            _write_parquet(points, embedding.names, unfinished)
        else:
            _write_anndata(embedding, chosen, power is None, graph, unfinished, kind)
        _remove(target)
        unfinished.rename(target)
    finally:
        _remove(unfinished)
    return target


def _check_replaceable(target: Path, overwrite: bool) -> None:
    """What is there is replaced only when that was asked for, and a folder only when it is AnnData: never a run."""
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    if not overwrite:
        raise FileExistsError(
            f"{str(target)!r} is there already, and an export holds the embedding alone. Choose another name, or "
            "replace it with overwrite=True."
        )
    if not target.is_dir():
        return
    for name in ("zarr.json", ".zattrs"):
        if (target / name).exists():
            found = json.loads((target / name).read_text(encoding="utf-8"))
            if found.get("attributes", found).get("encoding-type") == "anndata":
                return
    raise FileExistsError(f"path {str(target)!r} is a folder that holds something else. Choose another name.")


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


# --- arrays and tables ----------------------------------------------------------------------------


def _write_npy(points: Any, path: Path) -> None:
    with open(path, "wb") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": tuple(int(size) for size in points.shape)}
        np.lib.format.write_array_header_1_0(file, header)
        for block in blocks(points):
            file.write(np.ascontiguousarray(block, "<f4").tobytes())


def _write_parquet(points: Any, names: np.ndarray | None, path: Path) -> None:
    """Columns gpe_0 ... and, where rows have names, `name`, which pandas takes as the index."""
    try:
        import pyarrow as arrow
        import pyarrow.parquet as parquet
    except ImportError:
        raise ImportError('.parquet needs pyarrow; install it with: pip install "scalable-gpe[tables]"') from None
    fields = [arrow.field(f"gpe_{number}", arrow.float32()) for number in range(points.shape[1])]
    metadata = None
    if names is not None:
        fields.append(arrow.field("name", arrow.string()))
        metadata = {"pandas": json.dumps({"index_columns": ["name"], "columns": [_NAMES], "column_indexes": []})}
    schema = arrow.schema(fields, metadata=metadata)
    start = 0
    with parquet.ParquetWriter(path, schema) as writer:
        for block in blocks(points):
            columns = [arrow.array(column) for column in np.ascontiguousarray(block.T)]
            if names is not None:
                columns.append(arrow.array(names[start : start + len(block)].tolist(), arrow.string()))
            writer.write_batch(arrow.record_batch(columns, schema=schema))
            start += len(block)


# --- AnnData --------------------------------------------------------------------------------------


def _write_anndata(embedding: Embedding, power: Any, every: bool, graph: bool, path: Path, kind: str) -> None:
    """The frame by anndata itself, the large arrays block by block in its format."""
    try:
        import anndata
        import h5py
        import zarr
    except ImportError:
        raise ImportError('AnnData needs anndata; install it with: pip install "scalable-gpe[anndata]"') from None
    if kind == ".h5ad":
        file: Any = h5py.File(path, "w")
    else:
        file = zarr.open_group(str(path), mode="w", zarr_format=anndata.settings.zarr_write_format)
    try:
        _write_frame(file, embedding, _unstructured(embedding, power, graph), anndata.io.write_elem)
        powers = powers_of(embedding)
        _write_dense(file, "obsm/X_gpe", powers[power])
        for one in powers if every and len(powers) > 1 else ():
            _write_dense(file, f"obsm/X_gpe_{one}", powers[one])
        if graph:
            _write_csr(file, "obsp/distances", *_lists(embedding))
            _write_csr(file, "obsp/connectivities", *_connectivities(embedding))
    finally:
        if kind == ".h5ad":
            file.close()


def _write_frame(file: Any, embedding: Embedding, unstructured: dict[str, Any], write: Any) -> None:
    """Everything but the large arrays: names of the rows, no variables, and what is unstructured."""
    names = np.arange(embedding.graph.n_rows).astype(str) if embedding.names is None else embedding.names
    file.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
    for name, index in (("obs", names), ("var", np.empty(0, str))):
        frame = file.create_group(name)
        frame.attrs.update({"encoding-type": "dataframe", "encoding-version": "0.2.0"})
        frame.attrs.update({"_index": "_index", "column-order": []})
        write(frame, "_index", index.astype(object))
    for name in ("obsm", "obsp", "varm", "varp", "layers"):
        write(file, name, {})
    write(file, "uns", unstructured)


def _unstructured(embedding: Embedding, power: Any, graph: bool) -> dict[str, Any]:
    """What scanpy expects under uns["neighbors"], and how the embedding was made."""
    parameters = embedding.parameters
    neighbors = {
        "connectivities_key": "connectivities",
        "distances_key": "distances",
        "params": {
            "n_neighbors": embedding.graph.n_neighbors + 1,  # scanpy counts the row itself
            "method": "scalable_gpe",
            "metric": parameters["metric"],
            "random_state": int(parameters["random_state"] % 2**31),
            "use_rep": "X_gpe",
        },
    }
    made = {"power": int(power)} | {
        name: json.dumps(value, default=str)
        for name, value in (("parameters", parameters), ("report", embedding.report))
    }
    return {"gpe": made} | ({"neighbors": neighbors} if graph else {})


def _array(file: Any, name: str, shape: tuple[int, ...], dtype: Any) -> Any:
    """An empty array in an .h5ad file (in one piece) or a zarr group (in large chunks)."""
    if hasattr(file, "create_array"):
        rows = max(1, _CHUNK // int(np.prod(shape[1:], dtype=np.int64)))
        made = file.create_array(name, shape=shape, dtype=dtype, chunks=(max(1, min(rows, shape[0])), *shape[1:]))
    else:
        made = file.create_dataset(name, shape=shape, dtype=dtype)
    made.attrs.update({"encoding-type": "array", "encoding-version": "0.2.0"})
    return made


def _write_dense(file: Any, name: str, points: Any) -> None:
    out = _array(file, name, tuple(points.shape), np.float32)
    start = 0
    for block in blocks(points):
        out[start : start + len(block)] = block
        start += len(block)


def _write_csr(file: Any, name: str, indptr: np.ndarray, pieces: Iterator[tuple[np.ndarray, np.ndarray]]) -> None:
    """A CSR matrix whose entries come piece by piece.

    Row pointers and columns have one type, int32 while the entries can be counted in it: scipy's conversions, on which
    scanpy relies, fail on matrices that anndata reads with two types.
    """
    n_rows, nnz = len(indptr) - 1, int(indptr[-1])
    counts = np.int32 if nnz < 2**31 else np.int64
    group = file.create_group(name)
    group.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": [n_rows, n_rows]})
    _array(group, "indptr", indptr.shape, counts)[:] = indptr.astype(counts)
    columns, values = _array(group, "indices", (nnz,), counts), _array(group, "data", (nnz,), np.float32)
    start = 0
    for column, value in pieces:
        columns[start : start + len(column)] = column
        values[start : start + len(value)] = value
        start += len(column)


# --- the graph in the user's order ----------------------------------------------------------------


def _lists(embedding: Embedding) -> tuple[np.ndarray, Iterator[tuple[np.ndarray, np.ndarray]]]:
    """Neighbour lists as CSR rows: row pointers, and (columns, distances) piece by piece."""
    graph = embedding.graph
    storage_order, m = graph.storage_order, graph.n_neighbors
    step = max(4096, min(graph.n_rows, graph.context.spare_bytes() // 4 // (40 * m)))
    lengths = np.empty(storage_order.n_points, np.int64)
    for start, stop in ranges(storage_order.n_points, step):
        lengths[start:stop] = (graph.lists.read(start, stop) >= 0).sum(axis=1)

    def pieces() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for start, stop in ranges(graph.n_rows, step):
            ids, place = np.unique(storage_order.position[start:stop], return_inverse=True)
            lists, distances = graph.lists.take(ids)[place], graph.list_distances.take(ids)[place]
            rows = np.where(lists >= 0, storage_order.user_row[lists], graph.n_rows)  # absent ones come last
            by = np.argsort(rows, axis=1, kind="stable")
            rows, distances = np.take_along_axis(rows, by, 1), np.take_along_axis(distances, by, 1)
            there = rows < graph.n_rows
            yield rows[there].astype(np.int32), distances[there]

    return _pointers(lengths[storage_order.position]), pieces()


def _connectivities(embedding: Embedding) -> tuple[np.ndarray, Iterator[tuple[np.ndarray, np.ndarray]]]:
    """K without its diagonal as CSR rows; each piece takes one pass over the blocks of K."""
    edges, storage_order = embedding.kernel.edges, embedding.kernel.storage_order
    members = _Members(storage_order)
    lengths = np.empty(storage_order.n_points, np.int64)
    for number in range(edges.n_blocks):
        first, indptr, indices, _ = edges.block(number)
        sums = np.concatenate([[0], np.cumsum(members.count(indices))])
        lengths[first : first + len(indptr) - 1] = np.diff(sums[indptr]) - 1
    pointers = _pointers(lengths[storage_order.position])
    if pointers[-1] > max(_MOST_ENTRIES, _MOST_REPEATS * edges.nnz):
        raise ValueError(
            f"connectivities would have {pointers[-1]:.1e} entries, because many rows are equal. Export with "
            "graph=False, or embed the distinct rows."
        )
    room = max(_LEAST_ENTRIES, embedding.graph.context.spare_bytes() // 4 // 48)
    return pointers, _kernel_pieces(edges, storage_order, members, pointers, room)


def _pointers(lengths: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def _kernel_pieces(
    edges: Edges, storage_order: StorageOrder, members: "_Members", pointers: np.ndarray, room: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Columns and values of K in the user's order, at most about `room` entries at a time."""
    start = 0
    while start < storage_order.n_rows:
        stop = max(start + 1, int(np.searchsorted(pointers, pointers[start] + room, side="right")) - 1)
        wanted = storage_order.position[start:stop]
        order = np.argsort(wanted, kind="stable")
        cuts = np.searchsorted(wanted[order], np.arange(edges.n_blocks + 1) * edges.block_rows)
        columns = np.empty(int(pointers[stop] - pointers[start]), np.int32)
        values = np.empty(len(columns), np.float32)
        for number in np.flatnonzero(np.diff(cuts)):
            rows = order[cuts[number] : cuts[number + 1]]
            owners, column, value = members.rows(edges.block(int(number)), wanted[rows], rows + start)
            at = np.arange(len(owners)) - _starts(owners) + (pointers[owners] - pointers[start])
            columns[at], values[at] = column, value
        yield columns, values
        start = stop


def _starts(owners: np.ndarray) -> np.ndarray:
    """Where the run of equal owners begins to which each entry belongs."""
    new = np.concatenate([[True], owners[1:] != owners[:-1]])
    return np.flatnonzero(new)[np.cumsum(new) - 1] if len(owners) else np.empty(0, np.int64)


class _Members:
    """The user's rows of each point: one, or several where rows repeat."""

    def __init__(self, storage_order: StorageOrder) -> None:
        self._numbering = storage_order
        self._repeat = storage_order.weights is not None
        if self._repeat:
            self._rows = np.argsort(storage_order.position, kind="stable")
            self._counts = np.bincount(storage_order.position, minlength=storage_order.n_points)
            self._first = np.cumsum(self._counts) - self._counts

    def count(self, points: np.ndarray) -> np.ndarray:
        """How many rows stand for each point."""
        return self._counts[points] if self._repeat else np.ones(len(points), np.int64)

    def rows(self, block: Any, points: np.ndarray, users: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Owner, column and value of the entries of some rows, diagonal left out, columns ascending in each row."""
        first, indptr, indices, weights = block
        begin = indptr[points - first]
        lengths = indptr[points - first + 1] - begin
        at = _spans(begin, lengths)
        place, columns, values = np.repeat(np.arange(len(users)), lengths), indices[at], weights[at]
        if self._repeat:
            counts = self._counts[columns]
            place, values = np.repeat(place, counts), np.repeat(values, counts)
            columns = self._rows[_spans(self._first[columns], counts)]
            by = np.lexsort((columns, place))
            place, columns, values = place[by], columns[by], values[by]
        else:
            columns = self._numbering.user_row[columns]
        owners = users[place]
        other = columns != owners
        return owners[other], columns[other].astype(np.int32), values[other]


def _spans(begin: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """``begin[0], begin[0] + 1, ...`` for so many numbers, then the same from begin[1], and so on."""
    before = np.cumsum(lengths, dtype=np.int64) - lengths
    return np.arange(int(lengths.sum()), dtype=np.int64) + np.repeat(begin - before, lengths)
