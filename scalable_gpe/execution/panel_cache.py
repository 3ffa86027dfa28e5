"""Cache of stored panels in one process, shared by its threads.

A task leases the panels that it uses until it ends. The memory of a panel is reused only when no task has a lease on
it, because new memory costs a page fault every few rows.
"""

import tempfile
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np

from scalable_gpe.storage.mapped import mapped

_MOST_BLOCKS = 4096
_OTHERS = 2  # panels that a process keeps besides those that a sweep uses


class PanelTable(Protocol):
    """A table of the store, as a panel uses it."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    shard_rows: int

    @property
    def key(self) -> tuple[str, str]: ...
    def read(self, start: int, stop: int) -> np.ndarray: ...
    def read_into(self, start: int, out: np.ndarray) -> None: ...
    def write(self, start: int, values: np.ndarray) -> None: ...


class CachedPanel:
    """A stored panel in the memory of one process, and which of its shards are present."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values
        self.n_leases = 0
        self.reusable = True  # until code without a lease has seen the memory
        self._present: set[int] = set()
        self._guard = threading.Lock()

    @property
    def n_present(self) -> int:
        """Number of shards that were read or written."""
        return len(self._present)

    def need(self, table: PanelTable, shards: range | list[int]) -> None:
        """Read those of some shards that are not present."""
        with self._guard:
            for shard in shards:
                if shard not in self._present:
                    start = shard * table.shard_rows
                    table.read_into(start, self.values[start : start + table.shard_rows])
                    self._present.add(shard)

    def keep(self, table: PanelTable, start: int, values: np.ndarray) -> None:
        """Keep shards that this process has written, because it is likely to read them next."""
        with self._guard:
            if not np.may_share_memory(values, self.values):
                self.values[start : start + len(values)] = values
            self._present.update(range(start // table.shard_rows, -(-(start + len(values)) // table.shard_rows)))

    def copy(self, table: PanelTable, start: int, stop: int) -> np.ndarray | None:
        """Return a copy of some rows, or None if not all of them are present."""
        wanted = range(start // table.shard_rows, -(-stop // table.shard_rows))
        with self._guard:
            return self.values[start:stop].copy() if self._present.issuperset(wanted) else None


class PanelCache:
    """The panels that a process keeps; the least recently used one is evicted first."""

    def __init__(self) -> None:
        self._panels: OrderedDict[tuple[str, str], CachedPanel] = OrderedDict()
        self._guard = threading.Lock()
        self._task = threading.local()
        # for blocks of K that stay in memory: the shards that they touch
        self._touched: dict[int, tuple[weakref.ref[np.ndarray], int, list[int]]] = {}

    @contextmanager
    def task(self) -> Iterator[None]:
        """Lease the panels that this thread uses inside the block."""
        leases: list[CachedPanel] = []
        self._task.leases = leases
        try:
            yield
        finally:
            self._task.leases = None
            mapped.trim()
            with self._guard:
                for panel in leases:
                    panel.n_leases -= 1

    def get(self, table: PanelTable, n_live: int, mapped_bytes: int | None = None) -> CachedPanel:
        """Return the cached panel, evicting old ones; `n_live` panels of its shape are in use at a time.

        With `mapped_bytes`, panels are mapped files, of which so many bytes may be in memory.
        """
        with self._guard:
            if table.key not in self._panels:
                self._panels[table.key] = CachedPanel(self._memory(table, n_live, mapped_bytes))
            self._panels.move_to_end(table.key)
            panel = self._panels[table.key]
            self._lease(panel)
            return panel

    def _lease(self, panel: CachedPanel) -> None:
        leases: list[CachedPanel] | None = getattr(self._task, "leases", None)
        if leases is None:
            panel.reusable = False
        elif not any(one is panel for one in leases):
            leases.append(panel)
            panel.n_leases += 1

    def _memory(self, table: PanelTable, n_live: int, mapped_bytes: int | None) -> np.ndarray:
        """Memory for one more panel: that of an evicted one, or new memory."""
        kind = tuple(table.shape), table.dtype
        alike = [key for key, one in self._panels.items() if (one.values.shape, one.values.dtype) == kind]
        found = None
        for key in alike[: max(0, len(alike) + 1 - n_live)]:
            old = self._panels.pop(key)
            if old.n_leases == 0 and old.reusable:
                found = old.values
        while len(self._panels) >= n_live + _OTHERS:
            self._panels.popitem(last=False)
        if found is not None:
            return found
        if mapped_bytes is None:
            return np.empty(table.shape, table.dtype)
        # a worker reads only the shards that its blocks touch
        return mapped.empty(tempfile.gettempdir(), table.shape, table.dtype, mapped_bytes, reserved=False)

    def touched(self, indices: np.ndarray, shard_rows: int, n_shards: int) -> list[int]:
        """Numbers of the shards that hold the rows `indices`."""
        from scalable_gpe.loops import sparse

        block, of_rows, shards = self._touched.get(id(indices), (None, 0, []))
        if block is not None and block() is indices and of_rows == shard_rows:
            return shards
        flags = np.zeros(n_shards, np.bool_)
        sparse.touched(indices, shard_rows, flags)
        shards = np.flatnonzero(flags).tolist()
        if len(self._touched) >= _MOST_BLOCKS:
            self._touched.clear()
        self._touched[id(indices)] = weakref.ref(indices), shard_rows, shards
        return shards

    def clear(self) -> None:
        """Drop all panels."""
        with self._guard:
            self._panels.clear()
            self._touched.clear()
