"""Compiled loops over CSR row blocks: products, Chebyshev steps, symmetrising, components.

Every row is summed in its stored order with double accumulators, one column independent of
the others, so no result depends on how rows are cut into blocks or columns into panels.
"""

import numpy as np

from scalable_gpe.loops.compiled import njit
from scalable_gpe.loops.row_product import row_product


@njit(nogil=True, cache=True)
def product(indptr, indices, data, Z, scale, out):
    """``out = diag(scale) K_block Z`` for the rows of one block."""
    width = Z.shape[1]
    sums = np.empty(width)
    for i in range(len(indptr) - 1):
        row_product(data, indices, indptr[i], indptr[i + 1], Z, sums)
        for c in range(width):
            out[i, c] = scale[i] * sums[c]


@njit(nogil=True, cache=True)
def accumulate(total, values, coefficient):
    """``total += coefficient * values``; with the coefficient 0 the values are not read."""
    if coefficient == 0:
        return
    for i in range(total.shape[0]):
        for c in range(total.shape[1]):
            total[i, c] += coefficient * values[i, c]


@njit(nogil=True, cache=True)
def row_sums(indptr, indices, data, vector, out):
    """``out = K_block vector`` in float64."""
    for i in range(len(indptr) - 1):
        total = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            total += data[e] * vector[indices[e]]
        out[i] = total


@njit(nogil=True, cache=True)
def sinkhorn_step(indptr, indices, data, vector, weights, first_row, out):
    """One damped step for the rows of a block, on v = m / d: ``out = m / sqrt(d * K v)``; `weights` are theirs.

    Returns the largest difference of a row sum, ``(K v) / d``, from 1.
    """
    worst = 0.0
    for i in range(len(indptr) - 1):
        total = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            total += data[e] * vector[indices[e]]
        d = weights[i] / vector[first_row + i]
        off = abs(total / d - 1.0)
        if not off <= worst:  # NaN propagates
            worst = off
        out[i] = weights[i] / np.sqrt(d * total)
    return worst


@njit(nogil=True, cache=True)
def gaussian_weights(lengths, epsilon, out):
    """``out = exp(-lengths^2 / epsilon)``, in float64 before it is rounded."""
    for e in range(len(lengths)):
        length = np.float64(lengths[e])
        out[e] = np.exp(-(length * length) / epsilon)


@njit(nogil=True, cache=True)
def local_weights(indptr, indices, lengths, first_row, sigma, out):
    """``out = exp(-lengths^2 / (sigma_i sigma_j))``, in float64 before it is rounded."""
    for i in range(len(indptr) - 1):
        own = np.float64(sigma[first_row + i])
        for e in range(indptr[i], indptr[i + 1]):
            length = np.float64(lengths[e])
            out[e] = np.exp(-(length * length) / (own * np.float64(sigma[indices[e]])))


def bucket_edges(indices, distances, first_row, block_rows, n_blocks):
    """Reverse the edges that leave one block of lists, and sort them by the block of their target.

    Returns ``offsets`` (n_blocks + 1), ``targets``, ``sources``, ``lengths``: the edges into
    block b are at ``offsets[b]:offsets[b + 1]``. Entries of -1 are skipped. Edges inside the block,
    which are most of them, are left to `union_rows`.
    """
    # arrays are made here, because each one that a compiled loop makes costs a tenth of a second to compile
    counts = np.zeros(n_blocks + 1, np.int64)
    _count_targets(indices, first_row, block_rows, counts)
    offsets = np.cumsum(counts)
    targets, sources = np.empty(offsets[-1], np.int32), np.empty(offsets[-1], np.int32)
    lengths = np.empty(offsets[-1], np.float32)
    _reverse(indices, distances, first_row, block_rows, offsets.copy(), targets, sources, lengths)
    return offsets, targets, sources, lengths


@njit(nogil=True, cache=True)
def _count_targets(indices, first_row, block_rows, counts):
    for i in range(indices.shape[0]):
        for c in range(indices.shape[1]):
            j = indices[i, c]
            if j >= 0 and not first_row <= j < first_row + block_rows:
                counts[j // block_rows + 1] += 1


@njit(nogil=True, cache=True)
def _reverse(indices, distances, first_row, block_rows, place, targets, sources, lengths):
    for i in range(indices.shape[0]):
        for c in range(indices.shape[1]):
            j = indices[i, c]
            if j >= 0 and not first_row <= j < first_row + block_rows:
                e = place[j // block_rows]
                place[j // block_rows] += 1
                targets[e], sources[e], lengths[e] = j, first_row + i, distances[i, c]


def union_rows(indices, distances, targets, sources, lengths, first_row, user_row):
    """CSR rows of the union graph: own list, reversed edges and the row itself at distance 0.

    Edges inside the block are reversed here; `targets`, `sources` and `lengths` are the edges from
    other blocks. The entries of a row ascend in the user's row number; an edge that is in both lists
    keeps the smaller length.
    """
    counts = np.zeros(len(indices) + 1, np.int64)
    _count_edges(indices, targets, first_row, counts)
    place = np.cumsum(counts)
    column, length = np.empty(place[-1], np.int32), np.empty(place[-1], np.float32)
    _join_edges(indices, distances, targets, sources, lengths, first_row, place.copy(), column, length)
    indptr = np.zeros(len(indices) + 1, np.int32)
    kept = merge_rows(place, user_row, indptr, column, length)
    return indptr, column[:kept].copy(), length[:kept].copy()


@njit(nogil=True, cache=True)
def place_rows(position, first, place, rows):
    """Append rows, from `first` on, to the lists of their points; `place` is where the next row of each goes."""
    for i in range(position.shape[0]):
        rows[place[position[i]]] = first + i
        place[position[i]] += 1


@njit(nogil=True, cache=True)
def _count_edges(indices, targets, first_row, counts):
    for i in range(indices.shape[0]):
        counts[i + 1] += 1  # the row itself
        for c in range(indices.shape[1]):
            if indices[i, c] >= 0:
                counts[i + 1] += 1
                own = indices[i, c] - first_row
                if 0 <= own < indices.shape[0]:
                    counts[own + 1] += 1
    for e in range(targets.shape[0]):
        counts[targets[e] - first_row + 1] += 1


@njit(nogil=True, cache=True)
def _join_edges(indices, distances, targets, sources, lengths, first_row, place, column, length):
    for i in range(indices.shape[0]):
        column[place[i]] = first_row + i
        length[place[i]] = 0.0
        place[i] += 1
        for c in range(indices.shape[1]):
            if indices[i, c] >= 0:
                column[place[i]], length[place[i]] = indices[i, c], distances[i, c]
                place[i] += 1
                own = indices[i, c] - first_row
                if 0 <= own < indices.shape[0]:
                    column[place[own]], length[place[own]] = first_row + i, distances[i, c]
                    place[own] += 1
    for e in range(targets.shape[0]):
        i = targets[e] - first_row
        column[place[i]], length[place[i]] = sources[e], lengths[e]
        place[i] += 1


@njit(nogil=True, cache=True)
def sort_by_rank(points, values, start, stop, rank):
    """Sort the points from `start` to `stop` and their values in place by the rank of the point.

    A shell sort: rows are short, and hubs are few.
    """
    gap = 1
    while 3 * gap + 1 < stop - start:
        gap = 3 * gap + 1
    while gap > 0:
        for e in range(start + gap, stop):
            j, d = points[e], values[e]
            f = e
            while f >= start + gap and rank[points[f - gap]] > rank[j]:
                points[f], values[f] = points[f - gap], values[f - gap]
                f -= gap
            points[f], values[f] = j, d
        gap //= 3


@njit(nogil=True, cache=True)
def merge_rows(place, rank, indptr, column, length):
    """Sort the entries of each row by rank, in place, and close the gaps that double entries leave."""
    kept = 0
    for i in range(place.shape[0] - 1):
        start, stop = place[i], place[i + 1]
        sort_by_rank(column, length, start, stop, rank)
        for e in range(start, stop):
            if kept > indptr[i] and column[kept - 1] == column[e]:
                if length[e] < length[kept - 1]:
                    length[kept - 1] = length[e]
            else:
                column[kept], length[kept] = column[e], length[e]
                kept += 1
        indptr[i + 1] = kept
    return kept


@njit(nogil=True, cache=True)
def unite_rows(indptr, columns, first_row, parent):
    """Merge the trees of `parent` along the edges inside one block; columns outside of it are skipped."""
    n_rows = len(indptr) - 1
    for i in range(n_rows):
        for e in range(indptr[i], indptr[i + 1]):
            a, b = i, columns[e] - first_row
            if not i < b < n_rows:
                continue
            while parent[a] != a:
                parent[a] = parent[parent[a]]
                a = parent[a]
            while parent[b] != b:
                parent[b] = parent[parent[b]]
                b = parent[b]
            if a < b:
                parent[b] = a
            else:
                parent[a] = b


@njit(nogil=True, cache=True)
def weighted_products(left, right, weight, out):
    """``out[c] = sum left[:, c] * right[:, c] / weight``, row after row."""
    width = left.shape[1]
    for c in range(width):
        out[c] = 0.0
    for i in range(len(left)):
        for c in range(width):
            out[c] += np.float64(left[i, c]) * np.float64(right[i, c]) / weight[i]


@njit(nogil=True, cache=True)
def add_by(number, values, factor, totals):
    """``totals[number[i]] += factor[i] * values[i]``, row after row."""
    for i in range(len(values)):
        for c in range(values.shape[1]):
            totals[number[i], c] += factor[i] * np.float64(values[i, c])


@njit(nogil=True, cache=True)
def leave_out(values, free, factor, number, means):
    """``values[i] -= factor[i] * means[number[i]]``, and zero in rows that are not free."""
    for i in range(len(values)):
        for c in range(values.shape[1]):
            values[i, c] = values[i, c] - factor[i] * means[number[i], c] if free[i] else 0.0


@njit(nogil=True, cache=True)
def recurrence_step(indptr, indices, data, current, previous, scale, factor, before):
    """``previous <- factor * diag(scale) K current - before * previous``, rows of one block."""
    width = current.shape[1]
    sums = np.empty(width)
    for i in range(len(indptr) - 1):
        row_product(data, indices, indptr[i], indptr[i + 1], current, sums)
        for c in range(width):
            previous[i, c] = factor[c] * (scale[i] * sums[c]) - before[c] * previous[i, c]


@njit(nogil=True, cache=True)
def touched(indices, piece_rows, flags):
    """Flag the pieces of `piece_rows` rows that hold the rows `indices`."""
    shift = 0
    while 1 << shift < piece_rows:
        shift += 1
    if 1 << shift == piece_rows:
        for e in range(len(indices)):
            flags[indices[e] >> shift] = True
    else:
        for e in range(len(indices)):
            flags[indices[e] // piece_rows] = True


@njit(nogil=True, cache=True)
def column_sums(values, out):
    """Sum of each column, row after row."""
    for c in range(values.shape[1]):
        out[c] = 0.0
    for i in range(values.shape[0]):
        for c in range(values.shape[1]):
            out[c] += values[i, c]


@njit(nogil=True, cache=True)
def centre_rows(values, weights, means, scale):
    """``values <- scale * (values - weights * means)``."""
    for i in range(values.shape[0]):
        for c in range(values.shape[1]):
            values[i, c] = scale[i] * (values[i, c] - weights[i] * means[c])


@njit(nogil=True, cache=True)
def rotate_rows(values, axes, out):
    """``out = values @ axes`` in float64, each row by itself: its bytes do not depend on the rows beside it."""
    width = axes.shape[1]
    total = np.empty(width)
    for i in range(len(values)):
        for c in range(width):
            total[c] = 0.0
        for j in range(axes.shape[0]):
            value = np.float64(values[i, j])
            for c in range(width):
                total[c] += value * axes[j, c]
        for c in range(width):
            out[i, c] = total[c]
