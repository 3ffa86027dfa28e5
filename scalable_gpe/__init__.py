"""Gaussian process embeddings of large point sets.

The straight-line distances of the embedding approximate the diffusion distance of the data:

    K_ij = exp(-|x_i - x_j|^2 / epsilon),   A = S K S,   Y = A^p G / sqrt(k)

Every public name is imported on first use, so that ``import scalable_gpe`` costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scalable_gpe import datasets, exact
    from scalable_gpe.sketch.random_matrix import sketch_matrix

__version__ = "0.1.0"

# name -> the module that defines it
_HOME = {
    "sketch_matrix": "scalable_gpe.sketch.random_matrix",
}
_MODULES = ("datasets", "exact")

__all__ = [
    "sketch_matrix",
    "datasets",
    "exact",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
