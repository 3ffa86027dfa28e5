"""Panels: dense matrices in storage order. A sweep reads all of one and writes another block by block.

If threads run the loop, a panel is an array in memory, written in place. If other processes run it, a panel is a
scratch table in the store: each process reads the rows that its blocks need once, shares them among its threads, and a
sweep writes a new table, so that a task which runs twice gives the same bytes.
"""

import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from scalable_gpe.errors import DamageError
from scalable_gpe.execution.context import Context
from scalable_gpe.execution.memory_plan import current_block_sizes
from scalable_gpe.execution.process import process
from scalable_gpe.execution.sums import row_pieces
from scalable_gpe.storage.mapped import MappedBytes, empty_in_lines, mapped, pieces
from scalable_gpe.storage.records import Record, from_json, to_json
from scalable_gpe.storage.store import StoredRows, Table

_OTHERS = 2  # panels that a process keeps besides those that a sweep uses
RowValues = Callable[[int, int], Any]
_BETWEEN_SAVES = 20  # how many times as long as a save takes


class CachedPanel:
    """A stored panel in the memory of one process, and which runs of its rows are present."""

    bytes_read = 0  # of all panels, since the process began

    def __init__(self, table: StoredRows, values: np.ndarray) -> None:
        self.values = values
        self._table, self._run_rows = table, table.run_rows
        self._present = np.zeros(-(-len(values) // self._run_rows), np.bool_)
        self._reading = threading.Lock()

    def need(self, indices: np.ndarray | None = None) -> None:
        """Read the rows `indices` (by default all) that are not present, in runs; one thread at a time reads."""
        from scalable_gpe.loops import sparse

        wanted = np.full(len(self._present), indices is None)
        if indices is not None:
            sparse.touched(indices, self._run_rows, wanted)
        with self._reading:
            missing = np.flatnonzero(wanted & ~self._present)
            if len(missing):
                self._read(missing)

    def _read(self, missing: np.ndarray) -> None:
        """Read some runs, those that are near each other in a shard in one request."""
        gap = self._table.store.backend.request_bytes // self.values[: self._run_rows].nbytes
        shards = missing * self._run_rows // self._table.shard_rows
        is_cut = (np.diff(missing) > max(1, gap)) | (np.diff(shards) > 0)
        for runs in np.split(missing, np.flatnonzero(is_cut) + 1):
            rows = slice(int(runs[0]) * self._run_rows, (int(runs[-1]) + 1) * self._run_rows)
            self._table.read_into(rows.start, self.values[rows])
            self._present[runs[0] : runs[-1] + 1] = True
            CachedPanel.bytes_read += self.values[rows].nbytes

    def keep(self, start: int, values: np.ndarray) -> None:
        """Keep rows that this process has written, because it is likely to read them next."""
        if not np.may_share_memory(values, self.values):
            self.values[start : start + len(values)] = values
        self._present[self._runs(start, start + len(values))] = True

    def copy(self, start: int, stop: int) -> np.ndarray | None:
        """Return a copy of some rows, or None if not all of them are present."""
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


cached_panels = PanelCache()


class Panel:
    """A matrix (or vector) that tasks read whole or by rows, and whose rows each belong to one task.

    This kind is an array of this process.
    """

    def __init__(self, values: np.ndarray) -> None:
        self.values = values
        self.shape, self.dtype = values.shape, values.dtype

    def whole(self, indices: np.ndarray | None = None) -> np.ndarray:
        """All rows, of which those in `indices` (by default all) are valid."""
        return self.values

    def rows(self, start: int, stop: int) -> np.ndarray:
        """Some rows, which their task may change and pass to `put` of the panel that replaces this one."""
        return self.values[start:stop]

    def room(self, start: int, stop: int) -> np.ndarray:
        """An array for some rows, to be filled and passed to `put`."""
        return self.values[start:stop]

    def put(self, start: int, values: np.ndarray) -> None:
        """Write rows; `room` is a view of the panel."""

    def renewed(self) -> "Panel":
        """The panel that the next sweep writes: this one, because a task reads its own rows before it writes them."""
        return self

    def retire(self) -> None:
        """Drop a panel that is no longer needed; the garbage collector frees it."""


class StoredPanel(Panel):
    """A panel that is a table of the store."""

    def __init__(
        self,
        table: Any,  # of a store that other processes reach
        owner: "Panels | None" = None,
        n_live: int = 2,
        mapped_bytes: MappedBytes | None = None,
    ) -> None:
        self.table, self.shape, self.dtype = table, table.shape, table.dtype
        self._owner, self._n_live, self._mapped_bytes = owner, n_live, mapped_bytes

    def __reduce__(self) -> Any:
        return StoredPanel, (self.table, None, self.n_live, self._mapped_bytes)

    @property
    def n_live(self) -> int:
        """Number of panels that are read and written at the same time, this one included."""
        return self._n_live if self._owner is None else max(2, self._owner.n_live)

    @property
    def _cached(self) -> CachedPanel:
        return cached_panels.get(self.table, self.n_live, self._mapped_bytes)

    def whole(self, indices: np.ndarray | None = None) -> np.ndarray:
        """All rows, of which `indices` (by default all) have been read, in runs."""
        cached = self._cached
        cached.need(indices)
        return cached.values

    def rows(self, start: int, stop: int) -> np.ndarray:
        """Some rows, in a new array."""
        cached_rows = self._cached.copy(start, stop) if process.keeps_panels else None
        return self.table.read(start, stop) if cached_rows is None else cached_rows

    def room(self, start: int, stop: int) -> np.ndarray:
        """An array for some rows; in a process that keeps panels, a view of the cached panel."""
        if process.keeps_panels:
            return self._cached.values[start:stop]
        return np.empty((stop - start, *self.shape[1:]), self.dtype)

    def put(self, start: int, values: np.ndarray) -> None:
        """Write whole shards."""
        step = self.table.shard_rows
        for first in range(0, len(values), step):
            self.table.write(start + first, values[first : first + step])
        if process.keeps_panels:
            self._cached.keep(start, values)

    def renewed(self) -> Panel:
        """Make a new table."""
        assert self._owner is not None
        return self._owner.new(self.shape, self.dtype)

    def retire(self) -> None:
        """Remove the table."""
        if self._owner is not None:
            self._owner.retire(self.table.name)


@contextmanager
def replaced(panel: Panel) -> Iterator[Panel]:
    """Give the panel that replaces another one: written inside the block, while the old one is still read."""
    fresh = panel.renewed()
    yield fresh
    if fresh is not panel:
        panel.retire()


def write_rows(panel: Panel, values: RowValues, context: Context) -> None:
    """Write all rows of a panel: those from `start` to `stop` are ``values(start, stop)``."""

    def write(piece: tuple[int, int]) -> None:
        out = panel.room(*piece)
        out[:] = values(*piece)
        panel.put(piece[0], out)

    write.__name__ = getattr(values, "__name__", "write").strip("<>")
    context.workers.map(write, row_pieces(context, panel.shape[0]), count=False)


def updated(panel: Panel, values: RowValues, context: Context) -> Panel:
    """The panel whose rows are ``values(start, stop)``, which replaces another one."""
    with replaced(panel) as fresh:
        write_rows(fresh, values, context)
    return fresh


@dataclass(frozen=True)
class Checkpoint:
    """A saved state of an iteration: its number, the state as JSON, and the names of its panels."""

    count: int
    state: Any
    panels: tuple[str, ...] = ()


class Panels:
    """The panels of one iteration, saved from time to time, so that a killed run loses little.

    ``offer`` saves when `seconds`, a tenth of the time worked, or twenty times as long as the last save took, have
    passed since that one, whichever is longest. It writes two slots in turn, so that one of them is always complete.
    Without a persistent store, or without `seconds`, nothing is saved.

    A stored panel is live from `new` to `retire`; workers keep `n_live` of them.
    """

    def __init__(self, context: Context, name: str | None = None, seconds: float | None = None) -> None:
        self._fixed = current_block_sizes().save_seconds
        self._context, self._name = context, context.scratch() if name is None else name
        self._seconds = seconds
        self._count, self.n_live = 0, 0
        self._began = self._last = time.monotonic()
        self._took = 0.0

    def new(self, shape: tuple[int, ...], dtype: Any) -> Panel:
        """Make a panel with undefined values."""
        context = self._context
        if not context.workers.remote:
            return Panel(context.empty(shape, dtype))
        self.n_live += 1
        # a name that no other panel of the run has: workers keep panels by name
        name = f"{self._name}/panels/{context.new_label()}"
        table = context.store.scratch_table(name, shape, dtype, context.block_rows(shape[0]))
        return StoredPanel(table, self, mapped_bytes=self._mapped_bytes)

    def filled(self, shape: tuple[int, ...], dtype: Any, values: RowValues) -> Panel:
        """Make a panel whose rows from `start` to `stop` are ``values(start, stop)``."""
        panel = self.new(shape, dtype)
        write_rows(panel, values, self._context)
        return panel

    def of(self, values: np.ndarray) -> Panel:
        """Make a panel of values that this process has."""
        if not self._context.workers.remote:
            return Panel(values)
        panel = self.new(values.shape, values.dtype)
        panel.put(0, values)
        return panel

    def open(self, table: Table) -> Panel:
        """Open a table of the store as a panel that is only read."""
        if self._context.workers.remote:
            return StoredPanel(table, mapped_bytes=self._mapped_bytes)
        return Panel(np.ascontiguousarray(self._context.read_whole(table)))

    @property
    def _mapped_bytes(self) -> MappedBytes | None:
        """Bytes of mapped panels that a worker may hold; None: its panels are in memory."""
        plan = self._context.plan
        return plan.mapped_bytes() if plan.maps_arrays else None

    def retire(self, name: str) -> None:
        """Remove the files of a stored panel."""
        self.n_live -= 1
        self._context.store.remove(name)

    def load(self, kind: type[Record], fits: Callable[[Record], bool]) -> tuple[Record, dict[str, Panel]] | None:
        """Load the latest saved state and its panels, or return None; nothing is read of a state that does not fit."""
        checkpoints = []
        for slot in (0, 1):
            with suppress(DamageError):
                checkpoints.append(self._context.store.read(f"{self._name}/{slot}", Checkpoint))
        for saved in sorted(filter(None, checkpoints), key=lambda saved: -saved.count):
            state, slot = from_json(kind, saved.state), saved.count % 2
            if fits(state):
                with suppress(DamageError):
                    panels = {name: self._copy(f"{self._name}/{slot}/{name}") for name in saved.panels}
                    self._count = saved.count
                    return state, panels
        return None

    def offer(self, state: object, panels: dict[str, Panel]) -> None:
        """Save this state if enough time has passed."""
        now, store = time.monotonic(), self._context.store
        if self._seconds is None or not store.persistent:
            return
        least = max(self._seconds, _BETWEEN_SAVES * self._took) if self._fixed is None else self._fixed
        if now - self._last < max(least, 0.1 * (now - self._began)):
            return
        self._count += 1
        slot = f"{self._name}/{self._count % 2}"
        store.remove(slot)
        for name, panel in panels.items():
            table = store.table(f"{slot}/{name}", panel.shape, panel.dtype)
            for start, stop in pieces(panel.shape[0], table.shard_rows):
                table.write(start, panel.rows(start, stop))
        store.commit(slot, Checkpoint(self._count, to_json(state), tuple(panels)))
        self._last = time.monotonic()
        self._took = self._last - now

    def clear(self) -> None:
        """Remove all panels and saved states: the iteration is over."""
        self._context.store.remove(self._name)

    def _copy(self, name: str) -> Panel:
        """A new panel with the values of a saved one."""
        table = self._context.store.open_table(name)
        panel = self.new(table.shape, table.dtype)
        for start, stop in pieces(table.shape[0], self._context.block_rows(table.shape[0])):
            rows = panel.room(start, stop)
            table.read_into(start, rows)
            panel.put(start, rows)
        return panel
