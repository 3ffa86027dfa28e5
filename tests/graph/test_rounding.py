"""Rows wider than float32: what float32 rounds away is far below the distances between neighbours, or is refused."""

import anndata
import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import zarr

import scalable_gpe as gpe
from scalable_gpe import exact
from scalable_gpe.execution.memory_plan import block_sizes
from scalable_gpe.graph import points

REFUSED = "must keep the distances between near rows"
OPTIONS = {"n_components": 4, "power": (1, 8), "progress": False}


def groups(gap, n_features=3, n_rows=300):
    X = np.random.default_rng(0).standard_normal((2 * n_rows, n_features))
    X[n_rows:, 0] += gap
    return X


def days_at_1_hz():
    return (1.7e9 + 300 * 86_400 * np.repeat(np.arange(3), 300) + np.tile(np.arange(300), 3))[:, None]


def a_few_far_rows():
    X = groups(0)
    X[7:27] += 1e9
    return X


# --- whole numbers --------------------------------------------------------------------------------


def big(first=2**60):
    return (np.arange(90).reshape(30, 3) ** 2 + first).astype(np.int64)


def frame(kind="int64"):
    return pd.DataFrame(big(), columns=["time", "b", "c"]).astype({"time": kind, "b": float})


def lists(folder):
    pd.DataFrame({"v": list(big())}).to_parquet(folder / "lists.parquet")
    return folder / "lists.parquet"


def columns(folder):
    frame().to_parquet(folder / "columns.parquet")
    return folder / "columns.parquet"


def dask_frame(folder):
    import dask.dataframe as dd

    return dd.from_pandas(frame(), npartitions=3)


WHOLE = {
    "array": lambda folder: big(),
    "near 0": lambda folder: big(-(2**60)),
    "unsigned": lambda folder: big().astype(np.uint64),
    "list": lambda folder: big().tolist(),
    "frame": lambda folder: frame(),
    "nullable frame": lambda folder: frame("Int64"),
    "dask frame": dask_frame,
    "dask": lambda folder: da.from_array(big(), chunks=(7, 2)),
    "sparse": lambda folder: sp.csr_matrix(big()),
    "parquet": columns,
    "lists in parquet": lists,
}


@pytest.mark.parametrize("kind", WHOLE)
def test_whole_numbers_that_double_precision_rounds_are_refused(kind, tmp_path):
    X = WHOLE[kind](tmp_path)
    for call in (gpe.neighbor_graph, gpe.GaussianProcessEmbedding(2, progress=False).fit):
        with pytest.raises(ValueError, match=r"below 2\*\*53|column 'time'.*smallest"):
            call(X)


def test_large_whole_numbers_below_that_limit_are_exact():
    near = gpe.neighbor_graph(big(2**53 - 10_000), 5).distances
    assert (near == gpe.neighbor_graph(big(0), 5).distances).all()


# --- equal rows -----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["brute", "kdtree", "cells"])
def test_rows_that_are_equal_only_as_float32_are_not_merged(method, tmp_path):
    """A third of the rows are pairs, 1e-10 apart; beside real repeats, which are merged."""
    X = np.repeat(np.random.default_rng(1).standard_normal((240, 3)) + 1 / 3, 2, axis=0)
    X[1:160:2] += 1e-10
    options = {"n_neighbors": 60, "epsilon": 1.0, "method": method, **OPTIONS}
    result = gpe.embed(X, precision="double", store=tmp_path / "run.zarr", **options)
    assert (result.report["n_distinct"], result.report["n_duplicates"]) == (320, 160)
    assert np.unique(X.astype(np.float32), axis=0).shape[0] < 320
    assert (result.points[8][160::2] == result.points[8][161::2]).all()
    assert result.graph.distances[1, 0] == 0 and result.graph.indices[1, 0] == 0
    with block_sizes(block_rows=64):
        one = gpe.embed(X, precision="double", n_jobs=1, **options)
    assert one.points[8].tobytes() == result.points[8][:].tobytes()
    few = gpe.embed(X, **{**options, "epsilon": "local", "n_neighbors": 20})
    assert np.isfinite(few.points[8]).all()


def test_a_dense_reference_of_rows_that_float32_merges():
    X = np.sort(np.random.default_rng(2).random(500))[:, None] * np.array([[1.0, 2.0]]) + 1
    X[250:] += 3e3
    result = gpe.embed(X, n_neighbors=499, epsilon=0.05, precision="double", axes="sketch", **OPTIONS)
    assert result.report["n_duplicates"] == 0 < 500 - len(np.unique((X - np.median(X, 0)).astype(np.float32), axis=0))
    A = exact.bistochastic(exact.affinity(X, 0.05))
    G = gpe.sketch_matrix(500, 4)
    expected = exact.gp_embedding(A, G - G.mean(axis=0), 8)
    np.testing.assert_allclose(result.points[8], expected, atol=0.02 * np.abs(expected).max())


@pytest.mark.parametrize("shift", [0, 100])
def test_the_rounding_of_double_precision_does_not_set_equal_rows_apart(shift):
    """Principal components of equal rows, say, may differ in their last bits."""
    X = np.repeat(np.random.default_rng(3).standard_normal((60, 4)), 10, axis=0) + shift
    noisy = X * (1 + 2.0**-52 * np.random.default_rng(4).integers(-1, 2, X.shape))
    assert len(np.unique(noisy, axis=0)) > 60
    assert gpe.neighbor_graph(noisy, 10).storage_order.n_points == 60


# --- neighbours -----------------------------------------------------------------------------------


@pytest.mark.parametrize("n_neighbors", [None, 8, 60])
@pytest.mark.parametrize(
    ("X", "column"),
    [
        (groups(1e7), "column 0"),
        (groups(1e7, 1), "column 0"),
        (groups(1e14), "column 0"),
        (days_at_1_hz(), "column 0"),
        (a_few_far_rows(), "columns"),
    ],
    ids=["groups", "line", "very far groups", "seconds", "few far rows"],
)
def test_neighbors_that_float32_does_not_tell_apart_are_refused(X, column, n_neighbors):
    with pytest.raises(ValueError, match=rf"X {REFUSED}.*rows .*{column}.*X.astype\('float32'\)"):
        gpe.neighbor_graph(X, n_neighbors)
    assert gpe.neighbor_graph(X.astype(np.float32), 2).n_rows == len(X)


def inputs(folder):
    X = groups(1e7)
    yield da.from_array(X, chunks=(100, 2))
    yield zarr.create_array(folder / "X.zarr", data=X, chunks=(64, 3))
    yield pd.DataFrame(X, columns=["time", "b", "c"])
    yield sp.csr_matrix(X)
    yield anndata.AnnData(obsm={"X_pca": X}, shape=(600, 0))
    np.save(folder / "X.npy", X)
    yield folder / "X.npy"


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_they_are_refused_in_every_input_and_nothing_is_left(n_jobs, tmp_path):
    for X in inputs(tmp_path):
        with pytest.raises(ValueError, match=f"{REFUSED}.*column 0") as caught:
            gpe.embed(X, store=tmp_path / "run.zarr", n_jobs=n_jobs, **OPTIONS)
        assert not (tmp_path / "run.zarr").exists()
        assert ("column 0 ('time')" in str(caught.value)) == isinstance(X, pd.DataFrame)
        assert ("is not shifted" in str(caught.value)) == sp.issparse(X)


def test_lists_with_points_that_float32_does_not_hold_are_refused(tmp_path):
    near = gpe.neighbor_graph(groups(100), 12)
    with pytest.raises(ValueError, match=REFUSED):
        gpe.embed(groups(1e7), neighbors=(near.indices, near.distances), store=tmp_path / "run.zarr", **OPTIONS)
    assert not (tmp_path / "run.zarr").exists()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("metric", ["cosine", "correlation"])
def test_nearly_parallel_rows_are_refused(metric, dtype):
    X = (np.arange(5.0) + 1e-7 * groups(0, 5)).astype(dtype) * 1e3
    X = X if dtype == np.float64 else (1e6 * np.arange(1, 6) + np.round(2 * groups(0, 5)).astype(dtype))
    with pytest.raises(ValueError, match=f"{REFUSED}.*nearly one way"):
        gpe.neighbor_graph(X, metric=metric)


def sentinel():
    X = groups(0)
    X[::9, 1] = -1e20 / 3
    return X


def outliers():
    X = groups(0)
    X[[5, 77]] = [[1e15] * 3, [3e15] * 3]
    return X


@pytest.mark.parametrize("X", [sentinel(), outliers(), groups(1e4), np.round(1e9 * groups(1))])
def test_large_values_that_do_no_harm_are_accepted(X):
    assert gpe.neighbor_graph(X).storage_order.group is None


@pytest.mark.parametrize("gap", [1e4, 3e5, 1e6])
def test_what_is_accepted_is_right(gap):
    """The gap has no weight in the kernel, so that its size must not matter."""
    near, far = (gpe.embed(groups(one, 5), precision="double", **OPTIONS) for one in (100, gap))
    for power in (1, 8):
        difference = np.linalg.norm(near.points[power] - far.points[power])
        assert difference < 0.03 * np.linalg.norm(near.points[power])


def test_usual_rows_are_not_read_again(monkeypatch):
    """Neither rows in double precision that float32 holds well, nor repeats."""
    monkeypatch.setattr(points, "_compare", None)
    X = (gpe.datasets.torus(500) + 1000) / 3
    for rows in (X, np.repeat(X, 2, axis=0), X.astype(np.float32), 1e9 * X, sp.csr_matrix(X)):
        assert gpe.neighbor_graph(rows, 10).storage_order.n_points == 500
    assert gpe.neighbor_graph(X, metric="cosine").n_rows == 500
