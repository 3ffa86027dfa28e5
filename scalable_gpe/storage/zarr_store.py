"""The zarr store of a run: checksummed arrays, commits that are written last, verification.

Each result (``graph/<key>``, ``kernel/<key>``, ...) is a zarr group. Its attributes are its commit: they are absent
until every chunk is on disk, and are written in one atomic replacement. They hold the record of the result (under
``record``) and a checksum of the metadata of each array (under ``metadata``), because a changed dtype or shape would
silently give wrong numbers. In a directory they also hold a checksum of each chunk (under ``chunks``): two chunks that
were swapped are each sound.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import zarr
from zarr.codecs import Crc32cCodec

from scalable_gpe.errors import METADATA, NUMBERS, DamageError, StoreError, logger
from scalable_gpe.storage.arrays import StoredRagged, StoredTable, chunk_checksum, chunk_name
from scalable_gpe.storage.backends import StorageOptions, check_new_store, open_backend
from scalable_gpe.storage.blocks import block_rows
from scalable_gpe.storage.codec import ZarrArray
from scalable_gpe.storage.handle import StoreHandle
from scalable_gpe.storage.protocol import Table
from scalable_gpe.storage.records import Record, from_json, to_json
from scalable_gpe.storage.scratch import ScratchTable

FORMAT = "scalable_gpe"
FORMAT_VERSION = 2
SCRATCH = "work"  # the group of scratch arrays
OWNER = "run"  # the attribute of an array that names the run which writes it
_CHUNK_BYTES = 2**22
_MOST_MISSING = 100  # missing chunks of one array that are listed
_TAKE_ROWS = 4096  # rows of an inner chunk of a table that is read by row numbers


class Commit(NamedTuple):
    """The commit of a result: its record as JSON, the checksums of the metadata and the chunks of its arrays."""

    record: Any
    digests: dict[str, str]
    chunks: dict[str, list[str]]


class Damage(NamedTuple):
    """An array (or a commit), what is wrong with it, and the part that is damaged, as in DamageError."""

    array: str
    what: str
    part: str


class ZarrStore:
    """Persistent store: one zarr (format 3) group, in a directory or an object store.

    A pickle holds the path or URL with its options (see `StoreHandle`).
    """

    persistent = True

    def __init__(self, path: Any, *, read_only: bool = False, storage_options: StorageOptions | None = None) -> None:
        self.handle = StoreHandle(open_backend(path, storage_options), read_only=read_only)
        self.backend = self.handle.backend
        attributes = self._attributes("")
        if attributes is None and read_only:
            if self.backend.folders() or self.backend.exists(".zgroup"):
                raise StoreError(f"store {str(self)!r} was not made by scalable_gpe. Check the path.")
            raise FileNotFoundError(f"store {str(self)!r} does not exist. Check the path.")
        if attributes is None:
            attributes = self._begin()
        _check_format(attributes.get("format"), attributes.get("format_version"), str(self))

    def __reduce__(self) -> Any:
        return _sent, (self.handle,)

    def __str__(self) -> str:
        return str(self.backend)

    @property
    def location(self) -> str:
        """What tells this store from all others: its URL, or its path with links followed."""
        return str(self) if self.backend.network else os.path.realpath(str(self))

    @property
    def scratch_folder(self) -> str:
        """A folder for unnamed files: that of the store, or one of this machine beside a store on a network."""
        return tempfile.gettempdir() if self.backend.network or self.read_only else str(self)

    @property
    def read_only(self) -> bool:
        """Whether it was opened for reading."""
        return self.handle.read_only

    def _begin(self) -> dict[str, Any]:
        """Make the group of a new store."""
        check_new_store(str(self))
        if not self.backend.is_empty():
            raise StoreError(f"store {str(self)!r} is a directory with other contents. Pass a new or empty path.")
        attributes: dict[str, Any] = {"format": FORMAT, "format_version": FORMAT_VERSION}
        with self.backend.io():
            self._write_group("", attributes)
        return attributes

    @cached_property
    def root(self) -> zarr.Group:
        """The group of the whole store."""
        with self.backend.io():
            return zarr.open_group(self.handle.storage, mode="r" if self.read_only else "r+", zarr_format=3)

    # --- tables -------------------------------------------------------------------------------

    def table(
        self, name: str, shape: tuple[int, ...], dtype: Any, shard_rows: int | None = None, owner: str | None = None
    ) -> StoredTable:
        """Make a table, or find the unfinished one of that name and owner."""
        shard = min(shard_rows or block_rows(shape[0]), max(shape[0], 1))
        row_bytes = int(np.prod(shape[1:], dtype=np.int64)) * np.dtype(dtype).itemsize
        chunk = max(1, min(_TAKE_ROWS if len(shape) > 1 else shard, shard, _CHUNK_BYTES // max(row_bytes, 1)))
        if shard % chunk:  # a shard is a whole number of chunks
            chunk = shard
        widths = [max(1, size) for size in shape[1:]]  # zarr 3.2 refuses chunks of no columns
        array = self._array(name, shape, dtype, (chunk, *widths), (shard, *widths), owner=owner)
        return StoredTable(self.handle, array)

    def ragged(self, name: str, n_blocks: int, longest: int, dtype: Any, n_chunks: int = 1) -> StoredRagged:
        """Make ragged blocks of at most `longest` entries, or find the unfinished ones of that name.

        Each is stored in at least `n_chunks` chunks, of which those of padding are not written.
        """
        chunk = min(-(-(longest + 1) // n_chunks), _CHUNK_BYTES // np.dtype(dtype).itemsize)
        width = -(-(longest + 1) // chunk) * chunk
        array = self._array(name, (n_blocks, width), dtype, (1, chunk), (1, width), write_empty=False)
        return StoredRagged(self.handle, array)

    def input_copy(self, name: str, shape: tuple[int, int], shard_rows: int) -> Table | None:
        """Make the table that stores the points, so that a later process needs no X."""
        return self.table(name, shape, np.float32, shard_rows)

    def scratch_table(self, name: str, shape: Sequence[int], dtype: Any, shard_rows: int) -> ScratchTable:
        """Make a table without metadata, which its owner removes."""
        return ScratchTable(self.handle, name, tuple(shape), np.dtype(dtype), shard_rows)

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
            return self.handle.find(name, write_empty=write_empty)
        self.handle.check_writable()
        self.remove(name)
        with self.backend.io():
            self._make_parents(name)
            self.root.create_array(
                name,
                shape=shape,
                dtype=dtype,
                chunks=chunks,
                shards=None if shards == chunks else shards,
                compressors=(Crc32cCodec(),),
                # a chunk that was removed reads as NaN; in ragged blocks those of padding are not written
                fill_value=np.nan if write_empty and np.dtype(dtype).kind == "f" else 0,
                attributes=None if owner is None else {OWNER: owner},
            )
        return self.handle.find(name, write_empty=write_empty)

    def _is_begun(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any], owner: str | None) -> bool:
        """Whether there is an array of that name, shape, type and owner."""
        described = self.handle.described(name)
        if described is None:
            return False
        begun = tuple(described["shape"]), np.dtype(described["data_type"]), self.owner(name)
        return begun == (tuple(shape), dtype, owner)

    def open_table(self, name: str) -> StoredTable:
        """Find the table of that name."""
        return StoredTable(self.handle, self.handle.find(name))

    def open_ragged(self, name: str) -> StoredRagged:
        """Find the ragged blocks of that name."""
        return StoredRagged(self.handle, self.handle.find(name, write_empty=False))

    def find_table(self, name: str) -> StoredTable | None:
        """Find the table of that name, or None."""
        array = self.handle.open(name)
        return None if array is None else StoredTable(self.handle, array)

    def detach(self, name: str) -> Any:
        """Return the array of a table, which stays in the store."""
        return self.open_table(name).array

    def flush(self, name: str) -> None:
        """Flush everything below a name to disk."""
        with self.backend.io():
            self.backend.flush(name)

    def owner(self, name: str) -> str | None:
        """Key of the run that writes (or wrote) a table; None if there is none, or no such table."""
        described = self.handle.described(name)
        attributes = None if described is None else described.get("attributes")
        return str(attributes.get(OWNER, "")) or None if isinstance(attributes, dict) else None

    def remove(self, name: str) -> None:
        """Remove a result: its commit first, then its arrays."""
        self.handle.remove(name)

    def discard(self) -> None:
        """Remove a store that holds no results."""
        self.handle.fence()
        for name in self.backend.folders():
            self.remove(name)
        self.backend.delete("zarr.json")
        self.backend.remove_root()

    def sizes(self) -> dict[str, int]:
        """Bytes of each group directly below the root."""
        return {name: self.backend.size(name) for name in self.backend.folders()}

    # --- commits ------------------------------------------------------------------------------

    def commit(self, name: str, record: object, arrays: Sequence[str] = ()) -> None:
        """Commit a result (its arrays, and `arrays` elsewhere), after all of them are flushed to disk."""
        self.handle.fence()
        self.backend.check(name)
        with self.backend.io():
            digests: dict[str, str] = {}
            for part in (name, *arrays):
                self.backend.flush(part)
                digests |= self._digests(part, itself=part != name)
            content = {"record": to_json(record), "metadata": digests}
            chunks = {} if self.backend.network else self._chunk_checksums(digests)
            self._write_group(name, {**content, "checksum": _checksum(content), "chunks": chunks})
            self.backend.flush(name, deep=False)

    def _write_group(self, name: str, attributes: dict[str, Any]) -> None:
        """Write a group, completely or not at all: after a power cut too, because zarr cannot use half of one."""
        self._make_parents(name)
        group = {"attributes": attributes, "zarr_format": 3, "node_type": "group"}
        self.backend.write(f"{name}/zarr.json".lstrip("/"), json.dumps(group, indent=2).encode(), synced=True)

    def _make_parents(self, name: str) -> None:
        """Make the groups that hold a result or an array, the outermost first, unless they are there and readable.

        zarr would write them at the same time as the array: a run that is killed then leaves an array without a group.
        """
        parent = name.rpartition("/")[0]
        if parent and not self._is_group(parent):
            self._write_group(parent, {})

    def _is_group(self, name: str) -> bool:
        try:
            return self._attributes(name) is not None
        except DamageError:
            return False

    def read(self, name: str, kind: type[Record]) -> Record | None:
        """Record of a complete result, or None; raise if a chunk is missing or metadata was changed."""
        commit = self._commit(name)
        if commit is None:
            return None
        damage = self.damage(commit, exchanged=not self.backend.network)
        if damage:
            array, what, part = damage[0]
            raise DamageError(f"array {array!r} of store {str(self)!r} is damaged: {what}", array, part)
        return self._restore(name, kind, commit)

    def peek(self, name: str, kind: type[Record]) -> Record | None:
        """Record of a complete result, even if its arrays are damaged."""
        commit = self._commit(name)
        return None if commit is None else self._restore(name, kind, commit)

    def _restore(self, name: str, kind: type[Record], commit: Commit) -> Record:
        try:
            return from_json(kind, commit.record)
        except ValueError as error:
            raise DamageError(f"{name}/zarr.json of store {str(self)!r} was changed: {error}", name, METADATA) from None

    def results(self) -> list[str]:
        """Names of all groups below the root, committed or not."""
        files = self.backend.files()
        arrays = {name.rpartition("/c/")[0] for name in files if "/c/" in name}
        groups = [name.removesuffix("/zarr.json") for name in files if name.endswith("/zarr.json")]
        return [name for name in groups if name not in arrays]

    def names(self, group: str) -> list[str]:
        """Results below a group, finished or not."""
        return self.backend.folders(group)

    def _commit(self, name: str) -> Commit | None:
        attributes = self._attributes(name)
        if attributes is None or "record" not in attributes:
            return None
        content = {"record": attributes["record"], "metadata": attributes.get("metadata")}
        digests = content["metadata"] or {}
        if attributes.get("checksum") != _checksum(content) or not isinstance(digests, dict):
            raise DamageError(f"{name}/zarr.json of store {str(self)!r} was changed", name, METADATA)
        # not part of the checksum: earlier releases did not write it, and read what this one writes
        stored = attributes.get("chunks")
        chunks = {str(name): str(text).split() for name, text in stored.items()} if isinstance(stored, dict) else {}
        return Commit(content["record"], digests, chunks)

    def _attributes(self, name: str) -> dict[str, Any] | None:
        """Attributes of a group as they are stored now, or None."""
        try:
            content = self.backend.read(f"{name}/zarr.json".lstrip("/"))
        except FileNotFoundError:
            return None
        try:
            return dict(json.loads(content).get("attributes", {}))
        except (ValueError, TypeError, AttributeError, RecursionError):
            if not name:  # the root group: not a store of this library
                return {}
            raise DamageError(f"{name}/zarr.json of store {str(self)!r} is not readable", name, METADATA) from None

    def _digests(self, name: str, *, itself: bool = False) -> dict[str, str]:
        """Checksums of the zarr.json of all arrays below a result."""
        files = [file for file in self.backend.files(name) if file.endswith("/zarr.json")]
        below = [file for file in files if itself or file != f"{name}/zarr.json"]
        return {file.removesuffix("/zarr.json"): _digest(self.backend.read(file)) for file in below}

    def _chunk_checksums(self, arrays: Iterable[str]) -> dict[str, str]:
        """Checksums of the chunks of arrays, in the order of their grids.

        Not for objects of a network: three more requests for each would cost more than they protect from.
        """
        checksums = {}
        for name in arrays:
            grid, n_inner = _layout(self.backend.read(f"{name}/zarr.json"))
            keys = [f"{name}/{chunk_name(index)}" for index in _indices(grid)]
            if keys:
                checksums[name] = " ".join(self._chunk_checksum(key, n_inner) for key in keys)
        return checksums

    def _chunk_checksum(self, key: str, n_inner: int) -> str:
        """Checksum of one chunk, "missing" if there is none."""
        try:
            return chunk_checksum(self.backend, key, n_inner)
        except FileNotFoundError:
            return "missing"

    # --- damage -------------------------------------------------------------------------------

    def damage(self, commit: Commit, *, exchanged: bool) -> list[Damage]:
        """Find changed metadata, missing chunks and perhaps `exchanged` ones, without reading whole chunks."""
        wrong = []
        for array, digest in commit.digests.items():
            try:
                content = self.backend.read(f"{array}/zarr.json")
            except FileNotFoundError:
                wrong.append(Damage(array, "zarr.json is missing", METADATA))
                continue
            if _digest(content) != digest:
                wrong.append(Damage(array, "zarr.json was changed", METADATA))
                continue
            try:
                wrong += self._wrong_chunks(array, content, commit.chunks.get(array, []) if exchanged else [])
            except ValueError:
                wrong.append(Damage(array, "zarr.json is not readable", METADATA))
        return wrong

    def _wrong_chunks(self, array: str, content: bytes, checksums: Sequence[str]) -> Iterator[Damage]:
        """Chunks that are missing or exchanged, all or some: a grid can claim more chunks than can be listed."""
        present, (grid, n_inner) = set(self.backend.files(f"{array}/c")), _layout(content)
        indices = itertools.islice(_indices(grid), len(present) + _MOST_MISSING)
        known = itertools.chain(checksums, itertools.repeat(None))
        for name, checksum in zip(map(chunk_name, indices), known, strict=False):
            key = f"{array}/{name}"
            if key not in present:
                yield Damage(array, f"chunk {name} is missing", name)
            elif checksum is not None and self._chunk_checksum(key, n_inner) != checksum:
                yield Damage(array, f"chunk {name} is not the one that was written", name)

    def repair(self, array: str, part: str = "") -> None:
        """Remove the commit of a damaged result, and what would block it, so that it is computed again."""
        self.handle.fence()
        if part == METADATA:
            self.backend.delete(f"{array}/zarr.json")
        for result in self.results():
            try:
                commit = self._commit(result)
            except DamageError:
                commit = None
                self.backend.delete(f"{result}/zarr.json")
            if commit is not None and array in (result, *commit.digests):
                self._delete_chunks([Damage(array, "", part), *self.damage(commit, exchanged=True)])
                self._write_group(result, {})
        # an embedding is written column by column: a damaged chunk would be read before it is written
        wrong = array.startswith("embedding/") or part == NUMBERS
        if wrong or (part == METADATA and self.backend.files(f"{array}/c")):
            self.remove(array)
        self.handle.forget_damage()

    def _delete_chunks(self, damage: Sequence[Damage]) -> None:
        """Delete damaged chunks: one that can be read, but is another one, would be kept."""
        for damaged in damage:
            if damaged.part.startswith("c/"):
                self.backend.delete(f"{damaged.array}/{damaged.part}")

    def repair_noted(self) -> None:
        """Repair the arrays that a reader found damaged; the caller holds the lock."""
        noted = self.handle.noted_damage()
        for array in noted:
            self.backend.check(array)
        for damaged in self.verify(noted) if noted else ():
            self.repair(damaged.array, damaged.part)
        self.handle.forget_damage()

    def verify(self, only: Sequence[str] | None = None) -> list[Damage]:
        """Read every chunk of every complete result (or `only` those of some arrays), and return all damage."""
        wrong: set[Damage] = set()
        for result in self.results():
            try:
                commit = self._commit(result)
            except DamageError:
                wrong.add(Damage(result, "zarr.json was changed", METADATA))
                continue
            if commit is not None:
                wrong.update(self._damage_of(commit, only))
        return sorted(wrong)

    def _damage_of(self, commit: Commit, only: Sequence[str] | None) -> list[Damage]:
        """All damage of a result."""
        wanted = {array: digest for array, digest in commit.digests.items() if only is None or array in only}
        damage = self.damage(commit._replace(digests=wanted), exchanged=True)
        readable = set(wanted) - {found.array for found in damage if found.part == METADATA}
        unreadable = {(array, chunk) for array in readable for chunk in self._unreadable(array)}
        named = [Damage(array, f"chunk {chunk} is damaged", chunk) for array, chunk in unreadable]
        return named + [found for found in damage if (found.array, found.part) not in unreadable]

    def _unreadable(self, name: str) -> Iterator[str]:
        grid, _ = _layout(self.backend.read(f"{name}/zarr.json"))
        if 0 in grid:
            return
        table = self.open_table(name)
        present = set(self.backend.files(f"{name}/c"))
        for index in itertools.islice(_indices(grid), len(present) + _MOST_MISSING):
            if f"{name}/{chunk_name(index)}" in present and not table.readable(*index):
                yield chunk_name(index)

    # --- the lock -----------------------------------------------------------------------------

    def lock(self) -> None:
        """Take the lock; raise if another process holds it."""
        self.handle.check_writable()
        self.handle.lock = self.backend.lock()

    def unlock(self) -> None:
        """Release the lock."""
        if self.handle.lock is not None:
            lock, self.handle.lock = self.handle.lock, None
            lock.release()

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
                    self.handle.forget_damage()  # what was found during the work was repaired, or is found again
            except Exception as error:  # the next run removes it; the first error must not be lost
                logger.warning("scratch arrays stay in %s until the next run: %s", self, error)
            finally:
                self.unlock()


def _sent(handle: StoreHandle) -> ZarrStore:
    """Rebuild a store that another process sent; nothing is read before it is used."""
    store = ZarrStore.__new__(ZarrStore)
    store.handle, store.backend = handle, handle.backend
    return store


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


def _layout(content: bytes) -> tuple[tuple[int, ...], int]:
    """Shards (or chunks) of an array along each axis, and the inner chunks of a shard (0 without), from its zarr.json.

    (0,) and 0 for what is not an array.
    """
    try:
        description = json.loads(content)
        if description["node_type"] != "array":
            return (0,), 0
        steps, codec = description["chunk_grid"]["configuration"]["chunk_shape"], description["codecs"][0]
        grid = _n_steps(description["shape"], steps)
        is_sharded = codec["name"] == "sharding_indexed"
        return grid, math.prod(_n_steps(steps, codec["configuration"]["chunk_shape"])) if is_sharded else 0
    except (TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        raise ValueError(f"not an array: {error}") from None


def _n_steps(sizes: Sequence[Any], steps: Sequence[Any]) -> tuple[int, ...]:
    """How many steps cover each size."""
    return tuple(-(-int(size) // int(step)) for size, step in zip(sizes, steps, strict=True))


def _indices(grid: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Numbers of all chunks of a grid, one at a time: `itertools.product` would hold them."""
    for flat in range(math.prod(grid)):
        index = []
        for size in reversed(grid):
            flat, number = divmod(flat, size)
            index.append(number)
        yield tuple(reversed(index))


def _checksum(content: Any) -> str:
    return _digest(json.dumps(content, sort_keys=True).encode())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
