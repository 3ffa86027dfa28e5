"""Points of the graph stage: rows of the input in another order, and rows that every worker can read."""

from typing import Any

import numpy as np

from scalable_gpe.execution.context import Context
from scalable_gpe.execution.panels import MemoryPanel
from scalable_gpe.io.rows import InputRows
from scalable_gpe.io.sources import TableSource
from scalable_gpe.storage.protocol import ranges


class RowSubset:
    """Some rows of another source, in an order of their own."""

    def __init__(self, rows: Any, ids: Any) -> None:
        self._rows, self._ids = rows, MemoryPanel(ids) if isinstance(ids, np.ndarray) else ids
        self.n_rows, self.n_features = ids.shape[0], rows.n_features
        self.resident = bool(getattr(rows, "resident", False))

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows start to stop."""
        ids = self._ids.rows(start, stop)
        if len(ids) and int(ids[-1]) - int(ids[0]) < 2 * len(ids) and (np.diff(ids) > 0).all():
            return self._rows.read(int(ids[0]), int(ids[-1]) + 1)[ids - ids[0]]
        return self._rows.take(ids)

    def take(self, ids: np.ndarray) -> np.ndarray:
        """Rows by number."""
        return self._rows.take(self._ids.whole()[ids])


def ensure_shared(rows: InputRows, context: Context) -> InputRows:
    """Rows that every worker can read: rows that only this process has are written to the store first."""
    if not context.workers.remote or rows.shared:
        return rows
    shard = min(context.block_rows(rows.n_rows), 1 << max(8, (2**25 // (4 * rows.n_features)).bit_length() - 1))
    table = context.store.table(
        f"{context.scratch()}/rows", (rows.n_rows, rows.n_features), np.float32, shard_rows=min(shard, rows.n_rows)
    )

    def copy(piece: tuple[int, int]) -> None:
        table.write(piece[0], np.concatenate([rows.read(*step) for step in rows.steps(*piece)]))

    context.workers.here.map(copy, ranges(rows.n_rows, table.shard_rows), count=False)
    return InputRows(TableSource(table), names=rows.names)


class TableRows:
    """Rows that stand in a table."""

    def __init__(self, table: Any) -> None:
        self.n_rows, self.n_features = table.shape
        self.read, self.take = table.read, table.take
