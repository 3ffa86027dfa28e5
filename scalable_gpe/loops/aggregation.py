"""Compiled loops of the two-level solver: aggregates of rows, the coarse matrix, and the steps between the levels."""

import numpy as np

from scalable_gpe.loops.compiled import njit
from scalable_gpe.loops.row_product import row_product

_FREE = -1
_STRONG = 0.2  # share from which an aggregate begins with a neighbour


def aggregate_rows(indptr, indices, coupling, least, n_strong):
    """Cut the rows of a symmetric matrix into aggregates of neighbours; return their labels and the number of them.

    Rows are visited in order. A row whose strong neighbours are all free makes an aggregate with them: the `n_strong`
    ones that it is coupled with most, unless either side has far stronger couplings. (A stray row between two groups
    has its strongest couplings with both, but they are weak for these groups, which it must not join.) A row that is
    left joins the aggregate that it is coupled with most. What is still left makes aggregates of its own. A row joins
    others only by couplings of `least[i]` or more: what is weaker than those with rows that are not in the matrix.
    Entries of a row with itself do not count; a row without neighbours gets the label -1.
    """
    n_rows = len(indptr) - 1
    labels, joined = np.full(n_rows, _FREE, np.int32), np.full(n_rows, _FREE, np.int32)
    weakest, strongest = np.empty(n_rows), np.empty(n_rows)
    _find_strong(indptr, indices, coupling, least, np.empty(n_strong), weakest, strongest)
    bounds = weakest, np.maximum(least, _STRONG * strongest)
    count = _begin(indptr, indices, coupling, bounds, labels)
    _join(indptr, indices, coupling, least, labels, np.zeros(count), joined)
    return labels, _finish(indptr, indices, coupling, bounds, labels, joined, count)


@njit(nogil=True, cache=True)
def _find_strong(indptr, indices, coupling, least, strong, weakest, strongest):
    """The weakest of the strong couplings of each row, infinity for a row without any, and the strongest one."""
    for i in range(len(weakest)):
        strong[:] = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            j = indices[e]
            if j != i and coupling[e] > strong[-1] and coupling[e] >= max(least[i], least[j]):
                at = len(strong) - 1
                while at > 0 and strong[at - 1] < coupling[e]:
                    strong[at] = strong[at - 1]
                    at -= 1
                strong[at] = coupling[e]
        weakest[i], strongest[i] = np.inf, strong[0]
        for value in strong:
            if value > _STRONG * strong[0]:
                weakest[i] = value


@njit(nogil=True, cache=True)
def _begin(indptr, indices, coupling, bounds, labels):
    """Aggregates around rows whose strong neighbours are all free."""
    weakest, needed = bounds
    count = 0
    for i in range(len(labels)):
        free, n_neighbors = labels[i] == _FREE, 0
        e = indptr[i]
        while free and e < indptr[i + 1]:
            j = indices[e]
            if j != i and coupling[e] >= max(weakest[i], needed[j]):
                free = labels[j] == _FREE
                n_neighbors += 1
            e += 1
        if free and n_neighbors > 0:
            _take(indptr, indices, coupling, bounds, labels, i, count)
            count += 1
    return count


@njit(nogil=True, cache=True)
def _take(indptr, indices, coupling, bounds, labels, i, label):
    """Row i and its strong neighbours that are free make an aggregate."""
    weakest, needed = bounds
    labels[i] = label
    for e in range(indptr[i], indptr[i + 1]):
        j = indices[e]
        if labels[j] == _FREE and coupling[e] >= max(weakest[i], needed[j]):
            labels[j] = label


@njit(nogil=True, cache=True)
def _join(indptr, indices, coupling, least, labels, sums, joined):
    """Rows that are left join the aggregate that they are coupled with most; `sums` are zeros for each aggregate."""
    for i in range(len(labels)):
        if labels[i] != _FREE:
            continue
        most = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            label = labels[indices[e]]
            if label != _FREE:
                sums[label] += coupling[e]
                if sums[label] > most and sums[label] >= least[i]:
                    most, joined[i] = sums[label], label
        for e in range(indptr[i], indptr[i + 1]):
            if labels[indices[e]] != _FREE:
                sums[labels[indices[e]]] = 0.0


@njit(nogil=True, cache=True)
def _finish(indptr, indices, coupling, bounds, labels, joined, count):
    """Rows that neither began nor joined an aggregate make their own with free neighbours."""
    for i in range(len(labels)):
        if labels[i] == _FREE:
            labels[i] = joined[i]
    for i in range(len(labels)):
        if labels[i] == _FREE and bounds[0][i] < np.inf:
            _take(indptr, indices, coupling, bounds, labels, i, count)
            count += 1
    return count


@njit(nogil=True, cache=True)
def select_inside(indptr, indices, data, first, stop, weight, weak, inside, columns, coupling, flow, least):
    """Couplings ``weight_i K_ij weight_j`` between the rows `first` to `stop`; columns count from `first`.

    `flow` is the sum of all couplings of a row, and `least` the share `weak` of its strongest one, rows outside
    included. Couplings that are less than that for both sides are left out.
    """
    kept = 0
    for i in range(len(indptr) - 1):
        strongest, total = 0.0, 0.0
        for e in range(indptr[i], indptr[i + 1]):
            if indices[e] != first + i:
                value = weight[first + i] * data[e] * weight[indices[e]]
                strongest = max(strongest, value)
                total += value
        flow[i], least[i] = total, weak * strongest
    for i in range(len(indptr) - 1):
        for e in range(indptr[i], indptr[i + 1]):
            j = indices[e]
            if first <= j < stop and j != first + i:
                value = weight[first + i] * data[e] * weight[j]
                if value > 0 and value >= min(least[i], least[j - first]):
                    columns[kept] = j - first
                    coupling[kept] = value
                    kept += 1
        inside[i + 1] = kept
    return kept


@njit(nogil=True, cache=True)
def add_coarse_rows(
    indptr, indices, data, first, weight, labels, offsets, range_rows, members, starts, sums, columns, values
):
    """Rows of ``Z' diag(weight) K diag(weight) Z`` for the aggregates of one range of rows, which begins at `first`.

    `weight` and `labels` are of all rows. The rows of aggregate a are ``members[starts[a]:starts[a + 1]]``, counted
    from `first`. `sums` has a zero for each aggregate of all ranges. Returns where the entries of each row end.
    """
    ends, kept = np.zeros(len(starts), np.int64), 0
    for a in range(len(starts) - 1):
        begin = kept
        for place in range(starts[a], starts[a + 1]):
            i = members[place]
            for e in range(indptr[i], indptr[i + 1]):
                j = indices[e]
                value = weight[first + i] * data[e] * weight[j]
                if labels[j] < 0 or value == 0.0:
                    continue
                b = labels[j] + offsets[j // range_rows]
                if sums[b] == 0.0:
                    columns[kept] = b
                    kept += 1
                sums[b] += value
        columns[begin:kept] = np.sort(columns[begin:kept])
        for e in range(begin, kept):
            values[e] = sums[columns[e]]
            sums[columns[e]] = 0.0
        ends[a + 1] = kept
    return ends


@njit(nogil=True, cache=True)
def restrict(residual, factor, labels, out):
    """``out[labels[i]] += factor[i] * residual[i]``, row after row."""
    for i in range(len(labels)):
        if labels[i] >= 0:
            for c in range(residual.shape[1]):
                out[labels[i], c] += factor[i] * residual[i, c]


@njit(nogil=True, cache=True)
def prolong(values, factor, labels, coarse):
    """``values[i] += factor[i] * coarse[labels[i]]``."""
    for i in range(len(labels)):
        if labels[i] >= 0:
            for c in range(values.shape[1]):
                values[i, c] += factor[i] * coarse[labels[i], c]


@njit(nogil=True, cache=True)
def correct(residual, damp, factor, labels, coarse, now, shares, out):
    """``out <- a (damp * residual + factor * coarse[labels]) + b now + c out`` for the shares (a, b, c)."""
    width = residual.shape[1]
    sums = np.empty(width)
    a, b, c = shares
    for i in range(len(labels)):
        scale = a * damp[i]
        for column in range(width):
            sums[column] = scale * residual[i, column]
        if labels[i] >= 0:
            scale = a * factor[i]
            for column in range(width):
                sums[column] += scale * coarse[labels[i], column]
        if b != 0:
            for column in range(width):
                sums[column] += b * now[i, column]
        if c != 0:
            for column in range(width):
                sums[column] += c * out[i, column]
        for column in range(width):
            out[i, column] = sums[column]


@njit(nogil=True, cache=True)
def residual(indptr, indices, data, source, scale, right, first_row, out):
    """``out = right - source + diag(scale) K source`` for the rows of one block."""
    width = source.shape[1]
    sums = np.empty(width)
    for i in range(len(indptr) - 1):
        row_product(data, indices, indptr[i], indptr[i + 1], source, sums)
        for c in range(width):
            out[i, c] = right[i, c] - source[first_row + i, c] + scale[i] * sums[c]


@njit(nogil=True, cache=True)
def relax(indptr, indices, data, source, scale, right, damp, first_row, now, shares, out):
    """``out <- a (source + damp * residual) + b now + c out`` for the rows of one block and the shares (a, b, c)."""
    width = source.shape[1]
    sums = np.empty(width)
    a, b, c = shares
    for i in range(len(indptr) - 1):
        row_product(data, indices, indptr[i], indptr[i + 1], source, sums)
        for column in range(width):
            own = source[first_row + i, column]
            sums[column] = a * (own + damp[i] * (right[i, column] - own + scale[i] * sums[column]))
        if b != 0:
            for column in range(width):
                sums[column] += b * now[i, column]
        if c != 0:
            for column in range(width):
                sums[column] += c * out[i, column]
        for column in range(width):
            out[i, column] = sums[column]


@njit(nogil=True, cache=True)
def moments(vectors, images, decays, scale, weights, out):
    """Add the second and fourth moments of each column, and the square of ``images - decays * vectors``, to `out`."""
    for i in range(len(vectors)):
        for c in range(vectors.shape[1]):
            square = vectors[i, c] * vectors[i, c] / scale[i]
            off = images[i, c] - decays[c] * vectors[i, c]
            out[0, c] += square
            out[1, c] += square * square / weights[i]
            out[2, c] += off * off / scale[i]
