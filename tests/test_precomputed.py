"""Distances in place of points: embed, estimators, new rows."""

import pickle

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from scipy.spatial.distance import cdist
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import KNeighborsClassifier, kneighbors_graph
from sklearn.pipeline import make_pipeline
from sklearn.utils import get_tags

import scalable_gpe as gpe

ESTIMATORS = [gpe.GaussianProcessEmbedding, gpe.DiffusionMap]
NORMALIZATIONS = ["bistochastic", "symmetric"]


@pytest.fixture(scope="module")
def torus():
    X = gpe.datasets.torus(130, random_state=4)
    return X[:100], X[100:]


def close(got, expected, tol=1e-5):
    np.testing.assert_allclose(got, expected, atol=tol * np.abs(expected).max())


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
@pytest.mark.parametrize("epsilon", [0.3, "local"])
def test_distances_are_as_good_as_points(torus, normalization, epsilon):
    """Also for new rows, which are given by their distances to the training rows."""
    X, new = torus
    options = {"n_neighbors": 12, "epsilon": epsilon, "normalization": normalization, "power": 5, "progress": False}
    model = gpe.GaussianProcessEmbedding(4, metric="precomputed", **options).fit(cdist(X, X))
    points = gpe.embed(X, n_components=4, **options)
    close(model.embedding_, points.points)
    close(model.transform(cdist(new, X)), points.transform(new))
    assert (model.transform(cdist(X, X)) == model.embedding_).all()
    assert model.result_.parameters["metric"] == "precomputed"
    assert get_tags(model).input_tags.pairwise and not get_tags(gpe.DiffusionMap()).input_tags.pairwise


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_sparse_distances_of_neighbours(torus, estimator, tmp_path):
    """As scikit-learn's transformers make them; each row may list itself."""
    X, new = torus
    options = {"power": 5, "epsilon": 0.3, "progress": False}
    graph = kneighbors_graph(X, 12, mode="distance")
    model = estimator(3, metric="precomputed", store=tmp_path / "run.zarr", **options).fit(graph)
    points = estimator(3, n_neighbors=12, **options).fit(X)
    close(np.asarray(model.embedding_[:]), points.embedding_)
    far = csr_matrix(np.where(cdist(new, X) < 3, cdist(new, X), 0))
    close(model.transform(far), points.transform(new))
    opened = gpe.open(tmp_path / "run.zarr")
    if estimator is gpe.GaussianProcessEmbedding:
        close(opened.transform(cdist(new, X)), points.transform(new))


@pytest.mark.parametrize("fitted", ["all", "some", "sparse"])
def test_sparse_distances_without_stored_zeros(torus, fitted, tmp_path):
    """A training row is recognised by its list; a new row that is as near to others is not taken for one."""
    X, new = torus
    D, few = cdist(X, X), kneighbors_graph(X, 12, mode="distance")
    given = {"all": D, "some": few, "sparse": csr_matrix(D)}[fitted]
    result = gpe.embed(given, metric="precomputed", n_neighbors=12, n_components=4, power=5, store=tmp_path / "run")
    for rows in (few, csr_matrix(D), kneighbors_graph(X, 5, mode="distance"), kneighbors_graph(X, 20, mode="distance")):
        placed, distance = result.transform(rows, return_distance=True)
        assert (placed == result.points[:]).all() and (distance == 0).all()
    far = csr_matrix(cdist(new, X))
    close(result.transform(far), result.transform(far.toarray()))
    beside = few[:1].tolil()
    beside[0, beside.rows[0][3]] *= 1.001
    assert (result.transform(beside.tocsr(), return_distance=True)[1] > 0).all()


def test_cross_validation_and_pickling():
    """Scikit-learn cuts rows and columns of a pairwise matrix."""
    label = np.arange(60) % 2
    X = np.random.default_rng(0).normal(size=(60, 2)) + 5 * label[:, None]
    D = cdist(X, X)
    model = gpe.GaussianProcessEmbedding(8, metric="precomputed", power=4, epsilon=4.0, progress=False)
    assert cross_val_score(make_pipeline(model, KNeighborsClassifier(5)), D, label, cv=3).mean() > 0.9
    again = pickle.loads(pickle.dumps(model.fit(D)))
    assert again.transform(D).tobytes() == model.transform(D).tobytes()


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
    X, new = torus
    D = cdist(X, X)
    result = gpe.embed(D, metric="precomputed", n_components=2, power=2, progress=False)
    with pytest.raises(ValueError, match="distances to the 100 training rows"):
        result.transform(cdist(new, X[:50]))
    with pytest.raises(ValueError, match="a distance to some training row"):
        result.transform(csr_matrix((3, 100)))
    with pytest.raises(ValueError, match="needs the distances as X, without neighbors="):
        gpe.embed(D, metric="precomputed", neighbors=csr_matrix(D))
    with pytest.raises(TypeError, match="an array or a sparse matrix of distances"):
        gpe.embed("points.npy", metric="precomputed")
    audit = gpe.audit(result, D, n_exact=20)
    assert audit["recall"] is None
