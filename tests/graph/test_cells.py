"""The search by cells against brute force, over threads, parts and storage."""

import itertools

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from scalable_gpe.graph.cells import rounds as cells


def brute(X, k):
    """Rows and squared distances of the k nearest other rows, in float64, ordered by (float32 distance, row)."""
    D = cdist(X.astype(np.float64), X.astype(np.float64), "sqeuclidean")
    np.fill_diagonal(D, np.inf)
    D = D.astype(np.float32)
    order = np.argsort(D, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(D, order, axis=1)


def share_found(found, X, k):
    """The share of listed neighbours that are no farther than the true k-th."""
    D = cdist(X.astype(np.float64), X.astype(np.float64), "sqeuclidean")
    radius = np.partition(D, k, axis=1)[:, k : k + 1]  # the row itself is the nearest, at 0
    return np.mean(found.squared_distances <= radius * (1 + 1e-6))


def check_lists(found, X, k):
    n = len(X)
    assert found.indices.shape == found.squared_distances.shape == (n, k)
    assert found.indices.dtype == np.int32 and found.squared_distances.dtype == np.float32
    assert found.indices.min() >= 0 and found.indices.max() < n
    assert all(len(set(row)) == k for row in found.indices.tolist()), "a neighbour is listed twice"
    assert not (found.indices == np.arange(n)[:, None]).any(), "a row lists itself"
    assert np.array_equal(np.sort(found.order), np.arange(n))
    exact = ((X[found.indices].astype(np.float64) - X[:, None]) ** 2).sum(axis=2)
    np.testing.assert_allclose(found.squared_distances, exact, rtol=1e-6)
    distance, index = found.squared_distances, found.indices
    later = (distance[:, 1:] > distance[:, :-1]) | (
        (distance[:, 1:] == distance[:, :-1]) & (index[:, 1:] > index[:, :-1])
    )
    assert later.all(), "a list is not sorted by (distance, row)"


def plane(rng, n):
    return rng.random((n, 2))


def gaussian(rng, n):
    return rng.standard_normal((n, 12))


def wide(rng, n):
    return rng.standard_normal((n, 10)) @ rng.standard_normal((10, 150)) + 0.1 * rng.standard_normal((n, 150))


def clustered(rng, n):
    """Tight clusters far from one another and from the origin: distances must survive the cancellation."""
    centres = 1000 * rng.standard_normal((20, 20))
    return 300 + centres[rng.integers(20, size=n)] + 0.01 * rng.standard_normal((n, 20))


def curved(rng, n):
    return np.sin(rng.uniform(-1, 1, (n, 4)) @ rng.standard_normal((4, 30)) + rng.uniform(0, 6, 30))


KINDS = [plane, gaussian, wide, clustered, curved]


@pytest.fixture
def rng():
    return np.random.default_rng(1)


@pytest.mark.parametrize("part_rows", [None, 1100])
@pytest.mark.parametrize("kind", KINDS)
def test_finds_the_neighbours(kind, part_rows, rng):
    X = kind(rng, 2400).astype(np.float32)
    found = cells.search(X, 15, random_state=3, part_rows=part_rows)
    check_lists(found, X, 15)
    truth = share_found(found, X, 15)
    assert truth >= 0.95
    assert abs(found.recall - truth) <= 4 * found.recall_error + 1e-3


@pytest.mark.parametrize(("n", "k"), [(2, 1), (16, 15), (513, 16), (530, 40), (700, 300), (1100, 5)])
def test_small_and_odd_sizes(n, k, rng):
    X = rng.standard_normal((n, 5)).astype(np.float32)
    found = cells.search(X, k)
    check_lists(found, X, k)
    assert share_found(found, X, k) >= 0.95


def test_one_leaf_is_exact(rng):
    X = rng.standard_normal((400, 7)).astype(np.float32)
    found = cells.search(X, 10)
    indices, distances = brute(X, 10)
    np.testing.assert_array_equal(found.indices, indices)
    np.testing.assert_allclose(found.squared_distances, distances, rtol=1e-6)
    assert found.recall == 1


def test_ties_on_a_grid():
    X = np.array(list(itertools.product(range(13), repeat=3)), np.float32)
    found = cells.search(X, 6)
    check_lists(found, X, 6)
    assert share_found(found, X, 6) >= 0.99


def test_distances_that_overflow(rng):
    X = (rng.standard_normal((600, 3)) * 1e30).astype(np.float32)
    found = cells.search(X, 5)
    assert found.indices.min() >= 0 and all(len(set(row)) == 5 for row in found.indices.tolist())


@pytest.mark.parametrize("part_rows", [None, 1100])
@pytest.mark.parametrize("kind", [gaussian, wide])
def test_same_bytes_on_any_threads_and_groups(kind, part_rows, rng):
    X = kind(rng, 2400).astype(np.float32)
    first = None
    for n_jobs, n_held in [(1, 1), (2, 1), (4, 3), (3, 4)]:
        lists = cells.search_rows(
            cells.Held(X), 12, random_state=5, n_jobs=n_jobs, n_held=n_held, part_rows=part_rows, recall=0.999
        )
        n = len(X)
        found = [lists.order, lists.neighbors.read(0, n), lists.distances.read(0, n), lists.recall, lists.n_rounds]
        first = first or found
        for a, b in zip(first, found, strict=True):
            np.testing.assert_array_equal(a, b)


class Counted(cells.Held):
    """Rows elsewhere, that tell how many of them were handed out at once."""

    resident = False
    largest = 0

    def read(self, start, stop):
        Counted.largest = max(Counted.largest, stop - start)
        return super().read(start, stop).copy()

    def take(self, rows):
        assert np.all(np.diff(rows) >= 0), "rows are asked for in ascending order"
        Counted.largest = max(Counted.largest, len(rows))
        return super().take(rows)


def test_rows_elsewhere_are_asked_for_a_part_at_a_time(rng):
    X = curved(rng, 20_000).astype(np.float32)
    lists = cells.search_rows(
        Counted(X), 15, part_rows=5000, tables=lambda name, shape, dtype: Counted(np.empty(shape, dtype))
    )
    assert lists.n_rounds > 1
    assert lists.recall >= 0.95
    assert Counted.largest <= 5000
    in_memory = cells.search(X, 15, part_rows=5000)
    np.testing.assert_array_equal(lists.order, in_memory.order)
    np.testing.assert_array_equal(lists.neighbors.values, in_memory.indices[in_memory.order])
    np.testing.assert_array_equal(lists.distances.values, in_memory.squared_distances[in_memory.order])


class Killed(Exception):
    pass


class Fragile(cells.Held):
    """A table that dies after some writes."""

    resident = False
    left = 0

    def write(self, start, values, order=None):
        if Fragile.left == 0:
            raise Killed
        Fragile.left -= 1
        super().write(start, values, order)


def test_resumes_at_parts(rng):
    X = gaussian(rng, 6000).astype(np.float32)
    whole = cells.search_rows(cells.Held(X), 12, part_rows=1500, recall=0.98)
    assert whole.n_rounds >= 3
    tables, done = {}, set()

    def kept(name, shape, dtype):
        if name not in tables:
            tables[name] = Fragile(np.full(shape, -7, dtype))
        return tables[name]

    n_deaths = 0
    while True:
        Fragile.left = 7
        try:
            lists = cells.search_rows(Counted(X), 12, part_rows=1500, recall=0.98, tables=kept, done=done)
            break
        except Killed:
            n_deaths += 1
    assert n_deaths >= 4
    np.testing.assert_array_equal(lists.order, whole.order)
    np.testing.assert_array_equal(lists.neighbors.read(0, 6000), whole.neighbors.read(0, 6000))
    np.testing.assert_array_equal(lists.distances.read(0, 6000), whole.distances.read(0, 6000))


def test_storage_order_keeps_neighbours_together(rng):
    X = curved(rng, 8000).astype(np.float32)
    found = cells.search(X, 15)
    place = np.empty(8000, int)
    place[found.order] = np.arange(8000)
    apart = np.abs(place[found.indices] - place[:, None])
    assert np.median(apart) < 500


@pytest.mark.parametrize("n_neighbors", [0, 50])
def test_impossible_numbers_of_neighbours(n_neighbors, rng):
    with pytest.raises(ValueError, match="n_neighbors must be between 1 and n_rows - 1 = 49"):
        cells.search(rng.standard_normal((50, 3)).astype(np.float32), n_neighbors)


def test_too_many_rows():
    with pytest.raises(ValueError, match=r"below 2\*\*31"):
        cells.plan(2**31, 4, 15)
