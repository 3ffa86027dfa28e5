"""Compiled sorts of short rows, and lists of the nearest."""

from scalable_gpe.loops.compiled import inner_loop, njit


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
