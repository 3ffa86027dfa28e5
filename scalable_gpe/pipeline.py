"""From points to embedding: the whole pipeline, in the order in which it runs.

X -> NeighborGraph -> SparseKernel -> HeatKernel -> Embedding
"""

from dataclasses import replace
from typing import Any

import numpy as np

from scalable_gpe.checks import ALL, Power, check_row_values, in_order_of
from scalable_gpe.embedding import Embedding
from scalable_gpe.errors import GPEWarning, warn
from scalable_gpe.execution.cluster import check_client, shared_store, workers_for
from scalable_gpe.execution.context import Context, complete, make_context, open_store
from scalable_gpe.execution.memory_plan import MemoryPlan
from scalable_gpe.execution.process import share_freed_memory
from scalable_gpe.execution.resources import ProblemSize, live_panels, measure_resources
from scalable_gpe.execution.workers import Progress, Workers, count_jobs
from scalable_gpe.graph.build import GraphStage, check_neighbors
from scalable_gpe.graph.neighbors import NeighborGraph
from scalable_gpe.graph.precomputed import PRECOMPUTED, distance_lists
from scalable_gpe.heat.kernel import KernelStage, SparseKernel
from scalable_gpe.heat.normalization import SINKHORN_PRODUCTS, SINKHORN_TOL, HeatKernel, HeatStage
from scalable_gpe.heat.sample_weight import check_sample_weight, weight_checksum
from scalable_gpe.io.labels import Labels
from scalable_gpe.io.rows import InputRows, open_rows
from scalable_gpe.multilevel.horizon import choose_first_power
from scalable_gpe.parameters import Parameters, check_parameters
from scalable_gpe.report import Report, make_report
from scalable_gpe.runs import (
    RunLog,
    check_same_input,
    check_writable,
    choose_run,
    embedding_names,
    nothing_left,
    open_sound,
    opened,
    with_repairs,
)
from scalable_gpe.sketch.gaussian_process import SketchResult, SketchStage, warn_if_few
from scalable_gpe.storage.backends import StorageOptions, check_options
from scalable_gpe.storage.records import Keys, heat_name, kernel_name, run_key, to_json
from scalable_gpe.storage.store import Table


def embed(
    X: Any = None,
    *,
    n_components: int = 32,
    n_neighbors: int | None = None,
    epsilon: Any = "auto",
    power: Any = "all",
    horizon: Any = "auto",
    first_power: Any = "auto",
    n_sketch: int | None = None,
    axes: str = "principal",
    scale: str | None = None,
    missing: str = "error",
    numeric_only: bool = False,
    client: Any = None,
    normalization: str = "bistochastic",
    sketch: str = "gaussian",
    metric: str = "euclidean",
    neighbors: Any = None,
    random_state: Any = 0,
    precision: str = "single",
    tol: Any = "auto",
    method: str = "auto",
    recall: float = 0.95,
    store: Any = None,
    storage_options: StorageOptions | None = None,
    memory_limit: Any = None,
    n_jobs: int | None = None,
    resume: bool = True,
    progress: Any = None,
    sample_weight: Any = None,
) -> Embedding:
    r"""Gaussian process embedding of points: straight-line distances that approximate diffusion distances.

    .. math::
        K_{ij} = \exp(-|x_i - x_j|^2 / \epsilon_{ij}), \quad A = S K S, \quad Y = A^p G / \sqrt{k}, \quad
        E|y_i - y_j|^2 = |(A^p)_i - (A^p)_j|^2

    with :math:`\epsilon_{ij} = \sigma_i \sigma_j`, or one :math:`\epsilon` for all pairs. The result is a function of
    data, parameters and random_state alone; memory_limit, n_jobs and store change where it is computed and how fast,
    but not a single bit of it.

    Parameters
    ----------
    X : array-like (N, d), optional
        numpy, memory-mapped, zarr, dask or scipy sparse array, DataFrame, AnnData object (in memory, backed or lazy;
        ``obsm["X_pca"]`` if it is there, else ``X``), a path (.npy, .zarr, .csv, .parquet, .h5ad), a URL (.npy, .zarr)
        or the result of `read_points`. In any unit from 1e-120 to 1e120. Not needed if `neighbors` is given.
    n_components : int
        Dimension k of the embedding; distances have a relative standard deviation of sqrt(2/k) / 2, and below 8 a
        warning says so. For fewer coordinates pass `n_sketch`, or take the first columns of the result.
    n_neighbors : int, optional
        Number of other points in each neighbour list; min(16, N - 1) by default.
    epsilon : float or {"auto", "global", "local", "bgh"}
        Bandwidth of the kernel, in squared units of X. "global" and "bgh" choose one epsilon for all rows; "local"
        gives each row its own length scale sigma, proportional to the distance to its seventh neighbour. "auto" means
        "global", or "local" if one epsilon would leave more than 6 % of the rows under-connected.
    power : "all", int, or a sequence of them
        "all" is the sum of all powers from the first power m on, :math:`f(A) = A^m (I - c A)^{-1}` with
        :math:`c = 1 - 1/T`, in place of :math:`A^p`: all scales at once. An int p is one scale, fine if small, coarse
        if large. Several in one run share their products, and ``points`` is then a dict.
    horizon : int or "auto"
        The horizon T of "all". "auto" takes the smallest power of two from eight relaxation times of the slowest shape
        of the data on; groups of less than 1 % of the rows do not count.
    first_power : int or "auto"
        The first power m of "all". "auto" takes 8 from 50,000 rows on, and 1 below. With 1 and a long horizon the sum
        is that of diffusion pseudotime, :math:`A + A^2 + \dots`.
    n_sketch : int, optional
        Compute this many columns and keep the n_components principal axes of them: ordered coordinates, and less
        noise in what is kept. By default n_components columns are computed, and all axes kept.
    axes : {"principal", "sketch"}
        "principal" rotates the points to principal axes: the same distances, columns ordered by their variance, so that
        the first two are the plane for pictures. Isolated rows, and components of less than 1 % of the rows, do not
        determine the axes. "sketch" keeps the random columns of the formula: then a run with fewer components has the
        first columns of one with more, and `gp_embedding` returns the same.
    scale : {None, "standard", "robust"}
        Divide each column by its standard deviation, or by the interquartile range (of up to 65,536 rows at even
        steps), so that columns in different units count alike; `transform` does the same with new rows. epsilon and
        distances are then in these units. Only for the metric "euclidean". A warning names a column that has more than
        90 % of the variance.
    missing : {"error", "drop"}
        What to do with rows that have missing values (NaN). "drop" leaves them out: the points are the other rows,
        whose numbers are in `kept_rows`; names and exports follow them.
    numeric_only : bool
        Take only the columns of a table that are numbers or bools; by default others are an error.
    client : None, False or distributed.Client
        Whose workers run the loops. None takes the active client if some of its workers are on other hosts, and X is a
        dask collection or has 1,000,000 rows or more; else, and with False, threads of this process do the work, which
        are faster then. A given client is always used. The report says in ``cluster`` what was used, and why.
    normalization : {"bistochastic", "symmetric"}
        How K is scaled to A.
    sketch : {"gaussian", "bernoulli"}
        Entries of the random matrix G.
    metric : {"euclidean", "cosine", "correlation", "hamming", "jaccard"}
        The distance of rows. Cosine is euclidean on rows scaled to length 1, correlation that of centred rows. For
        rows of 0 and 1, the squared distance is the share of differing entries: among all (hamming), or among those
        that are 1 in either row (jaccard, by the methods "brute" and, above 20,000 rows, "pynndescent" only, whose
        lists depend on the number of threads; without transform).
        "precomputed": X holds distances, of all pairs (N x N) or sparse ones of neighbours; new rows are then
        given by their distances to the training rows. Pass other metrics so, or through `neighbors`.
    neighbors : (indices, distances) or sparse matrix of distances, optional
        Precomputed neighbour lists, used instead of a search.
    random_state : int, None or numpy generator
        Seed of all random numbers.
    precision : {"single", "double"}
        Floating-point type of the panels.
    tol : float or "auto"
        Largest relative error of distances that the polynomial or the solver may cause; by default 1e-4 for powers and
        1e-2 for all scales.
    method : {"auto", "kdtree", "brute", "cells", "pynndescent"}
        The neighbour search.
    recall : float
        Share of true neighbours to aim for; a lower measured share gives a warning. The `missing_weight` of the
        report says what the missing ones cost.
    store : path or URL, optional
        A zarr store, "run.zarr" or "s3://bucket/run.zarr": results stream there, and a second call resumes where
        the first one stopped.
    storage_options : dict, optional
        Options of fsspec for the URLs of `store` and `X`: credentials, endpoint. Never written to the store.
    memory_limit : int or str, optional
        Largest resident memory of each process, interpreter and X included; "2GB" is 2e9 bytes.
    n_jobs : int, optional
        Number of threads; all cores by default.
    resume : bool
        Use what the store already holds; False starts over.
    progress : None, False or callable(stage, done, total)
        A bar in a terminal or notebook by default.
    sample_weight : array-like (N,), optional
        Weight of each row, above 0. A row of weight 3 counts as three equal rows: the same A up to scale, the same
        expected distances. Weights of equal rows are added.

    Returns
    -------
    Embedding

    Examples
    --------
    >>> import scalable_gpe as gpe
    >>> result = gpe.embed(gpe.datasets.torus(1000), n_components=8, power=16)
    >>> result.points.shape, result.report["converged"]
    ((1000, 8), True)
    """
    parameters = check_parameters(locals())
    _check_where(X, store, storage_options, n_jobs, resume)
    check_client(client)
    if random_state is None and store is not None:
        warn(
            "random_state=None draws a new seed at every call: this run cannot be resumed, and the store grows "
            "each time. Pass a number.",
            GPEWarning,
        )
    share_freed_memory(parameters.memory_limit)  # before X is opened: threads that have begun keep theirs
    bars = Progress(progress)
    if parameters.metric == PRECOMPUTED:
        if X is None or neighbors is not None:
            raise ValueError("metric='precomputed' needs the distances as X, without neighbors=.")
        X, neighbors = None, distance_lists(X, parameters.n_neighbors)
    rows = None if X is None else open_input(X, parameters, storage_options)
    if neighbors is not None and (scale is not None or (rows is not None and rows.dropped is not None)):
        raise ValueError(
            "scale and missing='drop' change the rows of a search; neighbors are lists of rows as they are."
        )
    lists = check_neighbors(neighbors, rows, parameters.n_neighbors)
    parameters = parameters.for_rows(None if lists is not None or rows is None else rows.n_rows)
    source = GraphStage(parameters.search, rows, lists, is_default=n_neighbors is None)
    weight = check_sample_weight(_of_kept(sample_weight, rows), source.n_rows)
    parameters = replace(parameters, sample_weight=weight_checksum(weight))
    warn_if_few(parameters.sketching)
    has_store = store is not None
    with workers_for(
        client, n_jobs, bars, n_rows=source.n_rows, is_dask=source.is_dask, has_store=has_store
    ) as workers:
        source = source.scaled(workers)
        store = shared_store(workers, store)
        plan = plan_memory(parameters, source, workers, store)
        with opened(store, storage_options) as arrays:
            stage, context = source.numbered(arrays, again=not resume), Context(arrays, workers, plan)
            with nothing_left(arrays, None if resume else stage.name):
                return with_repairs(arrays, lambda: run_stages(stage, parameters, context, weight, resume=resume))


def run_stages(
    source: GraphStage, parameters: Parameters, context: Context, weight: np.ndarray | None, *, resume: bool = True
) -> Embedding:
    """Run the pipeline: each stage finds its result in the store, or makes it."""
    keys = _make_keys(source, parameters)
    if resume:
        check_same_input(context.store, keys)
    log = RunLog(context, keys, parameters, starts_over=not resume)
    if log.finished is None:
        check_writable(context.store)
    with log.stage("graph"):
        graph = complete(source, context)
    with log.stage("kernel"):
        kernel = complete(KernelStage(graph, parameters.epsilon), context)
    with log.stage("heat"):
        heat = complete(HeatStage(kernel, parameters.normalization, sample_weight=weight), context)
    with log.stage("sketch"):
        sketch = complete(SketchStage(heat, parameters.sketching, keys.sketch), context)
    labels = Labels.of(source.rows)
    if not context.store.read_only:
        labels.save(context.store)  # also of a finished run, whose rows had none when it was made
    whole = sketch.has_axes(parameters.sketching, context)
    if log.finished is not None and log.finished.report is not None and whole:
        log.use(log.finished)
        arrays = log.finished.arrays
        tables = {power: open_sound(context.store, arrays[power]) for power in parameters.powers}
        return _embedding(heat, tables, sketch, parameters, log.finished.report, labels, keys.run)
    with log.stage("write"):
        arrays = embedding_names(context.store, keys.run, parameters.powers)
        for power, name in arrays.items():
            sketch.publish(heat, parameters.sketching, power, context, name, keys.run)
        tables = {power: context.store.open_table(name) for power, name in arrays.items()}
    # of a graph that was made when other columns were left out
    remarks = [warn(text, GPEWarning) for text in source.remarks if text not in graph.metadata.remarks]
    report = make_report(graph, kernel, heat, sketch, parameters, tables, log.seconds, context.plan.limit_warning())
    report = replace(report, warnings=(*remarks, *report.warnings))
    log.finish(report, arrays)
    return _embedding(heat, tables, sketch, parameters, report, labels, keys.run)


def open_embedding(
    store: Any,
    X: Any = None,
    *,
    run: str | None = None,
    storage_options: StorageOptions | None = None,
    progress: Any = False,
) -> Embedding:
    """Open a finished run of a store.

    Parameters
    ----------
    store : path or URL
        The store of an earlier ``embed(..., store=...)``.
    X : array-like, optional
        The points, if the store does not hold them.
    run : str, optional
        Name of the run as ``scalable-gpe info`` lists it, or the beginning of the name. By default the run that `embed`
        last used.
    storage_options : dict, optional
        As in `embed`.
    progress : None, False or callable(stage, done, total)
        As in `embed`, for later work with the embedding.

    Returns
    -------
    Embedding
        The embedding of that run.
    """
    arrays = open_store(store, storage_options, read_only=True)
    run_name, record = choose_run(arrays, run, str(store))
    parameters, keys = record.parameters, record.keys
    needs_no_rows = X is None or parameters.metric == PRECOMPUTED
    rows = None if needs_no_rows else open_input(X, parameters, storage_options)
    report = record.report
    assert report is not None  # a finished run has one
    columns, powers = parameters.sketching.n_columns, parameters.powers
    size = ProblemSize(report.n_rows, 0, report.n_neighbors, columns, len(powers), n_live=live_panels(powers))
    context = make_context(arrays, Workers(progress=Progress(progress)), size)
    graph = NeighborGraph.open(context, keys.graph, rows)
    kernel = SparseKernel.open(context, keys.kernel, graph)
    heat = HeatKernel.open(context, keys.heat, kernel)
    sketch = complete(SketchStage(heat, parameters.sketching, keys.sketch, is_known=True), context)
    tables: dict[Power, Table] = {power: arrays.open_table(record.arrays[power]) for power in parameters.powers}
    return _embedding(heat, tables, sketch, parameters, report, Labels.stored(arrays, rows), run_name)


def _embedding(
    heat: HeatKernel,
    tables: dict[Power, Table],
    sketch: SketchResult,
    parameters: Parameters,
    report: Report,
    labels: Labels,
    run: str,
) -> Embedding:
    points, graph = {power: table.array for power, table in tables.items()}, heat.kernel.graph
    assert graph is not None  # only a kernel from the user's own matrix has none
    for stage, result in (("graph", graph), ("kernel", heat.kernel), ("heat", heat)):
        if stage in report.stage_seconds:
            heat.context.seconds[result.name] = report.stage_seconds[stage]  # the same as in the report
    return Embedding(
        points=points if parameters.several else points[parameters.powers[0]],
        graph=graph,
        kernel=heat.kernel,
        heat=heat,
        parameters=parameters.as_dict(),
        report=report.as_dict(),
        settings=parameters,
        names=labels.names,
        feature_names=labels.feature_names,
        annotations=labels.annotations,
        _columns=sketch.columns,
        _axes=sketch.axes(parameters.sketching, heat.context),
        _run=run,
    )


# --- before the run -------------------------------------------------------------------------------


def open_input(X: Any, parameters: Parameters, storage_options: StorageOptions | None) -> InputRows:
    """The rows of an input that are embedded."""
    return open_rows(
        X,
        parameters.metric,
        storage_options=storage_options,
        missing=parameters.missing,
        numeric_only=parameters.numeric_only,
    )


def _of_kept(values: Any, rows: InputRows | None) -> Any:
    """Of one value for each row of the input, those of the rows that are kept."""
    if rows is None or values is None:
        return values
    dropped = rows.dropped
    values = in_order_of(rows.names, values, "sample_weight", dropped=dropped)
    return values if dropped is None else check_row_values(values, rows.n_rows, "sample_weight", dropped)


def _check_where(X: Any, store: Any, storage_options: StorageOptions | None, n_jobs: int | None, resume: bool) -> None:
    """Check the arguments that say where and how to compute."""
    check_options({} if isinstance(X, InputRows) else storage_options, store, X)
    if not isinstance(resume, bool):
        raise TypeError(f"resume must be True or False; got {resume!r}.")
    count_jobs(n_jobs)


def plan_memory(parameters: Parameters, source: GraphStage, workers: Workers, store: Any) -> MemoryPlan:
    """Make the memory plan of a run; refuse a limit that is too small."""
    size = ProblemSize(
        n_rows=source.n_rows,
        n_features=source.n_features,
        n_neighbors=source.n_neighbors,
        n_components=parameters.sketching.n_columns,
        n_powers=len(parameters.powers),
        n_live=live_panels(parameters.powers),
        itemsize=parameters.sketching.sketch.dtype.itemsize,
        weighted=parameters.sample_weight is not None,
    )
    resources = measure_resources(parameters.memory_limit, workers, store, resident_input=source.resident)
    plan = MemoryPlan(size, resources)
    plan.check()
    if (text := plan.limit_warning()) is not None:
        warn(text, GPEWarning)
    return plan


def _make_keys(source: GraphStage, parameters: Parameters) -> Keys:
    """Names of the results: each depends on its own parameters and on the result before it."""
    kernel = kernel_name(source.name, parameters.epsilon)
    heat = heat_name(kernel, parameters.normalization, SINKHORN_TOL, SINKHORN_PRODUCTS, parameters.sample_weight)
    sketch = parameters.sketching.name(heat)
    horizon = (parameters.horizon,) if ALL in parameters.powers else ()
    rotated = ("axes", parameters.axes) if parameters.sketching.is_rotated else ()
    wide = rotated if parameters.n_sketch is None else ("n_sketch", parameters.n_sketch)
    first = choose_first_power(parameters.first_power, source.n_rows)
    later = ("first_power", first) if ALL in parameters.powers and first > 1 else ()
    run = run_key(sketch, parameters.n_components, parameters.power, *horizon, *wide, *later)
    return Keys(to_json(source.source), source.name, kernel, heat, sketch, run)
