"""Compiled loops of the neighbour search: trees of median splits, all pairs of a leaf, exact distances.

Every function is sequential and releases the interpreter lock; threads get disjoint ranges of nodes, leaves or rows,
and a range reads nothing that another range of the same call writes. So no result depends on the number of threads.
Distances that only rank candidates come from matrix products around a local mean; the distances that are
returned are float64 sums of float32 rows (`vectors.exact_square`).
"""

import numpy as np

from scalable_gpe.loops.compiled import inner_loop, search_loop
from scalable_gpe.loops.points import insert_nearest, is_nearer
from scalable_gpe.loops.vectors import exact_square, four_squares, projection

_NODE_SAMPLE = 64  # rows that choose the direction of a split
_ROUNDING = np.float32(4e-6)  # error of a squared distance from scalar products, relative to the squared norm
_UNSAFE = np.float32(1e-4)  # below this share of the squared norm it is not precise enough


@inner_loop
def _mix(state):
    """One step of splitmix64: a well mixed 64-bit number from a counter."""
    z = state + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@inner_loop
def _direction(Z, rows, seed, n_powers, mean, direction):
    """A random direction weighted by the spread of `rows`; more powers bring it closer to the principal one."""
    n_features = Z.shape[1]
    n_sampled = min(_NODE_SAMPLE, rows.shape[0])
    sample = np.empty(n_sampled, np.int64)
    weight = np.empty(n_sampled, np.float32)
    state = _mix(np.uint64(seed))
    for s in range(n_sampled):
        state = _mix(state)
        sample[s] = rows[np.int64(state % np.uint64(rows.shape[0]))]
        state = _mix(state)
        weight[s] = np.float32(np.int64(state >> np.uint64(40)) - (1 << 23)) / np.float32(1 << 23)
    for f in range(n_features):
        mean[f] = 0
    for s in range(n_sampled):
        for f in range(n_features):
            mean[f] += Z[sample[s], f]
    for f in range(n_features):
        mean[f] /= np.float32(n_sampled)
    for power in range(n_powers + 1):
        if power > 0:
            for s in range(n_sampled):
                total = np.float32(0)
                for f in range(n_features):
                    total += (Z[sample[s], f] - mean[f]) * direction[f]
                weight[s] = total
        largest = np.float32(0)
        for s in range(n_sampled):
            largest = max(largest, abs(weight[s]))
        for f in range(n_features):
            direction[f] = 0
        if largest > 0:
            for s in range(n_sampled):
                scaled = weight[s] / largest
                for f in range(n_features):
                    direction[f] += scaled * (Z[sample[s], f] - mean[f])
        largest = np.float32(0)
        for f in range(n_features):
            largest = max(largest, abs(direction[f]))
        if largest == 0:
            break
        for f in range(n_features):
            direction[f] /= largest


@inner_loop
def _project(Z, rows, mean, direction, values):
    for i in range(rows.shape[0]):
        values[i] = projection(Z, rows[i], mean, direction)


@inner_loop
def _split_at(values, rows, middle):
    """Order `rows` so that the `middle` smallest by (value, row) come first (quickselect)."""
    low, high = 0, rows.shape[0] - 1
    while low < high:
        probe = (low + high) // 2
        value, row = values[probe], rows[probe]
        i, j = low, high
        while i <= j:
            while values[i] < value or (values[i] == value and rows[i] < row):
                i += 1
            while values[j] > value or (values[j] == value and rows[j] > row):
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                rows[i], rows[j] = rows[j], rows[i]
                i += 1
                j -= 1
        if middle <= j:
            high = j
        elif middle >= i:
            low = i
        else:
            break


@search_loop
def sort_by_cell(cells, n_cells, rows):
    """Rows by their cell, ascending inside each cell."""
    place = np.zeros(n_cells + 1, np.int64)
    for i in range(cells.shape[0]):
        place[cells[i] + 1] += 1
    for c in range(n_cells):
        place[c + 1] += place[c]
    for i in range(cells.shape[0]):
        rows[place[cells[i]]] = i
        place[cells[i]] += 1


@search_loop
def split_nodes(Z, rows, bounds, first, last, leaf_rows, seed, n_powers, means, directions, thresholds):
    """Halve those of the nodes `first` to `last` that hold more than `leaf_rows` rows.

    Node i is rows[bounds[i]:bounds[i + 1]]. A row x goes left when <x - means[i], directions[i]> < thresholds[i].
    """
    for node in range(first, last):
        members = rows[bounds[node] : bounds[node + 1]]
        middle = members.shape[0] // 2
        if members.shape[0] > leaf_rows:
            values = np.empty(members.shape[0], np.float32)
            node_seed = _mix(seed + np.uint64(node))
            _direction(Z, members, node_seed, n_powers, means[node], directions[node])
            _project(Z, members, means[node], directions[node], values)
            _split_at(values, members, middle)
            thresholds[node] = values[middle]


@search_loop
def route_rows(X, means, directions, thresholds, n_levels, cells):
    """The cell of each row in a tree whose levels are stored one after the other (node i has children 2i+1, 2i+2)."""
    value = np.empty(1, np.float32)
    row = np.empty(1, np.int32)
    for i in range(X.shape[0]):
        row[0] = i
        node = 0
        for _ in range(n_levels):
            _project(X, row, means[node], directions[node], value)
            node = 2 * node + (1 if value[0] < thresholds[node] else 2)
        cells[i] = node - ((1 << n_levels) - 1)


@inner_loop
def _lists(neighbors, row):
    for t in range(neighbors.shape[0]):  # noqa: SIM110
        if neighbors[t] == row:
            return True
    return False


@inner_loop
def _n_lanes(n_neighbors):
    """Number of minima that bound the k-th distance: enough for a tight bound, a multiple of 64 for the compiler."""
    return 64 * (1 + 2 * (n_neighbors + 1) // 64)


@inner_loop
def _minima(values, whole, lanes):
    """lanes[t] is the least of values[t], values[t + n_lanes], ... before `whole`."""
    n_lanes = lanes.shape[0]
    for t in range(n_lanes):
        lanes[t] = values[t] if whole > 0 else np.inf
    for start in range(n_lanes, whole, n_lanes):
        block = values[start : start + n_lanes]
        for t in range(n_lanes):
            lanes[t] = block[t] if block[t] < lanes[t] else lanes[t]


@inner_loop
def _bound(lanes, n_wanted):
    """A number that at least `n_wanted` of the lanes do not exceed, and not many more."""
    low = high = lanes[0]
    for t in range(lanes.shape[0]):
        low = min(low, lanes[t])
        high = max(high, lanes[t])
    for _ in range(28):
        middle = low + (high - low) * np.float32(0.5)
        count = 0
        for t in range(lanes.shape[0]):
            count += lanes[t] <= middle
        if count < n_wanted:
            low = middle
        else:
            high = middle
            if count <= n_wanted + 2:
                break
    return high


@inner_loop
def _offer(x, square, product, block, squares, candidates, own, neighbors, distances, values, lanes):
    """Offer all candidates to the list of one row: candidate j is block[j], the row is x.

    product[j] is their scalar product, `square` and `squares` are their squared norms, all around one mean. If two rows
    are so close, relative to their distance from that mean, that rounding would decide, their difference is used.
    """
    n = candidates.shape[0]
    n_lanes = lanes.shape[0]
    last = neighbors.shape[0] - 1
    fresh = distances[0] == np.inf
    for j in range(n):
        values[j] = squares[j] - np.float32(2) * product[j]
    whole = n - n % n_lanes
    _minima(values, whole, lanes)
    slack = _ROUNDING * square
    limit = np.float32(np.inf)
    if distances[last] < np.inf:
        limit = distances[last] - square + slack
    elif whole > 0:
        limit = _bound(lanes, last + 2) + slack
    for t in range(n_lanes + 1):
        tail = t == n_lanes
        if tail or lanes[t] <= limit:
            for j in range(whole if tail else t, n if tail else whole, 1 if tail else n_lanes):
                if values[j] <= limit and candidates[j] != own:
                    distance = values[j] + square
                    if distance < _UNSAFE * square:
                        distance = _difference(x, block[j])
                    row = candidates[j]
                    nearer = is_nearer(distance, row, distances[last], neighbors[last])
                    if nearer and (fresh or not _lists(neighbors, row)):
                        insert_nearest(neighbors, distances, row, distance)
                        if distances[last] < np.inf:
                            limit = min(limit, distances[last] - square + slack)


@inner_loop
def _difference(x, y):
    a = b = c = d = np.float32(0)
    whole = x.shape[0] - x.shape[0] % 4
    for f in range(0, whole, 4):
        a += (x[f] - y[f]) * (x[f] - y[f])
        b += (x[f + 1] - y[f + 1]) * (x[f + 1] - y[f + 1])
        c += (x[f + 2] - y[f + 2]) * (x[f + 2] - y[f + 2])
        d += (x[f + 3] - y[f + 3]) * (x[f + 3] - y[f + 3])
    for f in range(whole, x.shape[0]):
        a += (x[f] - y[f]) * (x[f] - y[f])
    return (a + b) + (c + d)


@inner_loop
def _square(x):
    a = b = c = d = np.float32(0)
    whole = x.shape[0] - x.shape[0] % 4
    for f in range(0, whole, 4):
        a += x[f] * x[f]
        b += x[f + 1] * x[f + 1]
        c += x[f + 2] * x[f + 2]
        d += x[f + 3] * x[f + 3]
    for f in range(whole, x.shape[0]):
        a += x[f] * x[f]
    return (a + b) + (c + d)


@inner_loop
def _gather(Z, rows, mean, block, square):
    """The rows around `mean`, and their squared norms."""
    for i in range(rows.shape[0]):
        row = rows[i]
        for f in range(Z.shape[1]):
            block[i, f] = Z[row, f] - mean[f]
        square[i] = np.dot(block[i], block[i]) if Z.shape[1] > 128 else _square(block[i])


@inner_loop
def _mean(Z, rows, mean):
    for f in range(Z.shape[1]):
        mean[f] = 0
    for i in range(rows.shape[0]):
        for f in range(Z.shape[1]):
            mean[f] += Z[rows[i], f]
    for f in range(Z.shape[1]):
        mean[f] /= np.float32(rows.shape[0])


@search_loop
def compare_leaves(Z, rows, bounds, first, last, neighbors, distances):
    """Improve the lists of the rows of each leaf by all pairs of its rows: one matrix product per leaf.

    Leaf i is rows[bounds[i]:bounds[i + 1]].
    """
    n_features = Z.shape[1]
    size = 0
    for leaf in range(first, last):
        size = max(size, bounds[leaf + 1] - bounds[leaf])
    block = np.empty((size, n_features), np.float32)
    square = np.empty(size, np.float32)
    products = np.empty(size * size, np.float32)
    values = np.empty(size, np.float32)
    mean = np.empty(n_features, np.float32)
    lanes = np.empty(_n_lanes(neighbors.shape[1]), np.float32)
    for leaf in range(first, last):
        members = rows[bounds[leaf] : bounds[leaf + 1]]
        m = members.shape[0]
        _mean(Z, members, mean)
        _gather(Z, members, mean, block, square)
        product = products[: m * m].reshape(m, m)
        np.dot(block[:m], block[:m].T, product)
        for i in range(m):
            own = members[i]
            near, far = neighbors[own], distances[own]
            _offer(block[i], square[i], product[i], block, square, members, own, near, far, values, lanes)


@search_loop
def compare_byte_leaves(Q, rows, bounds, first, last, neighbors, distances):
    """The same for rows of bytes: sums of squares in whole numbers."""
    size = 0
    for leaf in range(first, last):
        size = max(size, bounds[leaf + 1] - bounds[leaf])
    block = np.empty((size, Q.shape[1]), np.int8)
    squares = np.empty(4, np.float32)
    for leaf in range(first, last):
        members = rows[bounds[leaf] : bounds[leaf + 1]]
        m = members.shape[0]
        for i in range(m):
            block[i] = Q[members[i]]
        for i in range(m):
            for j in range(i + 1, m, 4):
                end = min(j + 4, m)
                squares[0], squares[1], squares[2], squares[3] = four_squares(
                    block, i, j, min(j + 1, m - 1), min(j + 2, m - 1), min(j + 3, m - 1)
                )
                for t in range(j, end):
                    _consider(neighbors[members[i]], distances[members[i]], members[t], squares[t - j])
                    _consider(neighbors[members[t]], distances[members[t]], members[i], squares[t - j])


@inner_loop
def _consider(neighbors, distances, row, distance):
    """Insert `row` into a list unless the list holds it or is better throughout."""
    last = neighbors.shape[0] - 1
    near = distance <= distances[last] and is_nearer(distance, row, distances[last], neighbors[last])
    if near and not _lists(neighbors, row):
        insert_nearest(neighbors, distances, row, distance)


@search_loop
def settle_rows(X, names, first, last, candidates, n_candidates, neighbors, distances):
    """Give the rows `first` to `last` their final lists: names of rows and exact distances, sorted by (distance, name).

    The first `n_candidates` of each row are looked at. `neighbors` and `distances` hold what is already known (names;
    -1 and infinity for empty entries).
    """
    end = neighbors.shape[1] - 1
    for row in range(first, last):
        fresh = neighbors[row, 0] < 0
        for t in range(min(n_candidates, candidates.shape[1])):
            other = candidates[row, t]
            if other >= 0 and (fresh or not _lists(neighbors[row], names[other])):
                distance = np.float32(exact_square(X, row, other))
                if is_nearer(distance, names[other], distances[row, end], neighbors[row, end]):
                    insert_nearest(neighbors[row], distances[row], names[other], distance)


@search_loop
def quantize_rows(X, first, last, mean, per_step, out):
    """Round the rows `first` to `last`, less a mean, to whole steps of at most 127; `out` may have more columns."""
    for row in range(first, last):
        for f in range(X.shape[1]):
            value = np.rint((X[row, f] - mean[f]) * per_step)
            out[row, f] = np.int8(min(max(value, np.float32(-127)), np.float32(127)))
        for f in range(X.shape[1], out.shape[1]):
            out[row, f] = 0


@search_loop
def permute_rows(X, order):
    """Reorder rows in place: row i becomes the former row order[i]."""
    n_rows, n_features = X.shape
    moved = np.zeros(n_rows, np.uint8)
    spare = np.empty(n_features, np.float32)
    for start in range(n_rows):
        if moved[start] == 0:
            for f in range(n_features):
                spare[f] = X[start, f]
            row = start
            while order[row] != start:
                for f in range(n_features):
                    X[row, f] = X[order[row], f]
                moved[row] = 1
                row = order[row]
            for f in range(n_features):
                X[row, f] = spare[f]
            moved[row] = 1
