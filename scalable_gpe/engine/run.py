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

from scalable_gpe.engine.blocks import Workers, current_cuts
from scalable_gpe.engine.tables import Home, Memory, block_rows

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of malloc.h
SAFETY = 32 * 2**20  # bytes left to the interpreter's own comings and goings


def give_back() -> None:
    """Hand memory that was freed back to the system: glibc keeps it, and it would count against the limit."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def hand_back_arrays() -> None:
    """Let glibc map large arrays on their own, so that they go back when they are freed.

    By itself it maps fewer and fewer of them, up to 32 MB, and keeps the holes between others: a third of the memory of
    a search.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").mallopt(_MMAP_THRESHOLD, 4 * 2**20)


def keep_memory() -> None:
    """Let glibc keep up to 32 MB that were freed: the nanny of dask makes it give back everything at once."""
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(_TRIM_THRESHOLD, 32 * 2**20)
        libc.mallopt(_MMAP_THRESHOLD, 32 * 2**20)


@dataclass
class Run:
    """Home, workers and memory of a computation; every noun of the library holds one.

    `reserved` are the bytes that the panels of the sketch will want; `token` names what only this run may use.
    """

    home: Home = field(default_factory=Memory)
    workers: Workers = field(default_factory=Workers)
    memory_limit: int | None = None
    reserved: int = 0
    sweeps: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=itertools.count, repr=False)
    token: str = field(default_factory=lambda: uuid.uuid4().hex[:8])

    def __reduce__(self) -> Any:
        # what another process gets of a run: where its results are, not its threads and counts
        return _elsewhere, (self.home, self.workers, self.memory_limit, self.reserved, self.token)

    def block_rows(self, n_rows: int) -> int:
        """Rows of a block for so many points."""
        return current_cuts().block_rows or block_rows(n_rows)

    def spare_bytes(self) -> int:
        """Memory that a stage may still take: what the limit, or the machine, leaves beside this process."""
        import psutil

        give_back()
        if self.memory_limit is None:
            return int(0.6 * psutil.virtual_memory().available)
        safety = max(SAFETY, self.memory_limit // 20)
        return max(0, self.memory_limit - psutil.Process().memory_info().rss - safety)

    def resident_bytes(self) -> int:
        """Memory for blocks of K that stay between sweeps: what is left beside the panels."""
        cut = current_cuts().resident_bytes
        if cut is not None:
            return cut
        return max(0, self.spare_bytes() - self.reserved) if self.home.stored else 0

    def blocks_ahead(self) -> int:
        """How far a sweep reads ahead in a store: each thread works on a block while its next one is read."""
        return self.workers.n_jobs if self.home.stored and not self.workers.remote else 0

    def scratch(self) -> str:
        """A name for what is needed only for a while; nothing of it outlives the run."""
        return f"work/{self.token}-{next(self._numbers)}"

    def count_sweep(self, kind: str) -> None:
        """Count one pass over all blocks of K."""
        self.sweeps[kind] = self.sweeps.get(kind, 0) + 1


def _elsewhere(home: Home, workers: Workers, memory_limit: int | None, reserved: int, token: str) -> Run:
    return Run(home, workers, memory_limit, reserved, token=token)


class Named:
    """A result that other processes open by its name in the store, once each, instead of being sent it."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        run: Run = self.run  # type: ignore[attr-defined]
        if run.workers.remote and run.home.stored:
            return _open_named, (type(self), run, self.name, self._before())  # type: ignore[attr-defined]
        return super().__reduce_ex__(protocol)

    def _before(self) -> Any:
        """The result that this one was made from."""
        return None


def _open_named(kind: Any, run: Run, name: str, before: Any) -> Any:
    return once((run.token, name), lambda: kind._open(run, name, before))


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


def open_home(store: Any, storage_options: dict[str, Any] | None = None, *, read_only: bool = False) -> Home:
    """Memory for None, else the zarr store at a path or URL."""
    if store is None:
        return Memory()
    from scalable_gpe.engine.store import Store

    return Store(store, read_only=read_only, storage_options=storage_options)


@contextlib.contextmanager
def locked(home: Any) -> Iterator[None]:
    """Keep other processes away from a store while a computation writes to it."""
    if not home.stored:
        yield
        return
    home.lock()
    try:
        home.sweep()
        home.remove("work")
        yield
    finally:
        home.remove("work")
        home.unlock()
