"""Metrics: every one against scipy's distances and the dense formula."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from scipy.spatial.distance import cdist

import scalable_gpe as gpe
from scalable_gpe import exact

OPTIONS = {"n_neighbors": 9, "n_components": 3, "power": 4, "progress": False}


def real_rows(n_rows=120, seed=0):
    return np.random.default_rng(seed).standard_normal((n_rows, 6)) + np.arange(6)


def binary_rows(n_rows=120, seed=0):
    """Rows near a few prototypes, so that neighbours are well below the average."""
    rng = np.random.default_rng(seed)
    prototypes = np.random.default_rng(9).random((5, 40)) < 0.4
    return (prototypes[rng.integers(0, 5, n_rows)] ^ (rng.random((n_rows, 40)) < 0.15)).astype(np.uint8)


ROWS = {"cosine": real_rows, "correlation": real_rows, "hamming": binary_rows, "jaccard": binary_rows}


def squares(metric, X, Y):
    """The squared distance that enters the kernel, from scipy."""
    scipys = cdist(X.astype(bool), Y.astype(bool), metric) if metric == "jaccard" else cdist(X, Y, metric)
    return scipys * {"cosine": 2, "correlation": 2, "hamming": 1, "jaccard": 1}[metric]


@pytest.mark.parametrize("metric", ROWS)
def test_distances_kernel_and_points_against_the_dense_formula(metric):
    X = ROWS[metric](40)
    D = squares(metric, X, X)
    epsilon = float(np.median(D))
    how = {"n_components": 4, "power": 3, "precision": "double", "axes": "sketch", "progress": False}
    result = gpe.embed(X, metric=metric, n_neighbors=39, epsilon=epsilon, **how)
    np.testing.assert_allclose(result.graph.distances**2, np.sort(D, axis=1)[:, 1:], rtol=1e-5, atol=1e-6)
    K = np.exp(-D / epsilon)
    np.testing.assert_allclose(result.kernel.to_scipy().toarray(), K, rtol=1e-5)
    Y = exact.gp_embedding(exact.bistochastic((K + K.T) / 2), gpe.sketch_matrix(40, 4), 3)
    shift = (Y - result.points).mean(axis=0)
    np.testing.assert_allclose(result.points + shift, Y, atol=1e-5 * np.abs(Y).max())
    assert result.report["recall"] == 1.0 and result.report["lost_mass"] == 0.0


METHODS = [(metric, method) for metric in ROWS for method in ("kdtree", "brute", "cells")]
METHODS.append(pytest.param("jaccard", "pynndescent", marks=pytest.mark.slow))


@pytest.mark.parametrize(("metric", "method"), METHODS)
def test_nearest_neighbours_by_every_method(metric, method):
    if metric == "jaccard" and method in ("kdtree", "cells"):
        with pytest.raises(ValueError, match="method must be 'brute' or 'pynndescent' for metric='jaccard'"):
            gpe.neighbor_graph(ROWS[metric](), 9, metric=metric, method=method)
        return
    X = ROWS[metric](120)
    graph = gpe.neighbor_graph(X, 9, metric=metric, method=method)
    nearest = np.sort(squares(metric, X, np.unique(X, axis=0)), axis=1)[:, 1:10]
    assert graph.method == method
    assert (graph.distances**2 <= nearest + 1e-6).mean() > 0.98
    found = np.take_along_axis(squares(metric, X, X), graph.indices, axis=1)
    np.testing.assert_allclose(graph.distances**2, found, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("metric", ["correlation", "hamming"])
def test_new_rows_are_those_of_the_mapped_rows(metric):
    """Equivalent to the euclidean metric on rows that are mapped by hand."""
    X, new = ROWS[metric](150), ROWS[metric](30, seed=3)

    def mapped(rows):
        rows = rows - rows.mean(axis=1, keepdims=True) if metric == "correlation" else rows / np.sqrt(rows.shape[1])
        return rows / np.linalg.norm(rows, axis=1, keepdims=True) if metric == "correlation" else rows

    result = gpe.embed(X, metric=metric, epsilon="global", **OPTIONS)
    by_hand = gpe.embed(mapped(X).astype(np.float32), epsilon=result.kernel.epsilon, **OPTIONS)
    assert (result.transform(X) == result.points).all()
    got, expected = result.transform(new), by_hand.transform(mapped(new).astype(np.float32))
    np.testing.assert_allclose(got, expected, atol=1e-3 * np.abs(expected).max())


@pytest.mark.parametrize("metric", ["correlation", "hamming", "jaccard"])
def test_same_bytes_in_a_store_and_from_sparse_rows(metric, tmp_path):
    X = ROWS[metric]()
    result = gpe.embed(X, metric=metric, **OPTIONS)
    stored = gpe.embed(X, metric=metric, store=tmp_path / "run.zarr", **OPTIONS)
    sparse = gpe.embed(csr_matrix(X), metric=metric, **OPTIONS)
    again = gpe.open(tmp_path / "run.zarr", X)
    for other in (stored, sparse, again):
        assert np.asarray(other.points[:]).tobytes() == result.points.tobytes()
    assert again.graph.recall == result.graph.recall


def test_jaccard_has_no_new_points_and_says_so(tmp_path):
    X = binary_rows()
    X[100:] = X[:20]
    result = gpe.embed(X.astype(bool), metric="jaccard", epsilon="local", **OPTIONS)
    assert (result.points[100:] == result.points[:20]).all()
    with pytest.raises(ValueError, match="transform does not know metric='jaccard'"):
        result.transform(X)
    audit = gpe.audit(result, X, n_exact=20)
    assert audit["recall"] is None and "straight-line" in audit["reasons"]["recall"]
    assert "straight-line" in result.report["reasons"]["lost_mass"]
    X, lists = X[:100], (result.graph.indices[:100], result.graph.distances[:100])
    lists = gpe.embed(X, metric="jaccard", neighbors=lists, **OPTIONS)
    assert lists.graph.recall == 1.0


@pytest.mark.parametrize(
    ("metric", "wrong", "message"),
    [
        ("correlation", np.full(6, 0.1), "no meaning for constant rows; got row 7"),
        ("hamming", np.full(6, 2.0), "must hold 0 and 1 only .* in row 7"),
        ("jaccard", np.full(6, 0.5), "must hold 0 and 1 only .* in row 7"),
        ("hamming", np.full(6, np.nan), "must hold 0 and 1 only .* in row 7"),
        ("correlation", np.full(6, np.nan), "must be finite"),
    ],
)
def test_rows_without_a_distance_are_refused(metric, wrong, message):
    X = real_rows(30) if metric == "correlation" else binary_rows(30)[:, :6].astype(float)
    X[7] = wrong
    with pytest.raises(ValueError, match=message):
        gpe.embed(X, metric=metric, progress=False)
