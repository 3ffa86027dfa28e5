"""Other tools read what is exported (AnnData and scanpy, numpy, pandas, dask), and scanpy's graph can be imported."""

import json

import numpy as np
import pytest
import scipy.sparse as sp

import scalable_gpe as gpe
from scalable_gpe import exports
from scalable_gpe.execution.memory_plan import MemoryPlan, block_sizes

pd = pytest.importorskip("pandas")
pytestmark = [
    pytest.mark.filterwarnings("ignore::scalable_gpe.errors.GPEWarning"),
    pytest.mark.filterwarnings("ignore:Writing zarr v2"),
]
NAMES = [f"cell {i}" for i in range(600)]


@pytest.fixture(scope="module", params=["distinct", "repeated"])
def result(request, tmp_path_factory):
    """An embedding of two powers in a store; once with rows that repeat."""
    X = gpe.datasets.torus(600).astype(np.float32)
    if request.param == "repeated":
        X[200:230] = X[500]
        X[10] = X[11]
    frame = pd.DataFrame(X, index=NAMES)
    store = tmp_path_factory.mktemp("runs") / "run.zarr"
    return gpe.embed(frame, n_neighbors=8, n_components=4, power=[4, 16], store=store, progress=False)


def read(path):
    anndata = pytest.importorskip("anndata")
    return anndata.read_h5ad(path) if path.suffix == ".h5ad" else anndata.read_zarr(path)


def expected_graph(result):
    """K without its diagonal, and the lists, from the plain attributes."""
    kernel = result.kernel.to_scipy().tolil()
    kernel.setdiag(0)
    kernel = kernel.tocsr()
    kernel.eliminate_zeros()
    graph = result.graph
    rows = np.repeat(np.arange(graph.n_rows), graph.n_neighbors)
    return kernel, sp.csr_matrix((graph.distances.ravel(), (rows, graph.indices.ravel())), shape=kernel.shape)


@pytest.mark.parametrize("name", ["cells.h5ad", "cells.zarr"])
def test_anndata(result, tmp_path, name, monkeypatch):
    pytest.importorskip("anndata")
    monkeypatch.setattr(MemoryPlan, "exported_entries", lambda plan: 500)  # several pieces
    adata = read(gpe.export(result, tmp_path / name))
    assert adata.obs_names.tolist() == NAMES
    assert set(adata.obsm) == {"X_gpe", "X_gpe_4", "X_gpe_16"}
    for key, power in (("X_gpe", 16), ("X_gpe_4", 4), ("X_gpe_16", 16)):
        np.testing.assert_array_equal(adata.obsm[key], result.points[power][:])
    kernel, lists = expected_graph(result)
    for got, expected in ((adata.obsp["connectivities"], kernel), (adata.obsp["distances"], lists)):
        assert (abs(got - expected)).max() == 0
        assert got.nnz == expected.nnz
        assert got.indptr.dtype == got.indices.dtype == np.int32
        got.check_format(full_check=True)
        assert got.has_canonical_format
    neighbors = adata.uns["neighbors"]
    assert (neighbors["connectivities_key"], neighbors["distances_key"]) == ("connectivities", "distances")
    # the graph is that of the input, not of the embedding
    assert neighbors["params"]["n_neighbors"] == 9 and neighbors["params"]["use_rep"] == "X_gpe"
    assert json.loads(adata.uns["gpe"]["report"])["n_rows"] == 600
    assert [path.name for path in tmp_path.iterdir()] == [name]


def dense_graph(result, X):
    """Distances of the lists and K without its diagonal as dense matrices, from X and the lists alone."""
    n_rows = len(X)
    distances = np.linalg.norm(X[:, None].astype(np.float64) - X[None], axis=2)
    listed = np.zeros((n_rows, n_rows), bool)
    listed[np.arange(n_rows)[:, None], result.graph.indices] = True
    # rows that are equal share their neighbours: an edge to one of them is an edge to all
    equal = distances == 0
    edges = equal @ (listed | listed.T) @ equal
    kernel = np.exp(-(distances**2) / result.kernel.epsilon) * (edges | equal)
    np.fill_diagonal(kernel, 0)
    return np.where(listed, distances, 0), kernel


@pytest.mark.parametrize("repeated", [False, True])
@pytest.mark.parametrize("stored", [False, True])
def test_graph_agrees_with_dense_matrices(repeated, stored, tmp_path, monkeypatch):
    """Put together from several blocks, in several pieces of rows."""
    X = gpe.datasets.torus(300, random_state=1).astype(np.float32)
    if repeated:
        X[20:24] = X[90]
        X[3] = X[4]
    monkeypatch.setattr(MemoryPlan, "exported_entries", lambda plan: 700)
    with block_sizes(block_rows=128):
        store = tmp_path / "run.zarr" if stored else None
        result = gpe.embed(X, n_neighbors=8, n_components=2, power=2, epsilon="global", store=store)
        adata = read(gpe.export(result, tmp_path / "cells.h5ad"))
    for name, expected in zip(("distances", "connectivities"), dense_graph(result, X), strict=True):
        got = adata.obsp[name]
        assert got.has_canonical_format
        np.testing.assert_allclose(got.toarray(), expected, atol=1e-6)


def test_one_power_without_a_graph(result, tmp_path):
    adata = read(gpe.export(result, tmp_path / "cells.h5ad", power=4, graph=False))
    assert set(adata.obsm) == {"X_gpe"} and not adata.obsp and "neighbors" not in adata.uns
    np.testing.assert_array_equal(adata.obsm["X_gpe"], result.points[4][:])


def test_an_embedding_in_memory_without_names(tmp_path):
    result = gpe.embed(gpe.datasets.circle(100), n_components=3, power=4)
    adata = read(gpe.export(result, tmp_path / "cells.h5ad"))
    assert adata.obs_names[:3].tolist() == ["0", "1", "2"]
    np.testing.assert_array_equal(adata.obsm["X_gpe"], result.points)


def test_lists_of_different_lengths(tmp_path):
    indices = np.array([[1, 2], [0, -1], [0, 1], [2, -1]])
    distances = np.array([[1.0, 2.0], [1.0, np.inf], [2.0, 3.0], [1.5, np.inf]])
    result = gpe.embed(neighbors=(indices, distances), n_components=2, power=2)
    adata = read(gpe.export(result, tmp_path / "cells.h5ad"))
    assert adata.obsp["distances"].toarray().tolist() == [[0, 1, 2, 0], [1, 0, 0, 0], [2, 3, 0, 0], [0, 0, 1.5, 0]]


def test_scanpy_works_on_it(result, tmp_path):
    scanpy = pytest.importorskip("scanpy")
    pytest.importorskip("igraph")
    adata = read(gpe.export(result, tmp_path / "cells.h5ad"))
    scanpy.tl.leiden(adata, flavor="igraph", n_iterations=2, directed=False)
    assert 2 < adata.obs["leiden"].nunique() < 100
    scanpy.tl.umap(adata, maxiter=5)
    assert np.isfinite(adata.obsm["X_umap"]).all()
    scanpy.tl.diffmap(adata, n_comps=4)
    assert adata.obsm["X_diffmap"].shape == (600, 4)


def test_a_graph_in_scanpys_form_can_be_embedded():
    """As scanpy stores it: CSR of float64, the row itself left out, rows not in order."""
    X = gpe.datasets.torus(500)
    graph = gpe.neighbor_graph(X, 10)
    distances = sp.csr_matrix(
        (graph.distances.astype(np.float64).ravel(), graph.indices.ravel(), np.arange(0, 5001, 10)), shape=(500, 500)
    )
    assert not distances.has_sorted_indices
    precomputed = gpe.embed(neighbors=distances, n_components=4, power=8)
    np.testing.assert_allclose(
        precomputed.points, gpe.embed(X, n_neighbors=10, n_components=4, power=8).points, atol=1e-5
    )


def test_npy_and_parquet(result, tmp_path, caplog):
    np.testing.assert_array_equal(np.load(gpe.export(result, tmp_path / "all.npy")), result.points[16][:])
    assert "took power 16, the largest" in caplog.text
    caplog.clear()
    np.testing.assert_array_equal(np.load(gpe.export(result, tmp_path / "4.npy", power=4)), result.points[4][:])
    assert not caplog.records
    pytest.importorskip("pyarrow")
    frame = pd.read_parquet(gpe.export(result, tmp_path / "all.parquet"))
    assert frame.index.tolist() == NAMES and frame.index.name == "name"
    assert frame.columns.tolist() == ["gpe_1", "gpe_2", "gpe_3", "gpe_4"]
    np.testing.assert_array_equal(frame.to_numpy(), result.points[16][:])
    again = gpe.read_points(tmp_path / "all.parquet")  # an embedding is a file of points, too
    assert again.names.tolist() == NAMES


def test_points_open_in_dask(result):
    da = pytest.importorskip("dask.array")
    array = da.from_zarr(result.points[16])
    assert array.shape == (600, 4)
    np.testing.assert_array_equal(array.compute(), result.points[16][:])


def test_files_are_overwritten_only_with_overwrite(result, tmp_path):
    path = tmp_path / "points.npy"
    np.save(path, np.arange(3))
    with pytest.raises(FileExistsError, match="overwrite=True"):
        gpe.export(result, path)
    np.testing.assert_array_equal(np.load(path), np.arange(3))
    assert np.load(gpe.export(result, path, overwrite=True)).shape == result.points[16].shape
    with pytest.raises(FileNotFoundError, match="no folder"):
        gpe.export(result, tmp_path / "nowhere" / "points.npy")


def test_mistakes(result, tmp_path):
    store = tmp_path / "run.zarr"
    gpe.embed(gpe.datasets.circle(50), n_components=2, power=2, store=store)
    with pytest.raises(FileExistsError, match="holds something else"):
        gpe.export(result, store, overwrite=True)
    assert gpe.open(store).points.shape == (50, 2)
    with pytest.raises(
        ValueError, match=r"ending of the path must be one of '.h5ad', '.zarr', '.npy', '.parquet', '.csv'"
    ):
        gpe.export(result, tmp_path / "cells.txt")
    with pytest.raises(ValueError, match=r"power must be one of \[4, 16\]"):
        gpe.export(result, tmp_path / "cells.npy", power=5)
    with pytest.raises(TypeError, match="must be an Embedding"):
        gpe.export(result.points, tmp_path / "cells.npy")
    (tmp_path / "folder.npy").mkdir()
    with pytest.raises(IsADirectoryError):
        gpe.export(result, tmp_path / "folder.npy")


@pytest.mark.parametrize("result", ["repeated"], indirect=True)
def test_many_equal_rows_are_refused(result, tmp_path, monkeypatch):
    """A thousand equal rows are a million entries of K: beyond a limit the export raises instead of writing."""
    pytest.importorskip("anndata")
    monkeypatch.setattr(exports, "_MOST_ENTRIES", 1000)
    monkeypatch.setattr(exports, "_MOST_REPEATS", 0)
    with pytest.raises(ValueError, match=r"many rows are equal.*graph=False"):
        gpe.export(result, tmp_path / "cells.h5ad")
    assert not list(tmp_path.iterdir())


def test_without_anndata(result, tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "anndata", None)
    with pytest.raises(ImportError, match=r'pip install "scalable-gpe\[anndata\]"'):
        gpe.export(result, tmp_path / "cells.h5ad")
