"""Sums over rows: partial sums of fixed chunks, added in order, so that sums do not depend on blocks or threads."""

from collections.abc import Callable

import numpy as np

from scalable_gpe.execution.context import Context
from scalable_gpe.storage.blocks import ranges

CHUNK = 8192  # rows of one partial sum: a fixed number
_TOGETHER = 8  # blocks of quick work in one task, at most
_MANY_ROWS, _LARGE = 2**18, 2**15  # rows from which pieces are as large, so that starting tasks costs little


def row_pieces(context: Context, n_rows: int) -> list[tuple[int, int]]:
    """Ranges of rows for work that needs no block of K: whole chunks of sums, and whole shards of panels."""
    step = max(CHUNK if n_rows < _MANY_ROWS else _LARGE, context.block_rows(n_rows) // CHUNK * CHUNK)
    return ranges(n_rows, step * min(_TOGETHER, context.workers.blocks_per_task(-(-n_rows // step))))


def sum_rows(context: Context, n_rows: int, task: Callable[[int, int], np.ndarray]) -> np.ndarray:
    """Sum over rows; all sums over rows use this function.

    ``task(start, stop)`` does the work of some rows and returns their partial sums, as `chunk_products` makes them.
    """

    def sums(piece: tuple[int, int]) -> np.ndarray:
        return task(*piece)

    sums.__name__ = task.__name__  # the task's name on a dashboard
    partial = context.workers.map(sums, row_pieces(context, n_rows), count=False)
    total = np.zeros(partial[0].shape[1])
    for part in partial:
        for row in part:
            total += row
    return total


def chunk_products(left: np.ndarray, right: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """``sum left * right / weight`` of corresponding columns, for each chunk of some rows."""
    from scalable_gpe.loops import sparse

    out = np.empty((-(-len(left) // CHUNK), left.shape[1]))
    for number, (start, stop) in enumerate(ranges(len(left), CHUNK)):
        sparse.weighted_products(left[start:stop], right[start:stop], weight[start:stop], out[number])
    return out


def chunk_totals(values: np.ndarray) -> np.ndarray:
    """Sums of the columns of each chunk of some rows."""
    from scalable_gpe.loops import sparse

    out = np.empty((-(-len(values) // CHUNK), values.shape[1]))
    for number, (start, stop) in enumerate(ranges(len(values), CHUNK)):
        sparse.column_sums(values[start:stop], out[number])
    return out


def column_totals(values: np.ndarray) -> np.ndarray:
    """Sums of the columns, row after row; numpy adds a single column in another order than one of several."""
    from scalable_gpe.loops import sparse

    out = np.empty(values.shape[1])
    sparse.column_sums(values, out)
    return out
