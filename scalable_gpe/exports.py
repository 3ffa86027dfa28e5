"""Embeddings for other tools: points, neighbour lists and kernel in the user's order, written block by block."""

import json
import logging
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from scalable_gpe.checks import ALL, Power, check_choice
from scalable_gpe.embedding import Embedding
from scalable_gpe.errors import GPEWarning, warn
from scalable_gpe.execution.context import Context
from scalable_gpe.graph.edges import Block, check_numbers
from scalable_gpe.graph.neighbors import NeighborGraph
from scalable_gpe.graph.storage_order import StorageOrder
from scalable_gpe.heat.kernel import SparseKernel
from scalable_gpe.io.export import (
    FORMATS,
    TABLES,
    CsrPieces,
    DenseBlocks,
    RowLabels,
    check_installed,
    check_replaceable,
    component_names,
    replacing,
    write_anndata,
    write_npy,
    write_table,
)
from scalable_gpe.io.files import check_target
from scalable_gpe.io.labels import Annotations
from scalable_gpe.projection import blocks, points_of
from scalable_gpe.propagation.propagate import Propagation
from scalable_gpe.storage.blocks import ranges
from scalable_gpe.storage.mapped import mapped, pieces, take_rows
from scalable_gpe.transform.new_points import warn_if_far

_RUN_ROWS = 2**10  # whose coordinates tell an embedding from others
_MOST_ENTRIES = 2**33  # of a matrix that is mostly duplicates
_MOST_REPEATS = 8  # entries for each one between distinct points, from which it is mostly duplicates


def export(
    embedding: Embedding, path: Any, *, power: Power | None = None, graph: bool = True, overwrite: bool = False
) -> Path:
    r"""Write an embedding for other tools, by the ending of the path.

    ``.h5ad`` and ``.zarr`` are AnnData: ``obsm["X_gpe"]`` is the embedding, ``obsp["distances"]`` holds the neighbour
    lists, ``obsp["connectivities"]`` the kernel without its diagonal,

    .. math:: K_{ij} = \exp(-|x_i - x_j|^2 / \epsilon), \quad i \ne j,

    and ``uns["neighbors"]`` names both as scanpy does, so that ``scanpy.tl.leiden`` works at once. Both are the graph
    of the input; for one of the embedding, call ``scanpy.pp.neighbors(adata, use_rep="X_gpe", transformer="sklearn")``.
    ``uns["gpe"]``, ``obs["gpe_component"]`` and ``obs["gpe_run"]`` are those of `scalable_gpe.tl.embed`, for
    `scalable_gpe.tl.pseudotime`. If the input was an AnnData file or object, its ``obs`` and ``var`` are in the export;
    else names of rows become ``obs_names``.
    ``.npy`` is the N x k array alone; ``.parquet`` and ``.csv`` have a column for each component, and the rows' names.
    Where rows without names were dropped, these have the numbers of those that are left.

    Parameters
    ----------
    embedding : Embedding
        Of `embed` or `open`.
    path : path
        The file (or folder, for .zarr).
    power : int or "all", optional
        Which power of an embedding of several. By default "all" if it is there, or the largest: the log says which, and
        so does ``uns["gpe"]["power"]`` of AnnData, which gets each of them as ``obsm["X_gpe_<power>"]``.
    graph : bool
        Write distances and connectivities too (AnnData only).
    overwrite : bool
        Replace an existing file once the new one is complete; by default an existing file is an error.

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
    if not isinstance(embedding, Embedding):
        raise TypeError(f"embedding must be an Embedding, as embed or open gives it; got {type(embedding).__name__}.")
    target, ending = _check(path, FORMATS, overwrite)
    holds_one = ending in TABLES  # AnnData gets each power under its name
    points, chosen = points_of(embedding, power, log_level=logging.WARNING if holds_one else logging.INFO)
    if holds_one:
        return _write(target, _dense(points), row_labels(embedding))
    with replacing(target) as unfinished:
        _write_anndata(unfinished, embedding, chosen, graph=graph, all_powers=power is None)
    return target


def export_transformed(
    embedding: Embedding,
    X_new: Any,
    path: Any,
    *,
    power: Power | None = None,
    overwrite: bool = False,
    missing: str = "error",
) -> Path:
    """Write what `Embedding.transform` gives for new rows, some rows at a time, as .npy, .csv or .parquet.

    With ``missing="drop"``, rows with missing values are left out.
    """
    target, _ = _check(path, TABLES, overwrite)
    _, chosen = points_of(embedding, power, log_level=logging.WARNING)
    rows, batches = embedding._transformed(X_new, chosen, missing)
    if (dropped := getattr(rows, "dropped", None)) is not None:
        warn(
            f"{len(dropped)} of {rows.n_rows + len(dropped)} new rows have missing values and are left out.", GPEWarning
        )
    n_far = 0

    def placed() -> Iterator[np.ndarray]:
        nonlocal n_far
        for found in batches:
            n_far += found.n_far
            yield found.values[0]

    _write(target, DenseBlocks((rows.n_rows, embedding.settings.n_components), placed()), row_labels(rows))
    warn_if_far(n_far, rows.n_rows)
    return target


def export_probabilities(
    found: Propagation, path: Any, labels: RowLabels | None = None, *, overwrite: bool = False
) -> Path:
    """Write class probabilities, some rows at a time, as .npy, .csv or .parquet; columns are named after classes."""
    target, _ = _check(path, TABLES, overwrite)
    n_rows, n_classes = (int(size) for size in found.probabilities.shape)
    parts = (np.asarray(found.probabilities[slice(*piece)]) for piece in ranges(n_rows, max(1, 2**22 // n_classes)))
    return _write(target, DenseBlocks((n_rows, n_classes), parts), labels, [str(one) for one in found.classes])


def _check(path: Any, endings: Sequence[str], overwrite: bool) -> tuple[Path, str]:
    """Check that a file can be written, in a format that its path names, before the work."""
    target = check_target(path, folder=os.fspath(path).lower().endswith(".zarr"))
    ending = check_choice(target.suffix.lower(), endings, "the ending of the path")
    check_installed(ending)
    check_replaceable(target, overwrite=overwrite)
    return target, ending


def row_labels(rows: Any) -> RowLabels | None:
    """The names of rows, or the numbers in the input of those without names where some were dropped; else None."""
    if rows.names is not None:
        return "name", rows.names
    if getattr(rows, "dropped", None) is None:
        return None
    n_left = rows.graph.n_rows if isinstance(rows, Embedding) else rows.n_rows
    return "row", np.delete(np.arange(n_left + len(rows.dropped)), rows.dropped)


def _write(target: Path, matrix: DenseBlocks, labels: RowLabels | None, columns: list[str] | None = None) -> Path:
    """Write a matrix in a format that holds one, with the names or numbers of its rows if it can."""
    columns = component_names(matrix.shape[1]) if columns is None else columns
    with replacing(target) as unfinished:
        if target.suffix.lower() == ".npy":
            write_npy(unfinished, matrix)
        else:
            write_table(unfinished, matrix, columns, labels)
    return target


def _dense(points: Any) -> DenseBlocks:
    n_rows, n_columns = (int(size) for size in points.shape)
    return DenseBlocks((n_rows, n_columns), blocks(points))


def _write_anndata(path: Path, embedding: Embedding, power: Power, *, graph: bool, all_powers: bool) -> None:
    names = np.arange(embedding.graph.n_rows) if embedding.names is None else embedding.names
    powers = embedding.by_power
    obsm = {"X_gpe": _dense(powers[power])}
    if all_powers and len(powers) > 1:
        obsm |= {f"X_gpe_{one}": _dense(points) for one, points in powers.items()}
    about = provenance(embedding, power, powers if all_powers else [power], _source(embedding))
    uns: dict[str, object] = {"gpe": about}
    obsp = {}
    if graph:
        obsp = {"distances": distances(embedding.graph), "connectivities": connectivities(embedding.kernel)}
        # the rows that the graph was made from are not exported, and scanpy's UMAP needs some
        made = scanpy_neighbors(embedding.graph, embedding.parameters, "distances", "connectivities", "obsm/X_gpe")
        uns |= {"neighbors": made, "gpe": about | made}
    obs = {"gpe_component": component_numbers(embedding), "gpe_run": run_numbers(embedding)}
    annotations = _annotations(embedding)
    write_anndata(path, names.astype(str), obs=obs, obsm=obsm, obsp=obsp, uns=uns, annotations=annotations)


def _annotations(embedding: Embedding) -> Annotations | None:
    """The obs and var of the input, if they are still those of the embedding."""
    found = embedding.annotations
    problem = None if found is None else found.problem(embedding.names)
    if problem is not None:
        warn(f"obs and var of the input are left out: {problem}", GPEWarning)
        return None
    return found


def _source(embedding: Embedding) -> str | None:
    """Where the graph was made from, if that is known: X or a part of obsm."""
    precomputed = embedding.report["method"] == "precomputed"
    return None if precomputed or embedding.annotations is None else embedding.annotations.source


def provenance(embedding: Embedding, power: Power, powers: Iterable[Power], source: str | None) -> dict[str, object]:
    """How an embedding in an AnnData object was made: only values that h5ad and zarr can write.

    `powers` are those that the object has.
    """
    powers = list(powers)
    about: dict[str, object] = {"power": str(power), "n_obs": embedding.graph.n_rows, "run": _run_number(embedding)}
    if len(powers) > 1:
        about["powers"] = [str(one) for one in powers]
    if source is not None:
        about["source"] = source
    if ALL in powers:
        about["distance_error"] = embedding.distance_error()
    texts = {name: json.dumps(getattr(embedding, name), default=str) for name in ("parameters", "report")}
    return about | texts


def component_numbers(embedding: Embedding) -> np.ndarray:
    """Number of the component of each row, 0 for that of the first row."""
    roots, n_rows = embedding.row_components, embedding.graph.n_rows
    if roots is None:
        return np.zeros(n_rows, np.int32)
    first = np.full(roots.max() + 1, n_rows, np.int32)  # first row of each component
    first[roots[::-1]] = np.arange(n_rows - 1, -1, -1, dtype=np.int32)
    there, numbers = np.flatnonzero(first < n_rows), np.zeros_like(first)
    numbers[there[np.argsort(first[there])]] = np.arange(len(there))
    by_row: np.ndarray = numbers[roots]
    return by_row


def run_numbers(embedding: Embedding) -> np.ndarray:
    """The number of the embedding for each row: rows of different embeddings that are concatenated differ."""
    return np.full(embedding.graph.n_rows, _run_number(embedding), np.int32)


def _run_number(embedding: Embedding) -> int:
    """A checksum of the first points, which different data do not share."""
    points, _ = points_of(embedding, log_level=logging.DEBUG)
    return zlib.crc32(np.asarray(points[:_RUN_ROWS]).tobytes()) >> 1


def scanpy_neighbors(
    graph: NeighborGraph, parameters: Mapping[str, Any], distances: str, connectivities: str, source: str | None
) -> dict[str, object]:
    """What scanpy expects in uns of a graph: its matrices, and how it was made.

    `use_rep` is there if `source` is X or a part of obsm, and names that.
    """
    params: dict[str, object] = {
        "n_neighbors": graph.n_neighbors + 1,  # scanpy counts the row itself
        "method": "scalable_gpe",
        "metric": parameters["metric"],
        "random_state": int(parameters["random_state"] % 2**31),
    }
    part, _, name = (source or "").partition("/")
    if part in ("X", "obsm"):
        params["use_rep"] = name or part
    return {"connectivities_key": connectivities, "distances_key": distances, "params": params}


# --- graph matrices -------------------------------------------------------------------------------


def graph_matrices(graph: NeighborGraph, kernel: SparseKernel) -> tuple[Any, Any]:
    """Distances of the lists, and the kernel without its diagonal: scipy matrices in the order of the input."""
    return _to_scipy(distances(graph)), _to_scipy(connectivities(kernel))


def _to_scipy(matrix: CsrPieces) -> Any:
    columns, values = np.empty(matrix.nnz, np.int32), np.empty(matrix.nnz, matrix.dtype)
    matrix.fill(columns, values)
    n_rows = len(matrix.indptr) - 1
    return csr_matrix((values, columns, matrix.indptr), shape=(n_rows, n_rows))


def distances(graph: NeighborGraph) -> CsrPieces:
    """Neighbour lists as CSR rows: each of the user's rows has the list of its point."""
    n_points = graph.storage_order.n_points

    def block(number: int) -> Block:
        start, stop = graph.edges.rows_of(number)
        lists = graph.lists.read(start, stop)
        check_numbers(lists, n_points, graph.lists.name, least=-1)
        listed = lists >= 0
        ends = np.cumsum(np.count_nonzero(listed, axis=1))
        return Block(start, np.append(0, ends), lists[listed], graph.list_distances.read(start, stop)[listed])

    matrix = _Matrix(graph.storage_order, graph.edges.n_blocks, block)
    pointers = _pointers(matrix, graph.context)
    found = _pieces(matrix, pointers, graph.context)
    converted = ((columns, graph.in_user_units(lengths)) for columns, lengths in found)
    return CsrPieces(pointers, converted, np.float64 if graph.exponent else np.float32)


def connectivities(kernel: SparseKernel) -> CsrPieces:
    """K without its diagonal as CSR rows; an entry between two points is one between any two rows that equal them."""
    order, edges = kernel.storage_order, kernel.edges
    matrix = _Matrix(order, edges.n_blocks, edges.block, has_diagonal=True, repeats=order.group is not None)
    pointers = _pointers(matrix, kernel.context)
    if pointers[-1] > max(_MOST_ENTRIES, _MOST_REPEATS * edges.nnz):
        raise ValueError(
            f"connectivities would have {pointers[-1]:.1e} entries, because many rows are equal. Export with "
            "graph=False, or embed the distinct rows."
        )
    return CsrPieces(pointers, _pieces(matrix, pointers, kernel.context))


@dataclass(frozen=True)
class _Matrix:
    """A sparse matrix in blocks of points; with `repeats`, a column stands for all of the user's rows of its point."""

    order: StorageOrder
    n_blocks: int
    block: Callable[[int], Block]
    has_diagonal: bool = False
    repeats: bool = False

    def lengths(self, block: Block) -> np.ndarray:
        """Entries of the user's rows of each point of a block, without the diagonal."""
        ends = block.indptr
        if self.repeats:
            _, bounds = self.order.rows_by_point
            ends = np.append(0, np.cumsum(bounds[block.indices + 1] - bounds[block.indices]))[ends]
        lengths: np.ndarray = np.diff(ends) - int(self.has_diagonal)
        return lengths

    def entries(self, number: int, first: int, last: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The user's rows of a block from `first` up to `last`, and the columns and values of one after the other."""
        block = self.block(number)
        rows, points = self.order.members(block.first, block.stop)
        chosen = (first <= rows) & (rows < last)
        rows, points = rows[chosen], points[chosen]
        lengths = np.diff(block.indptr)[points]
        at = _spans(block.indptr[points], lengths)
        owners, neighbors, values = np.repeat(rows, lengths), block.indices[at], block.values[at]
        if self.repeats:
            equal_rows, bounds = self.order.rows_by_point
            counts = bounds[neighbors + 1] - bounds[neighbors]
            owners, values = np.repeat(owners, counts), np.repeat(values, counts)
            columns = equal_rows[_spans(bounds[neighbors], counts)]
        else:
            columns = take_rows(self.order.user_row, neighbors)
        other = columns != owners
        return rows, columns[other], values[other]


def _spans(begin: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Join the ranges begin[i], begin[i] + 1, ... of so many numbers each.

    Examples
    --------
    >>> _spans(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    before = np.cumsum(lengths, dtype=np.int64) - lengths
    spans: np.ndarray = np.arange(int(lengths.sum()), dtype=np.int64) + np.repeat(begin - before, lengths)
    return spans


def _pointers(matrix: _Matrix, context: Context) -> np.ndarray:
    """Where the entries of each of the user's rows begin, and where the last ones end."""
    order = matrix.order
    by_point = context.empty((order.n_points,), np.int64)

    def measure(number: int) -> None:
        block = matrix.block(number)
        by_point[block.first : block.stop] = matrix.lengths(block)

    context.workers.map(measure, range(matrix.n_blocks), count=False)
    pointers, total = context.empty((order.n_rows + 1,), np.int64), 0
    pointers[0] = 0
    for start, stop in pieces(order.n_rows):
        pointers[start + 1 : stop + 1] = total + np.cumsum(take_rows(by_point, order.position[start:stop]))
        total = int(pointers[stop])
    return pointers


def _pieces(matrix: _Matrix, pointers: np.ndarray, context: Context) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Columns and values of consecutive rows, as many at a time as the memory plan allows."""
    for first, last in pairwise(_cuts(pointers, context.plan.exported_entries()).tolist()):
        yield _piece(matrix, first, pointers[first : last + 1] - pointers[first], context)


def _piece(matrix: _Matrix, first: int, starts: np.ndarray, context: Context) -> tuple[np.ndarray, np.ndarray]:
    """Columns (ascending) and values of the rows from `first` on, whose entries begin at `starts`."""
    n_rows, lengths = len(starts) - 1, np.diff(starts)
    columns, values = np.empty(starts[-1], np.int32), np.empty(starts[-1], np.float32)

    def place(number: int) -> None:
        rows, some_columns, some_values = matrix.entries(number, first, first + n_rows)
        at = _spans(starts[rows - first], lengths[rows - first])
        columns[at], values[at] = some_columns, some_values
        mapped.trim()

    context.workers.map(place, range(matrix.n_blocks), count=False)
    piece = csr_matrix((values, columns, starts), shape=(n_rows, matrix.order.n_rows))
    piece.sort_indices()
    return piece.indices, piece.data


def _cuts(pointers: np.ndarray, room: int) -> np.ndarray:
    """Bounds of pieces of rows with at most about `room` entries.

    Examples
    --------
    >>> _cuts(np.array([0, 2, 4, 9, 10, 11]), 4).tolist()
    [0, 2, 3, 5]
    """
    cuts = [0]
    while cuts[-1] < len(pointers) - 1:
        stop = int(np.searchsorted(pointers, pointers[cuts[-1]] + room, side="right")) - 1
        cuts.append(max(cuts[-1] + 1, stop))
    return np.array(cuts)
