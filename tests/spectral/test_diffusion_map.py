"""Diffusion maps and the spectral density, against dense eigenvectors."""

from contextlib import nullcontext

import numpy as np
import pytest
from scipy.linalg import subspace_angles
from scipy.sparse import csr_matrix

import scalable_gpe as gpe
from scalable_gpe import exact
from scalable_gpe.errors import ConnectivityWarning, GPEWarning
from scalable_gpe.execution.memory_plan import block_sizes

SLOW = pytest.mark.slow


def heat_of(X, n_neighbors=None, epsilon="auto", normalization="bistochastic"):
    with block_sizes(block_rows=max(20, len(X) // 3)):
        graph = gpe.neighbor_graph(X, n_neighbors or len(np.unique(X, axis=0)) - 1)
        return gpe.heat_kernel(gpe.gaussian_kernel(graph, epsilon), normalization)


def agree(points, values, A, power, tolerance=1e-4, gap=1e-6):
    """Equal to the dense map up to sign, and as a whole within each group of (nearly) equal eigenvalues."""
    k = points.shape[1]
    expected = exact.diffusion_map(A, k, power)
    dense = np.linalg.eigvalsh(A)[::-1][1 : k + 1]
    np.testing.assert_allclose(values, dense, atol=tolerance)
    first = 0
    for last in range(1, k + 1):
        if last < k and dense[last - 1] - dense[last] < gap:
            continue
        found, reference = points[:, first:last], expected[:, first:last]
        if last - first == 1:
            error = min(np.linalg.norm(found - reference), np.linalg.norm(found + reference))
            assert error <= tolerance * np.linalg.norm(reference), (first, error)
        else:
            assert np.sin(subspace_angles(found, reference)).max() <= tolerance
            np.testing.assert_allclose(np.linalg.norm(found, axis=0), np.linalg.norm(reference, axis=0), rtol=tolerance)
        first = last


@pytest.mark.some(4)
@pytest.mark.parametrize("normalization", ["bistochastic", "symmetric"])
@pytest.mark.parametrize("power", [1, 5])
def test_against_the_dense_map(normalization, power):
    """400 points with repeats, all neighbours."""
    rng = np.random.default_rng(0)
    X = (rng.standard_normal((400, 2)) * [3, 1]).astype(np.float32)
    X[350:] = X[rng.integers(0, 40, 50)]
    heat = heat_of(X, epsilon=0.7, normalization=normalization)
    points, values = gpe.diffusion_map(heat, 6, power)
    assert points.dtype == np.float64 and points.shape == (400, 6)
    agree(points, values, exact.heat_kernel(X.astype(float), 0.7, normalization), power)
    largest = np.abs(points).argmax(axis=0)
    assert (points[largest, range(6)] > 0).all()
    assert (points[350:] == points[[int(np.flatnonzero((x == X).all(1))[0]) for x in X[350:]]]).all()


def test_degenerate_pairs():
    """The eigenvalues of a regular ring come in pairs."""
    turn = np.linspace(0, 2 * np.pi, 300, endpoint=False)
    X = np.stack([np.cos(turn), np.sin(turn)], axis=1)
    heat = heat_of(X, epsilon=0.05)
    points, values = gpe.diffusion_map(heat, 6)
    assert abs(values[0] - values[1]) < 1e-6 < values[1] - values[2]
    agree(points, values, exact.heat_kernel(X.astype(np.float32).astype(float), 0.05), 1, gap=1e-5)


def test_a_truncated_kernel_and_a_noisy_one():
    X = gpe.datasets.torus(700, random_state=3)
    heat = heat_of(X, n_neighbors=15)
    points, values = gpe.diffusion_map(heat, 8, 2)
    A = heat.to_scipy().toarray()
    agree(points, values, (A + A.T) / 2, 2)


@pytest.mark.parametrize("n_rows", [60, 450])
@pytest.mark.parametrize("normalization", ["bistochastic", "symmetric"])
@pytest.mark.filterwarnings("ignore::scalable_gpe.errors.TruncationWarning")
def test_a_disconnected_graph(n_rows, normalization):
    """Three pieces give eigenvalue 1 three times; only the known vector is removed."""
    X = np.concatenate([gpe.datasets.torus(n_rows // 3, random_state=s) + 30 * s for s in range(3)])
    heat = heat_of(X, n_neighbors=9, epsilon=2.0, normalization=normalization)
    points, values = gpe.diffusion_map(heat, 2)
    np.testing.assert_allclose(values, 1, atol=1e-6)
    known = np.ones(n_rows)
    if normalization == "symmetric":
        q = heat.kernel @ np.ones(n_rows)
        known = np.sqrt((heat.kernel @ (1 / q)) / q)
    np.testing.assert_allclose(known @ points, 0, atol=1e-5)
    np.testing.assert_allclose(points.T @ points, np.eye(2), atol=1e-5)
    for piece in np.split(points / known[:, None], 3):  # constant on each piece
        assert np.ptp(piece, axis=0).max() < 1e-4 * np.abs(points / known[:, None]).max()


def pieces(sizes, apart=40.0):
    """Tori of some sizes, far apart, and in each a row that comes three times; rows in random order."""
    tori = [gpe.datasets.torus(size, random_state=s) + apart * s for s, size in enumerate(sizes)]
    rows = np.concatenate([row for torus in tori for row in (torus, torus[:1], torus[:1])])
    return rows[np.random.default_rng(0).permutation(len(rows))].astype(np.float32)


@pytest.mark.parametrize("normalization", ["bistochastic", "symmetric"])
@pytest.mark.parametrize("n_pieces", [2, pytest.param(3, marks=SLOW), 5, 18, pytest.param(50, marks=SLOW)])
@pytest.mark.filterwarnings("ignore::scalable_gpe.errors.TruncationWarning")
def test_all_eigenvectors_of_a_disconnected_kernel(n_pieces, normalization):
    heat = heat_of(pieces([max(14, 320 // n_pieces)] * n_pieces), 8, 8.0, normalization)
    A = heat.to_scipy().toarray().astype(np.float64)
    dense = np.linalg.eigvalsh((A + A.T) / 2)[::-1]
    for k in sorted({1, min(4, n_pieces), n_pieces - 1, n_pieces + 6}):
        with nullcontext() if k >= n_pieces else pytest.warns(ConnectivityWarning, match=f"{n_pieces} connected"):
            points, values = gpe.diffusion_map(heat, k)
        assert heat.kernel.n_connected_components == n_pieces
        np.testing.assert_allclose(values, dense[1 : k + 1], atol=1e-6)
        np.testing.assert_allclose(A @ points, points * values, atol=1e-6)
        np.testing.assert_allclose(points.T @ points, np.diag(values**2), atol=1e-6)


@pytest.mark.filterwarnings("ignore::scalable_gpe.errors.ConnectivityWarning")
def test_strays_are_components_of_the_kernel():
    """One component of the graph, but 18 rows whose weights are all below 1e-12."""
    strays = 40 * np.random.default_rng(0).standard_normal((18, 4))
    X = np.concatenate([gpe.datasets.torus(400), strays])
    result = gpe.embed(X, n_neighbors=16, epsilon=0.5, n_components=1, power=1)
    assert result.report["n_connected_components"] == 1
    assert result.report["n_kernel_components"] == result.kernel.n_connected_components == 19
    values = gpe.diffusion_map(result.heat, 20)[1]
    np.testing.assert_allclose(values[:18], 1, atol=1e-7)
    A = result.heat.to_scipy().toarray().astype(np.float64)
    np.testing.assert_allclose(values, np.linalg.eigvalsh((A + A.T) / 2)[::-1][1:21], atol=1e-6)


@pytest.mark.filterwarnings("ignore::scalable_gpe.errors.GPEWarning")
def test_components_come_in_the_documented_order():
    """Largest first, in every regime with the same bytes; of equal ones the one with the first row."""
    X = np.concatenate([gpe.datasets.torus(n, random_state=n) + 40.0 * n for n in (30, 60, 31)])
    X = np.concatenate([X, X[-31:] + 40.0])
    found = []
    for block_rows in (16, 1000):
        with block_sizes(block_rows=block_rows):
            kernel = gpe.gaussian_kernel(gpe.neighbor_graph(X, 8), 2.0)
            found.append(gpe.diffusion_map(gpe.heat_kernel(kernel), 2)[0])
    assert found[0].tobytes() == found[1].tobytes()
    first, second = found[0].T
    assert (first[30:90] > 0).all() and (np.delete(first, np.s_[30:90]) < 0).all()
    np.testing.assert_allclose(second[30:90], 0)
    assert (second[90:121] > 0).all() and (second[121:] < 0).all() and (second[:30] < 0).all()


def test_pieces_joined_by_almost_nothing():
    """One start vector sees one vector of a nearly fourfold eigenvalue: the others must not be lost."""
    X = np.concatenate([gpe.datasets.torus(100, random_state=s) + 40 * s for s in range(5)])
    K = gpe.gaussian_kernel(gpe.neighbor_graph(X, 16)).to_scipy().tolil()
    for row in range(0, 400, 100):
        K[row, row + 100] = K[row + 100, row] = 1e-10
    heat = gpe.heat_kernel(K)
    assert heat.kernel.n_connected_components == 1
    np.testing.assert_allclose(gpe.diffusion_map(heat, 4)[1], 1, atol=1e-8)


@pytest.mark.filterwarnings("error::scalable_gpe.errors.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore::scalable_gpe.errors.TruncationWarning")
def test_pieces_that_are_nearly_apart():
    """Ten eigenvalues within 1e-4 of 1: an iteration does not separate them; few points are solved densely."""
    heat = heat_of(np.concatenate([gpe.datasets.torus(30, random_state=s) + 2.1 * s for s in range(11)]), 12, 1.0)
    assert heat.kernel.n_connected_components == 1
    points, values = gpe.diffusion_map(heat, 8)
    A = heat.to_scipy().toarray().astype(np.float64)
    np.testing.assert_allclose(values, np.linalg.eigvalsh((A + A.T) / 2)[::-1][1:9], atol=1e-8)
    np.testing.assert_allclose(A @ points, points * values, atol=1e-6)


def test_components_of_your_own_matrix():
    """Weights count relative to the diagonal, which need not be 1; weak edges below 1e-12 of it do not connect."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((90, 2)) + 3 * np.repeat(np.arange(3), 30)[:, None]
    scale = 10.0 ** rng.integers(-6, 6, 90)
    K = np.exp(-((X[:, None] - X[None]) ** 2).sum(axis=2))
    same = np.repeat(np.arange(3), 30)[:, None] == np.repeat(np.arange(3), 30)
    heat = gpe.heat_kernel(csr_matrix(np.where(same, K, 1e-14) * scale[:, None] * scale))
    assert heat.kernel.n_connected_components == 3
    np.testing.assert_allclose(gpe.diffusion_map(heat, 3)[1][:2], 1)
    whole = gpe.heat_kernel(csr_matrix(np.where(same, K, 1e-10) * scale[:, None] * scale))
    assert whole.kernel.n_connected_components == 1


def test_few_points():
    X = np.array([[0.0], [1.0], [3.0]])
    heat = heat_of(X, epsilon=2.0)
    points, values = gpe.diffusion_map(heat, 2, 3)
    agree(points, values, exact.heat_kernel(X, 2.0), 3)
    with pytest.raises(ValueError, match="n_components must be at most 2"):
        gpe.diffusion_map(heat, 3)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"n_components": 0}, ValueError, "n_components must be"),
        ({"n_components": True}, TypeError, "n_components must be"),
        ({"power": 0}, ValueError, "power must be"),
        ({"power": "2"}, TypeError, "power must be"),
    ],
)
def test_bad_options(options, error, words):
    heat = heat_of(np.random.default_rng(0).standard_normal((30, 2)), 5)
    with pytest.raises(error, match=words):
        gpe.diffusion_map(heat, **options)
    with pytest.raises(TypeError, match="heat must be a HeatKernel"):
        gpe.diffusion_map(np.eye(3))


# --- the spectral density -------------------------------------------------------------------------


def dense_values(heat):
    """Eigenvalues of A for distinct points, without the constant vector if it is removed."""
    A = heat.to_scipy().toarray()
    values = np.linalg.eigvalsh((A + A.T) / 2)
    return values[:-1] if heat.is_centred else values


@pytest.mark.some(4)
@pytest.mark.parametrize("normalization", ["bistochastic", "symmetric"])
@pytest.mark.parametrize(("n_neighbors", "epsilon"), [(32, "auto"), (6, 0.3), (4, 5.0)])
@pytest.mark.filterwarnings("ignore::scalable_gpe.errors.TruncationWarning")
def test_the_density_against_dense_eigenvalues(normalization, n_neighbors, epsilon):
    X = gpe.datasets.torus(600, random_state=1)
    heat = heat_of(X, n_neighbors, epsilon, normalization)
    values = dense_values(heat)
    density = gpe.spectrum(heat, n_probes=16)
    assert values[0] - 1e-6 <= density.nodes.min() <= values[0] + 0.25
    powers = np.array([1, 4, 16, 64])
    ranks = np.array([(values ** (2 * p)).sum() ** 2 / (values ** (4 * p)).sum() for p in powers])
    np.testing.assert_allclose(density.effective_rank(powers), ranks, rtol=0.35)
    for p in powers:
        assert density.size(p) == pytest.approx(np.sqrt((values ** (2 * p)).sum() / 600), rel=0.2)


@pytest.mark.filterwarnings("error::scalable_gpe.errors.GPEWarning")
def test_one_number_or_several():
    assert issubclass(GPEWarning, UserWarning)
    density = gpe.spectrum(heat_of(gpe.datasets.circle(200), 8))
    assert isinstance(density.effective_rank(4), float)
    assert density.effective_rank([4]).shape == (1,)
    assert density.effective_rank(4) == density.effective_rank([4])[0]
