"""The handle that the arrays of a zarr store share: its backend, write access, and opening of arrays."""

from __future__ import annotations

import contextlib
import json
import math
import pickle
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import zarr

from scalable_gpe.errors import DamageError, Message, StoreError
from scalable_gpe.storage.backends import StorageBackend
from scalable_gpe.storage.codec import ZarrArray, with_checks
from scalable_gpe.storage.lock import Lock

NOTES = ".damaged"  # the file that names arrays which a reader found damaged

_MOST_CHUNK = 2**40  # bytes that no chunk of this library has
_CODECS = {"bytes", "crc32c", "sharding_indexed"}  # all that this library writes: none of them expands what it reads


class StoreHandle:
    """Access to one zarr store.

    A pickle holds the path or URL with its options. Another process opens it for reading; while this process holds the
    lock, also for writing.
    """

    def __init__(self, backend: StorageBackend, *, read_only: bool) -> None:
        self.backend, self.read_only = backend, read_only
        self.lock: Lock | None = None

    def __reduce__(self) -> Any:
        return _reopened, (pickle.dumps(self.backend), self.lock is not None)

    def __str__(self) -> str:
        return str(self.backend)

    @cached_property
    def storage(self) -> Any:
        """The store as zarr opens it."""
        return self.backend.zarr(read_only=self.read_only)

    def check_writable(self) -> None:
        """Raise if the store was opened for reading."""
        if self.read_only:
            raise StoreError(
                Message(
                    f"store {str(self)!r} was opened for reading, and this would write to it. Pass `store=` for the "
                    "result, or call embed with this store."
                )
            )

    def fence(self) -> None:
        """Raise unless this process may commit and remove: it still has the lock that it took."""
        self.check_writable()
        if self.lock is not None:
            self.lock.check()

    def described(self, name: str) -> dict[str, Any] | None:
        """What zarr.json says of the array of that name, or None: there is none, or not one of this library."""
        try:
            described = json.loads(self.backend.read(f"{name}/zarr.json"))
            return described if _is_own(described) else None
        except (FileNotFoundError, ValueError, TypeError, LookupError, AttributeError, RecursionError):
            return None

    def open(self, name: str, *, write_empty: bool = True) -> ZarrArray | None:
        """Open the array of that name, or return None; `write_empty` (write chunks of zeros) is not stored with it.

        An array that this library has written, and zarr does not open, is no damage: the error is zarr's.
        """
        if self.described(name) is None:
            return None
        mode: Any = "r" if self.read_only else "r+"
        with self.backend.io():
            array = zarr.open_array(self.storage, path=name, mode=mode, zarr_format=3)
        return with_checks(array, write_empty=write_empty)

    def find(self, name: str, *, write_empty: bool = True) -> ZarrArray:
        """Open the array of that name, which must exist."""
        array = self.open(name, write_empty=write_empty)
        if array is None:
            raise DamageError(f"array {name!r} of store {str(self)!r} is missing, or not one of this library", name)
        return array

    def note_damage(self, name: str) -> None:
        """Note that an array is damaged, for the next run; a store that cannot be written to stays as it is."""
        with contextlib.suppress(OSError):
            self.backend.write(NOTES, "\n".join(sorted({*self.noted_damage(), name})).encode())

    def noted_damage(self) -> list[str]:
        """Arrays that were found to be damaged since the last run."""
        try:
            return self.backend.read(NOTES).decode(errors="replace").split()
        except FileNotFoundError:
            return []

    def forget_damage(self) -> None:
        """Remove the notes."""
        self.fence()
        self.backend.delete(NOTES)

    def remove(self, name: str) -> None:
        """Remove a result: its commit first, then its arrays."""
        if self.read_only and not self.backend.files(name):
            return  # nothing to remove, as for panels in memory
        self.fence()
        self.backend.remove(name, first="zarr.json")


def _is_own(described: Any) -> bool:
    """Whether an array has numbers and codecs that this library writes."""
    shape, chunk = described["shape"], described["chunk_grid"]["configuration"]["chunk_shape"]
    dtype = np.dtype(described["data_type"])
    counts = all(isinstance(n, int) and n >= 0 for n in (*shape, *chunk)) and len(chunk) == len(shape)
    small = counts and math.prod(chunk) * dtype.itemsize <= _MOST_CHUNK
    is_array = described["node_type"] == "array" and dtype.kind in "fiub"
    return is_array and small and _codec_names(described["codecs"]) <= _CODECS


def _codec_names(codecs: Any) -> set[str]:
    """Names of codecs, and of those inside them."""
    names: set[str] = set()
    for codec in codecs or ():
        inner = codec.get("configuration") or {}
        names |= {str(codec["name"])} | _codec_names(inner.get("codecs")) | _codec_names(inner.get("index_codecs"))
    return names


@lru_cache(maxsize=16)
def _reopened(backend: bytes, writer: bool) -> StoreHandle:
    """Open a handle that another process sent; a writer relies on the lock of that process."""
    handle = StoreHandle(pickle.loads(backend), read_only=not writer)
    if not writer and not handle.backend.exists("zarr.json"):
        raise FileNotFoundError(f"store {str(handle)!r} no longer exists. Restore it, or open a copy of it.")
    return handle
