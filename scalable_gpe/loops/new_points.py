"""Compiled loops for new rows: exact search through boxes of stored points.

Stored points are cut into *leaves* of L consecutive points, kept feature by feature (leaf, feature, point), each
with its bounding box. A leaf is skipped if its box is farther away than both the current search limit of the new row
and the largest radius of the leaf's points. Screening may round; float64 sums decide what is kept, so the result for a
row depends on nothing but the row and the points.
"""

import numpy as np

from scalable_gpe.loops.compiled import njit
from scalable_gpe.loops.sorting import insert_nearest, is_nearer


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
