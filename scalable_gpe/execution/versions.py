"""Versions of the libraries that affect results."""

import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version

_PACKAGES = ("scalable_gpe", "numpy", "scipy", "zarr", "numba", "pynndescent", "scikit-learn", "dask")


def versions() -> dict[str, str]:
    """Versions of Python and of the libraries that affect results, or "unknown"."""
    return {"python": platform.python_version(), **{name: _version(name) for name in _PACKAGES}}


@cache  # looking one up takes 10 ms
def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # a vendored or frozen copy has no metadata
        return "unknown"
