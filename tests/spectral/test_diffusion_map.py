"""Diffusion maps and the spectral density, against dense eigenvectors."""

import numpy as np
import pytest
from scipy.linalg import subspace_angles

import scalable_gpe as gpe
from scalable_gpe import exact
from scalable_gpe.errors import GPEWarning
from scalable_gpe.execution.block_sizes import block_sizes


def heat_of(X, n_neighbors=None, epsilon="auto", normalization="bistochastic"):
    with block_sizes(block_rows=max(20, len(X) // 3)):
        graph = gpe.neighbor_graph(X, n_neighbors or len(X) - 1)
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


@pytest.mark.parametrize("normalization", ["bistochastic", "symmetric"])
@pytest.mark.parametrize(("n_neighbors", "epsilon"), [(32, "auto"), (6, 0.3), (4, 5.0)])
@pytest.mark.filterwarnings("ignore::scalable_gpe.errors.TruncationWarning")
def test_the_density_against_dense_eigenvalues(normalization, n_neighbors, epsilon):
    X = gpe.datasets.torus(600, random_state=1)
    heat = heat_of(X, n_neighbors, epsilon, normalization)
    values = dense_values(heat)
    density = gpe.spectrum(heat, n_probes=16)
    assert -1 <= density.lower <= values[0]
    assert density.lower == np.floor(density.lower * 128) / 128
    assert density.lower > values[0] - 0.25
    powers = np.array([1, 4, 16, 64])
    ranks = np.array([(values ** (2 * p)).sum() ** 2 / (values ** (4 * p)).sum() for p in powers])
    np.testing.assert_allclose(density.effective_rank(powers), ranks, rtol=0.35)
    for p in powers:
        assert density.size(p) == pytest.approx(np.sqrt((values ** (2 * p)).sum() / 600), rel=0.2)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.filterwarnings("ignore::scalable_gpe.errors.TruncationWarning")
def test_the_interval_holds_the_spectrum(seed):
    """Random graphs, few and many points, flat and steep weights."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((int(rng.integers(20, 400)), int(rng.integers(1, 8))))
    normalization = ["bistochastic", "symmetric"][seed % 2]
    heat = heat_of(X, int(rng.integers(1, 12)), float(10.0 ** rng.uniform(-2, 2)), normalization)
    assert gpe.spectrum(heat, random_state=seed).lower <= dense_values(heat)[0] + 1e-9


@pytest.mark.filterwarnings("error::scalable_gpe.errors.GPEWarning")
def test_one_number_or_several():
    assert issubclass(GPEWarning, UserWarning)
    density = gpe.spectrum(heat_of(gpe.datasets.circle(200), 8))
    assert isinstance(density.effective_rank(4), float)
    assert density.effective_rank([4]).shape == (1,)
    assert density.effective_rank(4) == density.effective_rank([4])[0]
