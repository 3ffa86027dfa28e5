"""AnnData objects in place: the embedding, its graph, pseudotime; nothing of the user's is touched."""

import re

import numpy as np
import pytest
from scipy.sparse import csr_matrix

import scalable_gpe as gpe
from scalable_gpe.errors import ConnectivityWarning, GPEWarning

anndata = pytest.importorskip("anndata")


def some_object() -> "anndata.AnnData":
    rng = np.random.default_rng(0)
    t = np.linspace(0, 1, 400)
    curve = np.column_stack([np.cos(3 * t), np.sin(3 * t), t]) + 0.005 * rng.standard_normal((400, 3))
    adata = anndata.AnnData(rng.standard_normal((400, 5)).astype(np.float32))
    adata.obsm["X_pca"] = curve
    adata.obs["time"] = t
    adata.obs_names = [f"cell {i}" for i in range(400)]
    adata.uns["neighbors"] = {"mine": "kept"}
    return adata


def test_results_go_to_keys_of_their_own_and_survive_a_file(tmp_path):
    adata = some_object()
    assert gpe.tl.embed(adata, n_components=16, power="all", progress=False) is None
    plain = gpe.embed(adata.obsm["X_pca"], n_components=16, power="all", progress=False)
    assert adata.obsm["X_gpe"].tobytes() == plain.points.tobytes()
    assert adata.uns["neighbors"] == {"mine": "kept"} and "distances" not in adata.obsp
    heat = plain.kernel.to_scipy().toarray()
    np.fill_diagonal(heat, 0)
    np.testing.assert_allclose(adata.obsp["gpe_connectivities"].toarray(), heat, rtol=1e-6)
    assert adata.obsp["gpe_distances"].getnnz(axis=1).tolist() == [16] * 400
    gpe.tl.pseudotime(adata, "cell 0")
    for ending in ("h5ad", "zarr"):
        getattr(adata, f"write_{ending}")(tmp_path / f"a.{ending}")
    again = anndata.read_h5ad(tmp_path / "a.h5ad")
    assert again.uns["gpe"]["power"] == "all"
    assert np.corrcoef(again.obs["gpe_pseudotime"].rank(), again.obs["time"])[0, 1] > 0.98


def test_the_rows_are_chosen_by_name_and_several_powers_are_kept_apart():
    adata = some_object()
    changed = gpe.tl.embed(adata, use_rep="X", power=[4, "all"], key_added="raw", copy=True, progress=False)
    assert not [key for key in adata.obsm if key != "X_pca"]
    assert sorted(changed.obsm) == ["X_pca", "X_raw", "X_raw_4", "X_raw_all"]
    assert changed.uns["raw"]["power"] == "all" and changed.uns["raw"]["source"] == "X"
    assert changed.obsm["X_raw"].tobytes() == changed.obsm["X_raw_all"].tobytes()
    with pytest.raises(ValueError, match="does not hold 'obsm/X_umap'; it has 'X', 'obsm/X_pca'"):
        gpe.tl.embed(adata, use_rep="X_umap")


def test_a_graph_is_used_only_when_it_is_named():
    adata = some_object()
    gpe.tl.embed(adata, n_components=8, n_neighbors=10, power=16, progress=False)
    gpe.tl.embed(adata, neighbors_key="gpe", n_components=8, power=16, key_added="again", progress=False)
    assert (adata.obsp["again_distances"] != adata.obsp["gpe_distances"]).nnz == 0
    assert [adata.uns[key]["source"] for key in ("gpe", "again")] == ["obsm/X_pca", "obsp/gpe_distances"]
    assert adata.uns["gpe"]["params"]["use_rep"] == "X_pca" and "use_rep" not in adata.uns["again"]["params"]
    with pytest.raises(KeyError, match="neighbors_key must be a key of uns"):
        gpe.tl.embed(adata, neighbors_key="absent")
    with pytest.raises(KeyError, match=r"names obsp\['distances'\], which is not there"):
        gpe.tl.embed(adata, neighbors_key="neighbors")
    with pytest.raises(ValueError, match="both name an input"):
        gpe.tl.embed(adata, neighbors_key="gpe", use_rep="X")


def content(adata: "anndata.AnnData", ours: str = "gpe") -> dict[str, object]:
    """Everything in an object that is not ours, as plain values."""
    obs = adata.obs[[column for column in adata.obs if ours not in column]]
    parts = {"X": np.asarray(adata.X), "obs": obs.to_dict(), "var": adata.var.to_dict()}
    for part in ("obsm", "varm", "obsp", "varp", "layers", "uns"):
        for key, value in getattr(adata, part).items():
            if key is not None and ours not in key:  # None: X among the layers, in anndata 0.13
                parts[f"{part}/{key}"] = value.toarray() if hasattr(value, "toarray") else value
    return parts


def test_nothing_of_the_users_is_touched(tmp_path):
    import scipy.sparse as sp

    adata = some_object()
    adata.obsp["distances"] = sp.random(400, 400, 0.02, "csr", random_state=0)
    adata.obsm["X_gpe_mine"] = np.ones((400, 2))
    before = content(adata.copy())
    gpe.tl.embed(adata, n_components=4, power=[2, 4], progress=False)
    gpe.tl.embed(adata, n_components=4, power=8, progress=False)  # takes the powers of the first call away
    assert sorted(adata.obsm) == ["X_gpe", "X_gpe_mine", "X_pca"]
    assert adata.obsm["X_gpe_mine"].tobytes() == np.ones((400, 2)).tobytes()
    after = content(adata)
    assert after.keys() == before.keys()
    for name, value in before.items():
        np.testing.assert_equal(after[name], value)


@pytest.mark.filterwarnings("ignore:Writing zarr v2")
@pytest.mark.parametrize("way", ["backed h5ad", "lazy zarr"])
def test_backed_and_lazy_objects_get_the_same_bytes(way, tmp_path):
    adata = some_object()
    gpe.tl.embed(adata, n_components=4, n_neighbors=10, power=[4, "all"], key_added="first", progress=False)
    kind, ending = way.split()
    path = tmp_path / f"cells.{ending}"
    getattr(adata, f"write_{ending}")(path)
    if kind == "lazy":
        pytest.importorskip("xarray")
    other = anndata.read_h5ad(path, backed="r") if kind == "backed" else anndata.experimental.read_lazy(path)
    for one in (adata, other):
        gpe.tl.embed(one, n_components=4, power="all", progress=False)
        gpe.tl.pseudotime(one, 5)
        gpe.tl.embed(one, n_components=4, power="all", progress=False)
        assert "gpe_pseudotime" not in one.obs
        gpe.tl.embed(one, n_components=4, neighbors_key="first", key_added="graph", power="all", progress=False)
        gpe.tl.pseudotime(one, "cell 3")
        gpe.tl.pseudotime(one, "cell 3", key="first")  # of a graph that is itself in the file
    other = other.to_memory()
    other.write_h5ad(tmp_path / "again.h5ad")
    again = anndata.read_h5ad(tmp_path / "again.h5ad")
    assert again.uns["first"]["powers"].tolist() == ["4", "all"]
    for key in ("X_gpe", "X_graph", "X_first_4", "X_pca"):
        assert again.obsm[key].tobytes() == adata.obsm[key].tobytes()
    assert (again.obsp["gpe_connectivities"] != adata.obsp["gpe_connectivities"]).nnz == 0
    for column in ("gpe_pseudotime", "first_pseudotime"):
        np.testing.assert_array_equal(again.obs[column], adata.obs[column])
    assert again.obs["time"].tolist() == adata.obs["time"].tolist()


def test_pseudotime_equals_that_of_the_embedding_and_is_infinite_elsewhere():
    adata = some_object()
    adata.obsm["X_pca"][350:] += 100
    gpe.tl.embed(adata, n_components=16, power="all", epsilon="global", progress=False)
    with pytest.warns(ConnectivityWarning, match="no path .* from the root to 50 of 400 observations"):
        gpe.tl.pseudotime(adata, 3)
    result = gpe.embed(adata.obsm["X_pca"], n_components=16, power="all", epsilon="global", progress=False)
    expected = result.pseudotime(3)
    np.testing.assert_allclose(adata.obs["gpe_pseudotime"], expected.values, rtol=1e-6)
    assert np.isinf(expected.values[350:]).all()
    assert adata.uns["gpe"]["pseudotime_error"] == expected.error


@pytest.mark.parametrize("view", [True, False])
def test_pseudotime_of_some_cells_is_that_of_all(view):
    """A subset of the graph falls apart; what is connected is known from the whole."""
    adata = some_object()
    adata.obsm["X_pca"][350:] += 100
    gpe.tl.embed(adata, n_components=8, n_sketch=32, epsilon="global", progress=False)
    gpe.tl.pseudotime(adata, 0)
    some = adata[::40] if view else adata[::40].copy()
    gpe.tl.pseudotime(some, "cell 0")
    assert np.isfinite(some.obs["gpe_pseudotime"]).tolist() == [True] * 9 + [False]
    np.testing.assert_array_equal(some.obs["gpe_pseudotime"], adata.obs["gpe_pseudotime"][::40])
    assert some.uns["gpe"]["pseudotime_error"] == adata.uns["gpe"]["pseudotime_error"] > np.sqrt(1 / 64)
    del some.obs["gpe_component"]
    with pytest.raises(ValueError, match=r"lack one of .'gpe_component', 'gpe_run'."):
        gpe.tl.pseudotime(some, 0)


@pytest.mark.filterwarnings("ignore:Writing zarr v2")
@pytest.mark.parametrize("graph", [True, False])
@pytest.mark.parametrize("ending", ["h5ad", "zarr"])
def test_an_export_is_like_an_object_that_was_embedded(ending, graph, tmp_path):
    adata, path = some_object(), tmp_path / f"cells.{ending}"
    adata.obsm["X_pca"][:50] += 100
    given = {"n_components": 16, "n_sketch": 32, "power": [4, "all"], "epsilon": "global", "progress": False}
    gpe.export(gpe.embed(adata, **given), path, graph=graph)
    found = getattr(anndata, f"read_{ending}")(path)
    gpe.tl.embed(adata, **given)
    assert adata.obs["gpe_component"].tolist() == found.obs["gpe_component"].tolist() == [0] * 50 + [1] * 350
    kept, expected = found.uns["gpe"], adata.uns["gpe"]
    matrices = {"distances_key", "connectivities_key"}
    assert kept.keys() == expected.keys() - (set() if graph else matrices | {"params"})
    if graph:
        assert [kept[key] for key in sorted(matrices)] == ["connectivities", "distances"]
        assert expected["params"].pop("use_rep") == "X_pca"  # which is not exported
        assert kept["params"].pop("use_rep") == "X_gpe"
        assert gpe.tl.diffmap(found, 3, neighbors_key="gpe") is None
    same = kept.keys() - matrices - {"report", "powers"}
    assert {key: kept[key] for key in same} == {key: expected[key] for key in same}
    for one in (adata, found):
        gpe.tl.pseudotime(one, "cell 60")
    np.testing.assert_array_equal(found.obs["gpe_pseudotime"], adata.obs["gpe_pseudotime"])
    assert np.isinf(found.obs["gpe_pseudotime"]).sum() == 50


@pytest.mark.parametrize("merge", ["same", "unique", "first"])
def test_separate_embeddings_that_are_concatenated_have_no_pseudotime(merge):
    adata = some_object()
    parts = [gpe.tl.embed(adata[rows], n_components=8, copy=True) for rows in (slice(0, 200), slice(200, 400))]
    for some in (parts, [part[:90] for part in parts]):  # whole, and with cells filtered out
        with pytest.raises(ValueError, match=r"several embeddings, .* gpe.tl.embed after concat"):
            gpe.tl.pseudotime(anndata.concat(some, uns_merge=merge), 0)
    gpe.tl.embed(adata, n_components=8)
    gpe.tl.pseudotime(anndata.concat([adata[:150], adata[150:]], uns_merge="same"), 0)  # of one embedding
    del adata.uns["gpe"]["run"]
    with pytest.raises(ValueError, match=r"gpe.tl.embed after concatenating"):
        gpe.tl.pseudotime(adata, 0)


def test_an_embedding_under_another_key_is_named():
    adata = some_object()
    del adata.uns["neighbors"]
    gpe.tl.embed(adata, n_components=8, key_added="mine")
    gpe.tl.pseudotime(adata, 0, key="mine")
    adata.obs["end"] = [{0: "left", 399: "right"}.get(i, "") for i in range(400)]
    gpe.tl.neighbors(adata, 8)
    with pytest.raises(ValueError, match="neighbors_key must say which graph to take: 'mine', 'neighbors'"):
        gpe.tl.propagate(adata, "end")
    gpe.tl.propagate(adata, "end", neighbors_key="mine")


def test_values_with_names_go_by_name():
    adata = some_object()
    adata.obs["end"] = [{0: "left", 399: "right"}.get(i, "") for i in range(400)]
    gpe.tl.embed(adata, n_components=8)
    gpe.tl.fate(adata, "end")
    expected = adata.obsm["lineages_fwd"]
    masks = {name: (adata.obs["end"] == name)[::-1] for name in ("left", "right")}
    gpe.tl.fate(adata, masks)
    np.testing.assert_array_equal(adata.obsm["lineages_fwd"], expected)
    for terminal, problem in (
        ({"left": masks["left"].astype(int), "right": [399]}, r"400 numbers look like a mask: use astype\(bool\)"),
        ({"left": [0, 0], "right": [399]}, "'left' has row 0 again"),
        ({"left": masks["left"][10:], "right": [399]}, "10 of them have no value: 'cell 390'"),
    ):
        with pytest.raises(ValueError, match=problem):
            gpe.tl.fate(adata, terminal)


@pytest.mark.parametrize("place", ["obsm['X_pca']", "X"])
def test_missing_values_are_named_as_in_the_object(place):
    adata = some_object()
    if place == "X":
        del adata.obsm["X_pca"]
    (adata.X if place == "X" else adata.obsm["X_pca"])[3, 2] = np.nan
    for call in (lambda: gpe.tl.embed(adata, progress=False), lambda: gpe.tl.neighbors(adata, 5)):
        with pytest.raises(ValueError, match=rf"^{re.escape(place)} must be finite .* row 3, column .*Drop these"):
            call()
    with pytest.raises(ValueError, match="missing='drop' leaves rows out, which obsm cannot"):
        gpe.tl.embed(adata, missing="drop")


def test_embedding_again_removes_the_old_pseudotime():
    adata = some_object()
    adata.obs["gpe_pseudotime"] = 1.0  # the user's
    gpe.tl.embed(adata, n_components=8)
    assert "gpe_pseudotime" in adata.obs
    gpe.tl.pseudotime(adata, 0)
    gpe.tl.embed(adata, use_rep="X", n_components=8)
    assert "gpe_pseudotime" not in adata.obs and "pseudotime_error" not in adata.uns["gpe"]


def test_keys_of_results():
    adata = some_object()
    before = adata.obsm["X_pca"].copy()
    for wrong in ("pca", "X_pca"):
        with pytest.raises(ValueError, match="key_added='pca' would replace obsm/X_pca, which is embedded"):
            gpe.tl.embed(adata, key_added=wrong)
    adata.obs["few"] = np.where(np.arange(400) < 30, np.where(np.arange(400) < 15, "a", "b"), "")
    gpe.tl.embed(adata, n_components=4, power=4, key_added=None)
    for wrong in ("", "a/b", "X_", 3):
        with pytest.raises(ValueError, match="key_added must be a name, without '/'"):
            gpe.tl.embed(adata, key_added=wrong)
        if wrong != "X_":
            with pytest.raises(ValueError, match="key_added must be a name, without '/'"):
                gpe.tl.propagate(adata, "few", key_added=wrong)
    with pytest.raises(ValueError, match="key_added='few' would replace the column of the labels"):
        gpe.tl.propagate(adata, "few", key_added="few")
    np.testing.assert_array_equal(adata.obsm["X_pca"], before)
    assert set(adata.obsm) == {"X_pca", "X_gpe"}


def test_pseudotime_without_an_embedding_or_without_all_scales():
    adata = some_object()
    with pytest.raises(KeyError, match="adata holds no embedding 'gpe'"):
        gpe.tl.pseudotime(adata, 0)
    gpe.tl.embed(adata, power=16, progress=False)
    with pytest.raises(ValueError, match="pseudotime needs all scales"):
        gpe.tl.pseudotime(adata, 0)


def test_neighbors_are_where_scanpys_functions_look_and_are_ours():
    adata = some_object()
    assert gpe.tl.neighbors(adata, 12, random_state=5, epsilon="global") is None
    kernel = gpe.gaussian_kernel(gpe.neighbor_graph(adata.obsm["X_pca"], 12), "global").to_scipy().toarray()
    np.fill_diagonal(kernel, 0)
    np.testing.assert_allclose(adata.obsp["connectivities"].toarray(), kernel, rtol=1e-6)
    assert adata.obsp["distances"].getnnz(axis=1).tolist() == [12] * 400
    assert adata.uns["neighbors"] == {
        "connectivities_key": "connectivities",
        "distances_key": "distances",
        "params": {
            "n_neighbors": 13,
            "method": "scalable_gpe",
            "metric": "euclidean",
            "random_state": 5,
            "use_rep": "X_pca",
        },
    }
    other = gpe.tl.neighbors(adata, 6, use_rep="X", key_added="raw", metric="cosine", copy=True)
    assert "raw" not in adata.uns and (other.obsp["distances"] != adata.obsp["distances"]).nnz == 0
    assert other.obsp["raw_distances"].nnz == 6 * 400 and other.obsp["raw_connectivities"].nnz >= 6 * 400
    assert [other.uns["raw"][f"{kind}_key"] for kind in ("distances", "connectivities")] == [
        "raw_distances",
        "raw_connectivities",
    ]
    assert other.uns["raw"]["params"]["metric"] == "cosine" and other.uns["raw"]["params"]["use_rep"] == "X"
    gpe.tl.embed(other, neighbors_key="raw", n_components=4, power=4, progress=False)  # reads what it wrote


@pytest.mark.parametrize("normalization", ["bistochastic", "symmetric"])
def test_diffmap_has_the_eigenvectors_of_the_heat_kernel(normalization):
    adata = some_object()
    gpe.tl.neighbors(adata, 12, key_added="mine")
    assert gpe.tl.diffmap(adata, 6, neighbors_key="mine", normalization=normalization) is None
    kernel = gpe.gaussian_kernel(gpe.neighbor_graph(adata.obsm["X_pca"], 12))
    values, vectors = np.linalg.eigh(gpe.heat_kernel(kernel, normalization).to_scipy().toarray())
    found = adata.obsm["X_diffmap"]
    assert found.dtype == adata.uns["diffmap_evals"].dtype == np.float32 and found.shape == (400, 6)
    np.testing.assert_allclose(adata.uns["diffmap_evals"], values[::-1][:6], atol=1e-5)
    np.testing.assert_allclose(np.abs((found * vectors[:, ::-1][:, :6]).sum(axis=0)), 1, atol=1e-3)
    assert adata.uns["diffmap_evals"][0] == 1 and (found[:, 0] > 0).all()
    assert np.allclose(found[:, 0], 0.05) == (normalization == "bistochastic")
    copied = gpe.tl.diffmap(adata, 3, neighbors_key="mine", copy=True)
    assert copied.obsm["X_diffmap"].shape == (400, 3) and adata.obsm["X_diffmap"].shape == (400, 6)
    with pytest.raises(ValueError, match="n_comps must be"):
        gpe.tl.diffmap(adata, 1)
    with pytest.raises(KeyError, match=r"neighbors_key must be a key of uns .* got 'absent'"):
        gpe.tl.diffmap(adata, neighbors_key="absent")


def test_the_root_is_scanpys_iroot_by_default():
    adata = some_object()
    gpe.tl.embed(adata, n_components=16, progress=False)
    with pytest.raises(ValueError, match=r"root must be .* adata has no uns\['iroot'\]"):
        gpe.tl.pseudotime(adata)
    adata.uns["iroot"] = np.int64(7)  # as np.flatnonzero gives it
    gpe.tl.pseudotime(adata)
    gpe.tl.pseudotime(adata, 7, key_added="from_seven")
    assert adata.obs["gpe_pseudotime"].iloc[7] == 0
    np.testing.assert_array_equal(adata.obs["gpe_pseudotime"], adata.obs["from_seven"])
    gpe.tl.pseudotime(adata, 0, key_added="from_zero")  # a root that is given comes first
    assert adata.obs["from_zero"].iloc[0] == 0 < adata.obs["from_zero"].iloc[7]
    assert adata.uns["iroot"] == 7
    adata.uns["iroot"] = 400
    with pytest.raises(ValueError, match="root must be at most 399; got 400"):
        gpe.tl.pseudotime(adata)


def test_a_key_may_be_written_as_that_of_obsm():
    adata = some_object()
    gpe.tl.embed(adata, n_components=4, key_added="X_mine", progress=False)
    assert sorted(adata.obsm) == ["X_mine", "X_pca"] and "mine" in adata.uns
    assert "mine_connectivities" in adata.obsp and "mine_component" in adata.obs
    gpe.tl.pseudotime(adata, 0, key="X_mine")
    assert adata.obs["mine_pseudotime"].iloc[0] == 0


def test_raw_counts_warn_once_and_say_what_to_do(recwarn):
    rng = np.random.default_rng(0)
    counts = rng.negative_binomial(2, 0.05, size=(200, 30)).astype(np.float32)
    sparse = csr_matrix(counts)
    for X in (counts, sparse):
        recwarn.clear()
        gpe.tl.embed(anndata.AnnData(X), n_components=2, power=1, n_neighbors=5, progress=False)
        (warning,) = [one for one in recwarn if "raw counts" in str(one.message)]
        assert isinstance(warning.message, GPEWarning) and warning.filename == __file__
        assert "sc.pp.normalize_total" in str(warning.message) and "sc.pp.log1p" in str(warning.message)
    with pytest.warns(GPEWarning, match="raw counts"):
        gpe.tl.neighbors(anndata.AnnData(counts), 5)
    with pytest.warns(GPEWarning, match="raw counts"):
        gpe.embed(anndata.AnnData(counts), n_components=2, power=1, n_neighbors=5, progress=False)
    recwarn.clear()
    with_pca = anndata.AnnData(counts, obsm={"X_pca": counts[:, :5]})
    no_counts = (np.log1p(counts), counts + 0.5, counts - 3, (counts > 9).astype(np.float32))
    for adata in (with_pca, *(anndata.AnnData(X) for X in no_counts)):
        gpe.tl.neighbors(adata, 5)
    assert not [one for one in recwarn if "raw counts" in str(one.message)]


def branches() -> "anndata.AnnData":
    """Three branches from one root, with true times."""
    rng = np.random.default_rng(1)
    time = rng.random(900) ** 1.5
    branch = rng.integers(0, 3, 900)
    directions = np.linalg.qr(rng.standard_normal((10, 4)))[0].T
    stem = np.minimum(time, 0.3)[:, None] * directions[0]
    X = stem + np.maximum(time - 0.3, 0)[:, None] * directions[1 + branch] + 0.01 * rng.standard_normal((900, 10))
    adata = anndata.AnnData(X.astype(np.float32))
    adata.obs["time"] = time
    adata.uns["iroot"] = int(time.argmin())
    return adata


def test_pseudotime_of_branches_follows_the_true_time():
    adata = branches()
    gpe.tl.embed(adata, n_components=64, power="all", progress=False)
    gpe.tl.pseudotime(adata, adata.uns["iroot"])
    assert adata.obs["gpe_pseudotime"].corr(adata.obs["time"], method="spearman") > 0.95


def test_scanpys_pseudotime_comes_nearer_to_ours_with_more_eigenvectors():
    scanpy = pytest.importorskip("scanpy")
    adata = branches()
    gpe.tl.embed(adata, n_components=512, power="all", horizon=4096, normalization="symmetric", progress=False)
    gpe.tl.pseudotime(adata, adata.uns["iroot"])
    adata.obsp["distances"], adata.obsp["connectivities"] = (
        adata.obsp["gpe_distances"],
        adata.obsp["gpe_connectivities"],
    )
    adata.uns["neighbors"] = {
        "connectivities_key": "connectivities",
        "distances_key": "distances",
        "params": {"n_neighbors": 33, "method": "umap"},
    }
    agreement = []
    for n_vectors in (3, 6, 15):
        scanpy.tl.diffmap(adata, n_comps=n_vectors)
        scanpy.tl.dpt(adata, n_dcs=n_vectors)
        agreement.append(adata.obs["dpt_pseudotime"].corr(adata.obs["gpe_pseudotime"], method="spearman"))
    assert agreement[-1] > 0.98 and agreement[-1] >= agreement[0], agreement


def test_the_number_of_a_root_is_refused_where_rows_were_left_out():
    """The number that uns kept is that of another cell in a subset."""
    adata = some_object()
    gpe.tl.embed(adata, n_components=8, progress=False)
    adata.uns["iroot"] = 150
    some = adata[100:].copy()
    with pytest.raises(ValueError, match=r"adata has 300 of 400 observations .* Pass root= by name"):
        gpe.tl.pseudotime(some)
    gpe.tl.pseudotime(adata)
    for root in ("cell 150", 50):
        gpe.tl.pseudotime(some, root)
        np.testing.assert_array_equal(some.obs["gpe_pseudotime"], adata.obs["gpe_pseudotime"].iloc[100:])
    some.uns["iroot"] = "cell 150"
    gpe.tl.pseudotime(some)
    assert some.obs["gpe_pseudotime"].iloc[50] == 0


def test_only_our_entries_of_uns_are_taken_for_embeddings():
    adata = some_object()
    adata.uns["pca"] = {"params": {"zero_center": True}}
    with pytest.raises(KeyError, match=r"holds no embedding 'gpe': call gpe\.tl\.embed"):
        gpe.tl.pseudotime(adata, 0)
    with pytest.raises(KeyError, match=r"holds no embedding 'pca': call gpe\.tl\.embed"):
        gpe.tl.pseudotime(adata, 0, key="pca")
    gpe.tl.embed(adata, n_components=8, key_added="mine", progress=False)
    with pytest.raises(KeyError, match="holds no embedding 'gpe': pass key='mine'"):
        gpe.tl.pseudotime(adata, 0)
    with pytest.raises(KeyError, match=r"got 'absent'\. Pass one of \['mine'\]"):
        gpe.tl.diffmap(adata, neighbors_key="absent")
    with pytest.raises(ValueError, match="key_added='mine' would replace what uns says of an embedding"):
        gpe.tl.neighbors(adata, key_added="mine")


def test_a_graph_that_lost_observations_warns():
    adata = some_object()
    adata.obs["end"] = [{0: "left", 399: "right"}.get(i, "") for i in range(400)]
    gpe.tl.embed(adata, n_components=8, progress=False)
    some = adata[::2].copy()
    some.obs.loc["cell 398", "end"] = "right"
    with pytest.warns(ConnectivityWarning, match="200 of the 400 observations of the graph 'gpe'"):
        gpe.tl.propagate(some, "end")
    gpe.tl.neighbors(some, 8, use_rep="X_pca")
    gpe.tl.propagate(some, "end", neighbors_key="neighbors")
