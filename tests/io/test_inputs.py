"""Every kind of input gives the same bytes, is read block by block, and bad input is refused before any work."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import scalable_gpe as gpe
from scalable_gpe.errors import MemoryLimitError, StoreError
from scalable_gpe.io.rows import InputRows, open_rows
from scalable_gpe.io.sources import Source
from scalable_gpe.storage.store import MemoryTable

pytestmark = pytest.mark.filterwarnings("ignore::scalable_gpe.errors.GPEWarning")
OPTIONS = {"n_neighbors": 6, "n_components": 3, "power": 4}


@pytest.fixture(scope="module")
def X():
    """Whole numbers in float32: every type below can hold them."""
    return np.random.default_rng(0).integers(0, 100, (200, 3)).astype(np.float32)


def bytes_of(X, **options):
    return np.asarray(gpe.embed(X, **{**OPTIONS, **options}).points[:]).tobytes()


def as_zarr(X, path):
    import zarr

    array = zarr.create_array(
        str(path) if isinstance(path, Path) else path, shape=X.shape, dtype=X.dtype, chunks=(37, X.shape[1])
    )
    array[:] = X
    return array


def inputs(X, folder):
    import dask.array as da
    import pandas as pd

    np.save(folder / "X.npy", X)
    np.save(folder / "X64.npy", X.astype(np.float64))
    np.save(folder / "fortran.npy", np.asfortranarray(X))
    frozen = X.copy()
    frozen.setflags(write=False)
    named = pd.DataFrame(X.astype(np.float64), index=[f"cell {i}" for i in range(len(X))])
    mixed = pd.DataFrame({"a": X[:, 0].astype(int), "b": X[:, 1], "c": X[:, 2].astype("float64")})
    yield "float64", X.astype(np.float64)
    yield "list", X.tolist()
    yield "fortran", np.asfortranarray(X)
    yield "strided", np.repeat(np.repeat(X, 2, axis=0), 3, axis=1)[::2, ::3]
    yield "backwards", X[::-1].copy()[::-1]
    yield "read-only", frozen
    yield "big-endian", X.astype(">f4")
    yield "int64", X.astype(np.int64)
    yield "int32", X.astype(np.int32)
    yield "uint8", X.astype(np.uint8)
    yield "float16", X.astype(np.float16)
    yield "memmap", np.load(folder / "X.npy", mmap_mode="r")
    yield "npy", folder / "X.npy"
    yield "npy as text", str(folder / "X.npy")
    yield "npy of float64", folder / "X64.npy"
    yield "npy in Fortran's order", folder / "fortran.npy"
    yield "zarr", as_zarr(X, folder / "X.zarr")
    yield "zarr of float64", as_zarr(X.astype(np.float64), folder / "X64.zarr")
    yield "zarr path", folder / "X.zarr"
    yield "dask", da.from_array(X, chunks=(41, 2))
    yield "dask of int", da.from_array(X.astype(int), chunks=(60, 3))
    yield "csr", sp.csr_matrix(X)
    yield "csr array", sp.csr_array(X.astype(np.float64))
    yield "coo", sp.coo_matrix(X)
    yield "csc", sp.csc_matrix(X)
    yield "frame", pd.DataFrame(X)
    yield "named frame", named
    yield "mixed frame", mixed
    yield "nullable frame", pd.DataFrame(X).convert_dtypes()


def test_equal_numbers_give_equal_bytes(X, tmp_path):
    expected = bytes_of(X)
    before = X.copy()
    for name, given in inputs(X, tmp_path):
        assert bytes_of(given) == expected, name
    assert (before == X).all()


def test_dask_frames_and_unknown_lengths(X):
    dd = pytest.importorskip("dask.dataframe")
    import pandas as pd

    frame = dd.from_pandas(pd.DataFrame(X), npartitions=3)
    assert bytes_of(frame) == bytes_of(X)
    assert gpe.embed(frame, **OPTIONS).names is None
    named = dd.from_pandas(pd.DataFrame(X, index=[f"row {i:03d}" for i in range(len(X))]), npartitions=3)
    assert gpe.embed(named, **OPTIONS).names[:2].tolist() == ["row 000", "row 001"]
    unknown = frame.to_dask_array()
    with pytest.raises(ValueError, match=r"unknown number of rows.*compute_chunk_sizes"):
        gpe.embed(unknown, **OPTIONS)


def test_booleans():
    X = np.random.default_rng(0).random((60, 12)) < 0.5
    assert bytes_of(X) == bytes_of(X.astype(np.float32))


def test_names_are_kept(X, tmp_path):
    import pandas as pd

    names = [f"Zelle-{i:03d} é" for i in range(len(X))]
    frame = pd.DataFrame(X, index=names)
    result = gpe.embed(frame, store=tmp_path / "run", **OPTIONS)
    assert result.names.tolist() == names
    assert gpe.open(tmp_path / "run").names.tolist() == names
    assert gpe.embed(pd.DataFrame(X), **OPTIONS).names is None
    nullable = pd.DataFrame(X.astype(np.int64) + 10**9).astype("Int64")
    assert gpe.embed(nullable, **OPTIONS).report["n_distinct"] == gpe.embed(X, **OPTIONS).report["n_distinct"]
    numbers = pd.DataFrame(X, index=np.arange(len(X)) * 10)
    assert gpe.embed(numbers, **OPTIONS).names.tolist()[:3] == [0, 10, 20]
    pairs = pd.DataFrame(X, index=pd.MultiIndex.from_product([["a", "b"], range(100)]))
    assert gpe.embed(pairs, **OPTIONS).names[1] == "('a', 1)"


@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.int32, np.uint32])
def test_small_differences_at_a_large_offset(X, dtype):
    """In float32, 1e9 + x has only a few different values; the differences matter, not the offset."""
    moved = X.astype(dtype) + np.array(1_000_000_000, dtype)
    result = gpe.embed(moved, epsilon=200.0, precision="double", **OPTIONS)
    expected = gpe.embed(X, epsilon=200.0, precision="double", **OPTIONS)
    assert result.report["n_distinct"] == expected.report["n_distinct"]
    np.testing.assert_allclose(result.points, expected.points, atol=1e-5)


def test_one_far_row_does_not_blur_the_others(X):
    """An offset at the mean would lie between the far row and the rest, where float32 is coarse."""
    fine = np.concatenate([X.astype(np.float64) / 1000 + 1 / 3, [[1e9, 1e9, 1e9]]])
    rows = open_rows(fine)
    np.testing.assert_allclose(np.diff(rows.read(0, 200), axis=0), np.diff(fine[:200], axis=0), atol=1e-6)


def test_a_constant_column_changes_nothing(X):
    wider = np.hstack([X, np.full((len(X), 1), 7.0, np.float32)])
    assert bytes_of(wider, method="brute") == bytes_of(X, method="brute")


class Counting:
    """An array that remembers the largest piece that was requested."""

    def __init__(self, values):
        self.values, self.shape, self.dtype, self.largest, self.total = values, values.shape, values.dtype, 0, 0

    def __getitem__(self, at):
        part = self.values[at]
        self.largest, self.total = max(self.largest, len(part)), self.total + len(part)
        return part


def test_the_first_pass_reads_in_pieces(monkeypatch):
    """At most a range of rows is read at a time, and every row once."""
    from scalable_gpe.io import rows as module

    n_rows = 6000
    source = Counting(gpe.datasets.torus(n_rows).astype(np.float32))
    opened = module.InputRows(Source(source))
    monkeypatch.setattr(module, "_BYTES_AT_ONCE", 512 * 8 * opened.n_features)
    assert max(stop - start for start, stop in opened.steps(0, n_rows)) == 512
    from scalable_gpe.execution.context import local_context
    from scalable_gpe.graph.points import hash_rows

    hash_rows(opened, local_context(n_rows))
    assert source.largest == 512 and source.total == n_rows


def test_opening_reads_a_sample_only():
    source = Counting(np.ones((50_000, 2)))
    opened = open_rows(InputRows(Source(source)))
    assert 0 < source.total <= 1024
    assert np.concatenate(list(opened.sample_parts())).shape == (1024, 2)


def kinds(X, folder):
    """Each kind of source: how it is opened, whether it is in memory, and whether other processes can read it."""
    import dask.array as da
    import pandas as pd
    import zarr

    np.save(folder / "X.npy", X)
    mapped = np.load(folder / "X.npy", mmap_mode="r")
    yield "array", X, True, False
    yield "list", X.tolist(), True, False
    yield "sparse", sp.csc_matrix(X), True, False
    yield "frame", pd.DataFrame(X), True, False
    yield "dask", da.from_array(X, chunks=(41, 2)), False, False
    yield "zarr", as_zarr(X, folder / "X.zarr"), False, True
    yield "zarr in memory", as_zarr(X, zarr.storage.MemoryStore()), False, False
    yield "file", folder / "X.npy", False, True
    yield "part of a file", mapped[:], False, False


def test_each_kind_says_where_it_is_and_is_sent_to_workers(X, tmp_path):
    ids = np.array([7, 3, 3, 199])
    for kind, given, resident, shared in kinds(X, tmp_path):
        rows = open_rows(given)
        assert (rows.resident, rows.shared) == (resident, shared), kind
        assert (rows.n_rows, rows.n_features) == X.shape, kind
        sent = rows if kind == "zarr in memory" else pickle.loads(pickle.dumps(rows))
        np.testing.assert_array_equal(sent.read(10, 20), X[10:20], err_msg=kind)
        np.testing.assert_array_equal(sent.take(ids), X[ids], err_msg=kind)


def test_rows_of_a_table(X):
    """The form in which workers of a cluster read an input that only one process has."""
    rows = MemoryTable(X)
    assert not rows.resident
    np.testing.assert_array_equal(rows.read(5, 9), X[5:9])
    np.testing.assert_array_equal(rows.take(np.array([9, 5, 9])), X[[9, 5, 9]])


def test_rows_that_are_open_are_opened_with_another_metric(X, tmp_path):
    """As the estimators do with a path: they open it before `embed` asks for its metric."""
    np.save(tmp_path / "X.npy", X + 1)
    rows = open_rows(open_rows(tmp_path / "X.npy"), "cosine", name="X_new")
    assert (rows.metric, rows.name) == ("cosine", "X_new")
    np.testing.assert_allclose((rows.read(0, 200) ** 2).sum(axis=1), 1, rtol=1e-6)
    options = {**OPTIONS, "metric": "cosine"}
    fitted = gpe.GaussianProcessEmbedding(**options).fit(tmp_path / "X.npy")
    np.testing.assert_array_equal(fitted.embedding_, gpe.embed(X + 1, **options).points)
    with pytest.raises(ValueError, match="at least 2 rows; got 1"):
        open_rows(open_rows(X[:1], min_rows=1))


# --- refused --------------------------------------------------------------------------------------

GOOD = np.random.default_rng(0).standard_normal((40, 2))


def with_value(value, row=7):
    X = GOOD.copy()
    X[row, 1] = value
    return X


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"X": with_value(np.nan)}, ValueError, r"X must be finite.*NaN, infinity or more in row 7"),
        ({"X": with_value(np.inf)}, ValueError, r"NaN, infinity or more in row 7"),
        ({"X": with_value(1e300)}, ValueError, r"below 1e120; NaN"),
        ({"X": sp.csr_matrix(with_value(np.nan))}, ValueError, "NaN, infinity or more in row 7"),
        ({"X": with_value(np.nan), "metric": "cosine"}, ValueError, "NaN, infinity or more in row 7"),
        ({"X": with_value(0.0) * np.arange(40)[:, None], "metric": "cosine"}, ValueError, "rows of zeros; got row 0"),
        ({"X": GOOD[:, 0]}, ValueError, r"X must be 2-D.*reshape"),
        ({"X": GOOD[None]}, ValueError, "X must be 2-D"),
        ({"X": np.empty((0, 3))}, ValueError, "at least 2 rows; got 0"),
        ({"X": GOOD[:1]}, ValueError, "at least 2 rows; got 1"),
        ({"X": np.empty((4, 0))}, ValueError, "at least one column"),
        ({"X": np.ones((30, 2))}, ValueError, "all 30 rows are equal"),
        ({"X": np.array([["a", "b"], ["c", "d"]])}, TypeError, "X must be real and numeric.*astype"),
        ({"X": np.array([[1, None], [2, 3]], object)}, TypeError, "X must be real and numeric"),
        ({"X": GOOD + 1j}, TypeError, "X must be real and numeric"),
        ({"X": GOOD.astype("datetime64[s]")}, TypeError, "X must be real and numeric"),
        ({"X": sp.csr_matrix(GOOD + 1j)}, TypeError, "X must be real and numeric"),
        ({"X": [[1.0], [2.0, 3.0]]}, TypeError, "X must be a numeric array; got list"),
        ({"X": "nowhere.npy"}, FileNotFoundError, "there is no file 'nowhere.npy'"),
        ({"X": __file__}, ValueError, r"a path that ends in .npy, .zarr, .csv"),
        ({"X": None}, ValueError, "embed needs X or neighbors"),
        ({"X": {1: 2}}, (TypeError, ValueError), "X must be"),
        ({"n_neighbors": 0}, ValueError, "n_neighbors must be at least 1"),
        ({"n_neighbors": 40}, ValueError, r"between 1 and 39, the number of other rows; got 40"),
        ({"epsilon": 0}, ValueError, "epsilon must be a positive"),
        ({"epsilon": "median"}, ValueError, "epsilon must be one of 'auto', 'global'"),
        ({"power": 0}, ValueError, "power must be at least 1"),
        ({"power": (4, 4)}, ValueError, "power must hold different powers"),
        ({"n_components": 0}, ValueError, "n_components must be at least 1"),
        ({"normalization": "row"}, ValueError, "normalization must be one of 'bistochastic', 'symmetric'"),
        ({"sketch": "rademacher"}, ValueError, "sketch must be one of 'gaussian', 'bernoulli'"),
        ({"metric": "manhattan"}, ValueError, "metric must be one of"),
        ({"method": "annoy"}, ValueError, "method must be one of"),
        ({"precision": "half"}, ValueError, "precision must be one of"),
        ({"recall": 95}, ValueError, "recall must be above 0 and at most 1"),
        ({"tol": 0}, ValueError, "tol must be"),
        ({"random_state": -1}, ValueError, "random_state must be"),
        ({"n_jobs": 0}, ValueError, "n_jobs must not be 0"),
        ({"resume": 1}, TypeError, "resume must be True or False"),
        ({"progress": "bar"}, TypeError, "progress must be None, False or a callable"),
        ({"memory_limit": "lots"}, ValueError, "memory_limit must be bytes or a text"),
        ({"memory_limit": "10MB"}, MemoryLimitError, r"memory_limit must be at least \d+ MB for 40 rows; got 10 MB"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_refused_before_any_work_and_any_file(arguments, error, words, tmp_path):
    given = {"X": GOOD, "store": tmp_path / "store", "progress": lambda *_: pytest.fail("work has begun"), **arguments}
    if isinstance(words, str) and "all 30 rows" in words:
        given.pop("progress")  # seen in the first pass over the rows
    with pytest.raises(error, match=words):
        gpe.embed(**given)
    if "all 30 rows" not in words:
        assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix, "frame", "csv"])
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_all_rows_with_missing_values_are_counted_and_their_columns_named(kind, metric, tmp_path):
    import pandas as pd

    X = np.random.default_rng(0).standard_normal((70_000, 4))
    wrong = np.arange(50) * 1301 + 10  # few of them among the rows that are looked at first, or read at once
    X[wrong, 1 + 2 * (np.arange(50) % 2)] = np.nan
    frame = pd.DataFrame(X, columns=list("abcd"))
    if kind == "csv":
        frame.to_csv(tmp_path / "X.csv", index=False)
    given = tmp_path / "X.csv" if kind == "csv" else frame if kind == "frame" else kind(X)
    columns = "'b', 'd'" if kind in ("csv", "frame") else "1, 3"
    with pytest.raises(ValueError, match=f"in rows 10, 1311, 2612, 3913, 5214 and 45 more, columns {columns}. Drop"):
        gpe.embed(given, metric=metric, store=tmp_path / "run.zarr")
    assert not (tmp_path / "run.zarr").exists()


@pytest.mark.some(1)
@pytest.mark.parametrize("method", ["brute", "cells"])
def test_a_bad_row_that_no_sample_sees(method, tmp_path):
    """The first pass names it, before anything is committed; the repaired input can use the same store."""
    X = gpe.datasets.torus(5000, random_state=0).astype(np.float32)
    bad = X.copy()
    bad[3] = np.nan
    with pytest.raises(ValueError, match=r"NaN, infinity or more in row 3"):
        gpe.embed(bad, method=method, store=tmp_path / "run", **OPTIONS)
    with pytest.raises((StoreError, FileNotFoundError)):
        gpe.open(tmp_path / "run")
    runs = tmp_path / "run" / "runs"
    assert not runs.exists() or not any(runs.iterdir())
    assert bytes_of(X, method=method, store=tmp_path / "run") == bytes_of(X, method=method)


def test_the_smallest_limit_is_named_and_works():
    with pytest.raises(MemoryLimitError, match=r"at least \d+ MB") as caught:
        gpe.embed(GOOD, memory_limit="1MB", **OPTIONS)
    least = int(str(caught.value).split("at least ")[1].split(" MB")[0])
    assert bytes_of(GOOD, memory_limit=f"{least}MB") == bytes_of(GOOD)
    assert isinstance(caught.value, ValueError)


def test_estimate_speaks_of_the_same_limit():
    plan = gpe.estimate(40, 2, n_neighbors=6, n_components=3, power=4)
    assert set(plan) >= {"memory", "disk", "sweeps", "seconds", "smallest_limit"}
    assert gpe.estimate(40, 2, n_neighbors=6, memory_limit=plan["smallest_limit"])["memory"] > 0
    with pytest.raises(MemoryLimitError, match="memory_limit must be at least"):
        gpe.estimate(10**8, 50, memory_limit="500MB")
    for arguments in ((1, 2), (10, 0)):
        with pytest.raises(ValueError, match="must be at least"):
            gpe.estimate(*arguments)


@pytest.mark.parametrize("power", ["all", 16, [4, "all"]])
def test_estimate_from_a_trial_differs_in_seconds_alone(power):
    X = gpe.datasets.torus(3000)
    tried, plan = (gpe.estimate(*shape, power=power, n_neighbors=8) for shape in ((X,), X.shape))
    for key in ("memory", "disk", "sweeps", "panels", "smallest_limit"):
        assert tried[key] == plan[key]
    for one in (tried, plan):
        assert one["seconds"] == pytest.approx(sum(one["stage_seconds"].values()))
        assert set(one["stage_seconds"]) == {"graph", "kernel", "heat", "sketch"}
        assert min(one["stage_seconds"].values()) > 0
    assert tried["seconds"] != plan["seconds"]


def test_estimate_needs_both_numbers_or_the_data():
    with pytest.raises(TypeError, match="n_features must be given"):
        gpe.estimate(1000)


def test_masked_entries_are_not_taken_for_numbers():
    X = np.ma.masked_array(gpe.datasets.torus(50), mask=False)
    assert gpe.embed(X, n_components=1, power=1).points.shape == (50, 1)
    X[3, 1] = np.ma.masked
    with pytest.raises(ValueError, match="X has masked entries"):
        gpe.embed(X)


@pytest.mark.parametrize(
    ("shape", "limit", "measured"),
    [((10**7, 16), "600MB", 356), ((10**7, 16), "2GB", 305), ((5 * 10**7, 8), "3GB", 2250)],
)
def test_the_estimate_of_large_runs_is_near_what_they_took(shape, limit, measured):
    how = {"n_neighbors": 16, "n_components": 16, "power": 64, "memory_limit": limit}
    assert measured / 2 < gpe.estimate(*shape, **how)["seconds"] < 2 * measured


def test_rows_by_number_from_a_mapped_file(tmp_path):
    """Rows in any order, repeated, few and far apart or many and close: they are read some at a time."""
    X = np.arange(3000 * 7, dtype=np.float32).reshape(3000, 7)
    np.save(tmp_path / "X.npy", X)
    rows = Source(np.load(tmp_path / "X.npy", mmap_mode="r"), "mapped")
    rng = np.random.default_rng(0)
    for ids in (rng.integers(0, 3000, 500), np.arange(2999, -1, -1), np.array([5, 5, 2999]), np.array([], np.int64)):
        np.testing.assert_array_equal(rows.rows(ids.astype(np.int32)), X[ids])


def test_a_zarr_group_is_not_an_array(tmp_path):
    """The error names the arrays of a group, and the way to open a run."""
    import zarr

    group = zarr.open_group(tmp_path / "group.zarr", mode="w")
    group.create_array("rows", shape=(20, 3), dtype="float32")
    with pytest.raises(ValueError, match=r"it holds the arrays rows\. Name one of them with key="):
        gpe.embed(tmp_path / "group.zarr")
    gpe.embed(GOOD, store=tmp_path / "run.zarr", **OPTIONS)
    with pytest.raises(ValueError, match=r"if it is a run of this library, use gpe\.open"):
        gpe.embed(tmp_path / "run.zarr")
