"""Scratch arrays: plain bytes and their checksums, one file per shard, without metadata."""

from dataclasses import dataclass
from typing import Any

import google_crc32c
import numpy as np

from scalable_gpe.errors import DamageError
from scalable_gpe.storage.backends import WrongBytes
from scalable_gpe.storage.handle import StoreHandle

_RUN_ROWS, _RUN_BYTES = 256, 2**13  # the least of each
_SUM_BYTES = 4


@dataclass(eq=False)
class ScratchTable:
    """Scratch table without metadata: the owner keeps shape and dtype, so making or opening one costs nothing.

    A file holds runs of `run_rows` rows, each followed by its checksum: any of them can be read without the others. The
    checksum is also that of the place: files that were exchanged are damaged.
    """

    handle: StoreHandle
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    shard_rows: int

    @property
    def key(self) -> tuple[str, str]:
        """Unique key of this table."""
        return str(self.handle.backend), self.name

    @property
    def run_rows(self) -> int:
        """Rows of the smallest part of a file that can be read."""
        rows = _RUN_ROWS
        while rows * self._row_bytes < _RUN_BYTES:
            rows *= 2
        return self.shard_rows if self.shard_rows % rows else rows

    @property
    def gap_rows(self) -> int:
        """Rows whose reading takes less time than one more request."""
        return self.handle.backend.request_bytes // self._row_bytes

    @property
    def _row_bytes(self) -> int:
        return self.dtype.itemsize * int(np.prod(self.shape[1:], dtype=np.int64))

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows start to stop, in a new array."""
        out = np.empty((stop - start, *self.shape[1:]), self.dtype)
        self.read_into(start, out)
        return out

    def read_into(self, start: int, out: np.ndarray) -> None:
        """Read rows from `start` on into an array; whole runs without a copy."""
        stop, run = start + len(out), self.run_rows
        for shard in range(start // self.shard_rows, -(-stop // self.shard_rows)):
            first = shard * self.shard_rows
            end = min(first + self.shard_rows, self.shape[0])
            low, high = max(start, first), min(stop, end)
            whole_low = first + (low - first) // run * run
            whole_high = min(end, first - (first - high) // run * run)  # rounded up
            if (low, high) == (whole_low, whole_high):
                self._read_runs(shard, low - first, out[low - start : high - start])
            else:
                rows = np.empty((whole_high - whole_low, *self.shape[1:]), self.dtype)
                self._read_runs(shard, whole_low - first, rows)
                out[low - start : high - start] = rows[low - whole_low : high - whole_low]

    def _read_runs(self, shard: int, start: int, out: np.ndarray) -> None:
        """Read whole runs of one file, from a row that counts from its beginning."""
        key, run = f"{self.name}/{shard}", self.run_rows
        content, run_bytes = out.reshape(-1).view(np.uint8), self.run_rows * self._row_bytes
        whole = len(out) == min(self.shard_rows, self.shape[0] - shard * self.shard_rows)
        at = None if whole else start // run * (run_bytes + _SUM_BYTES)
        sums = np.empty(-(-len(out) // run), np.uint32)
        try:
            with self.handle.backend.io(f"array {self.name!r}", missing=True):
                self.handle.backend.read_into(key, *_interleaved(content, run_bytes, sums), start=at)
            if (sums != self._placed_sums(content, shard, start // run)).any():
                raise WrongBytes("stored and computed checksum do not match")
        except (FileNotFoundError, WrongBytes) as error:
            raise DamageError(f"array {self.name!r} is damaged: {key}: {error}", self.name) from error

    def write(self, start: int, values: np.ndarray) -> None:
        """Write one whole shard."""
        self.handle.check_writable()
        values = np.ascontiguousarray(values, self.dtype)
        if start % self.shard_rows or len(values) != min(self.shard_rows, self.shape[0] - start):
            raise ValueError("a task must write whole shards: two writers of one shard lose data")
        content, run_bytes = values.reshape(-1).view(np.uint8), self.run_rows * self._row_bytes
        shard = start // self.shard_rows
        parts = _interleaved(content, run_bytes, self._placed_sums(content, shard, 0))
        with self.handle.backend.io(f"array {self.name!r}"):
            self.handle.backend.write(f"{self.name}/{shard}", *parts)

    def _placed_sums(self, content: np.ndarray, shard: int, first_run: int) -> np.ndarray:
        """Checksums of consecutive runs of a shard, each changed by the name of the table and its place there."""
        place = google_crc32c.value(f"{self.name}/{shard}".encode())
        step = self.run_rows * self._row_bytes
        sums = [google_crc32c.value(content[start : start + step]) for start in range(0, len(content), step)]
        numbers = np.arange(first_run, first_run + len(sums), dtype=np.uint32)
        placed: np.ndarray = np.array(sums, np.uint32) ^ np.uint32(place) ^ numbers
        return placed


def _interleaved(content: np.ndarray, run: int, sums: np.ndarray) -> list[memoryview]:
    """The parts of a file in their order: runs of so many bytes, each followed by its checksum."""
    runs = [content[start : start + run].data for start in range(0, len(content), run)]
    after = [sums[number : number + 1].view(np.uint8).data for number in range(len(runs))]
    return [part for pair in zip(runs, after, strict=True) for part in pair]
