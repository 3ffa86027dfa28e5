"""Settings of glibc for freed memory, which determine the resident memory of a process."""

import contextlib
import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # of malloc.h
_SMALL_LIMIT = 10**9
_LIBRARY = "libc.so.6"


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
