"""Zarr arrays that others have made: opened for reading, never anything that would be unpickled."""

import json
from typing import Any

import numpy as np
import zarr

from scalable_gpe.storage.backends import open_backend


def open_array(path: str, storage_options: dict[str, Any] | None = None, key: str | None = None) -> zarr.Array:
    """Open a zarr array (format 2 or 3) for reading; never one of Python objects."""
    found = open_node(path, storage_options, key)
    if not isinstance(found, zarr.Array):
        arrays = ", ".join(name for name, _ in found.arrays()) or "none"
        raise ValueError(
            f"X: {path!r} is a zarr group, not an array; it holds the arrays {arrays}. Name one of them with key=, "
            "or pass its path."
        )
    if np.dtype(found.dtype).kind not in "fiub":
        raise TypeError(f"X: the zarr array {path!r} has dtype {found.dtype}; it must be real and numeric.")
    check_codecs(found)
    return found


def open_node(path: str, storage_options: dict[str, Any] | None = None, key: str | None = None) -> Any:
    """Open an array or a group of a zarr store for reading."""
    backend = open_backend(path, storage_options)
    try:
        with backend.io(f"X {path!r}", missing=True):
            found: Any = zarr.open(backend.zarr(read_only=True), mode="r")
            if key is None:
                return found
            if not isinstance(found, zarr.Array) and key in found:
                return found[key]
    except FileNotFoundError as error:
        raise FileNotFoundError(f"X: there is no zarr array at {path!r}. Check the path.") from error
    raise ValueError(f"X: {path!r} holds no {key!r}. Check the key.")


def check_codecs(array: zarr.Array) -> None:
    """Refuse an array whose chunks would be unpickled (a codec of format 2): that runs code from the file."""
    described = array.metadata.to_dict()
    codecs = [described.get(part) for part in ("codecs", "filters", "compressor")]
    if "pickle" in json.dumps(codecs, default=repr).lower():
        raise TypeError(f"X: the zarr array {array.path!r} is stored as pickles, which are never read. Convert it.")
