"""The sum of all powers: against the dense reference, in every regime, with its horizon, first power and law."""

import warnings

import numpy as np
import pytest
from scipy.linalg import eigh
from scipy.sparse import block_diag
from scipy.spatial.distance import pdist

import scalable_gpe as gpe
from scalable_gpe.errors import ConvergenceWarning, VanishingWarning
from scalable_gpe.execution.memory_plan import block_sizes
from scalable_gpe.execution.panels import Panels
from scalable_gpe.formatting import report_lines
from scalable_gpe.heat.normalization import top_eigenvector
from scalable_gpe.multilevel.cycle import CoarseBasis
from scalable_gpe.multilevel.horizon import (
    MANY_ROWS,
    PER_TIME,
    SHORTEST,
    choose_first_power,
    measure_horizon,
)
from scalable_gpe.sketch.polynomial import most_sweeps, plan_power
from scalable_gpe.spectral.filters import Filter
from scalable_gpe.spectral.lanczos import Spectrum


def some_points(duplicates: bool = False) -> np.ndarray:
    X = gpe.datasets.torus(600, random_state=3)
    if duplicates:
        X[100:140] = X[7]
    return X


def heat_of(X: np.ndarray, normalization: str = "bistochastic") -> gpe.HeatKernel:
    return gpe.heat_kernel(gpe.gaussian_kernel(gpe.neighbor_graph(X, 16)), normalization)


def horizon_of(heat):
    return measure_horizon(CoarseBasis.of(heat, Panels(heat.context)))


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


@pytest.mark.parametrize("horizon", [1, 2, 64, 1024])
@pytest.mark.parametrize("first", [1, 5])
def test_the_filter_is_a_sum_of_powers(horizon, first):
    x, c = np.concatenate([np.linspace(-1, 1, 201), 1 - np.logspace(-16, -1, 40)]), 1 - 1 / horizon
    expected = sum(c**t * x ** (first + t) for t in range(40 * horizon))
    np.testing.assert_allclose(Filter(horizon, cumulative=True, first=first)(x), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("count", [1, 2, 4, 16])
def test_a_power_is_split_into_parts(count):
    assert all(sum(Filter(power).parts(count)) == power - 1 for power in (1, 2, 7, 1024))


# --- against the dense reference ------------------------------------------------------------------


@pytest.mark.some(4)
@pytest.mark.parametrize("duplicates", [False, True])
@pytest.mark.parametrize("normalization", ["bistochastic", "symmetric"])
@pytest.mark.parametrize("precision", ["single", "double"])
def test_sparse_equals_dense(precision, normalization, duplicates):
    heat = heat_of(some_points(duplicates), normalization)
    for horizon in (7, 1024) if duplicates else (1, 64, 10**6):
        expected = reference(heat, 8, horizon)
        for tol in (1e-2, 1e-4 if precision == "single" else 1e-6):
            found = gpe.gp_embedding(heat, 8, "all", horizon=horizon, precision=precision, tol=tol).astype(np.float64)
            truth, distances = pdist(expected), pdist(found)
            error = np.abs(distances - truth)[truth > 1e-9] / truth[truth > 1e-9]
            assert np.sqrt(np.mean(error**2)) < 2 * tol
            assert np.linalg.norm(found - expected) < 5 * tol * np.linalg.norm(expected)


@pytest.mark.parametrize("precision", ["single", "double"])
@pytest.mark.parametrize("max_iter", [1, 4])
def test_an_unconverged_scaling_leaves_out_its_own_top_eigenvector(precision, max_iter):
    kernel = gpe.gaussian_kernel(gpe.neighbor_graph(some_points(duplicates=True), 16))
    with pytest.warns(ConvergenceWarning):
        heat = gpe.heat_kernel(kernel, max_iter=max_iter)
    A = heat.to_scipy().toarray()
    values, vectors = np.linalg.eigh(A)
    top = heat.kernel.storage_order.spread(top_eigenvector(heat) / np.sqrt(heat.weights))
    assert values[-1] == pytest.approx(1, abs=1e-6) and abs(top @ vectors[:, -1]) == pytest.approx(1, abs=1e-6)
    expected = reference(heat, 8, 4096)
    found = gpe.gp_embedding(heat, 8, "all", horizon=4096, precision=precision)
    assert np.linalg.norm(found - expected) < 2e-2 * np.linalg.norm(expected)


@pytest.mark.parametrize("precision", ["single", "double"])
def test_a_long_shape_equals_dense(precision):
    rng = np.random.default_rng(0)
    heat = heat_of(np.column_stack([np.linspace(0, 300, 900), rng.normal(size=900)]))
    horizon = horizon_of(heat).horizon
    assert horizon > 2**16
    expected = reference(heat, 8, horizon)
    found = gpe.gp_embedding(heat, 8, "all", precision=precision)
    assert np.linalg.norm(found - expected) < 2e-2 * np.linalg.norm(expected)


@pytest.mark.parametrize("normalization", ["bistochastic", "symmetric"])
@pytest.mark.parametrize("precision", ["single", "double"])
def test_a_sum_that_begins_later_equals_dense(precision, normalization):
    heat = heat_of(some_points(duplicates=True), normalization)
    for first, horizon in ((2, 1), (4, 1024), (16, 64)):
        expected = reference(heat, 8, horizon, first_power=first)
        how = {"horizon": horizon, "first_power": first, "precision": precision, "tol": 1e-4}
        found = gpe.gp_embedding(heat, 8, "all", **how)
        assert np.linalg.norm(found - expected) < 2e-4 * np.linalg.norm(expected)


def test_bernoulli_sketch_and_seed():
    heat = heat_of(some_points())
    how = {"horizon": 128, "sketch": "bernoulli", "random_state": 5, "precision": "double", "tol": 1e-7}
    found = gpe.gp_embedding(heat, 6, "all", **how)
    expected = reference(heat, 6, 128, 5, "bernoulli")
    np.testing.assert_allclose(found, expected, atol=1e-6 * np.abs(expected).max())


@pytest.mark.some(9)
@pytest.mark.parametrize("normalization", ["bistochastic", "symmetric"])
@pytest.mark.parametrize("data", ["torus", "branches", "noise", "strays"])
@pytest.mark.parametrize("tol", [1e-1, 1e-2, 1e-4])
def test_the_solver_error_is_never_far_below_the_true_one(data, normalization, tol):
    rng = np.random.default_rng(0)
    X = {
        "torus": lambda: some_points(duplicates=True),
        "branches": lambda: gpe.datasets.branches(800, random_state=1),
        "noise": lambda: rng.standard_normal((600, 12)),
        "strays": lambda: np.vstack([some_points(), 4 * rng.standard_normal((60, 4))]),
    }[data]()
    heat = heat_of(X, normalization)
    result = gpe.embed(X, n_neighbors=16, normalization=normalization, epsilon="global", tol=tol, progress=False)
    heat, report = result.heat, result.report
    truth = reference(heat, 32, report["horizon"])
    one, other = rng.integers(0, len(X), (2, 4000))
    far, found = (np.linalg.norm(Y[one] - Y[other], axis=1) for Y in (truth, np.asarray(result.points, np.float64)))
    apart = far > 1e-9 * far.max()
    error = np.sqrt(np.mean((found[apart] / far[apart] - 1) ** 2))
    assert error / 2 <= report["solver_error"] + 2e-6
    assert report["solver_error"] <= 2 * tol
    assert report["polynomial_error"] == report["solver_error"] <= report["solver_error_worst"]


def test_the_solver_error_of_narrow_panels_is_that_of_all_columns():
    X = gpe.datasets.branches(1000)
    whole = gpe.embed(X, progress=False).report
    with block_sizes(panel_columns=1):
        narrow = gpe.embed(X, progress=False).report
    assert narrow["n_panels"] == 32 > whole["n_panels"]
    for name in ("solver_error", "solver_error_worst"):
        assert narrow[name] == pytest.approx(whole[name], rel=1e-3)


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
        assert np.median(error) < (1e-2 if power == "all" else 1e-5)
        assert error.max() < (1e-1 if power == "all" else 1e-2)


# --- the horizon ----------------------------------------------------------------------------------


def slowest_time(heat: gpe.HeatKernel) -> float:
    return 1 / (1 - np.linalg.eigvalsh(heat.to_scipy().toarray())[-2])


@pytest.mark.parametrize("normalization", ["bistochastic", "symmetric"])
def test_the_horizon_follows_the_relaxation_time(normalization):
    time = slowest_time(heat_of(some_points(), normalization))
    how = {"n_neighbors": 16, "normalization": normalization, "progress": False}
    report = gpe.embed(some_points(), **how).report
    assert 0.95 * time < report["relaxation_time"] <= 1.001 * time
    assert report["horizon"] == 2 ** int(np.ceil(np.log2(PER_TIME * time)))
    assert "relaxation_time" not in report["reasons"]


def test_the_relaxation_time_of_a_long_shape():
    rng = np.random.default_rng(0)
    heat = heat_of(np.column_stack([np.linspace(0, 150, 1000), rng.normal(size=1000)]))
    assert horizon_of(heat).relaxation_time == pytest.approx(slowest_time(heat), rel=2e-2)
    line = np.column_stack([np.arange(3000.0), np.zeros(3000)])
    report = gpe.embed(line, n_neighbors=4, progress=False).report
    A = gpe.heat_kernel(gpe.gaussian_kernel(gpe.neighbor_graph(line, 4))).to_scipy().toarray()
    (second,) = eigh(A, eigvals_only=True, subset_by_index=(2998, 2998))
    assert report["relaxation_time"] == pytest.approx(1 / (1 - second), rel=6e-2)


def test_components_and_isolated_rows_do_not_lengthen_the_horizon():
    X = some_points()
    apart = np.vstack([X, X + 100, [[500.0, 0, 0, 0]], [[0, 900.0, 0, 0]]])
    one = gpe.embed(X, n_neighbors=16, progress=False).report
    two = gpe.embed(apart, n_neighbors=16, epsilon="global", progress=False).report
    assert two["n_isolated"] == 2
    assert two["relaxation_time"] == pytest.approx(one["relaxation_time"], rel=0.2)


def test_isolated_rows_beside_a_long_shape():
    """Heat that leaks to isolated rows is slower than the shape, and is not its relaxation time."""
    rng = np.random.default_rng(0)
    strip = np.column_stack([np.linspace(0, 150, 1000), rng.normal(size=1000)])
    time = slowest_time(heat_of(strip))
    strays = np.column_stack([np.linspace(0, 150, 30), 20 + 15 * np.arange(30) % 200])
    heat = gpe.heat_kernel(gpe.gaussian_kernel(gpe.neighbor_graph(np.vstack([strip, strays]), 16), "global"))
    assert horizon_of(heat).relaxation_time == pytest.approx(time, rel=0.25)


@pytest.mark.parametrize("bridge", [1e-5, 1e-9])
def test_a_thin_connection_does_not_lengthen_the_horizon(bridge):
    """Two parts that almost no heat connects: one mode is far slower than all within a part."""
    half = gpe.gaussian_kernel(gpe.neighbor_graph(some_points(), 16)).to_scipy()
    whole = block_diag([half, half]).tolil()
    whole[0, -1] = whole[-1, 0] = bridge
    within = horizon_of(gpe.heat_kernel(half))
    assert horizon_of(gpe.heat_kernel(whole.tocsr())).horizon == within.horizon


def test_modes_of_single_rows_do_not_hide_a_gap():
    """Seven of them are slower than all within two groups that almost no heat connects."""
    X = np.random.default_rng(0).standard_normal((240, 3))
    X[120:, 0] += 8
    X[0] = 4.0, 0.0, 0.0
    found = horizon_of(gpe.heat_kernel(gpe.gaussian_kernel(gpe.neighbor_graph(X, 32), "bgh")))
    assert found.relaxation_time == pytest.approx(15, rel=0.02) and not found.is_bound
    assert found.horizon == 128


def test_many_small_groups_almost_apart_do_not_hide_the_shape():
    rng = np.random.default_rng(1)
    X = gpe.datasets.torus(3000, random_state=3)
    pairs = np.repeat(20 * rng.standard_normal((100, 4)), 3, axis=0) + 0.05 * rng.standard_normal((300, 4))
    shape = horizon_of(heat_of(X))
    found = horizon_of(gpe.heat_kernel(gpe.gaussian_kernel(gpe.neighbor_graph(np.vstack([X, pairs]), 16), "global")))
    assert found.relaxation_time == pytest.approx(shape.relaxation_time, rel=0.5)


def test_noise_has_no_shape():
    result = gpe.embed(np.random.default_rng(0).standard_normal((1500, 12)), progress=False)
    assert SHORTEST <= result.report["horizon"] <= 1024
    if result.report["relaxation_time"] is not None and "relaxation_time" in result.report["reasons"]:
        assert "at most" in result.report["reasons"]["relaxation_time"]


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
    assert [choose_first_power("auto", n_rows) for n_rows in (10, MANY_ROWS - 1, MANY_ROWS, 10**9)] == [1, 1, 8, 8]
    assert choose_first_power(7, 10**9) == 7


def test_many_rows_begin_with_a_later_power():
    X = gpe.datasets.torus(MANY_ROWS, random_state=0)
    how = {"n_components": 2, "n_neighbors": 4, "horizon": 8, "n_sketch": 2, "progress": False}
    result = gpe.embed(X, **how)
    assert result.report["first_power"] == 8
    assert ("power", "all (horizon 8, from power 8)") in report_lines(result.report, None)
    assert np.array_equal(result.points, gpe.embed(X, first_power=8, **how).points)
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


def test_new_points_know_the_first_power():
    X = some_points()
    result = gpe.embed(X, n_components=16, horizon=64, first_power=6, progress=False)
    np.testing.assert_allclose(result.transform(X[:20]), result.points[:20], atol=1e-4 * np.abs(result.points).max())


def test_exact_distances_know_the_first_power():
    A = heat_of(some_points()[:200]).to_scipy().toarray().astype(np.float64)
    image = np.linalg.matrix_power(A, 6) @ np.linalg.inv(np.eye(200) - 7 / 8 * A)
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


@pytest.mark.parametrize("horizon", [256, 10**6])
def test_all_scales_cost_a_few_products_at_any_horizon(horizon):
    report = gpe.embed(some_points(), horizon=horizon, progress=False).report
    assert report["sweeps"]["sketch"] <= 30
    assert report["sweeps"]["sketch"] == report["solver_cycles"]
    four = gpe.embed(some_points(), horizon=horizon, first_power=4, progress=False).report
    assert four["sweeps"]["sketch"] == report["sweeps"]["sketch"] + 3


def test_slow_cycles_warn():
    """A chain of rows with the same weight everywhere, in an order that no aggregate can use."""
    from scalable_gpe.multilevel.solver import SolverPlan

    assert SolverPlan(64, 0.1, 1.0, 0.5, 8, 2, 30).warning is None
    assert "all scales need 40 cycles" in (SolverPlan(64, 0.002, 1.0, 0.5, 40, 2, 30).warning or "")
    assert issubclass(ConvergenceWarning, UserWarning)


@pytest.mark.parametrize("gap", [0.5, 0.1, 0.01, 1e-3, 1e-5])
@pytest.mark.parametrize("lower", [-1.0, -0.1, 0.0])
def test_no_data_take_more_than_260_sweeps(gap, lower):
    nodes = np.concatenate([np.linspace(max(lower, -0.9), 1 - gap, 40)])
    spectrum = Spectrum(nodes, np.full(40, 1 / 40), 10_000, 64)
    assert plan_power(1024, spectrum, "single", 1e-4).n_products <= 260 == most_sweeps(1024)


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


def test_one_power_of_several_is_chosen_by_name():
    result = gpe.embed(some_points(), power=[16, "all"], progress=False)
    assert result.at(16) is result.points[16]
    with pytest.raises(ValueError, match=r"power must be one of \[16, 'all'\]; got 256"):
        result.at(256)
    single = gpe.embed(some_points(), power=16, progress=False)
    assert single.at(16) is single.points
