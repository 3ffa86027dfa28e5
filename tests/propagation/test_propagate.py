"""Class probabilities against dense solves: components, weights, duplicates, both normalisations; bad input."""

import numpy as np
import pytest

import scalable_gpe as gpe
from scalable_gpe import exact
from scalable_gpe.errors import ConnectivityWarning
from scalable_gpe.execution.block_sizes import block_sizes  # noqa: F401

METHODS = ("spreading", "harmonic", "poisson")


def heat_of(X: np.ndarray, normalization: str, weight: np.ndarray | None = None) -> gpe.HeatKernel:
    kernel = gpe.gaussian_kernel(gpe.neighbor_graph(X, 8))
    return gpe.heat_kernel(kernel, normalization, tol=1e-13, sample_weight=weight)


def circles(duplicates: bool) -> np.ndarray:
    """Three circles without edges between them; the third one has no label."""
    rng = np.random.default_rng(0)
    number = np.arange(240) % 3
    angle = 2 * np.pi * (np.arange(240) // 3 + rng.uniform(0, 0.8, 240)) / 80
    X = np.column_stack([np.cos(angle) + 10 * number, np.sin(angle)])
    if duplicates:
        X[30:60:3] = X[0]
        X[90:120:3] = X[63]
    return X


def some_labels() -> np.ndarray:
    """Three classes on the first circle, two on the second one."""
    labels = np.full(240, -1)
    labels[[0, 63, 120, 126, 180]] = [0, 1, 2, 2, 0]
    labels[[1, 61, 121]] = [1, 1, 0]
    return labels


def shared(X: np.ndarray, labels: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
    """Mean indicators of equal rows: what their labels mean to the dense solution."""
    w = np.ones(len(X)) if weight is None else weight
    one_hot = np.where(labels[:, None] == np.arange(labels.max() + 1), 1.0, 0.0)
    _, number = np.unique(X, axis=0, return_inverse=True)
    total = np.bincount(number, w)
    means = np.stack([np.bincount(number, w * column) for column in one_hot.T], axis=1) / total[:, None]
    return means[number]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("normalization", ["bistochastic", "symmetric"])
@pytest.mark.parametrize("case", ["plain", "duplicates", "weights"])
def test_probabilities_are_those_of_a_dense_solve(method, normalization, case):
    X, labels = circles(case == "duplicates"), some_labels()
    weight = np.random.default_rng(1).uniform(0.2, 3, 240) if case == "weights" else None
    heat = heat_of(X, normalization, weight)
    horizon = 4000.0 if method == "spreading" else None
    with pytest.warns(ConnectivityWarning, match="80 of 240 rows are in components of the kernel without a label"):
        found = gpe.propagate(heat, labels, method=method, horizon=horizon or "auto", tol=1e-8)
    A = heat.to_scipy().toarray().astype(float)
    expected = exact.propagate((A + A.T) / 2, shared(X, labels, weight), method, horizon, sample_weight=weight)
    assert np.isnan(expected).any(axis=1).sum() == found.n_unreached == 80
    np.testing.assert_allclose(found.probabilities, expected, rtol=2e-6, atol=1e-7)
    assert (found.codes[np.isnan(expected[:, 0])] == -1).all() and found.codes.max() == 2
    assert found.converged and found.residual <= 1e-8
