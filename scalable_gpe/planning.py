"""What a run will take, before it starts."""

from typing import Any

import numpy as np

from scalable_gpe import checks
from scalable_gpe.errors import MemoryLimitError
from scalable_gpe.execution import memory_plan
from scalable_gpe.execution.workers import count_jobs, parse_bytes
from scalable_gpe.graph.neighbors import check_n_neighbors


def estimate(
    n_rows: int,
    n_features: int,
    *,
    n_neighbors: int | None = None,
    n_components: int = 16,
    power: Any = 16,
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
    powers = checks.check_powers(16 if isinstance(power, str) and power == "auto" else power)
    shape = memory_plan.ProblemSize(
        n_rows=n_rows,
        n_features=checks.check_count(n_features, "n_features"),
        n_neighbors=check_n_neighbors(n_neighbors, n_rows),
        n_components=checks.check_count(n_components, "n_components"),
        n_powers=len(powers),
    )
    jobs = count_jobs(None)
    limit = check_limit(parse_bytes(memory_limit), shape, jobs)
    comfortable = memory_plan.comfortable(shape, jobs)
    memory = comfortable if limit is None else min(limit, comfortable)
    room = memory - memory_plan.BASE - memory_plan.vectors(shape) - memory_plan.blocks_in_flight(shape, jobs)
    width = int(np.clip(room // memory_plan.column(shape), 1, shape.n_components))
    panels = -(-shape.n_components // width)
    products = int(sum(min(p, 3.5 * np.sqrt(p) + 2) for p in powers))
    per_sweep = shape.nnz * (4e-9 + 2.2e-10 * width)
    graph_seconds = n_rows * (1.2e-6 * n_features**0.5 + 3e-7 * shape.n_neighbors)
    return {
        "memory": int(memory),
        "disk": memory_plan.disk(shape),
        "sweeps": products * panels,
        "panels": panels,
        "seconds": float(graph_seconds + per_sweep * panels * products + 60 * shape.nnz * 1.5e-9),
        "smallest_limit": memory_plan.smallest_limit(shape, jobs),
    }


def check_limit(limit: int | None, shape: memory_plan.ProblemSize, n_jobs: int) -> int | None:
    """Refuse a limit that cannot be kept, and name the smallest one that can."""
    if limit is not None and limit < (least := memory_plan.smallest_limit(shape, n_jobs)):
        hint = "" if shape.stored else " With store= less is enough."
        raise MemoryLimitError(
            f"memory_limit must be at least {least / 1e6:.0f} MB for {shape.n_rows} rows; got {limit / 1e6:.0f} MB."
            + hint
        )
    return limit
