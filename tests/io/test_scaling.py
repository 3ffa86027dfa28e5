"""Columns of different spread: what is said about them, and what `scale` makes of them, in all regimes."""

import warnings

import numpy as np
import pytest
from sklearn.preprocessing import RobustScaler, StandardScaler

import scalable_gpe as gpe
from scalable_gpe.io.rows import open_rows

HOW = {"n_components": 8, "n_neighbors": 8, "power": 4, "progress": False}


def people(n_rows=300, n_features=5, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n_rows, n_features)) * np.geomspace(1, 1e4, n_features) + 50


def said(X, **how):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = gpe.embed(X, **{**HOW, **how})
    texts = [str(one.message) for one in caught if "column" in str(one.message)]
    assert texts == [text for text in result.report["warnings"] if "column" in text]
    return " ".join(texts)


def frame(values, *names):
    return pytest.importorskip("pandas").DataFrame(values, columns=names)


@pytest.mark.parametrize("kind", ["standard", "robust"])
def test_scaled_rows_are_those_of_scikit_learn(kind):
    X = people()
    X[:, 2] = 7  # constant
    expected = {"standard": StandardScaler, "robust": RobustScaler}[kind]().fit_transform(X)
    result = gpe.embed(X, scale=kind, **HOW)
    plain = gpe.embed(expected, **HOW)
    np.testing.assert_array_equal(result.graph.indices, plain.graph.indices)
    np.testing.assert_allclose(result.graph.distances, plain.graph.distances, rtol=1e-5)
    assert result.parameters["scale"] == kind


def test_the_spread_of_pieces_is_that_of_the_whole():
    X = people(5000, 3)
    X[:, 0] += 1e6  # far from 0
    rows = open_rows(X)
    found = rows.spread([(0, 1234), (1234, 5000)])
    np.testing.assert_allclose(found.mean, X.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(found.deviation, X.std(axis=0), rtol=1e-9)
    np.testing.assert_array_equal(found.high, X.max(axis=0))
    (sample,) = rows.spread([(0, 5000)], sampled=True).sample
    np.testing.assert_array_equal(sample, X)


def test_bytes_do_not_depend_on_type_layout_store_or_threads(tmp_path):
    X = people().astype(np.float32)
    expected = gpe.embed(X, scale="standard", n_jobs=1, **HOW).points
    np.save(tmp_path / "X.npy", X)
    for same in (np.asfortranarray(X), X.astype(np.float64), tmp_path / "X.npy", frame(X, *"abcde")):
        found = gpe.embed(same, scale="standard", store=tmp_path / "run.zarr", resume=False, **HOW)
        assert np.asarray(found.points[:]).tobytes() == expected.tobytes()
    assert (gpe.embed(X, **HOW).points != expected).any()


def test_a_store_holds_both_and_new_rows_are_scaled_too(tmp_path):
    X = people()
    plain = gpe.embed(X, store=tmp_path / "run.zarr", **HOW)
    scaled = gpe.embed(X, scale="standard", store=tmp_path / "run.zarr", **HOW)
    assert plain.graph.name != scaled.graph.name
    again = gpe.open(tmp_path / "run.zarr")
    assert again.parameters["scale"] == "standard"
    np.testing.assert_array_equal(again.transform(X), np.asarray(scaled.points[:]))
    new = X[:50] + 0.1 * X.std(axis=0)
    expected = gpe.embed(StandardScaler().fit_transform(X), **HOW)
    found = again.transform(new)
    np.testing.assert_allclose(found, expected.transform(StandardScaler().fit(X).transform(new)), rtol=1e-2, atol=1e-3)
    assert gpe.audit(again, X, n_probes=50, n_exact=4)["recall"]["value"] == 1


def test_graphs_and_estimators_scale():
    X = people()
    result = gpe.embed(X, scale="robust", **HOW)
    assert (gpe.neighbor_graph(X, 8, scale="robust").indices == result.graph.indices).all()
    model = gpe.GaussianProcessEmbedding(8, n_neighbors=8, power=4, scale="robust").fit(X)
    np.testing.assert_array_equal(model.embedding_, result.points)
    assert (
        gpe.DiffusionMap(2, n_neighbors=8, scale="robust").fit(X).result_.graph.indices == result.graph.indices
    ).all()


def test_a_sparse_matrix_keeps_its_zeros():
    from scipy.sparse import random as random_matrix

    X = random_matrix(200, 30, 0.3, "csr", random_state=0)
    result = gpe.embed(X, scale="standard", **HOW)
    assert result.graph.metadata.offset is None
    expected = gpe.neighbor_graph(StandardScaler().fit_transform(X.toarray()), 8)
    np.testing.assert_allclose(result.graph.distances, expected.distances, rtol=1e-5)


def test_a_column_that_decides_alone_is_named():
    rng = np.random.default_rng(0)
    values = np.column_stack([rng.normal(size=(200, 2)), 30_000 * rng.lognormal(size=200)])
    named = frame(values, "age", "height", "income")
    text = said(named)
    assert "column 'income' has 99.99 % of the variance of X" in text and "scale='standard'" in text
    assert "income" not in said(named, scale="standard")
    assert "column 4 has " in said(people())
    two = np.column_stack([values, 20_000 * rng.normal(size=200)])
    assert "columns 'income', 'bytes' have 99.99 % of" in said(frame(two, "age", "height", "income", "bytes"))


@pytest.mark.parametrize("kind", ["components", "places", "sparse images", "obsm", "cosine"])
def test_data_in_one_unit_are_not_warned_about(kind):
    rng = np.random.default_rng(0)
    how = {}
    X = rng.normal(size=(200, 6)) * [100, 5, 4, 3, 2, 1]
    if kind == "places":
        X = X[:, :3]
    elif kind == "sparse images":
        X = np.where(rng.random((200, 6)) < 0.2, 1.0, 0.0) * [0, 1, 1, 1, 1, 1]
    elif kind == "obsm":
        anndata = pytest.importorskip("anndata")
        X = anndata.AnnData(np.ones((200, 1)), obsm={"X_pca": X[:, [1, 0, 2, 3]]})
    elif kind == "cosine":
        X, how = X[:, [1, 0, 2, 3]], {"metric": "cosine"}
    assert said(X, **how) == ""


def test_constant_columns_are_named():
    X = people()
    X[:, [1, 3]] = [3, 4.1]
    assert "columns 'b', 'd' are constant" in said(frame(X, *"abcde"), scale="standard")
    assert "columns 1, 3 are constant" in said(X, scale="robust")
    assert "column 'b' is constant" in said(frame(X[:, :3], *"abc"))


def test_scale_needs_a_search_among_straight_lines():
    X = people()
    with pytest.raises(ValueError, match="scale=standard is for metric='euclidean'; got 'cosine'"):
        gpe.embed(X, scale="standard", metric="cosine", **HOW)
    with pytest.raises(ValueError, match="scale must be one of 'standard', 'robust'; got 'max'"):
        gpe.embed(X, scale="max", **HOW)
    graph = gpe.neighbor_graph(X, 8)
    with pytest.raises(ValueError, match="neighbors are lists of rows as they are"):
        gpe.embed(X, scale="standard", neighbors=(graph.indices, graph.distances), n_components=8, power=4)
