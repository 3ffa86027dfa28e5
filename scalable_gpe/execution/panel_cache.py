"""Cache of stored panels in one process, shared by its threads."""

import tempfile
import threading
from collections import OrderedDict

import numpy as np

from scalable_gpe.storage.mapped import MappedBytes, empty_in_lines, mapped
from scalable_gpe.storage.protocol import StoredRows

_OTHERS = 2  # panels that a process keeps besides those that a sweep uses


class CachedPanel:
    """A stored panel in the memory of one process, and which runs of its rows are present."""

    bytes_read = 0  # of all panels, since the process began

    def __init__(self, table: StoredRows, values: np.ndarray) -> None:
        self.values = values
        self._table, self._run_rows = table, table.run_rows
        self._present = np.zeros(-(-len(values) // self._run_rows), np.bool_)
        self._arriving = np.zeros_like(self._present)
        self._guard = threading.Condition()

    def need(self, indices: np.ndarray | None = None) -> None:
        """Read the rows `indices` (by default all) that are not present, in runs.

        Threads read different runs at the same time; each waits for those that another one is reading.
        """
        from scalable_gpe.loops import sparse

        wanted = np.full(len(self._present), indices is None)
        if indices is not None:
            sparse.touched(indices, self._run_rows, wanted)
        while True:
            with self._guard:
                missing = wanted & ~self._present
                mine = np.flatnonzero(missing & ~self._arriving)
                if not missing.any():
                    return
                if not len(mine):
                    self._guard.wait()
                    continue
                self._arriving[mine] = True
            self._read(mine)

    def _read(self, runs: np.ndarray) -> None:
        """Read some runs that no other thread is reading, those that are near each other in a shard in one request."""
        gap = self._table.store.backend.request_bytes // self.values[: self._run_rows].nbytes
        shards = runs * self._run_rows // self._table.shard_rows
        requests = np.split(runs, np.flatnonzero((np.diff(runs) > max(1, gap)) | (np.diff(shards) > 0)) + 1)
        complete = []
        try:
            for some in requests:
                rows = slice(int(some[0]) * self._run_rows, (int(some[-1]) + 1) * self._run_rows)
                self._table.read_into(rows.start, self.values[rows])
                complete.append(slice(some[0], some[-1] + 1))
                CachedPanel.bytes_read += self.values[rows].nbytes
        finally:
            with self._guard:
                for runs_read in complete:
                    self._present[runs_read] = True
                self._arriving[runs] = False
                self._guard.notify_all()

    def keep(self, start: int, values: np.ndarray) -> None:
        """Keep rows that this process has written, because it is likely to read them next."""
        with self._guard:
            if not np.may_share_memory(values, self.values):
                self.values[start : start + len(values)] = values
            self._present[self._runs(start, start + len(values))] = True

    def copy(self, start: int, stop: int) -> np.ndarray | None:
        """Return a copy of some rows, or None if not all of them are present."""
        with self._guard:
            return self.values[start:stop].copy() if self._present[self._runs(start, stop)].all() else None

    def _runs(self, start: int, stop: int) -> slice:
        return slice(start // self._run_rows, -(-stop // self._run_rows))


class PanelCache:
    """The panels that a process keeps; the least recently used one is evicted first."""

    def __init__(self) -> None:
        self._panels: OrderedDict[tuple[str, str], CachedPanel] = OrderedDict()
        self._guard = threading.Lock()

    def get(self, table: StoredRows, n_live: int, mapped_bytes: MappedBytes | None = None) -> CachedPanel:
        """Return the cached panel, evicting old ones; `n_live` panels of its shape are in use at a time.

        With `mapped_bytes`, panels are mapped files, of which so many bytes may be in memory.
        """
        key = str(table.store), table.name
        with self._guard:
            if key not in self._panels:
                self._evict(table, n_live)
                self._panels[key] = CachedPanel(table, _empty(table, mapped_bytes))
            self._panels.move_to_end(key)
            return self._panels[key]

    def _evict(self, table: StoredRows, n_live: int) -> None:
        """Drop the panels that were used longest ago, to make room for one like `table`."""
        kind = tuple(table.shape), table.dtype
        alike = [key for key, panel in self._panels.items() if (panel.values.shape, panel.values.dtype) == kind]
        for key in alike[: max(0, len(alike) + 1 - n_live)]:
            del self._panels[key]
        while len(self._panels) >= n_live + _OTHERS:
            self._panels.popitem(last=False)

    def clear(self) -> None:
        """Drop all panels."""
        with self._guard:
            self._panels.clear()


def _empty(table: StoredRows, mapped_bytes: MappedBytes | None) -> np.ndarray:
    """Memory for a panel; a worker reads only the shards that its blocks touch."""
    if mapped_bytes is None:
        return empty_in_lines(table.shape, table.dtype)
    return mapped.empty(tempfile.gettempdir(), table.shape, table.dtype, mapped_bytes, reserved=False)
