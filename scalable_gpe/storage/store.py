"""What a stage asks of a store (tables of rows, ragged blocks, commits), and the store in memory.

A stage gets tables from its store by name, writes whole shards of them, and commits its result with the record that
describes it. It does not depend on the kind of store: `MemoryStore` keeps arrays in this process, `ZarrStore` in a zarr
group. Both have the same methods, which the types below check.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from scalable_gpe.storage.blocks import block_rows
from scalable_gpe.storage.mapped import Empty, pieces
from scalable_gpe.storage.records import Record


class MemoryTable:
    """A table that is a numpy array: also points as float32 rows."""

    resident = False

    def __init__(self, values: np.ndarray, shard_rows: int | None = None, name: str = "") -> None:
        self.array, self.name = values, name
        self.shape: tuple[int, ...] = values.shape
        self.n_rows, self.n_features = values.shape[0], values.shape[-1]
        self.dtype = values.dtype
        self.shard_rows = shard_rows or block_rows(len(values))
        self._written: set[int] = set()

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows start to stop, as a view."""
        return self.array[start:stop]

    def read_into(self, start: int, out: np.ndarray) -> None:
        """Copy rows from `start` on into an array."""
        out[:] = self.array[start : start + len(out)]

    def take(self, ids: np.ndarray) -> np.ndarray:
        """Rows by number."""
        rows: np.ndarray = self.array[ids]
        return rows

    def write(self, start: int, values: np.ndarray, first_column: int = 0) -> None:
        """Write rows from `start` on, or some columns of them."""
        if values.ndim == 2:
            self.array[start : start + len(values), first_column : first_column + values.shape[1]] = values
        else:
            self.array[start : start + len(values)] = values
        self._written.add(start)

    def has(self, start: int) -> bool:
        """Whether the shard that begins at `start` has been written."""
        return start in self._written


class MemoryRagged:
    """Ragged blocks that are numpy arrays."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = np.dtype(dtype)
        self._blocks: dict[int, np.ndarray] = {}

    def read(self, block: int, length: int) -> np.ndarray:
        """Entries of one block."""
        values = self._blocks.get(block)
        if values is None or len(values) != length:
            raise KeyError(f"block {block} has not been written")
        return values

    def write(self, block: int, values: np.ndarray) -> None:
        """Keep the entries of one block."""
        self._blocks[block] = np.ascontiguousarray(values, dtype=self.dtype)

    def has(self, block: int) -> bool:
        """Whether a block has been written."""
        return block in self._blocks


class MemoryStore:
    """Arrays and records of one computation in this process; they end with it."""

    persistent = False
    read_only = False

    def __init__(self) -> None:
        self._tables: dict[str, MemoryTable] = {}
        self._ragged: dict[str, MemoryRagged] = {}
        self._records: dict[str, Any] = {}

    @property
    def location(self) -> str:
        """What tells this store from all others."""
        return f"memory-{id(self)}"

    def table(
        self, name: str, shape: tuple[int, ...], dtype: Any, shard_rows: int | None = None, owner: str | None = None
    ) -> MemoryTable:
        """Make a table, or find the one of that name."""
        if name not in self._tables:
            self._tables[name] = MemoryTable(np.empty(shape, dtype), shard_rows, name)
        return self._tables[name]

    def ragged(self, name: str, n_blocks: int, longest: int, dtype: Any, n_chunks: int = 1) -> MemoryRagged:
        """Make ragged blocks, or find those of that name."""
        return self._ragged.setdefault(name, MemoryRagged(dtype))

    def open_table(self, name: str) -> MemoryTable:
        """Find the table of that name."""
        return self._tables[name]

    def open_ragged(self, name: str) -> MemoryRagged:
        """Find the ragged blocks of that name."""
        return self._ragged[name]

    def find_table(self, name: str) -> MemoryTable | None:
        """Find the table of that name, or None."""
        return self._tables.get(name)

    def scratch_table(self, name: str, shape: Sequence[int], dtype: Any, shard_rows: int) -> MemoryTable:
        """Make a table; it is freed with its last reference."""
        return MemoryTable(np.empty(tuple(shape), dtype), shard_rows, name)

    def commit(self, name: str, record: object, arrays: Sequence[str] = ()) -> None:
        """Commit a result (its tables, and `arrays` elsewhere): it is complete."""
        self._records[name] = record

    def read(self, name: str, kind: type[Record]) -> Record | None:
        """Record of a complete result, or None."""
        record = self._records.get(name)
        return record if isinstance(record, kind) else None

    peek = read

    def names(self, group: str) -> list[str]:
        """Results below a group, finished or not."""
        return sorted(
            {record[len(group) + 1 :].split("/")[0] for record in self._records if record.startswith(f"{group}/")}
        )

    def remove(self, name: str) -> None:
        """Remove a result and all its tables."""
        for kept in (self._tables, self._ragged, self._records):
            for key in [key for key in kept if key == name or key.startswith(f"{name}/")]:
                del kept[key]

    def detach(self, name: str) -> Any:
        """Remove a table from the store, and return its array."""
        return self._tables.pop(name).array

    # nothing outlives this process, and no other one can reach these arrays

    def exclusive(self) -> AbstractContextManager[None]:
        """Nothing to lock."""
        return nullcontext()

    def owner(self, name: str) -> None:
        """One run writes here."""

    def repair(self, array: str, part: str = "") -> None:
        """Memory is not damaged."""

    def discard(self) -> None:
        """Nothing to remove."""


if TYPE_CHECKING:
    from scalable_gpe.storage.arrays import ScratchTable, StoredRagged, StoredTable
    from scalable_gpe.storage.zarr_store import ZarrStore

    ArrayStore: TypeAlias = MemoryStore | ZarrStore
    Table: TypeAlias = MemoryTable | StoredTable
    Ragged: TypeAlias = MemoryRagged | StoredRagged
    StoredRows: TypeAlias = StoredTable | ScratchTable
else:
    ArrayStore = Table = Ragged = StoredRows = Any


def write_whole(table: Table, values: np.ndarray, first: int = 0) -> None:
    """Write an array that this process holds, shard by shard, from row `first` on."""
    for start, stop in pieces(len(values), table.shard_rows):
        table.write(first + start, values[start:stop])


def read_whole(table: Table, empty: Empty = np.empty) -> np.ndarray:
    """All rows of a table; `empty` makes the array."""
    if empty is np.empty:
        return table.read(0, table.shape[0])
    out = empty(table.shape, table.dtype)
    for start, stop in pieces(table.shape[0], table.shard_rows):
        table.read_into(start, out[start:stop])
    return out
