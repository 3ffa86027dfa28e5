"""Descent inside one part (NN-descent, Dong, Charikar and Li 2011): neighbours of one row are compared with each other.

Each step samples, for every row, new entries of its list and rows in whose lists it is a new entry, by random numbers
that are a function of the two rows and the step. They are compared with each other and with the old entries of the
list and rows in whose lists it is an old one, and the better ones enter the lists.
A step reads which entries are new as the last step left them, and lists keep the best of what they are offered in any
order: the result does not depend on threads (see `loops.descent`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scalable_gpe.execution.workers import Workers
from scalable_gpe.graph.trees import Bytes, Floats, Ints, cut, run
from scalable_gpe.loops import descent as loops

MAX_STEPS = 20
_CANDIDATES = 2  # tickets per place of a sample: rows that are in each other's lists have two
_SENT = 2**19  # entries on their way between threads


class SortedLists(NamedTuple):
    """The lists of all rows: sorted entries, and the bits of the last distance of each list (see `loops.descent`)."""

    entries: NDArray[np.uint64]
    reach: NDArray[np.uint32]


class Labels:
    """Up to four labels of each row: rows that share one have been compared with each other."""

    def __init__(self, n_rows: int) -> None:
        self._fields, self._n_used = np.zeros((n_rows, 4), np.uint16), 0

    def add(self, labels: np.ndarray, rows: Ints | slice = slice(None)) -> None:
        """Add the labels of the given rows, all of them in some order, if there is a field left."""
        if self._n_used < self._fields.shape[1]:
            self._fields[rows, self._n_used] = labels
            self._n_used += 1

    @property
    def words(self) -> NDArray[np.uint64]:
        """The labels of each row in one number."""
        return self._fields.view(np.uint64)[:, 0]

    @property
    def unused(self) -> np.uint64:
        """A one in each field that holds no label."""
        fields = np.ones(self._fields.shape[1], np.uint16)
        fields[: self._n_used] = 0
        return np.uint64(fields.view(np.uint64)[0])


def start_lists(
    X: Floats | Bytes, known: Ints, found: Ints, length: int, workers: Workers, most: Floats | None = None
) -> SortedLists:
    """Lists of the neighbours that are known from earlier rounds, and of those found by trees, which are new.

    Squared distances above `most` do not enter the list of a row.
    """
    entries, reach = np.full((len(X), length), loops.EMPTY, np.uint64), np.full(len(X), loops.NOTHING, np.uint32)
    if most is not None:
        reach[:] = most.view(np.uint32)
    run(workers, loops.start_lists, len(X), (X, known, found), (entries, reach))
    return SortedLists(entries, reach)


def descend(
    X: Floats | Bytes,
    labels: Labels,
    lists: SortedLists,
    n_sampled: int,
    few: float,
    seed_of: Callable[..., np.uint64],
    workers: Workers,
    is_enough: Callable[[SortedLists], bool] = lambda lists: False,
) -> None:
    """Improve the lists until they are good enough, or until at most a share of `few` entries is new.

    A step samples at most `n_sampled` entries for a row.
    """
    n_rows, entries = len(X), lists.entries
    n_new = np.empty(n_rows, np.uint8 if entries.shape[1] < 256 else np.int32)
    highest = np.empty((n_rows, 2), np.uint32)
    samples, n_samples = np.empty((2 * n_rows, n_sampled), np.uint32), np.empty(2 * n_rows, np.uint8)
    for step in range(MAX_STEPS):
        run(workers, loops.count_new, n_rows, (entries,), (n_new,))
        if is_enough(lists) or n_new.sum(dtype=np.int64) <= few * entries.size:
            return
        seed = seed_of("descent", step)
        # every range reads the lists of all rows, so that there are no more of them than threads
        run(workers, loops.choose_tickets, n_rows, (entries,), (_CANDIDATES * n_sampled, highest), per_thread=1)
        run(workers, loops.sample_entries, n_rows, (entries,), (seed, highest, samples, n_samples), per_thread=1)
        run(workers, loops.mark_sampled, n_rows, (entries,), (seed, highest))
        _join(X, labels, samples, n_samples, lists, workers)


def _join(
    X: Floats | Bytes,
    labels: Labels,
    samples: np.ndarray,
    n_samples: np.ndarray,
    lists: SortedLists,
    workers: Workers,
) -> None:
    """Compare what was sampled. A range inserts into its own lists, and sends other entries to the ranges they are for.

    A range whose entries on the way fill their array waits until they have been inserted.
    """
    pieces = cut(workers, len(X))
    starts = [first for first, _ in pieces]
    room = max(_SENT // len(pieces), 8 * samples.shape[1] ** 2)
    sent = np.empty((len(pieces), room), np.int32), np.empty((len(pieces), room), np.uint64)
    words, unused = labels.words, labels.unused

    def compare(number: int) -> tuple[int, int]:
        first, last = pieces[number]
        given = (X, words, unused, samples, n_samples, first, last, starts[number])
        reached: tuple[int, int] = loops.join(*given, lists.entries, lists.reach, *(one[number] for one in sent))
        return reached

    while any(start < last for start, (_, last) in zip(starts, pieces, strict=True)):
        reached = workers.map(compare, range(len(pieces)), count=False)
        starts = [start for start, _ in reached]
        n_sent = np.array([n for _, n in reached], np.int64)
        if n_sent.any():
            run(workers, loops.insert, len(X), (lists.entries, lists.reach), (*sent, n_sent))


def listed_rows(entries: NDArray[np.uint64], workers: Workers) -> Ints:
    """The rows that lists hold, nearest first; -1 where a list is short."""
    rows = np.empty(entries.shape, np.int32)
    run(workers, loops.listed_rows, len(rows), (entries,), (rows,))
    return rows
