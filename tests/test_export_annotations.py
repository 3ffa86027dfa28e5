"""An export of an embedding keeps obs and var of its AnnData input: of an object, a file, or a store."""

import itertools
import pickle

import numpy as np
import pytest

import scalable_gpe as gpe
from scalable_gpe.cli import main
from scalable_gpe.errors import GPEWarning
from scalable_gpe.io import labels

anndata = pytest.importorskip("anndata")
pandas = pytest.importorskip("pandas")
pytestmark = pytest.mark.filterwarnings("ignore:Writing zarr v2")

N_ROWS = 120


def some_object() -> "anndata.AnnData":
    """An object with columns of every type that anndata writes."""
    rng = np.random.default_rng(0)
    numbers = np.arange(N_ROWS)
    obs = pandas.DataFrame(
        {
            "group": pandas.Categorical(rng.choice(["b", "a", "c"], N_ROWS), categories=["c", "b", "a"], ordered=True),
            "text": [f"note {i}" for i in numbers],
            "value": np.where(numbers % 7, rng.standard_normal(N_ROWS), np.nan),
            "count": pandas.array(np.where(numbers % 5, numbers, 0), dtype="Int64"),
            "flag": numbers % 2 == 0,
        },
        index=[f"cell {i}" for i in numbers],
    )
    obs.loc["cell 3", "count"] = pandas.NA
    var = pandas.DataFrame({"highly_variable": np.arange(60) < 30}, index=[f"gene {i}" for i in range(60)])
    adata = anndata.AnnData(rng.standard_normal((N_ROWS, 60)).astype(np.float32), obs, var)
    adata.obsm["X_pca"] = gpe.datasets.torus(N_ROWS).astype(np.float32)
    return adata


def embed(X, **more):
    return gpe.embed(X, n_components=3, n_neighbors=6, power=4, progress=False, **more)


def read(path):
    return anndata.read_h5ad(path) if path.suffix == ".h5ad" else anndata.read_zarr(path)


def check_obs(found, adata):
    """The columns of the input, the component of each row, and the number of the embedding."""
    assert found.obs["gpe_run"].unique().tolist() == [found.uns["gpe"]["run"]]
    expected = adata.obs.assign(gpe_component=np.zeros(N_ROWS, np.int32), gpe_run=found.obs["gpe_run"])
    pandas.testing.assert_frame_equal(found.obs, expected, check_names=False)


def check(found, adata, result):
    check_obs(found, adata)
    pandas.testing.assert_frame_equal(found.var, adata.var, check_names=False)
    assert found.shape == adata.shape and found.X is None
    np.testing.assert_array_equal(found.obsm["X_gpe"], result.points[:])
    assert {found.uns[key]["params"]["use_rep"] for key in ("neighbors", "gpe")} == {"X_gpe"}  # X_pca is not exported


QUICK = [("object", "out.h5ad"), ("cells.h5ad", "out.zarr"), ("lazy", "out.h5ad")]
EVERY = itertools.product(("object", "cells.h5ad", "cells.zarr", "lazy"), ("out.h5ad", "out.zarr"))
OTHERS = [pair for pair in EVERY if pair not in QUICK]


@pytest.mark.parametrize(
    ("source", "target"), [*QUICK, *(pytest.param(*other, marks=pytest.mark.slow) for other in OTHERS)]
)
def test_every_input_and_format(source, target, tmp_path):
    adata = some_object()
    adata.write_h5ad(tmp_path / "cells.h5ad")
    adata.write_zarr(tmp_path / "cells.zarr")
    if source == "lazy":
        pytest.importorskip("xarray")
        given = anndata.experimental.read_lazy(tmp_path / "cells.zarr")
        adata = given.to_memory()  # with pandas 3, texts come back with another mark for missing ones
    else:
        given = adata if source == "object" else tmp_path / source
    result = embed(given)
    check(read(gpe.export(result, tmp_path / target)), adata, result)


@pytest.mark.parametrize("source", [pytest.param("object", marks=pytest.mark.slow), "cells.h5ad"])
def test_a_store_keeps_them(source, tmp_path):
    """The export needs the store alone; the command line exports the same."""
    adata = some_object()
    if source != "object":
        getattr(adata, f"write_{source[6:]}")(tmp_path / source)
    store = tmp_path / "run.zarr"
    result = embed(adata if source == "object" else tmp_path / source, store=store)
    if source == "cells.h5ad":
        (tmp_path / source).unlink()
    check(read(gpe.export(gpe.open(store), tmp_path / "out.zarr")), adata, result)
    assert main(["export", str(store), str(tmp_path / "out.h5ad"), "--quiet"]) == 0
    check(read(tmp_path / "out.h5ad"), adata, result)


def test_a_store_keeps_the_latest_and_takes_them_away_when_it_starts_over(tmp_path):
    adata, store = some_object(), tmp_path / "run.zarr"
    embed(adata, store=store)
    chunk = store / "annotations" / "h5ad" / "c" / "0" / "0"
    written = chunk.stat().st_mtime_ns
    embed(adata, store=store)
    assert chunk.stat().st_mtime_ns == written  # the same annotations are written once
    adata.obs["more"] = 1.5
    result = embed(adata, store=store)
    check(read(gpe.export(gpe.open(store), tmp_path / "out.h5ad")), adata, result)
    embed(gpe.datasets.circle(90), store=store, resume=False)
    assert gpe.open(store).annotations is None


@pytest.mark.slow
def test_damaged_annotations_are_written_again(tmp_path):
    adata, store = some_object(), tmp_path / "run.zarr"
    embed(adata, store=store)
    chunk = store / "annotations" / "h5ad" / "c" / "0" / "0"
    chunk.unlink()
    result = embed(adata, store=store)
    check(read(gpe.export(gpe.open(store), tmp_path / "out.h5ad")), adata, result)


def test_columns_that_are_added_later_are_not_the_inputs(tmp_path):
    adata = some_object()
    before = adata.copy()
    result = embed(adata)
    adata.obs["later"] = 1.0
    adata._inplace_subset_obs(np.arange(50))
    check(read(gpe.export(result, tmp_path / "out.h5ad")), before, result)
    check(read(gpe.export(pickle.loads(pickle.dumps(result)), tmp_path / "again.h5ad")), before, result)


@pytest.mark.parametrize("change", ["gone", "other rows"])
def test_a_file_that_has_changed_is_left_out_with_a_warning(change, tmp_path):
    adata, path = some_object(), tmp_path / "cells.h5ad"
    adata.write_h5ad(path)
    result = embed(path)
    path.unlink()
    if change != "gone":
        adata[::-1].copy().write_h5ad(path)
    with pytest.warns(GPEWarning, match="obs and var of the input are left out: .*cells.h5ad"):
        found = read(gpe.export(result, tmp_path / "out.h5ad"))
    assert found.obs_names.tolist() == adata.obs_names.tolist() and found.obs.columns.tolist() == [
        "gpe_component",
        "gpe_run",
    ]


def test_what_cannot_be_kept_does_not_stop_a_run(tmp_path):
    adata = some_object()
    adata.obs["odd"] = pandas.Series([object()] * N_ROWS, index=adata.obs_names)
    with pytest.warns(GPEWarning, match="obs and var of the input are not kept in the store"):
        result = embed(adata, store=tmp_path / "run.zarr")
    assert result.points.shape == (N_ROWS, 3) and gpe.open(tmp_path / "run.zarr").annotations is None


def test_columns_of_a_file_are_read_one_at_a_time(tmp_path, monkeypatch):
    """A large obs is never in memory at once."""
    adata = some_object()
    adata.write_h5ad(tmp_path / "cells.h5ad")
    result, written = embed(tmp_path / "cells.h5ad"), []
    write = labels._write
    monkeypatch.setattr(labels, "_write", lambda file, name, value: written.append(name) or write(file, name, value))
    gpe.export(result, tmp_path / "out.h5ad")
    assert not written  # HDF5 copies its own tables
    gpe.export(result, tmp_path / "out.zarr")
    assert written == ["_index", *adata.obs.columns, "_index", *adata.var.columns]


def test_a_graph_of_the_user_does_not_claim_a_representation(tmp_path):
    adata = some_object()
    graph = gpe.neighbor_graph(adata, 6)
    result = embed(adata, neighbors=(graph.indices, graph.distances))
    found = read(gpe.export(result, tmp_path / "out.h5ad"))
    assert found.uns["neighbors"]["params"]["use_rep"] == "X_gpe"
    check_obs(found, adata)


def test_a_column_of_an_earlier_embedding_is_replaced(tmp_path):
    adata = some_object()
    adata.obs["gpe_component"] = pandas.Categorical(["old"] * N_ROWS)
    adata.write_h5ad(tmp_path / "cells.h5ad")
    for name in ("out.h5ad", "out.zarr"):
        check_obs(read(gpe.export(embed(tmp_path / "cells.h5ad"), tmp_path / name)), some_object())


def test_links_to_other_files_are_not_followed(tmp_path):
    h5py = pytest.importorskip("h5py")
    adata = some_object()
    adata.write_h5ad(tmp_path / "cells.h5ad")
    with h5py.File(tmp_path / "cells.h5ad", "a") as file:
        file["obs/stolen"] = h5py.ExternalLink("other.h5", "secret")
    with pytest.raises(ValueError, match="'obs/stolen' is a link to another file"):
        embed(tmp_path / "cells.h5ad")
