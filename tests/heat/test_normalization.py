"""Both normalisations of our kernel and of a user's matrix, and what happens when the iteration stops early."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix, diags

import scalable_gpe as gpe
from scalable_gpe import exact
from scalable_gpe.errors import ConnectivityWarning, ConvergenceWarning
from scalable_gpe.execution.memory_plan import block_sizes


@pytest.fixture(scope="module")
def kernel():
    X = np.random.default_rng(0).standard_normal((200, 2)).astype(np.float32)
    X[180:] = X[:20]
    with block_sizes(block_rows=48):
        return gpe.gaussian_kernel(gpe.neighbor_graph(X, 9))


@pytest.mark.parametrize("normalization", ["bistochastic", "symmetric"])
def test_against_the_dense_formula(kernel, normalization):
    heat = gpe.heat_kernel(kernel, normalization)
    K = kernel.to_scipy().toarray().astype(np.float64)
    expected = getattr(exact, normalization)(K)
    A = heat.to_scipy().toarray()
    np.testing.assert_allclose(A, expected, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(heat.scale[:, None] * K * heat.scale, expected, rtol=1e-6, atol=1e-12)
    V = np.random.default_rng(1).standard_normal((200, 5))
    np.testing.assert_allclose(heat @ V, expected @ V, rtol=1e-5, atol=1e-7)
    assert heat.converged and heat.scale.dtype == np.float64


def test_row_sums_of_the_bistochastic_kernel(kernel):
    heat = gpe.heat_kernel(kernel)
    sums = heat @ np.ones(200)
    assert np.abs(sums - 1).max() <= 1e-8
    assert heat.residual == pytest.approx(np.abs(sums - 1).max(), abs=1e-12)
    tighter = gpe.heat_kernel(kernel, tol=1e-12)
    assert np.abs(tighter @ np.ones(200) - 1).max() <= 1e-12
    assert tighter.n_iter > heat.n_iter


def test_the_top_eigenvector_of_the_symmetric_kernel(kernel):
    heat = gpe.heat_kernel(kernel, "symmetric")
    values = np.linalg.eigvalsh(heat.to_scipy().toarray())
    assert values[-1] == pytest.approx(1, abs=1e-7) and values[0] >= -1
    q = kernel @ np.ones(200)
    root = np.sqrt((kernel @ (1 / q)) / q)
    np.testing.assert_allclose(heat @ root, root, rtol=1e-10)


@pytest.mark.parametrize("max_iter", [1, 2, 5])
def test_stopping_early_warns_and_stays_usable(kernel, max_iter):
    with pytest.warns(ConvergenceWarning, match=f"stopped after {max_iter} products.*Raise max_iter"):
        heat = gpe.heat_kernel(kernel, max_iter=max_iter)
    assert not heat.converged and heat.n_iter == max_iter and heat.residual > 1e-8
    A = heat.to_scipy().toarray()
    values = np.linalg.eigvalsh(A)
    assert values[0] >= -1 - 1e-9 and values[-1] <= 1 + 1e-6
    # then G is not centred: the embedding is that of A as it is
    points = gpe.gp_embedding(heat, 4, (3, 40), precision="double")
    for power in points:
        expected = np.linalg.matrix_power(A, power) @ gpe.sketch_matrix(200, 4) / 2
        assert np.linalg.norm(points[power] - expected) < 1e-5 * np.linalg.norm(expected)


def test_isolated_rows_are_counted():
    X = np.concatenate([gpe.datasets.circle(100), [[50.0, 0], [0, 80.0]]])
    heat = gpe.heat_kernel(gpe.gaussian_kernel(gpe.neighbor_graph(X, 5), 0.01))
    assert heat.n_isolated == (heat.to_scipy().diagonal() > 0.99).sum() == 2


@pytest.mark.parametrize("normalization", ["bistochastic", "symmetric"])
def test_copies_of_a_row_are_not_isolated(normalization):
    """A row with many copies keeps its heat among them, far away or among others: as in the dense formula."""
    far = np.array([[9.0, 0], [0, 9], [-9, 0], [0, -9], [9, 9], [-9, 9], [-9, -9]])
    ring = gpe.datasets.circle(100)
    X = np.concatenate([ring, far, np.repeat(far[-1:], 99, axis=0), np.repeat(ring[:1], 1500, axis=0)])
    with pytest.warns(ConnectivityWarning, match="8 of 107 different rows have no effective neighbours"):
        result = gpe.embed(X, n_neighbors=5, epsilon=0.01, power=2, normalization=normalization)
    assert result.report["n_isolated"] == (result.heat.to_scipy().diagonal() > 0.99).sum() == 6
    assert (~result.ordinary).sum() == 6 + 100 + 1501


# --- a user's matrix ------------------------------------------------------------------------------


def users_matrix(n=90, seed=0):
    rng = np.random.default_rng(seed)
    dense = np.where(rng.random((n, n)) < 0.1, rng.random((n, n)), 0)
    return csr_matrix(np.maximum(dense, dense.T) + np.diag(rng.random(n) + 0.1))


@pytest.mark.parametrize("normalization", ["bistochastic", "symmetric"])
@pytest.mark.parametrize("convert", [csr_matrix, csr_matrix.tocoo, csr_matrix.tocsc, csr_matrix.tolil])
def test_a_users_matrix(normalization, convert):
    K = users_matrix()
    with block_sizes(block_rows=25):
        heat = gpe.heat_kernel(convert(K), normalization)
        expected = getattr(exact, normalization)(K.toarray().astype(np.float32).astype(float))
        np.testing.assert_allclose(heat.to_scipy().toarray(), expected, rtol=1e-6, atol=1e-12)
        points = gpe.gp_embedding(heat, 3, 7, precision="double")
    Y = np.linalg.matrix_power(expected, 7) @ gpe.sketch_matrix(90, 3) / np.sqrt(3)
    if normalization == "bistochastic":
        Y -= Y.mean(axis=0)
    assert np.linalg.norm(points - Y) < 1e-5 * np.linalg.norm(Y)


@pytest.mark.parametrize("normalization", ["bistochastic", "symmetric"])
@pytest.mark.parametrize("factor", [0.5, 0.1, 3, 1e-20, 1e20])
def test_a_constant_factor_changes_nothing(normalization, factor):
    X = gpe.datasets.circle(200, noise=0.05, random_state=0)
    K = gpe.gaussian_kernel(gpe.neighbor_graph(X, 16)).to_scipy().astype(float)
    heats = [gpe.heat_kernel(c * K, normalization) for c in (1, factor)]
    assert heats[1].n_isolated == heats[0].n_isolated
    plain, scaled = (gpe.gp_embedding(heat, 8) for heat in heats)
    np.testing.assert_allclose(scaled, plain, atol=2e-4 * np.abs(plain).max())


@pytest.mark.parametrize("factor", [0.1, 1, 10])
def test_isolated_rows_of_a_users_matrix(factor):
    """Rows whose diagonal differs by six orders of magnitude, and sample weights: as in the dense formula."""
    rng = np.random.default_rng(2)
    K = users_matrix(60).toarray()
    K[:5, 5:] *= 1e-5
    K[5:, :5] *= 1e-5
    root, weight = 10 ** rng.uniform(-3, 3, 60), rng.uniform(0.5, 2, 60)
    heat = gpe.heat_kernel(csr_matrix(factor * K * root[:, None] * root), sample_weight=weight)
    diagonal = heat.to_scipy().diagonal()
    np.testing.assert_allclose(heat.diagonal, diagonal, rtol=1e-6)
    assert (heat.isolated == (diagonal > 0.99)).all() and 0 < heat.n_isolated < 60


def test_a_users_matrix_is_not_changed():
    K = users_matrix()
    before = K.data.copy(), K.indices.copy(), K.indptr.copy()
    gpe.heat_kernel(K)
    assert all((now == then).all() for now, then in zip((K.data, K.indices, K.indptr), before))


@pytest.mark.parametrize(
    ("matrix", "error", "words"),
    [
        (np.eye(4), TypeError, "kernel must be a SparseKernel or a scipy sparse matrix"),
        (csr_matrix(np.ones((3, 4))), ValueError, "square"),
        (csr_matrix(np.array([[1, 0.5], [0.2, 1]])), ValueError, "symmetric"),
        (csr_matrix(np.array([[1, -0.5], [-0.5, 1]])), ValueError, "at least 0"),
        (csr_matrix(np.array([[1, np.nan], [np.nan, 1]])), ValueError, "finite"),
        (csr_matrix(np.array([[1, 0.5], [0.5, 0]])), ValueError, "positive diagonal; none in row 1"),
        (csr_matrix(1e-40 * np.array([[1, 0.5], [0.5, 1]])), ValueError, "above 1e-25 .* got 1e-40 .*Divide it by"),
        (csr_matrix(1e40 * np.array([[1, 0.5], [0.5, 1]])), ValueError, "below 1e\\+25.* and 1e\\+40.*Divide it by"),
    ],
)
def test_bad_matrices(matrix, error, words):
    with pytest.raises(error, match=words):
        gpe.heat_kernel(matrix)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"normalization": "row"}, ValueError, "normalization must be one of"),
        ({"tol": 0}, ValueError, "tol must be"),
        ({"max_iter": 0}, ValueError, "max_iter must be"),
        ({"max_iter": True}, TypeError, "max_iter must be"),
    ],
)
def test_bad_options(options, error, words):
    with pytest.raises(error, match=words):
        gpe.heat_kernel(diags([1.0] * 4).tocsr(), **options)
