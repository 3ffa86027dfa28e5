"""Estimate of memory, disk space, sweeps and time, before a run starts."""

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from scalable_gpe import checks
from scalable_gpe.checks import Power
from scalable_gpe.execution.cluster import workers_for
from scalable_gpe.execution.memory_plan import MemoryPlan
from scalable_gpe.execution.resources import ProblemSize, Resources, live_panels, parse_bytes, worker_limit
from scalable_gpe.graph.neighbors import check_n_neighbors
from scalable_gpe.graph.search import choose_method
from scalable_gpe.io.rows import InputRows, open_rows
from scalable_gpe.sketch.gaussian_process import check_sketch
from scalable_gpe.storage.blocks import block_rows

_TRIAL_ROWS = 30_000
_FIRST_ROWS = 2_000  # of the run before the trial, which compiles
_SINKHORN = 30  # sweeps of one column
# sweeps of eight columns that look for the horizon, and of four that measure the solver or the smallest eigenvalue
_HORIZON, _PROBED = 16, {True: 24, False: 16}
_HORIZON_COLUMNS, _PROBE_COLUMNS = 8, 4
_SOLVER = 24  # products of a solution, and after it


def estimate(
    n_rows: Any,
    n_features: int | None = None,
    *,
    n_neighbors: int | None = None,
    n_components: int = 32,
    power: Any = "all",
    horizon: Any = "auto",
    n_sketch: int | None = None,
    memory_limit: Any = None,
    client: Any = None,
    missing: str = "error",
    numeric_only: bool = False,
) -> dict[str, Any]:
    """Estimate what a run with a store needs, before it starts.

    With the data in place of two numbers, the seconds come from a trial on this machine: at most 30,000 of the rows are
    embedded, which takes some seconds, and the time of each stage is scaled to all rows. Where `embed` uses a dask
    cluster, memory is that of each worker; the seconds are those of threads on this machine all the same.

    Parameters
    ----------
    n_rows : int, or any input that `embed` takes
        Number of rows of X, or X itself.
    n_features : int, optional
        Number of columns of X; left out with X itself.
    n_neighbors, n_components, power, horizon, n_sketch, memory_limit, client, missing, numeric_only
        As in `embed`; the horizon changes nothing.

    Returns
    -------
    dict
        ``memory`` (bytes that the run will use, within memory_limit), ``disk`` (the most that the store and unnamed
        files beside it hold during the run; about half stays), ``sweeps``
        (products times panels), ``panels``, ``seconds`` (rough, two cores; with X, of this machine, without the
        writing of a store), ``stage_seconds``, ``n_parts`` (of the neighbour search) and ``smallest_limit`` (the
        smallest memory_limit that is enough).

    Examples
    --------
    >>> import scalable_gpe as gpe
    >>> plan = gpe.estimate(10_000_000, 16, n_neighbors=16, memory_limit="2GB")
    >>> plan["smallest_limit"] < 2e9, plan["memory"] <= 2e9
    (True, True)
    >>> gpe.estimate(gpe.datasets.torus(2000))["disk"] == gpe.estimate(2000, 4)["disk"]
    True
    """
    rows = None
    if n_features is None:
        if isinstance(n_rows, int | np.integer):
            raise TypeError("n_features must be given with a number of rows; or pass the data.")
        rows = open_rows(n_rows, missing=missing, numeric_only=numeric_only)
        n_rows, n_features = rows.n_rows, rows.n_features
    n_rows = checks.check_count(n_rows, "n_rows", minimum=2)
    sketching = check_sketch(n_components, power, "gaussian", 0, "single", "auto", horizon, n_sketch)
    size = ProblemSize(
        n_rows=n_rows,
        n_features=checks.check_count(n_features, "n_features"),
        n_neighbors=check_n_neighbors(n_neighbors, n_rows),
        n_components=sketching.n_columns,
        n_powers=len(sketching.powers),
        n_live=live_panels(sketching.powers),
    )
    workers = workers_for(client, None, n_rows=n_rows, is_dask=rows is not None and rows.is_dask)
    memory = workers.worker_memory()
    limit = parse_bytes(memory_limit) or worker_limit(memory)
    resident = rows is not None and rows.resident and not rows.is_sparse
    resources = Resources(limit, workers.threads_each, True, remote=workers.remote, resident_input=resident)
    resources = replace(resources, worker_memory=memory)
    plan = MemoryPlan(size, resources)
    plan.check()
    ample, smallest = plan.ample_limit(), plan.smallest_limit()
    used = plan if limit is not None else replace(plan, resources=replace(plan.resources, limit=2 * ample))
    width = used.panel_columns(n_rows, size.n_live, size.itemsize, size.block_bytes, size.n_components)
    out_of_core = limit is not None and used.maps_arrays
    cost = Cost(size, width, sketching.powers, out_of_core=out_of_core, n_parts=used.n_parts)
    seconds = cost.seconds() if rows is None else _tried(rows, cost, sketching.horizon, sketching.powers)
    return {
        "memory": int(max(smallest, ample) if limit is None else min(limit, max(smallest, ample))),
        "disk": size.disk_bytes + used.scratch_bytes(),
        "sweeps": cost.n_products * cost.n_panels,
        "panels": cost.n_panels,
        "n_parts": used.n_parts,
        "seconds": float(sum(seconds.values())),
        "stage_seconds": seconds,
        "smallest_limit": smallest,
    }


@dataclass(frozen=True)
class Cost:
    """A model of the time of each stage, in seconds of two x86 cores; `width` is the number of columns of a panel."""

    size: ProblemSize
    width: int
    powers: tuple[Power, ...]
    method: str = "auto"
    out_of_core: bool = False
    n_parts: int = 1

    @property
    def n_panels(self) -> int:
        """Number of panels."""
        return -(-self.size.n_components // self.width)

    @property
    def n_products(self) -> int:
        """Products with A: about 3.5 times the root of a power, and a fixed number for all scales."""
        return int(sum(_SOLVER if isinstance(p, str) else min(p, 3.5 * np.sqrt(p) + 2) for p in self.powers))

    def seconds(self) -> dict[str, float]:
        """Seconds of each stage."""
        size = self.size
        solves = "all" in self.powers
        probes = _PROBED[solves] * self._sweep(_PROBE_COLUMNS) + solves * _HORIZON * self._sweep(_HORIZON_COLUMNS)
        return {
            "graph": self._search(),
            "kernel": 1e-8 * size.nnz,
            "heat": _SINKHORN * self._sweep(1),
            "sketch": self.n_products * self.n_panels * self._sweep(self.width) + probes,
        }

    def _sweep(self, width: int) -> float:
        n_blocks = -(-self.size.n_rows // block_rows(self.size.n_rows))
        seconds = self.size.nnz * (1.5e-9 + 1.3e-10 * width) + 6.5e-5 * n_blocks
        return 2 * seconds if self.out_of_core else seconds

    def _search(self) -> float:
        n_rows, n_features, n_neighbors = self.size.n_rows, self.size.n_features, self.size.n_neighbors
        method = choose_method(self.method, n_rows, n_features, n_neighbors)
        if method == "brute":
            return float(3e-10 * n_rows**2 * (1 + n_features / 16))
        if method == "kdtree":
            return float(1e-7 * n_rows * np.log2(n_rows) * (1 + n_features) * (1 + n_neighbors / 16) / 4)
        rounds = 1.0 if self.n_parts == 1 else 2.0  # several parts are searched again along borders
        return float(n_rows * (2e-6 * n_features**0.5 + 3e-7 * n_neighbors) * rounds)


def _tried(rows: InputRows, cost: Cost, horizon: int | str, powers: tuple[Power, ...]) -> dict[str, float]:
    """Seconds of each stage, from a run with some of the rows: what the model says, times its error on that run."""
    from scalable_gpe.pipeline import embed

    size = cost.size
    method = choose_method("auto", size.n_rows, size.n_features, size.n_neighbors)
    ids = np.linspace(0, size.n_rows - 1, min(size.n_rows, _TRIAL_ROWS)).astype(np.int64)
    sample = rows.take(ids)
    n_neighbors = min(size.n_neighbors, len(sample) - 1)

    def trial(X: np.ndarray) -> Any:
        n_different = len(np.unique(X, axis=0))  # of all rows there may be more
        return embed(
            X,
            n_neighbors=max(1, min(n_neighbors, n_different - 1)),
            n_components=size.n_components,
            power=powers,
            horizon=horizon,
            method=method,
            client=False,
            progress=False,
        )

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a run with all rows gives its own
        trial(sample[:_FIRST_ROWS])
        result = trial(sample)
    small = replace(size, n_rows=len(sample), n_neighbors=n_neighbors)
    before = Cost(small, size.n_components, powers, method).seconds()
    after = replace(cost, method=method).seconds()
    measured = result.report["stage_seconds"]
    return {stage: after[stage] * measured[stage] / before[stage] for stage in after}
