"""AnnData objects as input: in memory, backed and lazy ones give the same bytes, and keep their row names."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

import scalable_gpe as gpe
from scalable_gpe.errors import GPEWarning

anndata = pytest.importorskip("anndata")
pytestmark = [
    pytest.mark.filterwarnings("ignore::scalable_gpe.errors.GPEWarning"),
    pytest.mark.filterwarnings("ignore:Writing zarr v2"),
]

KINDS = {
    "dense": np.asarray,
    "csr": sp.csr_matrix,
    "csc": sp.csc_matrix,
}


def some_object(kind: str = "dense", *, pca: bool = True) -> "anndata.AnnData":
    rng = np.random.default_rng(0)
    counts = rng.poisson(0.7, (300, 12)).astype(np.float32) * rng.random((300, 12)).astype(np.float32)
    adata = anndata.AnnData(KINDS[kind](counts))
    adata.obs_names = [f"cell {i}" for i in range(300)]
    if pca:
        adata.obsm["X_pca"] = gpe.datasets.torus(300) + 100.0  # float64 that is shifted
    adata.obsm["X_scvi"] = rng.standard_normal((300, 4)).astype(np.float32)
    adata.layers["counts"] = adata.X.copy()
    return adata


def embed(X: object) -> gpe.Embedding:
    return gpe.embed(X, n_components=4, n_neighbors=8, power=4, progress=False)


def opened(adata: "anndata.AnnData", folder: "object") -> dict[str, "anndata.AnnData"]:
    """The same object in every way that anndata opens it."""
    plain, packed, zarr = folder / "plain.h5ad", folder / "packed.h5ad", folder / "cells.zarr"
    adata.write_h5ad(plain)
    adata.write_h5ad(packed, compression="gzip")
    adata.write_zarr(zarr)
    found = {f"backed {path.stem}": anndata.read_h5ad(path, backed="r") for path in (plain, packed)}
    try:
        import xarray  # noqa: F401
    except ImportError:
        return found
    return found | {f"lazy {path.name}": anndata.experimental.read_lazy(path) for path in (plain, packed, zarr)}


@pytest.mark.parametrize("kind", ["dense", "csr", pytest.param("csc", marks=pytest.mark.slow)])
def test_every_way_to_open_it_gives_the_same_bytes(kind, tmp_path):
    adata = some_object(kind, pca=False)
    del adata.obsm["X_scvi"]
    expected = embed(adata.X)
    for way, one in {"in memory": adata, **opened(adata, tmp_path)}.items():
        result = embed(one)
        assert result.points.tobytes() == expected.points.tobytes(), way
        assert result.names.tolist() == adata.obs_names.tolist(), way


def test_the_pca_is_taken_if_it_is_there(tmp_path):
    adata = some_object()
    expected = embed(adata.obsm["X_pca"]).points.tobytes()
    for way, one in {"in memory": adata, **opened(adata, tmp_path)}.items():
        assert embed(one).points.tobytes() == expected, way


def test_lazy_objects_are_among_those_that_are_opened(tmp_path):
    pytest.importorskip("xarray")
    lazy = [one for way, one in opened(some_object(), tmp_path).items() if way.startswith("lazy")]
    assert [type(gpe.read_points(one, use_rep="X").values).__module__ for one in lazy] == ["dask.array.core"] * 3


def test_backed_matrices_are_mapped_from_disk(tmp_path):
    for one in [one for way, one in opened(some_object(), tmp_path).items() if way.startswith("backed")]:
        assert isinstance(gpe.read_points(one, use_rep="X").values, np.memmap)


def test_another_representation_is_chosen_by_name(tmp_path):
    adata = some_object("csr")
    adata.write_h5ad(tmp_path / "cells.h5ad")
    scvi, counts = embed(adata.obsm["X_scvi"]).points.tobytes(), embed(adata.X).points.tobytes()
    for source in (adata, tmp_path / "cells.h5ad", anndata.read_h5ad(tmp_path / "cells.h5ad", backed="r")):
        points = gpe.read_points(source, use_rep="X_scvi")
        assert points.shape == (300, 4) and points.names[7] == "cell 7"
        assert embed(points).points.tobytes() == scvi
        assert embed(gpe.read_points(source, use_rep="X")).points.tobytes() == counts
    assert embed(gpe.read_points(adata, key="layers/counts")).points.tobytes() == counts
    assert gpe.read_points(adata, use_rep="X_scvi").source == "obsm/X_scvi of an AnnData object"


@pytest.mark.parametrize("kind", [pytest.param("dense", marks=pytest.mark.slow), "csr"])
def test_views(kind, tmp_path):
    adata = some_object(kind, pca=False)
    rows = np.arange(280)[::-1]
    expected = embed(adata.X[rows]).points.tobytes()
    for way, one in {"in memory": adata, **opened(adata, tmp_path)}.items():
        result = embed(one[rows])
        assert result.points.tobytes() == expected, way
        assert result.names[0] == "cell 279"


def test_tables_in_obsm():
    pandas = pytest.importorskip("pandas")
    adata = some_object(pca=False)
    values = gpe.datasets.torus(300)
    adata.obsm["X_pca"] = pandas.DataFrame(values, index=adata.obs_names, columns=list("abcd"))
    assert embed(adata).points.tobytes() == embed(values).points.tobytes()


@pytest.mark.parametrize("model", [gpe.GaussianProcessEmbedding(4, power=4), gpe.DiffusionMap(2)])
def test_estimators(model, tmp_path):
    adata = some_object()
    rows, new = adata[:250], adata[250:]
    expected = clone(model).fit(rows.obsm["X_pca"])
    fitted = clone(model).fit(rows)
    assert fitted.n_features_in_ == 4
    assert clone(model).fit_transform(rows).tobytes() == expected.embedding_.tobytes()
    assert fitted.transform(new).tobytes() == expected.transform(new.obsm["X_pca"]).tobytes()
    new.copy().write_h5ad(tmp_path / "new.h5ad")
    backed = anndata.read_h5ad(tmp_path / "new.h5ad", backed="r")
    assert fitted.transform(backed).tobytes() == expected.transform(new.obsm["X_pca"]).tobytes()


def test_new_points_and_opened_runs(tmp_path):
    adata = some_object()
    result = gpe.embed(adata[:250], n_components=4, power=4, store=tmp_path / "run.zarr", progress=False)
    again = gpe.open(tmp_path / "run.zarr", adata[:250])
    assert again.names.tolist() == adata.obs_names[:250].tolist()
    expected = result.transform(adata.obsm["X_pca"][250:])
    assert again.transform(adata[250:]).tobytes() == expected.tobytes()


def test_new_objects_are_read_as_the_first_one(tmp_path):
    adata, key = some_object(), "obsm/X_scvi"
    some = adata[:50].copy()
    some.write_h5ad(tmp_path / "some.h5ad")
    how = {"n_components": 4, "power": 4, "n_neighbors": 8, "progress": False}
    result = gpe.embed(gpe.read_points(adata, key=key), store=tmp_path / "run.zarr", **how)
    for one in (result, gpe.open(tmp_path / "run.zarr")):
        for X in (some, gpe.read_points(tmp_path / "some.h5ad", key=key)):
            np.testing.assert_array_equal(one.transform(X), result.points[:50])
        with pytest.raises(ValueError, match=r"read from obsm/X_pca, the training rows from obsm/X_scvi. .*key='obsm/"):
            one.transform(tmp_path / "some.h5ad")
        with pytest.warns(GPEWarning, match="read from obsm/X_pca"):  # as the command line reads it
            one.transform(gpe.read_points(some))
    with pytest.raises(ValueError, match="does not hold 'obsm/X_scvi'"):
        result.transform(anndata.AnnData(some.X))
    model = gpe.GaussianProcessEmbedding(4, power=4).fit(gpe.read_points(adata, key=key))
    with pytest.raises(ValueError, match="read from obsm/X_pca"):
        model.transform(some)
    plain = gpe.embed(adata.obsm["X_scvi"], **how)
    with pytest.raises(ValueError, match=r"X_new is an AnnData object or file.* pass .*adata.obsm\['X_pca'\]"):
        plain.transform(some)
    np.testing.assert_array_equal(plain.transform(gpe.read_points(some, key=key)), plain.points[:50])


def test_mistakes():
    adata = some_object(pca=False)
    with pytest.raises(ValueError, match=r"does not hold 'obsm/X_umap'; it has 'X', 'obsm/X_scvi'. .* with use_rep="):
        gpe.read_points(adata, use_rep="X_umap")
    with pytest.raises(ValueError, match="does not hold 'layers/absent'"):
        gpe.read_points(adata, key="layers/absent")
    with pytest.raises(ValueError, match="both name an array"):
        gpe.read_points(adata, key="X", use_rep="X")
    with pytest.raises(ValueError, match="index is about a table"):
        gpe.read_points(adata, index="name")
    adata.X = None
    with pytest.raises(ValueError, match=r"does not hold points \(X or obsm/X_pca\); it has 'obsm/X_scvi'"):
        gpe.embed(adata)
