"""Compiled loops of the descent: rows that have a neighbour in common are compared with each other.

A list is a sorted array of 64-bit entries: the bits of a squared distance (float32, never negative, so that they sort
as the distance does), the row, and one bit that says that the entry is new. An entry that is offered twice has the same
distance, so that equal entries are duplicates. A list keeps the best of everything that was ever offered to it, in
whichever order; what an entry is compared with before it is offered (the last entry of a list, perhaps read while
another thread improves that list) only saves work. So lists do not depend on the number of threads.
"""

import numpy as np

from scalable_gpe.loops.compiled import inner_loop, search_loop
from scalable_gpe.loops.vectors import fetch, four_squares

EMPTY = np.uint64(2**64 - 1)  # an entry of a list
NOTHING = np.uint32(2**32 - 1)  # an entry of a sample
_NEW = np.uint64(1)
_ROW = np.uint64(0xFFFFFFFE)
_LOW = np.uint64(0x0001_0001_0001_0001)
_HIGH = np.uint64(0x8000_8000_8000_8000)


@inner_loop
def _row_of(entry):
    return np.int64((entry & _ROW) >> np.uint64(1))


@inner_loop
def _entry(bits, row, new):
    return np.uint64(bits) << np.uint64(32) | np.uint64(row) << np.uint64(1) | new


@inner_loop
def _place(lists, row, n, entry):
    """Position of an entry in a list that holds `n` entries, or -1 if the list holds it or is better throughout."""
    t = n
    wanted = entry >> _NEW
    while t > 0 and lists[row, t - 1] >> _NEW > wanted:
        t -= 1
    if t == lists.shape[1] or (t > 0 and lists[row, t - 1] >> _NEW == wanted):
        return -1
    return t


@inner_loop
def _insert(lists, row, n, entry):
    """Insert an entry into a list that holds `n` entries, unless it is there; return how many it holds then."""
    t = _place(lists, row, n, entry)
    if t < 0:
        return n
    n = min(n + 1, lists.shape[1])
    for q in range(n - 1, t, -1):
        lists[row, q] = lists[row, q - 1]
    lists[row, t] = entry
    return n


@inner_loop
def _push(lists, reach, row, entry):
    """Insert an entry into a list that may be full; the last one is dropped.

    reach[row] holds the bits of the largest distance that may enter the list, of its last entry or less: it is read far
    more often than the list.
    """
    _insert(lists, row, lists.shape[1], entry)
    reach[row] = min(reach[row], np.uint32(lists[row, lists.shape[1] - 1] >> np.uint64(32)))


@inner_loop
def _append_rows(X, row, others, lists, n, new, most, four, squares, bits):
    """Insert the rows `others`, -1 where there is none, that are near enough into a list that holds `n` entries."""
    for t in range(0, others.shape[1], 4):
        m = 0
        for q in range(t, min(t + 4, others.shape[1])):
            four[m] = others[row, q]
            m += others[row, q] >= 0
        if m > 0:
            for q in range(m, 4):
                four[q] = four[0]
            squares[0], squares[1], squares[2], squares[3] = four_squares(X, row, four[0], four[1], four[2], four[3])
            for q in range(m):
                if bits[q] <= most:
                    n = _insert(lists, row, n, _entry(bits[q], four[q], new))
    return n


@search_loop
def start_lists(X, known, found, first, last, lists, reach):
    """Fill the lists of the rows `first` to `last`: `known` neighbours are old entries, `found` ones are new.

    Both hold rows of X, -1 where there is none. reach[row] is the largest distance that may enter, as bits.
    """
    squares, four = np.empty(4, np.float32), np.empty(4, np.int64)
    bits = squares.view(np.uint32)
    for row in range(first, last):
        if row + 1 < last:
            for t in range(found.shape[1]):
                if found[row + 1, t] >= 0:
                    fetch(X, np.int64(found[row + 1, t]))
        n = _append_rows(X, row, known, lists, 0, np.uint64(0), reach[row], four, squares, bits)
        _append_rows(X, row, found, lists, n, _NEW, reach[row], four, squares, bits)
        reach[row] = min(reach[row], np.uint32(lists[row, lists.shape[1] - 1] >> np.uint64(32)))


@inner_loop
def _ticket(owner, other, seed, mask):
    """A random number above the bits of `mask`, and the row `other` below: the lowest ones are sampled."""
    z = np.uint64(owner) << np.uint64(32) ^ np.uint64(other) ^ seed
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return np.uint32(z) & ~mask | np.uint32(other)


@inner_loop
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


@inner_loop
def _clear(sample, first, last):
    for row in range(first, last):
        for t in range(sample.shape[1]):
            sample[row, t] = NOTHING


@inner_loop
def _enter_for_others(sample, row, others, n, seed, mask, tickets, highest):
    """Enter a row for each of `n` others."""
    end = sample.shape[1] - 1
    # all of these are read before any is used, so that they are fetched from memory at the same time
    for t in range(n):
        highest[t] = sample[others[t], end]
        tickets[t] = _ticket(others[t], row, seed, mask)
    for t in range(n):
        if tickets[t] < highest[t]:
            _enter(sample, others[t], tickets[t])


@search_loop
def count_new(lists, first, last, n_new):
    """Number of new entries in the list of each row `first` to `last`."""
    for row in range(first, last):
        n = 0
        for t in range(lists.shape[1]):
            entry = lists[row, t]
            if entry == EMPTY:
                break
            n += np.int64(entry & _NEW)
        n_new[row] = n


@search_loop
def sample_new(lists, n_new, first, last, seed, mask, sample):
    """Sample, for each row `first` to `last`, new entries of its list, and rows in whose lists it is a new entry."""
    _clear(sample, first, last)
    length = lists.shape[1]
    others, tickets, highest = np.empty(length, np.int64), np.empty(length, np.uint32), np.empty(length, np.uint32)
    for row in range(lists.shape[0]):
        if n_new[row] == 0:
            continue
        own = first <= row < last
        n = 0
        for t in range(length):
            entry = lists[row, t]
            if entry == EMPTY:
                break
            other = _row_of(entry)
            if own and entry & _NEW:
                _enter(sample, row, _ticket(row, other, seed, mask))
            others[n] = other
            n += np.int64(entry & _NEW) & (first <= other) & (other < last)
        _enter_for_others(sample, row, others, n, seed, mask, tickets, highest)


@search_loop
def sample_old(lists, n_new, active, first, last, seed, mask, sample):
    """The same for entries that are not new, for rows that are `active`: they have a sample of new ones."""
    _clear(sample, first, last)
    length = lists.shape[1]
    others, tickets, highest = np.empty(length, np.int64), np.empty(length, np.uint32), np.empty(length, np.uint32)
    for row in range(lists.shape[0]):
        if n_new[row] == length:
            continue
        own = active[row] and first <= row < last
        n = 0
        for t in range(length):
            entry = lists[row, t]
            if entry == EMPTY:
                break
            other = _row_of(entry)
            if not entry & _NEW:
                if own:
                    _enter(sample, row, _ticket(row, other, seed, mask))
                others[n] = other
                n += active[other] & (first <= other) & (other < last)
        _enter_for_others(sample, row, others, n, seed, mask, tickets, highest)


@search_loop
def mark_sampled(lists, first, last, seed, mask, sample):
    """Mark the entries that were sampled as old ones."""
    for row in range(first, last):
        if sample[row, 0] == NOTHING:
            continue
        highest = sample[row, sample.shape[1] - 1]
        for t in range(lists.shape[1]):
            entry = lists[row, t]
            if entry == EMPTY:
                break
            if entry & _NEW and _ticket(row, _row_of(entry), seed, mask) <= highest:
                lists[row, t] = entry & ~_NEW


@search_loop
def join(X, labels, unused, fresh, old, mask, first, last, start, lists, reach, targets, entries):
    """Compare the rows sampled by each of the rows `start` to `last`: new ones with each other and with old ones.

    Two rows are not compared if a 16-bit field of their `labels` is equal (fields of `unused` are not looked at): they
    have been compared before. Entries for the lists of `first` to `last` are inserted; those for others are returned in
    `targets` and `entries`. Returns the row at which these were full, and their number.
    """
    n_sampled = fresh.shape[1]
    size = 2 * n_sampled + 4
    rows, label, near = np.empty(size, np.int64), np.empty(size, np.uint64), np.empty(size, np.uint32)
    chosen, squares = np.empty(size, np.int64), np.empty(size, np.float32)
    bits = squares.view(np.uint32)
    most = 4 * n_sampled * n_sampled  # entries that one centre can offer
    owner, offered = np.empty(most, np.int64), np.empty(most, np.uint64)
    n_sent = 0
    for centre in range(start, last):
        if n_sent + most > targets.shape[0]:
            return centre, n_sent
        if centre + 1 < last:
            for t in range(n_sampled):
                if fresh[centre + 1, t] != NOTHING:
                    fetch(X, np.int64(fresh[centre + 1, t] & mask))
                if old[centre + 1, t] != NOTHING:
                    fetch(X, np.int64(old[centre + 1, t] & mask))
        n_fresh = n_offered = 0
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
            near[t] = reach[rows[t]]
            label[t] = labels[rows[t]]
        for s in range(n_fresh):
            row = rows[s]
            n = 0
            for t in range(s + 1, n_rows):
                x = (label[t] ^ label[s]) | unused
                chosen[n] = t
                n += ((x - _LOW) & ~x & _HIGH) == np.uint64(0)  # no field is zero
            if n == 0:
                continue
            for q in range(n, n + 3):  # the last group of four is filled up
                chosen[q] = chosen[n - 1]
            for q in range(0, n, 4):
                squares[q], squares[q + 1], squares[q + 2], squares[q + 3] = four_squares(
                    X, row, rows[chosen[q]], rows[chosen[q + 1]], rows[chosen[q + 2]], rows[chosen[q + 3]]
                )
            for q in range(n):
                t, square = chosen[q], bits[q]
                other = rows[t]
                if other != row:
                    if square <= near[s]:
                        fetch(lists, row)
                        owner[n_offered], offered[n_offered] = row, _entry(square, other, _NEW)
                        n_offered += 1
                    if square <= near[t]:
                        fetch(lists, other)
                        owner[n_offered], offered[n_offered] = other, _entry(square, row, _NEW)
                        n_offered += 1
        for e in range(n_offered):
            if first <= owner[e] < last:
                _push(lists, reach, owner[e], offered[e])
            elif _place(lists, owner[e], lists.shape[1], offered[e]) >= 0:
                targets[n_sent], entries[n_sent] = owner[e], offered[e]
                n_sent += 1
    return last, n_sent


@search_loop
def insert(lists, reach, first, last, targets, entries, n_sent):
    """Insert those entries whose targets are among the rows `first` to `last`."""
    for sender in range(targets.shape[0]):
        for e in range(n_sent[sender]):
            if first <= targets[sender, e] < last:
                _push(lists, reach, targets[sender, e], entries[sender, e])


@search_loop
def listed_rows(lists, first, last, out):
    """The rows of the lists, -1 for an empty entry."""
    for row in range(first, last):
        for t in range(lists.shape[1]):
            out[row, t] = np.int32(-1) if lists[row, t] == EMPTY else np.int32(_row_of(lists[row, t]))
