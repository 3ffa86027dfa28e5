"""Where arrays live: tables of rows and ragged blocks, in memory or (see `store`) in a zarr group.

A stage asks its *home* for tables by name, writes whole shards of them, and marks its result with
the facts that belong to it. It never asks which kind of home it has.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

Metadata = dict[str, Any]


def block_rows(n_rows: int) -> int:
    """Rows of one block: a function of the number of rows alone, so that blocks on disk never move.

    Examples
    --------
    >>> block_rows(3_000), block_rows(1_000_000), block_rows(100_000_000)
    (1024, 32768, 65536)
    """
    rows = 1024
    while rows * 32 < n_rows and rows < 65_536:
        rows *= 2
    return rows


class Table(Protocol):
    """A 1-D or 2-D array that is read in any ranges and written in whole shards of rows."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    shard_rows: int

    def read(self, start: int, stop: int) -> np.ndarray: ...
    def take(self, ids: np.ndarray) -> np.ndarray: ...
    def write(self, start: int, values: np.ndarray, first_column: int = 0) -> None: ...
    def has(self, start: int) -> bool: ...


class Ragged(Protocol):
    """One 1-D array per block; how long each one is, the caller knows."""

    dtype: np.dtype[Any]

    def read(self, block: int, length: int) -> np.ndarray: ...
    def write(self, block: int, values: np.ndarray) -> None: ...
    def has(self, block: int) -> bool: ...


class ArrayStore(Protocol):
    """Makes, finds and forgets tables, and remembers which results are complete."""

    stored: bool

    def table(self, name: str, shape: tuple[int, ...], dtype: Any, shard_rows: int | None = None) -> Table: ...
    def ragged(self, name: str, n_blocks: int, longest: int, dtype: Any) -> Ragged: ...
    def open_table(self, name: str) -> Table: ...
    def open_ragged(self, name: str) -> Ragged: ...
    def commit(self, name: str, metadata: Metadata, arrays: Sequence[str] = ()) -> None: ...
    def names(self, group: str) -> list[str]: ...
    def metadata(self, name: str) -> Metadata | None: ...
    def record(self, name: str) -> Metadata | None: ...
    def remove(self, name: str) -> None: ...


class MemoryTable:
    """A table that is a numpy array."""

    def __init__(self, values: np.ndarray, shard_rows: int | None = None) -> None:
        self.values = values
        self.shape = values.shape
        self.dtype = values.dtype
        self.shard_rows = shard_rows or block_rows(len(values))
        self._written: set[int] = set()

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows start to stop, as a view."""
        return self.values[start:stop]

    def take(self, ids: np.ndarray) -> np.ndarray:
        """Rows by number."""
        return self.values[ids]

    def write(self, start: int, values: np.ndarray, first_column: int = 0) -> None:
        """Write rows from `start` on, or some columns of them."""
        if values.ndim == 2:
            self.values[start : start + len(values), first_column : first_column + values.shape[1]] = values
        else:
            self.values[start : start + len(values)] = values
        self._written.add(start)

    def has(self, start: int) -> bool:
        """Whether the shard that begins at `start` has been written."""
        return start in self._written


class MemoryRagged:
    """Ragged blocks that are a list of numpy arrays."""

    def __init__(self, n_blocks: int, dtype: Any) -> None:
        self.dtype = np.dtype(dtype)
        self._blocks: list[np.ndarray | None] = [None] * n_blocks

    def read(self, block: int, length: int) -> np.ndarray:
        """Entries of one block."""
        values = self._blocks[block]
        if values is None or len(values) != length:
            raise KeyError(f"block {block} has not been written")
        return values

    def write(self, block: int, values: np.ndarray) -> None:
        """Keep the entries of one block."""
        self._blocks[block] = np.ascontiguousarray(values, dtype=self.dtype)

    def has(self, block: int) -> bool:
        """Whether a block has been written."""
        return self._blocks[block] is not None


class MemoryStore:
    """A home in this process's memory."""

    stored = False

    def __init__(self) -> None:
        self._tables: dict[str, Any] = {}
        self._metadata: dict[str, Metadata] = {}

    def table(self, name: str, shape: tuple[int, ...], dtype: Any, shard_rows: int | None = None) -> Table:
        """Make a table, or find the one of that name."""
        if name not in self._tables:
            self._tables[name] = MemoryTable(np.empty(shape, dtype), shard_rows)
        return self._tables[name]

    def ragged(self, name: str, n_blocks: int, longest: int, dtype: Any) -> Ragged:
        """Make ragged blocks, or find those of that name."""
        if name not in self._tables:
            self._tables[name] = MemoryRagged(n_blocks, dtype)
        return self._tables[name]

    def open_table(self, name: str) -> Table:
        """Find the table of that name."""
        return self._tables[name]

    def open_ragged(self, name: str) -> Ragged:
        """Find the ragged blocks of that name."""
        return self._tables[name]

    def commit(self, name: str, metadata: Metadata, arrays: Sequence[str] = ()) -> None:
        """Remember that a result (its tables, and `arrays` elsewhere) is complete."""
        self._metadata[name] = metadata

    def names(self, group: str) -> list[str]:
        """Results that stand below a group, finished or not."""
        return sorted({known.split("/")[1] for known in self._metadata if known.startswith(f"{group}/")})

    def metadata(self, name: str) -> Metadata | None:
        """Facts of a complete result, or None."""
        return self._metadata.get(name)

    record = metadata

    def remove(self, name: str) -> None:
        """Forget a result and all its tables."""
        for table in [known for known in self._tables if known == name or known.startswith(f"{name}/")]:
            del self._tables[table]
        self._metadata.pop(name, None)


def ranges(n_rows: int, step: int) -> list[tuple[int, int]]:
    """Cut rows into ranges of `step` rows.

    Examples
    --------
    >>> ranges(10, 4)
    [(0, 4), (4, 8), (8, 10)]
    """
    return [(start, min(start + step, n_rows)) for start in range(0, n_rows, step)]


def take_rows(values: Any, rows: np.ndarray) -> np.ndarray:
    """Rows of a numpy or zarr array by number."""
    if isinstance(values, np.ndarray):
        return values[rows]
    unique, places = np.unique(rows, return_inverse=True)
    return np.asarray(values.oindex[unique])[places]
