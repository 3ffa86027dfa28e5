"""The sum of all powers: against the dense reference, in every regime, with its horizon, first power and law."""

import re
import warnings

import numpy as np
import pytest
from scipy.linalg import eigvals_banded
from scipy.sparse import block_diag, csr_array
from scipy.spatial.distance import pdist
from scipy.stats import chi2, kstest

import scalable_gpe as gpe
from scalable_gpe.errors import GPEWarning, VanishingWarning
from scalable_gpe.formatting import powers_text
from scalable_gpe.heat.normalization import top_eigenvector
from scalable_gpe.sketch.polynomial import most_sweeps, plan_filter
from scalable_gpe.spectral.density import Spectrum
from scalable_gpe.spectral.filters import Factor, Filter
from scalable_gpe.spectral.horizon import (
    CAP,
    LONGEST,
    MANY_ROWS,
    SHORTEST,
    Horizon,
    choose_first_power,
    longest_horizon,
    measure_horizon,
)
from scalable_gpe.spectral.lanczos import Probes


def some_points(duplicates: bool = False) -> np.ndarray:
    X = gpe.datasets.torus(600, random_state=3)
    if duplicates:
        X[100:140] = X[7]
    return X


def heat_of(X: np.ndarray, normalization: str = "bistochastic") -> gpe.HeatKernel:
    return gpe.heat_kernel(gpe.gaussian_kernel(gpe.neighbor_graph(X, 16)), normalization)


def without_top(heat: gpe.HeatKernel, G: np.ndarray) -> np.ndarray:
    """G - u u'G for the top eigenvector u, on the user's rows."""
    top = heat.kernel.storage_order.spread(top_eigenvector(heat) / np.sqrt(heat.weights))
    return G - np.outer(top, top @ G)


def reference(
    heat: gpe.HeatKernel, k: int, horizon: int, seed: int = 0, sketch: str = "gaussian", first_power: int = 1
) -> np.ndarray:
    G = gpe.sketch_matrix(heat.shape[0], k, kind=sketch, random_state=seed)
    return gpe.exact.gp_embedding(heat.to_scipy().toarray(), without_top(heat, G), "all", horizon, first_power)


# --- the function ---------------------------------------------------------------------------------


@pytest.mark.parametrize("horizon", [1, 2, 7, 64, 1024, 3000])
@pytest.mark.parametrize("first", [1, 2, 5])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_factors_multiply_to_the_filter(horizon, first, count):
    x = np.concatenate([np.linspace(-1, 1, 201), 1 - np.logspace(-16, -1, 40)])
    product = x.copy()
    for factor in Filter(horizon, cumulative=True, first=first).factors(count):
        product = product * factor(x)
    expected = sum(x**t for t in range(first, first + horizon))
    np.testing.assert_allclose(product, expected, rtol=1e-10, atol=1e-12)
    powers = np.prod([factor(x) for factor in Filter(horizon).factors(count)], axis=0) * x
    np.testing.assert_allclose(powers, x**horizon, rtol=1e-9, atol=1e-14)


def test_a_factor_knows_its_degree_and_its_value_at_one():
    assert Factor(power=3, terms=5, step=2).degree == 11
    assert Factor(terms=4096)(np.ones(1)) == 4096


# --- against the dense reference ------------------------------------------------------------------


@pytest.mark.parametrize("duplicates", [False, True])
@pytest.mark.parametrize("normalization", ["bistochastic", "symmetric"])
@pytest.mark.parametrize("precision", ["single", "double"])
def test_sparse_equals_dense(precision, normalization, duplicates):
    heat = heat_of(some_points(duplicates), normalization)
    for horizon in (7, 1024) if duplicates else (1, 64, 4096):
        expected = reference(heat, 8, horizon)
        found = gpe.gp_embedding(heat, 8, "all", horizon=horizon, precision=precision).astype(np.float64)
        truth, distances = pdist(expected), pdist(found)
        error = np.abs(distances - truth)[truth > 1e-9] / truth[truth > 1e-9]
        assert np.median(error) < (1e-5 if precision == "single" else 1e-6)
        assert np.linalg.norm(found - expected) < 1e-4 * np.linalg.norm(expected)


@pytest.mark.parametrize("precision", ["single", "double"])
def test_the_longest_horizon_of_a_long_shape_equals_dense(precision):
    rng = np.random.default_rng(0)
    heat = heat_of(np.column_stack([np.linspace(0, 300, 900), rng.normal(size=900)]))
    assert measure_horizon(Probes(heat, 0).deflated).horizon == LONGEST
    expected = reference(heat, 8, LONGEST)
    found = gpe.gp_embedding(heat, 8, "all", precision=precision)
    assert np.linalg.norm(found - expected) < (1e-4 if precision == "single" else 1e-6) * np.linalg.norm(expected)


@pytest.mark.parametrize("normalization", ["bistochastic", "symmetric"])
@pytest.mark.parametrize("precision", ["single", "double"])
def test_a_sum_that_begins_later_equals_dense(precision, normalization):
    heat = heat_of(some_points(duplicates=True), normalization)
    for first, horizon in ((2, 1), (4, 1024), (16, 64)):
        expected = reference(heat, 8, horizon, first_power=first)
        found = gpe.gp_embedding(heat, 8, "all", horizon=horizon, first_power=first, precision=precision)
        assert np.linalg.norm(found - expected) < 1e-5 * np.linalg.norm(expected)


def test_bernoulli_sketch_and_seed():
    heat = heat_of(some_points())
    found = gpe.gp_embedding(heat, 6, "all", horizon=128, sketch="bernoulli", random_state=5, precision="double")
    expected = reference(heat, 6, 128, 5, "bernoulli")
    np.testing.assert_allclose(found, expected, atol=1e-6 * np.abs(expected).max())


def test_the_reported_error_holds():
    result = gpe.embed(some_points(), power="all", horizon=2048, progress=False)
    rounding = gpe.audit(result)["powers"]["all"]["rounding"]
    assert rounding["measured"] <= rounding["reported"] == result.report["polynomial_error"]


def test_isolated_rows_do_not_hide_the_error_of_the_others():
    rng = np.random.default_rng(0)
    strays = 30 * (1 + np.arange(12))[:, None] * np.array([[1.0, 1.0]])
    X = np.vstack([rng.uniform(size=(700, 2)), strays])
    heat = gpe.heat_kernel(gpe.gaussian_kernel(gpe.neighbor_graph(X, 16), "global"))
    assert heat.n_isolated == 12
    A, G = heat.to_scipy().toarray(), gpe.sketch_matrix(len(X), 8)
    for power in (64, 1024, "all"):
        found = gpe.gp_embedding(heat, 8, power).astype(np.float64)[:700]
        horizon = gpe.embed(X, n_neighbors=16, epsilon="global", n_components=8, power="all").report["horizon"]
        expected = gpe.exact.gp_embedding(A, without_top(heat, G), power, horizon)[:700]
        error = np.abs(pdist(found) / pdist(expected) - 1)
        assert np.median(error) < 1e-5
        assert error.max() < 1e-2


# --- the horizon ----------------------------------------------------------------------------------


def horizon_of(K: csr_array) -> Horizon:
    """The horizon that is chosen for a given kernel."""
    model = gpe.GaussianProcessEmbedding(8, power=1, metric="precomputed_kernel").fit(K)
    return measure_horizon(Probes(model.result_.heat, 0).deflated)


def test_the_horizon_is_the_relaxation_time():
    heat = heat_of(some_points())
    slowest = np.sort(np.linalg.eigvalsh(heat.to_scipy().toarray()))[-2]
    time = 1 / (1 - slowest)
    report = gpe.embed(some_points(), n_neighbors=16, power="all", progress=False).report
    assert report["relaxation_time"] == pytest.approx(time, rel=0.2)
    expected = 2 ** int(np.ceil(np.log2(report["relaxation_time"])))
    assert report["horizon"] == np.clip(expected, SHORTEST, LONGEST)
    assert report["horizon_capped"] is False


def test_rounding_after_hundreds_of_steps_is_not_taken_for_a_slow_change():
    """The eigenvalue 1 of the constant direction comes back, in which the data do not change."""
    rng = np.random.default_rng(0)
    heat = heat_of(np.column_stack([np.linspace(0, 150, 1000), rng.normal(size=1000)]))
    time = 1 / (1 - np.linalg.eigvalsh(heat.to_scipy().toarray())[-2])
    assert LONGEST / 2 < time < LONGEST
    found = measure_horizon(Probes(heat, 0).deflated)
    assert found.relaxation_time == pytest.approx(time, rel=1e-3)
    assert (found.horizon, found.capped) == (LONGEST, False)


def test_components_and_isolated_rows_do_not_lengthen_the_horizon():
    X = some_points()
    apart = np.vstack([X, X + 100, [[500.0, 0, 0, 0]], [[0, 900.0, 0, 0]]])
    one = gpe.embed(X, n_neighbors=16, power="all", progress=False).report
    two = gpe.embed(apart, n_neighbors=16, epsilon="global", power="all", progress=False).report
    assert two["n_isolated"] == 2
    assert two["relaxation_time"] == pytest.approx(one["relaxation_time"], rel=0.2)


def test_a_long_shape_caps_the_horizon_and_says_so():
    line = np.column_stack([np.arange(3000.0), np.zeros(3000)])
    heat = gpe.heat_kernel(gpe.gaussian_kernel(gpe.neighbor_graph(line, 4)))
    A = heat.to_scipy()
    bands = np.stack([np.pad(A.diagonal(-k), (0, k)) for k in range(8)])  # rows of the line in their order
    assert np.isclose(2 * bands.sum() - bands[0].sum(), A.sum())
    eigenvalues = eigvals_banded(bands, lower=True, select="i", select_range=(2900, 2999))
    with pytest.warns(GPEWarning, match=r"long distances is lost.*transform"):
        report = gpe.embed(line, n_neighbors=4, power="all", progress=False).report
    assert (report["horizon"], report["horizon_capped"]) == (LONGEST, True)
    assert "horizon_capped" in report["reasons"]
    assert report["relaxation_time"] < 1 / (1 - eigenvalues[-2]) and "at least" in report["reasons"]["relaxation_time"]
    assert powers_text(report) == f"all (horizon {LONGEST}; a longer one would serve the longest distances)"
    (text,) = report["warnings"]
    slower = int((eigenvalues > 1 - 1 / LONGEST).sum()) - 1  # without the constant
    assert slower / 2 <= int(re.search(r"about (\d+) of their directions", text)[1]) <= 2 * slower
    with pytest.warns(GPEWarning, match="long distances is lost"):
        symmetric = gpe.embed(line, n_neighbors=4, normalization="symmetric", power="all", progress=False).report
    assert (symmetric["horizon"], symmetric["horizon_capped"]) == (CAP, True)


def test_only_a_horizon_that_is_far_too_short_warns():
    """Not one that the user chose, one with few slower directions, or one of a version that did not count them."""
    line = np.column_stack([np.arange(3000.0), np.zeros(3000)])
    heat = gpe.heat_kernel(gpe.gaussian_kernel(gpe.neighbor_graph(line, 4)))
    shorter = gpe.heat_kernel(gpe.gaussian_kernel(gpe.neighbor_graph(line[:1500], 4)))
    with pytest.warns(GPEWarning, match="long distances is lost"):
        gpe.gp_embedding(heat, 8, "all")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gpe.gp_embedding(heat, 8, "all", horizon=CAP)
        assert measure_horizon(Probes(shorter, 0).deflated).capped
        gpe.gp_embedding(shorter, 8, "all")
        assert Horizon(CAP, 2.0 * CAP, capped=True).warning is None


@pytest.mark.parametrize("bridge", [1e-4, 1e-12])
def test_a_thin_connection_does_not_lengthen_the_horizon(bridge):
    """Two parts that almost no heat connects: one change is far slower than all within a part."""
    half = gpe.gaussian_kernel(gpe.neighbor_graph(some_points(), 16)).to_scipy()
    whole = block_diag([half, half]).tolil()
    whole[0, -1] = whole[-1, 0] = bridge
    found = horizon_of(whole.tocsr())
    within = horizon_of(half).relaxation_time
    assert within < CAP
    assert found.relaxation_time is None or found.relaxation_time > 100 * within
    assert (found.horizon, found.capped) == (CAP, False)


def test_a_far_row_does_not_shorten_the_horizon_of_a_long_shape():
    """The far row's change is known after few steps, those of the shape are not."""
    line = np.column_stack([np.arange(3000.0), np.zeros(3000)])
    kernel = gpe.gaussian_kernel(gpe.neighbor_graph(line, 4)).to_scipy()
    whole = block_diag([kernel, [[1.0]]]).tolil()
    whole[1500, -1] = whole[-1, 1500] = 1e-7
    found = horizon_of(whole.tocsr())
    assert (found.horizon, found.capped) == (LONGEST, True)


@pytest.mark.parametrize(
    ("n_rows", "expected"),
    [(2, LONGEST), (100_000, LONGEST), (150_000, 16384), (200_000, 8192), (300_000, CAP), (10**9, CAP)],
)
def test_the_longest_horizon_falls_as_rows_are_added(n_rows, expected):
    assert longest_horizon(n_rows) == expected


def test_a_given_horizon_is_used_and_wrong_ones_are_refused():
    X = some_points()
    assert gpe.embed(X, power="all", horizon=100, progress=False).report["horizon"] == 100
    with pytest.raises(ValueError, match=r"horizon is for power='all'"):
        gpe.embed(X, power=16, horizon=100)
    with pytest.raises(ValueError, match="horizon must be at least 1"):
        gpe.embed(X, power="all", horizon=0)
    with pytest.raises(ValueError, match="horizon must be a whole number or 'auto'"):
        gpe.embed(X, power="all", horizon="far")


# --- the first power ------------------------------------------------------------------------------


def test_the_first_power_follows_the_number_of_rows():
    assert [choose_first_power("auto", n_rows) for n_rows in (10, MANY_ROWS - 1, MANY_ROWS, 10**9)] == [1, 1, 4, 4]
    assert choose_first_power(7, 10**9) == 7


def test_many_rows_begin_with_a_later_power():
    X = gpe.datasets.torus(MANY_ROWS, random_state=0)
    how = {"n_components": 2, "n_neighbors": 4, "horizon": 8, "n_sketch": 2, "progress": False}
    result = gpe.embed(X, **how)
    assert result.report["first_power"] == 4
    assert powers_text(result.report) == "all (horizon 8, from power 4)"
    assert np.array_equal(result.points, gpe.embed(X, first_power=4, **how).points)
    fewer = gpe.embed(X[:-1], **how)
    assert fewer.report["first_power"] == 1
    assert gpe.embed(X, power=2, **{**how, "horizon": "auto"}).report["first_power"] is None


def test_runs_with_different_first_powers_share_a_store(tmp_path):
    X, how = some_points(), {"n_components": 4, "n_neighbors": 16, "horizon": 64, "n_sketch": 4, "progress": False}
    first, later, given, again = (
        gpe.embed(X, store=tmp_path / "run.zarr", **how, **more)
        for more in ({}, {"first_power": 3}, {"first_power": 1}, {"first_power": 3})
    )
    assert [one.report["first_power"] for one in (first, later, given, again)] == [1, 3, 1, 3]
    assert np.array_equal(first.points[:], given.points[:])
    assert np.array_equal(later.points[:], again.points[:])
    assert again.report["finished_at"] == later.report["finished_at"]
    assert not np.allclose(first.points[:], later.points[:])
    assert np.array_equal(later.points[:], gpe.embed(X, **how, first_power=3).points)


def test_new_points_and_audit_know_the_first_power():
    X = some_points()
    result = gpe.embed(X, n_components=16, horizon=64, first_power=6, progress=False)
    np.testing.assert_allclose(result.transform(X[:20]), result.points[:20], atol=1e-4 * np.abs(result.points).max())
    rounding = gpe.audit(result)["powers"]["all"]["rounding"]
    assert rounding["measured"] <= rounding["reported"]


def test_exact_distances_know_the_first_power():
    A = heat_of(some_points()[:200]).to_scipy().toarray().astype(np.float64)
    image = sum(np.linalg.matrix_power(A, t) for t in range(6, 6 + 8))
    np.testing.assert_allclose(gpe.exact.diffusion_distances(A, "all", 8, 6), pdist(image), rtol=1e-9)


def test_wrong_first_powers_are_refused():
    X = some_points()
    with pytest.raises(ValueError, match=r"first_power is for power='all'"):
        gpe.embed(X, power=16, first_power=2)
    with pytest.raises(ValueError, match="first_power must be at least 1"):
        gpe.embed(X, first_power=0)
    with pytest.raises(ValueError, match="first_power must be a whole number or 'auto'"):
        gpe.embed(X, first_power="late")
    with pytest.raises(ValueError, match="first_power"):
        gpe.exact.gp_embedding(np.eye(2), np.eye(2), "all", 4, 0)


def test_a_later_first_power_tells_clusters_apart_in_noise():
    """The first powers set each row apart from all others, most of all in many dimensions."""
    rng = np.random.default_rng(2)
    found = np.arange(2000) % 10
    X = rng.standard_normal((2000, 200))
    X[:, :10] += 1.8 * rng.standard_normal((10, 10))[found]
    heat = gpe.heat_kernel(gpe.gaussian_kernel(gpe.neighbor_graph(X)))
    share = {}
    for first in (1, 4):
        points = gpe.gp_embedding(heat, 32, "all", first_power=first).astype(np.float64)
        squares = (points**2).sum(axis=1)
        gaps = squares[:, None] + squares - 2 * points @ points.T
        np.fill_diagonal(gaps, np.inf)
        share[first] = (found[gaps.argpartition(10, axis=1)[:, :10]] == found[:, None]).mean()
    assert share[4] > share[1] + 0.05


# --- cost -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("horizon", [256, 1024, 4096])
def test_all_scales_cost_about_what_the_longest_power_costs(horizon):
    X = some_points()
    together = gpe.embed(X, power="all", horizon=horizon, progress=False).report["sweeps"]["sketch"]
    alone = gpe.embed(X, power=horizon, progress=False).report["sweeps"]["sketch"]
    assert together <= 1.3 * alone


@pytest.mark.parametrize("gap", [0.5, 0.1, 0.01, 1e-3, 1e-5])
@pytest.mark.parametrize("lower", [-1.0, -0.1, 0.0])
def test_no_data_take_more_than_260_sweeps(gap, lower):
    nodes = np.concatenate([np.linspace(max(lower, -0.9), 1 - gap, 40)])
    spectrum = Spectrum(nodes, np.full(40, 1 / 40), lower, 10_000, 64)
    for cumulative in (False, True):
        plan = plan_filter(Filter(1024, cumulative), spectrum, "single", 1e-4)
        assert plan.n_products <= 260 == most_sweeps(1024)


def test_powers_and_all_scales_share_their_sweeps():
    X = some_points()
    report = gpe.embed(X, power=[64, 256, "all"], horizon=256, progress=False).report
    alone = gpe.embed(X, power="all", horizon=256, progress=False).report
    assert report["sweeps"]["sketch"] <= alone["sweeps"]["sketch"] + 12


def test_a_power_that_leaves_nothing_warns_before_its_products():
    X = np.random.default_rng(0).standard_normal((300, 20))
    stages = []
    with warnings.catch_warnings():
        warnings.simplefilter("error", VanishingWarning)
        with pytest.raises(VanishingWarning, match="power=4096 leaves nothing of the data"):
            gpe.embed(X, power=4096, progress=lambda stage, done, total: stages.append(stage))
    assert "sketch" not in stages


# --- the same bytes -------------------------------------------------------------------------------


@pytest.mark.parametrize("normalization", ["bistochastic", "symmetric"])
def test_the_same_bytes_alone_together_stored_and_with_fewer_columns(tmp_path, normalization):
    X = some_points(duplicates=True)
    settings = {"n_neighbors": 16, "normalization": normalization, "progress": False}
    alone = gpe.embed(X, n_components=6, power="all", **settings).points
    together = gpe.embed(X, n_components=6, power=[4, "all", 300], **settings)
    power = gpe.embed(X, n_components=6, power=300, **settings).points
    store = gpe.embed(X, n_components=6, power="all", store=tmp_path / "s.zarr", n_jobs=1, **settings)
    assert together.at("all").tobytes() == alone.tobytes()
    assert together.at(300).tobytes() == power.tobytes()
    assert np.asarray(store.points[:]).tobytes() == alone.tobytes()
    again = gpe.open(tmp_path / "s.zarr")
    assert again.at("all")[:].tobytes() == alone.tobytes()
    wide = gpe.embed(X, n_components=9, power="all", store=tmp_path / "s.zarr", **settings).points[:]
    assert wide.tobytes() == gpe.embed(X, n_components=9, power="all", **settings).points.tobytes()


def test_transform_without_the_look_up_of_equal_rows():
    X = some_points()
    result = gpe.embed(X, power=[16, "all"], precision="double", progress=False)
    nearby = X + 1e-6 * np.random.default_rng(0).standard_normal(X.shape)  # no row is equal to a training row
    found = result.transform(nearby)
    for power in (16, "all"):
        known = result.at(power)
        assert np.abs(found[power] - known).max() < 1e-3 * np.abs(known).max()


def test_one_power_of_several_is_chosen_by_name():
    result = gpe.embed(some_points(), power=[16, "all"], progress=False)
    assert result.at(16) is result.points[16]
    with pytest.raises(ValueError, match=r"power must be one of \[16, 'all'\]; got 256"):
        result.at(256)
    single = gpe.embed(some_points(), power=16, progress=False)
    assert single.at(16) is single.points


# --- statistics -----------------------------------------------------------------------------------


@pytest.mark.parametrize("normalization", ["bistochastic", "symmetric"])
def test_squared_distances_follow_the_chi_square_law(normalization):
    """1,000 independent columns, one pair of rows; a false alarm for one seed in 10,000, and the seed is fixed."""
    heat = heat_of(some_points(), normalization)
    n = heat.shape[0]
    f = gpe.exact.gp_embedding(heat.to_scipy().toarray(), np.eye(n) * np.sqrt(n), "all", horizon=64)
    truth = np.linalg.norm(without_top(heat, (f[3] - f[500])[:, None]))
    y = gpe.gp_embedding(heat, 1000, "all", horizon=64).astype(np.float64) * np.sqrt(1000)
    ratios = ((y[3] - y[500]) / truth) ** 2
    assert kstest(ratios, chi2(1).cdf).pvalue > 1e-4
