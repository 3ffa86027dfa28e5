"""Wide sketches of which the principal axes are kept, and the principal axes of any embedding."""

import numpy as np
import pytest
from scipy.spatial.distance import pdist

import scalable_gpe as gpe
from scalable_gpe.execution.workers import Workers
from scalable_gpe.sketch.rotation import principal_axes

SETTINGS = {"n_neighbors": 16, "progress": False}


def some_points() -> np.ndarray:
    X = gpe.datasets.torus(900, random_state=3)
    X[300:340] = X[7]
    return X


def reference_axes(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Axes by a singular value decomposition of the centred points."""
    values, axes = np.linalg.svd(points - points.mean(axis=0), full_matrices=False)[1:]
    return axes.T, values**2 / len(points)


def test_axes_are_those_of_a_singular_value_decomposition():
    points = np.random.default_rng(0).standard_normal((1000, 6)) * np.arange(6, 0, -1) + 5
    axes = principal_axes(lambda a, b: points[a:b], 1000, lambda a, b: np.ones(b - a, bool), Workers(1))
    expected, variances = reference_axes(points)
    np.testing.assert_allclose(axes.variances, variances, rtol=1e-10)
    np.testing.assert_allclose(np.abs(axes.vectors.T @ expected), np.eye(6), atol=1e-8)
    assert (axes.vectors[np.abs(axes.vectors).argmax(axis=0), np.arange(6)] > 0).all()


def test_isolated_rows_do_not_determine_the_axes():
    points = np.random.default_rng(0).standard_normal((500, 4)) * [4, 3, 2, 1]
    far = np.vstack([points, 1000 * np.eye(4)])
    ordinary = np.arange(504) < 500
    axes = principal_axes(lambda a, b: far[a:b], 504, lambda a, b: ordinary[a:b], Workers(1))
    np.testing.assert_allclose(np.abs(axes.vectors.T @ reference_axes(points)[0]), np.eye(4), atol=1e-8)


@pytest.mark.parametrize("normalization", ["bistochastic", "symmetric"])
@pytest.mark.parametrize("power", [16, "all"])
def test_what_is_kept_are_the_principal_axes_of_the_wide_sketch(power, normalization):
    X = some_points()
    wide = gpe.embed(X, n_components=48, power=power, normalization=normalization, axes="sketch", **SETTINGS)
    kept = gpe.embed(X, n_components=12, n_sketch=48, power=power, normalization=normalization, **SETTINGS)
    axes, variances = reference_axes(wide.points.astype(np.float64))
    expected = wide.points.astype(np.float64) @ axes[:, :12]
    signs = np.sign((expected * kept.points).sum(axis=0))
    np.testing.assert_allclose(kept.points, expected * signs, atol=2e-4 * np.abs(expected).max())
    assert kept.report["kept_variance"] == pytest.approx(variances[:12].sum() / variances.sum(), rel=1e-6)
    assert kept.report["n_sketch"] == 48
    points, shares = wide.principal(12)
    assert points.tobytes() == kept.points.tobytes()
    assert (np.diff(shares) <= 0).all()


@pytest.mark.parametrize("power", [16, "all"])
def test_the_columns_of_an_embedding_are_principal_axes_by_default(power):
    X = some_points()
    rotated = gpe.embed(X, n_components=12, power=power, **SETTINGS)
    sketched = gpe.embed(X, n_components=12, power=power, axes="sketch", **SETTINGS)
    expected, variances = reference_axes(sketched.points.astype(np.float64))
    expected = sketched.points @ expected
    signs = np.sign((expected * rotated.points).sum(axis=0))
    np.testing.assert_allclose(rotated.points, expected * signs, atol=2e-4 * np.abs(expected).max())
    np.testing.assert_allclose(rotated.points.astype(np.float64).var(axis=0), variances, rtol=1e-4)
    np.testing.assert_allclose(pdist(rotated.points), pdist(sketched.points), rtol=1e-4, atol=1e-6)
    as_wide = gpe.embed(X, n_components=12, n_sketch=12, power=power, **SETTINGS)
    assert rotated.points.tobytes() == as_wide.points.tobytes() == sketched.principal(12)[0].tobytes()
    assert sketched.points.tobytes() == gpe.gp_embedding(sketched.heat, 12, power=power).tobytes()
    assert rotated.report["n_sketch"] is rotated.report["kept_variance"] is None


def test_small_components_do_not_determine_the_axes():
    """Six arcs of 15 points far away, each less than 1 % of the rows, next to one ring of 2,000."""
    angle = np.linspace(0, 2 * np.pi, 2000, endpoint=False)
    ring = np.column_stack([np.cos(angle), np.sin(angle)])
    small = [ring[:15] + 100 * number for number in range(1, 7)]
    how = {"n_components": 8, "n_neighbors": 8, "epsilon": "global", "power": 64, "progress": False}
    result = gpe.embed(np.concatenate([ring, *small]), **how)
    assert result.report["n_isolated"] == 0
    np.testing.assert_array_equal(result.ordinary, np.arange(2090) < 2000)
    points = result.points[:2000].astype(np.float64)
    covariance = np.cov(points.T)
    assert np.abs(covariance - np.diag(np.diag(covariance))).max() < 1e-5 * covariance.max()


def test_principal_axes_and_columns_of_a_sketch_share_a_store(tmp_path):
    """The sketch is computed once, in part; each run is found again by its own arguments."""
    X, how = some_points(), {"power": 16, "store": tmp_path / "s.zarr", **SETTINGS}
    sketched = gpe.embed(X, n_components=8, axes="sketch", **how).points[:]
    rotated = gpe.embed(X, n_components=8, **how)
    more = gpe.embed(X, n_components=12, **how)
    assert more.report["n_panels"] == 2
    assert more.points[:].tobytes() == gpe.embed(X, n_components=12, power=16, **SETTINGS).points.tobytes()
    assert gpe.embed(X, n_components=8, axes="sketch", **how).points[:].tobytes() == sketched.tobytes()
    assert gpe.embed(X, n_components=8, **how).points[:].tobytes() == rotated.points[:].tobytes() != sketched.tobytes()


def test_what_is_kept_has_less_noise_than_as_many_columns():
    """Median error of distances after one common scale: .10 against .13 here; five seeds, so a false alarm is rare."""
    X = some_points()
    heat = gpe.heat_kernel(gpe.gaussian_kernel(gpe.neighbor_graph(X, 16)))
    truth = gpe.exact.diffusion_distances(heat.to_scipy().toarray(), 32)
    keep = truth > 0

    def error(**widths: int) -> float:
        found = []
        for seed in range(5):
            ratio = pdist(gpe.gp_embedding(heat, power=32, random_state=seed, **widths))[keep] / truth[keep]
            found.append(np.median(np.abs(ratio / np.median(ratio) - 1)))
        return float(np.mean(found))

    assert error(n_components=16, n_sketch=128) < 0.8 * error(n_components=16)


def test_the_same_bytes_stored_resumed_and_with_other_widths(tmp_path):
    X, store = some_points(), tmp_path / "s.zarr"
    fresh = gpe.embed(X, n_components=8, n_sketch=32, power=[16, "all"], **SETTINGS)
    stored = gpe.embed(X, n_components=8, n_sketch=32, power=[16, "all"], store=store, n_jobs=1, **SETTINGS)
    for power in (16, "all"):
        assert stored.at(power)[:].tobytes() == fresh.at(power).tobytes()
        assert gpe.open(store).at(power)[:].tobytes() == fresh.at(power).tobytes()
    fewer = gpe.embed(X, n_components=3, n_sketch=32, power=[16, "all"], store=store, **SETTINGS)
    np.testing.assert_array_equal(fewer.at("all")[:], fresh.at("all")[:, :3])
    wider = gpe.embed(X, n_components=8, n_sketch=40, power="all", store=store, **SETTINGS)
    alone = gpe.embed(X, n_components=8, n_sketch=40, power="all", **SETTINGS)
    assert wider.points[:].tobytes() == alone.points.tobytes()


def test_new_points_are_rotated_like_the_training_rows(tmp_path):
    X = some_points()
    for result in (
        gpe.embed(X, n_components=6, n_sketch=24, power=[16, "all"], **SETTINGS),
        gpe.embed(X, n_components=6, n_sketch=24, power=[16, "all"], store=tmp_path / "s.zarr", **SETTINGS),
        gpe.embed(X, n_components=8, power=[16, "all"], store=tmp_path / "all.zarr", **SETTINGS),
    ):
        near = result.transform(X + 1e-6 * np.random.default_rng(1).standard_normal(X.shape))
        same = result.transform(X)
        for power in (16, "all"):
            known = result.at(power)[:]
            assert same[power].tobytes() == known.tobytes()
            assert near[power].shape == known.shape
            assert np.abs(near[power] - known).max() < 3e-3 * np.abs(known).max()


def test_the_audit_of_a_stored_embedding_is_that_of_one_in_memory(tmp_path):
    """The rows that a row of the kernel names do not ascend in the order in which they are stored."""
    how = {"n_components": 8, "n_sketch": 32, "power": "all", "method": "cells", **SETTINGS}
    here = gpe.embed(some_points(), **how)
    there = gpe.embed(some_points(), store=tmp_path / "s.zarr", **how)
    figures = [gpe.audit(one, n_probes=50, n_exact=8)["powers"]["all"] for one in (here, there)]
    assert figures[0] == figures[1]


def test_the_audit_tests_the_law_on_the_wide_columns_and_the_error_of_what_is_kept():
    result = gpe.embed(some_points(), n_components=8, n_sketch=64, power=32, **SETTINGS)
    figures = gpe.audit(result)["powers"][32]
    assert figures["law"]["size_pvalue"] > 1e-3
    assert figures["scaled_error"]["value"] <= figures["median_error"]["value"]


def test_bad_widths_are_refused():
    X = some_points()
    with pytest.raises(ValueError, match="n_sketch must be at least n_components=32"):
        gpe.embed(X, n_sketch=8)
    with pytest.raises(ValueError, match="axes='sketch' keeps the columns of the sketch, n_sketch principal axes"):
        gpe.embed(X, n_sketch=64, axes="sketch")
    with pytest.raises(ValueError, match="axes must be"):
        gpe.embed(X, axes="columns")
    with pytest.raises(TypeError, match="n_sketch must be a whole number"):
        gpe.embed(X, n_sketch=64.5)
    result = gpe.embed(X, n_components=4, power=[4, 16], **SETTINGS)
    with pytest.raises(ValueError, match=r"power must be one of \[4, 16\]: the embedding has several"):
        result.principal(2)
    with pytest.raises(ValueError, match="n_axes must be at most 4"):
        result.principal(5, power=4)


# --- pseudotime -----------------------------------------------------------------------------------


def test_pseudotime_follows_a_curve_and_is_infinite_elsewhere():
    t = np.linspace(0, 1, 500)
    curve = np.column_stack([np.cos(4 * t), np.sin(4 * t), t])
    X = np.vstack([curve, curve[:50] + 100])
    result = gpe.embed(X, n_components=64, power="all", epsilon="global", progress=False)
    values, error = result.pseudotime(0)
    assert error == pytest.approx(np.sqrt(2 / 64) / 2)
    assert values[0] == 0 and np.isinf(values[500:]).all()
    assert np.corrcoef(np.argsort(np.argsort(values[:500])), t)[0, 1] > 0.98


def some_blobs() -> np.ndarray:
    rng = np.random.default_rng(0)
    return np.concatenate([rng.standard_normal((100, 10)) + centre for centre in 1.5 * rng.standard_normal((5, 10))])


@pytest.mark.parametrize("n_components", [4, 32, 64])
@pytest.mark.parametrize(
    "X", [some_blobs(), np.random.default_rng(0).standard_normal((500, 10))], ids=["blobs", "noise"]
)
def test_the_error_of_pseudotime_is_that_of_the_kept_axes(X, n_components):
    result = gpe.embed(X, n_components=n_components, n_sketch=64, horizon=64, progress=False)
    eigenvalues, vectors = np.linalg.eigh(result.heat.to_scipy().toarray())
    exact = (vectors * eigenvalues / (1 - eigenvalues + eigenvalues / 64))[:, :-1]
    values, error = result.pseudotime(3)
    far = np.linalg.norm(exact - exact[3], axis=1)
    real = np.sqrt(np.mean((np.delete(values / np.where(far > 0, far, 1), 3) - 1) ** 2))
    assert error == pytest.approx(real, rel=0.25, abs=0.03)
    assert error >= 0.99 * np.sqrt(1 / 128)


def test_pseudotime_needs_all_scales_and_a_root_that_exists():
    X = some_points()
    with pytest.raises(ValueError, match="pseudotime needs all scales: pass power='all' to embed"):
        gpe.embed(X, power=16, **SETTINGS).pseudotime(0)
    result = gpe.embed(X, power="all", **SETTINGS)
    with pytest.raises(ValueError, match="root must be at most 899"):
        result.pseudotime(900)
    with pytest.raises(ValueError, match="root must be a row number or the name of one row"):
        result.pseudotime("cell 3")
