"""Compiled loops over rows of points: hashes, exact distances, exact scans."""

import numpy as np
from numba import njit

_ODD_1, _ODD_2 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)
_BIN_SHIFT = np.int64(16)  # of the bits of a float32: 128 bins per octave
N_BINS = 1 << 15


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
            total = 0.0
            for f in range(points.shape[1]):
                step = np.float64(points[rows[i], f]) - np.float64(points[j, f])
                total += step * step
            out[i, c] = total


@njit(nogil=True, cache=True)
def scan(samples, block, skip, n_keep, nearest, histogram):
    """Compare sampled points with a block of rows, exactly.

    ``samples`` is features x samples, so that the inner loop runs over samples. For each sample
    the `n_keep` smallest squared distances of the block go to ``nearest`` (sorted), rows in its
    sorted ``skip`` list left out of the histogram (of the bits of the squared distance) but not
    of ``nearest``; a row equal to the sample is left out of both.
    """
    n_features, n_samples = samples.shape
    squared = np.empty(n_samples, np.float32)
    place = np.zeros(n_samples, np.int64)
    nearest[:] = np.inf
    for i in range(block.shape[0]):
        squared[:] = 0
        for f in range(n_features):
            x = block[i, f]
            for m in range(n_samples):
                step = x - samples[f, m]
                squared[m] += step * step
        for m in range(n_samples):
            d = squared[m]
            if d == 0:
                continue
            if d < nearest[m, n_keep - 1]:
                c = n_keep - 1
                while c > 0 and nearest[m, c - 1] > d:
                    nearest[m, c] = nearest[m, c - 1]
                    c -= 1
                nearest[m, c] = d
            while place[m] < skip.shape[1] and skip[m, place[m]] < i:
                place[m] += 1
            if place[m] < skip.shape[1] and skip[m, place[m]] == i:
                continue
            histogram[_bits(d) >> _BIN_SHIFT] += 1


@njit(nogil=True, cache=True, inline="always")
def _bits(value):
    return np.int64(np.float32(value).view(np.int32))


@njit(nogil=True, cache=True)
def order_lists(indices, lengths, rank):
    """Sort each list in place by (length, rank of the neighbour); entries of -1 go last."""
    n_neighbors = indices.shape[1]
    for i in range(indices.shape[0]):
        for c in range(1, n_neighbors):
            j, d = indices[i, c], lengths[i, c]
            e = c
            while e > 0 and _after(indices[i, e - 1], lengths[i, e - 1], j, d, rank):
                indices[i, e], lengths[i, e] = indices[i, e - 1], lengths[i, e - 1]
                e -= 1
            indices[i, e], lengths[i, e] = j, d


@njit(nogil=True, cache=True, inline="always")
def _after(a, a_length, b, b_length, rank):
    if b < 0:
        return False
    if a < 0 or a_length > b_length:
        return True
    return a_length == b_length and rank[a] > rank[b]
