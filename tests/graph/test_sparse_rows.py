"""Sparse input: read in blocks, and searched as it is where it is wide."""

import numpy as np
import pytest
import scipy.sparse as sp

import scalable_gpe as gpe
from scalable_gpe.graph.build import GraphStage
from scalable_gpe.graph.search import SearchParameters
from scalable_gpe.io.rows import open_rows

WIDE = 20_000
OPTIONS = {"n_neighbors": 8, "n_components": 3, "power": 3, "progress": False}


class Watched(sp.csr_matrix):
    """A matrix that knows how many of its rows were taken together."""

    __module__ = "scipy.sparse"  # inputs are told apart by the library that they come from
    largest = 0

    def __getitem__(self, key):
        rows = super().__getitem__(key)
        Watched.largest = max(Watched.largest, rows.shape[0])
        return rows


def wide_rows(n_rows=400, n_features=WIDE, seed=0):
    """Rows that share a part of their entries with a few prototypes; some are equal."""
    rng = np.random.default_rng(seed)
    prototypes = sp.random(6, n_features, density=60 / n_features, format="csr", dtype=np.float32, random_state=1)
    own = sp.random(n_rows, n_features, density=20 / n_features, format="csr", dtype=np.float32, random_state=seed)
    X = (prototypes[rng.integers(0, 6, n_rows)] + own).tocsr()
    return sp.vstack([X[:-5], X[:5]]).tocsr()


def test_wide_rows_are_never_dense_together():
    X = Watched(wide_rows(300))
    Watched.largest = 0
    result = gpe.embed(X, metric="cosine", **OPTIONS)
    assert 0 < Watched.largest <= 256
    assert result.report["recall"] == 1.0 and result.report["n_duplicates"] == 5
    Watched.largest = 0
    assert (result.transform(X[:4]) == result.points[:4]).all()
    assert Watched.largest <= 256


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_wide_sparse_rows_against_dense_ones(metric, tmp_path):
    X = wide_rows(150, 2500)
    sparse, dense = (gpe.embed(rows, metric=metric, epsilon=2.0, **OPTIONS) for rows in (X, X.toarray()))
    np.testing.assert_allclose(sparse.graph.distances, dense.graph.distances, rtol=1e-5)
    assert (sparse.graph.indices == dense.graph.indices).all()
    assert sparse.report["lost_mass"] == pytest.approx(dense.report["lost_mass"], abs=1e-4)
    np.testing.assert_allclose(sparse.points, dense.points, atol=1e-5 * np.abs(dense.points).max())
    stored = gpe.embed(sp.csc_array(X), metric=metric, epsilon=2.0, store=tmp_path / "run.zarr", **OPTIONS)
    assert np.asarray(stored.points[:]).tobytes() == sparse.points.tobytes()


def test_the_plan_does_not_count_zeros():
    X = wide_rows(150, 2500)
    search = SearchParameters(8, "euclidean", "auto", 0.95, 0)
    assert GraphStage(search, open_rows(X.toarray())).resident
    assert not GraphStage(search, open_rows(X)).resident
