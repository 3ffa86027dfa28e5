"""Compiled loops over rows of points: hashes, exact distances, sorted lists, scans of samples and of new rows.

Samples of a scan are stored feature by feature, filled up to a multiple of `TILE` samples, so that the inner loop runs
over samples. Each sample, of which there are as many as numbers in `own`, has its own results.

For new rows, stored points are cut into *leaves* of L consecutive points, kept feature by feature (leaf, feature,
point), each with its bounding box. A leaf is skipped if its box is farther away than both the current search limit of
the new row and the largest radius of the leaf's points. Screening may round; float64 sums decide what is kept, so the
result for a row depends on nothing but the row and the points.
"""

import numpy as np

from scalable_gpe.loops.compiled import inner_loop, njit
from scalable_gpe.loops.vectors import exact_square, tile_squares

_ODD_1, _ODD_2 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)
_BIN_SHIFT = np.int64(16)  # of the bits of a float32: 128 bins per octave
N_BINS = 1 << 15


@inner_loop
def is_nearer(square, number, other_square, other, rank=None):
    """Whether a number goes before another one (-1: an empty entry), by square and then by number or its rank."""
    if square != other_square or other < 0:
        return square <= other_square
    if rank is None:
        return number < other
    return rank[number] < rank[other]


@inner_loop
def insert_nearest(numbers, squares, number, square, rank=None):
    """Insert a number into a list that is sorted as `is_nearer` tells; the last one is dropped."""
    t = numbers.shape[0] - 1
    while t > 0 and is_nearer(square, number, squares[t - 1], numbers[t - 1], rank):
        squares[t], numbers[t] = squares[t - 1], numbers[t - 1]
        t -= 1
    squares[t], numbers[t] = square, number


@njit(nogil=True, cache=True)
def hash_rows(bits, out):
    """Two 64-bit hashes of each row of float32 bit patterns."""
    for i in range(bits.shape[0]):
        a, b = _ODD_2, _ODD_1
        for c in range(bits.shape[1]):
            word = np.uint64(bits[i, c])
            a = (a ^ word) * _ODD_1
            a ^= a >> np.uint64(29)
            b = (b + word) * _ODD_2
            b ^= b >> np.uint64(32)
        out[i, 0], out[i, 1] = a, b


@njit(nogil=True, cache=True)
def list_squares(points, rows, indices, out):
    """``out[i, c] = |points[rows[i]] - points[indices[i, c]]|^2``: float64 sums of float32 differences."""
    for i in range(indices.shape[0]):
        for c in range(indices.shape[1]):
            j = indices[i, c]
            out[i, c] = exact_square(points, rows[i], j)


@njit(nogil=True, cache=True)
def order_lists(indices, lengths, rank):
    """Sort each list in place by (length, rank of the neighbour)."""
    for i in range(indices.shape[0]):
        for c in range(1, indices.shape[1]):
            insert_nearest(indices[i, : c + 1], lengths[i, : c + 1], indices[i, c], lengths[i, c], rank)


@njit(nogil=True, cache=True)
def _squares(samples, block, first, squares):
    """``squares[r, m]`` of the rows first + r and all samples, for four rows or what is left; returns how many."""
    last = block.shape[0] - 1
    tile_squares(samples, block, first, min(first + 1, last), min(first + 2, last), min(first + 3, last), squares)
    return min(4, block.shape[0] - first)


@njit(nogil=True, cache=True)
def nearest_rows(samples, own, block, ids, squares_kept, ids_kept, histogram):
    """Keep the nearest rows of a block for each sample, except the sample itself.

    If ``histogram`` has bins, it counts the squared distances above 0 of all samples, by the leading bits.
    """
    squares = np.empty((4, samples.shape[1]), np.float32)
    counting, last = histogram.shape[0] > 0, ids_kept.shape[1] - 1
    for first in range(0, block.shape[0], 4):
        for r in range(_squares(samples, block, first, squares)):
            i, square = first + r, squares[r]
            for m in range(own.shape[0]):
                if ids[i] != own[m]:
                    worst = squares_kept[m, last]
                    if square[m] <= worst and is_nearer(square[m], ids[i], worst, ids_kept[m, last]):
                        insert_nearest(ids_kept[m], squares_kept[m], ids[i], square[m])
                    if counting and square[m] > 0:
                        histogram[_bin(square[m])] += 1


@njit(nogil=True, cache=True, inline="always")
def _bin(square):
    return np.int64(np.float32(square).view(np.int32)) >> _BIN_SHIFT


@njit(nogil=True, cache=True)
def count_bins(squares, histogram, step):
    """Add `step` to the bin of each squared distance above 0."""
    for e in range(squares.shape[0]):
        if squares[e] > 0:
            histogram[_bin(squares[e])] += step


@njit(nogil=True, cache=True)
def dense_mass(samples, own, block, ids, epsilon, scale, mass):
    """Add ``exp(-d^2 / (epsilon scale))`` of the rows of a block, except the sample itself, to each sample's mass.

    ``epsilon`` belongs to the samples, ``scale`` to the rows of the block.
    """
    squares = np.empty((4, samples.shape[1]), np.float32)
    for first in range(0, block.shape[0], 4):
        for r in range(_squares(samples, block, first, squares)):
            i, square = first + r, squares[r]
            for m in range(own.shape[0]):
                width = epsilon[m] * scale[i]
                if square[m] < 60 * width and ids[i] != own[m]:
                    mass[m] += np.exp(-np.float64(square[m]) / width)


@njit(nogil=True, cache=True)
def count_closer(samples, own, block, ids, limits, counts):
    """``counts[m, c]`` grows by the rows of a block with ``limits[m, c - 1] <= d^2 < limits[m, c]``."""
    last = limits.shape[1] - 1
    squares = np.empty((4, samples.shape[1]), np.float32)
    for first in range(0, block.shape[0], 4):
        for r in range(_squares(samples, block, first, squares)):
            i, square = first + r, squares[r]
            for m in range(own.shape[0]):
                if square[m] < limits[m, last] and ids[i] != own[m]:
                    c = 0
                    while square[m] >= limits[m, c]:
                        c += 1
                    counts[m, c] += 1


@njit(nogil=True, cache=True)
def pair_squares(left, right, out):
    """``out[e] = |left[e] - right[e]|^2``, rounded as the other loops round it."""
    for e in range(left.shape[0]):
        total = np.float32(0)
        for f in range(left.shape[1]):
            step = right[e, f] - left[e, f]
            total += step * step
        out[e] = total


@njit(nogil=True, cache=True)
def seed_limits(rows, heads, sums, nearest, best, limits):
    """First search limit of each row: squared distance to its n-th nearest among the first points of the leaves."""
    n_leaves, n_keep, width = heads.shape[1], best.shape[1], len(sums)
    for r in range(rows.shape[0]):
        best[r] = np.inf
        nearest[:] = -1
        for start in range(0, n_leaves, width):
            count = min(width, n_leaves - start)
            for m in range(len(sums)):
                sums[m] = 0
            for f in range(rows.shape[1]):
                x = rows[r, f]
                for m in range(count):
                    step = heads[f, start + m] - x
                    sums[m] += step * step
            for m in range(count):
                if sums[m] < best[r, n_keep - 1]:
                    insert_nearest(nearest, best[r], start + m, sums[m])
        limits[r] = best[r, n_keep - 1]


@njit(nogil=True, cache=True)
def bound_leaves(rows, low, high, first, out):
    """Squared distance of each row to the box of each leaf, from leaf `first` on."""
    for r in range(rows.shape[0]):
        out[r] = 0
        for f in range(rows.shape[1]):
            x = rows[r, f]
            for b in range(out.shape[1]):
                gap = max(low[f, first + b] - x, x - high[f, first + b])
                if gap > 0:
                    out[r, b] += gap * gap


@njit(nogil=True, cache=True)
def search_leaves(
    rows, leaves, first, bounds, reach, radius, user_row, slack, sums, limits, best, nearest, match, hits, squares
):
    """Search some leaves for each row.

    ``best`` and ``nearest`` keep the n nearest points so far, sorted by (squared distance, the user's row), ``limits``
    the squared distance beyond which no point is needed, ``match`` a point that equals the row. ``hits`` (row, point)
    and ``squares`` get the points that have the row within their own ``radius``; their number is returned.
    """
    n_rows, n_features = rows.shape
    size, n_points, last = leaves.shape[2], len(radius), best.shape[1] - 1
    n_hits = 0
    for b in range(leaves.shape[0]):
        start = (first + b) * size
        count = min(size, n_points - start)
        for r in range(n_rows):
            near = bounds[r, b] * slack
            if near > limits[r] and near > reach[first + b]:
                continue
            for m in range(len(sums)):
                sums[m] = 0
            for f in range(n_features):
                x = rows[r, f]
                for m in range(size):
                    step = leaves[b, f, m] - x
                    sums[m] += step * step
            for m in range(count):
                j = start + m
                near = sums[m] * slack
                if near > limits[r] and near > np.float64(radius[j]) * np.float64(radius[j]):
                    continue
                total = 0.0
                for f in range(n_features):
                    exact = np.float64(leaves[b, f, m]) - np.float64(rows[r, f])
                    total += exact * exact
                if total == 0.0 and (match[r] < 0 or user_row[j] < user_row[match[r]]):
                    match[r] = j
                if np.sqrt(np.float32(total)) <= radius[j]:
                    hits[n_hits, 0], hits[n_hits, 1], squares[n_hits] = r, j, total
                    n_hits += 1
                if is_nearer(total, j, best[r, last], nearest[r, last], user_row):
                    insert_nearest(nearest[r], best[r], j, total, user_row)
                    limits[r] = min(limits[r], best[r, last])
    return n_hits
