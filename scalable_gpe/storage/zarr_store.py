"""The zarr store of a run: checksummed tables, marks that are written last, verification.

Each result (``graph/<key>``, ``kernel/<key>``, ...) is a zarr group. Its attributes are its mark:
absent until every chunk is on disk, written in one atomic replacement, and holding a checksum of
the metadata of each array, because a changed dtype or shape reads as wrong numbers silently.
Where the store lives, a directory or an object store, is the business of its `Place`.
"""

import contextlib
import hashlib
import itertools
import json
import os
import pickle
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import zarr
from zarr.codecs import Crc32cCodec

from scalable_gpe.errors import DamageError, StoreError
from scalable_gpe.storage.arrays import DECODING, StoredRagged, StoredTable, chunk_name
from scalable_gpe.storage.backends import StorageBackend, open_backend
from scalable_gpe.storage.lock import Lock
from scalable_gpe.storage.protocol import Metadata, block_rows
from scalable_gpe.storage.scratch import ScratchRagged, ScratchTable

FORMAT = "scalable_gpe"
FORMAT_VERSION = 1
_CHUNK_BYTES = 2**22
_TAKE_ROWS = 4096  # rows of an inner chunk of a table that is read by row numbers


class ZarrStore:
    """A home that lasts: one zarr (format 3) group per run, in a directory or an object store.

    Pickled, it is a path or URL with its options. In another process it is opened for reading; while its lock is held,
    also for writing, and nothing is looked at until it is needed.
    """

    stored = True

    def __init__(self, path: Any, *, read_only: bool = False, storage_options: dict[str, Any] | None = None) -> None:
        self._settle(open_backend(path, storage_options), read_only=read_only)
        attributes = self._attributes("")
        if attributes is None and read_only:
            if self.backend.folders() or self.backend.exists(".zgroup"):
                raise StoreError(f"store {str(self.backend)!r} was not made by scalable_gpe. Check the path.")
            raise FileNotFoundError(f"store {str(self.backend)!r} does not exist. Check the path.")
        if attributes is None:
            attributes = self._begin()
        _check_format(attributes, str(self.backend))

    def _settle(self, backend: StorageBackend, *, read_only: bool) -> None:
        self.backend = backend
        self.read_only = read_only
        self._lock: Lock | None = None

    def __reduce__(self) -> Any:
        return _reopened, (pickle.dumps(self.backend), self._lock is not None)

    def _begin(self) -> dict[str, Any]:
        """Make the group of a new store."""
        if not self.backend.is_empty():
            raise StoreError(
                f"store {str(self.backend)!r} is a directory with other contents. Pass a new or empty path."
            )
        attributes: dict[str, Any] = {"format": FORMAT, "format_version": FORMAT_VERSION}
        with self.backend.io():
            zarr.open_group(self._zarr, mode="a", zarr_format=3).attrs.put(attributes)
        return attributes

    def check_writable(self) -> None:
        """Refuse to change what was opened for reading."""
        if self.read_only:
            raise StoreError(
                f"store {str(self.backend)!r} was opened for reading, and this would write to it. Pass store= for the "
                "result, or call embed with this store."
            )

    @cached_property
    def _zarr(self) -> Any:
        return self.backend.zarr(read_only=self.read_only)

    @cached_property
    def root(self) -> zarr.Group:
        """The group of all."""
        with self.backend.io():
            return zarr.open_group(self._zarr, mode="r" if self.read_only else "r+", zarr_format=3)

    # --- tables -------------------------------------------------------------------------------

    def table(self, name: str, shape: tuple[int, ...], dtype: Any, shard_rows: int | None = None) -> StoredTable:
        """Make a table, or find the unfinished one of that name."""
        shard = min(shard_rows or block_rows(shape[0]), max(shape[0], 1))
        row_bytes = int(np.prod(shape[1:], dtype=np.int64)) * np.dtype(dtype).itemsize
        chunk = max(1, min(_TAKE_ROWS if len(shape) > 1 else shard, shard, _CHUNK_BYTES // max(row_bytes, 1)))
        if shard % chunk:  # a shard is a whole number of chunks
            chunk = shard
        return StoredTable(self, self._array(name, shape, dtype, (chunk, *shape[1:]), (shard, *shape[1:])))

    def scratch_table(
        self, name: str, shape: Sequence[int], dtype: Any, shard_rows: int, spare: str | None = None
    ) -> ScratchTable:
        """A table without metadata, which its owner writes and removes; it uses up the files of a `spare` one."""
        return ScratchTable(self, name, tuple(shape), np.dtype(dtype), shard_rows, spare)

    def scratch_ragged(self, name: str, dtype: Any) -> ScratchRagged:
        """Ragged blocks without metadata, which their owner writes and removes."""
        return ScratchRagged(self, name, np.dtype(dtype))

    def flush(self, name: str) -> None:
        """See to it that what was written below a name is safe."""
        with self.backend.io():
            self.backend.flush(name)

    def ragged(self, name: str, n_blocks: int, longest: int, dtype: Any) -> StoredRagged:
        """Make ragged blocks of at most `longest` entries, or find the unfinished ones of that name."""
        chunk = min(longest + 1, _CHUNK_BYTES // np.dtype(dtype).itemsize)
        width = -(-(longest + 1) // chunk) * chunk
        return StoredRagged(
            self, self._array(name, (n_blocks, width), dtype, (1, chunk), (1, width), write_empty=False)
        )

    def _array(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: Any,
        chunks: tuple[int, ...],
        shards: tuple[int, ...],
        write_empty: bool = True,
    ) -> zarr.Array:
        known = self._known(name, write_empty=write_empty)
        if known is not None and (known.shape, known.dtype) == (shape, np.dtype(dtype)):
            return known
        self.check_writable()
        self.remove(name)
        with self.backend.io():
            return self.root.create_array(
                name,
                shape=shape,
                dtype=dtype,
                chunks=chunks,
                shards=None if shards == chunks else shards,
                compressors=(Crc32cCodec(),),
                fill_value=0,
                config={"write_empty_chunks": write_empty},
            )

    def _known(self, name: str, *, write_empty: bool = True) -> zarr.Array | None:
        """The array of that name, if there is one; whether chunks of zeros are written is not stored with it."""
        mode: Any = "r" if self.read_only else "r+"
        try:
            with self.backend.io(missing=True):
                found = zarr.open_array(self._zarr, path=name, mode=mode, zarr_format=3)
        except (FileNotFoundError, *DECODING):
            return None
        digests: Any = found.metadata
        return zarr.Array(zarr.AsyncArray(digests, found.store_path, {"write_empty_chunks": write_empty}))

    def open_table(self, name: str) -> StoredTable:
        """Find the table of that name."""
        return StoredTable(self, self.find(name))

    def open_ragged(self, name: str) -> StoredRagged:
        """Find the ragged blocks of that name."""
        return StoredRagged(self, self.find(name, write_empty=False))

    def find(self, name: str, *, write_empty: bool = True) -> zarr.Array:
        """Open the array of that name, which must be there."""
        found = self._known(name, write_empty=write_empty)
        if found is None:
            raise DamageError(f"array {name!r} is missing from store {str(self.backend)!r}", name)
        return found

    def remove(self, name: str) -> None:
        """Forget a result: its mark first, then its arrays."""
        if self.read_only and not self.backend.files(name):
            return  # nothing is there, as after work on panels that were in memory
        self.check_writable()
        self.backend.remove(name, first="zarr.json")

    def discard(self) -> None:
        """Remove a store that holds nothing of use."""
        for name in self.backend.folders():
            self.remove(name)
        self.backend.delete("zarr.json")
        if not self.backend.network:
            with contextlib.suppress(OSError):
                os.rmdir(str(self.backend))

    def sweep(self) -> None:
        """Remove what a killed writer left behind."""
        self.backend.sweep()

    def sizes(self) -> dict[str, int]:
        """Bytes of each group directly below the root."""
        return {name: self.backend.size(name) for name in self.backend.folders()}

    # --- marks --------------------------------------------------------------------------------

    def commit(self, name: str, metadata: Metadata, arrays: Sequence[str] = ()) -> None:
        """Mark a result (its arrays, and `arrays` elsewhere) as complete: all of them are flushed to disk first."""
        self.check_writable()
        if self._lock is not None:
            self._lock.check()
        with self.backend.io():
            group = self.root.require_group(name)
            digests: dict[str, str] = {}
            for one in (name, *arrays):
                self.backend.flush(one)
                digests |= self._metadata(one, itself=one != name)
            content = {"facts": metadata, "metadata": digests}
            group.attrs.put({**content, "checksum": _checksum(content)})
            self.backend.flush(name, deep=False)

    def results(self) -> list[str]:
        """Names of all groups below the root, marked or not."""
        files = self.backend.files()
        arrays = {name.rpartition("/c/")[0] for name in files if "/c/" in name}
        groups = [name.removesuffix("/zarr.json") for name in files if name.endswith("/zarr.json")]
        return [name for name in groups if name not in arrays]

    def names(self, group: str) -> list[str]:
        """Results that stand below a group, finished or not."""
        return self.backend.folders(group)

    def metadata(self, name: str) -> Metadata | None:
        """Facts of a complete result, or None; a result that lost a chunk or was changed is an error."""
        entry = self._mark(name)
        if entry is None:
            return None
        damage = self.damage(entry["metadata"])
        if damage:
            array, what = damage[0]
            raise DamageError(f"array {array!r} of store {str(self.backend)!r} is damaged: {what}", array)
        return entry["facts"]

    def record(self, name: str) -> Metadata | None:
        """Facts of a complete result, whatever has become of its arrays."""
        entry = self._mark(name)
        return None if entry is None else entry["facts"]

    def _mark(self, name: str) -> dict[str, Any] | None:
        attributes = self._attributes(name)
        if attributes is None or "facts" not in attributes:
            return None
        content = {"facts": attributes["facts"], "metadata": attributes.get("metadata")}
        if attributes.get("checksum") != _checksum(content):
            raise DamageError(f"{name}/zarr.json of store {str(self.backend)!r} was changed", name)
        return content

    def _attributes(self, name: str) -> dict[str, Any] | None:
        """Attributes of a group as they stand in the store now, or None."""
        try:
            content = self.backend.read(f"{name}/zarr.json".lstrip("/"))
        except FileNotFoundError:
            return None
        try:
            return dict(json.loads(content).get("attributes", {}))
        except (ValueError, TypeError, AttributeError):
            if not name:  # of the store itself: it is none of ours
                return {}
            raise DamageError(f"{name}/zarr.json of store {str(self.backend)!r} is not readable", name) from None

    def _metadata(self, name: str, *, itself: bool = False) -> dict[str, str]:
        """Checksums of the zarr.json of all arrays below a result."""
        files = [file for file in self.backend.files(name) if file.endswith("/zarr.json")]
        below = [file for file in files if itself or file != f"{name}/zarr.json"]
        return {file.removesuffix("/zarr.json"): _digest(self.backend.read(file)) for file in below}

    def damage(self, digests: dict[str, str]) -> list[tuple[str, str]]:
        """What is wrong with arrays, without reading their chunks: (array, metadata changed or chunk missing)."""
        wrong = []
        for array, digest in digests.items():
            try:
                content = self.backend.read(f"{array}/zarr.json")
            except FileNotFoundError:
                wrong.append((array, "zarr.json is missing"))
                continue
            if _digest(content) != digest:
                wrong.append((array, "zarr.json was changed"))
                continue
            there = set(self.backend.files(f"{array}/c"))
            chunks = [chunk_name(index) for index in _grid(json.loads(content))]
            wrong += [(array, f"chunk {chunk} is missing") for chunk in chunks if f"{array}/{chunk}" not in there]
        return wrong

    def repair(self, array: str, what: str) -> None:
        """Make a damaged result be made again: its mark goes, and what would stand in the way."""
        if "zarr.json" in what:
            self.backend.delete(f"{array}/zarr.json")
        for result in self.results():
            try:
                entry = self._mark(result)
            except DamageError:
                entry = None
                self.backend.delete(f"{result}/zarr.json")
            if entry is not None and array in (result, *entry["metadata"]):
                self.root.require_group(result).attrs.put({})
        # an embedding is written column by column: a damaged chunk would be read before it is written
        if array.startswith("embedding/") or ("zarr.json" in what and self.backend.files(f"{array}/c")):
            self.remove(array)

    def verify(self) -> list[tuple[str, str]]:
        """Read every chunk of every complete result: (array, what is wrong with which chunk)."""
        wrong: set[tuple[str, str]] = set()
        for result in self.results():
            try:
                entry = self._mark(result)
            except DamageError:
                wrong.add((result, "zarr.json was changed"))
                continue
            if entry is None:
                continue
            damage = self.damage(entry["metadata"])
            wrong.update(damage)
            for array in set(entry["metadata"]) - {array for array, what in damage if "zarr.json" in what}:
                wrong.update((array, f"chunk {key} is damaged") for key in self._unreadable(array))
        return sorted(wrong)

    def _unreadable(self, name: str) -> Iterator[str]:
        digests = json.loads(self.backend.read(f"{name}/zarr.json"))
        if digests["node_type"] != "array":
            return
        table = self.open_table(name)
        there = set(self.backend.files(f"{name}/c"))
        for index in _grid(digests):
            if f"{name}/{chunk_name(index)}" in there and not table.readable(*index):
                yield chunk_name(index)

    # --- the lock -----------------------------------------------------------------------------

    def lock(self) -> None:
        """Refuse a second process on this store."""
        self.check_writable()
        self._lock = self.backend.lock()

    def unlock(self) -> None:
        """Let others work on this store."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None


@lru_cache(maxsize=16)
def _reopened(backend: bytes, writer: bool) -> ZarrStore:
    """The store that another process has sent; a writer trusts the process that holds the lock."""
    store = ZarrStore.__new__(ZarrStore)
    store._settle(pickle.loads(backend), read_only=not writer)
    if not writer and store._attributes("") is None:
        raise FileNotFoundError(f"store {str(store.backend)!r} does not exist any more. Put it back, or open its copy.")
    return store


def _check_format(attributes: dict[str, Any], store: str) -> None:
    if attributes.get("format") != FORMAT:
        raise StoreError(
            f"store {store!r} was not made by scalable_gpe (its zarr.json names no format). "
            "Pass another path; nothing in it was touched."
        )
    if attributes.get("format_version") != FORMAT_VERSION:
        raise StoreError(
            f"store {store!r} has format version {attributes.get('format_version')}, this release "
            f"reads {FORMAT_VERSION}. Use the release that wrote it, or start over in another path."
        )


def _grid(digests: dict[str, Any]) -> Iterator[tuple[int, ...]]:
    """Numbers of the shards (or chunks) of an array, from its zarr.json."""
    if digests["node_type"] != "array":
        return iter(())
    steps = digests["chunk_grid"]["configuration"]["chunk_shape"]
    return itertools.product(*(range(-(-n // step)) for n, step in zip(digests["shape"], steps, strict=True)))


def _checksum(content: Any) -> str:
    return _digest(json.dumps(content, sort_keys=True).encode())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
