"""The handle that the arrays of a zarr store share: its backend, write access, and opening of arrays."""

from __future__ import annotations

import contextlib
import json
import pickle
from functools import cached_property, lru_cache
from typing import Any

import zarr

from scalable_gpe.errors import DamageError, StoreError
from scalable_gpe.storage.backends import StorageBackend
from scalable_gpe.storage.codec import ZarrArray, with_checks
from scalable_gpe.storage.lock import Lock

NOTES = ".damaged"  # the file that names arrays which a reader found damaged


class StoreHandle:
    """Access to one zarr store.

    A pickle holds the path or URL with its options. Another process opens it for reading; while this process holds the
    lock, also for writing.
    """

    def __init__(self, backend: StorageBackend, *, read_only: bool) -> None:
        self.backend, self.read_only = backend, read_only
        self.held_lock: Lock | None = None

    def __reduce__(self) -> Any:
        return _reopened, (type(self), pickle.dumps(self.backend), self.held_lock is not None)

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
                f"store {str(self)!r} was opened for reading, and this would write to it. Pass store= for the "
                "result, or call embed with this store."
            )

    def lock(self) -> None:
        """Take the lock; raise if another process holds it."""
        self.check_writable()
        self.held_lock = self.backend.lock()

    def unlock(self) -> None:
        """Release the lock."""
        if self.held_lock is not None:
            lock, self.held_lock = self.held_lock, None
            lock.release()

    def fence(self) -> None:
        """Raise unless this process may commit and remove: it still has the lock that it took."""
        self.check_writable()
        if self.held_lock is not None:
            self.held_lock.check()

    def described(self, name: str) -> dict[str, Any] | None:
        """What zarr.json says of the array of that name, or None: there is none, or it is not readable."""
        try:
            described = json.loads(self.backend.read(f"{name}/zarr.json"))
            return described if described["node_type"] == "array" else None
        except (FileNotFoundError, ValueError, TypeError, LookupError, RecursionError):
            return None

    def find(self, name: str, *, write_empty: bool = True) -> ZarrArray:
        """Open the array of that name; `write_empty` (write chunks of zeros) is not stored with it.

        An array that this library has written, and zarr does not open, is no damage: the error is zarr's.
        """
        if self.described(name) is None:
            raise DamageError(f"array {name!r} of store {str(self)!r} is missing, or not readable", name)
        mode: Any = "r" if self.read_only else "r+"
        with self.backend.io():
            array = zarr.open_array(self.storage, path=name, mode=mode, zarr_format=3)
        return with_checks(array, write_empty=write_empty)

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
        self.backend.remove(name)


@lru_cache(maxsize=16)
def _reopened(kind: type[StoreHandle], backend: bytes, writer: bool) -> StoreHandle:
    """Open a store that another process sent; a writer relies on the lock of that process."""
    store = kind.__new__(kind)
    StoreHandle.__init__(store, pickle.loads(backend), read_only=not writer)
    if not writer and not store.backend.exists("zarr.json"):
        raise FileNotFoundError(f"store {str(store)!r} no longer exists. Restore it, or open a copy of it.")
    return store
