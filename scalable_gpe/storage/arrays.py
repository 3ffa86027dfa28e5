"""The arrays of a zarr store: tables in shards of rows, and ragged blocks. Damaged data raises, naming the array."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import google_crc32c
import numpy as np

from scalable_gpe.errors import DamageError, StoreError
from scalable_gpe.storage.backends import StorageBackend, WrongBytes
from scalable_gpe.storage.codec import ZarrArray
from scalable_gpe.storage.handle import StoreHandle
from scalable_gpe.storage.shards import ABSENT, file_format


class _Stored:
    """An array of a store.

    A pickle holds the store and the name; another process opens the array once for all its tasks.
    """

    write_empty = True  # whether chunks of zeros are written

    def __init__(self, handle: StoreHandle, array: ZarrArray) -> None:
        self.handle = handle
        self.array = array
        self.name = array.path
        self.dtype = np.dtype(array.dtype)
        self._format = file_format(array)  # None: zarr reads and writes its files

    @property
    def _layout(self) -> tuple[Any, ...]:
        return (self.array.shape, self.dtype.str, self.array.chunks, self.array.shards)

    def __reduce__(self) -> Any:
        return _opened, (type(self), self.handle, self.name, self._layout)

    def readable(self, *index: int) -> bool:
        """Whether a shard (or chunk) is stored and can be read."""
        if not self.handle.backend.exists(f"{self.name}/{chunk_name(index)}"):
            return False
        steps = self.array.shards or self.array.chunks
        region = tuple(slice(i * step, (i + 1) * step) for i, step in zip(index, steps, strict=True))
        try:
            with self._named(noted=False):
                self.array[region]
        except DamageError:
            return False
        return True

    @contextlib.contextmanager
    def _named(self, *, noted: bool = True) -> Iterator[None]:
        """Make errors of a chunk name its array; with `noted`, the next run repairs it."""
        try:
            with self.handle.backend.io(f"array {self.name!r}", missing=True):
                yield
        except FileNotFoundError as error:
            raise self._damage(f"{error.filename or error} is missing", noted) from error
        except WrongBytes as error:
            raise self._damage(str(error), noted) from error
        except DamageError:  # of the codec
            if noted:
                self.handle.note_damage(self.name)
            raise
        except MemoryError as error:
            raise StoreError(
                f"array {self.name!r} of store {str(self.handle)!r} does not fit in memory ({error}). Free some "
                "memory; if its shape cannot be right, do not use this store."
            ) from None

    def _damage(self, what: str, noted: bool = True, part: str = "") -> DamageError:
        if noted:
            self.handle.note_damage(self.name)
        return DamageError(f"array {self.name!r} is damaged: {what}", self.name, part)


@lru_cache(maxsize=512)
def _opened(kind: type[_Stored], handle: StoreHandle, name: str, layout: tuple[Any, ...]) -> _Stored:
    """Open an array that another process sent by name."""
    stored = kind(handle, handle.find(name, write_empty=kind.write_empty))
    if stored._layout != layout:
        raise DamageError(f"array {name!r} of store {str(handle)!r} was replaced by another one", name)
    return stored


class StoredTable(_Stored):
    """A table that is a zarr array, sharded by rows."""

    def __init__(self, handle: StoreHandle, array: ZarrArray) -> None:
        super().__init__(handle, array)
        self.shape = array.shape
        if handle.backend.network:  # zarr has several requests on their way at once
            self._format = None
        self.shard_rows = (array.shards or array.chunks)[0]

    @property
    def key(self) -> tuple[str, str]:
        """Unique key of this table."""
        return str(self.handle.backend), self.name

    @property
    def run_rows(self) -> int:
        """Rows of a chunk."""
        return int(self.array.chunks[0])

    @property
    def gap_rows(self) -> int:
        """Rows whose reading takes less time than one more request."""
        row_bytes = self.dtype.itemsize * int(np.prod(self.shape[1:], dtype=np.int64))
        return self.handle.backend.request_bytes // row_bytes

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows start to stop."""
        out = np.empty((max(min(stop, self.shape[0]) - start, 0), *self.shape[1:]), self.dtype)
        self.read_into(start, out)
        return out

    def read_into(self, start: int, out: np.ndarray) -> None:
        """Read rows from `start` on into an array; whole chunks without a copy."""
        stop = start + len(out)
        with self._named():
            if self._format is None or out.dtype != self.dtype or not out.flags.c_contiguous or not out.size:
                out[:] = self.array[start:stop]
                return
            for shard in range(start // self.shard_rows, -(-stop // self.shard_rows)):
                first = shard * self.shard_rows
                low, high = max(start, first), min(stop, first + self.shard_rows)
                self._read_shard(shard, low - first, out[low - start : high - start])

    def _read_shard(self, shard: int, start: int, out: np.ndarray) -> None:
        """Read rows of one shard, which count from its beginning, into an array."""
        stop, step = start + len(out), self.array.chunks[0]
        key, backend, form = f"{self.name}/{self._file(shard)}", self.handle.backend, self._format
        assert form is not None
        index = form.index(backend, key)
        whole, end = -(-start // step), stop // step
        if whole < end:
            form.read(backend, key, whole, _bytes(out[whole * step - start : end * step - start]), index)
        for chunk in {start // step, end} - set(range(whole, end)):  # needed in part, read whole
            first, rows = chunk * step, np.empty((step, *self.shape[1:]), self.dtype)
            low, high = max(first, start), min(first + step, stop)
            if low < high:
                form.read(backend, key, chunk, _bytes(rows), index)
                out[low - start : high - start] = rows[low - first : high - first]

    def _file(self, shard: int) -> str:
        return chunk_name((shard, *(0 for _ in self.shape[1:])))

    def take(self, ids: np.ndarray) -> np.ndarray:
        """Rows by number; reads only the chunks that hold them."""
        out = np.empty((len(ids), *self.shape[1:]), self.dtype)
        if np.any(np.diff(ids) < 0):
            order = np.argsort(ids, kind="stable")
            out[order] = self.take(ids[order])
            return out
        step = self.array.chunks[0]
        cuts = np.flatnonzero(np.diff(ids // step)) + 1
        # neighbouring chunks are read in one call, at most a shard at a time
        bounds = [0, *cuts.tolist(), len(ids)] if len(ids) else [0]
        first = 0
        while first < len(bounds) - 1:
            last = first + 1
            chunk, shard = ids[bounds[first]] // step, ids[bounds[first]] // self.shard_rows
            while (
                last < len(bounds) - 1
                and ids[bounds[last]] // step == chunk + (last - first)
                and ids[bounds[last]] // self.shard_rows == shard
            ):
                last += 1
            rows = ids[bounds[first] : bounds[last]]
            start, stop = int(rows[0]), int(rows[-1]) + 1
            out[bounds[first] : bounds[last]] = self.read(start, stop)[rows - start]
            first = last
        return out

    def write(self, start: int, values: np.ndarray, first_column: int = 0) -> None:
        """Write a whole shard from row `start` on, or some columns of it (one writer at a time)."""
        whole = len(values) == self.shard_rows or start + len(values) == self.shape[0]
        self.handle.check_writable()
        if start % self.shard_rows or not whole:
            raise ValueError("a task must write whole shards: two writers of one shard lose data")
        with self._named():
            if values.ndim == 2 and values.shape[1] != self.shape[1]:
                self.array[start : start + len(values), first_column : first_column + values.shape[1]] = values
            elif self._format is None or not values.size:
                self.array[start : start + len(values)] = values
            else:
                self._write_shard(start // self.shard_rows, np.ascontiguousarray(values, self.dtype))

    def _write_shard(self, shard: int, values: np.ndarray) -> None:
        step = self.array.chunks[0]
        chunks = []
        for first in range(0, len(values), step):
            rows = values[first : first + step]
            if len(rows) < step:  # the last rows of the table
                rows = np.zeros((step, *self.shape[1:]), self.dtype)
                rows[: len(values) - first] = values[first:]
            chunks.append(_bytes(rows))
        assert self._format is not None
        self._format.write(self.handle.backend, f"{self.name}/{self._file(shard)}", chunks)

    def has(self, start: int) -> bool:
        """Whether the shard that begins at `start` is stored and can be read."""
        return self.readable(start // self.shard_rows, *(0 for _ in self.shape[1:]))


class StoredRagged(_Stored):
    """Ragged blocks: row b of a zarr array holds a 1, then the entries of block b, then zeros.

    The leading 1 keeps every shard from being all zeros, so that inner chunks of padding need not
    be written and a missing shard is always damage.
    """

    write_empty = False

    def __init__(self, handle: StoreHandle, array: ZarrArray) -> None:
        super().__init__(handle, array)
        self._indexes: dict[int, list[int]] = {}
        self._width, self._step = array.shape[1], array.chunks[1]

    def buffer(self) -> np.ndarray:
        """Memory for any block."""
        return np.empty(self._width, self.dtype)

    def read(self, block: int, length: int, buffer: np.ndarray | None = None) -> np.ndarray:
        """Entries of one block: a view of the buffer, if one is given."""
        row = self.buffer() if buffer is None else buffer
        with self._named():
            if not 0 <= length < self._width:
                raise WrongBytes(f"block {block} cannot have {length} entries")
            if self._format is None:
                row[:] = self.array[block]
            else:
                self._fill(block, row, length + 1)
        if row[0] != 1:
            raise self._damage(f"chunk c/{block}/0 is missing", part=chunk_name((block, 0)))
        return row[1 : length + 1]

    def _fill(self, block: int, row: np.ndarray, length: int) -> None:
        """Read the chunks that hold the first entries of a row straight into it."""
        key, backend, form, step = f"{self.name}/c/{block}/0", self.handle.backend, self._format, self._step
        assert form is not None
        index = self._indexes.get(block)  # blocks of K are read in every sweep
        if index is None:
            index = self._indexes[block] = form.index(backend, key)
        form.read(backend, key, 0, _bytes(row[: -(-length // step) * step]), index)

    def write(self, block: int, values: np.ndarray) -> None:
        """Write the entries of one block as one shard: chunks of padding alone are not written."""
        self.handle.check_writable()
        self._indexes.pop(block, None)
        step = self._step
        direct = self._format is not None and not self.handle.backend.network
        whole = -(-(len(values) + 1) // step) * step if direct else self._width
        row = np.zeros(whole, self.dtype)
        row[0] = 1
        row[1 : len(values) + 1] = values
        with self._named():
            if self._format is None or not direct:
                self.array[block : block + 1] = row[None]
            else:
                chunks = [_bytes(row[at : at + step]) for at in range(0, whole, step)]
                self._format.write(self.handle.backend, f"{self.name}/c/{block}/0", chunks)

    def has(self, block: int) -> bool:
        """Whether a block is stored and can be read."""
        return self.readable(block, 0)


def _bytes(values: np.ndarray) -> np.ndarray:
    return values.reshape(-1).view(np.uint8)


def chunk_name(index: Sequence[int]) -> str:
    """Name of a shard (or chunk) below its array."""
    return "/".join(["c", *map(str, index)])


def chunk_mark(backend: StorageBackend, key: str, n_inner: int) -> str:
    """Mark of a chunk, or of a shard of `n_inner` chunks: checksum of the checksums that end its first and last chunk.

    Few bytes are read. The mark tells a chunk from all others, and from its own earlier content.
    """
    size = backend.length(key)
    if n_inner == 0:
        return f"{google_crc32c.value(backend.read(key, max(size - 4, 0), size)):08x}"
    first = max(size - 16 * n_inner - 4, 0)
    index = backend.read(key, first, size)
    found = b""
    for entry in (index[:16], index[-20:-4]):
        offset, length = int.from_bytes(entry[:8], "little"), int.from_bytes(entry[8:], "little")
        if offset != ABSENT:
            end = min(offset + length, size)
            found += backend.read(key, max(end - 4, 0), end)
    return f"{google_crc32c.value(found):08x}"
