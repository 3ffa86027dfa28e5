"""What the paper proves, checked numerically; and its misprints, with tests so that nobody copies them.

Seeds are fixed. Tolerances are five standard errors of the estimate at the sample size used.
"""

import numpy as np
import pytest
from scipy import stats
from scipy.spatial.distance import pdist, squareform

import naive
from scalable_gpe import datasets, exact, sketch_matrix

KINDS = ["gaussian", "bernoulli"]
NORMALIZATIONS = ["symmetric", "bistochastic"]
POWER = 3


@pytest.fixture(params=NORMALIZATIONS)
def A(request):
    return exact.heat_kernel(datasets.torus(40, random_state=2), 2.0, request.param)


@pytest.mark.parametrize("kind", KINDS)
def test_mean_squared_distance_is_the_squared_diffusion_distance(A, kind):
    k = 20_000
    Y = exact.gp_embedding(A, sketch_matrix(len(A), k, kind=kind, random_state=11), POWER)
    ratio = (pdist(Y) / exact.diffusion_distances(A, POWER)) ** 2
    # a column's squared difference has relative variance 2 (Gaussian) or less (Bernoulli)
    assert np.abs(ratio - 1).max() < 5 * np.sqrt(2 / k)


@pytest.mark.parametrize("kind", KINDS)
def test_mean_inner_product_of_differences(A, kind):
    k, (i, j, l) = 20_000, (3, 17, 29)
    Y = exact.gp_embedding(A, sketch_matrix(len(A), k, kind=kind, random_state=12), POWER)
    rows = np.linalg.matrix_power(A, POWER)
    a, b = rows[i] - rows[j], rows[i] - rows[l]
    # variance of (a.g)(b.g): |a|^2 |b|^2 + (a.b)^2 for Gaussian g, less for signs
    error = np.sqrt(((a @ a) * (b @ b) + (a @ b) ** 2) / k)
    assert abs((Y[i] - Y[j]) @ (Y[i] - Y[l]) - a @ b) < 5 * error


def test_signs_scatter_less_than_normal_numbers():
    """Relative variance of a squared distance: 2/k for normal numbers, less sum a^4 / (sum a^2)^2 of it for signs."""
    n = 40_000
    A = exact.heat_kernel(datasets.torus(40, random_state=2), 1.0)
    a = A[3] - A[17]
    share = (a**4).sum() / (a**2).sum() ** 2
    assert 0.05 < share < 0.95
    for kind, variance in (("gaussian", 2.0), ("bernoulli", 2 * (1 - share))):
        squares = (a @ sketch_matrix(40, n, kind=kind, random_state=16)) ** 2 / (a @ a)
        # the fourth central moment of chi-square(1) is 60
        assert abs(squares.var() - variance) < 5 * np.sqrt(60 / n)


@pytest.mark.parametrize("pair", [(0, 1), (5, 30), (38, 39)])
def test_squared_distances_follow_chi_square(A, pair):
    """3,000 samples of each pair; each of the six cases gives a false alarm with probability 0.01."""
    k, n_samples = 6, 3_000
    G = sketch_matrix(len(A), k * n_samples, random_state=13)
    rows = np.linalg.matrix_power(A, POWER)
    difference = (rows[pair[0]] - rows[pair[1]]) @ G / np.sqrt(k)
    squared = (difference.reshape(n_samples, k) ** 2).sum(axis=1)
    statistic = k * squared / squareform(exact.diffusion_distances(A, POWER))[pair] ** 2
    assert stats.kstest(statistic, stats.chi2(k).cdf).pvalue > 0.01
    assert stats.kstest(statistic, stats.chi2(k + 1).cdf).pvalue < 1e-9


def _robustness_samples(k: int, n_samples: int) -> tuple[np.ndarray, np.ndarray]:
    """Sums |y_i - z_i|^2 over rows for two perturbed sets, sketched alike; and the eigenvalues of A - B."""
    X = datasets.torus(40, random_state=3)
    A = exact.heat_kernel(X, 2.0)
    B = exact.heat_kernel(X + 0.05 * np.random.default_rng(0).normal(size=X.shape), 2.0)
    G = sketch_matrix(len(A), k * n_samples, random_state=14)
    moved = exact.gp_embedding(A, G, 1) - exact.gp_embedding(B, G, 1)
    columns = (moved * np.sqrt(n_samples)) ** 2  # gp_embedding divided by the square root of all the columns
    return columns.sum(axis=0).reshape(n_samples, k).sum(axis=1), np.linalg.eigvalsh(A - B)


def test_robustness_mean_is_the_frobenius_norm():
    k, n_samples = 4, 20_000
    sums, mu = _robustness_samples(k, n_samples)
    error = np.sqrt(2 / k * (mu**4).sum() / n_samples)
    assert abs(sums.mean() - (mu**2).sum()) < 5 * error


def test_robustness_variance_has_fourth_powers():
    k, n_samples = 4, 20_000
    sums, mu = _robustness_samples(k, n_samples)
    right, printed = 2 / k * (mu**4).sum(), 2 / k * (mu**2).sum()
    # the kurtosis of a weighted sum of chi-square(k) is at most 3 + 12/k, and the tails of its estimate heavier still
    relative_error = np.sqrt((2 + 12 / k) / n_samples)
    assert abs(sums.var() / right - 1) < 5 * relative_error
    assert printed > 2 * right


def test_largest_error_falls_like_one_over_the_root_of_k(A):
    widths, n_samples = [16, 64, 256, 1024], 24
    rows = np.linalg.matrix_power(A, POWER)
    exact_squares = exact.diffusion_distances(A, POWER) ** 2
    errors = []
    for k in widths:
        sups = [
            np.abs(pdist(rows @ sketch_matrix(len(A), k, random_state=seed) / np.sqrt(k)) ** 2 - exact_squares).max()
            for seed in range(n_samples)
        ]
        errors.append(np.mean(sups))
    slope = np.polyfit(np.log(widths), np.log(errors), 1)[0]
    # a mean of 24 suprema scatters by some 8 %; over a range of 64 in k that moves the slope by about 0.03
    assert -0.6 < slope < -0.4


@pytest.mark.parametrize("seed", range(5))
def test_spectra_lie_between_minus_one_and_one(seed):
    rng = np.random.default_rng(seed)
    K = rng.random((30, 30)) * (rng.random((30, 30)) < 0.3)
    K = K + K.T + np.diag(rng.uniform(0.01, 0.1, 30))
    for A in (exact.symmetric(K), exact.bistochastic(K, 1e-12)):
        values = np.linalg.eigvalsh(A)
        assert values[0] < -0.1  # the matrices are far from positive semidefinite, and the bound holds nevertheless
        assert values[0] >= -1 - 1e-10
        assert np.isclose(values[-1], 1, atol=1e-10)


def test_spectrum_of_an_unfinished_scaling_is_bounded_too():
    K = exact.affinity(datasets.circle_with_outliers(60), 0.5)
    for max_iter in (1, 2, 5):
        with pytest.warns(RuntimeWarning, match="did not reach"):
            A = exact.bistochastic(K, max_iter=max_iter)
        assert np.isclose(np.linalg.eigvalsh(A)[-1], 1, atol=1e-12)


def test_top_eigenvector_of_the_bistochastic_kernel_is_constant():
    A = exact.bistochastic(exact.affinity(datasets.torus(50), 1.0), 1e-13)
    np.testing.assert_allclose(A @ np.ones(50), 1, atol=1e-12)


def test_top_eigenvector_of_the_symmetric_kernel_is_the_root_of_v():
    K = exact.affinity(datasets.circle_with_outliers(50), 0.5)
    q = K.sum(axis=1)
    v = (K / np.outer(q, q)).sum(axis=1)
    A = exact.symmetric(K)
    np.testing.assert_allclose(A @ np.sqrt(v), np.sqrt(v), atol=1e-12)
    assert np.abs(A @ v - v).max() > 1e-3 * v.max()


def test_slip_the_end_of_algorithm_2_is_not_the_scaling():
    K = np.array([[4.0]])
    d = [np.ones(1)]
    for _ in range(2):
        d.append(K @ (1 / d[-1]))
    assert np.abs(d[2] / d[0] - 1).max() <= 1e-8  # Algorithm 2 stops here
    printed, text = np.sqrt(d[2] * d[0]), np.sqrt(d[0] * d[1])
    assert (K / np.outer(printed, printed)).item() == 4
    assert (K / np.outer(text, text)).item() == 1
    assert exact.bistochastic(K).item() == 1


def test_slip_epsilon_stands_once_in_the_exponent():
    assert np.isclose(exact.affinity([[0.0], [3.0]], 2.0)[0, 1], np.exp(-9 / 2))


def test_slip_diffusion_distance_is_between_rows_of_the_power(A):
    values, vectors = np.linalg.eigh(A)
    for power in (1, 2, 5):
        by_spectrum = pdist(vectors * values**power)
        np.testing.assert_allclose(exact.diffusion_distances(A, power), by_spectrum, atol=1e-12)
    assert not np.allclose(exact.diffusion_distances(A, 2), pdist(A), rtol=0.1)


@pytest.mark.parametrize("time", [1, 2, 5])
def test_slip_all_components_of_the_diffusion_map_give_the_diffusion_distance(time):
    """The weights are lambda^t, so squared distances hold lambda^{2t}; the constant vector separates nothing."""
    A = exact.bistochastic(exact.affinity(datasets.torus(40), 2.0), 1e-13)
    Y = exact.diffusion_map(A, 39, time)
    np.testing.assert_allclose(pdist(Y), exact.diffusion_distances(A, time), atol=1e-11)


def test_karhunen_loeve_a_sketch_mixes_all_eigenvectors(A):
    """A^p G has independent normal coefficients lambda^p xi in the eigenbasis."""
    values, vectors = np.linalg.eigh(A)
    k = 5_000
    Y = np.sqrt(k) * exact.gp_embedding(A, sketch_matrix(len(A), k, random_state=15), 1)
    xi = (vectors.T @ Y) / values[:, None]
    covariance = xi @ xi.T / k
    assert np.abs(covariance - np.eye(len(A))).max() < 6 * np.sqrt(2 / k)


def test_same_sketch_same_embedding_up_to_the_perturbation():
    X = datasets.circle(60)
    G = sketch_matrix(60, 8)
    Y, Z = (exact.gp_embedding(exact.heat_kernel(points, 0.5), G, 4) for points in (X, X + 1e-9))
    np.testing.assert_allclose(Y, Z, atol=1e-7)


def test_naive_oracle_finds_eigenvalues():
    """The oracle itself is checked once against numpy."""
    A = exact.symmetric(exact.affinity(datasets.torus(12), 3.0))
    values, _ = naive.eigen(A.tolist())
    np.testing.assert_allclose(values, np.linalg.eigvalsh(A)[::-1], atol=1e-13)
