"""The arrays of a zarr store: tables in shards of rows, ragged blocks, scratch. Damage raises, naming the array.

zarr's checksum codec is replaced by one whose errors are damage: zarr's own raises a ValueError, as many faults of a
program do.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import google_crc32c
import numpy as np
import zarr
from zarr.buffer.cpu import NDBuffer
from zarr.codecs import Crc32cCodec, ShardingCodec

from scalable_gpe.errors import DamageError, StoreError
from scalable_gpe.storage.backends import FsspecBackend

if TYPE_CHECKING:
    from scalable_gpe.storage.commits import Commits

ZarrArray: TypeAlias = "zarr.Array[Any]"
_RUN_ROWS, _RUN_BYTES = 256, 2**13  # the least of each, in a run of a scratch table
_ABSENT = 2**64 - 1  # offset of a chunk that a shard does not hold: it is all zeros


@dataclass(frozen=True)
class CheckedCodec(Crc32cCodec):
    """CRC-32C of a chunk, or of the index of a shard, after which the bytes have the length of their array."""

    array: str = ""

    def _decode_sync(self, chunk_bytes: Any, chunk_spec: Any) -> Any:
        stored = chunk_bytes.as_numpy_array()
        content = stored[:-4]
        n_bytes = math.prod(chunk_spec.shape) * chunk_spec.dtype.to_native_dtype().itemsize
        checksum = int.from_bytes(stored[-4:].tobytes(), "little")
        if len(stored) != n_bytes + 4 or google_crc32c.value(content) != checksum:
            raise DamageError(f"array {self.array!r} is damaged: stored and computed checksum do not match", self.array)
        return chunk_spec.prototype.buffer.from_array_like(content)

    async def _decode_single(self, chunk_bytes: Any, chunk_spec: Any) -> Any:
        return self._decode_sync(chunk_bytes, chunk_spec)


def with_checks(array: ZarrArray, *, write_empty: bool) -> ZarrArray:
    """The same array, whose damaged chunks raise a DamageError that names it; `write_empty`: write chunks of zeros."""
    codec = CheckedCodec(array.path)
    metadata: Any = array.metadata
    return zarr.Array(
        zarr.AsyncArray(
            metadata=replace(metadata, codecs=_replaced(metadata.codecs, codec)),
            store_path=array.store_path,
            config={"write_empty_chunks": write_empty},
        )
    )


def _replaced(codecs: Iterable[Any], checked: CheckedCodec) -> tuple[Any, ...]:
    """The same codecs with checks, also those inside a shard and of its index."""
    return tuple(_with_checks(codec, checked) for codec in codecs)


def _with_checks(codec: Any, checked: CheckedCodec) -> Any:
    if isinstance(codec, ShardingCodec):
        inner, index = _replaced(codec.codecs, checked), _replaced(codec.index_codecs, checked)
        return replace(codec, codecs=inner, index_codecs=index)
    return checked if isinstance(codec, Crc32cCodec) else codec


class StoredArray:
    """An array of a store.

    A pickle holds the store and the name; another process opens the array once for all its tasks.
    """

    write_empty = True  # whether chunks of zeros are written

    def __init__(self, store: Commits, array: ZarrArray) -> None:
        self.store = store
        self.array = array
        self.name = array.path
        self.dtype = np.dtype(array.dtype)

    @property
    def _layout(self) -> tuple[Any, ...]:
        return (self.array.shape, self.dtype.str, self.array.chunks, self.array.shards)

    def __reduce__(self) -> Any:
        return _opened, (type(self), self.store, self.name, self._layout)

    def readable(self, *index: int) -> bool:
        """Whether a shard (or chunk) is stored and can be read."""
        if not self.store.backend.exists(f"{self.name}/{chunk_name(index)}"):
            return False
        steps = self.array.shards or self.array.chunks
        region = tuple(slice(i * step, (i + 1) * step) for i, step in zip(index, steps, strict=True))
        try:
            with self._named(noted=False):
                self.array[region]
        except DamageError:
            return False
        return True

    def _write(
        self, index: Sequence[int], region: tuple[slice, ...], values: np.ndarray, *, whole: bool = True
    ) -> None:
        """Write a shard; if it is `whole`, whatever was there: zarr reads a shard before it changes it."""
        with self._named():
            try:
                self.array[region] = values
            except DamageError:
                if not whole:
                    raise
                self.store.backend.delete(f"{self.name}/{chunk_name(index)}")
                self.array[region] = values

    @contextlib.contextmanager
    def _named(self, *, noted: bool = True) -> Iterator[None]:
        """Make errors of a chunk name its array; with `noted`, the next run repairs it."""
        try:
            with self.store.backend.io(f"array {self.name!r}", missing=True):
                yield
        except FileNotFoundError as error:
            raise self._damage(f"{error.filename or error} is missing", noted) from error
        except DamageError:  # of the codec
            if noted:
                self.store.note_damage(self.name)
            raise
        except MemoryError as error:
            raise StoreError(
                f"array {self.name!r} of store {str(self.store)!r} does not fit in memory ({error}). Free some "
                "memory; if its shape cannot be right, do not use this store."
            ) from None

    def _damage(self, what: str, noted: bool = True, part: str = "") -> DamageError:
        if noted:
            self.store.note_damage(self.name)
        return DamageError(f"array {self.name!r} is damaged: {what}", self.name, part)


@lru_cache(maxsize=512)
def _opened(kind: type[StoredArray], store: Commits, name: str, layout: tuple[Any, ...]) -> StoredArray:
    """Open an array that another process sent by name."""
    stored = kind(store, store.find(name, write_empty=kind.write_empty))
    if stored._layout != layout:
        raise DamageError(f"array {name!r} of store {str(store)!r} was replaced by another one", name)
    return stored


class StoredTable(StoredArray):
    """A table that is a zarr array, sharded by rows: also points as float32 rows."""

    resident = False

    def __init__(self, store: Commits, array: ZarrArray) -> None:
        super().__init__(store, array)
        self.shape, self.n_rows, self.n_features = array.shape, array.shape[0], array.shape[-1]
        self.shard_rows = (array.shards or array.chunks)[0]

    @property
    def run_rows(self) -> int:
        """Rows of a chunk."""
        return int(self.array.chunks[0])

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows start to stop."""
        out = np.empty((max(min(stop, self.shape[0]) - start, 0), *self.shape[1:]), self.dtype)
        self.read_into(start, out)
        return out

    def read_into(self, start: int, out: np.ndarray) -> None:
        """Read rows from `start` on into an array."""
        stop = start + len(out)
        with self._named():
            _read(self.array, slice(start, stop), out)
            for shard in range(start // self.shard_rows, -(-stop // self.shard_rows)):
                rows = out[max(shard * self.shard_rows - start, 0) : (shard + 1) * self.shard_rows - start]
                key = f"{self.name}/{chunk_name(self._index(shard))}"
                # zarr reads the fill value from a file that is not there
                suspect = rows.size > 0 and self._is_fill(rows[:1]) and self._is_fill(rows)
                if suspect and not self.store.backend.exists(key):
                    raise FileNotFoundError(key)

    def _is_fill(self, rows: np.ndarray) -> bool:
        fill = self.array.fill_value
        return bool(np.isnan(rows).all() if np.isnan(fill) else (rows == fill).all())

    def _index(self, shard: int) -> tuple[int, ...]:
        return (shard, *(0 for _ in self.shape[1:]))

    def take(self, ids: np.ndarray) -> np.ndarray:
        """Rows by number; reads only the chunks that hold them."""
        out = np.empty((len(ids), *self.shape[1:]), self.dtype)
        order = np.argsort(ids, kind="stable")
        ascending = ids[order]
        # neighbouring chunks are read in one call, at most a shard at a time
        far = (np.diff(ascending // self.run_rows) > 1) | (np.diff(ascending // self.shard_rows) > 0)
        for places in np.split(order, np.flatnonzero(far) + 1) if len(ids) else ():
            rows = ids[places]
            out[places] = self.read(int(rows[0]), int(rows[-1]) + 1)[rows - rows[0]]
        return out

    def write(self, start: int, values: np.ndarray, first_column: int = 0) -> None:
        """Write a whole shard from row `start` on, or some columns of it (one writer at a time)."""
        whole = len(values) == self.shard_rows or start + len(values) == self.shape[0]
        self.store.check_writable()
        if start % self.shard_rows or not whole:
            raise ValueError("a task must write whole shards: two writers of one shard lose data")
        columns = [slice(first_column, first_column + width) for width in values.shape[1:]]
        region = slice(start, start + len(values)), *columns
        self._write(self._index(start // self.shard_rows), region, values, whole=values.shape[1:] == self.shape[1:])

    def has(self, start: int) -> bool:
        """Whether the shard that begins at `start` is stored and can be read."""
        return self.readable(*self._index(start // self.shard_rows))


class StoredRagged(StoredArray):
    """Ragged blocks: row b of a zarr array holds a 1, then the entries of block b, then zeros.

    The leading 1 keeps every shard from being all zeros, so that inner chunks of padding need not
    be written and a missing shard is always damage.
    """

    write_empty = False

    def __init__(self, store: Commits, array: ZarrArray) -> None:
        super().__init__(store, array)
        self._width = array.shape[1]

    def read(self, block: int, length: int) -> np.ndarray:
        """Entries of one block."""
        if not 0 <= length < self._width:
            raise self._damage(f"block {block} cannot have {length} entries")
        with self._named():
            row = np.empty(length + 1, self.dtype)
            _read(self.array, (block, slice(length + 1)), row)
        if row[0] != 1:
            raise self._damage(f"chunk c/{block}/0 is missing", part=chunk_name((block, 0)))
        return row[1:]

    def write(self, block: int, values: np.ndarray) -> None:
        """Write the entries of one block as one shard: chunks of padding alone are not written."""
        self.store.check_writable()
        row = np.zeros((1, self._width), self.dtype)
        row[0, 0] = 1
        row[0, 1 : len(values) + 1] = values
        self._write((block, 0), (slice(block, block + 1),), row)

    def has(self, block: int) -> bool:
        """Whether a block is stored and can be read."""
        return self.readable(block, 0)


@dataclass(eq=False)
class ScratchTable:
    """Scratch table without metadata: the owner keeps shape and dtype, so making or opening one costs nothing.

    A file holds runs of `run_rows` rows, each followed by its checksum: any of them can be read without the others. The
    last run is filled up with zeros.
    """

    store: Commits
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    shard_rows: int

    @property
    def run_rows(self) -> int:
        """Rows of the smallest part of a file that can be read."""
        rows = _RUN_ROWS
        while rows * self._row_bytes < _RUN_BYTES:
            rows *= 2
        return rows if self.shard_rows % rows == 0 or self.shard_rows >= self.shape[0] else self.shard_rows

    @property
    def _row_bytes(self) -> int:
        return self.dtype.itemsize * int(np.prod(self.shape[1:], dtype=np.int64))

    @property
    def _run(self) -> np.dtype[Any]:
        """A run of rows and its checksum, as a file holds them."""
        return np.dtype([("rows", np.uint8, self.run_rows * self._row_bytes), ("sum", np.uint32)])

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows start to stop, in a new array."""
        out = np.empty((stop - start, *self.shape[1:]), self.dtype)
        self.read_into(start, out)
        return out

    def read_into(self, start: int, out: np.ndarray) -> None:
        """Read rows from `start` on into an array."""
        stop, run = start + len(out), self.run_rows
        for shard in range(start // self.shard_rows, -(-stop // self.shard_rows)):
            first = shard * self.shard_rows
            low, high = max(start, first), min(stop, first + self.shard_rows)
            first_run = (low - first) // run
            rows = self._read_runs(shard, first_run, -(-(high - first) // run))
            skipped = low - first - first_run * run
            out[low - start : high - start] = rows[skipped : skipped + high - low]

    def _read_runs(self, shard: int, first: int, stop: int) -> np.ndarray:
        """The rows of some runs of a file, the last one filled up."""
        key, layout = f"{self.name}/{shard}", self._run
        try:
            with self.store.backend.io(f"array {self.name!r}", missing=True):
                content = self.store.backend.read(key, first * layout.itemsize, stop * layout.itemsize)
        except FileNotFoundError as error:
            raise DamageError(f"array {self.name!r} is damaged: {key} is missing", self.name) from error
        if len(content) != (stop - first) * layout.itemsize:
            raise DamageError(f"array {self.name!r} is damaged: {key} is too short", self.name)
        runs = np.frombuffer(content, layout)
        if (runs["sum"] != _checksums(runs["rows"])).any():
            raise DamageError(f"array {self.name!r} is damaged: {key}: wrong checksum", self.name)
        rows: np.ndarray = runs["rows"].reshape(-1).view(self.dtype).reshape(-1, *self.shape[1:])
        return rows

    def write(self, start: int, values: np.ndarray) -> None:
        """Write one whole shard."""
        self.store.check_writable()
        if start % self.shard_rows or len(values) != min(self.shard_rows, self.shape[0] - start):
            raise ValueError("a task must write whole shards: two writers of one shard lose data")
        runs = np.empty(-(-len(values) // self.run_rows), self._run)
        rows = np.zeros((len(runs) * self.run_rows, *self.shape[1:]), self.dtype)
        rows[: len(values)] = values
        runs["rows"] = rows.view(np.uint8).reshape(len(runs), -1)
        runs["sum"] = _checksums(runs["rows"])
        with self.store.backend.io(f"array {self.name!r}"):
            self.store.backend.write(f"{self.name}/{start // self.shard_rows}", runs.view(np.uint8))


def _checksums(runs: np.ndarray) -> np.ndarray:
    return np.array([google_crc32c.value(run) for run in runs], np.uint32)


def _read(array: ZarrArray, region: Any, out: np.ndarray) -> None:
    """Read a region of an array into another one."""
    array.get_basic_selection(region, out=NDBuffer.from_numpy_array(out))


def chunk_name(index: Sequence[int]) -> str:
    """Name of a shard (or chunk) below its array."""
    return "/".join(["c", *map(str, index)])


def chunk_checksum(backend: FsspecBackend, key: str, n_inner: int) -> str:
    """Checksum of the checksums that end a chunk, or the first and the last of the `n_inner` chunks of a shard.

    Few bytes are read. It tells a chunk from all others, and from its own earlier content; "missing" if there is none.
    """
    try:
        size = backend.length(key)
    except FileNotFoundError:
        return "missing"
    if n_inner == 0:
        return f"{google_crc32c.value(backend.read(key, max(size - 4, 0), size)):08x}"
    first = max(size - 16 * n_inner - 4, 0)
    index = backend.read(key, first, size)
    sums = b""
    for entry in (index[:16], index[-20:-4]):
        offset, length = int.from_bytes(entry[:8], "little"), int.from_bytes(entry[8:], "little")
        if offset != _ABSENT:
            end = min(offset + length, size)
            sums += backend.read(key, max(end - 4, 0), end)
    return f"{google_crc32c.value(sums):08x}"
