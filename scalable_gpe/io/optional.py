"""Packages that only some file formats need."""

from importlib import import_module
from typing import Any


def import_optional(package: str, extra: str, what: str) -> Any:
    """Import a package, or say which extra of this library installs it."""
    try:
        return import_module(package)
    except ImportError:
        name = package.partition(".")[0]
        raise ImportError(f'{what} needs {name}; install it with: pip install "scalable-gpe[{extra}]"') from None
