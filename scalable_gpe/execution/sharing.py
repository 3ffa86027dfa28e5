"""Rows that every worker can read."""

from typing import Protocol

import numpy as np

from scalable_gpe.execution.context import Context
from scalable_gpe.storage.blocks import ranges
from scalable_gpe.storage.protocol import Table

_BYTES_AT_ONCE = 2**24
_SHARD_BYTES = 2**25


class ReadableRows(Protocol):
    """Rows that are read in ranges; `shared`: other processes can read them too."""

    @property
    def n_rows(self) -> int: ...
    @property
    def n_features(self) -> int: ...
    @property
    def shared(self) -> bool: ...
    def read(self, start: int, stop: int) -> np.ndarray: ...


def shared_copy(rows: ReadableRows, context: Context) -> Table | None:
    """Write rows that only this process has to the store, for workers in other processes; None if not needed."""
    if not context.workers.remote or rows.shared:
        return None
    shard = min(context.block_rows(rows.n_rows), rows_per_shard(rows.n_features), rows.n_rows)
    shape = rows.n_rows, rows.n_features
    table = context.store.table(f"{context.scratch()}/rows", shape, np.float32, shard_rows=shard)

    def copy(piece: tuple[int, int]) -> None:
        table.write(piece[0], np.concatenate([rows.read(*step) for step in reading_steps(rows.n_features, *piece)]))

    context.workers.here.map(copy, ranges(rows.n_rows, table.shard_rows), count=False)
    return table


def rows_per_shard(n_features: int) -> int:
    """Rows of a shard of points: a power of two, about 32 MB."""
    return 1 << max(8, (_SHARD_BYTES // (4 * n_features)).bit_length() - 1)


def reading_steps(n_features: int, start: int, stop: int) -> list[tuple[int, int]]:
    """Ranges of rows, each read in one call."""
    rows = max(16, min(65_536, _BYTES_AT_ONCE // (8 * n_features)))
    return [(start + first, start + last) for first, last in ranges(stop - start, rows)]
