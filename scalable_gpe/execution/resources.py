"""What a run needs memory for (`ProblemSize`), and the memory and threads that it may use (`Resources`)."""

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scalable_gpe import checks
from scalable_gpe.checks import ALL, Power
from scalable_gpe.execution.workers import Workers
from scalable_gpe.storage.backends import is_url
from scalable_gpe.storage.blocks import block_rows

SMALL_PART_BYTES, SMALL_PART_ROWS = 256 * 2**20, 2**18  # of the smallest parts, where memory is short, and on a cluster
TREE_FEATURES, TREE_ROWS = 8, 2**24  # up to which points are searched by a k-d tree, exactly
_TREE_ROW_BYTES = 25  # nodes and row numbers of a k-d tree, as measured
_TREE_TASKS, _TREE_ENTRY = 48 * 2**20, 64  # lists that are on their way from a tree to the store: most, and of an entry
WIDE = 128  # features beyond which rows are searched by their projection and in bytes
LEAST_LENGTH = 20  # of the lists of a search: shorter ones find fewer neighbours
_UNION = 1.6  # entries of K per listed neighbour, diagonal included, as measured
SOLVER_PANELS = 4  # of a solution: the right side, two iterates, and a residual
_AGGREGATED = 20  # bytes per row of aggregates and the top eigenvector
_COARSE_ENTRY = 40  # bytes per entry of the coarse matrix while its levels are made
_MANY_ROWS = 2**20  # from which the coarse level is smaller
WORKER_SHARE = 0.7  # of a worker's memory: above it dask spills to disk, at 0.95 it stops the worker
_UNIT_FORGOTTEN = 10**6  # no run fits in so few bytes


def coarse_share(n_rows: int) -> float:
    """Entries of the coarse matrix of the solver for each entry of K, at most."""
    return 0.12 if n_rows <= _MANY_ROWS else 0.03


@dataclass(frozen=True)
class ProblemSize:
    """The numbers that determine the memory of a run."""

    n_rows: int
    n_features: int = 0
    n_neighbors: int = 16
    n_components: int = 32
    n_powers: int = 1
    itemsize: int = 4
    weighted: bool = False
    n_live: int = 3

    @property
    def nnz(self) -> int:
        """Approximate number of entries of K."""
        return int(self.n_rows * (1 + _UNION * self.n_neighbors))

    @property
    def vector_bytes(self) -> int:
        """Bytes of the vectors of all rows: row numbers, degrees, scales, weights, temporaries; aggregates."""
        return ((88 if self.weighted else 72) + (_AGGREGATED if self.solves else 0)) * self.n_rows

    @property
    def solves(self) -> bool:
        """Whether all scales are asked for."""
        return self.n_live >= SOLVER_PANELS

    def coarse_bytes(self, n_columns: int) -> int:
        """Bytes of the coarse level, which is always in memory: its matrix, and two panels."""
        if not self.solves:
            return 0
        unknowns = self.n_rows // (15 if self.n_rows > _MANY_ROWS else 5)
        return int(_COARSE_ENTRY * coarse_share(self.n_rows) * self.nnz) + 16 * n_columns * unknowns

    @property
    def result_bytes(self) -> int:
        """Bytes of the columns of the sketch and of the embeddings."""
        return self.n_rows * self.n_powers * self.n_components * (self.itemsize + 4)

    @property
    def block_bytes(self) -> int:
        """Bytes of one block of K."""
        return int(8 * min(block_rows(self.n_rows), self.n_rows) * (1 + _UNION * self.n_neighbors))

    def part_bytes(self, n_parts: int) -> int:
        """Bytes of the search of one of so many parts, or of a k-d tree, which has no parts."""
        if self._has_tree:
            return _TREE_ROW_BYTES * self.n_rows + min(_TREE_TASKS, _TREE_ENTRY * self.n_rows * self.n_neighbors)
        rows = max(-(-self.n_rows // n_parts), min(self.n_rows, self._small_part_rows))
        return rows * part_row_bytes(self.n_features, self.n_neighbors)

    @property
    def _has_tree(self) -> bool:
        """Whether rows are searched by a k-d tree."""
        return 0 < self.n_features <= TREE_FEATURES and self.n_rows <= TREE_ROWS

    @property
    def most_parts(self) -> int:
        """Number of parts of a search that has as little memory as it can."""
        rows = self._small_part_rows
        # two parts would be small, and a second round has to join them
        return 1 if self._has_tree or 2 * self.n_rows <= 3 * rows else -(-self.n_rows // rows)

    @property
    def _small_part_rows(self) -> int:
        return min(SMALL_PART_ROWS, SMALL_PART_BYTES // part_row_bytes(self.n_features, self.n_neighbors))

    @property
    def disk_bytes(self) -> int:
        """Largest number of bytes that a store holds during a run.

        What stays: rows, lists, edges with distances and weights, sketch columns, embeddings. Before, a search holds
        the rows twice and the lists of two rounds; the edges are sorted through files; a sketch saves two states, which
        are more than an embedding before its rotation.
        """
        rows, lists = 4 * self.n_rows * self.n_features, 8 * self.n_rows * self.n_neighbors
        searched, sorted_edges = 2 * rows + 2 * lists, rows + 2.5 * lists + 8 * self.nnz
        saved = 2 * self.n_rows * self.n_components * self.itemsize * (2 + self.n_powers)
        swept = rows + lists + 12 * self.nnz + self.result_bytes + saved
        return int(1.1 * (max(searched, sorted_edges, swept) + 72 * self.n_rows))


def live_panels(powers: Sequence[Power]) -> int:
    """Panels that are read and written at the same time: two vectors and a sum per power, or those of a solution."""
    n_single = sum(isinstance(power, int) for power in powers)
    return max(SOLVER_PANELS if ALL in powers else 0, 2 + n_single if n_single else 0)


def list_length(n_neighbors: int) -> int:
    """Entries of the list of a row while a part is searched."""
    return max(n_neighbors, LEAST_LENGTH)


def longest_list(n_neighbors: int) -> int:
    """Entries of the list of a row in rounds that are made because recall is too low."""
    return 7 * list_length(n_neighbors) // 5


def most_sampled(n_neighbors: int) -> int:
    """Entries of each of the two samples of a row in a step of the descent."""
    return min(6 * list_length(n_neighbors) // 5, 48)


def part_row_bytes(n_features: int, n_neighbors: int) -> int:
    """Bytes that the search of a part needs per row: the row, its list, two samples, and a few numbers."""
    lists = 8 * (longest_list(n_neighbors) + most_sampled(n_neighbors))
    in_bytes = n_features if n_features > WIDE else 0
    return 4 * n_features + in_bytes + lists + 40


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
