"""Compiled sorts of short rows."""

from scalable_gpe.loops.compiled import njit


@njit(nogil=True, cache=True)
def sort_by_rank(points, values, rank):
    """Sort points and their values in place by the rank of the point.

    A shell sort: rows are short, and hubs are few.
    """
    gap = 1
    while 3 * gap + 1 < points.shape[0]:
        gap = 3 * gap + 1
    while gap > 0:
        for e in range(gap, points.shape[0]):
            j, d = points[e], values[e]
            f = e
            while f >= gap and rank[points[f - gap]] > rank[j]:
                points[f], values[f] = points[f - gap], values[f - gap]
                f -= gap
            points[f], values[f] = j, d
        gap //= 3
