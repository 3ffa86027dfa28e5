"""State and settings of this process: opened results, BLAS threads, the allocator, versions of libraries."""

import contextlib
import ctypes
import os
import platform
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any
from weakref import WeakValueDictionary

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # of malloc.h
_SMALL_LIMIT = 10**9
_LIBRARY = "libc.so.6"
_PACKAGES = ("scalable_gpe", "numpy", "scipy", "zarr", "numba", "pynndescent", "scikit-learn", "dask")
_MOST_OPENED = 16


def release_freed_memory() -> None:
    """Return freed memory to the system: glibc keeps it, and it would count against the limit."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(_LIBRARY).malloc_trim(0)


def is_controlled() -> bool:
    """Whether freed memory can be returned to the system: glibc alone can be told."""
    with contextlib.suppress(OSError):
        return hasattr(ctypes.CDLL(_LIBRARY), "malloc_trim")
    return False


def kept_by_allocator(large: int) -> int:
    """Bytes of freed memory that glibc keeps after `map_large_arrays`."""
    return 2 * large


def map_large_arrays(large: int) -> None:
    """Make glibc map arrays of `large` bytes separately, so that they return to the system when they are freed.

    By default glibc raises this limit up to 32 MB, and keeps the holes between smaller arrays: a third of the memory of
    a search. Once the limit is set, glibc keeps only 128 kB at the end of its memory, unless it is told to keep more.
    """
    _set_thresholds(large, kept_by_allocator(large))


def share_freed_memory(limit: int | None) -> None:
    """Make new threads use the memory that others have freed, if the limit is small.

    By default glibc keeps it apart, so that threads never wait for each other: 50 MB and more in a run.
    """
    if limit is None or limit >= _SMALL_LIMIT:
        return
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(_LIBRARY).mallopt(_ARENA_MAX, 1)


def keep_freed_memory() -> None:
    """Make glibc keep up to 32 MB of freed memory: dask's nanny makes it return everything at once."""
    _set_thresholds(32 * 2**20, 32 * 2**20)


def _set_thresholds(large: int, kept: int) -> None:
    """Set the bytes of the smallest array that is mapped separately, and of the freed memory that is kept."""
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(_LIBRARY)
        libc.mallopt(_TRIM_THRESHOLD, kept)
        libc.mallopt(_MMAP_THRESHOLD, large)


def versions() -> dict[str, str]:
    """Versions of Python and of the libraries that affect results, or "unknown"."""
    return {"python": platform.python_version(), **{name: _version(name) for name in _PACKAGES}}


@cache  # looking one up takes 10 ms
def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # a vendored or frozen copy has no metadata
        return "unknown"


class ProcessState:
    """Opened results, and whether this process is a worker of a cluster, or calls one.

    `keeps_panels`: a worker keeps what its tasks write, because it is likely to read it next. `calls`: this process is
    the user's own, even if workers are threads of it; what lasts is not set there.
    """

    def __init__(self) -> None:
        self.keeps_panels = self.calls = False
        self._opened: OrderedDict[Hashable, Any] = OrderedDict()
        self._opening = threading.RLock()
        self._turns: WeakValueDictionary[str, threading.BoundedSemaphore] = WeakValueDictionary()  # while used
        self._blas_limits: list[Any] = []
        self._limiting = threading.Lock()

    def once(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Return what `make` returns, called once and shared by all threads; the latest few results are kept."""
        with self._opening:
            if key not in self._opened:
                made = make()
                while len(self._opened) >= _MOST_OPENED:
                    self._opened.popitem(last=False)
                self._opened[key] = made
            self._opened.move_to_end(key)
            return self._opened[key]

    @contextmanager
    def turn(self, name: str, at_once: int) -> Iterator[None]:
        """Wait until fewer than `at_once` threads of this process are inside such a block of that name."""
        with self._opening:
            turns = self._turns.setdefault(name, threading.BoundedSemaphore(at_once))
        with turns:
            yield

    @contextmanager
    def one_blas_thread(self) -> Iterator[None]:
        """Limit BLAS to one thread, until the last of such blocks ends in any thread.

        The limit is one of the whole process: blocks that overlap would each restore what another one has set. So the
        first of them to end undoes what the last one has set, which is nothing.
        """
        import scipy.linalg  # noqa: F401  (its libraries must be loaded to be limited)
        from threadpoolctl import threadpool_limits

        with self._limiting:
            self._blas_limits.append(threadpool_limits(limits=1, user_api="blas"))
        try:
            yield
        finally:
            with self._limiting:
                self._blas_limits.pop().restore_original_limits()

    def become_worker(self) -> None:
        """Prepare a worker once: BLAS in one thread per task, freed memory kept for the next task, panels kept."""
        with self._opening:
            if self.keeps_panels or self.calls:
                self.keeps_panels = True
                return
            import scipy.linalg  # noqa: F401  (its libraries must be loaded to be limited)
            from threadpoolctl import threadpool_limits

            os.environ.setdefault("OMP_NUM_THREADS", "1")
            threadpool_limits(limits=1)
            keep_freed_memory()
            self.keeps_panels = True

    def forget(self) -> None:
        """Free everything that is kept between tasks."""
        with self._opening:
            self._opened.clear()
        release_freed_memory()


process = ProcessState()
