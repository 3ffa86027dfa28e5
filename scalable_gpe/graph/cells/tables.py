"""Tables of a search, written part by part, and the record of finished parts."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from scalable_gpe.execution.allocator import release_freed_memory
from scalable_gpe.execution.context import Context
from scalable_gpe.graph.cells.plan import SearchPlan
from scalable_gpe.storage.blocks import ranges
from scalable_gpe.storage.protocol import Table

_CHUNK_ROWS = 4096  # shards are a multiple of the chunks of a table
_SHARD_BYTES = 2**24


class PartedTable:
    """A table that is written part by part; each part begins at a new shard, `part_rows` after the previous one."""

    def __init__(self, table: Table, starts: np.ndarray, part_rows: int) -> None:
        self._table, self._starts, self._part_rows = table, starts, part_rows

    def _places(self, ids: np.ndarray) -> np.ndarray:
        part = np.searchsorted(self._starts, ids, side="right") - 1
        places: np.ndarray = part * self._part_rows + ids - self._starts[part]
        return places

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows start to stop."""
        bounds = self._starts[(self._starts > start) & (self._starts < stop)]
        cuts = [start, *bounds.tolist(), stop]
        offsets = self._places(np.array(cuts[:-1]))
        parts = [
            self._table.read(int(offset), int(offset) + last - first)
            for offset, first, last in zip(offsets, cuts[:-1], cuts[1:], strict=True)
        ]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def take(self, ids: np.ndarray) -> np.ndarray:
        """Rows by number, in any order."""
        return self._table.take(self._places(np.asarray(ids)))

    def replace(self, ids: np.ndarray, values: np.ndarray) -> None:
        """Replace rows of a table in memory."""
        self._table.array[self._places(ids)] = values

    def write(self, start: int, values: np.ndarray, order: np.ndarray | None = None) -> None:
        """Write one whole part, shard by shard; `order` rearranges its rows."""
        first = int(self._places(np.array([start]))[0])
        for begin, end in ranges(self._part_rows, self._table.shard_rows):
            rows = values[begin:end] if order is None else values[order[begin:end]]
            padding = np.zeros((end - begin - len(rows), self._table.shape[1]), self._table.dtype)
            self._table.write(first + begin, np.concatenate([rows, padding]) if len(padding) else rows)


@dataclass(frozen=True)
class _Finished:
    """Empty record of a finished part."""


class PartedTables:
    """The tables of one search, and its parts, of which the store knows the finished ones."""

    def __init__(self, context: Context, name: str, plan: SearchPlan) -> None:
        self._context, self._store, self._name, self._plan = context, context.store, name, plan
        self._starts = np.array([plan.part(part)[0] for part in range(plan.n_parts)] + [plan.n_rows])

    @property
    def in_memory(self) -> bool:
        """Whether the tables end with this process."""
        return not self._store.persistent

    def table(self, name: str, width: int, dtype: type) -> PartedTable:
        """Make a table, or open the one that an interrupted search left behind."""
        shape, shard, part_rows = self._layout(width, dtype)
        table = self._store.table(self.name(name), shape, dtype, shard_rows=shard)
        return PartedTable(table, self._starts, part_rows)

    def input_copy(self, name: str, width: int) -> PartedTable | None:
        """Make a table for the rows themselves, or return None if the store keeps no copy of them."""
        shape, shard, part_rows = self._layout(width, np.float32)
        table = self._store.input_copy(self.name(name), shape, shard)
        return None if table is None else PartedTable(table, self._starts, part_rows)

    def name(self, name: str) -> str:
        """The name of a table in the store."""
        return f"{self._name}/{name}"

    def drop(self, name: str) -> None:
        """Remove a table that no part needs any more."""
        self._store.remove(self.name(name))

    def run(self, task: Callable[[int], None], *step: Any) -> None:
        """Run a task for every part that is not finished yet, as many at a time as memory allows."""
        store, workers, n_parts = self._store, self._context.workers, self._plan.n_parts
        names = [self.name(f"done/{'-'.join(map(str, (*step, part)))}") for part in range(n_parts)]
        left = [part for part in range(n_parts) if store.read(names[part], _Finished) is None]

        def finish(part: int) -> None:
            store.commit(names[part], _Finished())
            workers.progress.advance()
            release_freed_memory()  # freed memory would count against the limit

        workers.map(task, left, count=False, at_once=self._context.plan.parts_at_once(), done=finish)

    def _layout(self, width: int, dtype: type) -> tuple[tuple[int, int], int, int]:
        """Shape, rows of a shard, and rows between the beginnings of two parts."""
        longest = int(np.diff(self._starts).max())
        # a shard is copied several times while it is written: a part of wide rows has several small ones
        n_shards = max(1, longest * width * np.dtype(dtype).itemsize // _SHARD_BYTES)
        shard = -(-longest // (n_shards * _CHUNK_ROWS)) * _CHUNK_ROWS
        part_rows = -(-longest // shard) * shard
        return (part_rows * self._plan.n_parts, width), shard, part_rows
