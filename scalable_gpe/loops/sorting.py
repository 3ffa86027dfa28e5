"""Compiled sorts of short rows."""

from scalable_gpe.loops.compiled import njit


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
