"""Estimate of memory, disk space, sweeps and time, before a run starts."""

from typing import Any

import numpy as np

from scalable_gpe import checks
from scalable_gpe.execution.memory_plan import MemoryPlan, ProblemSize, Resources, parse_bytes
from scalable_gpe.execution.workers import count_jobs
from scalable_gpe.graph.neighbors import check_n_neighbors
from scalable_gpe.sketch.gaussian_process import check_sketch
from scalable_gpe.spectral.horizon import LONGEST


def estimate(
    n_rows: int,
    n_features: int,
    *,
    n_neighbors: int | None = None,
    n_components: int = 16,
    power: Any = "all",
    horizon: Any = "auto",
    n_sketch: int | None = None,
    memory_limit: Any = None,
) -> dict[str, Any]:
    """Estimate what a run with a store needs, before it starts.

    Parameters
    ----------
    n_rows, n_features : int
        Shape of X.
    n_neighbors, n_components, power, horizon, n_sketch, memory_limit
        As in `embed`; with ``horizon="auto"`` the longest horizon is assumed.

    Returns
    -------
    dict
        ``memory`` (bytes that the run will use, within memory_limit), ``disk`` (bytes of the store), ``sweeps``
        (products times panels), ``panels``, ``seconds`` (rough, two cores) and ``smallest_limit`` (the smallest
        memory_limit that is enough).

    Examples
    --------
    >>> import scalable_gpe as gpe
    >>> plan = gpe.estimate(10_000_000, 16, n_neighbors=16, memory_limit="2GB")
    >>> plan["smallest_limit"] < 2e9, plan["memory"] <= 2e9
    (True, True)
    """
    n_rows = checks.check_count(n_rows, "n_rows", minimum=2)
    one_scale = 16 if isinstance(power, str) and power == "auto" else power
    sketching = check_sketch(n_components, one_scale, "gaussian", 0, "single", 1e-4, horizon, n_sketch)
    powers, horizon = sketching.powers, sketching.horizon
    size = ProblemSize(
        n_rows=n_rows,
        n_features=checks.check_count(n_features, "n_features"),
        n_neighbors=check_n_neighbors(n_neighbors, n_rows),
        n_components=sketching.n_columns,
        n_powers=len(powers),
    )
    limit = parse_bytes(memory_limit)
    plan = MemoryPlan(size, Resources(limit, count_jobs(None), persistent=True))
    plan.check()
    comfortable = plan.comfortable()
    memory = comfortable if limit is None else min(limit, comfortable)
    used = (
        plan if limit is not None else MemoryPlan(size, Resources(2 * comfortable, count_jobs(None), persistent=True))
    )
    k = size.n_components
    width = used.panel_columns(n_rows, len(powers), size.itemsize, size.block_bytes, k)
    panels = -(-k // width)
    longest = [(LONGEST if isinstance(horizon, str) else horizon) if isinstance(one, str) else one for one in powers]
    products = int(sum(min(p, 3.5 * np.sqrt(p) + 2) for p in longest))
    per_sweep = size.nnz * (4e-9 + 2.2e-10 * width)
    graph_seconds = n_rows * (1.2e-6 * n_features**0.5 + 3e-7 * size.n_neighbors)
    return {
        "memory": int(memory),
        "disk": size.disk_bytes,
        "sweeps": products * panels,
        "panels": panels,
        "seconds": float(graph_seconds + per_sweep * panels * products + 60 * size.nnz * 1.5e-9),
        "smallest_limit": plan.smallest_limit(),
    }
