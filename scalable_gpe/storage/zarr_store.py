"""The zarr store of a run: makes and finds checksummed arrays, for one writer at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import zarr
from zarr.codecs import Crc32cCodec

from scalable_gpe.errors import StoreError, logger
from scalable_gpe.storage.arrays import ScratchTable, StoredRagged, StoredTable, ZarrArray
from scalable_gpe.storage.backends import StorageOptions, check_new_store, open_backend
from scalable_gpe.storage.blocks import block_rows
from scalable_gpe.storage.commits import Commits

FORMAT = "scalable_gpe"
FORMAT_VERSION = 2
SCRATCH = "work"  # the group of scratch arrays
OWNER = "run"  # the attribute of an array that names the run which writes it
_CHUNK_BYTES = 2**22
_TAKE_ROWS = 4096  # rows of an inner chunk of a table that is read by row numbers


class ZarrStore(Commits):
    """Persistent store: one zarr (format 3) group, in a directory or an object store.

    A pickle holds the path or URL with its options (see `Commits`).
    """

    persistent = True

    def __init__(self, path: Any, *, read_only: bool = False, storage_options: StorageOptions | None = None) -> None:
        super().__init__(open_backend(path, storage_options), read_only=read_only)
        attributes = self._attributes("")
        if attributes is None and read_only:
            if self.backend.folders() or self.backend.exists(".zgroup"):
                raise StoreError(f"store {str(self)!r} was not made by scalable_gpe. Check the path.")
            raise FileNotFoundError(f"store {str(self)!r} does not exist. Check the path.")
        if attributes is None:
            attributes = self._begin()
        _check_format(attributes.get("format"), attributes.get("format_version"), str(self))

    @property
    def location(self) -> str:
        """What tells this store from all others: its URL, or its path with links followed."""
        return str(self) if self.backend.network else os.path.realpath(str(self))

    def _begin(self) -> dict[str, Any]:
        """Make the group of a new store."""
        check_new_store(str(self))
        if not self.backend.is_empty():
            raise StoreError(f"store {str(self)!r} is a directory with other contents. Pass a new or empty path.")
        attributes: dict[str, Any] = {"format": FORMAT, "format_version": FORMAT_VERSION}
        try:
            self._write_group("", attributes)
        except OSError as error:
            if isinstance(error, StoreError):
                raise
            raise StoreError(f"store {str(self)!r} cannot be made: {error}. Pass another path.") from error
        return attributes

    # --- tables -------------------------------------------------------------------------------

    def table(
        self, name: str, shape: tuple[int, ...], dtype: Any, shard_rows: int | None = None, owner: str | None = None
    ) -> StoredTable:
        """Make a table, or find the unfinished one of that name and owner."""
        shard = min(shard_rows or block_rows(shape[0]), max(shape[0], 1))
        row_bytes = int(np.prod(shape[1:], dtype=np.int64)) * np.dtype(dtype).itemsize
        chunk = max(1, min(_TAKE_ROWS if len(shape) > 1 else shard, shard, _CHUNK_BYTES // max(row_bytes, 1)))
        # a shard is a whole number of chunks
        chunk = next((rows for rows in range(chunk, chunk // 2, -1) if shard % rows == 0), shard)
        widths = [max(1, size) for size in shape[1:]]  # zarr 3.2 refuses chunks of no columns
        array = self._array(name, shape, dtype, (chunk, *widths), (shard, *widths), owner=owner)
        return StoredTable(self, array)

    def ragged(self, name: str, n_blocks: int, longest: int, dtype: Any, n_chunks: int = 1) -> StoredRagged:
        """Make ragged blocks of at most `longest` entries, or find the unfinished ones of that name.

        Each is stored in at least `n_chunks` chunks, of which those of padding are not written.
        """
        chunk = min(-(-(longest + 1) // n_chunks), _CHUNK_BYTES // np.dtype(dtype).itemsize)
        width = -(-(longest + 1) // chunk) * chunk
        array = self._array(name, (n_blocks, width), dtype, (1, chunk), (1, width), write_empty=False)
        return StoredRagged(self, array)

    def scratch_table(self, name: str, shape: Sequence[int], dtype: Any, shard_rows: int) -> ScratchTable:
        """Make a table without metadata, which its owner removes."""
        return ScratchTable(self, name, tuple(shape), np.dtype(dtype), shard_rows)

    def _array(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: Any,
        chunks: tuple[int, ...],
        shards: tuple[int, ...],
        write_empty: bool = True,
        owner: str | None = None,
    ) -> ZarrArray:
        if self._is_begun(name, shape, np.dtype(dtype), owner):
            return self.find(name, write_empty=write_empty)
        self.check_writable()
        self.remove(name)
        with self.backend.io():
            self._make_parents(name)
            zarr.create_array(
                self.storage,
                name=name,
                shape=shape,
                dtype=dtype,
                chunks=chunks,
                shards=None if shards == chunks else shards,
                compressors=(Crc32cCodec(),),
                # a chunk that was removed reads as NaN; in ragged blocks those of padding are not written
                fill_value=np.nan if write_empty and np.dtype(dtype).kind == "f" else 0,
                attributes=None if owner is None else {OWNER: owner},
            )
        return self.find(name, write_empty=write_empty)

    def _is_begun(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any], owner: str | None) -> bool:
        """Whether there is an array of that name, shape, type and owner."""
        described = self.described(name)
        if described is None:
            return False
        begun = described.get("shape"), described.get("data_type"), self.owner(name)
        return begun == (list(shape), dtype.name, owner)

    def open_table(self, name: str) -> StoredTable:
        """Find the table of that name."""
        return StoredTable(self, self.find(name))

    def open_ragged(self, name: str) -> StoredRagged:
        """Find the ragged blocks of that name."""
        return StoredRagged(self, self.find(name, write_empty=False))

    def find_table(self, name: str) -> StoredTable | None:
        """Find the table of that name, or None."""
        return None if self.described(name) is None else self.open_table(name)

    def detach(self, name: str) -> Any:
        """Return the array of a table, which stays in the store."""
        return self.open_table(name).array

    def owner(self, name: str) -> str | None:
        """Key of the run that writes (or wrote) a table; None if there is none, or no such table."""
        described = self.described(name)
        attributes = None if described is None else described.get("attributes")
        return str(attributes.get(OWNER, "")) or None if isinstance(attributes, dict) else None

    def discard(self) -> None:
        """Remove a store that holds no results."""
        self.fence()
        for name in self.backend.folders():
            self.remove(name)
        self.backend.delete("zarr.json")
        self.backend.remove_root()

    @contextmanager
    def exclusive(self, *, repaired: bool = True) -> Iterator[None]:
        """Hold the lock; remove scratch arrays and partial files before the work and after it.

        With `repaired`, results that a reader found damaged are no longer complete, so that they are made again, and
        the notes of such readers are removed.
        """
        self.lock()
        try:
            self.backend.remove_partial()
            self.remove(SCRATCH)
            if repaired:
                self.repair_noted()
            yield
        finally:
            try:
                self.remove(SCRATCH)
                self.backend.remove_partial()  # of workers that were killed
                if repaired:
                    self.forget_damage()  # what was found during the work was repaired, or is found again
            except Exception as error:  # the next run removes it; the first error must not be lost
                logger.warning("scratch arrays stay in %s until the next run: %s", self, error)
            finally:
                self.unlock()


def _check_format(kind: object, version: object, store: str) -> None:
    if kind != FORMAT:
        raise StoreError(
            f"store {store!r} was not made by scalable_gpe (its zarr.json names no format). "
            "Pass another path; nothing in it was changed."
        )
    if version != FORMAT_VERSION:
        raise StoreError(
            f"store {store!r} has format version {version}, this release reads {FORMAT_VERSION}. Use the release that "
            "wrote it, or start over in another path."
        )
