"""Compiled loops of the descent: rows that have a neighbour in common are compared with each other.

A list is a sorted array of 64-bit entries: the bits of a squared distance (float32, never negative, so that they sort
as the distance does), the row, and one bit that says that the entry is new. An entry that is offered twice has the same
distance, so that equal entries are duplicates. A list keeps the best of everything that was ever offered to it, in
whichever order; what an entry is compared with before it is offered (the last entry of a list, perhaps read while
another thread improves that list) only saves work. So lists do not depend on the number of threads.
"""

from typing import Any

import numpy as np

from scalable_gpe.loops.compiled import njit
from scalable_gpe.loops.vectors import four_squares

_OPTIONS: dict[str, Any] = {"nogil": True, "cache": True, "error_model": "numpy", "no_cfunc_wrapper": True}
_loop = njit(**_OPTIONS)
_inner = njit(**{**_OPTIONS, "no_cpython_wrapper": True})

EMPTY = np.uint64(2**64 - 1)  # an entry of a list
NOTHING = np.uint32(2**32 - 1)  # an entry of a sample
_NEW = np.uint64(1)
_ROW = np.uint64(0xFFFFFFFE)
_LOW = np.uint64(0x0001_0001_0001_0001)
_HIGH = np.uint64(0x8000_8000_8000_8000)
_SURELY = np.float32(0.999)  # a projected distance times this is below the distance, whatever the rounding


@_inner
def _row_of(entry):
    return np.int64((entry & _ROW) >> np.uint64(1))


@_inner
def _entry(bits, row, new):
    return np.uint64(bits) << np.uint64(32) | np.uint64(row) << np.uint64(1) | new


@_inner
def _place(lists, row, entry):
    """Position at which an entry belongs in the list of a row, or -1 if the list holds it or is better throughout."""
    t = lists.shape[1]
    wanted = entry >> _NEW
    while t > 0 and lists[row, t - 1] >> _NEW > wanted:
        t -= 1
    if t == lists.shape[1] or (t > 0 and lists[row, t - 1] >> _NEW == wanted):
        return -1
    return t


@_inner
def _push(lists, row, entry):
    """Insert an entry into the list of a row, unless it is there; the last one is dropped."""
    t = _place(lists, row, entry)
    if t >= 0:
        for q in range(lists.shape[1] - 1, t, -1):
            lists[row, q] = lists[row, q - 1]
        lists[row, t] = entry


@_loop
def start_lists(X, known, found, first, last, lists):
    """Fill the lists of the rows `first` to `last`: `known` neighbours are old entries, `found` ones are new.

    Both hold rows of X, -1 where there is none.
    """
    squares = np.empty(4, np.float32)
    bits = squares.view(np.uint32)
    four = np.empty(4, np.int64)
    n_known = known.shape[1]
    for row in range(first, last):
        n = 0
        for t in range(n_known + found.shape[1] + 1):
            other = np.int64(-1)
            if t < n_known:
                other = np.int64(known[row, t])
            elif t < n_known + found.shape[1]:
                other = np.int64(found[row, t - n_known])
            if other >= 0:
                four[n] = other
                n += 1
            # old and new entries are not mixed in one group
            if n == 4 or (n > 0 and (t == n_known - 1 or t == n_known + found.shape[1])):
                for q in range(n, 4):
                    four[q] = four[0]
                squares[0], squares[1], squares[2], squares[3] = four_squares(
                    X, row, four[0], four[1], four[2], four[3]
                )
                for q in range(n):
                    _push(lists, row, _entry(bits[q], four[q], np.uint64(0) if t < n_known else _NEW))
                n = 0


@_inner
def _ticket(owner, other, seed, mask):
    """A random number above the bits of `mask`, and the row `other` below: the lowest ones are sampled."""
    z = np.uint64(owner) << np.uint64(32) ^ np.uint64(other) ^ seed
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return np.uint32(z) & ~mask | np.uint32(other)


@_inner
def _enter(sample, owner, ticket):
    """Keep a ticket among the lowest of its owner, once."""
    last = sample.shape[1] - 1
    if ticket >= sample[owner, last]:
        return
    t = last
    while t > 0 and sample[owner, t - 1] > ticket:
        t -= 1
    if t > 0 and sample[owner, t - 1] == ticket:
        return
    for q in range(last, t, -1):
        sample[owner, q] = sample[owner, q - 1]
    sample[owner, t] = ticket


@_loop
def sample_new(lists, first, last, seed, mask, sample):
    """Sample, for each row `first` to `last`, new entries of its list, and rows in whose lists it is a new entry."""
    for row in range(first, last):
        for t in range(sample.shape[1]):
            sample[row, t] = NOTHING
    for row in range(lists.shape[0]):
        own = first <= row < last
        for t in range(lists.shape[1]):
            entry = lists[row, t]
            if entry == EMPTY:
                break
            if entry & _NEW:
                other = _row_of(entry)
                if own:
                    _enter(sample, row, _ticket(row, other, seed, mask))
                if first <= other < last:
                    _enter(sample, other, _ticket(other, row, seed, mask))


@_loop
def sample_old(lists, fresh, first, last, seed, mask, sample):
    """The same for entries that are not new, for rows that have a sample of new ones."""
    for row in range(first, last):
        for t in range(sample.shape[1]):
            sample[row, t] = NOTHING
    for row in range(lists.shape[0]):
        own = first <= row < last and fresh[row, 0] != NOTHING
        for t in range(lists.shape[1]):
            entry = lists[row, t]
            if entry == EMPTY:
                break
            if not entry & _NEW:
                other = _row_of(entry)
                if own:
                    _enter(sample, row, _ticket(row, other, seed, mask))
                if first <= other < last and fresh[other, 0] != NOTHING:
                    _enter(sample, other, _ticket(other, row, seed, mask))


@_loop
def mark_sampled(lists, first, last, seed, mask, sample):
    """Mark the entries that were sampled as old ones."""
    for row in range(first, last):
        highest = sample[row, sample.shape[1] - 1]
        for t in range(lists.shape[1]):
            entry = lists[row, t]
            if entry == EMPTY:
                break
            if entry & _NEW and _ticket(row, _row_of(entry), seed, mask) <= highest:
                lists[row, t] = entry & ~_NEW


@_loop
def count_new(lists, first, last, counts):
    """Number of new entries in the lists of the rows `first` to `last`, stored in counts[first]."""
    n = 0
    for row in range(first, last):
        for t in range(lists.shape[1]):
            entry = lists[row, t]
            if entry == EMPTY:
                break
            n += np.int64(entry & _NEW)
    counts[first] = n


@_inner
def _fill(chosen, n):
    """Fill a group of four with its last entry."""
    for q in range(n, n + 3):
        chosen[q] = chosen[n - 1]


@_loop
def join(X, Z, labels, unused, fresh, old, mask, first, last, start, lists, targets, entries):
    """Compare the rows sampled by each of the rows `start` to `last`: new ones with each other and with old ones.

    Two rows are not compared if a 16-bit field of their `labels` is equal (fields of `unused` are not looked at): they
    have been compared before. If Z has features, they are an orthogonal projection of X: a pair that is too far apart
    in it is not compared in X. Entries for the lists of `first` to `last` are inserted; those for others are
    returned in `targets` and `entries`. Returns the row at which they were full, and their number.
    """
    n_sampled, end = fresh.shape[1], lists.shape[1] - 1
    size = 2 * n_sampled + 4
    rows, label, reach = np.empty(size, np.int64), np.empty(size, np.uint64), np.empty(size, np.uint32)
    chosen, squares = np.empty(size, np.int64), np.empty(size, np.float32)
    bits = squares.view(np.uint32)
    n_sent = 0
    for centre in range(start, last):
        if n_sent + 4 * n_sampled * n_sampled > targets.shape[0]:
            return centre, n_sent
        n_fresh = 0
        while n_fresh < n_sampled and fresh[centre, n_fresh] != NOTHING:
            rows[n_fresh] = np.int64(fresh[centre, n_fresh] & mask)
            n_fresh += 1
        if n_fresh == 0:
            continue
        n_rows = n_fresh
        for t in range(n_sampled):
            if old[centre, t] == NOTHING:
                break
            rows[n_rows] = np.int64(old[centre, t] & mask)
            n_rows += 1
        for t in range(n_rows):
            reach[t] = np.uint32(lists[rows[t], end] >> np.uint64(32))
            label[t] = labels[rows[t]]
        for s in range(n_fresh):
            row = rows[s]
            n = 0
            for t in range(s + 1, n_rows):
                x = (label[t] ^ label[s]) | unused
                chosen[n] = t
                n += ((x - _LOW) & ~x & _HIGH) == np.uint64(0)  # no field is zero
            if Z.shape[1] > 0 and n > 0:
                _fill(chosen, n)
                for q in range(0, n, 4):
                    squares[q], squares[q + 1], squares[q + 2], squares[q + 3] = four_squares(
                        Z, row, rows[chosen[q]], rows[chosen[q + 1]], rows[chosen[q + 2]], rows[chosen[q + 3]]
                    )
                n_near = 0
                for q in range(n):
                    squares[q] *= _SURELY
                    chosen[n_near] = chosen[q]
                    n_near += bits[q] <= max(reach[s], reach[chosen[q]])
                n = n_near
            if n == 0:
                continue
            _fill(chosen, n)
            for q in range(0, n, 4):
                squares[q], squares[q + 1], squares[q + 2], squares[q + 3] = four_squares(
                    X, row, rows[chosen[q]], rows[chosen[q + 1]], rows[chosen[q + 2]], rows[chosen[q + 3]]
                )
            for q in range(n):
                t, square = chosen[q], bits[q]
                other = rows[t]
                if other != row:
                    if square <= reach[s]:
                        entry = _entry(square, other, _NEW)
                        if first <= row < last:
                            _push(lists, row, entry)
                        elif _place(lists, row, entry) >= 0:
                            targets[n_sent], entries[n_sent] = row, entry
                            n_sent += 1
                        reach[s] = np.uint32(lists[row, end] >> np.uint64(32))
                    if square <= reach[t]:
                        entry = _entry(square, row, _NEW)
                        if first <= other < last:
                            _push(lists, other, entry)
                        elif _place(lists, other, entry) >= 0:
                            targets[n_sent], entries[n_sent] = other, entry
                            n_sent += 1
                        reach[t] = np.uint32(lists[other, end] >> np.uint64(32))
    return last, n_sent


@_loop
def insert(lists, first, last, targets, entries, n_sent):
    """Insert those entries whose targets are among the rows `first` to `last`."""
    for sender in range(targets.shape[0]):
        for e in range(n_sent[sender]):
            if first <= targets[sender, e] < last:
                _push(lists, targets[sender, e], entries[sender, e])


@_loop
def listed_rows(lists, first, last, out):
    """The rows of the lists, -1 for an empty entry."""
    for row in range(first, last):
        for t in range(lists.shape[1]):
            out[row, t] = np.int32(-1) if lists[row, t] == EMPTY else np.int32(_row_of(lists[row, t]))
