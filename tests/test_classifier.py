"""GraphClassifier: equivalent to propagate; new rows by the rule of transform."""

import warnings

import numpy as np
import pytest

import scalable_gpe as gpe
from scalable_gpe.errors import ConnectivityWarning


@pytest.mark.parametrize("normalization", ["bistochastic", "symmetric"])
def test_training_rows_get_their_own_and_new_rows_those_of_near_ones(normalization):
    X = gpe.datasets.torus(800, random_state=1)
    y = np.where(np.arange(800) < 60, np.where(X[:, 2] > 0, "right", "left"), "")
    model = gpe.GraphClassifier(normalization=normalization, n_neighbors=12).fit(X[:700], y[:700])
    expected = gpe.embed(X[:700], n_neighbors=12, normalization=normalization, progress=False)
    found = expected.propagate(y[:700], method="harmonic")
    np.testing.assert_array_equal(model.label_distributions_, found.probabilities)
    np.testing.assert_allclose(model.predict_proba(X[:700]), found.probabilities, atol=1e-6)
    assert (model.transduction_ == model.predict(X[:700])).all()
    new = model.predict_proba(X[700:])
    np.testing.assert_allclose(new.sum(axis=1), 1, atol=1e-6)
    assert model.score(X[700:], np.where(X[700:, 2] > 0, "right", "left")) > 0.9


def test_rows_that_no_label_reaches_get_the_shares_of_the_classes():
    X = np.concatenate([gpe.datasets.circle(60), gpe.datasets.circle(60) + 50])
    y = np.full(120, -1)
    y[[0, 30, 31]] = [3, 4, 5]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = gpe.GraphClassifier(n_neighbors=6).fit(X, y)
    with pytest.warns(ConnectivityWarning, match="no label reaches 1 of 2 rows"):
        found = model.predict_proba(X[[0, 100]] + 1e-3)
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(found[1], np.nanmean(model.label_distributions_, axis=0), atol=1e-6)
