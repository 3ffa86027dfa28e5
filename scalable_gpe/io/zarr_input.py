"""Zarr arrays that others have written: opened for reading, and refused where reading would unpickle them."""

import json
import math
from typing import Any

import numpy as np
import zarr

from scalable_gpe.io.points import check_memory
from scalable_gpe.io.sources import array_name
from scalable_gpe.storage.backends import StorageOptions, open_backend


def as_array(found: "zarr.Array[Any] | zarr.Group", path: str) -> "zarr.Array[Any]":
    """Refuse what is not a zarr array of numbers (format 2 or 3)."""
    if isinstance(found, zarr.Group):
        raise ValueError(f"X: {path!r} is a zarr group, not an array; {_arrays_of(found)}")
    if np.dtype(found.dtype).kind not in "fiub":
        raise TypeError(f"X: the zarr array {path!r} has dtype {found.dtype}; it must be real and numeric.")
    check_array(found)
    return found


def _arrays_of(group: zarr.Group) -> str:
    """What a group holds, and what to do about it."""
    arrays = ", ".join(name for name, _ in group.arrays())
    if arrays:
        return f"it holds the arrays {arrays}. Name one of them with key=, or pass its path."
    return "it holds no array itself. Pass the path of an array; if it is a run of this library, use gpe.open."


def open_node(
    path: str, storage_options: StorageOptions | None = None, key: str | None = None
) -> "zarr.Array[Any] | zarr.Group":
    """Open an array or a group of a zarr store for reading."""
    backend = open_backend(path, storage_options)
    try:
        with backend.io(f"X {path!r}", missing=True):
            found: Any = zarr.open(backend.zarr(read_only=True), mode="r")
            if key is not None:
                found = found[key] if isinstance(found, zarr.Group) and key in found else None
    except FileNotFoundError as error:
        raise FileNotFoundError(f"X: there is no zarr array at {path!r}. Check the path.") from error
    except (OSError, ImportError, MemoryError):
        raise
    except Exception as error:  # whatever zarr raises for metadata that is not sound
        text = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise ValueError(f"X: {path!r} is not a sound zarr array: {text}. Write it again.") from None
    if not isinstance(found, zarr.Array | zarr.Group):
        raise ValueError(f"X: {path!r} holds no {key!r}. Check the key.")
    return found


def check_array(array: "zarr.Array[Any]") -> None:
    """Refuse chunks that need more memory than there is, and those that would be unpickled: that runs code of the file.

    Pickles are a codec of format 2.
    """
    described = array.metadata.to_dict()
    codecs = [described.get(part) for part in ("codecs", "filters", "compressor")]
    if "pickle" in json.dumps(codecs, default=repr).lower():
        raise TypeError(
            f"X: the zarr array {array_name(array)!r} is stored as pickles, which are never read. Convert it."
        )
    if array.dtype.kind in "fiub":
        check_memory(math.prod(array.chunks) * array.dtype.itemsize, f"a chunk of the zarr array {array_name(array)!r}")
