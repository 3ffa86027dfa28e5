"""Distances in place of points: embed and estimators."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from scipy.spatial.distance import cdist
from sklearn.neighbors import kneighbors_graph
from sklearn.utils import get_tags

import scalable_gpe as gpe

ESTIMATORS = [gpe.GaussianProcessEmbedding, gpe.DiffusionMap]
NORMALIZATIONS = ["bistochastic", "symmetric"]


@pytest.fixture(scope="module")
def torus():
    return gpe.datasets.torus(100, random_state=4)


def close(got, expected, tol=1e-5):
    np.testing.assert_allclose(got, expected, atol=tol * np.abs(expected).max())


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
@pytest.mark.parametrize("epsilon", [0.3, "local"])
def test_distances_are_as_good_as_points(torus, normalization, epsilon):
    X = torus
    options = {"n_neighbors": 12, "epsilon": epsilon, "normalization": normalization, "power": 5, "progress": False}
    model = gpe.GaussianProcessEmbedding(4, metric="precomputed", **options).fit(cdist(X, X))
    points = gpe.embed(X, n_components=4, **options)
    close(model.embedding_, points.points)
    assert model.result_.parameters["metric"] == "precomputed"
    assert get_tags(model).input_tags.pairwise and not get_tags(gpe.DiffusionMap()).input_tags.pairwise


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_sparse_distances_of_neighbours(torus, estimator, tmp_path):
    """As scikit-learn's transformers make them; each row may list itself."""
    X = torus
    options = {"power": 5, "epsilon": 0.3, "progress": False}
    graph = kneighbors_graph(X, 12, mode="distance")
    model = estimator(3, metric="precomputed", store=tmp_path / "run.zarr", **options).fit(graph)
    points = estimator(3, n_neighbors=12, **options).fit(X)
    close(np.asarray(model.embedding_[:]), points.embedding_)


def with_value(value, i=3, j=5):
    D = np.ones((9, 9)) - np.eye(9)
    D[i, j] = value
    return D


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.ones((9, 8)), "X must be a square matrix of distances"),
        (csr_matrix(np.ones((9, 8))), "X must be a square matrix of distances"),
        (with_value(-1.0), "at least 0 .* some are negative"),
        (csr_matrix(with_value(-1.0)), "at least 0 .* some are negative"),
        (with_value(2.0), "must be symmetric .* rows 3, 5 and the columns"),
        (with_value(2.0, 4, 4), "zeros on its diagonal .* row 4"),
    ],
)
def test_matrices_that_are_refused(estimator, X, message):
    with pytest.raises(ValueError, match=message):
        estimator(2, metric="precomputed", progress=False).fit(X)


def test_other_mistakes(torus):
    D = cdist(torus, torus)
    result = gpe.embed(D, metric="precomputed", n_components=2, power=2, progress=False)
    with pytest.raises(ValueError, match="transform does not know metric='precomputed'"):
        result.transform(D)
    with pytest.raises(ValueError, match="needs the distances as X, without neighbors="):
        gpe.embed(D, metric="precomputed", neighbors=csr_matrix(D))
    with pytest.raises(TypeError, match="an array or a sparse matrix of distances"):
        gpe.embed("points.npy", metric="precomputed")
    audit = gpe.audit(result, D, n_exact=20)
    assert audit["recall"] is None
