"""Gaussian process embeddings of large point sets.

The straight-line distances of the embedding approximate the diffusion distance of the data:

    K_ij = exp(-|x_i - x_j|^2 / epsilon),   A = S K S,   Y = A^p G / sqrt(k)

Every public name is imported on first use, so that ``import scalable_gpe`` costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scalable_gpe import datasets, errors, exact, pl, plot, tl
    from scalable_gpe.accuracy import Audit, audit
    from scalable_gpe.embedding import Embedding
    from scalable_gpe.estimators import DiffusionMap, GaussianProcessEmbedding
    from scalable_gpe.exports import export
    from scalable_gpe.graph.build import neighbor_graph
    from scalable_gpe.graph.neighbors import NeighborGraph
    from scalable_gpe.graph_estimators import GraphClassifier, KNeighborsTransformer
    from scalable_gpe.heat.bandwidth import epsilon_sweep
    from scalable_gpe.heat.kernel import SparseKernel, gaussian_kernel
    from scalable_gpe.heat.normalization import HeatKernel, heat_kernel
    from scalable_gpe.html_report import write_report
    from scalable_gpe.io.files import read_points
    from scalable_gpe.io.points import Points
    from scalable_gpe.pipeline import embed
    from scalable_gpe.pipeline import open_embedding as open
    from scalable_gpe.planning import estimate
    from scalable_gpe.propagation.propagate import Propagation, propagate
    from scalable_gpe.repairs import repair
    from scalable_gpe.sketch.gaussian_process import gp_embedding
    from scalable_gpe.sketch.random_matrix import sketch_matrix
    from scalable_gpe.spectral.diffusion_map import diffusion_map
    from scalable_gpe.spectral.lanczos import Spectrum, spectrum

__version__ = "0.2.0"

# name -> the module that defines it, and its name there where that is another one
_MODULE_OF = {
    "embed": "scalable_gpe.pipeline",
    "open": "scalable_gpe.pipeline:open_embedding",
    "estimate": "scalable_gpe.planning",
    "Embedding": "scalable_gpe.embedding",
    "neighbor_graph": "scalable_gpe.graph.build",
    "NeighborGraph": "scalable_gpe.graph.neighbors",
    "gaussian_kernel": "scalable_gpe.heat.kernel",
    "SparseKernel": "scalable_gpe.heat.kernel",
    "epsilon_sweep": "scalable_gpe.heat.bandwidth",
    "heat_kernel": "scalable_gpe.heat.normalization",
    "HeatKernel": "scalable_gpe.heat.normalization",
    "sketch_matrix": "scalable_gpe.sketch.random_matrix",
    "gp_embedding": "scalable_gpe.sketch.gaussian_process",
    "diffusion_map": "scalable_gpe.spectral.diffusion_map",
    "spectrum": "scalable_gpe.spectral.lanczos",
    "Spectrum": "scalable_gpe.spectral.lanczos",
    "propagate": "scalable_gpe.propagation.propagate",
    "Propagation": "scalable_gpe.propagation.propagate",
    "audit": "scalable_gpe.accuracy",
    "Audit": "scalable_gpe.accuracy",
    "read_points": "scalable_gpe.io.files",
    "Points": "scalable_gpe.io.points",
    "export": "scalable_gpe.exports",
    "write_report": "scalable_gpe.html_report",
    "repair": "scalable_gpe.repairs",
    "GaussianProcessEmbedding": "scalable_gpe.estimators",
    "DiffusionMap": "scalable_gpe.estimators",
    "GraphClassifier": "scalable_gpe.graph_estimators",
    "KNeighborsTransformer": "scalable_gpe.graph_estimators",
}
_MODULES = ("datasets", "errors", "exact", "pl", "plot", "tl")

__all__ = [
    "embed",
    "open",
    "estimate",
    "Embedding",
    "neighbor_graph",
    "NeighborGraph",
    "gaussian_kernel",
    "SparseKernel",
    "epsilon_sweep",
    "heat_kernel",
    "HeatKernel",
    "sketch_matrix",
    "gp_embedding",
    "diffusion_map",
    "spectrum",
    "Spectrum",
    "propagate",
    "Propagation",
    "audit",
    "Audit",
    "read_points",
    "Points",
    "export",
    "write_report",
    "repair",
    "GaussianProcessEmbedding",
    "DiffusionMap",
    "GraphClassifier",
    "KNeighborsTransformer",
    "datasets",
    "errors",
    "exact",
    "pl",
    "plot",
    "tl",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
    module, _, inner = _MODULE_OF[name].partition(":")
    value = getattr(import_module(module), inner or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
