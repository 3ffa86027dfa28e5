"""From points to embedding: the whole line, in the order in which it runs.

X -> NeighborGraph -> SparseKernel -> HeatKernel -> Embedding
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from scalable_gpe import checks
from scalable_gpe.errors import DamageError, GPEWarning, StoreError, logger, warn
from scalable_gpe.execution import memory_plan
from scalable_gpe.execution.cluster import shared_store, workers_for
from scalable_gpe.execution.context import Context, locked, map_large_arrays, open_store
from scalable_gpe.execution.progress import Progress
from scalable_gpe.execution.workers import Workers, count_jobs, parse_bytes
from scalable_gpe.formatting import plain
from scalable_gpe.graph.duplicates import fingerprint
from scalable_gpe.graph.neighbors import (
    NeighborGraph,
    check_n_neighbors,
    check_parameters,
    known_graph,
    make_graph,
    open_graph,
    precomputed_graph,
)
from scalable_gpe.graph.precomputed import check_lists, fingerprint_lists
from scalable_gpe.heat.bandwidth import check_epsilon
from scalable_gpe.heat.kernel import SparseKernel, make_kernel, open_kernel
from scalable_gpe.heat.normalization import NORMALIZATIONS, HeatKernel, make_heat, open_heat
from scalable_gpe.io.rows import InputRows, Rows, open_rows
from scalable_gpe.planning import check_limit
from scalable_gpe.report import make_report, versions, with_int_keys
from scalable_gpe.sketch.gaussian_process import as_array, check_sketch, make_columns, make_plans, publish
from scalable_gpe.sketch.powers import Sketch
from scalable_gpe.spectral.power_choice import choose_power
from scalable_gpe.storage.backends import check_options
from scalable_gpe.storage.protocol import ranges
from scalable_gpe.transform.new_points import NewPoints, transform

_SINKHORN_TOL, _SINKHORN_PRODUCTS = 1e-8, 1000
_GROUPS = ("runs", "embedding", "sketch", "heat", "kernel", "graph", "names")
_SIZES = ("n_rows", "n_features", "shape")  # what a fingerprint says in plain numbers
_REPAIRS = 8  # damaged stages that one call makes again


@dataclass(frozen=True)
class Embedding:
    """An embedding with everything that led to it.

    Attributes
    ----------
    points : array (N, k) of float32, or {power: array}
        numpy, or zarr when stored; a dict when `power` was a sequence. Rows are in the order of the input.
    graph, kernel, heat : NeighborGraph, SparseKernel, HeatKernel
        The stages.
    parameters, report : dict
        What was asked for, and what was measured on the way.
    names : array of str or None
        Labels of the rows, when the input had any.
    """

    points: Any
    graph: NeighborGraph
    kernel: SparseKernel
    heat: HeatKernel
    parameters: dict[str, Any]
    report: dict[str, Any]
    names: np.ndarray | None = None
    _columns: dict[int, Any] = field(default_factory=dict, repr=False)

    def transform(self, X_new: Any, *, power: int | None = None, storage_options: dict[str, Any] | None = None) -> Any:
        r"""Place new rows in the embedding.

        .. math:: y(x) = a(x, \cdot)\, A^{p-1} G / \sqrt{k}

        The row a(x, .) is the one that x would have had in training; a training row gets its own embedding. Each row
        is placed by itself, so a row alone and in a batch has the same bytes.

        Parameters
        ----------
        X_new : array-like (M, d)
            Any input that `embed` takes, with the features of the training rows. Read batch by batch.
        power : int, optional
            Which power of an embedding of several; by default all of them, as a dict.
        storage_options : dict, optional
            As in `embed`, where X_new is a URL.

        Returns
        -------
        ndarray (M, k) of float32, or {power: ndarray}

        Examples
        --------
        >>> import scalable_gpe as gpe
        >>> torus = gpe.datasets.torus(1100, random_state=1)
        >>> result = gpe.embed(torus[:1000], n_components=8)
        >>> result.transform(torus[1000:]).shape
        (100, 8)
        """
        return transform(self, X_new, power, storage_options)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_new_points"}

    @cached_property
    def _new_points(self) -> NewPoints:
        """What `transform` keeps from one call to the next."""
        return NewPoints(self.graph, self.heat, self.parameters["metric"])

    def __repr__(self) -> str:
        n_rows, power = self.report["n_rows"], self.report["power"]
        return f"Embedding of {n_rows} rows in {self.parameters['n_components']} dimensions, power {power}"


def embed(
    X: Any = None,
    *,
    n_components: int = 16,
    n_neighbors: int | None = None,
    epsilon: Any = "auto",
    power: Any = 16,
    normalization: str = "bistochastic",
    sketch: str = "gaussian",
    metric: str = "euclidean",
    neighbors: Any = None,
    random_state: Any = 0,
    precision: str = "single",
    tol: float = 1e-4,
    method: str = "auto",
    recall: float = 0.95,
    store: Any = None,
    storage_options: dict[str, Any] | None = None,
    memory_limit: Any = None,
    n_jobs: int | None = None,
    resume: bool = True,
    progress: Any = None,
) -> Embedding:
    r"""Gaussian process embedding of points: straight-line distances that approximate diffusion distances.

    .. math::
        K_{ij} = \exp(-|x_i - x_j|^2 / \epsilon_{ij}), \quad A = S K S, \quad Y = A^p G / \sqrt{k}, \quad
        E|y_i - y_j|^2 = |(A^p)_i - (A^p)_j|^2

    with :math:`\epsilon_{ij} = \sigma_i \sigma_j`, or one :math:`\epsilon` for all pairs. The result is a function of
    data, parameters and random_state alone; memory_limit, n_jobs and store change where and how fast it is computed,
    not a single bit of it.

    Parameters
    ----------
    X : array-like (N, d), optional
        numpy, memory-mapped, zarr, dask or scipy sparse array, DataFrame, a path (.npy, .zarr, .csv, .parquet, .h5ad),
        a URL (.npy, .zarr) or what `read_points` gives. May be left out when `neighbors` are given.
    n_components : int
        Dimension k of the embedding; distances have a relative standard deviation of sqrt(2/k) / 2.
    n_neighbors : int, optional
        Other points in each neighbour list; min(32, N - 1) by default.
    epsilon : float or {"auto", "global", "local", "bgh"}
        Bandwidth of the kernel, in squared units of X. "global" and "bgh" choose one epsilon for all rows; "local"
        gives each row a length scale sigma of its own, proportional to the distance of its seventh neighbour. "auto" is
        "global", or "local" where one epsilon would leave more than 6 % of the rows lonely.
    power : int, sequence of int, or "auto"
        The power p of A; several in one run share their products, and ``points`` is then a dict. "auto" takes the
        smallest power of two at which neighbours stand out of the noise of the sketch.
    normalization : {"bistochastic", "symmetric"}
        How K is scaled to A.
    sketch : {"gaussian", "bernoulli"}
        Entries of the random matrix G.
    metric : {"euclidean", "cosine"}
        Cosine is euclidean on rows of length 1; others come through `neighbors`.
    neighbors : (indices, distances) or sparse matrix of distances, optional
        Neighbour lists in place of a search.
    random_state : int, None or numpy generator
        Seed of everything random.
    precision : {"single", "double"}
        Type of the panels that are multiplied.
    tol : float
        Relative error of distances that the polynomial may make.
    method : {"auto", "kdtree", "brute", "cells", "pynndescent"}
        The neighbour search.
    recall : float
        Share of true neighbours to aim at.
    store : path or URL, optional
        A zarr store, "run.zarr" or "s3://bucket/run.zarr": results stream there, and a second call goes on where the
        first one stopped.
    storage_options : dict, optional
        What fsspec needs to reach the URLs of `store` and `X`: credentials, endpoint. Never written to the store.
    memory_limit : int or str, optional
        Resident memory of this process, interpreter and X included; "2GB" is 2e9 bytes.
    n_jobs : int, optional
        Threads; all cores by default.
    resume : bool
        Use what the store already holds; False starts over.
    progress : None, False or callable(stage, done, total)
        A bar in a terminal or notebook by default.

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
    asked = _check(locals())
    rows = None if X is None else open_rows(X, asked["metric"], storage_options=storage_options)
    if rows is None and neighbors is None:
        raise ValueError("embed needs X, or neighbors=(indices, distances) in its place; got neither.")
    if neighbors is not None:
        neighbors = check_lists(neighbors, rows.n_rows if rows else None, asked["n_neighbors"])
    with workers_for(n_jobs, Progress(progress)) as workers:
        store = shared_store(workers, store)
        shape = _shape(asked, rows, neighbors, store, workers)
        given = asked["memory_limit"] or workers.memory_limit()
        limit = check_limit(given, shape, count_jobs(n_jobs))
        if limit is not None:
            map_large_arrays()
        reserved = int(1.25 * asked["n_components"] * memory_plan.column(shape)) + memory_plan.blocks_in_flight(
            shape, count_jobs(n_jobs)
        )
        with _opened(store, storage_options, resume) as store, _nothing_left(store):
            return _repaired(store, lambda: _embed(rows, neighbors, asked, Context(store, workers, limit, reserved)))


def _embed(rows: Rows | None, neighbors: Any, asked: dict[str, Any], context: Context) -> Embedding:
    """The line itself: each stage is taken from the home when it is there, else made."""
    keys = _keys(rows, neighbors, asked)
    _check_input(context, keys)
    log = _Log(context, keys, asked)
    with log.stage("graph"):
        graph = _graph(rows, neighbors, asked, context, keys["graph"])
    with log.stage("kernel"):
        kernel = _stage(context, keys["kernel"], lambda name: make_kernel(graph, asked["epsilon"], context, name))
        kernel = kernel or open_kernel(graph, context, keys["kernel"])
    with log.stage("heat"):
        heat = _stage(
            context,
            keys["heat"],
            lambda name: make_heat(kernel, asked["normalization"], _SINKHORN_TOL, _SINKHORN_PRODUCTS, context, name),
        )
        heat = heat or open_heat(kernel, context, keys["heat"])
    how, curve = Sketch(asked["sketch"], asked["random_state"], asked["precision"]), None
    with log.stage("sketch"):
        if asked["power"] == "auto":
            power, curve = choose_power(heat, asked["n_components"], how.seed, context, f"{keys['sketch']}/curve")
            asked = {**asked, "powers": (power,)}
        plans = make_plans(heat, how, asked["powers"], asked["tol"], context, keys["sketch"])
        columns = make_columns(heat, how, asked["n_components"], plans, context, keys["sketch"])
    names = rows.names if rows else None
    if log.finished is not None:
        log.use()
        tables = {power: context.store.open_table(log.finished["arrays"][str(power)]) for power in asked["powers"]}
        for power, table in tables.items():
            _check_sound(table, log.finished["arrays"][str(power)])
        report = with_int_keys(log.finished["report"])
        return _embedding(graph, kernel, heat, tables, columns, asked, report, names)
    with log.stage("write"):
        arrays = _arrays(context, keys["run"], asked["powers"])
        tables = {
            power: publish(heat, columns[power], asked["n_components"], context, arrays[power])
            for power in asked["powers"]
        }
        _save_names(rows, context)
    report = make_report(graph, kernel, heat, plans, asked, curve, tables, context)
    log.finish(report, arrays, asked)
    return _embedding(graph, kernel, heat, tables, columns, asked, report, names)


def _check_sound(table: Any, name: str) -> None:
    """Read a published array back; what is damaged is published again."""
    damaged = [start for start in range(0, table.shape[0], table.shard_rows) if not table.has(start)]
    if damaged:
        raise DamageError(f"array {name!r} is damaged: rows {damaged[0]} and on do not read back", name)


def _compare_versions(stored: dict[str, str]) -> None:
    """Warn where a run goes on with other libraries than it began with."""
    now = versions()
    changed = [f"{name} {stored[name]} -> {now.get(name)}" for name in stored if stored[name] != now.get(name)]
    if changed:
        warn(f"the store was written with other versions ({', '.join(changed)}): bytes may differ.", GPEWarning)


class _Log:
    """The record of a run in its home: what was asked for, how far it is, the seconds that each stage took.

    It is first written after the graph stage, which looks at every row and may refuse the input. `finished` are the
    facts of a run that is complete already; then nothing is written.
    """

    def __init__(self, context: Context, keys: dict[str, Any], asked: dict[str, Any]) -> None:
        self._context, self._keys, self._asked = context, keys, asked
        self._name = f"runs/{keys['run']}"
        metadata = context.store.metadata(self._name) if context.store.stored else None
        self.finished = metadata if metadata and metadata["finished"] else None
        _compare_versions((metadata or {}).get("versions", {}))
        context.seconds = dict((metadata or {}).get("seconds", {}))

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time one stage, and write down that it is done."""
        began = time.perf_counter()
        yield
        self._context.seconds[name] = self._context.seconds.get(name, 0.0) + time.perf_counter() - began
        if self.finished is None:
            self._write({"finished": False})

    def use(self) -> None:
        """Write down that this run, which was finished already, was asked for again."""
        if self._context.store.stored and self.finished is not None:
            metadata = {**self.finished, "used_at": time.time()}
            self._context.store.commit(self._name, _plain(metadata), arrays=list(metadata["arrays"].values()))

    def finish(self, report: dict[str, Any], arrays: dict[int, str], asked: dict[str, Any]) -> None:
        """Write down that all is done."""
        self._asked = asked
        self._write({"finished": True, "report": report, "arrays": arrays}, list(arrays.values()))

    def _write(self, metadata: dict[str, Any], arrays: Sequence[str] = ()) -> None:
        known = {
            "keys": self._keys,
            "parameters": self._asked,
            "seconds": self._context.seconds,
            "versions": versions(),
        }
        self._context.store.commit(self._name, _plain(known | metadata), arrays=arrays)


def _embedding(
    graph: NeighborGraph,
    kernel: SparseKernel,
    heat: HeatKernel,
    tables: dict[int, Any],
    columns: dict[int, Any],
    asked: dict[str, Any],
    report: dict[str, Any],
    names: np.ndarray | None,
) -> Embedding:
    points = {power: as_array(table) for power, table in tables.items()}
    several = isinstance(asked["power"], list | tuple)
    shown = {name: value for name, value in asked.items() if name not in ("powers",)}
    return Embedding(
        points=points if several else points[asked["powers"][0]],
        graph=graph,
        kernel=kernel,
        heat=heat,
        parameters=shown,
        report=report,
        names=names,
        _columns=columns,
    )


def open_embedding(
    store: Any, X: Any = None, *, run: str | None = None, storage_options: dict[str, Any] | None = None
) -> Embedding:
    """Open a run that stands in a store.

    Parameters
    ----------
    store : path or URL
        The store of an earlier ``embed(..., store=...)``.
    X : array-like, optional
        The points, where the store does not hold them.
    run : str, optional
        Which run of several: its name, as ``scalable-gpe info`` lists it, or the beginning of it. By default the one
        that `embed` was last called for.
    storage_options : dict, optional
        As in `embed`.

    Returns
    -------
    Embedding
        Of a finished run.
    """
    store = open_store(store, storage_options, read_only=True)
    runs = [
        (name, metadata) for name in store.names("runs") if (metadata := store.metadata(f"runs/{name}")) is not None
    ]
    finished = [(name, metadata) for name, metadata in runs if metadata["finished"]]
    if not finished:
        state = "a run that is not finished" if runs else "no finished stage of a run"
        raise StoreError(f"store {str(store)!r} holds {state}. Run embed again with the same arguments to go on.")
    metadata = _chosen(finished, run)
    asked, keys = metadata["parameters"], metadata["keys"]
    place = Context(store, Workers())
    points = open_rows(X, asked["metric"], storage_options=storage_options) if X is not None else None
    graph = open_graph(place, keys["graph"], points)
    kernel = open_kernel(graph, place, keys["kernel"])
    heat = open_heat(kernel, place, keys["heat"])
    asked["powers"] = tuple(asked["powers"])
    how = Sketch(asked["sketch"], asked["random_state"], asked["precision"])
    plans = make_plans(heat, how, asked["powers"], asked["tol"], place, keys["sketch"])
    columns = make_columns(heat, how, asked["n_components"], plans, place, keys["sketch"])
    tables = {power: store.open_table(metadata["arrays"][str(power)]) for power in asked["powers"]}
    report = with_int_keys(metadata["report"])
    return _embedding(graph, kernel, heat, tables, columns, asked, report, _open_names(place, graph.n_rows))


def _chosen(finished: list[tuple[str, dict[str, Any]]], name: str | None) -> dict[str, Any]:
    """The finished run of a name, or the latest."""
    if name is None:
        return max((metadata for _, metadata in finished), key=last_used)
    found = [metadata for one, metadata in finished if one.startswith(name)]
    if len(found) != 1:
        runs = ", ".join(f"{one!r} (power {plain(metadata['parameters']['power'])})" for one, metadata in finished)
        raise ValueError(f"run= must name one of {runs}; got {name!r}.")
    return found[0]


def last_used(metadata: dict[str, Any]) -> float:
    """When `embed` was last called for a run, which is the one that is opened."""
    return max(metadata.get("used_at", 0.0), (metadata.get("report") or {}).get("finished_at", 0.0))


# --- arguments ------------------------------------------------------------------------------------


def _check(given: dict[str, Any]) -> dict[str, Any]:
    """All arguments of embed that are not data, checked before any work."""
    automatic = isinstance(given["power"], str)
    if automatic and given["power"] != "auto":
        raise ValueError(f"power must be a whole number, several of them, or 'auto'; got {given['power']!r}.")
    if automatic:
        given = {**given, "power": 1}  # its place is taken by the power that is chosen
    asked = check_sketch(
        *(given[name] for name in ("n_components", "power", "sketch", "random_state", "precision", "tol"))
    )
    asked |= check_parameters(
        metric=given["metric"], method=given["method"], recall=given["recall"], random_state=asked["random_state"]
    )
    power = given["power"]
    asked["power"] = asked["powers"][0] if isinstance(power, int | np.integer) else list(asked["powers"])
    if automatic:
        asked["power"] = "auto"
    asked["epsilon"] = check_epsilon(given["epsilon"])
    asked["normalization"] = checks.check_choice(given["normalization"], NORMALIZATIONS, "normalization")
    asked["n_neighbors"] = given["n_neighbors"]
    if given["n_neighbors"] is not None:
        asked["n_neighbors"] = checks.check_count(given["n_neighbors"], "n_neighbors")
    asked["memory_limit"] = parse_bytes(given["memory_limit"])
    if not isinstance(given["X"], InputRows):
        check_options(given["storage_options"], given["store"], given["X"])
    if not isinstance(given["resume"], bool):
        raise TypeError(f"resume must be True or False; got {given['resume']!r}.")
    count_jobs(given["n_jobs"])
    Progress(given["progress"])
    return asked


def _shape(
    asked: dict[str, Any], rows: Rows | None, neighbors: Any, store: Any, workers: Workers
) -> memory_plan.ProblemSize:
    if neighbors is None:
        assert rows is not None
        asked["n_neighbors"] = check_n_neighbors(asked["n_neighbors"], rows.n_rows)
        n_rows, n_neighbors = rows.n_rows, asked["n_neighbors"]
    else:
        n_rows, n_neighbors = neighbors[0].shape
    return memory_plan.ProblemSize(
        n_rows=n_rows,
        n_features=rows.n_features if rows else 0,
        n_neighbors=n_neighbors,
        n_components=asked["n_components"],
        n_powers=len(asked["powers"]),
        itemsize=4 if asked["precision"] == "single" else 8,
        stored=store is not None,
        resident=bool(rows and rows.resident),
        remote=workers.remote,
    )


def _digest(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]


def _keys(rows: Rows | None, neighbors: Any, asked: dict[str, Any]) -> dict[str, Any]:
    """Names of the results: each depends on its own parameters and on the result before it."""
    source = {
        "rows": fingerprint(rows) if rows else None,
        "neighbors": fingerprint_lists(neighbors) if neighbors is not None else None,
    }
    search = {name: asked[name] for name in ("n_neighbors", "metric", "method", "recall", "random_state")}
    graph = _digest(source, search)
    kernel = _digest(graph, asked["epsilon"])
    heat = _digest(kernel, asked["normalization"], _SINKHORN_TOL, _SINKHORN_PRODUCTS)
    sketch = _digest(heat, asked["sketch"], asked["random_state"], asked["precision"], asked["tol"])
    return {
        "input": source,
        "graph": f"graph/{graph}",
        "kernel": f"kernel/{kernel}",
        "heat": f"heat/{heat}",
        "sketch": f"sketch/{sketch}",
        "run": _digest(sketch, asked["n_components"], asked["power"]),
    }


def _plain(value: Any) -> Any:
    """Numbers and texts that JSON can hold."""
    return json.loads(json.dumps(value, default=lambda one: one.item() if hasattr(one, "item") else str(one)))


def _repaired(store: Any, work: Callable[[], Embedding]) -> Embedding:
    """Do some work; stages that turn out to be damaged on the way are made again."""
    for _ in range(_REPAIRS):
        try:
            return work()
        except DamageError as error:
            logger.warning("%s", error)
            store.repair(error.array, str(error))
    return work()


# --- stages ---------------------------------------------------------------------------------------


@contextmanager
def _opened(store: Any, storage_options: dict[str, Any] | None, resume: bool) -> Iterator[Any]:
    """The home of a run, locked against other processes while it lasts."""
    store = open_store(store, storage_options)
    with locked(store):
        if store.stored and not resume:
            there = [group for group in _GROUPS if store.names(group)]
            if there:
                logger.warning("starting over: removing %s from %s", ", ".join(there), store)
            for group in there:
                store.remove(group)
        yield store


@contextmanager
def _nothing_left(store: Any) -> Iterator[None]:
    """Input that is refused before anything was found leaves no store behind."""
    try:
        yield
    except (ValueError, TypeError):
        if store.stored and not any(store.names(group) for group in _GROUPS):
            store.discard()
        raise


def _check_input(context: Context, keys: dict[str, Any]) -> None:
    """Refuse a store that was made from another input, and say what differs."""
    for name in context.store.names("runs"):
        metadata = context.store.record(f"runs/{name}")
        if metadata is None or metadata["keys"]["input"] == keys["input"]:
            continue
        difference = _difference(metadata["keys"]["input"], keys["input"])
        raise StoreError(
            f"the store was made from another input ({difference}). Pass another store, or resume=False to start over "
            "in this one."
        )


def _difference(there: dict[str, Any], here: dict[str, Any]) -> str:
    """How the input of a store differs from the one at hand; both are fingerprints."""
    part, what = ("rows", "points") if there["rows"] != here["rows"] else ("neighbors", "neighbour lists")
    old, new = there[part], here[part]
    if old is None or new is None:
        return f"stored {'without' if old is None else 'with'} {what}, now {'without' if new is None else 'with'}"
    sizes = [f"{key}: stored {old[key]}, now {new[key]}" for key in _SIZES if old.get(key) != new.get(key)]
    return "; ".join(sizes) or f"{what} of the same shape with other values"


def _stage(context: Context, name: str, make: Any) -> Any:
    """Make a result unless it is complete already (then None)."""
    return None if context.store.metadata(name) is not None else make(name)


def _graph(rows: Rows | None, neighbors: Any, asked: dict[str, Any], context: Context, name: str) -> NeighborGraph:
    known = known_graph(rows, context, name)
    if known is not None:
        return known
    if neighbors is not None:
        return precomputed_graph(neighbors, rows, asked, context, name)
    assert rows is not None
    return make_graph(rows, asked, context, name)


def _arrays(context: Context, key: str, powers: tuple[int, ...]) -> dict[int, str]:
    """Names of the published arrays: embedding/<power>, with the run's key where another run has that name."""
    taken = set()
    for name in context.store.names("runs"):
        metadata = context.store.record(f"runs/{name}") if name != key else None
        taken |= set(metadata.get("arrays", {}).values()) if metadata else set()
    return {p: name if (name := f"embedding/{p}") not in taken else f"embedding/{p}-{key}" for p in powers}


def _save_names(rows: Rows | None, context: Context) -> None:
    if rows is None or rows.names is None:
        return
    letters = np.char.encode(rows.names, "utf-8")
    width = max(1, letters.dtype.itemsize)
    table = context.store.table("names/utf8", (len(letters), width), np.uint8)
    bytes_ = np.frombuffer(letters.tobytes(), np.uint8).reshape(len(letters), width)
    for start, stop in ranges(len(letters), table.shard_rows):
        table.write(start, bytes_[start:stop])
    context.store.commit("names", {"encoding": "utf-8", "width": width})


def _open_names(context: Context, n_rows: int) -> np.ndarray | None:
    metadata = context.store.metadata("names")
    if metadata is None:
        return None
    letters = context.store.open_table("names/utf8").read(0, n_rows)
    return np.char.decode(np.ascontiguousarray(letters).view(f"S{metadata['width']}")[:, 0], "utf-8")
