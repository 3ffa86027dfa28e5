"""The exact reference against loops that share no code with it."""

import ast
import inspect
import warnings

import numpy as np
import pytest
from scipy.spatial.distance import pdist, squareform

import naive
from scalable_gpe import datasets, exact

CLOSE = {"rtol": 0, "atol": 1e-12}


@pytest.fixture(params=[0, 1])
def X(request):
    rng = np.random.default_rng(request.param)
    return rng.normal(size=(14, 3)) * [1.0, 0.5, 0.2]


@pytest.fixture
def K(X):
    return exact.affinity(X, 0.7)


@pytest.fixture(params=["symmetric", "bistochastic"])
def A(request, K):
    return {"symmetric": exact.symmetric(K), "bistochastic": exact.bistochastic(K, 1e-14)}[request.param]


def test_affinity(X, K):
    np.testing.assert_allclose(K, naive.affinity(X.tolist(), 0.7), **CLOSE)
    assert (np.diag(K) == 1).all()
    assert (K == K.T).all()


def test_symmetric(K):
    got = exact.symmetric(K)
    np.testing.assert_allclose(got, naive.symmetric(K.tolist()), **CLOSE)
    assert (got == got.T).all()


def test_bistochastic_is_the_limit_of_the_papers_iteration(K):
    got = exact.bistochastic(K, 1e-14)
    np.testing.assert_allclose(got, naive.bistochastic(K.tolist()), **CLOSE)
    assert (got == got.T).all()


@pytest.mark.parametrize("tol", [1e-3, 1e-8, 1e-12])
def test_bistochastic_reaches_tol(K, tol):
    assert np.abs(exact.bistochastic(K, tol).sum(axis=1) - 1).max() <= 2 * tol


def test_bistochastic_without_convergence_warns(K):
    with pytest.warns(RuntimeWarning, match="max_iter=3"):
        exact.bistochastic(K, max_iter=3)


@pytest.mark.parametrize(
    ("points", "epsilon"),
    [
        (datasets.torus(2000, random_state=5), 0.3),
        (datasets.circle_with_outliers(2000), 0.5),
        (datasets.point_clouds(2000), 0.05),
    ],
)
def test_two_thousand_points_take_at_most_forty_products(points, epsilon):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        exact.bistochastic(exact.affinity(points, epsilon), max_iter=40)


def test_the_papers_iteration_needs_ten_times_as_many_products():
    K = exact.affinity(datasets.circle(60), 0.25)
    _, products = naive.sinkhorn(K.tolist(), 1e-8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        exact.bistochastic(K, 1e-8, max_iter=24)
    assert products > 240


def test_bistochastic_of_a_disconnected_kernel():
    K = np.kron(np.eye(2), [[1.0, 0.5], [0.5, 1.0]])
    np.testing.assert_allclose(exact.bistochastic(K), K / 1.5, atol=1e-8)


def test_heat_kernel_is_affinity_then_normalisation(X, K):
    assert (exact.heat_kernel(X, 0.7) == exact.bistochastic(K)).all()
    assert (exact.heat_kernel(X, 0.7, "symmetric") == exact.symmetric(K)).all()


@pytest.mark.parametrize("power", [1, 2, 7])
def test_gp_embedding(A, power):
    G = np.random.default_rng(3).normal(size=(len(A), 5))
    np.testing.assert_allclose(
        exact.gp_embedding(A, G, power), naive.gp_embedding(A.tolist(), G.tolist(), power), **CLOSE
    )


@pytest.mark.parametrize("time", [1, 3])
def test_diffusion_map(A, time):
    np.testing.assert_allclose(exact.diffusion_map(A, 4, time), naive.diffusion_map(A.tolist(), 4, time), **CLOSE)


def test_diffusion_map_has_deterministic_signs(A):
    Y = exact.diffusion_map(A, 5, 1)
    assert (Y[np.abs(Y).argmax(axis=0), range(5)] > 0).all()


@pytest.mark.parametrize("power", [1, 4])
def test_diffusion_distances(A, power):
    got = exact.diffusion_distances(A, power)
    np.testing.assert_allclose(got, naive.diffusion_distances(A.tolist(), power), **CLOSE)
    rows = np.linalg.matrix_power(A, power)
    assert np.isclose(squareform(got)[2, 9], np.linalg.norm(rows[2] - rows[9]))


def test_bilipschitz(X):
    Y, d = X[:, :2], pdist(X)
    np.testing.assert_allclose(exact.bilipschitz(Y, d), naive.bilipschitz(Y.tolist(), d.tolist()), rtol=1e-12)
    assert np.isclose(exact.bilipschitz(3 * X, d), 1)


def test_bilipschitz_of_repeated_and_collapsed_points():
    assert exact.bilipschitz([[0.0], [0.0], [1.0]], [0.0, 1.0, 2.0]) == 2
    assert exact.bilipschitz([[0.0], [0.0], [1.0]], [1.0, 1.0, 1.0]) == np.inf
    assert exact.bilipschitz([[0.0], [1.0], [2.0]], [0.0, 1.0, 1.0]) == np.inf


def test_formulas_use_numpy_and_scipy_only():
    tree = ast.parse(inspect.getsource(exact))
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    names = {name.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for name in node.names}
    modules |= {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    foreign = {module.split(".")[0] for module in modules} - {"warnings", "typing"}
    assert foreign == {"numpy", "scipy", "scalable_gpe"} and "checks" in names


GOOD = np.eye(3)
POINTS = [[0.0], [1.0], [2.0]]


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: exact.affinity([[0.0], [np.nan], [np.inf]], 1.0), ValueError, r"X must be finite.*rows 1, 2"),
        (lambda: exact.affinity([[1.0, 2.0]], 1.0), ValueError, "at least 2 rows"),
        (lambda: exact.affinity(POINTS, 0.0), ValueError, "epsilon must be a positive"),
        (lambda: exact.affinity(POINTS, "auto"), TypeError, "epsilon must be a positive"),
        (lambda: exact.symmetric(np.ones((2, 3))), ValueError, "K must be square"),
        (lambda: exact.symmetric([[1.0, 0.2], [0.1, 1.0]]), ValueError, "K must be symmetric"),
        (lambda: exact.symmetric([[1.0, -0.2], [-0.2, 1.0]]), ValueError, "K must be non-negative"),
        (lambda: exact.bistochastic([[0.0, 1.0], [1.0, 0.0]]), ValueError, "positive diagonal"),
        (lambda: exact.bistochastic(GOOD, tol=0), ValueError, "tol must be"),
        (lambda: exact.bistochastic(GOOD, max_iter=0), ValueError, "max_iter must be at least 1"),
        (lambda: exact.heat_kernel(POINTS, 1.0, "row"), ValueError, "normalization must be one of.*symmetric"),
        (lambda: exact.gp_embedding(GOOD, np.ones((4, 2)), 1), ValueError, "G must have one row per row of A"),
        (lambda: exact.gp_embedding(GOOD, GOOD, 0), ValueError, "power must be at least 1"),
        (lambda: exact.gp_embedding(GOOD, GOOD, 1.5), TypeError, "power must be a whole number"),
        (lambda: exact.diffusion_map(GOOD, 3, 1), ValueError, "n_components must be at most 2"),
        (lambda: exact.diffusion_map(GOOD, 1, 0), ValueError, "time must be a positive"),
        (lambda: exact.diffusion_map(np.diag([1.0, -0.5]), 1, 0.5), ValueError, "time must be a whole number"),
        (lambda: exact.diffusion_distances([[1.0]], 1), ValueError, "A must have at least 2 rows"),
        (lambda: exact.diffusion_distances(GOOD, 0), ValueError, "power must be at least 1"),
        (lambda: exact.bilipschitz(POINTS, GOOD), ValueError, "distances must be condensed.*squareform"),
        (lambda: exact.bilipschitz(POINTS, [1.0, np.nan, 1.0]), ValueError, "distances must be finite"),
        (lambda: exact.bilipschitz([[1.0], [1.0]], [0.0]), ValueError, "Y must hold at least two distinct"),
    ],
)
def test_bad_input(call, error, words):
    with pytest.raises(error, match=words):
        call()
