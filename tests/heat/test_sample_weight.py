"""Sample weights: a row of weight 3 counts as three equal rows."""

import numpy as np
import pytest

import naive
import scalable_gpe as gpe
from scalable_gpe import exact
from scalable_gpe.execution.memory_plan import block_sizes

NORMALIZATIONS = ["bistochastic", "symmetric"]
EPSILON = 4.0


def points(n_rows=24, seed=0):
    return gpe.datasets.torus(n_rows, random_state=seed).astype(np.float32)


def weights(n_rows=24, seed=1):
    return np.random.default_rng(seed).uniform(0.2, 5, n_rows)


def dense(X, **options):
    """Options for which the truncated kernel is the dense one."""
    return {"n_neighbors": len(X) - 1, "epsilon": EPSILON, "precision": "double", "progress": False, **options}


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_integer_weights_are_repeated_rows(normalization):
    """The scaling and the expected distances are those of the repeated rows."""
    X, w = points(12), np.array([1, 2, 3, 1, 1, 4, 1, 2, 1, 1, 2, 1])
    repeated = np.repeat(X, w, axis=0).tolist()
    K = naive.affinity(repeated, EPSILON)
    A = naive.bistochastic(K) if normalization == "bistochastic" else naive.symmetric(K)
    first = np.concatenate([[0], np.cumsum(w)[:-1]])
    expected = np.array(naive.power(A, 3))[first]
    result = gpe.embed(X, sample_weight=w, normalization=normalization, n_components=2, power=3, **dense(X))
    got = np.linalg.matrix_power(result.heat.to_scipy().toarray(), 3) / np.sqrt(w)[:, None]
    distances = np.linalg.norm(expected[:, None] - expected[None], axis=2)
    np.testing.assert_allclose(np.linalg.norm(got[:, None] - got[None], axis=2), distances, atol=1e-5 * distances.max())
    scale = gpe.embed(np.repeat(X, w, axis=0), normalization=normalization, n_components=2, power=3, **dense(X)).heat
    np.testing.assert_allclose(result.heat.scale / np.sqrt(w), scale.scale[first], rtol=1e-7)


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
@pytest.mark.parametrize("power", [1, 5, "all"])
def test_weights_against_the_dense_formula(normalization, power):
    X, w = points(), weights()
    X[20:] = X[:4]  # equal rows add their weights
    A = np.array(naive.weighted(naive.affinity(X.tolist(), EPSILON), w.tolist(), normalization))
    np.testing.assert_allclose(exact.heat_kernel(X, EPSILON, normalization, sample_weight=w), A, rtol=1e-6)
    options = dense(X, n_neighbors=19, horizon=8 if power == "all" else "auto")
    result = gpe.embed(
        X, sample_weight=w, normalization=normalization, n_components=4, power=power, tol=1e-8, axes="sketch", **options
    )
    np.testing.assert_allclose(result.heat.to_scipy().toarray(), A, rtol=1e-5, atol=1e-7)
    V = np.random.default_rng(0).normal(size=(24, 3))
    np.testing.assert_allclose(result.heat @ V, A @ V, rtol=1e-5, atol=1e-6)
    G = gpe.sketch_matrix(24, 4)
    if normalization == "bistochastic" or power == "all":
        top = np.linalg.eigh(A)[1][:, -1]
        G = G - np.outer(top, top @ G)
    Y = exact.gp_embedding(A, G, power, 8 if power == "all" else None) / np.sqrt(w)[:, None]
    np.testing.assert_allclose(result.points, Y, atol=1e-5 * np.abs(Y).max())
    assert (result.points[20:] == result.points[:4]).all()


def test_weights_of_one_are_no_weights():
    X = points(60)
    options = {"n_neighbors": 9, "n_components": 3, "power": (2, 16), "progress": False}
    plain, ones = gpe.embed(X, **options), gpe.embed(X, sample_weight=np.ones(60, np.float32), **options)
    assert all(ones.at(power).tobytes() == plain.at(power).tobytes() for power in (2, 16))
    assert ones.parameters["sample_weight"] is None


def test_same_bytes_stored_reopened_and_in_small_blocks(tmp_path):
    X, w = points(200), weights(200)
    X[190:] = X[:10]
    options = {"n_neighbors": 9, "n_components": 3, "power": 20, "progress": False}
    expected = gpe.embed(X, sample_weight=w, n_jobs=1, **options)
    with block_sizes(block_rows=32, panel_columns=2):
        stored = gpe.embed(X, sample_weight=w, store=tmp_path / "run.zarr", n_jobs=2, **options)
    opened = gpe.open(tmp_path / "run.zarr")
    for other in (stored, opened):
        assert np.asarray(other.points[:]).tobytes() == expected.points.tobytes()
        assert (other.heat.sample_weight == w).all()
    new = points(30, seed=5)
    assert opened.transform(new).tobytes() == expected.transform(new).tobytes()
    assert (opened.transform(X) == expected.points).all()


def test_other_weights_are_another_run(tmp_path):
    """The graph is shared; nothing else is."""
    X, w, store = points(60), weights(60), tmp_path / "run.zarr"
    options = {"n_neighbors": 9, "n_components": 3, "power": 4, "progress": False}
    plain = np.asarray(gpe.embed(X, store=store, **options).points[:])
    first = np.asarray(gpe.embed(X, store=store, sample_weight=w, **options).points[:])
    second = np.asarray(gpe.embed(X, store=store, sample_weight=w[::-1], **options).points[:])
    again = gpe.embed(X, store=store, sample_weight=w, **options)
    assert np.asarray(again.points[:]).tobytes() == first.tobytes()
    assert not np.allclose(first, plain) and not np.allclose(first, second)
    assert len(list((store / "graph").iterdir())) < len(list((store / "heat").iterdir()))


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_new_points_and_audit(normalization):
    X, w = points(300), weights(300)
    result = gpe.embed(
        X, sample_weight=w, normalization=normalization, n_neighbors=40, n_components=32, power=6, progress=False
    )
    moved = result.transform(X[:40] + np.float32(1e-6))
    assert np.abs(moved - result.points[:40]).max() < 0.05 * np.abs(result.points).max()
    found = gpe.audit(result, n_probes=50, n_exact=40)["powers"][6]
    assert found["law"]["ks_pvalue"] > 1e-3
    assert found["dense"]["median"] < 0.05


def test_diffusion_map_of_repeated_rows():
    X, w = points(40), np.arange(40) % 3 + 1
    options = {"n_neighbors": 39, "epsilon": EPSILON, "progress": False}
    weighted = gpe.DiffusionMap(3, **options).fit(X, sample_weight=w)
    repeated = gpe.DiffusionMap(3, **options).fit(np.repeat(X, w, axis=0))
    np.testing.assert_allclose(weighted.eigenvalues_, repeated.eigenvalues_, rtol=1e-6)
    np.testing.assert_allclose(weighted.transform(X), repeated.transform(X), atol=1e-5)


def test_estimator_and_stages_take_weights():
    X, w = points(80), weights(80)
    options = {"n_components": 3, "power": 5, "n_neighbors": 9}
    expected = gpe.embed(X, sample_weight=w, progress=False, **options).points
    model = gpe.GaussianProcessEmbedding(progress=False, **options)
    assert (model.fit_transform(X, sample_weight=w) == expected).all()
    assert (model.fit(X, sample_weight=list(w)).embedding_ == expected).all()
    heat = gpe.heat_kernel(gpe.gaussian_kernel(gpe.neighbor_graph(X, 9)), sample_weight=w)
    sketched = gpe.embed(X, sample_weight=w, axes="sketch", progress=False, **options).points
    assert (gpe.gp_embedding(heat, 3, 5) == sketched).all()
    with pytest.raises(TypeError, match="sample_wait"):
        model.fit(X, sample_wait=w)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (np.ones(5), "one number for each of the 24 rows"),
        (np.ones((24, 1)), "one number for each of the 24 rows"),
        (np.r_[np.ones(23), 0], "others in row 23"),
        (np.r_[np.ones(23), np.nan], "others in row 23"),
        (np.r_[-1, np.ones(23)], "others in row 0"),
        (["a"] * 24, "must hold numbers"),
    ],
)
def test_wrong_weights_are_refused_before_any_work(tmp_path, wrong, message):
    with pytest.raises((ValueError, TypeError), match=message):
        gpe.embed(points(), sample_weight=wrong, store=tmp_path / "run.zarr", progress=False)
    assert not (tmp_path / "run.zarr").exists()
    with pytest.raises((ValueError, TypeError)):
        exact.heat_kernel(points(), 1.0, sample_weight=wrong)
