"""Memory and threads that a run may use."""

import os
import tempfile
from dataclasses import dataclass
from typing import Any

from scalable_gpe import checks
from scalable_gpe.execution.workers import Workers
from scalable_gpe.storage.backends import is_url

WORKER_SHARE = 0.7  # of a worker's memory: above it dask spills to disk, at 0.95 it stops the worker
_UNIT_FORGOTTEN = 10**6  # no run fits in so few bytes


@dataclass(frozen=True)
class Resources:
    """Memory and threads that a run may use, in bytes of a process."""

    limit: int | None = None  # largest resident memory; None: a share of what is available
    n_jobs: int = 1
    persistent: bool = False  # results are in a store on disk
    remote: bool = False  # other processes run the loops
    resident_input: bool = False  # X is an array in memory
    resident: int = 0  # memory of this process now
    available: int = 0  # free bytes of the machine
    store_in_memory: bool = False  # the files of the store are on a tmpfs, which is memory
    files_in_memory: bool = False  # so are those of mapped arrays
    given: bool = False  # the limit is that of the user, not of dask's workers
    compiled: bool = False  # the loops are known to be compiled
    worker_memory: int | None = None  # that the smallest worker of a cluster may hold


def worker_limit(memory: int | None) -> int | None:
    """The limit of a run on workers that may hold so many bytes, if none is given."""
    return None if memory is None else int(WORKER_SHARE * memory)


def measure_resources(limit: int | None, workers: Workers, store: Any, *, resident_input: bool = False) -> Resources:
    """Measure what this process and this machine have now; `limit` and `store` are what the user gave."""
    import psutil

    from scalable_gpe.loops import random
    from scalable_gpe.loops.compiled import is_compiled

    far, memory = workers.remote or is_url(store), workers.worker_memory()
    return Resources(
        limit=limit or worker_limit(memory),
        worker_memory=memory,
        given=limit is not None,
        n_jobs=workers.threads_each,
        persistent=store is not None,
        store_in_memory=store is not None and not is_url(store) and _is_in_memory(store),
        files_in_memory=store is not None and _is_in_memory(tempfile.gettempdir() if far else store),
        remote=workers.remote,
        compiled=not workers.remote and is_compiled(random.fill_gaussian),
        resident_input=resident_input,
        resident=0 if workers.remote else psutil.Process().memory_info().rss,
        available=psutil.virtual_memory().available,
    )


def _is_in_memory(folder: Any) -> bool:
    """Whether the files of a folder are on a tmpfs."""
    import psutil

    path = os.path.realpath(folder)
    mounts = [mount for mount in psutil.disk_partitions(all=True) if _is_below(path, mount.mountpoint)]
    # of two at one place the later one is seen
    return bool(mounts) and max(reversed(mounts), key=lambda mount: len(mount.mountpoint)).fstype in ("tmpfs", "ramfs")


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def parse_bytes(value: Any) -> int | None:
    """Bytes of a number or a text such as "2GB" (2e9) or "2GiB" (2**31).

    Examples
    --------
    >>> parse_bytes("1.5GB"), parse_bytes("512 MiB"), parse_bytes(None)
    (1500000000, 536870912, None)
    """
    if value is None or not isinstance(value, str):
        return None if value is None else int(checks.check_positive(value, "memory_limit"))
    from dask.utils import parse_bytes as parse

    try:
        number = int(parse(value)) if any(letter.isdigit() for letter in value) else 0
    except ValueError:
        number = 0
    if number <= 0:
        raise ValueError(f"memory_limit must be bytes or a text such as '2GB'; got {value!r}.")
    if value.strip() == str(number) and number < _UNIT_FORGOTTEN:
        raise ValueError(f"memory_limit={number} is {number} bytes; did you mean {number}MB?")
    return number
