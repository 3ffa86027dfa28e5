"""scalable-gpe embed and estimate: a new run, and what it will cost."""

import os
import time
from typing import TYPE_CHECKING, Any

from scalable_gpe.cli.command import PROGRAM, command, progress, show, table, tell
from scalable_gpe.cli.options import (
    FILE,
    MISSING_VALUES,
    N_JOBS,
    POINTS,
    SCALE,
    SIZES,
    STORAGE_OPTIONS,
    Argument,
    count,
    count_or,
    count_or_path,
    number_or_word,
    option,
    switch_off,
    take,
)
from scalable_gpe.cli.stores import done_stages
from scalable_gpe.formatting import first_lines, in_bytes, in_time

if TYPE_CHECKING:
    import numpy as np

    from scalable_gpe.embedding import Embedding
    from scalable_gpe.storage.backends import StorageOptions


@command(
    Argument("x", "INPUT", "points: .npy, .zarr, .csv, .tsv, .parquet or .h5ad; - for none (--neighbors-file)"),
    Argument("store", "STORE", "a zarr store (path or URL), created if it does not exist"),
    *SIZES,
    STORAGE_OPTIONS,
    *POINTS,
    option("--epsilon", "E", "bandwidth: a number, auto, global, local or bgh (auto)", type=number_or_word),
    option(
        "--first-power",
        "M",
        "smallest power of --power all (auto: 8 from 50,000 rows on, else 1)",
        type=count_or("auto"),
    ),
    option("--normalization", "NAME", "bistochastic or symmetric (bistochastic)"),
    option("--axes", "NAME", "principal, or sketch for its random columns (principal)"),
    SCALE,
    MISSING_VALUES,
    option("--sketch", "NAME", "gaussian or bernoulli (gaussian)"),
    option("--metric", "NAME", "euclidean, cosine, correlation, hamming or jaccard (euclidean)"),
    option(
        "neighbors --neighbors-file",
        "FILE",
        "precomputed neighbours: scipy sparse .npz of distances, or .h5ad",
        type=FILE,
    ),
    option("--sample-weight", "FILE", "a weight above 0 for each row: .npy (1 each)", type=FILE),
    option("--random-state", "SEED", "seed of everything random (0)", type=int),
    option("--precision", "NAME", "single or double (single)"),
    option(
        "--tol", "T", "error of distances left to the polynomial or solver (1e-4, all scales 1e-2)", type=number_or_word
    ),
    option("--method", "NAME", "auto, kdtree, brute, cells or pynndescent (auto)"),
    option("--recall", "R", "share of true neighbours to aim at (0.95)", type=float),
    N_JOBS,
    switch_off("resume", "start over: replace what the store holds once the new graph and kernel are complete"),
    resumes="store",
    examples=(
        "scalable-gpe embed points.npy run.zarr --n-components 32 --power 16 64 --memory-limit 2GB",
        "scalable-gpe embed table.csv run.zarr --index name",
        "scalable-gpe embed cells.h5ad run.zarr --key obsm/X_pca",
        "scalable-gpe embed - run.zarr --neighbors-file lists.npz",
    ),
)
def embed(
    x: str,
    store: str,
    storage_options: "StorageOptions | None" = None,
    neighbors: str | None = None,
    sample_weight: str | None = None,
    **given: Any,
) -> None:
    """Embed the rows of a file into a store, in bounded memory; an interrupted run resumes."""
    import scalable_gpe as gpe
    from scalable_gpe.io.files import read_distances
    from scalable_gpe.storage.backends import is_url

    began, reading = time.time(), take(given, POINTS)
    points = None if x == "-" else gpe.read_points(x, storage_options=storage_options, **reading)
    if points is not None and points.source != x:
        tell(f"points: {points.source}")
    options = storage_options if is_url(store) else None
    if given["resume"] and (done := done_stages(store, options)):
        tell(f"resuming {store}: {', '.join(done)} {'is' if len(done) == 1 else 'are'} there")
    result = gpe.embed(
        points,
        store=store,
        storage_options=options,
        neighbors=None if neighbors is None else read_distances(neighbors),
        sample_weight=_read_weight(sample_weight),
        numeric_only=reading["numeric_only"],
        progress=progress(),
        **given,
    )
    if result.report["finished_at"] < began:
        tell("The store holds this run already, complete: nothing was computed.")
    show_result(result, store)


def _read_weight(path: str | None) -> "np.ndarray | None":
    from scalable_gpe.io.files import map_npy

    if path is None:
        return None
    if not path.endswith(".npy") or not os.path.isfile(path):
        raise ValueError(f"sample_weight must be a .npy file with one number per row; got {path!r}.")
    return map_npy(path)


def show_result(result: "Embedding", store: str) -> None:
    """Print what a run measured."""
    report, parameters = result.report, result.parameters
    title = f"{report['n_rows']:,} rows in {parameters['n_components']} dimensions, in {store}"
    lines = first_lines(report, parameters["memory_limit"])
    more = f"all figures: {PROGRAM} info {store}"
    tell(f"{table(title, lines)}\n{more}", {"store": store, "parameters": parameters, "report": report})


@command(
    Argument("n_rows", "N", "rows; or a file, for a trial with some of its rows", type=count_or_path),
    Argument("n_features", "[D]", "columns; not with a file", type=count, required=False),
    *SIZES,
    *POINTS,
    MISSING_VALUES,
    SCALE,
    examples=(
        "scalable-gpe estimate 100_000_000 16 --memory-limit 8GB",
        "scalable-gpe estimate points.npy    # seconds from a trial with some of its rows",
    ),
)
def estimate(n_rows: int | str, n_features: int | None = None, scale: str | None = None, **sizes: Any) -> None:
    """Print the memory, disk and time that a run with a store will need; they do not depend on the scale."""
    import scalable_gpe as gpe

    reading = take(sizes, POINTS)
    points = gpe.read_points(n_rows, **reading) if isinstance(n_rows, str) and n_features is None else n_rows
    plan = gpe.estimate(points, n_features, **sizes)
    shape = n_rows if n_features is None else f"{n_rows:,} rows x {n_features} columns"
    where = "on this machine, from a trial" if n_features is None else "on two cores"
    lines = [
        ("memory", in_bytes(plan["memory"])),
        ("smallest --memory-limit", in_bytes(plan["smallest_limit"])),
        ("store on disk", in_bytes(plan["disk"])),
        ("sweeps over K", f"{plan['sweeps']} in {plan['panels']} panel{'s' * (plan['panels'] > 1)} of columns"),
        ("time, roughly", f"{in_time(plan['seconds'])} {where}"),
    ]
    show(table(f"{shape} to {sizes['n_components']} dimensions", lines), plan)
