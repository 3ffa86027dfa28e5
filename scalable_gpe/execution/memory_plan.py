"""The memory plan of a run: a pure function of problem size, limit and threads.

It is made before the run and passed to all stages. Every size that depends on memory (columns of a panel, blocks of K
that stay resident, parts of the search at once, ...) is a method here, and `estimate` prints the same plan.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from scalable_gpe.errors import MemoryLimitError
from scalable_gpe.execution.process import kept_by_allocator
from scalable_gpe.execution.resources import WORKER_SHARE, ProblemSize, Resources
from scalable_gpe.storage.blocks import block_rows
from scalable_gpe.storage.mapped import MappedBytes

BASE = 300 * 10**6  # interpreter, numpy, scipy, zarr, numba, and its compiler while loops are compiled
_COMPILED_BASE = 220 * 10**6  # the same where all loops are on disk, and no reader of tables is imported
_WORKER = 60 * 10**6  # what a worker of a cluster needs beside
_COMPILING = 60 * 10**6  # what a process still needs for them after most imports
_SAFETY = 32 * 2**20  # bytes for temporary objects of the interpreter; at least 5 % of the limit
_FREE_SHARE = 0.6  # of the free memory of the machine, where the user gave no limit
PART_BYTES = 4 * 10**9  # rows and lists of one part of a search, at most: more parts take longer and find less
_ROOM_STEP = 2**28  # bytes that this process holds count in steps: then the parts are the same in most processes
_BLOCKS_TOUCHED = 17  # blocks whose rows a block of K names, itself included, as measured in four dimensions
_FREED = 64 * 2**20  # freed memory of tasks beside mapped arrays that the allocator keeps
_LEAST_LARGE, _MOST_LARGE = 4 * 2**20, 32 * 2**20  # bytes of arrays that return to the system when they are freed
_LEAST_MAPPED = 16 * 2**20  # pages of mapped arrays that a run holds in any case
_MODE_COLUMNS = 8 * 13  # columns in double precision of the search for slow modes: eight of each panel
_LEAST_ENTRIES = 2**20  # smallest number of entries of K that an export holds at once


@dataclass(frozen=True)
class BlockSizes:
    """Sizes that override those from the number of rows and the memory plan; None overrides nothing."""

    block_rows: int | None = None
    panel_columns: int | None = None
    resident_bytes: int | None = None
    save_seconds: float | None = None
    maps_arrays: bool | None = None
    n_parts: int | None = None


_DEFAULT = BlockSizes()
_sizes: ContextVar[BlockSizes] = ContextVar("block_sizes", default=_DEFAULT)


@contextmanager
def block_sizes(**changes: Any) -> Iterator[None]:
    """Use other sizes inside the block."""
    token = _sizes.set(replace(_sizes.get(), **changes))
    try:
        yield
    finally:
        _sizes.reset(token)


def current_block_sizes() -> BlockSizes:
    """The sizes in force."""
    return _sizes.get()


@dataclass(frozen=True)
class MemoryPlan:
    """Sizes of a run, as functions of its problem size and its resources."""

    size: ProblemSize
    resources: Resources

    @property
    def workspace(self) -> int:
        """Bytes that the stages may use beyond what the process needs to run at all."""
        limit = self.resources.limit
        if limit is None:
            return max(0, int(_FREE_SHARE * self.resources.available) - self._store)
        return max(0, limit - max(_SAFETY, limit // 20) - self._base - self._store)

    @property
    def _store(self) -> int:
        """Bytes of a store whose files are in memory."""
        return self.size.disk_bytes if self.resources.store_in_memory else 0

    @property
    def ceiling(self) -> int | None:
        """Bytes that the process may hold in all; None where the user gave no limit."""
        limit = self.resources.limit
        return None if limit is None else limit - max(_SAFETY, limit // 16) - self._store

    @property
    def _base(self) -> int:
        """Bytes that the process needs to run at all, and those that it already holds."""
        return max(self._libraries, self.resources.resident + _COMPILING if self.resources.resident else 0)

    @property
    def _libraries(self) -> int:
        """Bytes that a process needs to run at all."""
        is_small = self.resources.compiled and self.resources.resident + _COMPILING <= _COMPILED_BASE
        return (_COMPILED_BASE if is_small else BASE) + (_WORKER if self.resources.remote else 0)

    @cached_property
    def maps_arrays(self) -> bool:
        """Whether arrays with an entry per row, and K, are mapped files: they do not fit beside each other."""
        fixed = current_block_sizes().maps_arrays
        if not self.resources.persistent:
            return False
        if fixed is not None:
            return fixed
        return not self.resources.files_in_memory and self.workspace < self._unmapped

    @property
    def _unmapped(self) -> int:
        """Bytes of a run whose arrays are all in memory."""
        size = self.size
        columns = size.n_components * self._column(size.n_rows, size.n_live, size.itemsize)
        if size.solves:
            columns = max(columns, _MODE_COLUMNS * self._column(size.n_rows, 1, 8))
        sweep = int(1.06 * columns) + 8 * size.nnz + self._blocks_in_flight(size.block_bytes)
        return size.vector_bytes + max(sweep + size.coarse_bytes(size.n_components), self.part_bytes)

    def large_array(self, *, searching: bool) -> int:
        """Bytes from which an array returns to the system when it is freed; the allocator keeps smaller ones.

        The system clears each page that it gives, which takes time; but what the allocator keeps is full of holes.
        """
        if not self.maps_arrays:
            needed = self._unmapped
        elif searching:
            needed = self._beside_maps + _FREED
        else:
            needed = sum(self.mapped_bytes()) + _FREED // 2
        least = _LEAST_LARGE if searching else _FREED // 4
        return max(least, min(_MOST_LARGE, (self.workspace - needed) // 4))

    def mapped_bytes(self) -> MappedBytes:
        """Bytes of mapped arrays that may be in memory: what is left beside a part of the search, or blocks of K."""
        kept = kept_by_allocator(self.large_array(searching=True)) - kept_by_allocator(_LEAST_LARGE)
        left = self.workspace - self._beside_maps - _FREED - kept
        if self.resources.remote:  # the other half is for blocks of K
            left //= 2
        # pages are dropped a little after they were counted
        return MappedBytes(max(_LEAST_MAPPED, left - left // 16), self._beside_sweeps)

    def scratch_bytes(self) -> int:
        """Bytes of files for mapped arrays during a run."""
        size = self.size
        columns = size.n_components * self._column(size.n_rows, size.n_live, size.itemsize)
        kept = 0 if self.resources.remote else 8 * size.nnz
        return kept + size.vector_bytes + columns if self.maps_arrays else 0

    @property
    def _beside_maps(self) -> int:
        """Bytes of the largest tasks beside mapped arrays: a part of the search, or the blocks of a sweep."""
        return max(self.parts_at_once() * self.part_bytes, self._beside_sweeps)

    @property
    def _beside_sweeps(self) -> int:
        """Bytes that the tasks of a sweep use of mapped panels and of K."""
        columns = self._mapped_columns(self.size.n_components, _BLOCKS_TOUCHED)
        return self._touched(columns, _BLOCKS_TOUCHED)

    def _touched(self, n_columns: int, n_blocks: int) -> int:
        """Bytes that the tasks of a sweep use of panels with so many columns, and of K.

        A task reads its own block of K, rows of `n_blocks` blocks of one panel, and its own rows of the others.
        """
        size, n_jobs = self.size, self.resources.n_jobs
        rows = min(block_rows(size.n_rows), size.n_rows)
        read = min(n_jobs * n_blocks * rows, size.n_rows)
        written = n_jobs * (size.n_live - 1) * rows
        panels = (read + written) * n_columns * size.itemsize
        return panels + 2 * n_jobs * size.block_bytes + size.coarse_bytes(n_columns)

    def _mapped_columns(self, wanted: int, n_blocks: int) -> int:
        """Columns of one mapped panel."""
        room = self.workspace - _LEAST_MAPPED
        widths = (wanted, 128, 64, 32, 16, 8, 4, 2)
        return min(wanted, next((width for width in widths if self._touched(width, n_blocks) <= room), 1))

    @property
    def _left(self) -> int:
        """Workspace left after the vectors and, without a store, the graph, K and the results."""
        if self.maps_arrays:
            return max(0, self.workspace - _LEAST_MAPPED)
        size, kept = self.size, self.size.vector_bytes
        if not self.resources.persistent:
            kept += 12 * size.nnz + 8 * size.n_rows * size.n_neighbors + size.result_bytes
        return max(0, self.workspace - kept)

    @property
    def _free(self) -> int:
        """Workspace left beside the blocks of K that stay in memory."""
        kept = 0 if self.maps_arrays else min(self._left, self.resident_bytes(), 8 * self.size.nnz)
        return self._left - kept

    # --- the search ---------------------------------------------------------------------------

    @cached_property
    def n_parts(self) -> int:
        """Number of parts of the search, which shapes its result: one, or twice as many until a part fits the limit.

        On a cluster it is that of the smallest parts, because its tasks share them.
        """
        fixed, most = current_block_sizes().n_parts, self.size.most_parts
        if fixed is not None or self.resources.remote:
            return fixed or most
        n_parts = 1
        while n_parts < most and self.size.part_bytes(n_parts) > self._part_room:
            n_parts *= 2
        return min(n_parts, most)

    @property
    def _part_room(self) -> int:
        """Bytes that a part of the search may take: what the limit leaves beside vectors and lists."""
        size, resources = self.size, self.resources
        if resources.limit is None:
            return PART_BYTES
        held = max(0, resources.resident + _COMPILING - BASE)
        base = BASE + -(-held // _ROOM_STEP) * _ROOM_STEP
        if resources.resident_input:
            base = max(base, BASE + 4 * size.n_rows * size.n_features)
        beside = base + self._store + size.vector_bytes + self._lists + _LEAST_MAPPED + _FREED
        return min(PART_BYTES, resources.limit - max(_SAFETY, resources.limit // 16) - beside)

    @property
    def _lists(self) -> int:
        """Bytes of the lists of two rounds, if they are in memory."""
        return 0 if self.resources.persistent else 16 * self.size.n_rows * self.size.n_neighbors

    @property
    def part_bytes(self) -> int:
        """Bytes of the search of one part."""
        return self.size.part_bytes(self.n_parts)

    def parts_at_once(self) -> int:
        """Number of parts that a process searches at the same time.

        Threads share a part, and a second one fills the gaps, when one thread reads, gathers, splits or writes. On a
        cluster each task is one thread and has a part of its own.
        """
        if self.resources.remote:
            fit = (self.workspace - _LEAST_MAPPED) // max(1, self.part_bytes)
            return max(1, min(fit, self.resources.n_jobs))
        has_gaps = self.n_parts > 1 and (self.maps_arrays or self.resources.n_jobs > 1)
        return 2 if has_gaps and self.workspace - self._lists >= 3 * self.part_bytes + _FREED else 1

    def compared_buckets(self, n_rows: int) -> int:
        """Number of buckets in which rows are compared with each other by their hashes."""
        return max(1, -(-64 * n_rows // max(1, self._beside_maps // 2))) if self.maps_arrays else 1

    def shuffled_blocks(self, n_blocks: int, block_bytes: int) -> int:
        """Number of blocks of neighbour lists whose edges are reversed together."""
        if not self.resources.persistent:
            return n_blocks
        n_held = self.resources.n_jobs + self.held_groups()
        if self.maps_arrays:
            return min(n_blocks, max(2, self._beside_maps // (2 * block_bytes * n_held)))
        return min(n_blocks, max(4, self.workspace // (3 * block_bytes * self.resources.n_jobs)))

    def held_groups(self) -> int:
        """Number of groups of such blocks that stay in memory: the last one, if this process runs the loops."""
        return 0 if self.resources.remote or self.maps_arrays else 1

    # --- sweeps -------------------------------------------------------------------------------

    def resident_bytes(self) -> int:
        """Bytes of blocks of K that stay between sweeps: all of them, or what the panels of a worker leave."""
        fixed = current_block_sizes().resident_bytes
        if fixed is not None:
            return fixed
        if not self.resources.persistent:
            return 0
        size = self.size
        if not self.resources.remote:
            return 2 * 8 * size.nnz
        if self.maps_arrays:
            return max(0, (self.workspace - self._beside_maps) // 2)
        column = self._column(size.n_rows, size.n_live, size.itemsize)
        flight = self._blocks_in_flight(size.block_bytes)
        return max(0, self._left - int(1.25 * size.n_components * column) - flight)

    def panel_columns(
        self,
        n_points: int,
        n_live: int,
        itemsize: int,
        block_bytes: int,
        wanted: int,
        blocks_touched: int = _BLOCKS_TOUCHED,
    ) -> int:
        """Columns of one panel; wide panels are a multiple of 16 or 4."""
        fixed = current_block_sizes().panel_columns
        if fixed:
            return min(fixed, wanted)
        if self.maps_arrays:
            return self._mapped_columns(wanted, blocks_touched)
        # besides its panels a worker needs a little more than this process does
        share = 0.88 if self.resources.remote else 0.95
        room = int(share * self._free) - self._blocks_in_flight(block_bytes)
        fit = max(1, room // self._column(n_points, n_live, itemsize))
        if fit >= wanted:
            return wanted
        return fit - fit % 16 if fit >= 16 else fit - fit % 4 if fit >= 4 else fit

    def shards_together(self, shard_bytes: int) -> int:
        """Number of shards of the embedding that a task collects from mapped panels."""
        return max(1, self._beside_maps // 4 // self.resources.n_jobs // shard_bytes) if self.maps_arrays else 1

    def audit_columns(self, n_points: int, n_live: int, wanted: int, itemsize: int = 8) -> int:
        """Number of columns that an audit multiplies together."""
        if self.maps_arrays:
            return wanted
        column = itemsize * n_points + self._column(n_points, n_live, itemsize)
        return max(1, min(wanted, self._free // 2 // column))

    def _column(self, n_points: int, n_live: int, itemsize: int) -> int:
        """Bytes of one column of all panels of a sweep; a worker holds new ones and old ones."""
        n_panels = 2 * n_live - 1 if self.resources.remote else n_live
        return n_points * itemsize * n_panels

    def _blocks_in_flight(self, block_bytes: int) -> int:
        """Bytes of blocks in use: each thread reads one and multiplies one, and file contents count too."""
        return 3 * (self.resources.n_jobs + 1) * block_bytes

    # --- after the run ------------------------------------------------------------------------

    def holds(self, n_bytes: int) -> bool:
        """Whether an array of `n_bytes` that is used repeatedly may stay in memory."""
        return n_bytes < self._free // 2

    def exported_entries(self) -> int:
        """Entries of a matrix that an export puts together at a time."""
        return max(_LEAST_ENTRIES, self._free // 2 // 24)

    # --- limits -------------------------------------------------------------------------------

    def smallest_limit(self) -> int:
        """Smallest limit that is enough: for one part of the search, and for the blocks of K that are multiplied.

        With a store, arrays of all rows are mapped. Without one, or if its files are memory, a column of all panels is
        in memory. Whole megabytes, as messages name them.
        """
        size, resources = self.size, self.resources
        part = size.part_bytes(size.most_parts)
        in_flight = self._blocks_in_flight(size.block_bytes)
        base = self._libraries
        if resources.persistent and not resources.files_in_memory:
            least = base + _LEAST_MAPPED + max(part, self._touched(1, _BLOCKS_TOUCHED))
        else:
            column = self._column(size.n_rows, size.n_live, size.itemsize)
            least = base + size.vector_bytes + max(part, column + in_flight)
        if resources.resident_input:
            least += 4 * size.n_rows * size.n_features
        if not resources.persistent:
            least += 8 * size.nnz + 8 * size.n_rows * size.n_neighbors + size.result_bytes
        least += self._store
        return -(-(least + max(_SAFETY, least // 19)) // 10**6) * 10**6

    def ample_limit(self) -> int:
        """Memory at which nothing is read twice: all columns at once, K resident."""
        size = self.size
        columns = size.n_components * self._column(size.n_rows, size.n_live, size.itemsize)
        search = size.n_rows * (8 * size.n_features + 24 * size.n_neighbors + 40)
        whole = max(size.vector_bytes + columns + 12 * size.nnz, search)
        return self._libraries + whole + self._blocks_in_flight(size.block_bytes)

    def limit_warning(self) -> str | None:
        """Warning text if the limit is above what a worker may hold."""
        limit, memory = self.resources.limit, self.resources.worker_memory
        if limit is not None and memory is not None and limit > memory:
            return (
                f"memory_limit is {limit // 10**6} MB, but the smallest worker may hold {memory // 10**6} MB, and "
                f"is killed beyond. Pass {int(WORKER_SHARE * memory) // 10**6} MB or less, or start larger workers."
            )
        return None

    def check(self) -> None:
        """Raise if the limit is too small, naming the smallest one that is enough."""
        limit, least, memory = self.resources.limit, self.smallest_limit(), self.resources.worker_memory
        if memory is not None and WORKER_SHARE * memory < least:  # dask pauses such workers for ever
            smaller = self._smaller(int(WORKER_SHARE * memory))
            raise MemoryLimitError(
                f"each worker must have at least {-(-least // int(10**6 * WORKER_SHARE))} MB of memory "
                f"for {self.size.n_rows} rows, of which a run takes {WORKER_SHARE}; the smallest worker has "
                f"{memory // 10**6} MB. {smaller}"
            )
        if limit is not None and limit < least:
            hint = "" if self.resources.persistent else " With store= less is enough."
            if self.resources.store_in_memory:
                hint = " The files of store are in memory (tmpfs), and count: pass a path on a disk."
            elif self.resources.files_in_memory:
                hint = " Temporary files are in memory (tmpfs): set TMPDIR to a folder on a disk."
            text = f"memory_limit must be at least {least // 10**6} MB for {self.size.n_rows} rows"
            raise MemoryLimitError(f"{text}; got {limit // 10**6} MB. {self._smaller(limit)}{hint}")

    def _smaller(self, limit: int) -> str:
        """What to make smaller, so that a run fits in a limit that is too small."""

        def fits(**changes: Any) -> bool:
            return replace(self, size=replace(self.size, **changes)).smallest_limit() <= limit

        texts = []
        for name in ("n_components", "n_neighbors"):
            halves = [getattr(self.size, name) >> shift for shift in range(1, 16)]
            texts += [f"{name}={value}" for value in halves if value and fits(**{name: value})][:1]
        if not texts:
            return "Fewer components or neighbours do not help."
        return f"It is enough for {' or '.join(texts)}."
