"""Settings of glibc for freed memory, which determine the resident memory of a process."""

import contextlib
import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of malloc.h


def release_freed_memory() -> None:
    """Return freed memory to the system: glibc keeps it, and it would count against the limit."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def map_large_arrays() -> None:
    """Make glibc map large arrays separately, so that they return to the system when they are freed.

    By default glibc raises its limit for such arrays up to 32 MB, and keeps the holes between smaller ones: a third of
    the memory of a search.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").mallopt(_MMAP_THRESHOLD, 4 * 2**20)


def keep_freed_memory() -> None:
    """Make glibc keep up to 32 MB of freed memory: dask's nanny makes it return everything at once."""
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(_TRIM_THRESHOLD, 32 * 2**20)
        libc.mallopt(_MMAP_THRESHOLD, 32 * 2**20)
