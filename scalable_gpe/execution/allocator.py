"""What glibc does with memory that was freed: settings that the resident memory of a process depends on."""

import contextlib
import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of malloc.h


def release_freed_memory() -> None:
    """Return freed memory to the system: glibc keeps it, and it would count against the limit."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def map_large_arrays() -> None:
    """Let glibc map large arrays on their own, so that they return to the system when they are freed.

    By default it maps fewer and fewer of them, up to 32 MB, and keeps the holes between others: a third of the memory
    of a search.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").mallopt(_MMAP_THRESHOLD, 4 * 2**20)


def keep_freed_memory() -> None:
    """Let glibc keep up to 32 MB that were freed: dask's nanny makes it return everything at once."""
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(_TRIM_THRESHOLD, 32 * 2**20)
        libc.mallopt(_MMAP_THRESHOLD, 32 * 2**20)
