"""Data that is small, disconnected, repeated, tied or extreme: it works, or the error says what to do."""

import warnings

import numpy as np
import pytest

import scalable_gpe as gpe
from scalable_gpe import exact
from scalable_gpe.errors import ConnectivityWarning, VanishingWarning
from scalable_gpe.execution.memory_plan import block_sizes

QUIET = pytest.mark.filterwarnings("ignore::scalable_gpe.errors.GPEWarning")


def reference(X, epsilon, power, k, normalization="bistochastic"):
    Y = exact.gp_embedding(
        exact.heat_kernel(np.asarray(X, float), epsilon, normalization), gpe.sketch_matrix(len(X), k), power
    )
    return Y - Y.mean(axis=0) if normalization == "bistochastic" else Y


def close(got, expected, tolerance=1e-5):
    assert np.isfinite(got).all()
    assert np.linalg.norm(got - expected) <= tolerance * np.linalg.norm(expected)


# --- sizes ----------------------------------------------------------------------------------------


@QUIET
@pytest.mark.parametrize("normalization", ["bistochastic", "symmetric"])
@pytest.mark.parametrize("n_rows", [2, 3, 5])
def test_very_few_rows(n_rows, normalization):
    X = np.random.default_rng(n_rows).standard_normal((n_rows, 2))
    result = gpe.embed(
        X, epsilon=2.0, power=3, n_components=4, precision="double", normalization=normalization, axes="sketch"
    )
    close(result.points, reference(X, 2.0, 3, 4, normalization))
    for rule in ("auto", "bgh"):
        assert np.isfinite(gpe.embed(X, epsilon=rule, power=(1, 100), normalization=normalization).points[100]).all()


@QUIET
@pytest.mark.parametrize("n_neighbors", [1, 7, 32])
def test_as_many_neighbors_as_there_are_other_rows(n_neighbors):
    X = np.random.default_rng(0).standard_normal((n_neighbors + 1, 3))
    result = gpe.embed(
        X, n_neighbors=n_neighbors, epsilon=3.0, power=2, n_components=2, precision="double", axes="sketch"
    )
    close(result.points, reference(X, 3.0, 2, 2))


@pytest.mark.parametrize("k", [1, 2, 100])
def test_fewer_and_more_columns_than_rows(k):
    X = np.random.default_rng(1).standard_normal((40, 2))
    result = gpe.embed(X, n_neighbors=39, epsilon=1.0, power=5, n_components=k, precision="double", axes="sketch")
    assert result.points.shape == (40, k)
    close(result.points, reference(X, 1.0, 5, k))


@QUIET
def test_one_dimension():
    X = np.sort(np.random.default_rng(2).random(300))[:, None]
    result = gpe.embed(X, n_neighbors=299, epsilon=0.01, power=20, n_components=3, precision="double", axes="sketch")
    close(result.points, reference(X.astype(np.float32), 0.01, 20, 3))
    assert np.isfinite(gpe.embed(X).points).all()


def test_one_neighbor():
    X = np.random.default_rng(3).standard_normal((100, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert np.isfinite(gpe.embed(X, n_neighbors=1).points).all()
        result = gpe.embed(X, n_neighbors=1, epsilon="auto")
    assert np.isfinite(result.points).all()
    assert result.report["n_connected_components"] > 1
    # one neighbour always gives less than 1 effective neighbour: the rule aims for 0.9
    nearest = result.graph.distances[:, 0].astype(float)
    assert np.median(np.exp(-(nearest**2) / result.report["epsilon"])) == pytest.approx(0.9, rel=1e-6)


# --- repeats --------------------------------------------------------------------------------------


@pytest.mark.parametrize("normalization", ["bistochastic", "symmetric"])
@pytest.mark.parametrize("method", ["brute", "kdtree", "cells"])
def test_a_thousand_identical_rows_among_others(normalization, method):
    rng = np.random.default_rng(4)
    X = rng.standard_normal((1200, 2)).astype(np.float32)
    same = rng.choice(1200, 1000, replace=False)
    X[same] = X[same[0]]
    options = {"epsilon": 1.5, "power": (2, 12), "n_components": 5, "normalization": normalization, "method": method}
    with block_sizes(block_rows=64):
        result = gpe.embed(X, n_neighbors=200, precision="double", axes="sketch", **options)
    assert (result.report["n_distinct"], result.report["n_duplicates"]) == (201, 999)
    for power, points in result.points.items():
        assert (points[same] == points[same[0]]).all()
        close(points, reference(X, 1.5, power, 5, normalization))
    few = gpe.embed(X, n_neighbors=20, **options)
    assert all(np.isfinite(points).all() and (points[same] == points[same[0]]).all() for points in few.points.values())


@QUIET
def test_only_repeats_of_two_rows():
    X = np.repeat([[0.0, 0.0], [1.0, 0.0]], [30, 70], axis=0)
    result = gpe.embed(X, epsilon=1.0, power=4, n_components=3, precision="double", axes="sketch")
    assert result.report["n_neighbors"] == 1
    close(result.points, reference(X, 1.0, 4, 3))


@QUIET
@pytest.mark.parametrize(("copies", "n_neighbors"), [(30, 32), (3, 29)])
def test_a_given_number_of_neighbors_is_never_lowered(copies, n_neighbors, tmp_path):
    """Also if it is the default or the number of other rows, and the store has a graph in which it was lowered."""
    X = np.repeat(np.random.default_rng(1).random((10, 2)), copies, axis=0)
    assert gpe.neighbor_graph(X, store=tmp_path / "run").n_neighbors == 9
    for call in (gpe.neighbor_graph, gpe.embed):
        for store in (None, tmp_path / "run"):
            with pytest.raises(ValueError, match="n_neighbors must be at most 9"):
                call(X, n_neighbors=n_neighbors, store=store)
    assert gpe.estimate(X, n_neighbors=9)["memory"] > 0


def test_zeros_of_both_signs_are_one_point():
    X = np.array([[0.0, 1.0], [-0.0, 1.0], [2.0, 2.0], [3.0, -1.0]])
    assert gpe.embed(X, power=1, epsilon=1.0).report["n_distinct"] == 3


def test_all_rows_equal():
    for X in (np.ones((50, 3)), np.zeros((2, 1)), np.full((5, 2), 1e30)):
        with pytest.raises(ValueError, match=r"at least 2 different rows.*nothing to embed"):
            gpe.embed(X)


def test_more_neighbors_than_different_rows():
    X = np.repeat(np.random.default_rng(0).standard_normal((12, 2)), 10, axis=0)
    with pytest.raises(ValueError, match=r"n_neighbors must be at most 11.*120 rows, 12 different.*got 40"):
        gpe.embed(X, n_neighbors=40)


# --- pieces ---------------------------------------------------------------------------------------


def pieces(n=3, size=80):
    return np.concatenate([gpe.datasets.torus(size, random_state=s) + 100 * s for s in range(n)])


@QUIET
@pytest.mark.parametrize("normalization", ["bistochastic", "symmetric"])
@pytest.mark.parametrize("power", [1, 40, 5000])
def test_a_disconnected_graph(normalization, power):
    X = pieces()
    result = gpe.embed(
        X,
        n_neighbors=79,
        epsilon=2.0,
        power=power,
        n_components=4,
        precision="double",
        normalization=normalization,
        axes="sketch",
    )
    assert result.report["n_connected_components"] == 3
    close(result.points, reference(X.astype(np.float32), 2.0, power, 4, normalization))
    assert result.report["converged"]


def test_isolated_rows_are_reported_and_stay():
    X = np.concatenate([gpe.datasets.torus(300), np.diag([1e4, 2e4, -3e4, 5e4])])
    with pytest.warns(ConnectivityWarning, match=r"4 of 304 different rows have no effective neighbours"):
        result = gpe.embed(X, n_neighbors=20, epsilon=1.0, power=8, n_components=6, axes="sketch")
    assert result.report["n_isolated"] == 4
    lists = result.graph.indices, result.graph.distances
    with pytest.warns(ConnectivityWarning, match="Raise n_neighbors or epsilon"):
        gpe.embed(neighbors=lists, epsilon=1.0, power=8, n_components=6, n_sketch=6)
    assert np.isfinite(result.points).all()
    G = gpe.sketch_matrix(304, 6)
    np.testing.assert_allclose(result.points[300:], (G - G.mean(axis=0))[300:] / np.sqrt(6), atol=1e-5)


@QUIET
def test_an_epsilon_so_small_that_every_row_is_alone():
    X = np.random.default_rng(0).standard_normal((60, 2))
    result = gpe.embed(X, epsilon=1e-12, power=64, n_components=3, axes="sketch")
    assert result.report["n_isolated"] == 60
    G = gpe.sketch_matrix(60, 3)
    np.testing.assert_allclose(result.points, (G - G.mean(axis=0)) / np.sqrt(3), rtol=1e-4)


@QUIET
@pytest.mark.parametrize("normalization", ["bistochastic", "symmetric"])
def test_an_epsilon_so_large_that_all_rows_are_one(normalization):
    X = np.random.default_rng(0).standard_normal((60, 2))
    result = gpe.embed(X, n_neighbors=59, epsilon=1e12, power=3, n_components=3, normalization=normalization)
    assert np.isfinite(result.points).all()
    assert np.ptp(result.points, axis=0).max() < 1e-5


# --- ties, extremes -------------------------------------------------------------------------------


@QUIET
@pytest.mark.parametrize("dtype", [np.int64, np.uint8, bool])
def test_integer_input_with_many_ties(dtype):
    side = np.arange(2 if dtype is bool else 8)
    X = np.stack(np.meshgrid(*[side] * (8 if dtype is bool else 3)), axis=-1).reshape(-1, 8 if dtype is bool else 3)
    X = X.astype(dtype)
    result = gpe.embed(X, n_neighbors=10, power=(2, 64))
    assert all(np.isfinite(points).all() for points in result.points.values())
    assert result.report["recall"] == 1.0
    whole = gpe.embed(
        X, n_neighbors=len(X) - 1, epsilon=3.0, power=6, n_components=4, precision="double", axes="sketch"
    )
    close(whole.points, reference(X, 3.0, 6, 4))


@QUIET
@pytest.mark.parametrize("scale", [1e-12, 1e-6, 1e6, 1e12, 1e17])
def test_very_small_and_very_large_units(scale):
    X = gpe.datasets.torus(200, random_state=1).astype(np.float64)
    result = gpe.embed(
        X * scale, n_neighbors=199, epsilon=2.0 * scale**2, power=5, n_components=3, precision="double", axes="sketch"
    )
    close(result.points, reference(X, 2.0, 5, 3), 1e-4)
    auto = gpe.embed(X * scale, power=5).report["epsilon"]
    assert auto == pytest.approx(scale**2 * gpe.embed(X, power=5).report["epsilon"], rel=1e-4)


@pytest.mark.parametrize("precision", ["single", "double"])
def test_a_power_that_leaves_nothing_warns(precision):
    """The result is the same for all rows up to rounding."""
    X = np.random.default_rng(0).standard_normal((60, 2))
    with pytest.warns(VanishingWarning, match=r"power=30000 leaves nothing.*Choose a smaller one"):
        result = gpe.embed(X, n_neighbors=59, epsilon=5.0, power=(1, 30_000), precision=precision)
    assert np.isfinite(result.points[30_000]).all()
    assert np.ptp(result.points[30_000], axis=0).max() < 1e-6


@QUIET
def test_a_power_of_the_symmetric_kernel_keeps_its_top_eigenvector():
    X = np.random.default_rng(0).standard_normal((60, 2))
    points = gpe.embed(
        X, n_neighbors=59, epsilon=5.0, power=20_000, normalization="symmetric", precision="double"
    ).points
    assert np.linalg.matrix_rank(points, tol=1e-4 * np.abs(points).max()) == 1


# --- shapes of the answer -------------------------------------------------------------------------


@QUIET
def test_one_power_and_a_sequence_of_one():
    X = np.random.default_rng(0).standard_normal((50, 2))
    alone = gpe.embed(X, power=4, n_components=3)
    for sequence in ([4], (4,), np.array([4]), range(4, 5)):
        several = gpe.embed(X, power=sequence, n_components=3)
        assert list(several.points) == [4]
        assert several.points[4].tobytes() == alone.points.tobytes()
        assert set(several.report["polynomial_error"]) == {4}
    assert alone.points.dtype == np.float32 and alone.points.flags.c_contiguous
    assert gpe.embed(X, power=np.int64(4), n_components=3).points.tobytes() == alone.points.tobytes()
    heat = alone.heat
    assert isinstance(gpe.gp_embedding(heat, 3, (4,)), dict)
    assert isinstance(gpe.gp_embedding(heat, 3, {4, 8}), dict)
    sketched = gpe.embed(X, power=4, n_components=3, axes="sketch")
    assert gpe.gp_embedding(heat, 3, 4).tobytes() == sketched.points.tobytes()


@QUIET
def test_the_report_is_complete_and_plain():
    import json

    X = np.random.default_rng(0).standard_normal((80, 2))
    keys = """
        n_rows n_distinct n_duplicates n_isolated n_connected_components n_neighbors method epsilon nnz recall
        recall_error lost_mass missing_weight sinkhorn_iterations sinkhorn_residual converged power sweeps lambda_min
        polynomial_error stage_seconds total_seconds peak_memory versions n_kernel_components
    """.split()  # noqa: SIM905
    lists = gpe.neighbor_graph(X, 5)
    for options in (
        {"X": X},
        {"X": X, "normalization": "symmetric", "power": (2, 90)},
        {"neighbors": (lists.indices, lists.distances)},
    ):
        report = gpe.embed(**options).report
        assert set(keys) <= set(report)
        assert set(report["sweeps"]) == {"heat", "interval", "sketch"}
        assert set(report["stage_seconds"]) == {"graph", "kernel", "heat", "sketch", "write"}
        json.dumps(report)
        missing = [key for key in keys if report[key] is None]
        assert all(key in report["reasons"] for key in missing), missing
        assert report["peak_memory"] > 10**7 and report["total_seconds"] > 0


@QUIET
def test_results_do_not_share_memory():
    """Changing an answer in place must not change the next one."""
    X = np.random.default_rng(0).standard_normal((50, 2))
    heat = gpe.embed(X, power=4, n_components=3).heat
    first = gpe.gp_embedding(heat, 3, 4)
    kept = first.copy()
    second = gpe.gp_embedding(heat, 3, 4)
    first *= 0
    assert (second == kept).all()
    assert (gpe.gp_embedding(heat, 3, 4) == kept).all()


@QUIET
def test_sweeps_are_counted():
    """The sketch costs what the plan says: p products, or about sqrt(p) of them."""
    X = gpe.datasets.circle(400, random_state=0)
    assert gpe.embed(X, power=5, n_components=2).report["sweeps"]["sketch"] == 5
    assert gpe.embed(X, power=(3, 5), n_components=2).report["sweeps"]["sketch"] == 6  # 4 shared, one last each
    report = gpe.embed(X, power=1000, n_components=2).report
    assert 30 < report["sweeps"]["sketch"] < 300 and report["sweeps"]["interval"] > 0
