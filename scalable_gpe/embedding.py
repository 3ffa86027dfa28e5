"""From points to embedding: the whole line, in the order in which it runs.

X -> NeighborGraph -> SparseKernel -> HeatKernel -> Embedding
"""

import hashlib
import json
import platform
import resource
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version
from typing import Any

import numpy as np

from scalable_gpe.engine import budget, checks
from scalable_gpe.engine.blocks import Workers, count_jobs, parse_bytes
from scalable_gpe.engine.errors import ConnectivityWarning, DamageError, MemoryLimitError, StoreError, VanishingWarning
from scalable_gpe.engine.progress import Progress, logger
from scalable_gpe.engine.rows import Rows, open_rows
from scalable_gpe.engine.run import Run, open_home
from scalable_gpe.engine.tables import ranges
from scalable_gpe.graph.brought import check_lists, fingerprint_lists
from scalable_gpe.graph.distinct import fingerprint
from scalable_gpe.graph.neighbors import (
    NeighborGraph,
    bring_graph,
    check_n_neighbors,
    check_parameters,
    known_graph,
    make_graph,
    open_graph,
)
from scalable_gpe.heat.bandwidth import check_epsilon
from scalable_gpe.heat.kernel import SparseKernel, make_kernel, open_kernel
from scalable_gpe.heat.normalization import NORMALIZATIONS, HeatKernel, make_heat, open_heat
from scalable_gpe.sketch.gaussian_process import as_array, check_sketch, make_columns, make_plans, publish, sweeps_of
from scalable_gpe.sketch.new_points import NewPoints, transform
from scalable_gpe.sketch.polynomial import Plan
from scalable_gpe.sketch.power_choice import choose_power
from scalable_gpe.sketch.powers import Sketch

STAGES = ("graph", "kernel", "heat", "sketch", "write")
_SINKHORN_TOL, _SINKHORN_PRODUCTS = 1e-8, 1000
_GROUPS = ("runs", "embedding", "sketch", "heat", "kernel", "graph", "names")
_VANISHED = 1e-5  # differences of rows, relative to the rows, that are rounding only
_REPAIRS = 8  # damaged stages that one call makes again
_PACKAGES = ("scalable_gpe", "numpy", "scipy", "zarr", "numba", "pynndescent", "scikit-learn", "dask")


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

    def transform(self, X_new: Any) -> Any:
        r"""Place new rows in the embedding.

        .. math:: y(x) = a(x, \cdot)\, A^{p-1} G / \sqrt{k}

        The row a(x, .) is the one that x would have had in training; a training row gets its own embedding. Each row
        is placed by itself, so a row alone and in a batch has the same bytes.

        Parameters
        ----------
        X_new : array-like (M, d)
            Any input that `embed` takes, with the features of the training rows. Read batch by batch.

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
        return transform(self, X_new)

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
    power: Any = 64,
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
        K_{ij} = \exp(-|x_i - x_j|^2 / \epsilon), \quad A = S K S, \quad Y = A^p G / \sqrt{k}, \quad
        E|y_i - y_j|^2 = |(A^p)_i - (A^p)_j|^2

    The result is a function of data, parameters and random_state alone; memory_limit, n_jobs and store change where
    and how fast it is computed, not a single bit of it.

    Parameters
    ----------
    X : array-like (N, d), optional
        numpy, memory-mapped, zarr, dask or scipy sparse array, DataFrame, or a path (.npy, .zarr). May be left out
        when `neighbors` are given.
    n_components : int
        Dimension k of the embedding; distances have a relative standard deviation of sqrt(2/k) / 2.
    n_neighbors : int, optional
        Other points in each neighbour list; min(32, N - 1) by default.
    epsilon : float or {"auto", "bgh"}
        Bandwidth of the kernel, in squared units of X.
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
    store : path, optional
        A zarr store: results stream there, and a second call goes on where the first one stopped.
    storage_options : dict, optional
        Reserved for remote stores.
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
    rows = None if X is None else open_rows(X, asked["metric"])
    if rows is None and neighbors is None:
        raise ValueError("embed needs X, or neighbors=(indices, distances) in its place; got neither.")
    if neighbors is not None:
        neighbors = check_lists(neighbors, rows.n_rows if rows else None, asked["n_neighbors"])
    shape = _shape(asked, rows, neighbors, store)
    limit = _check_limit(asked["memory_limit"], shape, count_jobs(n_jobs))
    reserved = int(1.25 * asked["n_components"] * budget.column(shape)) + budget.blocks_in_flight(
        shape, count_jobs(n_jobs)
    )
    with _opened(store, resume) as home, Workers(n_jobs, Progress(progress)) as workers:
        return _repaired(home, lambda: _embed(rows, neighbors, asked, Run(home, workers, limit, reserved)))


def _embed(rows: Rows | None, neighbors: Any, asked: dict[str, Any], run: Run) -> Embedding:
    """The line itself: each stage is taken from the home when it is there, else made."""
    began = time.perf_counter()
    keys = _keys(rows, neighbors, asked)
    _check_input(run, keys)
    with _timed(run, "graph"):
        graph = _graph(rows, neighbors, asked, run, keys["graph"])
    # not earlier: the graph stage looks at every row first, and may refuse the input
    run.home.mark(f"runs/{keys['run']}", {"finished": False, "keys": keys, "parameters": _plain(asked)})
    with _timed(run, "kernel"):
        kernel = _stage(run, keys["kernel"], lambda name: make_kernel(graph, asked["epsilon"], run, name))
        kernel = kernel or open_kernel(graph, run, keys["kernel"])
    with _timed(run, "heat"):
        heat = _stage(
            run,
            keys["heat"],
            lambda name: make_heat(kernel, asked["normalization"], _SINKHORN_TOL, _SINKHORN_PRODUCTS, run, name),
        )
        heat = heat or open_heat(kernel, run, keys["heat"])
    how = Sketch(asked["sketch"], asked["random_state"], asked["precision"])
    with _timed(run, "sketch"):
        curve = None
        if asked["power"] == "auto":
            power, curve = choose_power(heat, asked["n_components"], how.seed, run, f"{keys['sketch']}/curve")
            asked = {**asked, "powers": (power,)}
        plans = make_plans(heat, how, asked["powers"], asked["tol"], run, keys["sketch"])
        columns = make_columns(heat, how, asked["n_components"], plans, run, keys["sketch"])
    with _timed(run, "write"):
        arrays = _arrays(run, keys["run"], asked["powers"])
        tables = {
            power: publish(heat, columns[power], asked["n_components"], run, arrays[power]) for power in asked["powers"]
        }
        _save_names(rows, run)
    report = _report(graph, kernel, heat, plans, asked, run, time.perf_counter() - began)
    report["power_curve"] = curve
    _warn(report, tables, asked)
    facts = {"finished": True, "keys": keys, "parameters": _plain(asked), "report": report, "arrays": arrays}
    run.home.mark(f"runs/{keys['run']}", _plain(facts), arrays=list(arrays.values()))
    return _embedding(graph, kernel, heat, tables, columns, asked, report, rows.names if rows else None)


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


def open_embedding(store: Any, X: Any = None) -> Embedding:
    """Open a run that stands in a store.

    Parameters
    ----------
    store : path
        The store of an earlier ``embed(..., store=...)``.
    X : array-like, optional
        The points, where the store does not hold them.

    Returns
    -------
    Embedding
        Of the latest finished run.
    """
    home = open_home(store, read_only=True)
    runs = [(name, facts) for name in home.names("runs") if (facts := home.facts(f"runs/{name}")) is not None]
    finished = [(name, facts) for name, facts in runs if facts["finished"]]
    if not finished:
        state = "an unfinished run" if runs else "no run"
        raise StoreError(f"store {str(store)!r} holds {state}. Call embed with the same arguments to finish it.")
    facts = max(finished, key=lambda one: one[1]["report"].get("finished_at", 0))[1]
    asked, keys = facts["parameters"], facts["keys"]
    run = Run(home, Workers())
    points = open_rows(X, asked["metric"]) if X is not None else None
    graph = open_graph(run, keys["graph"], points)
    kernel = open_kernel(graph, run, keys["kernel"])
    heat = open_heat(kernel, run, keys["heat"])
    asked["powers"] = tuple(asked["powers"])
    how = Sketch(asked["sketch"], asked["random_state"], asked["precision"])
    plans = make_plans(heat, how, asked["powers"], asked["tol"], run, keys["sketch"])
    columns = make_columns(heat, how, asked["n_components"], plans, run, keys["sketch"])
    tables = {power: home.open_table(facts["arrays"][str(power)]) for power in asked["powers"]}
    report = _with_int_keys(facts["report"])
    return _embedding(graph, kernel, heat, tables, columns, asked, report, _open_names(run, graph.n_rows))


# --- arguments ------------------------------------------------------------------------------------


def _check(given: dict[str, Any]) -> dict[str, Any]:
    """All arguments of embed that are not data, checked before any work."""
    automatic = isinstance(given["power"], str) and checks.check_choice(given["power"], ("auto",), "power") == "auto"
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
    if given["storage_options"] is not None and given["store"] is None:
        raise ValueError("storage_options needs a store; got store=None. Pass store=, or leave storage_options out.")
    if not isinstance(given["resume"], bool):
        raise TypeError(f"resume must be True or False; got {given['resume']!r}.")
    count_jobs(given["n_jobs"])
    Progress(given["progress"])
    return asked


def _shape(asked: dict[str, Any], rows: Rows | None, neighbors: Any, store: Any) -> budget.Shape:
    if neighbors is None:
        assert rows is not None
        asked["n_neighbors"] = check_n_neighbors(asked["n_neighbors"], rows.n_rows)
        n_rows, n_neighbors = rows.n_rows, asked["n_neighbors"]
    else:
        n_rows, n_neighbors = neighbors[0].shape
    return budget.Shape(
        n_rows=n_rows,
        n_features=rows.n_features if rows else 0,
        n_neighbors=n_neighbors,
        n_components=asked["n_components"],
        n_powers=len(asked["powers"]),
        itemsize=4 if asked["precision"] == "single" else 8,
        stored=store is not None,
        resident=bool(rows and rows.resident),
    )


def _check_limit(limit: int | None, shape: budget.Shape, n_jobs: int) -> int | None:
    if limit is not None and limit < (least := budget.smallest_limit(shape, n_jobs)):
        hint = "" if shape.stored else " With store= less is enough."
        raise MemoryLimitError(
            f"memory_limit must be at least {least / 1e6:.0f} MB for {shape.n_rows} rows; got {limit / 1e6:.0f} MB."
            + hint
        )
    return limit


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


def _repaired(home: Any, work: Callable[[], Embedding]) -> Embedding:
    """Do some work; stages that turn out to be damaged on the way are made again."""
    for _ in range(_REPAIRS):
        try:
            return work()
        except DamageError as error:
            logger.warning("%s", error)
            home.repair(error.array, str(error))
    return work()


# --- stages ---------------------------------------------------------------------------------------


@contextmanager
def _opened(store: Any, resume: bool) -> Iterator[Any]:
    """The home of a run, locked against other processes while it lasts."""
    home = open_home(store)
    if not home.stored:
        yield home
        return
    home.lock()  # type: ignore[attr-defined]
    try:
        home.sweep()  # type: ignore[attr-defined]
        if not resume:
            there = [group for group in _GROUPS if home.names(group)]
            logger.warning("resume=False: removing %s from %s", ", ".join(there) or "nothing", store)
            for group in there:
                home.remove(group)
        yield home
    finally:
        home.unlock()  # type: ignore[attr-defined]


@contextmanager
def _timed(run: Run, stage: str) -> Iterator[None]:
    began = time.perf_counter()
    yield
    run.seconds[stage] = run.seconds.get(stage, 0.0) + time.perf_counter() - began


def _check_input(run: Run, keys: dict[str, Any]) -> None:
    """Refuse a store that was made from another input, and say what differs."""
    for name in run.home.names("runs"):
        facts = run.home.record(f"runs/{name}")
        if facts is None or facts["keys"]["input"] == keys["input"]:
            continue
        there, here = facts["keys"]["input"], keys["input"]
        differences = [
            f"{part}.{key}: stored {(there[part] or {}).get(key)!r}, now {(here[part] or {}).get(key)!r}"
            for part in here
            for key in sorted({*(there[part] or {}), *(here[part] or {})})
            if (there[part] or {}).get(key) != (here[part] or {}).get(key)
        ]
        raise StoreError(
            f"the store was made from another input ({'; '.join(differences)}). Pass another store, or resume=False to "
            "start over in this one."
        )


def _stage(run: Run, name: str, make: Any) -> Any:
    """Make a result unless it is complete already (then None)."""
    return None if run.home.facts(name) is not None else make(name)


def _graph(rows: Rows | None, neighbors: Any, asked: dict[str, Any], run: Run, name: str) -> NeighborGraph:
    known = known_graph(rows, run, name)
    if known is not None:
        return known
    if neighbors is not None:
        return bring_graph(neighbors, rows, asked, run, name)
    assert rows is not None
    return make_graph(rows, asked, run, name)


def _arrays(run: Run, key: str, powers: tuple[int, ...]) -> dict[int, str]:
    """Names of the published arrays: embedding/<power>, with the run's key where another run has that name."""
    taken = set()
    for name in run.home.names("runs"):
        facts = run.home.record(f"runs/{name}") if name != key else None
        taken |= set(facts.get("arrays", {}).values()) if facts else set()
    return {p: name if (name := f"embedding/{p}") not in taken else f"embedding/{p}-{key}" for p in powers}


def _save_names(rows: Rows | None, run: Run) -> None:
    if rows is None or rows.names is None:
        return
    letters = np.char.encode(rows.names, "utf-8")
    width = max(1, letters.dtype.itemsize)
    table = run.home.table("names/utf8", (len(letters), width), np.uint8)
    bytes_ = np.frombuffer(letters.tobytes(), np.uint8).reshape(len(letters), width)
    for start, stop in ranges(len(letters), table.shard_rows):
        table.write(start, bytes_[start:stop])
    run.home.mark("names", {"encoding": "utf-8", "width": width})


def _open_names(run: Run, n_rows: int) -> np.ndarray | None:
    facts = run.home.facts("names")
    if facts is None:
        return None
    letters = run.home.open_table("names/utf8").read(0, n_rows)
    return np.char.decode(np.ascontiguousarray(letters).view(f"S{facts['width']}")[:, 0], "utf-8")


# --- the report -----------------------------------------------------------------------------------


def _report(
    graph: NeighborGraph,
    kernel: SparseKernel,
    heat: HeatKernel,
    plans: dict[int, Plan],
    asked: dict[str, Any],
    run: Run,
    seconds: float,
) -> dict[str, Any]:
    several = isinstance(asked["power"], list)
    errors = {power: plan.error for power, plan in plans.items()}
    n_points = graph.numbering.n_points
    return {
        "n_rows": graph.n_rows,
        "n_distinct": n_points,
        "n_duplicates": graph.n_rows - n_points,
        "n_isolated": heat.n_isolated,
        "n_connected_components": graph.n_connected_components,
        "n_neighbors": graph.n_neighbors,
        "method": graph.method,
        "epsilon": kernel.epsilon,
        "nnz": kernel.nnz,
        "recall": graph.recall,
        "recall_error": graph.facts.get("recall_error"),
        "lost_mass": kernel.lost_mass,
        "sinkhorn_iterations": heat.n_iter if heat.normalization == "bistochastic" else None,
        "sinkhorn_residual": heat.residual if heat.normalization == "bistochastic" else None,
        "converged": heat.converged,
        "power": asked["power"] if several else asked["powers"][0],
        "power_curve": None,
        "sweeps": {
            "heat": heat.n_iter,
            "interval": run.sweeps.get("interval", 0),
            "sketch": sweeps_of(list(plans.values())),
        },
        "lambda_min": min((plan.lower for plan in plans.values() if plan.coefficients), default=None),
        "polynomial_error": errors if several else errors[asked["powers"][0]],
        "stage_seconds": {stage: run.seconds.get(stage, 0.0) for stage in STAGES},
        "total_seconds": seconds,
        "peak_memory": _peak_memory(),
        "versions": {"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}},
        "reasons": _reasons(graph, heat, plans, asked),
        "finished_at": time.time(),
    }


def _peak_memory() -> int:
    """Largest resident memory of this process in bytes; ru_maxrss would count that of the process which started it."""
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _reasons(graph: NeighborGraph, heat: HeatKernel, plans: dict[int, Plan], asked: dict[str, Any]) -> dict[str, str]:
    """Why a figure of the report is None."""
    reasons: dict[str, str] = {}
    if graph.scan is None:
        reasons |= dict.fromkeys(("recall", "recall_error", "lost_mass"), "neighbors were given without X")
    if heat.normalization != "bistochastic":
        reasons |= dict.fromkeys(
            ("sinkhorn_iterations", "sinkhorn_residual"), "the symmetric scaling needs no iteration"
        )
    if not any(plan.coefficients for plan in plans.values()):
        reasons["lambda_min"] = "plain products need no interval"
    if asked["power"] != "auto":
        reasons["power_curve"] = "the power was given"
    return reasons


def _with_int_keys(report: dict[str, Any]) -> dict[str, Any]:
    errors = report["polynomial_error"]
    if isinstance(errors, dict):
        report["polynomial_error"] = {int(power): error for power, error in errors.items()}
    return report


def _warn(report: dict[str, Any], tables: dict[int, Any], asked: dict[str, Any]) -> None:
    if report["n_isolated"] > 0.01 * report["n_rows"]:
        warnings.warn(
            f"{report['n_isolated']} of {report['n_rows']} rows have no effective neighbours: they stay where the "
            "sketch puts them. Raise n_neighbors or epsilon.",
            ConnectivityWarning,
            stacklevel=4,
        )
    for power, table in tables.items():
        rows = table.read(0, min(4096, table.shape[0]))
        # rounding leaves a vector in which all rows are the same, and which no power of A shrinks
        if not float(np.ptp(rows, axis=0).max()) > max(1e-30, _VANISHED * float(np.abs(rows).max())):
            warnings.warn(
                f"power={power} leaves nothing of the data: all rows are equal up to rounding. Choose a smaller power.",
                VanishingWarning,
                stacklevel=4,
            )


def estimate(
    n_rows: int,
    n_features: int,
    *,
    n_neighbors: int | None = None,
    n_components: int = 16,
    power: Any = 64,
    memory_limit: Any = None,
) -> dict[str, Any]:
    """What a run through a store will take, before it starts.

    Parameters
    ----------
    n_rows, n_features : int
        Shape of X.
    n_neighbors, n_components, power, memory_limit
        As in `embed`.

    Returns
    -------
    dict
        ``memory`` (bytes that the run will use, within memory_limit), ``disk`` (bytes of the store), ``sweeps``
        (products over all columns times panels), ``panels``, ``seconds`` (rough, two cores) and ``smallest_limit``
        (the least memory_limit that will do).

    Examples
    --------
    >>> import scalable_gpe as gpe
    >>> plan = gpe.estimate(10_000_000, 16, n_neighbors=16, memory_limit="2GB")
    >>> plan["smallest_limit"] < 2e9, plan["memory"] <= 2e9
    (True, True)
    """
    n_rows = checks.check_count(n_rows, "n_rows", minimum=2)
    powers = checks.check_powers(64 if isinstance(power, str) and power == "auto" else power)
    shape = budget.Shape(
        n_rows=n_rows,
        n_features=checks.check_count(n_features, "n_features"),
        n_neighbors=check_n_neighbors(n_neighbors, n_rows),
        n_components=checks.check_count(n_components, "n_components"),
        n_powers=len(powers),
    )
    jobs = count_jobs(None)
    limit = _check_limit(parse_bytes(memory_limit), shape, jobs)
    comfortable = budget.comfortable(shape, jobs)
    memory = comfortable if limit is None else min(limit, comfortable)
    room = memory - budget.BASE - budget.vectors(shape) - budget.blocks_in_flight(shape, jobs)
    width = int(np.clip(room // budget.column(shape), 1, shape.n_components))
    panels = -(-shape.n_components // width)
    products = int(sum(min(p, 3.5 * np.sqrt(p) + 2) for p in powers))
    per_sweep = shape.nnz * (4e-9 + 2.2e-10 * width)
    graph_seconds = n_rows * (1.2e-6 * n_features**0.5 + 3e-7 * shape.n_neighbors)
    return {
        "memory": int(memory),
        "disk": budget.disk(shape),
        "sweeps": products * panels,
        "panels": panels,
        "seconds": float(graph_seconds + per_sweep * panels * products + 60 * shape.nnz * 1.5e-9),
        "smallest_limit": budget.smallest_limit(shape, jobs),
    }
