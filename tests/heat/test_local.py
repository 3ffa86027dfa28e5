"""epsilon="local": length scales and kernel by plain loops, lost mass, uneven data, new points, stores, same bytes."""

import json

import numpy as np
import pytest

import naive
import scalable_gpe as gpe
from scalable_gpe import exact
from scalable_gpe.errors import ConnectivityWarning
from scalable_gpe.execution.memory_plan import block_sizes
from scalable_gpe.heat.local import RANK

OPTIONS = {"n_neighbors": 9, "n_components": 5, "power": (3, 20), "epsilon": "local"}


def uneven(n_rows=600, random_state=0):
    """Three patches of a plane in five dimensions, each a hundred times wider than the last, some rows twice."""
    rng = np.random.default_rng(random_state)
    parts = [width * (rng.random((n_rows // 3, 2)) + np.array([9 * k, 0])) for k, width in enumerate((1, 100, 10_000))]
    flat = np.concatenate(parts)
    X = np.concatenate([flat, 0.1 * flat[:, :1], np.zeros((len(flat), 2))], axis=1)
    X[50:60] = X[:10]
    return X[rng.permutation(len(X))].astype(np.float32)


X = uneven()
NEW = uneven(300, random_state=1)


def relative(got, expected):
    return np.linalg.norm(got - expected) / np.linalg.norm(expected)


def bytes_of(points):
    return {power: np.asarray(values[:]).tobytes() for power, values in points.items()}


@pytest.fixture(scope="module")
def result():
    return gpe.embed(X, **OPTIONS)


def test_scales_and_kernel_by_plain_loops():
    """With all other points as neighbours: the dense kernel, duplicates included."""
    points = np.concatenate([X[:24], X[:3]])
    kernel = gpe.gaussian_kernel(gpe.neighbor_graph(points, 23), "local")
    exactly = points.astype(float).tolist()
    sigma = naive.local_scales(exactly, RANK, kernel.scales.metadata.factor)
    np.testing.assert_allclose(kernel.sigma, sigma, rtol=1e-6)
    expected = naive.local_affinity(exactly, sigma)
    np.testing.assert_allclose(kernel.to_scipy().toarray(), expected, rtol=2e-5, atol=1e-30)
    np.testing.assert_allclose(exact.local_affinity(points, sigma), expected, rtol=1e-9, atol=1e-30)
    np.testing.assert_allclose(exact.local_affinity(points, np.full(27, 3.0)), exact.affinity(points, 9.0))


@pytest.mark.parametrize("normalization", ["bistochastic", "symmetric"])
def test_embedding_against_the_dense_reference(normalization):
    graph = gpe.neighbor_graph(X[:200], len(np.unique(X[:200], axis=0)) - 1)
    kernel = gpe.gaussian_kernel(graph, "local")
    heat = gpe.heat_kernel(kernel, normalization)
    A = getattr(exact, normalization)(exact.local_affinity(X[:200], kernel.sigma))
    G = gpe.sketch_matrix(200, 6)
    if heat.is_centred:
        G = G - G.mean(axis=0)
    got = gpe.gp_embedding(heat, 6, 7, precision="double")
    assert relative(got, exact.gp_embedding(A, G, 7)) < 1e-5


def test_the_factor_is_that_of_the_rule():
    """The median row has n_neighbors / 7 effective neighbours, each list in units of its own scale."""
    kernel = gpe.gaussian_kernel(gpe.neighbor_graph(X, 21), "local")
    lists, own = kernel.graph.distances.astype(float), kernel.sigma[:, None]
    effective = np.exp(-((lists / own) ** 2)).sum(axis=1)
    assert np.median(effective) == pytest.approx(3, rel=0.02)
    even = gpe.neighbor_graph(gpe.datasets.torus(2000), 32)
    assert gpe.gaussian_kernel(even, "local").epsilon == pytest.approx(
        gpe.gaussian_kernel(even, "auto").epsilon, rel=0.15
    )


def test_the_report(result):
    report, sigma = result.report, result.kernel.sigma
    distinct = np.unique(X, axis=0, return_index=True)[1]
    assert report["epsilon"] == result.kernel.epsilon == pytest.approx(np.median(sigma[distinct]) ** 2)
    assert report["sigma"]["rank"] == RANK
    assert report["sigma"]["median"] == pytest.approx(np.median(sigma[distinct]))
    assert report["sigma"]["low"] < 1 < 500 < report["sigma"]["high"]
    assert "median of sigma^2" in report["reasons"]["epsilon"]
    assert result.parameters["epsilon"] == "local"
    other = gpe.embed(X[:100], n_components=1, power=1, epsilon="global")
    assert other.kernel.sigma is None and other.report["sigma"] is None
    assert other.report["reasons"]["sigma"] == "all rows share one epsilon"
    json.dumps(report)


def test_lost_mass_by_the_dense_kernel(result):
    rows = np.unique(X, axis=0)
    graph = gpe.neighbor_graph(rows, 9)
    kernel = gpe.gaussian_kernel(graph, "local")
    every = graph.sampled_points(256)
    chosen = graph.storage_order.user_row[every]
    dense = exact.local_affinity(rows, kernel.sigma)[chosen].sum() - len(chosen)
    kept = kernel.to_scipy()[chosen].sum(dtype=float) - len(chosen)
    assert kernel.lost_mass == pytest.approx(1 - kept / dense, rel=1e-4)
    assert 0 < kernel.lost_mass < 0.3
    measured = gpe.audit(result, n_probes=len(rows))["lost_mass"]
    whole = exact.local_affinity(rows, kernel.sigma).sum() - len(rows)
    assert measured["value"] == pytest.approx(1 - (kernel.to_scipy().sum(dtype=float) - len(rows)) / whole, rel=0.05)


def test_the_audit_compares_with_the_dense_kernel():
    """With nearly all neighbours in the lists, the audit's dense kernel has the same length scales."""
    few = np.unique(X[:150], axis=0)
    for normalization in ("bistochastic", "symmetric"):
        result = gpe.embed(few, epsilon="local", n_neighbors=len(few) - 1, power=4, normalization=normalization)
        assert gpe.audit(result, n_probes=20)["powers"][4]["dense"]["max"] < 1e-4


def test_uneven_density_keeps_its_neighbours():
    """One epsilon cuts the wide patch into single rows; local scales keep all three patches whole."""
    with pytest.warns(ConnectivityWarning, match="no effective neighbours"):
        one = gpe.embed(X, n_neighbors=16, power=16, epsilon="global")
    local = gpe.embed(X, n_neighbors=16, power=16, epsilon="local")
    assert one.report["n_isolated"] > 150
    assert local.report["n_isolated"] == 0
    from scipy.sparse.csgraph import connected_components

    K = local.kernel.to_scipy()
    K.data[K.data < 1e-3] = 0
    K.eliminate_zeros()
    assert connected_components(K)[0] == 3


def test_isolated_rows():
    """A single far row is isolated; several rows that are far from all others but near each other are not."""
    plane = np.random.default_rng(0).random((300, 2))
    alone = gpe.embed(np.concatenate([plane, [[1e6, 0]]]), epsilon="local", n_neighbors=10, power=4)
    assert alone.report["n_isolated"] == 1
    assert np.isfinite(alone.points).all()
    group = gpe.embed(np.concatenate([plane, 1e6 + 1e3 * plane[:20]]), epsilon="local", n_neighbors=10, power=4)
    assert group.report["n_isolated"] == 0


def placed(result, new, power):
    """The formula, dense and in float64."""
    K, s, k = result.kernel.to_scipy().astype(float).toarray(), result.heat.scale, 5
    Z = gpe.sketch_matrix(len(X), k)
    if result.heat.is_centred:
        Z = Z - Z.mean(axis=0)
    for _ in range(power - 1):
        Z = s[:, None] * (K @ (s[:, None] * Z))
    distances = np.sqrt(((new[:, None].astype(float) - X[None].astype(float)) ** 2).sum(axis=2))
    distinct = result.graph.storage_order.user_row
    held = distances.astype(np.float32) <= result.graph.distances[:, -1]
    nearest = np.sort(distances[:, distinct], axis=1)
    held |= distances <= nearest[:, [8]]
    own = np.sqrt(result.report["sigma"]["factor"]) * nearest[:, RANK - 1]
    exponents = distances**2 / (own[:, None] * result.kernel.sigma)
    least = np.where(held, exponents, np.inf).min(axis=1, keepdims=True)
    row = np.where(held, np.exp(-(exponents - least)), 0)
    if result.heat.is_centred:
        scale = 1 / (row @ s)
    else:
        q, own_q = K.sum(axis=1), row.sum(axis=1)
        scale = 1 / (own_q * np.sqrt((row @ (1 / q)) / own_q))
    return scale[:, None] * (row @ (s[:, None] * Z)) / np.sqrt(k)


@pytest.mark.parametrize("normalization", ["bistochastic", "symmetric"])
def test_new_points(normalization):
    result = gpe.embed(X, normalization=normalization, axes="sketch", **OPTIONS)
    got = result.transform(NEW)
    for power in (3, 20):
        assert relative(got[power], placed(result, NEW, power)) < 1e-5
        assert (result.transform(X)[power] == result.points[power]).all()
    alone = np.concatenate([result.transform(NEW[i : i + 1])[20] for i in range(30)])
    assert alone.tobytes() == got[20][:30].tobytes()
    far = np.zeros((3, 5), np.float32)
    far[:, 0] = [-1e6, 1e20, 3e38]
    assert np.isfinite(result.transform(far)[20]).all()


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize(("block_rows", "n_jobs", "limit"), [(23, 1, None), (64, 2, "2GB"), (300, 4, "450MB")])
def test_same_bytes(result, tmp_path, block_rows, n_jobs, limit, stored):
    with block_sizes(block_rows=block_rows, panel_columns=2):
        other = gpe.embed(X, n_jobs=n_jobs, memory_limit=limit, store=tmp_path / "run" if stored else None, **OPTIONS)
        assert bytes_of(other.points) == bytes_of(result.points)
        assert other.kernel.sigma.tobytes() == result.kernel.sigma.tobytes()
        assert other.report["lost_mass"] == result.report["lost_mass"]
        assert bytes_of(other.transform(NEW[:9])) == bytes_of(result.transform(NEW[:9]))


def test_same_bytes_for_every_search_and_scale(result):
    """On a torus all searches round distances in the same way; a power of two scales float32 exactly."""
    torus = gpe.datasets.torus(500, random_state=3).astype(np.float32)
    found = [bytes_of(gpe.embed(torus, method=method, **OPTIONS).points) for method in ("brute", "kdtree", "cells")]
    assert found[0] == found[1] == found[2]
    assert bytes_of(gpe.embed(X * np.float32(2.0**-9), **OPTIONS).points) == bytes_of(result.points)


def test_a_store_keeps_it_under_a_key_of_its_own(result, tmp_path):
    store = tmp_path / "run.zarr"
    gpe.embed(X, store=store, **{**OPTIONS, "epsilon": 0.5})
    first = gpe.embed(X, store=store, **OPTIONS)
    assert len(list((store / "kernel").glob("*/weights"))) == 2
    assert len(list((store / "kernel").glob("*/sigma"))) == 1
    assert len(list((store / "graph").glob("*/indices"))) == 1
    again, opened = gpe.embed(X, store=store, **OPTIONS), gpe.open(store)
    for other in (first, again, opened):
        assert bytes_of(other.points) == bytes_of(result.points)
        assert bytes_of(other.transform(NEW)) == bytes_of(result.transform(NEW))
        assert other.kernel.sigma.tobytes() == result.kernel.sigma.tobytes()
        assert other.report["sigma"] == result.report["sigma"]
    assert gpe.audit(opened, n_probes=50)["lost_mass"] == gpe.audit(result, n_probes=50)["lost_mass"]


def test_a_run_that_stopped_within_the_kernel_resumes(result, tmp_path):
    def stop(stage, done, total):
        if stage == "kernel" and done >= 3:
            raise KeyboardInterrupt

    with block_sizes(block_rows=64):
        with pytest.raises(KeyboardInterrupt):
            gpe.embed(X, store=tmp_path / "run", progress=stop, n_jobs=1, **OPTIONS)
        resumed = gpe.embed(X, store=tmp_path / "run", **OPTIONS)
    assert bytes_of(resumed.points) == bytes_of(result.points)


def test_precomputed_lists_with_zeros_and_empty_lists():
    """A length of 0 gives no scale; a row without a list gets the median scale."""
    graph = gpe.neighbor_graph(np.unique(X, axis=0)[:100], 9)
    indices, distances = graph.indices.copy(), graph.distances.copy()
    indices[4], indices[7, 2:] = -1, -1
    distances[9, :4] = 0
    precomputed = gpe.embed(neighbors=(indices, distances), epsilon="local", power=4)
    sigma, root = precomputed.kernel.sigma, np.sqrt(precomputed.report["sigma"]["factor"])
    assert sigma[3] == pytest.approx(root * distances[3, RANK - 1], rel=1e-6)
    assert sigma[7] == pytest.approx(root * distances[7, 1], rel=1e-6)
    assert sigma[9] == pytest.approx(root * distances[9, -1], rel=1e-6)
    assert sigma[4] == pytest.approx(np.median(np.delete(sigma, 4)), rel=1e-6)
    assert precomputed.report["lost_mass"] is None and np.isfinite(precomputed.points).all()
    with pytest.raises(ValueError, match="epsilon='local' needs distances above 0"):
        gpe.embed(neighbors=(indices, 0 * distances), epsilon="local", power=4)


def test_sweeps_take_numbers_only():
    with pytest.raises(TypeError, match=r"epsilons must be a positive number; got .*local"):
        gpe.epsilon_sweep(gpe.neighbor_graph(X, 9), ["local"])
    with pytest.raises(ValueError, match="epsilon must be one of 'auto', 'global', 'local', 'bgh'"):
        gpe.embed(X, epsilon="lokal")
    with pytest.raises(ValueError, match="sigma must hold one finite number above 0"):
        exact.local_affinity(X, np.zeros(len(X)))


def test_auto_takes_local_scales_if_one_epsilon_leaves_rows_under_connected():
    rng = np.random.default_rng(0)
    wide_and_narrow = np.concatenate([0.01 * rng.standard_normal((300, 3)), rng.standard_normal((300, 3)) + 9])
    uneven = gpe.embed(wide_and_narrow, n_neighbors=20, n_components=2, power=2)
    local = gpe.embed(wide_and_narrow, n_neighbors=20, n_components=2, power=2, epsilon="local")
    assert uneven.report["sigma"] is not None
    assert uneven.points.tobytes() == local.points.tobytes()
    short = gpe.embed(wide_and_narrow, n_neighbors=8, n_components=2, power=2)
    assert short.report["sigma"] is None


@pytest.mark.parametrize("shape", ["circle", "torus", "klein_bottle"])
def test_auto_takes_one_epsilon_on_the_papers_manifolds(shape):
    graph = gpe.neighbor_graph(getattr(gpe.datasets, shape)(2000), 32)
    assert gpe.gaussian_kernel(graph).sigma is None
    assert gpe.gaussian_kernel(graph).epsilon == gpe.gaussian_kernel(graph, "global").epsilon
