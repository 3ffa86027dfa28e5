"""Tables of a search, written part by part, and the record of finished parts."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from scalable_gpe.execution.context import Context
from scalable_gpe.execution.process import release_freed_memory
from scalable_gpe.graph.cells.plan import SearchPlan
from scalable_gpe.storage.blocks import block_rows
from scalable_gpe.storage.store import Table

Result = TypeVar("Result")

_SHARD_BYTES = 2**24


@dataclass(frozen=True)
class _Finished:
    """Empty record of a finished part."""


class SearchTables:
    """The tables of one search, and its parts, of which the store knows the finished ones."""

    def __init__(self, context: Context, name: str, plan: SearchPlan) -> None:
        self._context, self._store, self._name, self._plan = context, context.store, name, plan

    def table(self, name: str, width: int, dtype: type) -> Table:
        """Make a table, or open the one that an interrupted search left behind."""
        shape, shard = (self._plan.n_rows, width), self._shard_rows(width, dtype)
        return self._store.table(self.name(name), shape, dtype, shard_rows=shard)

    def name(self, name: str) -> str:
        """The name of a table in the store."""
        return f"{self._name}/{name}"

    def drop(self, name: str) -> None:
        """Remove a table that no part needs any more."""
        self._store.remove(self.name(name))

    def run(self, task: Callable[[int], Result], *step: Any) -> list[Result]:
        """Run a task for every part that is not finished yet, as many at a time as memory allows."""
        store, workers, n_parts = self._store, self._context.workers, self._plan.n_parts
        names = [self.name(f"done/{'-'.join(map(str, (*step, part)))}") for part in range(n_parts)]
        left = [part for part in range(n_parts) if store.read(names[part], _Finished) is None]

        def finish(part: int) -> None:
            store.commit(names[part], _Finished())
            workers.progress.advance()
            release_freed_memory()  # freed memory would count against the limit

        return workers.map(task, left, count=False, at_once=self._context.plan.parts_at_once(), done=finish)

    def _shard_rows(self, width: int, dtype: type) -> int:
        """Rows of a shard: a whole part, or an equal share of a large one, as a shard is copied while it is written."""
        shard = self._plan.part_rows if self._plan.n_parts > 1 else block_rows(self._plan.n_rows)
        while shard * width * np.dtype(dtype).itemsize > _SHARD_BYTES and shard % 2 == 0:
            shard //= 2
        return shard
