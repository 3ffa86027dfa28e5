"""The neighbours transformer against scikit-learn's, and what scanpy asks of it."""

import pickle
import warnings

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.metrics import pairwise_distances
from sklearn.neighbors import KNeighborsTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

import scalable_gpe as gpe
from scalable_gpe.errors import GPEWarning


@parametrize_with_checks([gpe.KNeighborsTransformer(3)])
def test_what_scikit_learn_asks_for(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GPEWarning)
        check(estimator)


def points(metric: str) -> np.ndarray:
    X = np.random.default_rng(0).normal(size=(360, 6))
    X[40:60] = X[20]  # more equal rows than neighbours
    X[80] = X[81]
    return (X > 0.3).astype(float) if metric in ("hamming", "jaccard") else X


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "correlation", "hamming"])
def test_distances_are_those_of_scikit_learn(metric):
    X = points(metric)
    if metric == "hamming":
        X = np.random.default_rng(1).integers(0, 2, (360, 60)).astype(float)
    train, new = X[:300], X[300:]
    model = gpe.KNeighborsTransformer(9, metric=metric)
    theirs = KNeighborsTransformer(n_neighbors=9, metric=metric, mode="distance").fit(train)
    for X, found in ((train, model.fit_transform(train)), (new, model.transform(new))):
        expected = theirs.transform(X)
        assert found.shape == expected.shape and (np.diff(found.indptr) == 10).all()
        np.testing.assert_allclose(found.data, np.sort(expected.data.reshape(-1, 10)).ravel(), atol=1e-6)
        rows = np.repeat(np.arange(len(X)), 10)  # each distance is that of its two rows
        np.testing.assert_allclose(
            pairwise_distances(X, train, metric=metric)[rows, found.indices], found.data, atol=1e-6
        )


def test_each_training_row_is_first_in_its_list_and_listed_once():
    X = points("euclidean")
    found = gpe.KNeighborsTransformer(9).fit_transform(X)
    lists = found.indices.reshape(-1, 10)
    assert (lists[:, 0] == np.arange(len(X))).all()
    assert all(len(set(row)) == 10 for row in lists.tolist())
    assert (found.data.reshape(-1, 10)[[20, *range(40, 60)]] == 0).all()  # these have 20 equal rows each
    assert (found.data.reshape(-1, 10)[[80, 81]] == 0).sum() == 4
    assert lists[80, :2].tolist() == [80, 81] and lists[81, :2].tolist() == [81, 80]


def test_jaccard_lists_training_rows_only():
    X = np.random.default_rng(0).integers(0, 2, (200, 40)).astype(float)
    model = gpe.KNeighborsTransformer(5, metric="jaccard")
    theirs = KNeighborsTransformer(n_neighbors=5, metric="jaccard", algorithm="brute").fit_transform(X.astype(bool))
    np.testing.assert_allclose(model.fit_transform(X).data, theirs.data, atol=1e-6)
    with pytest.raises(ValueError, match="transform does not know metric='jaccard'"):
        model.transform(X)


@pytest.mark.parametrize("unit", [1e-9, 1e15])
def test_units_of_the_input(unit):
    X = points("euclidean")
    train, new = X[:300] * unit, X[300:] * unit
    model = gpe.KNeighborsTransformer(9).fit(train)
    theirs = KNeighborsTransformer(n_neighbors=9).fit(train)
    np.testing.assert_allclose(model.transform(new).data, theirs.transform(new).data, rtol=1e-5)


def test_sparse_rows():
    X = points("euclidean")
    X[np.abs(X) < 0.5] = 0
    dense, model = gpe.KNeighborsTransformer(9).fit(X[:300]), gpe.KNeighborsTransformer(9)
    for found, expected in (
        (model.fit_transform(csr_matrix(X[:300])), dense.fit_transform(X[:300])),
        (model.transform(csr_matrix(X[300:])), dense.transform(X[300:])),
    ):
        np.testing.assert_allclose(found.data, expected.data, rtol=1e-5)


def test_an_approximate_search_reaches_its_recall_with_any_number_of_threads():
    X = np.random.default_rng(2).normal(size=(3000, 12))
    model = gpe.KNeighborsTransformer(15, method="cells", n_jobs=1)
    found = model.fit_transform(X)
    exact = KNeighborsTransformer(n_neighbors=15, mode="connectivity").fit(X).kneighbors_graph(None)
    shared = exact.multiply(found.copy() > 0).nnz / exact.nnz  # scipy sorts the columns of its operands
    assert shared > 0.9 and abs(shared - model.graph_.recall) < 0.03
    again = clone(model).set_params(n_jobs=2).fit_transform(X)
    for part in ("indptr", "indices", "data"):
        assert getattr(again, part).tobytes() == getattr(found, part).tobytes()


def test_parameters_and_pickling():
    X = points("euclidean")
    model = gpe.KNeighborsTransformer(9).set_params(n_neighbors=12, random_state=4)
    assert gpe.KNeighborsTransformer().get_params()["n_neighbors"] == 15  # scanpy reads the number here
    assert model.fit_transform(X).nnz == 13 * len(X)
    again = pickle.loads(pickle.dumps(model))
    assert (again.transform(X[:5]) != model.transform(X[:5])).nnz == 0
    with pytest.raises((TypeError, ValueError), match="n_neighbors"):
        model.set_params(n_neighbors=None).fit(X)
