"""Arrays in unnamed files that are mapped into memory: for arrays with an entry per row that do not fit in it.

A mapped array is an ordinary numpy array. The operating system reads its pages when they are used, and writes changed
ones back to the file, so that they can leave the memory of the process at any time. They leave after each task, when
they are more than the run may hold (`trim`).
"""

import contextlib
import mmap
import os
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from scalable_gpe.errors import StoreError
from scalable_gpe.storage.blocks import ranges

Empty = Callable[[tuple[int, ...], Any], np.ndarray]  # makes an array, as np.empty does

_KEPT = 0.6  # share of the limit that stays in memory when pages are dropped
_AROUND, _LOADED = 2**21, 2**4  # bytes around a row that the system may map with it; how many of these at a time
_JOINED = 2**16  # bytes of pages that the system maps together in arrays that are used in any order
_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE of Linux, which Python has no name for
_STATM = "/proc/self/statm"
_LINE = 64  # bytes of a cache line
_PIECE = 2**18  # rows of one step over arrays of all rows
_SCATTERED = 2**22  # rows that may be written in any order; among more, each piece would touch every page


def empty_in_lines(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Like np.empty, but beginning at a cache line: a row of 32 float32 then lies in two lines instead of three."""
    kind = np.dtype(dtype)
    n_bytes = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    made = np.empty(n_bytes + _LINE, np.uint8)
    first = -made.ctypes.data % _LINE
    out: np.ndarray = made[first : first + n_bytes].view(kind).reshape(shape)
    return out


class MappedBytes(NamedTuple):
    """Bytes of mapped arrays that may be in memory: those that stay there after a task, and those that tasks add."""

    kept: int
    added: int

    @property
    def is_tight(self) -> bool:
        """Whether dropping pages that are kept frees less than tasks may add beyond what is expected."""
        return (1 - _KEPT) * self.kept < self.added


class _Resident(NamedTuple):
    """Bytes in the memory of this process: all of them, and those of files."""

    total: int
    files: int


_Changing = dict[int, list[tuple[int, int]]]


class MappedArrays:
    """The mapped arrays of this process.

    Sweeps are cyclic: if the pages that were used longest ago were dropped first, none would be there when its turn
    comes again. So the beginning of each array stays, and the rest is dropped.
    """

    def __init__(self) -> None:
        # of each map, the ranges of bytes that tasks are changing, by thread
        self._maps: weakref.WeakKeyDictionary[mmap.mmap, _Changing] = weakref.WeakKeyDictionary()
        self._most, self._other = MappedBytes(0, 0), 0
        self._ceiling: int | None = None
        self._guard = threading.Lock()

    def empty(
        self,
        folder: str,
        shape: tuple[int, ...],
        dtype: Any,
        most: MappedBytes,
        *,
        reserved: bool = True,
        in_order: bool = False,
    ) -> np.ndarray:
        """Make an array of zeros in an unnamed file of a folder; pages of all arrays are at most `most`.

        With `reserved`, all of its space on disk is there from the beginning; else it grows with what is written. If it
        is used `in_order`, the system may join its pages; else, under a tight limit, only as many as `_JOINED`.
        """
        kind = np.dtype(dtype)
        n_bytes = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
        if not n_bytes:
            return np.empty(shape, kind)
        joins_few = most.is_tight and not in_order
        made = _map_file(folder, n_bytes, reserved=reserved, filled=reserved and joins_few)
        if joins_few and not reserved and hasattr(mmap, "MADV_RANDOM"):
            made.madvise(mmap.MADV_RANDOM)  # not filled, because only some of its rows will be used
        with self._guard:
            if not self._maps:
                resident = _resident()
                self._other = 0 if resident is None else resident.files
            self._maps[made] = {}
            self._most = most
        return np.frombuffer(made, kind).reshape(shape)

    def may_fill(self, ceiling: int | None) -> None:
        """Let mapped arrays use what the process leaves free below so many bytes; None: only as much as was planned."""
        self._ceiling = ceiling

    def trim(self) -> None:
        """Drop pages from memory if they are too many; they stay in the cache of the system, or in the files.

        A task calls it at its end: what it has changed may go, what other tasks are changing stays.
        """
        if not self._maps:
            return
        thread = threading.get_ident()
        with self._guard:
            for changing in list(self._maps.values()):
                changing.pop(thread, None)
        held, kept = self._held_and_kept()
        if held > kept:
            self._drop(kept)

    def _held_and_kept(self) -> tuple[float, int]:
        """Bytes of mapped arrays that are in memory (infinite where the system does not say), and how many may stay.

        Dropping pages takes time for each page of all arrays, mapped or not, so that it must be rare.
        """
        resident, most = _resident(), self._most
        if resident is None:
            return np.inf, most.kept
        held = resident.files - self._other
        free = 0 if self._ceiling is None else self._ceiling - most.added - (resident.total - held)
        return held, max(most.kept, free)

    def _drop(self, kept: int) -> None:
        """Drop all but the beginning of each array, and what tasks are changing."""
        if not hasattr(mmap, "MADV_DONTNEED"):
            return
        with self._guard:
            maps = list(self._maps.items())
            share = _KEPT * kept / max(1, sum(len(made) for made, _ in maps))
            for made, changing in maps:
                start = min(len(made), int(share * len(made)) // mmap.PAGESIZE * mmap.PAGESIZE)
                used = sorted(part for parts in changing.values() for part in parts)
                for first, stop in [*used, (len(made), len(made))]:
                    if start < first:
                        made.madvise(mmap.MADV_DONTNEED, start, first - start)
                    start = max(start, stop)

    def are_filled_by(self, values: np.ndarray) -> bool:
        """Whether the pages of an array, if all were used, would be most of those that may be in memory."""
        return len(self._maps) > 0 and values.nbytes > sum(self._most) // 2

    def will_change(self, values: np.ndarray) -> None:
        """Map a part of an array, if it is mapped, for writing, all at once; it stays until the task ends.

        Else the system maps pages that are changed one by one, and those that are read first twice. This pays off where
        pages do not stay in memory.
        """
        place = self._find(values) if self._maps and sys.platform == "linux" else None
        if place is None or not values.nbytes:
            return
        owner, start = place
        first = start // mmap.PAGESIZE * mmap.PAGESIZE
        stop = min(len(owner), -(-(start + values.nbytes) // mmap.PAGESIZE) * mmap.PAGESIZE)
        with self._guard:
            if sum(map(len, list(self._maps))) <= self._most.kept:
                return
            self._maps[owner].setdefault(threading.get_ident(), []).append((first, stop))
        with contextlib.suppress(OSError):  # before Linux 5.14
            owner.madvise(_POPULATE_WRITE, first, stop - first)

    def _find(self, part: np.ndarray) -> tuple[mmap.mmap, int] | None:
        """The map that a part of an array is in, and where it begins; None if it is not mapped here."""
        owner: Any = part
        while isinstance(owner, np.ndarray):
            owner = owner.base
        owner = getattr(owner, "obj", owner)  # a memoryview is between an array and its map
        if not isinstance(owner, mmap.mmap) or owner not in self._maps:
            return None
        return owner, part.ctypes.data - np.frombuffer(owner, np.uint8).ctypes.data


mapped = MappedArrays()


def pieces(n_rows: int, step: int = _PIECE) -> Iterator[tuple[int, int]]:
    """Ranges of rows for a loop over arrays of all rows, which may be mapped."""
    for piece in ranges(n_rows, step):
        yield piece
        mapped.trim()


def take_rows(values: Any, rows: np.ndarray) -> np.ndarray:
    """Rows by number of a zarr array, or of one that may be mapped; a large one is read in its own order."""
    if not isinstance(values, np.ndarray):
        unique, inverse = np.unique(rows, return_inverse=True)
        return np.asarray(values.oindex[unique])[inverse]
    return _take_ascending(values, rows) if mapped.are_filled_by(values) else values[rows]


def _take_ascending(values: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Rows in the order of the array: in another one each would bring other pages."""
    flat = rows.reshape(-1)
    taken = np.empty((len(flat), *values.shape[1:]), values.dtype)
    ascending = np.argsort(flat, kind="stable")
    for at in np.split(ascending, _cuts(flat[ascending].astype(np.int64) * values[:1].nbytes)):
        taken[at] = values[flat[at]]
        mapped.trim()
    return taken.reshape(*rows.shape, *values.shape[1:])


def _cuts(places: np.ndarray) -> np.ndarray:
    """Where to cut ascending places in a file so that few pages of it are read between two cuts.

    The system loads the pages around the one that is needed: rows that are far apart load much more than themselves.
    """
    n_loaded = np.cumsum(np.diff(places // _AROUND, prepend=-1) > 0)
    return np.flatnonzero(np.diff(n_loaded // _LOADED)) + 1


def inverse_order(order: np.ndarray, empty: Empty = np.empty) -> np.ndarray:
    """Position of each row in an order, as int32; `empty` makes the array."""
    inverse = empty((len(order),), np.int32)
    for rows, positions in _by_range(order, empty) if len(order) > _SCATTERED else _numbered(order):
        inverse[rows] = positions
    return inverse


def _numbered(order: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Pieces of an order, with the positions of their rows."""
    for start, stop in pieces(len(order)):
        yield order[start:stop], np.arange(start, stop, dtype=np.int32)


def _by_range(order: np.ndarray, empty: Empty) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Rows of an order and their positions, sorted by ranges of rows: a piece of them is near together.

    Each row is there once, so the place of a range among the sorted ones is the range itself.
    """
    rows, positions = empty(order.shape, np.int32), empty(order.shape, np.int32)
    free = np.arange(0, len(order), _SCATTERED)  # where the next row of each range goes
    for of_piece, at in _numbered(order):
        by_range = np.argsort(of_piece // _SCATTERED, kind="stable")
        counts = np.bincount(of_piece // _SCATTERED, minlength=len(free))
        for start, taken in zip(free.tolist(), np.split(by_range, np.cumsum(counts)[:-1]), strict=True):
            to = slice(start, start + len(taken))
            rows[to], positions[to] = of_piece[taken], at[taken]
        free += counts
    for start, stop in pieces(len(order)):
        yield rows[start:stop], positions[start:stop]


def number_leaders(leader: np.ndarray, empty: Empty = np.empty) -> tuple[np.ndarray, int]:
    """Number the groups of rows by their leaders, from the leader of each row; a leader is its own one."""
    number, n_leaders = empty(leader.shape, np.int32), 0
    for start, stop in pieces(len(leader)):
        is_leader = leader[start:stop] == np.arange(start, stop)
        number[start:stop] = n_leaders - 1 + np.cumsum(is_leader)
        n_leaders += int(np.count_nonzero(is_leader))
    group = empty(leader.shape, np.int32)
    for start, stop in pieces(len(leader)):
        group[start:stop] = take_rows(number, leader[start:stop])
    return group, n_leaders


def _map_file(folder: str, n_bytes: int, *, reserved: bool, filled: bool) -> mmap.mmap:
    """Map a new file that has no name.

    If it is `filled`, its pages come into the system's cache in groups of `_JOINED` bytes. Else Linux makes groups of
    up to 2 MB when they are first used one after the other, and later one row brings a whole group into memory.
    """
    with tempfile.TemporaryFile(dir=folder) as file:
        try:
            # without space on disk, writing to a page would end the process
            if reserved and hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, n_bytes)
            else:
                file.truncate(n_bytes)
            if filled:
                zeros = memoryview(bytes(_JOINED))
                for start, stop in ranges(n_bytes, _JOINED):
                    os.pwrite(file.fileno(), zeros[: stop - start], start)
            return mmap.mmap(file.fileno(), n_bytes)
        except (OSError, OverflowError) as error:
            raise StoreError(
                f"arrays that do not fit in memory need a file of {n_bytes / 1e9:.3g} GB in {folder!r}: {error}. Free "
                "some space, or raise memory_limit."
            ) from None


def is_measured() -> bool:
    """Whether the system says how much of this process is in memory."""
    return _resident() is not None


def _resident() -> _Resident | None:
    """Bytes in the memory of this process; None where the system does not say."""
    with contextlib.suppress(OSError):
        file = os.open(_STATM, os.O_RDONLY)  # not `open`, which takes three times as long
        try:
            total, files = os.read(file, 100).split()[1:3]
            return _Resident(int(total) * mmap.PAGESIZE, int(files) * mmap.PAGESIZE)
        finally:
            os.close(file)
    return None
