"""What one core does alone: the stages with one thread and with all.

    python benchmarks/cores.py                     a million points, some minutes
    python benchmarks/cores.py --points 100000     a quick look

With n threads, the part of a stage that only one of them works on is idle time of the others: n t - c for t seconds of
the clock and c seconds of the processors. It is shown as a share of c. Unlike n t(n) - t(1), it does not count that two
threads of one core slow each other down; the table has both.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import scalable_gpe as gpe
from measure import Row, add_problem, show
from scalable_gpe.execution.workers import count_jobs

_AIM = "<= 0.03"


class Seconds(NamedTuple):
    """Seconds of the clock and of the processors."""

    clock: float
    processors: float


def main() -> None:
    options = _options()
    print(show(compare(options)))


def compare(options: argparse.Namespace) -> list[Row]:
    X = gpe.datasets.patches(options.points, options.features)
    few = X[: min(25_000, len(X))]
    n_jobs = count_jobs(None)
    for n in (1, n_jobs):
        stages(few, options, n)  # compiles
    alone, together = stages(X, options, 1), stages(X, options, n_jobs)
    return [row for name in alone for row in _rows(name, alone[name], together[name], n_jobs)]


def stages(X: Any, options: argparse.Namespace, n_jobs: int) -> dict[str, Seconds]:
    """Seconds of each stage with so many threads."""
    graph_seconds, graph = _measured(
        lambda: gpe.neighbor_graph(X, options.neighbors, method="cells" if len(X) > 20_000 else "auto", n_jobs=n_jobs)
    )
    kernel_seconds, kernel = _measured(lambda: gpe.gaussian_kernel(graph))
    heat_seconds, heat = _measured(lambda: gpe.heat_kernel(kernel))
    sketch_seconds, _ = _measured(lambda: gpe.gp_embedding(heat, options.components, options.power))
    return {"graph": graph_seconds, "kernel": kernel_seconds, "heat": heat_seconds, "sketch": sketch_seconds}


def _measured(call: Callable[[], Any]) -> tuple[Seconds, Any]:
    clock, processors = time.perf_counter(), time.process_time()
    result = call()
    return Seconds(time.perf_counter() - clock, time.process_time() - processors), result


def _rows(name: str, alone: Seconds, together: Seconds, n_jobs: int) -> list[Row]:
    idle = n_jobs * together.clock - together.processors
    literal = n_jobs * together.clock - alone.clock
    detail = f"{alone.clock:.2f} s with one thread, {together.clock:.2f} s with {n_jobs}"
    return [
        Row(f"{name}: idle time of the other threads / work", max(0.0, idle) / together.processors, "x", _AIM, detail),
        Row(f"{name}: ({n_jobs} t({n_jobs}) - t(1)) / t(1)", literal / alone.clock, "x", _AIM),
    ]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_problem(parser)
    return parser.parse_args()


if __name__ == "__main__":
    main()
