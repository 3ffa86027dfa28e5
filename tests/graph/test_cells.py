"""The search by cells against brute force, over threads, parts and storage."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from scalable_gpe.execution.context import make_context
from scalable_gpe.execution.memory_plan import MemoryPlan
from scalable_gpe.execution.resources import ProblemSize
from scalable_gpe.execution.workers import Workers
from scalable_gpe.graph import cells
from scalable_gpe.graph.cells import search_cells
from scalable_gpe.graph.parts import plan_search
from scalable_gpe.graph.recall import exact_sample, recall_standard_error
from scalable_gpe.graph.search import SearchParameters
from scalable_gpe.storage.store import MemoryStore, MemoryTable


class Resident:
    """Rows in memory."""

    resident = True

    def __init__(self, values):
        self.values = values
        self.n_rows, self.n_features = values.shape

    def read(self, start, stop):
        return self.values[start:stop]

    def take(self, rows):
        return self.values[rows]


class Found(NamedTuple):
    """Lists in the order of the rows."""

    indices: np.ndarray
    squared_distances: np.ndarray
    order: np.ndarray
    recall: float
    recall_error: float


def search_rows(source, k, *, store=None, n_jobs=2, random_state=0, part_rows=None, recall=0.95):
    context = make_context(store or MemoryStore(), Workers(n_jobs), ProblemSize(source.n_rows, source.n_features, k))
    sample = exact_sample(source, k, random_state, context)
    type(source).largest = 0  # of what the search reads, not the scan before it
    parameters = SearchParameters(k, "euclidean", "cells", recall, random_state)
    n_parts = -(-source.n_rows // (part_rows or source.n_rows))
    return search_cells(source, k, sample, parameters, context, "graph/x/search", n_parts), sample


def search(X, k, **options):
    lists, sample = search_rows(Resident(X), k, **options)
    indices, squares = np.empty((len(X), k), np.int32), np.empty((len(X), k), np.float32)
    indices[lists.order], squares[lists.order] = lists.lists(0, len(X))
    recall, error = sample.recall(np.sqrt(squares[sample.points]))
    assert lists.trace[-1] == pytest.approx(recall)
    return Found(indices, squares, lists.order, recall, error)


def brute(X, k):
    """Rows and squared distances of the k nearest other rows, in float64, ordered by (float32 distance, row)."""
    D = cdist(X.astype(np.float64), X.astype(np.float64), "sqeuclidean")
    np.fill_diagonal(D, np.inf)
    D = D.astype(np.float32)
    order = np.argsort(D, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(D, order, axis=1)


def share_found(found, X, k):
    """The share of listed neighbours that are no farther than the true k-th."""
    radius = brute(X, k)[1][:, -1:]
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
    """Tight clusters far from one another and from the origin: cancellation must not spoil the distances."""
    centres = 1000 * rng.standard_normal((20, 20))
    return 300 + centres[rng.integers(20, size=n)] + 0.01 * rng.standard_normal((n, 20))


def curved(rng, n):
    return np.sin(rng.uniform(-1, 1, (n, 4)) @ rng.standard_normal((4, 30)) + rng.uniform(0, 6, 30))


KINDS = [plane, gaussian, wide, clustered, curved]


@pytest.fixture
def rng():
    return np.random.default_rng(1)


@pytest.mark.some(5)
@pytest.mark.parametrize("part_rows", [None, 1100])
@pytest.mark.parametrize("kind", KINDS)
def test_finds_the_neighbours(kind, part_rows, rng):
    X = kind(rng, 2400).astype(np.float32)
    found = search(X, 15, random_state=3, part_rows=part_rows)
    check_lists(found, X, 15)
    truth = share_found(found, X, 15)
    assert truth >= 0.95
    assert abs(found.recall - truth) <= 2 * found.recall_error + 1e-3


@pytest.mark.parametrize(("n", "k"), [(2, 1), (16, 15), (513, 16), (530, 40), (700, 300), (1100, 5)])
def test_small_and_odd_sizes(n, k, rng):
    X = rng.standard_normal((n, 5)).astype(np.float32)
    found = search(X, k)
    check_lists(found, X, k)
    assert share_found(found, X, k) >= 0.95


def test_a_last_part_of_one_row(rng, monkeypatch):
    monkeypatch.setattr(cells, "plan_search", lambda *shape, **given: replace(plan_search(*shape), part_rows=1200))
    X = rng.standard_normal((2401, 5)).astype(np.float32)
    found = search(X, 15)
    check_lists(found, X, 15)
    assert share_found(found, X, 15) >= 0.95


@pytest.mark.parametrize("n_rows", [3000, 1_000_003, 99_999_989])
def test_parts_can_be_halved_into_shards(n_rows):
    plan = plan_search(n_rows, 20, 15, part_rows=n_rows // 3)
    rows = [stop - start for start, stop in map(plan.part, range(plan.n_parts))]
    assert sum(rows) == n_rows and rows[:-1] == [plan.part_rows] * (len(rows) - 1) and 0 < rows[-1] <= plan.part_rows
    assert n_rows / 4 <= plan.part_rows <= 1.01 * n_rows / 3
    assert plan.part_rows % 2 ** (plan.part_rows.bit_length() - 9) == 0


def test_one_leaf_is_exact(rng):
    X = rng.standard_normal((400, 7)).astype(np.float32)
    found = search(X, 10)
    indices, distances = brute(X, 10)
    np.testing.assert_array_equal(found.indices, indices)
    np.testing.assert_allclose(found.squared_distances, distances, rtol=1e-6)
    assert found.recall == 1


@pytest.mark.some(2)
@pytest.mark.parametrize(
    ("kind", "part_rows"),
    [(gaussian, None), (gaussian, 1100), (wide, None), pytest.param(wide, 1100, marks=pytest.mark.slow)],
)
def test_same_bytes_on_any_threads_and_groups(kind, part_rows, rng, monkeypatch):
    X = kind(rng, 2400).astype(np.float32)
    first = None
    for n_jobs, n_parts in [(1, 1), (2, 1), (4, 3), (3, 4)]:
        monkeypatch.setattr(MemoryPlan, "parts_at_once", lambda self, n=n_parts: n)
        lists, _ = search_rows(Resident(X), 12, random_state=5, n_jobs=n_jobs, part_rows=part_rows, recall=0.999)
        found = [lists.order, *lists.lists(0, len(X)), lists.trace]
        first = first or found
        for a, b in zip(first, found, strict=True):
            np.testing.assert_array_equal(a, b)


class Counted(Resident):
    """Rows outside of memory that record how many of them were read at once."""

    resident = False
    largest = 0

    def read(self, start, stop):
        Counted.largest = max(Counted.largest, stop - start)
        return super().read(start, stop).copy()

    def take(self, rows):
        assert np.all(np.diff(rows) >= 0), "rows must be read in ascending order"
        Counted.largest = max(Counted.largest, len(rows))
        return super().take(rows)


class CopyingStore(MemoryStore):
    """A store that keeps a copy of the rows and of the lists of every round, as one on disk does."""

    persistent = True


def test_rows_outside_of_memory_are_read_one_part_at_a_time(rng):
    X = curved(rng, 20_000).astype(np.float32)
    lists, _ = search_rows(Counted(X), 15, part_rows=5000, store=CopyingStore())
    assert len(lists.trace) > 1 and lists.trace[-1] >= 0.95
    assert Counted.largest <= 5000
    in_memory = search(X, 15, part_rows=5000)
    np.testing.assert_array_equal(lists.order, in_memory.order)
    np.testing.assert_array_equal(lists.lists(0, 20_000)[0], in_memory.indices[in_memory.order])
    np.testing.assert_array_equal(lists.lists(0, 20_000)[1], in_memory.squared_distances[in_memory.order])
    np.testing.assert_array_equal(lists.rows(0, 20_000), X[lists.order])


class Killed(Exception):
    pass


class FragileTable(MemoryTable):
    """A table that raises after some writes."""

    left = 0

    def write(self, start, values, first_column=0):
        if FragileTable.left == 0:
            raise Killed
        FragileTable.left -= 1
        super().write(start, values, first_column)


class FragileStore(CopyingStore):
    def table(self, name, shape, dtype, shard_rows=None):
        if name not in self._tables:
            self._tables[name] = FragileTable(np.full(shape, -7, dtype), shard_rows, name)
        return self._tables[name]


def test_resumes_at_parts(rng):
    X = gaussian(rng, 6000).astype(np.float32)
    whole, _ = search_rows(Resident(X), 12, part_rows=1500, recall=0.98)
    assert len(whole.trace) >= 3
    store, n_deaths = FragileStore(), 0
    while True:
        FragileTable.left = 7
        try:
            lists, _ = search_rows(Counted(X), 12, part_rows=1500, recall=0.98, store=store)
            break
        except Killed:
            n_deaths += 1
    assert n_deaths >= 4
    np.testing.assert_array_equal(lists.order, whole.order)
    np.testing.assert_array_equal(lists.lists(0, 6000)[0], whole.lists(0, 6000)[0])
    np.testing.assert_array_equal(lists.lists(0, 6000)[1], whole.lists(0, 6000)[1])


@pytest.mark.parametrize("kind", [gaussian, wide])
def test_a_descent_ends_at_the_first_step_that_reaches_the_recall(kind, rng):
    """The trace ends with the recall of the result; a higher target repeats the same steps, and makes more of them."""
    X = kind(rng, 5000).astype(np.float32)
    traces = []
    for recall in (0.9, 0.97, 1.0):
        lists, sample = search_rows(Resident(X), 12, recall=recall)
        found = sample.shares(np.sqrt(lists.lists(0, 5000)[1][np.argsort(lists.order)[sample.points]]))
        assert lists.trace[-1] == pytest.approx(found.mean())
        assert (np.diff(lists.trace) >= 0).all()
        if recall < 1:
            assert lists.trace[-1] - recall_standard_error(found) >= recall
            assert len(lists.trace) == 1 or lists.trace[-2] < recall + 0.02
        traces.append(lists.trace)
    assert traces[0] == traces[1][: len(traces[0])] and traces[1] == traces[2][: len(traces[1])]
    assert len(traces[0]) <= len(traces[1]) < len(traces[2])


def test_the_trace_of_several_parts_has_each_round(rng):
    X = gaussian(rng, 6000).astype(np.float32)
    lists, _ = search_rows(Resident(X), 12, part_rows=1500, recall=0.9)
    assert len(lists.trace) > 1 and lists.trace[0] < 0.9 < lists.trace[-1]


def test_storage_order_keeps_neighbours_together(rng):
    X = curved(rng, 8000).astype(np.float32)
    found = search(X, 15)
    position = np.empty(8000, int)
    position[found.order] = np.arange(8000)
    apart = np.abs(position[found.indices] - position[:, None])
    assert np.median(apart) < 500


@pytest.mark.parametrize("n_neighbors", [0, 50])
def test_impossible_numbers_of_neighbours(n_neighbors, rng):
    with pytest.raises(ValueError, match="n_neighbors must be between 1 and n_rows - 1 = 49"):
        search(rng.standard_normal((50, 3)).astype(np.float32), n_neighbors)


def test_too_many_rows():
    with pytest.raises(ValueError, match=r"below 2\*\*31"):
        plan_search(2**31, 4, 15)
