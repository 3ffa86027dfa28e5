"""Embeddings for other tools: points, neighbour lists and kernel in the user's order, written block by block."""

import json
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scalable_gpe.checks import Power, check_choice
from scalable_gpe.embedding import Embedding
from scalable_gpe.errors import GPEWarning, Message, warn
from scalable_gpe.graph.edges import Block, Edges, check_lists
from scalable_gpe.graph.neighbors import NeighborGraph
from scalable_gpe.graph.storage_order import StorageOrder
from scalable_gpe.heat.kernel import SparseKernel
from scalable_gpe.io.export import (
    FORMATS,
    AnnDataContent,
    CsrPieces,
    DenseBlocks,
    check_installed,
    check_replaceable,
    replacing,
    write_anndata,
    write_npy,
    write_parquet,
)
from scalable_gpe.io.files import check_target
from scalable_gpe.io.points import Annotations
from scalable_gpe.projection import blocks, points_of, powers_of
from scalable_gpe.storage.blocks import ranges

_MOST_ENTRIES = 2**33  # of a matrix that is mostly duplicates
_MOST_REPEATS = 8  # entries for each one between distinct points, from which it is mostly duplicates

Piece = tuple[np.ndarray, np.ndarray]  # columns and values of consecutive CSR rows


def export(
    embedding: Embedding, path: Any, *, power: Power | None = None, graph: bool = True, overwrite: bool = False
) -> Path:
    r"""Write an embedding for other tools, by the ending of the path.

    ``.h5ad`` and ``.zarr`` are AnnData: ``obsm["X_gpe"]`` is the embedding, ``obsp["distances"]`` holds the neighbour
    lists, ``obsp["connectivities"]`` the kernel without its diagonal,

    .. math:: K_{ij} = \exp(-|x_i - x_j|^2 / \epsilon), \quad i \ne j,

    and ``uns["neighbors"]`` names both as scanpy does, so that ``scanpy.tl.leiden`` works at once. Both are the graph
    of the input; for one of the embedding, call ``scanpy.pp.neighbors(adata, use_rep="X_gpe")``. If the input was an
    AnnData file or object, its ``obs`` and ``var`` are in the export; else names of rows become ``obs_names``.
    ``.npy`` is the N x k array alone; ``.parquet`` has a column for each component, and the names as its index.

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
    target = check_target(path, folder=os.fspath(path).lower().endswith(".zarr"))
    if not isinstance(embedding, Embedding):
        raise TypeError(f"embedding must be an Embedding, as embed or open gives it; got {type(embedding).__name__}.")
    ending = check_choice(target.suffix.lower(), FORMATS, "the ending of the path")
    holds_one = ending in (".npy", ".parquet")  # AnnData gets each power under its name
    points, chosen = points_of(embedding, power, log_level=logging.WARNING if holds_one else logging.INFO)
    check_installed(ending)
    check_replaceable(target, overwrite=overwrite)
    with replacing(target) as unfinished:
        if ending == ".npy":
            write_npy(unfinished, _dense(points))
        elif ending == ".parquet":
            columns = [f"gpe_{number}" for number in range(points.shape[1])]
            write_parquet(unfinished, _dense(points), columns, embedding.names)
        else:
            write_anndata(unfinished, _anndata(embedding, chosen, all_powers=power is None, graph=graph))
    return target


def _dense(points: Any) -> DenseBlocks:
    n_rows, n_columns = (int(size) for size in points.shape)
    return DenseBlocks((n_rows, n_columns), blocks(points))


def _anndata(embedding: Embedding, power: Power, *, all_powers: bool, graph: bool) -> AnnDataContent:
    """Lay an embedding out as AnnData."""
    names = np.arange(embedding.graph.n_rows).astype(str) if embedding.names is None else embedding.names
    powers = powers_of(embedding)
    obsm = {"X_gpe": _dense(powers[power])}
    if all_powers and len(powers) > 1:
        obsm |= {f"X_gpe_{one}": _dense(points) for one, points in powers.items()}
    obsp = {}
    uns: dict[str, object] = {"gpe": _provenance(embedding, power)}
    if graph:
        obsp = {"distances": _distances(embedding.graph), "connectivities": _connectivities(embedding.kernel)}
        uns["neighbors"] = scanpy_neighbors(embedding, "distances", "connectivities", _source(embedding))
    return AnnDataContent(names, obsm, obsp, uns, _annotations(embedding))


def _annotations(embedding: Embedding) -> Annotations | None:
    """The obs and var of the input, if they are still those of the embedding."""
    found = embedding.annotations
    problem = None if found is None else found.problem(embedding.names, embedding.graph.n_rows)
    if problem is not None:
        warn(f"obs and var of the input are left out: {problem}", GPEWarning)
        return None
    return found


def _source(embedding: Embedding) -> str | None:
    """Where the graph was made from, if that is known: X or a part of obsm."""
    precomputed = embedding.report["method"] == "precomputed"
    return None if precomputed or embedding.annotations is None else embedding.annotations.source


def _provenance(embedding: Embedding, power: Power) -> dict[str, object]:
    """How the embedding was made."""
    return {
        "power": power if isinstance(power, str) else int(power),
        "parameters": json.dumps(embedding.parameters, default=str),
        "report": json.dumps(embedding.report, default=str),
    }


def scanpy_neighbors(
    embedding: Embedding, distances: str, connectivities: str, source: str | None
) -> dict[str, object]:
    """What scanpy expects in uns of a graph: its matrices, and how it was made.

    `use_rep` is there if the graph was made from X or a part of obsm, and names that; it is never the embedding.
    """
    params: dict[str, object] = {
        "n_neighbors": embedding.graph.n_neighbors + 1,  # scanpy counts the row itself
        "method": "scalable_gpe",
        "metric": embedding.parameters["metric"],
        "random_state": int(embedding.parameters["random_state"] % 2**31),
    }
    part, _, name = (source or "").partition("/")
    if part in ("X", "obsm"):
        params["use_rep"] = name or part
    return {"connectivities_key": connectivities, "distances_key": distances, "params": params}


@dataclass(frozen=True)
class GraphMatrices:
    """Distances of the neighbour lists, and the kernel without its diagonal: scipy CSR matrices."""

    distances: Any
    connectivities: Any


def graph_matrices(embedding: Embedding) -> GraphMatrices:
    """The graph of an embedding as two scipy matrices, rows and columns in the order of the input."""
    n_rows = embedding.graph.n_rows
    return GraphMatrices(
        _to_scipy(_distances(embedding.graph), n_rows), _to_scipy(_connectivities(embedding.kernel), n_rows)
    )


def _to_scipy(matrix: CsrPieces, n_rows: int) -> Any:
    from scipy.sparse import csr_matrix

    pieces = list(matrix.pieces)
    columns, values = (np.concatenate([piece[part] for piece in pieces]) for part in (0, 1))
    return csr_matrix((values, columns, matrix.indptr), shape=(n_rows, n_rows))


# --- neighbour lists in the user's order ----------------------------------------------------------


def _distances(graph: NeighborGraph) -> CsrPieces:
    """Neighbour lists as CSR rows."""
    order = graph.storage_order
    step = graph.context.plan.exported_rows()
    lengths = np.empty(order.n_points, np.int64)
    for start, stop in ranges(order.n_points, step):
        lengths[start:stop] = (graph.lists.read(start, stop) >= 0).sum(axis=1)
    pieces = (_list_piece(graph, start, stop) for start, stop in ranges(graph.n_rows, step))
    return CsrPieces(_pointers(lengths[order.position]), pieces, np.float64 if graph.exponent else np.float32)


def _list_piece(graph: NeighborGraph, start: int, stop: int) -> Piece:
    """Neighbours and distances of some of the user's rows, columns ascending in each row."""
    order = graph.storage_order
    ids, place = np.unique(order.position[start:stop], return_inverse=True)
    lists, distances = graph.lists.take(ids)[place], graph.in_user_units(graph.list_distances.take(ids))[place]
    check_lists(lists, graph.storage_order.n_points, graph.lists.key[1])
    rows = np.where(lists >= 0, order.user_row[lists], graph.n_rows)  # absent neighbours come last
    by = np.argsort(rows, axis=1, kind="stable")
    rows, distances = np.take_along_axis(rows, by, 1), np.take_along_axis(distances, by, 1)
    present = rows < graph.n_rows
    return rows[present].astype(np.int32), distances[present]


def _pointers(lengths: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


# --- the kernel in the user's order ---------------------------------------------------------------


def _connectivities(kernel: SparseKernel) -> CsrPieces:
    """K without its diagonal as CSR rows; each piece takes one pass over the blocks of K that hold its rows."""
    edges, order = kernel.edges, kernel.storage_order
    members = _Members.of(order)
    lengths = np.empty(order.n_points, np.int64)
    for number in range(edges.n_blocks):
        first, indptr, indices, _ = edges.block(number)
        lengths[first : first + len(indptr) - 1] = members.row_lengths(indptr, indices) - 1
    pointers = _pointers(lengths[order.position])
    if pointers[-1] > max(_MOST_ENTRIES, _MOST_REPEATS * edges.nnz):
        raise ValueError(
            Message(
                f"connectivities would have {pointers[-1]:.1e} entries, because many rows are equal. Export with "
                "`graph=False`, or embed the distinct rows."
            )
        )
    return CsrPieces(pointers, _kernel_pieces(edges, members, pointers, kernel.context.plan.exported_entries()))


def _kernel_pieces(edges: Edges, members: "_Members", pointers: np.ndarray, room: int) -> Iterator[Piece]:
    """Columns and values of K in the user's order, at most about `room` entries at a time."""
    position = members.order.position
    start = 0
    while start < len(position):
        stop = max(start + 1, int(np.searchsorted(pointers, pointers[start] + room, side="right")) - 1)
        wanted = position[start:stop]
        by = np.argsort(wanted, kind="stable")
        cuts = np.searchsorted(wanted[by], np.arange(edges.n_blocks + 1) * edges.block_rows)
        columns = np.empty(int(pointers[stop] - pointers[start]), np.int32)
        values = np.empty(len(columns), np.float32)
        for number in np.flatnonzero(np.diff(cuts)):
            rows = by[cuts[number] : cuts[number + 1]]
            entries = members.entries(edges.block(int(number)), wanted[rows], rows + start)
            at = np.arange(len(entries.rows)) - _run_starts(entries.rows) + (pointers[entries.rows] - pointers[start])
            columns[at], values[at] = entries.columns, entries.values
        yield columns, values
        start = stop


def _run_starts(rows: np.ndarray) -> np.ndarray:
    """For each entry the place where the entries of its row begin.

    Examples
    --------
    >>> _run_starts(np.array([7, 7, 4, 4, 4])).tolist()
    [0, 0, 2, 2, 2]
    """
    new = np.concatenate([[True], rows[1:] != rows[:-1]])
    return np.flatnonzero(new)[np.cumsum(new) - 1] if len(rows) else np.empty(0, np.int64)


@dataclass(frozen=True)
class _Entries:
    """Entries of some rows of K in the user's order, row by row."""

    rows: np.ndarray
    columns: np.ndarray
    values: np.ndarray


@dataclass(frozen=True)
class _Members:
    """The user's rows of each point: one, or several where rows are equal."""

    order: StorageOrder
    rows: np.ndarray  # all rows of the user, sorted by point
    first: np.ndarray  # where the rows of each point begin
    counts: np.ndarray

    @classmethod
    def of(cls, order: StorageOrder) -> "_Members":
        rows, bounds = order.rows_by_point
        return cls(order, rows, bounds[:-1], np.diff(bounds))

    def row_lengths(self, indptr: np.ndarray, indices: np.ndarray) -> np.ndarray:
        """Entries of each row of a block, diagonal included, when equal rows are told apart."""
        if self.order.group is None:
            return np.diff(indptr)
        return np.diff(np.concatenate([[0], np.cumsum(self.counts[indices])])[indptr])

    def entries(self, block: Block, points: np.ndarray, rows: np.ndarray) -> _Entries:
        """Entries of some of the user's rows (and their points), without the diagonal, columns ascending."""
        first, indptr, indices, weights = block
        begin = indptr[points - first]
        lengths = indptr[points - first + 1] - begin
        at = _spans(begin, lengths)
        place, columns, values = np.repeat(np.arange(len(rows)), lengths), indices[at], weights[at]
        if self.order.group is None:
            columns = self.order.user_row[columns]  # ascends already: K is stored so
        else:
            place, columns, values = self._repeat(place, columns, values)
        owners = rows[place]
        other = columns != owners
        return _Entries(owners[other], columns[other].astype(np.int32), values[other])

    def _repeat(
        self, place: np.ndarray, points: np.ndarray, values: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """One entry for each of the user's rows of a point; rows of several points interleave and are sorted."""
        counts = self.counts[points]
        place, values = np.repeat(place, counts), np.repeat(values, counts)
        columns = self.rows[_spans(self.first[points], counts)]
        by = np.lexsort((columns, place))
        return place[by], columns[by], values[by]


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
