"""Embeddings for other tools: points, neighbour lists and kernel in the user's order, written block by block."""

import json
import logging
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from scalable_gpe.checks import ALL, Power, check_choice
from scalable_gpe.embedding import Embedding
from scalable_gpe.errors import GPEWarning, warn
from scalable_gpe.graph.neighbors import NeighborGraph
from scalable_gpe.graph_matrices import connectivities, distances
from scalable_gpe.io.export import (
    FORMATS,
    TABLES,
    AnnDataContent,
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
from scalable_gpe.transform.new_points import warn_if_far

_RUN_ROWS = 2**10  # whose coordinates tell an embedding from others


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
        write_anndata(unfinished, _anndata(embedding, chosen, graph=graph, all_powers=power is None))
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
        return RowLabels("name", rows.names)
    if getattr(rows, "dropped", None) is None:
        return None
    n_left = rows.graph.n_rows if isinstance(rows, Embedding) else rows.n_rows
    return RowLabels("row", np.delete(np.arange(n_left + len(rows.dropped)), rows.dropped))


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


def _anndata(embedding: Embedding, power: Power, *, graph: bool, all_powers: bool) -> AnnDataContent:
    """Lay an embedding out as AnnData, with its graph or without."""
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
    return AnnDataContent(names.astype(str), obsm, obsp, uns, _annotations(embedding), obs)


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
