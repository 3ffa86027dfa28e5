"""CSR row blocks of a symmetric graph, the shuffle that makes them from neighbour lists, connected components."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from scalable_gpe.errors import DamageError, wrong_numbers
from scalable_gpe.execution.context import Context
from scalable_gpe.execution.panels import Panel, Panels, replaced
from scalable_gpe.execution.shuffle import ENTRY_BYTES, Shuffled, Sorted, shuffle
from scalable_gpe.storage.blocks import ranges
from scalable_gpe.storage.mapped import Empty, mapped
from scalable_gpe.storage.store import Ragged, Table

_CHUNKS = 8  # of the room for a block, which is about twice its length; those of padding are not stored
_SAMPLED, _RUN_ROWS = 8, 1024  # blocks whose neighbours are counted, in runs of so many rows
_NO_VALUES = np.empty(0, np.float32)
_OF_THIS_PROCESS = ("_kept", "_guard", "_checked", "_room")


class Block(NamedTuple):
    """Rows ``first`` to ``stop`` of a symmetric matrix in CSR form, with their own indptr."""

    first: int
    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray

    @property
    def stop(self) -> int:
        return self.first + len(self.indptr) - 1

    @property
    def nbytes(self) -> int:
        return self.indices.nbytes + self.values.nbytes


@dataclass(frozen=True)
class Edges:
    """Symmetric sparse matrix in row blocks; each row holds its diagonal, entries ascend in the user's row numbers.

    `degree` holds the number of entries of each row. Blocks that fit in `resident_bytes` stay after the first read, in
    arrays that `empty` makes. Others are read in every sweep. A copy that is sent to another process keeps no blocks:
    those of a kernel stay with the kernel, which each process opens once.
    """

    degree: Table
    block_rows: int
    indices: Ragged
    values: Ragged
    resident_bytes: int = 0
    empty: Empty = np.empty
    _kept: dict[int, Block] = field(default_factory=dict, repr=False)
    _guard: Any = field(default_factory=threading.Lock, repr=False)
    _checked: set[int] = field(default_factory=set, repr=False)

    @property
    def n_points(self) -> int:
        return self.degree.shape[0]

    @property
    def n_blocks(self) -> int:
        return -(-self.n_points // self.block_rows)

    @property
    def nnz(self) -> int:
        """Stored entries, diagonal included."""
        return int(self._lengths.sum())

    @cached_property
    def longest_block(self) -> int:
        return int(self._lengths.max())

    @cached_property
    def _lengths(self) -> np.ndarray:
        rows = map(self.rows_of, range(self.n_blocks))
        return np.array([self.degree.read(*block).sum(dtype=np.int64) for block in rows])

    def rows_of(self, number: int) -> tuple[int, int]:
        start = number * self.block_rows
        return start, min(start + self.block_rows, self.n_points)

    def block(self, number: int, *, values: bool = True) -> Block:
        """One row block. Without `values`, it may have none."""
        resident = self._kept.get(number)
        if resident is not None:
            return resident
        block = self._read(number, values=values)
        return self._keep(number, block) if self.resident_bytes and values else block

    def blocks(self) -> Iterator[Block]:
        return map(self.block, range(self.n_blocks))

    def _keep(self, number: int, block: Block) -> Block:
        """Keep a block if there is room for it."""
        with self._guard:
            room = self._room  # one thread makes it
            held = sum(kept.nbytes for kept in self._kept.values())
        if room is None and held + block.nbytes > self.resident_bytes:
            return block
        copy = block if room is None else room[number]
        if room is not None:
            for new, old in zip(copy[1:], block[1:], strict=True):
                new[:] = old
        self._kept[number] = copy
        return copy

    @cached_property
    def _room(self) -> list[Block] | None:
        """Memory for all blocks, if all of them stay."""
        if self.resident_bytes < 8 * self.nnz:
            return None
        indptr = self.empty((self.n_points + self.n_blocks,), np.int32)
        indices, values = (self.empty((self.nnz,), dtype) for dtype in (np.int32, np.float32))
        ends, room = np.cumsum(self._lengths), list[Block]()
        for number, end in enumerate(ends):
            (start, stop), entries = self.rows_of(number), slice(end - self._lengths[number], end)
            room.append(Block(start, indptr[start + number : stop + number + 1], indices[entries], values[entries]))
        return room

    def _read(self, number: int, *, values: bool = True) -> Block:
        start, stop = self.rows_of(number)
        indptr = np.zeros(stop - start + 1, np.int32)
        np.cumsum(self.degree.read(start, stop), dtype=np.int32, out=indptr[1:])
        length = int(indptr[-1])
        indices = self.indices.read(number, length)
        if number not in self._checked:  # once: compiled loops trust them
            check_numbers(indices, self.n_points, str(getattr(self.indices, "name", "edges/indices")))
            self._checked.add(number)
        return Block(start, indptr, indices, self.values.read(number, length) if values else _NO_VALUES)

    def blocks_touched(self) -> int:
        """Number of blocks of rows that one block reads, at most, among some blocks at even steps.

        Rows are read in runs of `_RUN_ROWS`: a page holds several rows, and the system brings several pages at once.
        """
        from scalable_gpe.loops import sparse

        most = 0
        for number in np.unique(np.linspace(0, self.n_blocks - 1, min(_SAMPLED, self.n_blocks)).astype(np.int64)):
            flags = np.zeros(-(-self.n_points // _RUN_ROWS), np.bool_)
            sparse.touched(self.block(int(number), values=False).indices, _RUN_ROWS, flags)
            most = max(most, int(np.count_nonzero(flags)))
        return -(-most * _RUN_ROWS // self.block_rows)

    def rows(self, points: np.ndarray) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Yield (number in `points`, columns, values) of some rows; each block is read once."""
        order = np.argsort(points, kind="stable")
        blocks = points[order] // self.block_rows
        for number in np.unique(blocks):
            block = self._kept.get(int(number)) or self._read(int(number))
            for i in order[blocks == number]:
                row = int(points[i]) - block.first
                at = slice(block.indptr[row], block.indptr[row + 1])
                yield int(i), block.indices[at], block.values[at]
            mapped.trim()

    def __getstate__(self) -> object:
        state = {name: value for name, value in vars(self).items() if name not in _OF_THIS_PROCESS}
        return state | {"resident_bytes": 0, "_lengths": self._lengths}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _kept={}, _guard=threading.Lock(), _checked=set())

    def with_values(self, values: Ragged, resident_bytes: int = 0, empty: Empty = np.empty) -> "Edges":
        """Return the same pattern with other values."""
        made = Edges(self.degree, self.block_rows, self.indices, values, resident_bytes, empty)
        vars(made)["_lengths"] = self._lengths  # one number per block
        return made


def check_numbers(numbers: np.ndarray, n_points: int, name: str, *, least: int = 0) -> None:
    """Refuse numbers of points that do not exist: compiled loops trust them. -1 ends a neighbour list."""
    if numbers.size and (int(numbers.max()) >= n_points or int(numbers.min()) < least):
        raise wrong_numbers(name)


def union_edges(indices: Table, distances: Table, user_row: np.ndarray, context: Context, name: str) -> Edges:
    """Make the union of the neighbour lists and their reversals, with distances, as row blocks in storage order."""
    from scalable_gpe.loops import sparse

    n_points, n_neighbors = indices.shape
    rows = context.block_rows(n_points)
    blocks = ranges(n_points, rows)
    panels = Panels(context)
    user_rows = panels.of(user_row)
    incoming = _reverse_edges(indices, distances, blocks, context)
    longest = max(
        int(incoming.counts[b]) + (stop - start) * (2 * n_neighbors + 1) for b, (start, stop) in enumerate(blocks)
    )
    columns = context.store.ragged(f"{name}/indices", len(blocks), longest, np.int32, _CHUNKS)
    lengths = context.store.ragged(f"{name}/lengths", len(blocks), longest, np.float32, _CHUNKS)
    degree = context.store.table(f"{name}/degree", (n_points,), np.int32, shard_rows=rows)

    def unite(number: int) -> None:
        start, stop = blocks[number]
        if columns.has(number) and lengths.has(number) and degree.has(start):
            return
        own = np.ascontiguousarray(indices.read(start, stop)), np.ascontiguousarray(distances.read(start, stop))
        indptr, column, length = sparse.union_rows(*own, *incoming.entries(number), start, user_rows.whole())
        columns.write(number, column)
        lengths.write(number, length)
        degree.write(start, np.diff(indptr))

    context.workers.map(unite, range(len(blocks)))
    incoming.clear()
    panels.clear()
    return Edges(degree, rows, columns, lengths)


def open_edges(context: Context, name: str, n_points: int, block_rows: int) -> Edges:
    """Open the edges of a graph."""
    store = context.store
    degree = store.open_table(f"{name}/degree")
    if degree.shape != (n_points,) or degree.dtype != np.int32 or block_rows < 1:
        raise DamageError(f"array '{name}/degree' does not belong to {n_points} points", f"{name}/degree")
    columns, lengths = (store.open_ragged(f"{name}/{part}") for part in ("indices", "lengths"))
    edges = Edges(degree, block_rows, columns, lengths)
    negative = any(int(degree.read(*edges.rows_of(number)).min()) < 0 for number in range(edges.n_blocks))
    if negative or (n_points and edges.longest_block >= 2**31) or edges.indices.dtype != np.int32:
        raise wrong_numbers(f"{name}/degree")
    return edges


def _reverse_edges(indices: Table, distances: Table, blocks: list[tuple[int, int]], context: Context) -> Shuffled:
    """Reverse the edges between blocks, and sort them by the block of their target, which is their row now."""
    from scalable_gpe.loops import sparse

    rows, n_blocks, n_neighbors = blocks[0][1], len(blocks), indices.shape[1]

    def reverse(piece: tuple[int, int]) -> Sorted:
        own = np.ascontiguousarray(indices.read(*piece)), np.ascontiguousarray(distances.read(*piece))
        check_numbers(own[0], blocks[-1][1], indices.name, least=-1)
        return Sorted(*sparse.bucket_edges(*own, piece[0], rows, n_blocks))

    together = context.plan.shuffled_blocks(n_blocks, rows * n_neighbors * ENTRY_BYTES)
    return shuffle(reverse, blocks, n_blocks, context, together=together, n_held=context.plan.held_groups())


Joins = Callable[[Block], np.ndarray]  # which entries of a block join their rows


def count_components(edges: Edges, context: Context, joins: Joins | None = None) -> int:
    """Number of connected components; without `joins`, all edges join their points."""
    panels = Panels(context)
    count = _find_components(edges, joins, context, panels)[1]
    panels.clear()
    return count


def component_roots(edges: Edges, context: Context, panels: Panels, joins: Joins | None = None) -> Panel:
    """First point of the connected component of each point; without `joins`, all edges join their points."""
    return _find_components(edges, joins, context, panels)[0]


def _find_components(edges: Edges, joins: Joins | None, context: Context, panels: Panels) -> tuple[Panel, int]:
    """First point of the component of each point, and the number of components.

    Each block is joined inside by a task of its own. Edges between blocks then connect only the components so found,
    which are few. So no process needs a tree of all points.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    from scalable_gpe.loops import sparse

    first = panels.new((edges.n_points,), np.int32)

    def joined_block(number: int) -> tuple[Block, np.ndarray]:
        """A block, and the points that its rows are joined with; -1 for others."""
        block = edges.block(number, values=joins is not None)
        return block, block.indices if joins is None else np.where(joins(block), block.indices, np.int32(-1))

    def join_inside(number: int) -> int:
        start, stop = edges.rows_of(number)
        parent, out = np.arange(stop - start, dtype=np.int32), first.room(start, stop)
        block, columns = joined_block(number)
        sparse.unite_rows(block.indptr, columns, start, parent)
        out[:] = _roots(parent) + start
        first.put(start, out)
        return int(np.count_nonzero(parent == np.arange(stop - start)))

    def join_between(number: int) -> np.ndarray:
        start, stop = edges.rows_of(number)
        block, columns = joined_block(number)
        leaving = np.flatnonzero(columns >= stop)
        rows, others = np.searchsorted(block.indptr, leaving, side="right") - 1, columns[leaving]
        own = first.rows(start, stop)[rows].astype(np.int64)
        return np.unique(own << 32 | first.whole(others)[others])

    n_inside = sum(context.workers.map_blocks(join_inside, edges.n_blocks))
    pairs = np.concatenate(context.workers.map_blocks(join_between, edges.n_blocks))
    merged, ends = np.unique(np.stack([pairs >> 32, pairs & 0xFFFFFFFF]).astype(np.int32), return_inverse=True)
    one, other = ends.reshape(2, -1).astype(np.int32)  # earlier versions of scipy take no other numbers
    joined = coo_array((np.ones(len(one), np.bool_), (one, other)), shape=(len(merged), len(merged)))
    _, labels = connected_components(joined, directed=False)
    _, roots = np.unique(labels, return_index=True)  # `merged` ascends
    n_components = n_inside - len(merged) + len(roots)
    if not len(merged):
        return first, n_components
    merged_first, merged_root, last = panels.of(merged), panels.of(merged[roots[labels]]), len(merged) - 1
    with replaced(first) as whole:

        def name_roots(number: int) -> None:
            piece = edges.rows_of(number)
            own, out = first.rows(*piece), whole.room(*piece)
            at = np.minimum(np.searchsorted(merged_first.whole(), own), last)
            out[:] = np.where(merged_first.whole()[at] == own, merged_root.whole()[at], own)
            whole.put(piece[0], out)

        context.workers.map_blocks(name_roots, edges.n_blocks)
    return whole, n_components


def _roots(parent: np.ndarray) -> np.ndarray:
    """The root of each tree, from the parents of its members."""
    roots = parent
    while not np.array_equal(higher := parent[roots], roots):
        roots = higher
    return roots
