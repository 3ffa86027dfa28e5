"""The whole pipeline against the paper's dense formulas: the same G, all neighbours, or known truncation."""

import numpy as np
import pytest
from scipy.spatial.distance import pdist

import scalable_gpe as gpe
from scalable_gpe import exact
from scalable_gpe.execution.memory_plan import block_sizes
from scalable_gpe.sketch.powers import due

POWERS = (1, 2, 8, 63, 64, 300)


@pytest.fixture(scope="module")
def data():
    """Points of a noisy circle, a fifth of them repeated once or several times, in mixed order."""
    rng = np.random.default_rng(3)
    distinct = gpe.datasets.circle(400, noise=0.05, random_state=1).astype(np.float32)
    repeats = distinct[rng.integers(0, 60, 100)]
    X = np.concatenate([distinct, repeats])[rng.permutation(500)]
    return X


def reference(X, epsilon, normalization, G, power):
    """The paper's Y in float64, centred if the library centres it."""
    A = exact.heat_kernel(X.astype(np.float64), epsilon, normalization)
    Y = exact.gp_embedding(A, G, power)
    return Y - Y.mean(axis=0) if normalization == "bistochastic" else Y


N_OTHERS = 399  # different rows of the data beside one of them


def relative(got, expected):
    return np.linalg.norm(got - expected) / np.linalg.norm(expected)


def centred(Y, normalization):
    Y = np.asarray(Y, dtype=np.float64)
    return Y - Y.mean(axis=0) if normalization == "bistochastic" else Y


@pytest.mark.parametrize("normalization", ["bistochastic", "symmetric"])
@pytest.mark.parametrize("sketch", ["gaussian", "bernoulli"])
def test_all_neighbors_in_double_precision(data, normalization, sketch):
    with block_sizes(block_rows=128, panel_columns=4):
        result = gpe.embed(
            data,
            n_neighbors=N_OTHERS,
            epsilon=0.05,
            power=POWERS,
            n_components=6,
            normalization=normalization,
            sketch=sketch,
            precision="double",
            random_state=11,
            axes="sketch",
        )
    assert result.report["n_duplicates"] == 100
    assert list(result.points) == list(POWERS)
    G = gpe.sketch_matrix(len(data), 6, kind=sketch, random_state=11)
    for power in POWERS:
        expected = reference(data, 0.05, normalization, G, power)
        error = relative(centred(result.points[power], normalization), expected)
        assert error <= 1e-5, (power, error)


@pytest.mark.parametrize("normalization", ["bistochastic", "symmetric"])
def test_single_precision_keeps_the_reported_error(data, normalization):
    result = gpe.embed(
        data,
        n_neighbors=N_OTHERS,
        epsilon=0.05,
        power=POWERS,
        n_components=6,
        normalization=normalization,
        axes="sketch",
    )
    G = gpe.sketch_matrix(len(data), 6)
    for power in POWERS:
        expected = reference(data, 0.05, normalization, G, power)
        error = relative(centred(result.points[power], normalization), expected)
        assert error <= 3 * result.report["polynomial_error"][power], power
        assert result.report["polynomial_error"][power] < 1e-4


def test_single_precision_of_a_truncated_kernel():
    """Negative eigenvalues and a small A^p G, against float64 powers of the same sparse A."""
    X = gpe.datasets.torus(900, random_state=5)
    result = gpe.embed(X, n_neighbors=12, power=(16, 100, 500), n_components=8, axes="sketch")
    A = result.heat.to_scipy().astype(np.float64)
    Y = gpe.sketch_matrix(900, 8) / np.sqrt(8)
    Y = Y - Y.mean(axis=0)
    for power in range(1, 501):
        Y = A @ Y
        if power in result.points:
            error = relative(result.points[power], Y)
            assert error <= 3 * result.report["polynomial_error"][power], power


@pytest.mark.parametrize("epsilon", ["local", "auto"])
def test_a_torus_and_what_the_lost_mass_says(epsilon):
    X = gpe.datasets.torus(1500, random_state=2).astype(np.float32)
    result = gpe.embed(X, power=16, epsilon=epsilon)
    if epsilon == "local":
        dense = exact.bistochastic(exact.local_affinity(X, result.kernel.sigma))
    else:
        dense = exact.heat_kernel(X.astype(float), result.kernel.epsilon)
    sparse = result.heat.to_scipy()
    rows = np.random.default_rng(0).choice(1500, 64, replace=False)

    def distances(A):
        columns = np.eye(1500)[:, rows]
        for _ in range(16):
            columns = A @ columns
        return pdist(columns.T)

    truth = distances(dense)
    error = np.median(np.abs(distances(sparse) - truth) / truth)
    assert error < 0.02
    assert result.report["lost_mass"] / 10 < error < result.report["lost_mass"] * 10
    # the embedding's squared distances are as chi-square predicts: relative sd sqrt(2/16)
    shown = pdist(result.points[rows].astype(np.float64))
    assert abs(np.mean(shown**2 / truth**2) - 1) < 0.15


def test_the_report_names_the_smallest_eigenvalue():
    X = gpe.datasets.torus(800, random_state=2)
    result = gpe.embed(X, n_neighbors=6, epsilon="global", power=[2, 64])
    smallest = np.linalg.eigvalsh(result.heat.to_scipy().astype(np.float64).toarray())[0]
    assert smallest - 1e-6 <= result.report["lambda_min"] <= smallest + 0.05
    assert "lambda_min" in gpe.embed(X, power=2).report["reasons"]


@pytest.mark.parametrize("n_terms", range(2, 11))
def test_every_term_of_a_series_is_added_once(n_terms):
    """Terms are added by threes; the constant one begins the sum."""
    coefficients, added = tuple(10.0**degree for degree in range(n_terms)), []
    for degree in range(1, n_terms):
        added += [share for share in due(coefficients, degree) or () if share]
    assert added == list(coefficients[1:])
