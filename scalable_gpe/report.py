"""What a run says about itself when it is done."""

import platform
import resource
import sys
import time
from importlib.metadata import version
from typing import Any

import numpy as np

from scalable_gpe.errors import ConnectivityWarning, VanishingWarning, warn
from scalable_gpe.execution.context import Context
from scalable_gpe.graph.neighbors import NeighborGraph
from scalable_gpe.heat.kernel import SparseKernel
from scalable_gpe.heat.normalization import HeatKernel
from scalable_gpe.sketch.gaussian_process import sweeps_of
from scalable_gpe.sketch.polynomial import Plan

STAGES = ("graph", "kernel", "heat", "sketch", "write")
_PACKAGES = ("scalable_gpe", "numpy", "scipy", "zarr", "numba", "pynndescent", "scikit-learn", "dask")
_VANISHED = 1e-5  # differences of rows, relative to the rows, that are rounding only


def make_report(
    graph: NeighborGraph,
    kernel: SparseKernel,
    heat: HeatKernel,
    plans: dict[int, Plan],
    asked: dict[str, Any],
    curve: Any,
    tables: dict[int, Any],
    context: Context,
) -> dict[str, Any]:
    """Everything that was measured on the way; what cannot be known is None, with the reason in ``reasons``."""
    several = isinstance(asked["power"], list)
    errors = {power: plan.error for power, plan in plans.items()}
    n_points = graph.storage_order.n_points
    report = {
        "n_rows": graph.n_rows,
        "n_distinct": n_points,
        "n_duplicates": graph.n_rows - n_points,
        "n_isolated": heat.n_isolated,
        "n_connected_components": graph.n_connected_components,
        "n_neighbors": graph.n_neighbors,
        "method": graph.method,
        "epsilon": kernel.epsilon,
        "sigma": kernel.scales and kernel.scales.metadata,
        "nnz": kernel.nnz,
        "recall": graph.recall,
        "recall_error": graph.metadata.get("recall_error"),
        "lost_mass": kernel.lost_mass,
        "sinkhorn_iterations": heat.n_iter if heat.normalization == "bistochastic" else None,
        "sinkhorn_residual": heat.residual if heat.normalization == "bistochastic" else None,
        "converged": heat.converged,
        "power": asked["power"] if several else asked["powers"][0],
        "power_curve": curve,
        "sweeps": {
            "heat": heat.n_iter,
            "interval": max((plan.n_probes for plan in plans.values()), default=0),
            "sketch": sweeps_of(list(plans.values())),
        },
        "lambda_min": min((plan.lower for plan in plans.values() if plan.coefficients), default=None),
        "polynomial_error": errors if several else errors[asked["powers"][0]],
        "stage_seconds": {stage: context.seconds.get(stage, 0.0) for stage in STAGES},
        "total_seconds": sum(context.seconds.values()),
        "peak_memory": _peak_memory(),
        "versions": versions(),
        "reasons": _reasons(graph, kernel, heat, plans, asked),
        "finished_at": time.time(),
    }
    stages = (context.store.metadata(stage.name) or {} for stage in (graph, kernel, heat))
    report["warnings"] = [metadata["warning"] for metadata in stages if "warning" in metadata] + _warn_about(
        report, tables
    )
    return report


def versions() -> dict[str, str]:
    """Versions of Python and of the libraries that shape a result."""
    return {"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}}


def _peak_memory() -> int:
    """Largest resident memory of this process in bytes; ru_maxrss would count that of the process which started it."""
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _reasons(
    graph: NeighborGraph, kernel: SparseKernel, heat: HeatKernel, plans: dict[int, Plan], asked: dict[str, Any]
) -> dict[str, str]:
    """Why a figure of the report is None, or not what it seems."""
    reasons: dict[str, str] = {}
    if kernel.scales is None:
        reasons["sigma"] = "all rows share one epsilon"
    else:
        reasons["epsilon"] = "the median of sigma^2: with local length scales each row has its own sigma"
    if graph.scan is None:
        reasons |= dict.fromkeys(("recall", "recall_error", "lost_mass"), "neighbors were given without X")
    if heat.normalization != "bistochastic":
        reasons |= dict.fromkeys(
            ("sinkhorn_iterations", "sinkhorn_residual"), "the symmetric scaling needs no iteration"
        )
    if not any(plan.coefficients for plan in plans.values()):
        reasons["lambda_min"] = "plain products need no interval"
    if graph.method == "pynndescent":
        reasons["method"] = "pynndescent's lists depend on the number of threads: not the same bytes everywhere"
    if asked["power"] != "auto":
        reasons["power_curve"] = "the power was given"
    return reasons


def with_int_keys(report: dict[str, Any]) -> dict[str, Any]:
    """Restore a report that came out of JSON, which has no whole numbers as keys."""
    errors = report["polynomial_error"]
    if isinstance(errors, dict):
        report["polynomial_error"] = {int(power): error for power, error in errors.items()}
    return report


def _warn_about(report: dict[str, Any], tables: dict[int, Any]) -> list[str]:
    """Warn about rows without neighbours and powers that leave nothing."""
    said = []
    if report["n_isolated"] > 0.01 * report["n_rows"]:
        text = (
            f"{report['n_isolated']} of {report['n_rows']} rows have no effective neighbours: they stay where the "
            "sketch puts them. Raise n_neighbors or epsilon."
        )
        said.append(warn(text, ConnectivityWarning))
    for power, table in tables.items():
        rows = table.read(0, min(4096, table.shape[0]))
        # rounding leaves a vector in which all rows are the same, and which no power of A shrinks
        if not float(np.ptp(rows, axis=0).max()) > max(1e-30, _VANISHED * float(np.abs(rows).max())):
            text = (
                f"power={power} leaves nothing of the data: all rows are equal up to rounding. Choose a smaller power."
            )
            said.append(warn(text, VanishingWarning))
    return said
