"""Scratch arrays: plain bytes and their checksums, one file per shard, without metadata."""

from dataclasses import dataclass
from typing import Any

import google_crc32c
import numpy as np

from scalable_gpe.errors import DamageError
from scalable_gpe.storage.handle import StoreHandle

_RUN_ROWS, _RUN_BYTES = 256, 2**13  # the least of each


@dataclass(eq=False)
class ScratchTable:
    """Scratch table without metadata: the owner keeps shape and dtype, so making or opening one costs nothing.

    A file holds runs of `run_rows` rows, each followed by its checksum: any of them can be read without the others. The
    last run is filled up with zeros.
    """

    store: StoreHandle
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
