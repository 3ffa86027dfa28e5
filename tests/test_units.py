"""Small and large units: results do not depend on the unit of X, and what users see is in their unit."""

from dataclasses import replace

import numpy as np
import pytest

import scalable_gpe as gpe
from scalable_gpe import exact
from scalable_gpe.errors import StoreError
from scalable_gpe.io.rows import open_rows

QUIET = pytest.mark.filterwarnings("ignore::scalable_gpe.errors.GPEWarning")
EXPONENTS = (-100, -70, 60, 100)
OPTIONS = {"n_neighbors": 12, "n_components": 3, "power": (2, 40)}


def torus(n_rows=120, dtype=np.float64):
    return gpe.datasets.torus(n_rows, random_state=3).astype(dtype)


def thirds(n_rows=120):
    """Rows that float32 cannot hold, far from 0."""
    return (torus(n_rows) + 1000) / 3


def same_points(left, right):
    assert all(left.points[power].tobytes() == right.points[power].tobytes() for power in left.points)


def scaled(array, exponent):
    return np.ldexp(np.asarray(array, np.float64), exponent)


# --- one unit is as good as another ---------------------------------------------------------------


@QUIET
@pytest.mark.parametrize("epsilon", ["auto", "local", "bgh", 0.7])
@pytest.mark.parametrize("exponent", [*EXPONENTS, -350, 350])
def test_a_power_of_two_changes_no_byte_of_the_points(exponent, epsilon):
    X = thirds() if epsilon == "auto" else torus()
    usual = gpe.embed(X, epsilon=epsilon, **OPTIONS)
    given = epsilon if isinstance(epsilon, str) else float(scaled(epsilon, 2 * exponent))
    other = gpe.embed(scaled(X, exponent), epsilon=given, **OPTIONS)
    same_points(usual, other)
    assert other.kernel.epsilon == other.report["epsilon"] == scaled(usual.kernel.epsilon, 2 * exponent)
    assert usual.graph.distances.dtype == np.float32 and other.graph.distances.dtype == np.float64
    assert (other.graph.distances == scaled(usual.graph.distances, exponent)).all()
    for figure in ("lost_mass", "recall", "n_isolated"):
        assert other.report[figure] == usual.report[figure]
    if epsilon == "local":
        assert (other.kernel.sigma == scaled(usual.kernel.sigma, exponent)).all()
        for figure in ("low", "median", "high"):
            assert other.report["sigma"][figure] == scaled(usual.report["sigma"][figure], exponent)


@QUIET
@pytest.mark.parametrize("method", ["brute", "kdtree", "cells", pytest.param("pynndescent", marks=pytest.mark.slow)])
@pytest.mark.parametrize("exponent", [-100, 60])
def test_every_search(method, exponent):
    X = torus(300)
    usual, other = (gpe.embed(scaled(X, e), method=method, **OPTIONS) for e in (0, exponent))
    same_points(usual, other)
    assert other.report["recall"] == usual.report["recall"] > 0.9


@QUIET
@pytest.mark.parametrize(
    ("dtype", "units"),
    [(np.float32, (1e-38, 1e-24, 1e-22, 1e20, 1e37)), (np.float64, (1e-110, 1e-38, 1e-30, 1e-22, 1e30, 1e110))],
)
def test_any_unit_gives_the_dense_answer(dtype, units):
    for unit in units:
        check_dense(dtype, unit)


def check_dense(dtype, unit):
    X = (torus(60) * unit).astype(dtype)
    exactly = X.astype(np.float64) / unit
    result = gpe.embed(
        X, n_neighbors=59, epsilon=2.0 * unit**2, power=5, n_components=3, precision="double", axes="sketch"
    )
    Y = exact.gp_embedding(exact.heat_kernel(exactly, 2.0), gpe.sketch_matrix(60, 3), 5)
    Y -= Y.mean(axis=0)
    assert np.linalg.norm(result.points - Y) < 1e-5 * np.linalg.norm(Y)


@QUIET
def test_all_rows_choose_the_unit_not_only_the_sampled_ones():
    """Row 1 of 2,500 is not among the rows that are looked at before the run."""
    X = torus(2500)
    assert 1 not in np.linspace(0, 2499, 1024).astype(int)
    X[1] = 1e25
    result = gpe.embed(X, epsilon=0.5, **OPTIONS)
    rest = gpe.embed(np.delete(X, 1, axis=0), epsilon=0.5, **OPTIONS)
    assert result.report["n_isolated"] == 1
    assert (result.graph.distances[1] > 1e25).all() and np.isfinite(result.graph.distances).all()
    others = np.delete(result.graph.distances, 1, axis=0)
    np.testing.assert_allclose(others, rest.graph.distances, atol=1e-6)


# --- stores, new rows, lists ----------------------------------------------------------------------


@QUIET
@pytest.mark.parametrize("exponent", [-90, 60])
def test_stored_runs_and_new_rows(exponent, tmp_path):
    X = thirds(160)
    train, new = X[:120], X[120:]
    usual = gpe.embed(train, **OPTIONS)
    gpe.embed(scaled(train, exponent), store=tmp_path / "run.zarr", **OPTIONS)
    again = gpe.embed(scaled(train, exponent), store=tmp_path / "run.zarr", **OPTIONS)  # finds everything
    opened = gpe.open(tmp_path / "run.zarr")
    assert opened.report["epsilon"] == opened.kernel.epsilon == scaled(usual.kernel.epsilon, 2 * exponent)
    for result in (again, opened):
        for power, known in usual.points.items():
            assert np.asarray(result.points[power][:]).tobytes() == known.tobytes()
            assert result.transform(scaled(new, exponent))[power].tobytes() == usual.transform(new)[power].tobytes()
            assert result.transform(scaled(train[:5], exponent))[power].tobytes() == known[:5].tobytes()
    far = np.concatenate([new, new[:1] + 50])
    left = usual.transform(far, return_distance=True)[1]
    assert (opened.transform(scaled(far, exponent), return_distance=True)[1] == left).all() and left[-1] > 5
    with pytest.raises(StoreError, match="another input"):
        gpe.embed(scaled(train, exponent + 1), store=tmp_path / "run.zarr", **OPTIONS)
    with pytest.raises(StoreError, match="another input"):
        gpe.embed(train, store=tmp_path / "run.zarr", **OPTIONS)


@QUIET
def test_every_kind_of_input(tmp_path):
    import dask.array
    import scipy.sparse
    import zarr

    X = torus(dtype=np.float32) * np.float32(2.0**-100)
    np.save(tmp_path / "X.npy", X)
    expected = gpe.embed(torus(dtype=np.float32), **OPTIONS)
    inputs = (
        X,
        tmp_path / "X.npy",
        np.load(tmp_path / "X.npy", mmap_mode="r"),
        dask.array.from_array(X, chunks=(50, 2)),
        zarr.array(X, chunks=(50, 3)),
        scipy.sparse.csr_matrix(X),
        np.asfortranarray(X),
        X.astype(np.float64),
    )
    for given in inputs:
        same_points(expected, gpe.embed(given, **OPTIONS))


@QUIET
@pytest.mark.parametrize("local", [False, True])
@pytest.mark.parametrize("exponent", EXPONENTS)
def test_precomputed_lists(exponent, local):
    X = torus()
    graph = gpe.neighbor_graph(X, 12)
    options = {**OPTIONS, "n_neighbors": None, "epsilon": "local" if local else "auto"}
    for points in (False, True):
        usual, other = (
            gpe.embed(
                scaled(X, e) if points else None, neighbors=(graph.indices, scaled(graph.distances, e)), **options
            )
            for e in (0, exponent)
        )
        same_points(usual, other)
        assert other.kernel.epsilon == scaled(usual.kernel.epsilon, 2 * exponent)
        assert (other.graph.distances == scaled(graph.distances, exponent)).all()
        assert (
            other.report["recall"] == usual.report["recall"] and other.report["lost_mass"] == usual.report["lost_mass"]
        )
    new = X[:7] + 0.01
    assert (usual.transform(new)[40] == other.transform(scaled(new, exponent))[40]).all()


@QUIET
def test_lists_and_points_share_one_unit():
    """The larger of both decides: lists of another metric, in another unit than X."""
    X = torus()
    graph = gpe.neighbor_graph(X, 12)
    lists = graph.indices, graph.distances.astype(np.float64)
    usual = gpe.embed(neighbors=lists, **OPTIONS)
    other = gpe.embed(X * 1e25, neighbors=lists, **OPTIONS)
    same_points(usual, other)
    assert other.kernel.epsilon == usual.kernel.epsilon


# --- what else users see --------------------------------------------------------------------------


@QUIET
@pytest.mark.parametrize("epsilon", ["global", "local"])
def test_diagnostics(epsilon):
    X, exponent = torus(), -80
    usual, other = (gpe.embed(scaled(X, e), epsilon=epsilon, **OPTIONS) for e in (0, exponent))
    left, right = (gpe.epsilon_sweep(result.graph) for result in (usual, other))
    np.testing.assert_allclose(right["epsilon"], scaled(left["epsilon"], 2 * exponent), rtol=1e-14)
    for figure in ("lost_mass", "effective_neighbors", "last_weight", "n_connected_components"):
        np.testing.assert_allclose(right[figure], left[figure], rtol=1e-10)
    one = gpe.epsilon_sweep(other.graph, [float(left["epsilon"][7] * 2.0 ** (2 * exponent))])
    assert one["n_connected_components"][0] == left["n_connected_components"][7]
    audits = [gpe.audit(result, n_probes=50, n_exact=8) for result in (usual, other)]
    for figures in audits:
        del figures["seconds"], figures["warnings"]  # warnings name epsilon
    assert audits[0] == audits[1]


@QUIET
def test_exported_distances_are_in_the_users_unit(tmp_path):
    anndata = pytest.importorskip("anndata")
    X = torus() * 1e-60
    result = gpe.embed(X, n_neighbors=5, power=2)
    table = anndata.read_h5ad(gpe.export(result, tmp_path / "t.h5ad")).obsp["distances"].tocoo()
    expected = np.linalg.norm(X[table.row] / 1e-60 - X[table.col] / 1e-60, axis=1) * 1e-60
    np.testing.assert_allclose(table.data, expected, atol=1e-66)


@pytest.mark.parametrize("unit", [1e-200, 1e-30, 1e30, 1e200])
def test_cosine_of_very_short_and_very_long_rows(unit):
    X = np.random.default_rng(0).standard_normal((50, 3))
    usual, other = (open_rows(rows, "cosine").read(0, 50) for rows in (X, X * unit))
    np.testing.assert_allclose(other, usual, rtol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(other, axis=1), 1, rtol=1e-6)
    mixed = X * 10.0 ** np.linspace(-250, 250, 50)[:, None]
    np.testing.assert_allclose(open_rows(mixed, "cosine").read(0, 50), usual, rtol=1e-6)


@pytest.mark.parametrize("unit", [1e-150, 1e-100, 1e100, 1e150])
def test_the_dense_reference_has_no_unit(unit):
    X = torus(30)
    np.testing.assert_allclose(exact.affinity(X * unit, 0.5 * unit * unit), exact.affinity(X, 0.5), rtol=1e-12)
    sigma = np.linspace(0.5, 2, 30)
    np.testing.assert_allclose(exact.local_affinity(X * unit, sigma * unit), exact.local_affinity(X, sigma), rtol=1e-12)
    assert (exact.affinity(X * 1e200, 1e-300) == np.eye(30)).all()


# --- refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (torus() * 1e-130, r"X must have values above 1e-120.*Multiply X by a constant"),
        (torus() * 1e130, r"X must be finite and below 1e120; NaN, infinity or more in rows 0, 1.*scale X down"),
    ],
)
def test_units_whose_squares_double_precision_cannot_hold(X, message):
    with pytest.raises(ValueError, match=message):
        gpe.embed(X)
    graph = gpe.neighbor_graph(torus(), 5)
    distances = np.float64(1e130) * graph.distances
    with pytest.raises(ValueError, match=r"neighbors\[1\] must hold distances below 1e120.*Scale them down"):
        gpe.embed(neighbors=(graph.indices, distances))


@QUIET
@pytest.mark.parametrize("epsilon", ["auto", "local", 0.1])
def test_values_too_different_for_float32_are_refused(epsilon):
    """The rows of usual size would all be one point beside a row of 1e37."""
    X = torus(200)
    X[77] = 1e37
    with pytest.raises(ValueError, match=r"epsilon=.*beside .*largest values.*Drop the rows"):
        gpe.embed(X, epsilon=epsilon)


@QUIET
def test_new_rows_far_beyond_the_training_rows_are_refused():
    result = gpe.embed(torus() * 1e-30, **OPTIONS)
    assert np.isfinite(result.transform(torus(5) * 1e-10)[2]).all()
    with pytest.raises(ValueError, match=r"X_new must be finite and below \de-03; .* in rows 0, 1, 2"):
        result.transform(torus(5))


@QUIET
def test_numbers_for_epsilon_far_from_all_distances():
    """All rows alone, or all rows one."""
    X = torus() * 1e-40
    alone = gpe.embed(X, epsilon=1e-300, **OPTIONS)
    assert alone.report["n_isolated"] == len(X) and alone.report["epsilon"] == 1e-300
    one = gpe.embed(X, epsilon=1e300, **OPTIONS)
    assert one.report["n_isolated"] == 0 and np.isfinite(one.points[2]).all()
    assert gpe.embed(X * 1e80, epsilon=1e-300, **OPTIONS).report["n_isolated"] == len(X)


# --- cousins --------------------------------------------------------------------------------------


@QUIET
def test_trustworthiness_of_an_embedding_of_tiny_values():
    """A large power leaves small values, and their squares underflow."""
    result = gpe.embed(torus(), n_neighbors=12, n_components=6, power=4)
    small = replace(result, points=np.ldexp(result.points, -90))
    figures = [gpe.audit(one, n_probes=60, n_exact=8)["powers"][4]["trustworthiness"] for one in (result, small)]
    assert figures[0] == figures[1] and figures[0]["value"] > 0.7
