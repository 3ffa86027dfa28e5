"""Points of the graph stage: rows of the input in another order, and rows that every worker can read."""

import numpy as np

from scalable_gpe.execution.context import Context
from scalable_gpe.execution.panels import Panel
from scalable_gpe.io.rows import InputRows, Rows
from scalable_gpe.storage.blocks import ranges
from scalable_gpe.storage.mapped import take_rows

_SHARD_BYTES = 2**25


class RowSubset:
    """Some rows of another source, in a given order."""

    def __init__(self, rows: Rows, ids: np.ndarray | Panel) -> None:
        self._rows, self._ids = rows, Panel(ids) if isinstance(ids, np.ndarray) else ids
        self.n_rows, self.n_features, self.resident = ids.shape[0], rows.n_features, rows.resident

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows start to stop."""
        ids = self._ids.rows(start, stop)
        if len(ids) and int(ids[-1]) - int(ids[0]) < 2 * len(ids) and (np.diff(ids) > 0).all():
            rows: np.ndarray = self._rows.read(int(ids[0]), int(ids[-1]) + 1)[ids - ids[0]]
            return rows
        return self._rows.take(ids)

    def take(self, ids: np.ndarray) -> np.ndarray:
        """Rows by number."""
        return self._rows.take(take_rows(self._ids.whole(), ids))


def ensure_shared(rows: InputRows, context: Context) -> Rows:
    """Return rows that every worker can read; rows that only this process has are first written to the store."""
    if not context.workers.remote or rows.shared:
        return rows
    shard = min(context.block_rows(rows.n_rows), rows_per_shard(rows.n_features), rows.n_rows)
    shape = rows.n_rows, rows.n_features
    table = context.store.table(f"{context.scratch()}/rows", shape, np.float32, shard_rows=shard)

    def copy(piece: tuple[int, int]) -> None:
        table.write(piece[0], np.concatenate([rows.read(*step) for step in rows.steps(*piece)]))

    context.workers.here.map(copy, ranges(rows.n_rows, table.shard_rows), count=False)
    return table


def rows_per_shard(n_features: int) -> int:
    """Rows of a shard of points: a power of two, about 32 MB."""
    return 1 << max(8, (_SHARD_BYTES // (4 * n_features)).bit_length() - 1)
