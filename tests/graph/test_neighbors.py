"""Neighbour lists, their union, what is measured about them, and precomputed lists."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from scipy.spatial.distance import cdist

import scalable_gpe as gpe
from scalable_gpe.errors import RecallWarning
from scalable_gpe.execution.memory_plan import block_sizes
from scalable_gpe.graph import cells
from scalable_gpe.graph.recall import recall_half_width

METHODS = ("kdtree", "brute", "cells")


def lists_by_sorting(X, m, metric="euclidean"):
    """Every row's m nearest others among the distinct rows, by a plain sort of all distances."""
    X = np.asarray(X, dtype=np.float64)
    if metric == "cosine":
        X = X / np.linalg.norm(X, axis=1, keepdims=True)
    first = np.unique(X, axis=0, return_index=True)[1]
    D = cdist(X, X[np.sort(first)])
    rows = np.sort(first)
    order = np.argsort(D, axis=1, kind="stable")
    indices, distances = [], []
    for i in range(len(X)):
        others = [j for j in order[i] if D[i, j] > 0][:m]
        indices.append(rows[others])
        distances.append(D[i, others])
    return np.array(indices), np.array(distances)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_lists_against_sorting(method, metric):
    X = np.random.default_rng(0).standard_normal((300, 5)).astype(np.float32)
    with block_sizes(block_rows=70):
        graph = gpe.neighbor_graph(X, 7, method=method, metric=metric)
    indices, distances = lists_by_sorting(X, 7, metric)
    assert graph.method == method and graph.recall == 1.0
    assert (graph.indices == indices).all()
    np.testing.assert_allclose(graph.distances, distances, rtol=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_lists_of_data_with_repeats_name_distinct_points(method):
    X = np.random.default_rng(1).standard_normal((250, 3)).astype(np.float32)
    X[200:] = X[:50]
    graph = gpe.neighbor_graph(X, 6, method=method)
    indices, distances = lists_by_sorting(X, 6)
    assert (graph.indices == indices).all()
    assert (graph.indices[200:] == graph.indices[:50]).all()
    np.testing.assert_allclose(graph.distances, distances, rtol=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_ties_are_exact_in_distance(method):
    """On a grid many neighbours are equally far: any of them may be listed, but the distances are fixed."""
    side = np.arange(9)
    X = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    graph = gpe.neighbor_graph(X, 10, method=method)
    _, distances = lists_by_sorting(X, 10)
    np.testing.assert_allclose(graph.distances, distances, rtol=1e-6)
    assert graph.recall == 1.0
    rows = np.arange(len(X))[:, None]
    assert (graph.indices != rows).all()
    assert all(len(set(row)) == 10 for row in graph.indices.tolist())
    true = np.linalg.norm(X[graph.indices] - X[:, None], axis=2)
    np.testing.assert_allclose(graph.distances, true, rtol=1e-6)


def test_a_tight_cluster_and_a_far_point():
    """The expanded square |x|^2 - 2xy + |y|^2 must not lose close neighbours."""
    rng = np.random.default_rng(0)
    tight = 1e-3 * rng.standard_normal((260, 10)) + np.repeat([0, 3e3], [200, 60])[:, None]
    X = np.concatenate([tight, [[1e9] * 10]]).astype(np.float32)
    for method in ("kdtree", "brute"):
        graph = gpe.neighbor_graph(X, 5, method=method)
        _, distances = lists_by_sorting(X, 5)
        np.testing.assert_allclose(graph.distances, distances, rtol=1e-5, err_msg=method)


def test_lists_of_every_other_point():
    X = np.random.default_rng(2).standard_normal((40, 4))
    graph = gpe.neighbor_graph(X, 39)
    assert graph.indices.shape == (40, 39)
    assert all(set(row) == set(range(40)) - {i} for i, row in enumerate(graph.indices.tolist()))


def test_defaults():
    X = np.random.default_rng(2).standard_normal((100, 4))
    assert gpe.neighbor_graph(X).n_neighbors == 16
    assert gpe.neighbor_graph(X[:12]).n_neighbors == 11
    assert gpe.neighbor_graph(np.repeat(X[:9], 20, axis=0)).n_neighbors == 8  # nine different points


def test_recall_of_lists_that_miss_some():
    """Half of the true neighbours are replaced by far ones: the exact scan measures one half."""
    X = np.random.default_rng(3).standard_normal((150, 6)).astype(np.float32)
    order = np.argsort(cdist(X, X), axis=1)
    indices = np.concatenate([order[:, 1:5], order[:, -4:]], axis=1)
    distances = np.take_along_axis(cdist(X, X), indices, 1)
    result = gpe.embed(X, neighbors=(indices, distances), power=2, epsilon=0.5)
    # the far half lies beyond the true 8th neighbour
    assert result.report["recall"] == 0.5
    assert result.report["recall_error"] == 0.0 or result.report["recall_error"] < 0.05


def test_poor_recall_warns(monkeypatch):
    """Points without structure in many dimensions: one round by cells does not find all of their neighbours."""
    monkeypatch.setattr(cells, "_MAX_ROUNDS", 1)
    X = np.random.default_rng(0).standard_normal((2000, 200))
    with pytest.warns(RecallWarning, match=r"below recall=1\.0"):
        graph = gpe.neighbor_graph(X, 8, method="cells", recall=1.0)
    assert graph.recall < 1


def test_rows_with_holes_are_searched_again():
    from scalable_gpe.graph.exact import AllPairs
    from scalable_gpe.graph.search import drop_self, repair

    X = np.random.default_rng(4).standard_normal((50, 3)).astype(np.float32)
    indices, _ = lists_by_sorting(X, 4)
    broken = indices.astype(np.int32)
    broken[3, 2], broken[7, 1], broken[9, 0] = -1, broken[7, 0], 9
    assert (repair(broken, AllPairs(X, 4).neighbors) == indices).all()
    found = np.array([[0, 1, 2], [2, 1, 0], [0, 1, 3]])
    assert drop_self(found, np.arange(3)).tolist() == [[1, 2], [2, 0], [0, 1]]


# --- precomputed lists ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lists():
    X = np.random.default_rng(6).standard_normal((120, 3))
    return lists_by_sorting(X, 6)


def embedded(neighbors, **options):
    return gpe.embed(neighbors=neighbors, power=5, n_components=4, epsilon=0.8, **options).points


def test_forms_of_precomputed_lists_are_equal(lists):
    indices, distances = lists
    n = len(indices)
    expected = embedded(lists).tobytes()
    matrix = csr_matrix((distances.ravel(), indices.ravel(), np.arange(0, 6 * n + 1, 6)), shape=(n, n))
    assert embedded(matrix).tobytes() == expected
    assert embedded(matrix.tocoo()).tobytes() == expected
    assert embedded([indices.tolist(), distances.tolist()]).tobytes() == expected
    shuffled = np.random.default_rng(0).permutation(6)
    assert embedded((indices[:, shuffled], distances[:, shuffled])).tobytes() == expected
    assert embedded((indices.astype(np.uint16), distances.astype(np.float32))).tobytes() == expected
    own = np.arange(n)[:, None]
    for column in (0, 3, 6):  # the row itself is dropped wherever it is in the list
        with_self = np.insert(indices, column, own[:, 0], axis=1), np.insert(distances, column, 0.0, axis=1)
        assert embedded(with_self).tobytes() == expected
    holes = np.hstack([np.full((n, 2), -1), indices]), np.hstack([np.full((n, 2), np.nan), distances])
    assert embedded(holes).tobytes() == expected
    twice = np.hstack([indices, indices[:, :2]]), np.hstack([distances, distances[:, :2] + 1])
    assert embedded(twice).tobytes() == expected
    longer = np.hstack([indices, (indices[:, :1] + 60) % n]), np.hstack([distances, np.full((n, 1), 99.0)])
    assert embedded(longer, n_neighbors=6).tobytes() == expected


def test_lists_of_different_lengths(lists):
    indices, distances = (part.copy() for part in lists)
    indices[5:60, 3:] = -1
    result = gpe.embed(neighbors=(indices, distances), power=3, epsilon=0.8)
    assert (result.graph.indices[5:60, 3:] == -1).all() and np.isinf(result.graph.distances[5:60, 3:]).all()
    assert np.isfinite(result.points).all()
    for rule in ("auto", "bgh"):
        assert np.isfinite(gpe.embed(neighbors=(indices, distances), power=3, epsilon=rule).points).all()


def test_an_asymmetric_pair_keeps_the_smaller_distance():
    indices = np.array([[1], [0], [0]])
    distances = np.array([[2.0], [1.0], [3.0]])
    K = gpe.embed(neighbors=(indices, distances), power=1, epsilon=1.0).kernel.to_scipy().toarray()
    expected = np.array([[1, np.exp(-1), np.exp(-9)], [np.exp(-1), 1, 0], [np.exp(-9), 0, 1]])
    np.testing.assert_allclose(K, expected, rtol=1e-6)


def test_a_precomputed_distance_of_zero_is_an_edge():
    matrix = csr_matrix((np.array([0.0, 0.0, 1.0]), [1, 0, 0], [0, 1, 2, 3]), shape=(3, 3))
    K = gpe.embed(neighbors=matrix, power=1, epsilon=1.0).kernel.to_scipy().toarray()
    assert K[0, 1] == K[1, 0] == 1


@pytest.mark.parametrize(
    ("neighbors", "error", "words"),
    [
        (5, TypeError, "neighbors must be a pair"),
        (np.zeros((4, 2)), TypeError, "neighbors must be a pair"),
        (([[1], [0]],), TypeError, "neighbors must be a pair"),
        (([[1], [0]], [[1.0]]), ValueError, "two arrays of one shape"),
        (([1, 0], [1.0, 1.0]), ValueError, "two arrays of one shape"),
        (([[1], [5]], [[1.0], [1.0]]), ValueError, r"between 0 and 1.*in row 1"),
        (([[1], [-2]], [[1.0], [1.0]]), ValueError, "between 0 and 1"),
        (([[1.0], [0.0]], [[1.0], [1.0]]), TypeError, "integers"),
        (([[1], [0]], [[1.0], [-1.0]]), ValueError, "finite distances of at least 0"),
        (([[1], [0]], [[1.0], [np.nan]]), ValueError, "finite distances"),
        (([[1], [0]], [["a"], ["b"]]), ValueError, "finite distances"),
        (([[0]], [[1.0]]), ValueError, "at least 2 rows"),
        (csr_matrix((2, 3)), ValueError, "square"),
    ],
)
def test_bad_lists_are_refused_before_a_store_is_made(neighbors, error, words, tmp_path):
    with pytest.raises(error, match=words):
        gpe.embed(neighbors=neighbors, power=2, epsilon=1.0, store=tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_lists_that_do_not_fit_the_points(lists, tmp_path):
    with pytest.raises(ValueError, match=r"one row per row of X \(7\)"):
        gpe.embed(np.eye(7), neighbors=lists, store=tmp_path / "store")
    with pytest.raises(ValueError, match="n_neighbors must be at most 6"):
        gpe.embed(neighbors=lists, n_neighbors=9, store=tmp_path / "store")
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("n_sampled", [100, 256, 1000])
@pytest.mark.parametrize("share", [0.003, 0.01, 0.03, 0.1])
def test_the_interval_of_recall_covers_in_95_of_100_cases(n_sampled, share):
    """Some rows miss a part of their list, few of them much; 400 trials each.

    An interval that covers in 95 % of cases covers fewer than 364 of 400 with probability 4e-4.
    """
    rng = np.random.default_rng(1)
    shares = np.ones(20_000)
    n_poor = int(share * len(shares))
    shares[:n_poor] -= rng.integers(1, 33, n_poor) / 32 * rng.random(n_poor) ** 2
    samples = rng.choice(shares, (400, n_sampled))
    covered = [abs(sample.mean() - shares.mean()) <= recall_half_width(sample) for sample in samples]
    assert sum(covered) >= 364, sum(covered)
