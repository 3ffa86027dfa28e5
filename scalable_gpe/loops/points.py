"""Compiled loops over rows of points: hashes, exact distances, order of the lists."""

import numpy as np

from scalable_gpe.loops.compiled import njit
from scalable_gpe.loops.sorting import insert_nearest
from scalable_gpe.loops.vectors import exact_square

_ODD_1, _ODD_2 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)


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
