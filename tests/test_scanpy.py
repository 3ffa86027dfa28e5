"""The session with scanpy that the documentation shows, and its example: nothing of the user's is lost."""

import importlib.util
import re
import runpy
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")


def example(*arguments):
    path = ROOT / "examples" / "scanpy_workflow.py"
    if not path.exists():
        pytest.skip("examples/ is not beside the tests")
    runpy.run_path(str(path))["main"]([str(argument) for argument in arguments])


def need_scanpy():
    pytest.importorskip("matplotlib").use("agg")
    pytest.importorskip("igraph")
    return pytest.importorskip("scanpy")


def parts(adata) -> dict[str, object]:
    """Every element of an object, by place."""
    found = {"X": adata.X}
    for part in ("obs", "var", "obsm", "varm", "obsp", "varp", "layers", "uns"):
        found |= {f"{part}/{key}": value for key, value in getattr(adata, part).items()}
    return found | {"obs_names": adata.obs_names.to_numpy(), "var_names": adata.var_names.to_numpy()}


def check_equal(found, expected) -> None:
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            check_equal(found[key], value)
    elif hasattr(expected, "toarray"):
        assert (found != expected).nnz == 0
    elif hasattr(expected, "dtype") and getattr(expected.dtype, "names", None):
        assert found.tolist() == expected.tolist()
    else:
        assert type(found) is type(expected)
        np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))
        assert getattr(found, "dtype", None) == getattr(expected, "dtype", None)


def test_the_session_of_the_documentation(tmp_path, monkeypatch):
    scanpy = need_scanpy()
    page = ROOT / "docs" / "scanpy.md"
    if not page.exists():
        pytest.skip("docs/ is not beside the tests")
    code = re.search(r"<!-- scanpy session -->\n```py\n(.*?)```", page.read_text(encoding="utf-8"), re.S).group(1)
    monkeypatch.chdir(tmp_path)
    session: dict = {}
    exec(code, session)
    scanpy.datasets.pbmc68k_reduced().write_h5ad("untouched.h5ad")
    again = session["again"]
    before, after = parts(session["anndata"].read_h5ad("untouched.h5ad")), parts(again)
    for place, value in before.items():
        check_equal(after[place], value)
    assert all("gpe" in place for place in after.keys() - before.keys())
    assert {"obsm/X_gpe", "obsp/gpe_distances", "uns/gpe", "obs/gpe_leiden", "obsm/X_gpe_umap"} <= after.keys()
    # the clusters are those of the embedding, and as good as those that came with the data
    assert again.uns["gpe_neighbors"]["params"]["use_rep"] == "X_gpe"
    agreement = adjusted_rand_score(again.obs["bulk_labels"], again.obs["gpe_leiden"])
    assert agreement > adjusted_rand_score(again.obs["bulk_labels"], again.obs["louvain"]) - 0.08
    assert np.isfinite(again.obsm["X_gpe_umap"]).all() and np.isfinite(again.obs["gpe_pseudotime"]).all()


def test_scanpy_takes_our_graph_of_an_object():
    """Where the embedding was made in place, our graph has all that scanpy's functions ask for."""
    scanpy = need_scanpy()
    import scalable_gpe as gpe

    adata = scanpy.datasets.pbmc68k_reduced()
    gpe.tl.embed(adata, n_components=4, power=4, progress=False)
    scanpy.tl.leiden(adata, neighbors_key="gpe", flavor="igraph", n_iterations=2, directed=False)
    scanpy.tl.umap(adata, neighbors_key="gpe", maxiter=5)
    assert 2 < adata.obs["leiden"].nunique() < 50 and np.isfinite(adata.obsm["X_umap"]).all()


def test_scanpy_searches_with_our_transformer():
    scanpy = need_scanpy()
    import scalable_gpe as gpe

    adata = scanpy.datasets.pbmc68k_reduced()
    scanpy.pp.neighbors(adata, 12, transformer="sklearn", key_added="theirs")
    scanpy.pp.neighbors(adata, transformer=gpe.KNeighborsTransformer(12), key_added="ours")
    assert adata.uns["ours"]["params"]["n_neighbors"] == 12
    theirs, ours = (adata.obsp[f"{key}_connectivities"] for key in ("theirs", "ours"))
    assert (ours != 0).nnz == (theirs != 0).nnz
    np.testing.assert_allclose(ours.toarray(), theirs.toarray(), atol=1e-3)
    scanpy.tl.leiden(adata, neighbors_key="ours", flavor="igraph", n_iterations=2, directed=False)
    assert 2 < adata.obs["leiden"].nunique() < 50


def test_scanpy_goes_on_from_our_neighbors_and_our_diffusion_map():
    scanpy = need_scanpy()
    import scalable_gpe as gpe

    adata = scanpy.datasets.pbmc68k_reduced()
    gpe.tl.neighbors(adata, 15)
    scanpy.tl.leiden(adata, flavor="igraph", n_iterations=2, directed=False)
    assert 2 < adata.obs["leiden"].nunique() < 50
    adata.uns["iroot"] = 3
    gpe.tl.diffmap(adata, normalization="symmetric")
    ours = adata.obsm["X_diffmap"]
    scanpy.tl.dpt(adata)
    pseudotime = adata.obs["dpt_pseudotime"].copy()
    assert pseudotime.iloc[3] == 0 and np.isfinite(pseudotime).mean() > 0.9
    scanpy.pl.diffmap(adata, color="dpt_pseudotime", show=False)
    scanpy.tl.diffmap(adata)  # its kernel lacks the ones on the diagonal
    assert adata.obsm["X_diffmap"].shape == ours.shape and adata.obsm["X_diffmap"].dtype == ours.dtype
    assert np.abs((adata.obsm["X_diffmap"] * ours).sum(axis=0))[:5].min() > 0.9
    scanpy.tl.dpt(adata)
    assert pseudotime.corr(adata.obs["dpt_pseudotime"], method="spearman") > 0.9


def test_the_line_of_the_readme():
    """From 8,192 cells on scanpy searches with pynndescent, unless it is told not to: needs many cells, 20 s."""
    sc, readme = pytest.importorskip("scanpy"), ROOT / "README.md"
    if not readme.exists():
        pytest.skip("README.md is not beside the tests")
    line = re.search(r"`(sc\.pp\.neighbors\(adata, .*?\))`", readme.read_text(encoding="utf-8"), re.S).group(1)
    import anndata

    import scalable_gpe as gpe

    adata = anndata.AnnData(gpe.datasets.torus(20_000))
    gpe.tl.embed(adata, power=4, n_components=8, n_neighbors=10, progress=False)
    exec(line, {"sc": sc, "adata": adata})
    assert adata.uns["neighbors"]["params"]["use_rep"] == "X_gpe"
    assert adata.obsp["connectivities"].shape == (20_000, 20_000) and adata.obsp["distances"].nnz >= 14 * 20_000


def test_the_example(tmp_path, capsys):
    need_scanpy()
    example("--out", tmp_path / "scanpy.png", "--file", tmp_path / "cells.h5ad")
    assert "gpe_leiden: " in capsys.readouterr().out
    assert (tmp_path / "scanpy.png").stat().st_size > 10_000 and (tmp_path / "cells.h5ad").exists()


def test_the_example_says_what_is_missing(monkeypatch, capsys):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "scanpy" else find(name))
    example()
    assert "needs scanpy" in capsys.readouterr().out
