"""Compiled loops of the audit: sampled rows against all rows, block by block.

Samples come feature by feature, so that the inner loop runs over samples; each sample has results of its own.
"""

import numpy as np
from numba import njit


@njit(nogil=True, cache=True, inline="always")
def _squares(samples, block, i, squares):
    squares[:] = 0
    for f in range(samples.shape[0]):
        x = block[i, f]
        for m in range(samples.shape[1]):
            step = x - samples[f, m]
            squares[m] += step * step


@njit(nogil=True, cache=True)
def nearest_rows(samples, own, block, ids, squares_kept, ids_kept):
    """Keep the nearest rows of a block for each sample (its own number left out), sorted by (distance, number)."""
    n_samples, last = samples.shape[1], ids_kept.shape[1] - 1
    squares = np.empty(n_samples, np.float32)
    for i in range(block.shape[0]):
        _squares(samples, block, i, squares)
        for m in range(n_samples):
            d, j = squares[m], ids[i]
            if j == own[m] or not _before(d, j, squares_kept[m, last], ids_kept[m, last]):
                continue
            c = last
            while c > 0 and _before(d, j, squares_kept[m, c - 1], ids_kept[m, c - 1]):
                squares_kept[m, c], ids_kept[m, c] = squares_kept[m, c - 1], ids_kept[m, c - 1]
                c -= 1
            squares_kept[m, c], ids_kept[m, c] = d, j


@njit(nogil=True, cache=True, inline="always")
def _before(square, number, other_square, other):
    return square < other_square or (square == other_square and (other < 0 or number < other))


@njit(nogil=True, cache=True)
def dense_mass(samples, own, block, ids, epsilon, scale, mass):
    """Add ``exp(-d^2 / (epsilon scale))`` of the rows of a block to each sample's mass, the sample itself left out.

    ``epsilon`` belongs to the samples, ``scale`` to all rows, by their numbers.
    """
    n_samples = samples.shape[1]
    squares = np.empty(n_samples, np.float32)
    for i in range(block.shape[0]):
        _squares(samples, block, i, squares)
        for m in range(n_samples):
            width = epsilon[m] * scale[ids[i]]
            if squares[m] < 60 * width and ids[i] != own[m]:
                mass[m] += np.exp(-np.float64(squares[m]) / width)


@njit(nogil=True, cache=True)
def count_closer(samples, own, block, ids, limits, counts):
    """``counts[m, c]`` grows by the rows of a block with ``limits[m, c - 1] <= d^2 < limits[m, c]``."""
    n_samples, last = samples.shape[1], limits.shape[1] - 1
    squares = np.empty(n_samples, np.float32)
    for i in range(block.shape[0]):
        _squares(samples, block, i, squares)
        for m in range(n_samples):
            if squares[m] < limits[m, last] and ids[i] != own[m]:
                c = 0
                while squares[m] >= limits[m, c]:
                    c += 1
                counts[m, c] += 1


@njit(nogil=True, cache=True)
def pair_squares(samples, others, limits):
    """Squared distances of sample m to its own rows ``others[m]``, rounded as the other loops round them."""
    for m in range(others.shape[0]):
        for c in range(others.shape[1]):
            total = np.float32(0)
            for f in range(samples.shape[1]):
                step = others[m, c, f] - samples[m, f]
                total += step * step
            limits[m, c] = total
