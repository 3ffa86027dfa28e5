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
NOTHING = np.uint32(2**32 - 1)  # as a distance: any may enter
_BATCH = 512  # sampled entries that are fetched from memory at the same time
NEW = np.uint64(1)
ROW = np.uint64(0xFFFFFFFE)
_LOW = np.uint64(0x0001_0001_0001_0001)
_HIGH = np.uint64(0x8000_8000_8000_8000)


@inner_loop
def _row_of(entry):
    return np.int64((entry & ROW) >> np.uint64(1))


@inner_loop
def _entry(bits, row, new):
    return np.uint64(bits) << np.uint64(32) | np.uint64(row) << np.uint64(1) | new


@inner_loop
def _place(lists, row, n, entry):
    """Position of an entry in a list that holds `n` entries, or -1 if the list holds it or is better throughout."""
    wanted = entry >> NEW
    n_better = n_equal = 0
    for t in range(n):
        one = lists[row, t] >> NEW
        n_better += one < wanted
        n_equal += one == wanted
    return -1 if n_equal > 0 or n_better == lists.shape[1] else n_better


@inner_loop
def _insert(lists, row, n, entry):
    """Insert an entry into a list that holds `n` entries, unless it is there; return how many it holds then."""
    t = _place(lists, row, n, entry)
    if t < 0:
        return n
    n = min(n + 1, lists.shape[1])
    for q in range(t, n):
        entry, lists[row, q] = lists[row, q], entry
    return n


@inner_loop
def _push(lists, reach, row, entry):
    """Insert an entry into a list that may be full; the last one is dropped.

    reach[row] holds the bits of the largest distance that may enter the list, of its last entry or less: it is read far
    more often than the list.
    """
    length = lists.shape[1]
    t = _place(lists, row, length, entry)
    if t >= 0:
        for q in range(length - 1, t, -1):
            lists[row, q] = lists[row, q - 1]
        lists[row, t] = entry
        reach[row] = min(reach[row], np.uint32(lists[row, length - 1] >> np.uint64(32)))


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
        _append_rows(X, row, found, lists, n, NEW, reach[row], four, squares, bits)
        reach[row] = min(reach[row], np.uint32(lists[row, lists.shape[1] - 1] >> np.uint64(32)))


@inner_loop
def _ticket(owner, other, seed):
    """A random number of two rows: a low one is sampled."""
    z = np.uint64(owner) << np.uint64(32) ^ np.uint64(other) ^ seed
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.uint32(z >> np.uint64(32))


@search_loop
def count_new(lists, first, last, n_new):
    """Number of new entries in the list of each row `first` to `last`."""
    for row in range(first, last):
        n = 0
        for t in range(lists.shape[1]):
            entry = lists[row, t]
            if entry == EMPTY:
                break
            n += np.int64(entry & NEW)
        n_new[row] = n


@search_loop
def choose_tickets(lists, first, last, n_wanted, highest):
    """Choose the tickets that are sampled for the rows `first` to `last`: those below highest[row, new].

    Entries of a row's list are counted, and lists that it is in. Nothing is sampled for a row without new ones.
    """
    for row in range(first, last):
        highest[row, 0] = highest[row, 1] = 0
    for row in range(lists.shape[0]):
        own = first <= row < last
        for t in range(lists.shape[1]):
            entry = lists[row, t]
            if entry == EMPTY:
                break
            new, other = np.int64(entry & NEW), _row_of(entry)
            if own:
                highest[row, new] += np.uint32(1)
            if first <= other < last:
                highest[other, new] += np.uint32(1)
    for row in range(first, last):
        is_active = highest[row, 1] > 0
        for new in range(2):
            n = highest[row, new]
            share = min(np.float64(n_wanted) / max(n, 1), 1.0)
            highest[row, new] = np.uint32(share * NOTHING) if is_active and n > 0 else np.uint32(0)


@inner_loop
def _enter(samples, n_samples, place, row):
    """Append a row to a sample that is not full, once."""
    n = np.int64(n_samples[place])
    n_equal = 0
    for t in range(n):
        n_equal += samples[place, t] == row
    if n_equal == 0 and n < samples.shape[1]:
        samples[place, n] = row
        n_samples[place] = n + 1


@search_loop
def sample_entries(lists, first, last, seed, highest, samples, n_samples):
    """Sample, for each row `first` to `last`, entries of its list, and rows in whose lists it is.

    New entries go to samples[2 * row + 1], others to samples[2 * row]. What fills a sample first is kept: lists are
    read in one order, whatever the range.
    """
    n_samples[2 * first : 2 * last] = 0
    length = lists.shape[1]
    size = _BATCH + 2 * length
    places, rows = np.empty(size, np.int64), np.empty(size, np.uint32)
    n = 0
    for row in range(lists.shape[0]):
        own = first <= row < last
        for t in range(length):
            entry = lists[row, t]
            if entry == EMPTY:
                break
            new, other = np.int64(entry & NEW), _row_of(entry)
            if own:
                places[n], rows[n] = 2 * row + new, other
                n += _ticket(row, other, seed) < highest[row, new]
            if first <= other < last and _ticket(other, row, seed) < highest[other, new]:
                places[n], rows[n] = 2 * other + new, row
                fetch(samples, places[n])
                n += 1
        if n >= _BATCH or row == lists.shape[0] - 1:
            for e in range(n):
                _enter(samples, n_samples, places[e], rows[e])
            n = 0


@search_loop
def mark_sampled(lists, first, last, seed, highest):
    """Mark the new entries whose tickets were low enough as old ones, also those for which a sample had no place."""
    for row in range(first, last):
        if highest[row, 1] == 0:
            continue
        for t in range(lists.shape[1]):
            entry = lists[row, t]
            if entry == EMPTY:
                break
            if entry & NEW and _ticket(row, _row_of(entry), seed) < highest[row, 1]:
                lists[row, t] = entry & ~NEW


@inner_loop
def _gather(samples, n_samples, centre, rows):
    """Write the sampled rows of a centre, new ones first, and return the number of these and of all."""
    n_new, n_old = np.int64(n_samples[2 * centre + 1]), np.int64(n_samples[2 * centre])
    for t in range(n_new):
        rows[t] = samples[2 * centre + 1, t]
    for t in range(n_old):
        rows[n_new + t] = samples[2 * centre, t]
    for t in range(n_new + n_old, n_new + n_old + 3):  # the last group of four is filled up
        rows[t] = rows[0]
    return n_new, n_new + n_old


@inner_loop
def _without_label_in_common(label, s, n_rows, unused, hit):
    """Mark the rows that have no label in common with row `s`."""
    own = label[s]
    for t in range(n_rows):
        x = (label[t] ^ own) | unused
        hit[t] = np.uint8(((x - _LOW) & ~x & _HIGH) == np.uint64(0))  # no field is zero


@inner_loop
def _keep_near(bits, near, s, n_rows, hit):
    """Unmark the rows whose distance is too large for both lists, their own and that of row `s`."""
    own = near[s]
    for t in range(n_rows):
        hit[t] &= np.uint8(bits[t] <= max(own, near[t]))


@search_loop
def join(X, labels, unused, samples, n_samples, first, last, start, lists, reach, targets, entries):
    """Compare the rows sampled by each of the rows `start` to `last`: new ones with each other and with old ones.

    Two rows are not compared if a 16-bit field of their `labels` is equal (fields of `unused` are not looked at): they
    have been compared before. Entries for the lists of `first` to `last` are inserted; those for others are returned in
    `targets` and `entries`. Returns the row at which these were full, and their number.
    """
    n_sampled, length = samples.shape[1], lists.shape[1]
    size = 2 * n_sampled + 16
    rows, label, near = np.zeros(size, np.int64), np.zeros(size, np.uint64), np.zeros(size, np.uint32)
    hit, squares = np.zeros(size, np.uint8), np.zeros(size, np.float32)
    bits = squares.view(np.uint32)
    most = 4 * n_sampled * n_sampled  # entries that one centre can offer
    owner, offered = np.empty(most, np.int64), np.empty(most, np.uint64)
    n_sent = 0
    for centre in range(start, last):
        if n_sent + most > targets.shape[0]:
            return centre, n_sent
        if centre + 1 < last:
            for place in range(2 * centre + 2, 2 * centre + 4):
                for t in range(n_samples[place]):
                    fetch(X, np.int64(samples[place, t]))
        if n_samples[2 * centre + 1] == 0:
            continue
        n_new_rows, n_rows = _gather(samples, n_samples, centre, rows)
        for t in range(n_rows):
            near[t] = reach[rows[t]]
            label[t] = labels[rows[t]]
        n_offered = 0
        for s in range(n_new_rows):
            row = rows[s]
            _without_label_in_common(label, s, n_rows, unused, hit)
            for q in range(s + 1, n_rows, 4):
                if hit[q] | hit[q + 1] | hit[q + 2] | hit[q + 3]:
                    squares[q], squares[q + 1], squares[q + 2], squares[q + 3] = four_squares(
                        X, row, rows[q], rows[q + 1], rows[q + 2], rows[q + 3]
                    )
            _keep_near(bits, near, s, n_rows, hit)
            for t in range(s + 1, n_rows):
                if hit[t] and rows[t] != row:
                    other, square = rows[t], bits[t]
                    if square <= near[s]:
                        fetch(lists, row)
                        owner[n_offered], offered[n_offered] = row, _entry(square, other, NEW)
                        n_offered += 1
                    if square <= near[t]:
                        fetch(lists, other)
                        owner[n_offered], offered[n_offered] = other, _entry(square, row, NEW)
                        n_offered += 1
        for e in range(n_offered):
            if first <= owner[e] < last:
                # `_push`, written out: most entries are in the list already, and a call takes longer than to see it
                row, wanted = owner[e], offered[e] >> NEW
                n_better = n_equal = np.int32(0)
                for t in range(length):
                    one = lists[row, t] >> NEW
                    n_better += np.int32(one < wanted)
                    n_equal += np.int32(one == wanted)
                if n_equal == 0 and n_better < length:
                    for t in range(length - 1, n_better, -1):
                        lists[row, t] = lists[row, t - 1]
                    lists[row, n_better] = offered[e]
                    reach[row] = min(reach[row], np.uint32(lists[row, length - 1] >> np.uint64(32)))
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
