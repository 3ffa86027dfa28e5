"""Scratch arrays: plain bytes and their checksum, one file per shard, without metadata."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from scalable_gpe.errors import DamageError
from scalable_gpe.loops.checksum import crc32c
from scalable_gpe.storage.handle import StoreHandle


@dataclass(eq=False)
class ScratchTable:
    """Scratch table without metadata: the owner keeps shape and dtype, so making or opening one costs nothing.

    `spare` names a table of the same shape that is no longer needed. If the backend can, it overwrites its files: new
    files cost several times as much.
    """

    handle: StoreHandle
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    shard_rows: int
    spare: str | None = None

    @property
    def key(self) -> tuple[str, str]:
        """Unique key of this table."""
        return str(self.handle.backend), self.name

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows start to stop, in a new array."""
        out = np.empty((stop - start, *self.shape[1:]), self.dtype)
        self.read_into(start, out)
        return out

    def read_into(self, start: int, out: np.ndarray) -> None:
        """Read rows from `start` on into an array; whole shards without a copy."""
        stop = start + len(out)
        for shard in range(start // self.shard_rows, -(-stop // self.shard_rows)):
            first = shard * self.shard_rows
            last = min(first + self.shard_rows, self.shape[0])
            if start <= first and last <= stop:
                _fill(self, shard, out[first - start : last - start])
            else:
                rows = np.empty((last - first, *self.shape[1:]), self.dtype)
                _fill(self, shard, rows)
                low, high = max(start, first), min(stop, last)
                out[low - start : high - start] = rows[low - first : high - first]

    def write(self, start: int, values: np.ndarray) -> None:
        """Write one whole shard."""
        self.handle.check_writable()
        values = np.ascontiguousarray(values, self.dtype)
        if start % self.shard_rows or len(values) != min(self.shard_rows, self.shape[0] - start):
            raise ValueError("a task must write whole shards: two writers of one shard lose data")
        shard = start // self.shard_rows
        _write(self, shard, values, None if self.spare is None else f"{self.spare}/{shard}")


@dataclass(eq=False)
class ScratchRagged:
    """Scratch blocks of any length, one file each."""

    handle: StoreHandle
    name: str
    dtype: np.dtype[Any]

    def read(self, block: int, length: int) -> np.ndarray:
        """Entries of one block."""
        out = np.empty(length, self.dtype)
        _fill(self, block, out)
        return out

    def write(self, block: int, values: np.ndarray) -> None:
        """Write the entries of one block."""
        self.handle.check_writable()
        _write(self, block, np.ascontiguousarray(values, self.dtype))

    def remove(self) -> None:
        """Remove all blocks."""
        self.handle.remove(self.name)


def _fill(of: ScratchTable | ScratchRagged, number: int, out: np.ndarray) -> None:
    """Read one file of a table, which must have the length of `out`."""
    key, content, checksum = f"{of.name}/{number}", out.reshape(-1).view(np.uint8), bytearray(4)
    try:
        with of.handle.backend.io(f"array {of.name!r}", missing=True):
            of.handle.backend.read_into(key, content.data, checksum)
        check(content, checksum)
    except (FileNotFoundError, ValueError) as error:
        raise DamageError(f"array {of.name!r} is damaged: {key}: {error}", of.name) from error


def _write(of: ScratchTable | ScratchRagged, number: int, values: np.ndarray, over: str | None = None) -> None:
    """Write one file of a table, in place of an obsolete one if `over` names it."""
    content = values.reshape(-1).view(np.uint8)
    checksum = crc32c(content).to_bytes(4, "little")
    with of.handle.backend.io(f"array {of.name!r}"):
        of.handle.backend.write(f"{of.name}/{number}", content.data, checksum, over=over)


def check(content: np.ndarray, checksum: Any) -> None:
    """Compare bytes with the checksum that was stored with them."""
    if crc32c(content) != int.from_bytes(checksum, "little"):
        raise ValueError("stored and computed checksum do not match")


def checked(stored: np.ndarray) -> np.ndarray:
    """Verify the checksum at the end of some bytes, and return the bytes before it."""
    check(stored[:-4], stored[-4:].tobytes())
    return stored[:-4]
