"""Commits of the results of a zarr store (see `docs/developers/on-disk-format.md`), and damage that contradicts them.

A result is a zarr group. Its attributes are its commit: absent until every chunk is on disk, then written at once.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import math
import pickle
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
import zarr

from scalable_gpe.errors import METADATA, NUMBERS, DamageError, StoreError
from scalable_gpe.storage.arrays import StoredArray, ZarrArray, chunk_checksum, chunk_name, with_checks
from scalable_gpe.storage.backends import FsspecBackend
from scalable_gpe.storage.lock import Lock
from scalable_gpe.storage.records import Record, from_json, to_json

NOTES = ".damaged"  # the file that names arrays which a reader found damaged
_MOST_MISSING = 100  # missing chunks of one array that are listed


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


class Commits:
    """One zarr store: access to its files and arrays, and its commits, compared with what is stored.

    A pickle holds the path or URL with its options. Another process opens it for reading; while this process holds the
    lock, also for writing.
    """

    def __init__(self, backend: FsspecBackend, *, read_only: bool) -> None:
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

    # --- commits ------------------------------------------------------------------------------

    def commit(self, name: str, record: object, arrays: Sequence[str] = ()) -> None:
        """Commit a result (its arrays, and `arrays` elsewhere), after all of them are flushed to disk."""
        self.fence()
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
        damage = self.damage(commit)
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
        if not isinstance(stored, dict) or self.backend.network:
            stored = {}
        chunks = {str(name): str(text).split() for name, text in stored.items()}
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
            sums = [chunk_checksum(self.backend, f"{name}/{chunk_name(index)}", n_inner) for index in _indices(grid)]
            if sums:
                checksums[name] = " ".join(sums)
        return checksums

    # --- damage -------------------------------------------------------------------------------

    def damage(self, commit: Commit, *, whole: bool = False) -> list[Damage]:
        """Find changed metadata, and chunks that are missing or exchanged; those that cannot be read if `whole`."""
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
            wrong += self._wrong_chunks(array, content, commit.chunks.get(array, []), whole)
        return wrong

    def _wrong_chunks(self, array: str, content: bytes, checksums: Sequence[str], whole: bool) -> Iterator[Damage]:
        """Wrong chunks of an array, all or some: a grid can claim more chunks than can be listed."""
        present = set(self.backend.files(f"{array}/c"))
        try:
            grid, n_inner = _layout(content)
            indices = _indices(grid, len(present) + _MOST_MISSING)
        except ValueError:
            yield Damage(array, "zarr.json is not readable", METADATA)
            return
        stored = StoredArray(self, self.find(array)) if whole and 0 not in grid else None
        known = itertools.chain(checksums, itertools.repeat(None))
        for index, checksum in zip(indices, known, strict=False):
            name = chunk_name(index)
            key = f"{array}/{name}"
            if key not in present:
                yield Damage(array, f"chunk {name} is missing", name)
            elif stored is not None and not stored.readable(*index):
                yield Damage(array, f"chunk {name} is damaged", name)
            elif checksum is not None and chunk_checksum(self.backend, key, n_inner) != checksum:
                yield Damage(array, f"chunk {name} is not the one that was written", name)

    def repair(self, array: str, part: str = "") -> None:
        """Remove the commit of a damaged result, and what would block it, so that it is computed again."""
        self.fence()
        if part == METADATA:
            self.backend.delete(f"{array}/zarr.json")
        for result in self.results():
            try:
                commit = self._commit(result)
            except DamageError:
                commit = None
                self.backend.delete(f"{result}/zarr.json")
            if commit is not None and array in (result, *commit.digests):
                for damaged in [Damage(array, "", part), *self.damage(commit)]:
                    if damaged.part.startswith("c/"):  # one that can be read, but is another one, would be kept
                        self.backend.delete(f"{damaged.array}/{damaged.part}")
                self._write_group(result, {})
        # an embedding is written column by column: a damaged chunk would be read before it is written
        wrong = array.startswith("embedding/") or part == NUMBERS
        if wrong or (part == METADATA and self.backend.files(f"{array}/c")):
            self.remove(array)
        self.forget_damage()

    def repair_noted(self) -> None:
        """Repair the arrays that a reader found damaged; the caller holds the lock."""
        noted = self.noted_damage()
        for damaged in self.verify(noted) if noted else ():
            self.repair(damaged.array, damaged.part)
        self.forget_damage()

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
                digests = {array: digest for array, digest in commit.digests.items() if only is None or array in only}
                wrong.update(self.damage(commit._replace(digests=digests), whole=True))
        return sorted(wrong)


@lru_cache(maxsize=16)
def _reopened(kind: type[Commits], backend: bytes, writer: bool) -> Commits:
    """Open a store that another process sent; a writer relies on the lock of that process."""
    store = kind.__new__(kind)
    Commits.__init__(store, pickle.loads(backend), read_only=not writer)
    if not writer and not store.backend.exists("zarr.json"):
        raise FileNotFoundError(f"store {str(store)!r} no longer exists. Restore it, or open a copy of it.")
    return store


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


def _indices(grid: tuple[int, ...], most: int | None = None) -> Iterator[tuple[int, ...]]:
    """Numbers of all chunks of a grid, or of the first ones: a grid can claim more chunks than memory holds."""
    flat = np.arange(math.prod(grid) if most is None else min(math.prod(grid), most))
    return zip(*(axis.tolist() for axis in np.unravel_index(flat, grid)), strict=True)


def _checksum(content: Any) -> str:
    return _digest(json.dumps(content, sort_keys=True).encode())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
