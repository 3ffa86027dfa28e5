"""The truncated kernel: its entries, the choice of epsilon, and what truncation loses."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.spatial.distance import cdist

import scalable_gpe as gpe
from scalable_gpe.errors import TruncationWarning
from scalable_gpe.execution.memory_plan import block_sizes

pytestmark = pytest.mark.filterwarnings("ignore::scalable_gpe.errors.TruncationWarning")


@pytest.fixture(scope="module")
def X():
    """Distinct points, some of them repeated."""
    X = np.random.default_rng(0).standard_normal((240, 3)).astype(np.float32)
    X[220:] = X[:20]
    return X


@pytest.fixture(scope="module")
def graph(X):
    with block_sizes(block_rows=50):
        return gpe.neighbor_graph(X, 8)


def dense_kernel(X, graph, epsilon):
    """K by its definition: exp(-d^2/eps) where one row lists the other (or its equal), 1 between equal rows."""
    D = cdist(X.astype(float), X.astype(float))
    near = np.zeros(D.shape, bool)
    near[np.arange(len(X))[:, None], graph.indices] = True
    first = [int(np.flatnonzero((row == X).all(axis=1))[0]) for row in X]
    near = near[:, first]  # a listed point stands for all rows that equal it
    return np.where(near | near.T | (D == 0), np.exp(-(D**2) / epsilon), 0)


def test_entries_in_the_users_order(X, graph):
    kernel = gpe.gaussian_kernel(graph, 0.7)
    expected = dense_kernel(X, graph, 0.7)
    K = kernel.to_scipy()
    assert K.dtype == np.float32 and K.shape == kernel.shape == (240, 240)
    np.testing.assert_allclose(K.toarray(), expected, rtol=2e-6, atol=1e-7)
    assert (K != K.T).nnz == 0
    assert (K.diagonal() == 1).all()
    assert K.has_sorted_indices


def test_products(X, graph):
    kernel = gpe.gaussian_kernel(graph, 0.7)
    expected = dense_kernel(X, graph, 0.7)
    rng = np.random.default_rng(1)
    for width in (1, 3, 4, 16, 23, 55):
        V = rng.standard_normal((240, width))
        np.testing.assert_allclose(kernel @ V, expected @ V, rtol=1e-5, atol=1e-5)
        narrow = kernel @ V.astype(np.float32)
        assert narrow.dtype == np.float32
        np.testing.assert_allclose(narrow, expected @ V, rtol=1e-4, atol=1e-4)
    ones = kernel @ np.ones(240)
    assert ones.shape == (240,) and ones.dtype == np.float64
    np.testing.assert_allclose(ones, expected.sum(axis=1), rtol=1e-6)
    np.testing.assert_allclose(kernel @ ([1] * 240), expected.sum(axis=1), rtol=1e-6)
    with pytest.raises(ValueError, match="must be a numeric array with 240 rows"):
        kernel @ np.ones(239)
    with pytest.raises(ValueError, match="numeric array"):
        kernel @ np.array(["a"] * 240)


def test_to_dask(graph):
    kernel = gpe.gaussian_kernel(graph, 0.7)
    blocks = kernel.to_dask()
    assert blocks.shape == (240, 240) and blocks.numblocks[0] > 2
    rows = [blocks.blocks[number].compute() for number in range(blocks.numblocks[0])]
    assert all(hasattr(row, "tocsr") for row in rows)
    together = np.concatenate([row.toarray() for row in rows])
    assert (together == kernel.to_scipy().toarray()).all()


def test_nnz_counts_entries_between_points(X):
    graph = gpe.neighbor_graph(X[:200], 8)  # no repeats
    assert gpe.gaussian_kernel(graph, 0.7).nnz == gpe.gaussian_kernel(graph, 0.7).to_scipy().nnz


# --- epsilon --------------------------------------------------------------------------------------


@pytest.mark.parametrize("m", [2, 5, 8, 32])
def test_auto_gives_the_median_row_its_effective_neighbors(m):
    X = gpe.datasets.torus(600, random_state=1)
    graph = gpe.neighbor_graph(X, m)
    squared = np.sort(cdist(X, X), axis=1)[:, 1 : m + 1] ** 2

    def excess(log_epsilon):
        return np.median(np.exp(-squared / np.exp(log_epsilon)).sum(axis=1)) - max(m / 7, 1)

    expected = np.exp(brentq(excess, np.log(1e-6), np.log(1e3), xtol=1e-12))
    assert gpe.gaussian_kernel(graph, "auto").epsilon == pytest.approx(expected, rel=1e-4)


def test_bgh_is_at_the_steepest_growth():
    X = gpe.datasets.torus(500, random_state=1)
    graph = gpe.neighbor_graph(X, 20)
    squared = np.sort(cdist(X, X), axis=1)[:, :21] ** 2  # the row itself belongs to the sum

    def total(epsilon):
        return np.exp(-squared / epsilon).sum()

    slope = {}
    for exponent in range(-40, 20):
        slope[2.0**exponent] = np.log2(total(2.0**exponent) / total(2.0 ** (exponent - 1)))
    assert gpe.gaussian_kernel(graph, "bgh").epsilon == max(slope, key=slope.get)


def test_rules_need_distances_above_zero():
    neighbors = np.array([[1], [0], [1]]), np.zeros((3, 1))
    for rule in ("auto", "bgh"):
        with pytest.raises(ValueError, match=f"epsilon='{rule}' needs distances"):
            gpe.embed(neighbors=neighbors, epsilon=rule)
    assert np.isfinite(gpe.embed(neighbors=neighbors, epsilon=1.0, power=2).points).all()


def test_a_number_is_kept(graph):
    assert gpe.gaussian_kernel(graph, 0.25).epsilon == 0.25
    assert gpe.gaussian_kernel(graph, 1).epsilon == 1.0
    assert gpe.gaussian_kernel(graph, np.float32(0.5)).epsilon == 0.5
    # one kernel does not change another
    both = [gpe.gaussian_kernel(graph, epsilon) for epsilon in (0.3, 0.9)]
    assert both[0].to_scipy().sum() < both[1].to_scipy().sum()


@pytest.mark.parametrize(
    ("epsilon", "error"), [(0, ValueError), (-1.0, ValueError), ("mean", ValueError), (None, TypeError)]
)
def test_bad_epsilon(graph, epsilon, error):
    with pytest.raises(error, match="epsilon must be"):
        gpe.gaussian_kernel(graph, epsilon)


def test_a_kernel_needs_a_graph():
    with pytest.raises(TypeError, match="graph must be a NeighborGraph"):
        gpe.gaussian_kernel(np.eye(3))


# --- lost mass ------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.02, 0.3, 5.0])
def test_lost_mass_by_its_definition(epsilon):
    """1 - sum K_sparse / sum K_dense without the diagonal, over all rows: the sample takes all of them."""
    X = gpe.datasets.torus(120, random_state=3).astype(np.float32)
    graph = gpe.neighbor_graph(X, 6)
    kernel = gpe.gaussian_kernel(graph, epsilon)
    dense = np.exp(-(cdist(X.astype(float), X.astype(float)) ** 2) / epsilon)
    lost = 1 - (kernel.to_scipy().sum(dtype=float) - 120) / (dense.sum() - 120)
    # the distances of missing pairs are kept in bins of 1/128 octave
    assert kernel.lost_mass == pytest.approx(lost, rel=0.05, abs=1e-6)


def test_lost_mass_of_a_sample():
    X = gpe.datasets.torus(2500, random_state=3).astype(np.float32)
    kernel = gpe.gaussian_kernel(gpe.neighbor_graph(X, 12), "auto")
    dense = np.exp(-(cdist(X.astype(float), X.astype(float)) ** 2) / kernel.epsilon)
    lost = 1 - (kernel.to_scipy().sum(dtype=float) - 2500) / (dense.sum() - 2500)
    assert kernel.lost_mass == pytest.approx(lost, rel=0.4)


def test_nothing_is_lost_with_all_neighbors():
    X = np.random.default_rng(0).standard_normal((60, 2))
    assert gpe.gaussian_kernel(gpe.neighbor_graph(X, 59), 1.0).lost_mass == 0.0


def test_truncation_warns_where_it_matters():
    X = gpe.datasets.torus(500, random_state=0)
    graph = gpe.neighbor_graph(X, 8)
    with pytest.warns(TruncationWarning, match=r"misses \d+% of the dense kernel's mass.*Raise n_neighbors"):
        gpe.gaussian_kernel(graph, 5.0)


@pytest.mark.filterwarnings("error::scalable_gpe.errors.GPEWarning")
def test_no_warning_where_the_truncated_kernel_is_the_model():
    X = np.random.default_rng(0).standard_normal((500, 30))  # many dimensions, rule of the library
    kernel = gpe.gaussian_kernel(gpe.neighbor_graph(X, 8))
    assert kernel.lost_mass > 0.05


# --- epsilon_sweep --------------------------------------------------------------------------------


def test_epsilon_sweep_is_the_table_of_single_kernels():
    X = np.concatenate([gpe.datasets.circle(150, random_state=s) + np.array([9 * s, 0]) for s in range(2)])
    graph = gpe.neighbor_graph(X, 10)
    epsilons = [1e-4, 1e-3, 1e-2, 0.1]
    table = gpe.epsilon_sweep(graph, epsilons)
    assert set(table) == {"epsilon", "lost_mass", "effective_neighbors", "last_weight", "n_connected_components"}
    squared = np.sort(cdist(X, X), axis=1)[:, 1:11] ** 2
    for row, epsilon in enumerate(epsilons):
        weights = np.exp(-squared / epsilon)
        assert table["epsilon"][row] == epsilon
        assert table["lost_mass"][row] == graph.scan.lost_mass(epsilon)
        assert table["effective_neighbors"][row] == pytest.approx(np.median(weights.sum(axis=1)), rel=1e-3)
        assert table["last_weight"][row] == pytest.approx(np.median(weights[:, -1]), rel=1e-2, abs=1e-12)
        joined = np.exp(-(graph.distances.astype(float) ** 2) / epsilon) >= 1e-6
        assert table["n_connected_components"][row] == components(graph.indices, joined)
    assert table["n_connected_components"][-1] == graph.n_connected_components == 2
    assert (np.diff(table["effective_neighbors"]) > 0).all()


def components(indices, joined):
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import connected_components

    rows = np.repeat(np.arange(len(indices)), joined.sum(axis=1))
    matrix = csr_matrix((np.ones(len(rows)), (rows, indices[joined])), shape=(len(indices),) * 2)
    return connected_components(matrix, directed=False)[0]


def test_epsilon_sweep_by_default_goes_around_auto(graph):
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(gpe.epsilon_sweep(graph))
    assert table.shape == (25, 5)
    auto = gpe.gaussian_kernel(graph).epsilon
    assert table["epsilon"].iloc[0] < auto < table["epsilon"].iloc[-1]
    assert not table.isna().any().any()


def test_epsilon_sweep_without_points():
    lists = gpe.neighbor_graph(gpe.datasets.circle(60), 4)
    graph = gpe.embed(neighbors=(lists.indices, lists.distances), power=1).graph
    table = gpe.epsilon_sweep(graph, [0.01])
    assert np.isnan(table["lost_mass"]).all() and table["effective_neighbors"][0] > 0
    with pytest.raises(ValueError, match="epsilons must be a positive"):
        gpe.epsilon_sweep(graph, [0.1, -1])


@pytest.mark.parametrize("resident_bytes", [0, 10**9])
def test_blocks_are_the_stored_ones_whether_they_stay_or_not(tmp_path, resident_bytes):
    how = {"n_neighbors": 6, "power": 2, "progress": False}
    with block_sizes(block_rows=256):
        result = gpe.embed(gpe.datasets.torus(1500), store=tmp_path / "run.zarr", **how)
    edges = replace(result.kernel.edges, resident_bytes=resident_bytes, _kept={})
    for number in [*range(6), 5, 0, 3, *range(6)]:
        for found, truth in zip(edges.block(number), edges._read(number), strict=True):
            np.testing.assert_array_equal(found, truth)
    assert len(edges._kept) == (6 if resident_bytes else 0)
    runs = [len(np.unique(edges.block(number).indices // 1024)) for number in range(6)]
    assert edges.blocks_touched() == 4 * max(runs)


@pytest.mark.parametrize("resident_blocks", [0, 3])
def test_as_many_blocks_stay_as_there_is_room_for(tmp_path, resident_blocks):
    with block_sizes(block_rows=256):
        result = gpe.embed(
            gpe.datasets.torus(1500), n_neighbors=6, power=2, store=tmp_path / "run.zarr", progress=False
        )
    truth = list(result.kernel.edges.blocks())
    room = resident_blocks * max(block.nbytes for block in truth)
    edges = replace(result.kernel.edges, resident_bytes=room, _kept={})
    for _ in range(2):
        for number in range(edges.n_blocks):
            np.testing.assert_array_equal(edges.block(number).indices, truth[number].indices)
    assert sorted(edges._kept) == list(range(resident_blocks))


def test_epsilon_of_lists_of_uneven_length():
    """Five hubs with long lists must not set the bandwidth of all other rows."""
    X = gpe.datasets.torus(2000, random_state=3)
    graph = gpe.neighbor_graph(X, 200)
    indices, distances = graph.indices.copy(), graph.distances.copy()
    even = gpe.embed(neighbors=(indices[:, :12], distances[:, :12]), power=2).kernel.epsilon
    indices[5:, 12:], distances[5:, 12:] = -1, np.inf
    uneven = gpe.embed(neighbors=(indices, distances), power=2).kernel.epsilon
    assert uneven == pytest.approx(even, rel=0.05)
