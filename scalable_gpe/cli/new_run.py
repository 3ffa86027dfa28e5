"""scalable-gpe embed and estimate: a new run, and what it will cost."""

import os
import time
from typing import TYPE_CHECKING, Any

from scalable_gpe.cli.console import show_json, show_pairs, tell
from scalable_gpe.cli.options import ConsoleOptions, EmbedOptions, EstimateOptions
from scalable_gpe.cli.points import read_points
from scalable_gpe.formatting import in_bytes, in_time, report_lines

if TYPE_CHECKING:
    import numpy as np

    from scalable_gpe.embedding import Embedding
    from scalable_gpe.io.files import Points


def embed(options: EmbedOptions) -> None:
    """Embed the rows of a file into a store."""
    import scalable_gpe as gpe
    from scalable_gpe.storage.backends import is_url

    began = time.time()
    result = gpe.embed(
        _read_points(options),
        n_components=options.n_components,
        n_neighbors=options.n_neighbors,
        epsilon=options.epsilon,
        power=options.one_or_several_powers,
        horizon=options.horizon,
        first_power=options.first_power,
        n_sketch=options.n_sketch,
        normalization=options.normalization,
        sketch=options.sketch,
        metric=options.metric,
        neighbors=_read_neighbors(options),
        random_state=options.random_state,
        precision=options.precision,
        tol=options.tol,
        method=options.method,
        recall=options.recall,
        store=options.store,
        storage_options=options.storage_options if is_url(options.store) else None,
        memory_limit=options.memory_limit,
        n_jobs=options.n_jobs,
        resume=options.resume,
        progress=options.progress,
        sample_weight=_read_weight(options),
    )
    if result.report["finished_at"] < began:
        tell(options, "The store holds this run already, complete: nothing was computed.")
    show_result(options, result, options.store)


def _read_points(options: EmbedOptions) -> "Points | None":
    if options.input == "-":
        return None
    points = read_points(options.input, options, options.storage_options)
    if points.source != options.input:
        tell(options, f"points: {points.source}")
    return points


def _read_neighbors(options: EmbedOptions) -> Any:  # a sparse matrix of scipy, which has no types
    from scalable_gpe.io.distances import read_distances

    return None if options.neighbors_file is None else read_distances(options.neighbors_file)


def _read_weight(options: EmbedOptions) -> "np.ndarray | None":
    from scalable_gpe.errors import Message
    from scalable_gpe.io.npy import map_npy

    path = options.sample_weight
    if path is None:
        return None
    if not path.endswith(".npy") or not os.path.isfile(path):
        raise ValueError(Message(f"`sample_weight` must be a .npy file with one number per row; got {path!r}."))
    return map_npy(path)


def show_result(options: ConsoleOptions, result: "Embedding", store: str) -> None:
    """Print what a run measured."""
    if options.json:
        show_json({"store": store, "parameters": result.parameters, "report": result.report})
    elif not options.quiet:
        shape = f"{result.report['n_rows']:,} rows in {result.parameters['n_components']} dimensions"
        show_pairs(f"{shape}, in {store}", report_lines(result.report, result.parameters["memory_limit"]))


def estimate(options: EstimateOptions) -> None:
    """Print what a run will cost."""
    import scalable_gpe as gpe

    plan = gpe.estimate(
        options.n_rows,
        options.n_features,
        n_neighbors=options.n_neighbors,
        n_components=options.n_components,
        power=options.one_or_several_powers,
        horizon=options.horizon,
        n_sketch=options.n_sketch,
        memory_limit=options.memory_limit,
    )
    if options.json:
        show_json(plan)
        return
    shape = options.n_rows if options.n_features is None else f"{options.n_rows:,} rows x {options.n_features} columns"
    where = "on this machine, from a trial" if options.n_features is None else "on two cores"
    show_pairs(
        f"{shape} to {options.n_components} dimensions",
        [
            ("memory", in_bytes(plan["memory"])),
            ("smallest --memory-limit", in_bytes(plan["smallest_limit"])),
            ("store on disk", in_bytes(plan["disk"])),
            ("sweeps over K", f"{plan['sweeps']} in {plan['panels']} panel{'s' * (plan['panels'] > 1)} of columns"),
            ("time, roughly", f"{in_time(plan['seconds'])} {where}"),
        ],
    )
