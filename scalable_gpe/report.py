"""The report of a run: figures of all stages, reasons for missing figures, warnings."""

import resource
import sys
import time
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from scalable_gpe.checks import Power
from scalable_gpe.errors import ConnectivityWarning, RecallWarning, VanishingWarning, warn
from scalable_gpe.execution.process import is_controlled, versions
from scalable_gpe.graph.neighbors import NeighborGraph
from scalable_gpe.heat.kernel import SparseKernel
from scalable_gpe.heat.local import ScaleMetadata
from scalable_gpe.heat.normalization import HeatKernel
from scalable_gpe.parameters import AUTO, Parameters
from scalable_gpe.sketch.gaussian_process import SketchResult
from scalable_gpe.storage import mapped
from scalable_gpe.storage.store import Table

STAGES = ("graph", "kernel", "heat", "sketch", "write")
_SAMPLED = 4096  # rows that are looked at
_VANISHED = 1e-5  # differences between rows below this share of their size are rounding


@dataclass(frozen=True)
class Report:
    """Figures that a run measured; one that cannot be known is None, with the reason in ``reasons``."""

    n_rows: int
    n_distinct: int
    n_duplicates: int
    n_isolated: int
    n_connected_components: int
    n_neighbors: int
    method: str
    epsilon: float | None
    sigma: ScaleMetadata | None
    nnz: int
    recall: float | None
    recall_error: float | None
    lost_mass: float | None
    sinkhorn_iterations: int | None
    sinkhorn_residual: float | None
    converged: bool
    power: Power | tuple[Power, ...]
    sweeps: dict[str, int]
    lambda_min: float | None
    polynomial_error: float | dict[Power, float]
    stage_seconds: dict[str, float]
    total_seconds: float
    peak_memory: int
    versions: dict[str, str]
    reasons: dict[str, str]
    finished_at: float
    n_parts: int | None = None
    recall_trace: tuple[float, ...] = ()
    n_panels: int | None = None
    horizon: int | None = None
    first_power: int | None = None
    relaxation_time: float | None = None
    solver_cycles: int | None = None
    solver_levels: int | None = None
    contraction: float | None = None
    solver_error: float | None = None
    solver_error_worst: float | None = None
    n_sketch: int | None = None
    kept_variance: float | dict[Power, float] | None = None
    n_kernel_components: int | None = None
    missing_weight: float | None = None
    cluster: str | None = None
    n_dropped: int = 0
    warnings: tuple[str, ...] = field(default_factory=tuple)

    def as_dict(self) -> dict[str, Any]:
        """The report as users see it: plain numbers, texts, lists and dicts."""
        shown = asdict(self) | {"warnings": list(self.warnings), "recall_trace": list(self.recall_trace)}
        if isinstance(self.power, tuple):
            shown["power"] = list(self.power)
        return shown


def make_report(
    graph: NeighborGraph,
    kernel: SparseKernel,
    heat: HeatKernel,
    sketch: SketchResult,
    parameters: Parameters,
    tables: dict[Power, Table],
    seconds: dict[str, float],
    memory_warning: str | None = None,
) -> Report:
    """Collect the figures of all stages, and warn about problems."""
    plans, n_points = sketch.plans, graph.storage_order.n_points
    errors = {power: sketch.error(power) for power in plans}
    scales, solver_error = sketch.scales, sketch.solver_error
    bistochastic = heat.normalization == "bistochastic"
    axes = {} if parameters.n_sketch is None else sketch.axes(parameters.sketching, heat.context)
    kept = {power: float(one.shares[: parameters.n_components].sum()) for power, one in axes.items()} or None
    report = Report(
        n_rows=graph.n_rows,
        n_dropped=graph.metadata.n_dropped,
        n_distinct=n_points,
        n_duplicates=graph.n_rows - n_points,
        n_isolated=heat.n_isolated,
        n_connected_components=graph.n_connected_components,
        n_kernel_components=kernel.n_connected_components,
        n_neighbors=graph.n_neighbors,
        method=graph.method,
        epsilon=kernel.epsilon,
        sigma=None if kernel.scales is None else kernel.scales.metadata,
        nnz=kernel.nnz,
        recall=graph.recall,
        recall_error=graph.metadata.recall_error,
        n_parts=graph.metadata.n_parts,
        recall_trace=graph.metadata.recall_trace,
        lost_mass=kernel.lost_mass,
        missing_weight=kernel.missing_weight,
        sinkhorn_iterations=heat.n_iter if bistochastic else None,
        sinkhorn_residual=heat.residual if bistochastic else None,
        converged=heat.converged,
        power=parameters.powers if parameters.several else parameters.powers[0],
        sweeps={
            "heat": heat.n_iter,
            "interval": max((plan.n_probes for plan in plans.values()), default=0),
            "sketch": sketch.sweeps_per_panel,
        },
        n_panels=sketch.n_panels,
        lambda_min=min((plan.lambda_min for plan in plans.values() if plan.lambda_min is not None), default=None),
        horizon=None if sketch.horizon is None else sketch.horizon.horizon,
        first_power=None if scales is None else scales.filter.first,
        relaxation_time=None if sketch.horizon is None else sketch.horizon.relaxation_time,
        solver_cycles=None if scales is None else scales.solver.n_cycles,
        solver_levels=None if scales is None else scales.solver.n_levels,
        contraction=None if scales is None else scales.solver.contraction,
        solver_error=None if solver_error is None else solver_error.mean,
        solver_error_worst=None if solver_error is None else solver_error.worst,
        n_sketch=parameters.n_sketch,
        kept_variance=kept if parameters.several or not kept else kept[parameters.powers[0]],
        polynomial_error=errors if parameters.several else errors[parameters.powers[0]],
        stage_seconds={stage: seconds.get(stage, 0.0) for stage in STAGES},
        total_seconds=sum(seconds.values()),
        peak_memory=max(heat.context.workers.on_each(peak_memory)),
        cluster=heat.context.workers.placement.cluster,
        versions=versions(),
        reasons=_reasons(graph, kernel, heat, sketch, parameters),
        finished_at=time.time(),
    )
    memory = None if memory_warning is None else memory_warning
    earlier = (graph.metadata.warning, kernel.warning, heat.warning, memory)
    texts = [*graph.metadata.remarks, *(text for text in earlier if text is not None)]
    texts += _warn_about_recall(graph, report.missing_weight)
    warned = plans.values()
    texts += [text for one in warned if (text := one.warning) is not None]
    texts += _warn_about(report, heat, {power: tables[power] for power in tables if plans[power].warning is None})
    return replace(report, warnings=tuple(texts))


def peak_memory() -> int:
    """Peak resident memory of this process in bytes; ru_maxrss would include that of the parent process."""
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _reasons(
    graph: NeighborGraph, kernel: SparseKernel, heat: HeatKernel, sketch: SketchResult, parameters: Parameters
) -> dict[str, str]:
    """Why a figure of the report is None, or how to read it."""
    reasons = {"cluster": heat.context.workers.placement.reason}
    if heat.context.plan.resources.given and not (mapped.is_measured() and is_controlled()):
        reasons["peak_memory"] = (
            "memory_limit is a plan here: the run cannot be held to it without /proc/self/statm and glibc's malloc_trim"
        )
    elif heat.context.workers.remote:
        reasons["peak_memory"] = "the largest of the calling process and the workers, each since it started"
    if kernel.scales is None:
        reasons["sigma"] = "all rows share one epsilon"
    else:
        reasons["epsilon"] = "the median of sigma^2: with local length scales each row has its own sigma"
    if graph.scan is None:
        missing = ("recall", "recall_error", "lost_mass", "missing_weight")
        reasons |= dict.fromkeys(missing, "neighbors were given without X")
    elif kernel.lost_mass is None:
        reasons["lost_mass"] = "with local length scales it is known for straight-line distances only"
    if graph.metadata.n_parts is None:
        reasons["n_parts"] = "neighbors were given"
    if heat.normalization != "bistochastic":
        reasons |= dict.fromkeys(
            ("sinkhorn_iterations", "sinkhorn_residual"), "the symmetric scaling needs no iteration"
        )
    if all(plan.lambda_min is None for plan in sketch.plans.values()):
        reasons["lambda_min"] = "powers this small need no spectrum"
    if graph.method == "pynndescent":
        reasons["method"] = "pynndescent's lists depend on the number of threads: results may differ between machines"
    if parameters.n_sketch is None:
        reasons |= dict.fromkeys(("n_sketch", "kept_variance"), "all columns of the sketch are kept")
    if sketch.horizon is None:
        solver = ("contraction", "solver_cycles", "solver_levels", "solver_error", "solver_error_worst")
        names = ("horizon", "relaxation_time", "first_power", *solver)
        reasons |= dict.fromkeys(names, "only the sum of all powers has it")
    elif sketch.horizon.relaxation_time is None:
        given = parameters.horizon != AUTO
        reasons["relaxation_time"] = "the horizon was given" if given else "the data have no shape that decays"
    elif sketch.horizon.is_bound:
        reasons["relaxation_time"] = "at most this: no slower mode lives on 1 % of the rows"
    return reasons


def _warn_about_recall(graph: NeighborGraph, missing_weight: float | None) -> list[str]:
    """Say what a search with too low recall costs, which only the kernel tells; return the texts."""
    if graph.metadata.warning is None or not missing_weight:
        return []
    text = (
        f"the true neighbours that the search missed hold {missing_weight:.1%} of the kernel's weight. Distances "
        "between near rows are off by about that share at all scales, and by a few times as much at some single powers."
    )
    return [warn(text, RecallWarning)]


def _warn_about(report: Report, heat: HeatKernel, tables: dict[Power, Table]) -> list[str]:
    """Warn about isolated rows and about powers that leave nothing of the data; return the texts."""
    texts = []
    n_alone = heat.n_isolated_points
    if n_alone > 0.01 * report.n_distinct:
        text = (
            f"{n_alone} of {report.n_distinct} different rows have no effective neighbours: the sketch alone decides "
            "where they are. Raise n_neighbors or epsilon, or pass epsilon='local'."
        )
        texts.append(warn(text, ConnectivityWarning))
    ordinary = ~heat.isolated[heat.kernel.storage_order.position[:_SAMPLED]]
    for power, table in tables.items():
        rows = table.read(0, len(ordinary))[ordinary]
        if not len(rows):
            continue
        # rounding leaves a constant vector, which no power of A shrinks
        if not float(np.ptp(rows, axis=0).max()) > max(1e-30, _VANISHED * float(np.abs(rows).max())):
            text = (
                f"power={power} leaves nothing of the data: all rows are equal up to rounding. Choose a smaller power."
            )
            texts.append(warn(text, VanishingWarning))
    return texts
