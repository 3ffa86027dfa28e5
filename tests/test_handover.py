"""UMAP and openTSNE start from our graph, our kernel and our principal plane."""

import sys
import warnings

import numpy as np
import pytest

import scalable_gpe as gpe


@pytest.fixture(scope="module")
def groups():
    """Three groups, and which row belongs to which; five rows repeat."""
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], 100)
    X = 6 * rng.standard_normal((3, 5))[labels] + rng.standard_normal((300, 5))
    X[10:15] = X[10]
    return X, labels


@pytest.fixture(scope="module")
def result(groups):
    return gpe.embed(groups[0], n_neighbors=20, n_components=8, progress=False)


def test_lists_begin_with_the_row_itself(groups, result):
    X = groups[0]
    indices, distances, index = result.graph.to_umap()
    assert index is None and indices.shape == distances.shape == (300, 21) and indices.dtype == np.int32
    assert (indices[:, 0] == np.arange(300)).all() and (distances[:, 0] == 0).all()
    assert (indices[:, 1:] == result.graph.indices).all()
    np.testing.assert_allclose(distances, np.linalg.norm(X[:, None] - X[indices], axis=2), rtol=1e-4, atol=1e-5)


def test_short_lists_are_marked_as_umap_marks_them():
    neighbors = np.array([[1, 2], [0, -1], [0, 1]]), np.array([[1.0, 2.0], [1.0, np.inf], [2.0, 2.5]])
    indices, distances, _ = gpe.embed(neighbors=neighbors, n_components=8, power=1).graph.to_umap()
    assert indices[1].tolist() == [1, 0, -1] and distances[1].tolist() == [0, 1, np.inf]


def test_affinities_are_the_heat_kernel_without_its_diagonal(result):
    dense = result.heat @ np.eye(300)
    np.fill_diagonal(dense, 0)
    found = result._affinities()
    np.testing.assert_allclose(found.toarray(), dense / dense.sum(), rtol=1e-6, atol=1e-12)
    assert found.sum() == pytest.approx(1) and found.has_canonical_format and found.format == "csr"


def test_without_opentsne(result, monkeypatch):
    monkeypatch.setitem(sys.modules, "openTSNE", None)
    with pytest.raises(ImportError, match=r"to_opentsne needs openTSNE; install it with: pip install .*tsne"):
        result.to_opentsne()


@pytest.mark.slow
def test_umap_and_tsne_take_them(groups, result):
    umap, tsne = pytest.importorskip("umap"), pytest.importorskip("openTSNE")
    start, labels = result.principal(2)[0], groups[1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = umap.UMAP(precomputed_knn=result.graph.to_umap(), init=start, random_state=0).fit(groups[0])
    assert model._knn_indices is model.knn_indices  # the given lists were used, not a search
    first = tsne.initialization.rescale(start.astype(float))
    plane = tsne.TSNE(initialization=first, n_jobs=1, random_state=0).fit(affinities=result.to_opentsne())
    for points in (model.embedding_, np.asarray(plane)):
        assert gpe.neighbor_graph(points, 10).indices.shape == (300, 10)
        assert (labels[gpe.neighbor_graph(points, 10).indices] == labels[:, None]).mean() > 0.95
