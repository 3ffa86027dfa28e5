"""Dense matrices in storage order: sweeps read all of one and write another block by block.

Where threads run the loop a panel is an array in memory, written in place. Where other processes run it a panel is a
table in the store: each process reads what its blocks touch once, shares it among its threads, and a sweep writes a
new table, so that a task which is run twice gives the same bytes.
"""

import sys
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

from scalable_gpe.errors import DamageError
from scalable_gpe.execution.context import Context
from scalable_gpe.execution.workers import current_block_sizes
from scalable_gpe.storage.protocol import ranges
from scalable_gpe.storage.scratch import ScratchTable

if TYPE_CHECKING:
    from scalable_gpe.storage.zarr_store import ZarrStore

CHUNK = 8192  # rows of one partial sum: a fixed number, so that sums do not depend on the blocks


class Panel(Protocol):
    """A matrix (or vector) that tasks read whole or by rows, and whose rows each belong to one task."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def whole(self, indices: np.ndarray | None = None) -> np.ndarray: ...
    def rows(self, start: int, stop: int) -> np.ndarray: ...
    def room(self, start: int, stop: int) -> np.ndarray: ...
    def put(self, start: int, values: np.ndarray) -> None: ...
    def renewed(self) -> "Panel": ...
    def retire(self) -> None: ...


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


class MemoryPanel:
    """A panel that is an array of this process."""

    def __init__(self, values: np.ndarray) -> None:
        self.values, self.shape, self.dtype = values, values.shape, values.dtype

    def whole(self, indices: np.ndarray | None = None) -> np.ndarray:
        """All rows."""
        return self.values

    def rows(self, start: int, stop: int) -> np.ndarray:
        """Some rows, which their task may change: it hands them to `put` of the panel that replaces this one."""
        return self.values[start:stop]

    room = rows

    def put(self, start: int, values: np.ndarray) -> None:
        """Nothing is left to do: the room was the panel itself."""

    def renewed(self) -> "MemoryPanel":
        """Where the next sweep writes: here, because each task has read its own rows before it writes them."""
        return self

    def retire(self) -> None:
        """Forget the values; the garbage collector does."""


class StoredPanel:
    """A panel that is a table of the store."""

    def __init__(self, table: PanelTable, owner: "Panels | None" = None) -> None:
        self.table, self.shape, self.dtype = table, table.shape, table.dtype
        self._owner, self._n_live = owner, 2

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_owner": None, "_n_live": self.n_live}

    @property
    def n_live(self) -> int:
        """Panels that are read and written beside this one, itself included."""
        return self._n_live if self._owner is None else max(2, self._owner.n_live)

    def whole(self, indices: np.ndarray | None = None) -> np.ndarray:
        """All rows, of which those that stand in the shards of `indices` (all without) have been read."""
        return _held(self).need(self.table, indices)

    def rows(self, start: int, stop: int) -> np.ndarray:
        """Some rows, in an array of their own, which their task may change."""
        known = _held(self).known(self.table, start, stop) if _keeping else None
        return self.table.read(start, stop) if known is None else known

    def room(self, start: int, stop: int) -> np.ndarray:
        """An array for some rows, to be handed to `put`; where that is kept, already at its place."""
        if _keeping:
            return _held(self).values[start:stop]
        return np.empty((stop - start, *self.shape[1:]), self.dtype)

    def put(self, start: int, values: np.ndarray) -> None:
        """Write whole shards."""
        step = self.table.shard_rows
        for first in range(0, len(values), step):
            self.table.write(start + first, values[first : first + step])
        if _keeping:
            _held(self).keep(self.table, start, values)

    def renewed(self) -> "StoredPanel":
        """Where the next sweep writes: a new table."""
        assert self._owner is not None
        return self._owner.new(self.shape, self.dtype)  # type: ignore[return-value]

    def retire(self) -> None:
        """Remove the table, unless a saved state needs it."""
        if self._owner is not None:
            self._owner.retire(self)


@contextmanager
def replaced(panel: Panel) -> Iterator[Panel]:
    """The panel that takes another one's place: written in the block, while the old one is still read."""
    fresh = panel.renewed()
    yield fresh
    if fresh is not panel:
        panel.retire()


class _Held:
    """What one process has read of a stored panel."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values
        self._read: set[int] = set()
        self._guard = threading.Lock()

    def need(self, table: PanelTable, indices: np.ndarray | None) -> np.ndarray:
        n_rows, step = table.shape[0], table.shard_rows
        n_shards = -(-n_rows // step)
        if len(self._read) == n_shards:
            return self.values
        wanted = range(n_shards) if indices is None else _touched(indices, step, n_shards)
        with self._guard:
            for shard in wanted:
                if shard not in self._read:
                    start, stop = shard * step, min((shard + 1) * step, n_rows)
                    table.read_into(start, self.values[start:stop])
                    self._read.add(shard)
        return self.values

    def keep(self, table: PanelTable, start: int, values: np.ndarray) -> None:
        """Remember shards that this process has written: it is likely to read them next."""
        with self._guard:
            if not np.may_share_memory(values, self.values):
                self.values[start : start + len(values)] = values
            self._read.update(range(start // table.shard_rows, -(-(start + len(values)) // table.shard_rows)))

    def known(self, table: PanelTable, start: int, stop: int) -> np.ndarray | None:
        """A copy of some rows, if this process has them all."""
        wanted = range(start // table.shard_rows, -(-stop // table.shard_rows))
        with self._guard:
            return self.values[start:stop].copy() if self._read.issuperset(wanted) else None


def _references(held: _Held) -> tuple[int, int]:
    """How often a panel and its memory are referred to."""
    return sys.getrefcount(held), sys.getrefcount(held.values)


def _alone() -> tuple[int, int]:
    """References to a panel that only its finder has, as this interpreter counts them."""
    held = _Held(np.empty(0))
    return _references(held)


_ALONE = _alone()
_MOST_BLOCKS = 4096
_OTHERS = 2  # panels that a process keeps beside those that a sweep uses
_panels: OrderedDict[Any, _Held] = OrderedDict()
_panels_guard = threading.Lock()
_keeping = False


def keep_panels() -> None:
    """Let this process, a worker, remember what its tasks write."""
    global _keeping
    _keeping = True


def _held(panel: StoredPanel) -> _Held:
    """What this process has of a panel; those that were not used for longest are forgotten."""
    key, kind = panel.table.key, (panel.shape, panel.dtype)
    with _panels_guard:
        if key not in _panels:
            alike = [k for k, held in _panels.items() if (held.values.shape, held.values.dtype) == kind]
            values = None
            for old in alike[: max(0, len(alike) + 1 - panel.n_live)]:
                held = _panels.pop(old)
                # its memory is used again, because new memory costs a page fault every few rows; unless a task that is
                # still running has it
                if _references(held) == _ALONE:
                    values = held.values
                del held
            while len(_panels) >= panel.n_live + _OTHERS:
                _panels.popitem(last=False)
            _panels[key] = _Held(np.empty(*kind) if values is None else values)
        _panels.move_to_end(key)
        return _panels[key]


def forget_panels() -> None:
    """Free what this process holds of stored panels."""
    with _panels_guard:
        _panels.clear()


# for blocks of K that stay in memory: the shards that they touch
_known_shards: dict[int, tuple[Any, int, list[int]]] = {}


def _touched(indices: np.ndarray, rows: int, n_shards: int) -> list[int]:
    """Shards of so many rows in which `indices` stand."""
    from scalable_gpe.loops import sparse

    block, of_rows, shards = _known_shards.get(id(indices), (lambda: None, 0, []))
    if block() is indices and of_rows == rows:
        return shards
    flags = np.zeros(n_shards, np.bool_)
    sparse.touched(indices, rows, flags)
    shards = np.flatnonzero(flags).tolist()
    if len(_known_shards) >= _MOST_BLOCKS:
        _known_shards.clear()
    _known_shards[id(indices)] = weakref.ref(indices), rows, shards
    return shards


class Panels:
    """The panels of one iteration, and their saving, so that a killed run loses little.

    ``offer`` saves when `seconds`, or a tenth of the time worked, have passed since the last time, whichever is longer:
    in two slots, written in turn, so that one of them is always whole. Panels in memory are copied into the slot, those
    in the store are only named there. Without a store, or without `seconds`, nothing is saved.
    """

    def __init__(self, context: Context, name: str, seconds: float | None = None) -> None:
        cut = current_block_sizes().save_seconds
        self._context, self._name = context, name
        self._seconds = seconds if cut is None or seconds is None else cut
        self._count, self._made, self.n_live = 0, 0, 0
        self._pinned: dict[int, list[str]] = {0: [], 1: []}
        self._late: list[ScratchTable] = []
        self._spare: list[ScratchTable] = []
        self._began = self._last = time.monotonic()

    def new(self, shape: tuple[int, ...], dtype: Any) -> Panel:
        """Make a panel with any values."""
        if not self._context.workers.remote:
            return MemoryPanel(np.empty(shape, dtype))
        self._made += 1
        self.n_live += 1
        name = f"{self._name}/panels/{self._context.token}-{self._made}"
        rows, store = self._context.block_rows(shape[0]), cast("ZarrStore", self._context.store)
        table = store.scratch_table(name, shape, dtype, rows)
        for spare in self._spare:
            if (spare.shape, spare.dtype) == (table.shape, table.dtype):
                self._spare.remove(spare)
                table.spare = spare.name
                break
        return StoredPanel(table, self)

    def of(self, values: np.ndarray) -> Panel:
        """Make a panel of values that this process has."""
        if not self._context.workers.remote:
            return MemoryPanel(values)
        panel = self.new(values.shape, values.dtype)
        panel.put(0, values)
        return panel

    def retire(self, panel: StoredPanel) -> None:
        """Let new panels take the files of a stored one, now or as soon as no saved state needs it."""
        self.n_live -= 1
        table = cast(ScratchTable, panel.table)
        if table.spare is not None:
            self._context.store.remove(table.spare)  # of which a folder is left
        self._late.append(table)
        kept = {name for names in self._pinned.values() for name in names}
        self._spare += [one for one in self._late if one.name not in kept]
        self._late = [one for one in self._late if one.name in kept]

    def load(self) -> tuple[dict[str, Any], dict[str, Panel]] | None:
        """The latest state: its facts and its panels."""
        if not self._context.store.stored:
            return None
        whole = [
            (metadata["count"], slot, metadata) for slot in (0, 1) if (metadata := self._metadata(slot)) is not None
        ]
        for count, slot, metadata in sorted(whole, reverse=True, key=lambda one: one[0]):
            panels = self._panels(metadata["panels"])
            if panels is not None:
                self._count = count
                self._pinned[slot] = [one["name"] for one in metadata["panels"].values()]
                return metadata["state"], panels
        return None

    def offer(self, state: dict[str, Any], panels: dict[str, Panel]) -> None:
        """Save this state if it is time."""
        now = time.monotonic()
        if self._seconds is None or not self._context.store.stored:
            return
        if now - self._last < max(self._seconds, 0.1 * (now - self._began)):
            return
        self._count += 1
        number = self._count % 2
        slot = f"{self._name}/{number}"
        self._context.store.remove(slot)
        names = {name: self._saved(panel, f"{slot}/{name}") for name, panel in panels.items()}
        self._context.store.commit(slot, {"count": self._count, "state": state, "panels": names})
        self._pinned[number] = [one["name"] for one in names.values()]
        self._last = time.monotonic()

    def _saved(self, panel: Panel, place: str) -> dict[str, Any]:
        """How to find a panel again; one that is not in the store yet is copied there."""
        if isinstance(panel, StoredPanel):
            table = cast(ScratchTable, panel.table)
            table.store.flush(table.name)
            return table.describe()
        copy = self._context.store.table(place, panel.shape, panel.dtype)
        for start, stop in ranges(panel.shape[0], copy.shard_rows):
            copy.write(start, panel.rows(start, stop))
        return {"name": place}

    def clear(self) -> None:
        """Forget panels and states: the iteration is over."""
        if self._context.store.stored:
            self._context.store.remove(self._name)

    def _metadata(self, slot: int) -> dict[str, Any] | None:
        try:
            return self._context.store.metadata(f"{self._name}/{slot}")
        except DamageError:
            return None

    def _panels(self, names: dict[str, Any]) -> dict[str, Panel] | None:
        store = cast("ZarrStore", self._context.store)
        try:
            tables = {
                name: store.scratch_table(**one) if "shape" in one else store.open_table(one["name"])
                for name, one in names.items()
            }
            return {name: self.of(table.read(0, table.shape[0])) for name, table in tables.items()}
        except DamageError:
            return None


def pieces_of(context: Context, n_rows: int) -> list[tuple[int, int]]:
    """Ranges of rows for work that needs no block of K: whole chunks of sums, and whole shards of panels."""
    step = max(CHUNK, context.block_rows(n_rows) // CHUNK * CHUNK)
    together = min(8, context.workers.share_of(-(-n_rows // step))) if context.workers.remote else 1
    return ranges(n_rows, together * step)


def add_up(context: Context, n_rows: int, task: Callable[[int, int], np.ndarray]) -> np.ndarray:
    """Sum over rows, the only way rows are summed: partial sums of fixed chunks of rows, added in order.

    ``task(start, stop)`` does the work of some rows and gives their partial sums, as `chunk_sums` makes them.
    """

    def sums(piece: tuple[int, int]) -> np.ndarray:
        return task(*piece)

    sums.__name__ = task.__name__  # what a dashboard shows
    partial = context.workers.map(sums, pieces_of(context, n_rows), count=False)
    total = np.zeros(partial[0].shape[1])
    for part in partial:
        for row in part:
            total += row
    return total


def chunk_sums(left: np.ndarray, right: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """``sum left * right / weight`` of equal columns, for each chunk of some rows."""
    from scalable_gpe.loops import sparse

    out = np.empty((-(-len(left) // CHUNK), left.shape[1]))
    for number, (start, stop) in enumerate(ranges(len(left), CHUNK)):
        sparse.weighted_products(left[start:stop], right[start:stop], weight[start:stop], out[number])
    return out
