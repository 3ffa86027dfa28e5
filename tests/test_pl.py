"""Pictures of AnnData objects are those of `gpe.plot.scatter`."""

import numpy as np
import pytest

import scalable_gpe as gpe

anndata = pytest.importorskip("anndata")
pytest.importorskip("matplotlib").use("agg")


@pytest.fixture
def adata() -> "anndata.AnnData":
    rng = np.random.default_rng(0)
    made = anndata.AnnData(
        rng.normal(size=(60, 3)), obsm={"X_gpe": rng.normal(size=(60, 4)), "spatial": rng.random((60, 2))}
    )
    made.obs["kind"] = np.where(np.arange(60) % 3, "b", "a")
    made.obs["kind"] = made.obs["kind"].astype("category")
    made.obs["time"] = np.linspace(0, 1, 60)
    return made


def pixels(ax) -> np.ndarray:
    ax.figure.canvas.draw()
    return np.asarray(ax.figure.canvas.buffer_rgba())


@pytest.mark.parametrize("column", ["kind", "time"])
def test_a_column_of_obs_is_the_colour(adata, column):
    found = gpe.pl.embedding(adata, color=column, title="cells")
    expected = gpe.plot.scatter(adata.obsm["X_gpe"], color=adata.obs[column], color_label=column, title="cells")
    assert (pixels(found) == pixels(expected)).all()
    assert (pixels(found) != pixels(gpe.pl.embedding(adata, title="cells"))).any()


def test_the_basis_is_named_as_in_scanpy(adata):
    for basis in ("gpe", "X_gpe"):
        assert gpe.pl.embedding(adata, basis).get_xlabel() == "principal axis 1"
    own = gpe.pl.embedding(adata, "spatial", color=np.arange(60.0), color_label="row")
    assert (
        pixels(own) == pixels(gpe.plot.scatter(adata.obsm["spatial"], color=np.arange(60.0), color_label="row"))
    ).all()


def test_what_is_missing_is_named(adata):
    with pytest.raises(KeyError, match=r"basis must name a part of obsm, \['X_gpe', 'spatial'\]; got 'umap'"):
        gpe.pl.embedding(adata, "umap")
    with pytest.raises(KeyError, match=r"color must be a column of obs, \['kind', 'time'\], or an array; got 'leiden'"):
        gpe.pl.embedding(adata, color="leiden")
