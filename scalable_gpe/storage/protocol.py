"""What a stage asks of a store: tables of rows, ragged blocks, commits.

A stage gets tables from its store by name, writes whole shards of them, and commits its result with the record that
describes it. It does not depend on the kind of store: `memory` keeps arrays in this process, `zarr_store` in a zarr
group. Both have the same methods, which the types below check.
"""

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from scalable_gpe.storage.mapped import Empty, pieces

if TYPE_CHECKING:
    from scalable_gpe.storage.arrays import StoredRagged, StoredTable
    from scalable_gpe.storage.memory import MemoryRagged, MemoryStore, MemoryTable
    from scalable_gpe.storage.scratch import ScratchTable
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
