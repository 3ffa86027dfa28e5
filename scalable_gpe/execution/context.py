"""Where one computation runs: its home, its workers, its memory."""

import contextlib
import ctypes
import itertools
import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from scalable_gpe.execution.workers import Workers, current_block_sizes
from scalable_gpe.storage.protocol import ArrayStore, MemoryStore, block_rows

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of malloc.h
SAFETY = 32 * 2**20  # bytes left to the interpreter's own comings and goings


def release_freed_memory() -> None:
    """Hand memory that was freed back to the system: glibc keeps it, and it would count against the limit."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def map_large_arrays() -> None:
    """Let glibc map large arrays on their own, so that they go back when they are freed.

    By itself it maps fewer and fewer of them, up to 32 MB, and keeps the holes between others: a third of the memory of
    a search.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").mallopt(_MMAP_THRESHOLD, 4 * 2**20)


def keep_freed_memory() -> None:
    """Let glibc keep up to 32 MB that were freed: the nanny of dask makes it give back everything at once."""
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(_TRIM_THRESHOLD, 32 * 2**20)
        libc.mallopt(_MMAP_THRESHOLD, 32 * 2**20)


@dataclass
class Context:
    """Home, workers and memory of a computation; every noun of the library holds one.

    `reserved` are the bytes that the panels of the sketch will want; `token` names what only this run may use.
    """

    store: ArrayStore = field(default_factory=MemoryStore)
    workers: Workers = field(default_factory=Workers)
    memory_limit: int | None = None
    reserved: int = 0
    sweeps: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=itertools.count, repr=False)
    token: str = field(default_factory=lambda: uuid.uuid4().hex[:8])

    def __reduce__(self) -> Any:
        # what another process gets of a run: where its results are, not its threads and counts
        return _elsewhere, (self.store, self.workers, self.memory_limit, self.reserved, self.token)

    def block_rows(self, n_rows: int) -> int:
        """Rows of a block for so many points."""
        return current_block_sizes().block_rows or block_rows(n_rows)

    def spare_bytes(self) -> int:
        """Memory that a stage may still take: what the limit, or the machine, leaves beside this process."""
        import psutil

        release_freed_memory()
        if self.memory_limit is None:
            return int(0.6 * psutil.virtual_memory().available)
        safety = max(SAFETY, self.memory_limit // 20)
        return max(0, self.memory_limit - psutil.Process().memory_info().rss - safety)

    def resident_bytes(self) -> int:
        """Memory for blocks of K that stay between sweeps: what is left beside the panels."""
        cut = current_block_sizes().resident_bytes
        if cut is not None:
            return cut
        return max(0, self.spare_bytes() - self.reserved) if self.store.stored else 0

    def blocks_ahead(self) -> int:
        """How far a sweep reads ahead in a store: each thread works on a block while its next one is read."""
        return self.workers.n_jobs if self.store.stored and not self.workers.remote else 0

    def scratch(self) -> str:
        """A name for what is needed only for a while; nothing of it outlives the run."""
        return f"work/{self.token}-{next(self._numbers)}"

    def count_sweep(self, kind: str) -> None:
        """Count one pass over all blocks of K."""
        self.sweeps[kind] = self.sweeps.get(kind, 0) + 1


def _elsewhere(store: ArrayStore, workers: Workers, memory_limit: int | None, reserved: int, token: str) -> Context:
    return Context(store, workers, memory_limit, reserved, token=token)


class Named:
    """A result that other processes open by its name in the store, once each, instead of being sent it."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        context: Context = self.context  # type: ignore[attr-defined]
        if context.workers.remote and context.store.stored:
            return _open_named, (type(self), context, self.name, self._before())  # type: ignore[attr-defined]
        return super().__reduce_ex__(protocol)

    def _before(self) -> Any:
        """The result that this one was made from."""
        return None


def _open_named(kind: Any, context: Context, name: str, before: Any) -> Any:
    return once((context.token, name), lambda: kind._open(context, name, before))


_opened: OrderedDict[Any, Any] = OrderedDict()
_opening = threading.RLock()
_MOST_OPENED = 16


def once(key: Any, make: Callable[[], Any]) -> Any:
    """What `make` gives, made once in a process and shared by its threads; the latest few are kept."""
    with _opening:
        if key not in _opened:
            made = make()
            while len(_opened) >= _MOST_OPENED:
                _opened.popitem(last=False)
            _opened[key] = made
        _opened.move_to_end(key)
        return _opened[key]


def forget() -> None:
    """Forget what `once` has kept."""
    with _opening:
        _opened.clear()


def open_store(store: Any, storage_options: dict[str, Any] | None = None, *, read_only: bool = False) -> ArrayStore:
    """Memory for None, else the zarr store at a path or URL."""
    if store is None:
        return MemoryStore()
    from scalable_gpe.storage.zarr_store import ZarrStore

    return ZarrStore(store, read_only=read_only, storage_options=storage_options)


@contextlib.contextmanager
def locked(store: Any) -> Iterator[None]:
    """Keep other processes away from a store while a computation writes to it."""
    if not store.stored:
        yield
        return
    store.lock()
    try:
        store.sweep()
        store.remove("work")
        yield
    finally:
        store.remove("work")
        store.unlock()
