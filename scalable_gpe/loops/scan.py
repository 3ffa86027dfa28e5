"""Compiled loops of exact scans: sampled rows against all rows, block by block.

Samples are stored feature by feature, filled up to a multiple of `TILE` samples, so that the inner loop runs over
samples. Each sample, of which there are as many as numbers in `own`, has its own results.
"""

import numpy as np

from scalable_gpe.loops.compiled import njit
from scalable_gpe.loops.sorting import insert_nearest, is_nearer
from scalable_gpe.loops.vectors import tile_squares

_BIN_SHIFT = np.int64(16)  # of the bits of a float32: 128 bins per octave
N_BINS = 1 << 15


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
