"""CSR row blocks of a symmetric graph, and the shuffle that makes them from neighbour lists."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from scalable_gpe.execution.context import Context
from scalable_gpe.execution.panels import Panels
from scalable_gpe.storage.protocol import Ragged, Table, ranges
from scalable_gpe.storage.scratch import ScratchRagged

if TYPE_CHECKING:
    from scalable_gpe.storage.zarr_store import ZarrStore

_BYTES_PER_EDGE = 12


_OWN = ("_kept", "_coming", "_guard")  # what a process has read

Block = tuple[int, np.ndarray, np.ndarray, np.ndarray]


@lru_cache(maxsize=1)
def _reader() -> ThreadPoolExecutor:
    """The thread of this process that reads ahead."""
    return ThreadPoolExecutor(1, thread_name_prefix="gpe-read")


@dataclass(frozen=True)
class Edges:
    """Symmetric sparse matrix in row blocks: each row holds its diagonal and ascends in the user's row numbers.

    ``block(b)`` gives ``(first_row, indptr, indices, values)`` with an indptr of its own. Blocks that fit
    `resident_bytes` stay in memory after their first reading. Others are read in every sweep: while a block is worked
    on, the block `ahead` of it is being read.
    """

    degree: np.ndarray
    block_rows: int
    indices: Ragged
    values: Ragged
    resident_bytes: int = 0
    ahead: int = 0
    _kept: dict[int, Any] = field(default_factory=dict, repr=False)
    _coming: dict[int, Future[Any]] = field(default_factory=dict, repr=False)
    _guard: Any = field(default_factory=threading.Lock, repr=False)

    @property
    def n_points(self) -> int:
        """Rows of the matrix."""
        return len(self.degree)

    @property
    def n_blocks(self) -> int:
        """Blocks of the matrix."""
        return -(-self.n_points // self.block_rows)

    @property
    def nnz(self) -> int:
        """Stored entries, diagonal included."""
        return int(self.degree.sum(dtype=np.int64))

    @cached_property
    def largest_bytes(self) -> int:
        """Bytes of the largest block: row numbers and values."""
        starts = range(0, self.n_points, self.block_rows)
        return 8 * int(np.add.reduceat(self.degree.astype(np.int64), starts).max())

    def block(self, number: int) -> Block:
        """One row block."""
        known = self._kept.get(number)
        if known is not None:
            return known
        with self._guard:
            coming = self._coming.pop(number, None)
            after = number + self.ahead
            if self.ahead and after < self.n_blocks and after not in self._kept and after not in self._coming:
                self._coming[after] = _reader().submit(self._read, after)
        block = self._read(number) if coming is None else coming.result()
        with self._guard:
            held = sum(kept[2].nbytes + kept[3].nbytes for kept in self._kept.values())
            if held + block[2].nbytes + block[3].nbytes <= self.resident_bytes:
                self._kept[number] = block
        return block

    def _read(self, number: int) -> Block:
        start = number * self.block_rows
        degree = self.degree[start : start + self.block_rows]
        indptr = np.zeros(len(degree) + 1, np.int32)
        np.cumsum(degree, out=indptr[1:])
        length = int(indptr[-1])
        return start, indptr, self.indices.read(number, length), self.values.read(number, length)

    def rows(self, points: np.ndarray) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Columns and values of some rows, with their place in `points`; each block is read once."""
        order = np.argsort(points, kind="stable")
        blocks = points[order] // self.block_rows
        for number in np.unique(blocks):
            first, indptr, indices, values = self._kept.get(int(number)) or self._read(int(number))
            for place in order[blocks == number]:
                at = slice(indptr[points[place] - first], indptr[points[place] - first + 1])
                yield int(place), indices[at], values[at]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in _OWN}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _kept={}, _coming={}, _guard=threading.Lock())

    def with_values(self, values: Ragged, resident_bytes: int = 0, ahead: int = 0) -> "Edges":
        """Make the same pattern with other values."""
        return Edges(self.degree, self.block_rows, self.indices, values, resident_bytes, ahead)


def union_edges(indices: Table, distances: Table, user_row: np.ndarray, context: Context, name: str) -> Edges:
    """Union of the neighbour lists and their reversals, with distances, as row blocks in storage order."""
    from scalable_gpe.loops import sparse

    n_points, n_neighbors = indices.shape
    rows = context.block_rows(n_points)
    pieces = ranges(n_points, rows)
    panels = Panels(context, context.scratch())
    mine = panels.of(user_row)
    incoming = _shuffle(indices, distances, pieces, context)
    longest = max(
        int(incoming.counts[b]) + (stop - start) * (n_neighbors + 1) for b, (start, stop) in enumerate(pieces)
    )
    columns = context.store.ragged(f"{name}/indices", len(pieces), longest, np.int32)
    lengths = context.store.ragged(f"{name}/lengths", len(pieces), longest, np.float32)
    degree = context.store.table(f"{name}/degree", (n_points,), np.int32, shard_rows=rows)

    def unite(number: int) -> None:
        start, stop = pieces[number]
        if columns.has(number) and lengths.has(number) and degree.has(start):
            return
        own = np.ascontiguousarray(indices.read(start, stop)), np.ascontiguousarray(distances.read(start, stop))
        indptr, column, length = sparse.union_rows(*own, *incoming.edges(number), start, mine.whole())
        columns.write(number, column)
        lengths.write(number, length)
        degree.write(start, np.diff(indptr))

    context.workers.map(unite, range(len(pieces)))
    incoming.forget()
    panels.clear()
    return Edges(degree.read(0, n_points), rows, columns, lengths)


def open_edges(context: Context, name: str, n_points: int, block_rows: int) -> Edges:
    """Edges that stand in a home."""
    degree = context.store.open_table(f"{name}/degree").read(0, n_points)
    store = context.store
    return Edges(degree, block_rows, store.open_ragged(f"{name}/indices"), store.open_ragged(f"{name}/lengths"))


class _Incoming:
    """Reversed edges, sorted by the block of their target: one run per group of source blocks."""

    def __init__(self, n_blocks: int) -> None:
        self.counts = np.zeros(n_blocks, np.int64)
        self._held: list[list[tuple[np.ndarray, ...]]] = []
        self._runs: list[tuple[ScratchRagged, np.ndarray]] = []

    def hold(self, parts: list[tuple[np.ndarray, ...]]) -> None:
        """Keep a group of source blocks in memory."""
        self.counts += np.sum([np.diff(part[0]) for part in parts], axis=0)
        self._held.append(parts)

    def keep(self, ragged: ScratchRagged, counts: np.ndarray) -> None:
        """Remember a group of source blocks that stands in the home."""
        self.counts += counts
        self._runs.append((ragged, counts))

    def edges(self, block: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Targets, sources and lengths of all edges into one block."""
        packed = [_pack(parts, block) for parts in self._held]
        packed += [ragged.read(block, 3 * int(counts[block])) for ragged, counts in self._runs if counts[block]]
        thirds = [np.split(one, 3) for one in packed] or [[np.empty(0, np.int32)] * 3]
        targets, sources, lengths = (np.concatenate([third[k] for third in thirds]) for k in range(3))
        return targets, sources, lengths.view(np.float32)

    def forget(self) -> None:
        """Remove what was kept for the shuffle only."""
        self._held.clear()
        for ragged, _ in self._runs:
            ragged.remove()


def _pack(parts: list[tuple[np.ndarray, ...]], block: int) -> np.ndarray:
    """Targets, then sources, then the bits of the lengths, of the edges into one block."""
    cut = [slice(part[0][block], part[0][block + 1]) for part in parts]
    fields = [part[k][at].view(np.int32) for k in (1, 2, 3) for part, at in zip(parts, cut, strict=True)]
    return np.concatenate(fields)


def _shuffle(indices: Table, distances: Table, pieces: list[tuple[int, int]], context: Context) -> _Incoming:
    """Turn all lists round, group after group of source blocks: the last one stays in memory, others in the home."""
    from scalable_gpe.loops import sparse

    rows, n_blocks, n_neighbors = pieces[0][1], len(pieces), indices.shape[1]

    def bucket(piece: tuple[int, int]) -> tuple[np.ndarray, ...]:
        own = np.ascontiguousarray(indices.read(*piece)), np.ascontiguousarray(distances.read(*piece))
        return sparse.bucket_edges(*own, piece[0], rows, n_blocks)

    incoming = _Incoming(n_blocks)
    together = _blocks_together(n_blocks, rows * n_neighbors * _BYTES_PER_EDGE, context)
    groups = [pieces[first : first + together] for first in range(0, n_blocks, together)]
    if not context.workers.remote:
        incoming.hold(context.workers.map(bucket, groups.pop(), count=False))
    runs = [cast("ZarrStore", context.store).scratch_ragged(context.scratch(), np.int32) for _ in groups]

    def turn(number: int) -> np.ndarray:
        parts = [bucket(piece) for piece in groups[number]]
        counts = np.sum([np.diff(part[0]) for part in parts], axis=0)
        for block in np.flatnonzero(counts):
            runs[number].write(int(block), _pack(parts, int(block)))
        return counts

    for number, counts in enumerate(context.workers.map(turn, range(len(groups)), count=False)):
        incoming.keep(runs[number], counts)
    return incoming


def _blocks_together(n_blocks: int, block_bytes: int, context: Context) -> int:
    """How many source blocks are turned round at once within the memory limit."""
    if not context.store.stored:
        return n_blocks
    fit = max(4, context.spare_bytes() // (3 * block_bytes * context.workers.n_jobs))
    return min(n_blocks, fit, context.workers.share_of(n_blocks))
