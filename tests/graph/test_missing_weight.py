"""The weight of the true neighbours that a search has not found: by plain loops, ties, stores, the warning."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist

import scalable_gpe as gpe
from scalable_gpe.errors import RecallWarning
from scalable_gpe.formatting import report_lines
from scalable_gpe.graph import cells, descent
from scalable_gpe.html_report import tiles

pytestmark = pytest.mark.filterwarnings("ignore::scalable_gpe.errors.GPEWarning")
N_NEIGHBORS = 7


@pytest.fixture(scope="module")
def X():
    """Two clusters of different density, and fewer rows than are sampled."""
    rng = np.random.default_rng(5)
    return np.concatenate([rng.standard_normal((150, 4)), 5 + 3 * rng.standard_normal((60, 4))]).astype(np.float32)


@pytest.fixture(scope="module")
def poor_lists(X):
    """Lists of which every third true neighbour is replaced by one that is farther away."""
    distances = cdist(X.astype(float), X.astype(float))
    order = np.argsort(distances, axis=1)[:, 1:]
    indices = order[:, :N_NEIGHBORS].copy()
    lost = np.random.default_rng(6).random(indices.shape) < 1 / 3
    indices[lost] = order[:, N_NEIGHBORS : 2 * N_NEIGHBORS][lost]
    return indices, np.take_along_axis(distances, indices, 1)


def by_plain_loops(X, indices, bandwidth):
    """The sum over pairs that no list has, as a share of the sum over all true neighbours."""
    squares = cdist(X.astype(float), X.astype(float)) ** 2
    lists = [set(row) for row in indices]
    missing = total = 0.0
    for i in range(len(X)):
        for j in np.argsort(squares[i])[1 : indices.shape[1] + 1]:
            weight = np.exp(-squares[i, j] / bandwidth(i, j))
            total += weight
            missing += weight if j not in lists[i] and i not in lists[j] else 0.0
    return missing / total


@pytest.mark.parametrize("epsilon", [0.5, "global", "local"])
def test_by_its_definition(X, poor_lists, epsilon):
    result = gpe.embed(X, neighbors=poor_lists, epsilon=epsilon, power=2, n_components=2)
    kernel = result.kernel
    sigma = np.full(len(X), np.sqrt(kernel.epsilon)) if kernel.sigma is None else kernel.sigma
    expected = by_plain_loops(X, poor_lists[0], lambda i, j: float(sigma[i]) * float(sigma[j]))
    assert 0.02 < expected < 0.4
    assert result.report["missing_weight"] == kernel.missing_weight == pytest.approx(expected, rel=1e-5)


def test_other_units_and_repeated_rows(X, poor_lists):
    """A share has no units."""
    indices, distances = poor_lists
    usual, tiny = (
        gpe.embed(X * unit, neighbors=(indices, distances * unit), epsilon="global", power=2, n_components=2)
        for unit in (1.0, 1e-20)
    )
    assert tiny.report["missing_weight"] == pytest.approx(usual.report["missing_weight"], rel=1e-3)
    repeated = gpe.neighbor_graph(np.concatenate([X, X[:40]]), N_NEIGHBORS)
    assert gpe.gaussian_kernel(repeated).missing_weight == 0.0


@pytest.mark.parametrize("method", ["kdtree", "brute", "cells"])
def test_nothing_is_missing_where_neighbors_are_equally_far(method):
    """On a lattice lists hold some of many rows at one distance; another choice than that of the scan is as good."""
    lattice = np.stack(np.meshgrid(*[np.arange(9.0)] * 3), axis=-1).reshape(-1, 3)
    graph = gpe.neighbor_graph(lattice, 10, method=method, recall=1.0)
    assert graph.recall == 1.0 and gpe.gaussian_kernel(graph).missing_weight == 0.0


@pytest.mark.parametrize("n_features", [30, 2500])
def test_exact_searches_of_sets_and_of_sparse_rows(n_features):
    import scipy.sparse as sp

    rows = sp.random_array((300, n_features), density=0.3, random_state=np.random.default_rng(1), format="csr")
    for X, metric in ((rows, "cosine"), ((rows.toarray() > 0).astype(float), "jaccard")):
        graph = gpe.neighbor_graph(X, 5, metric=metric, method="brute")
        assert graph.recall == 1.0 and gpe.gaussian_kernel(graph).missing_weight == 0.0


def test_without_points_and_in_a_store(X, poor_lists, tmp_path):
    options = {"n_neighbors": 5, "power": 2, "n_components": 2, "progress": False}
    report = gpe.embed(neighbors=poor_lists, power=2, n_components=2).report
    assert report["missing_weight"] is None and "without X" in report["reasons"]["missing_weight"]
    gpe.embed(X, store=tmp_path / "run.zarr", **options)
    assert gpe.open(tmp_path / "run.zarr").report["missing_weight"] == 0.0


def test_the_warning_says_what_low_recall_costs(monkeypatch):
    monkeypatch.setattr(descent, "MAX_STEPS", 0)  # two trees alone miss many neighbours
    monkeypatch.setattr(cells, "_MAX_ROUNDS", 1)
    X = np.random.default_rng(0).standard_normal((2000, 20))
    options = {"n_neighbors": 8, "method": "cells", "power": 2, "n_components": 2}
    with pytest.warns(RecallWarning, match="missing_weight of the report"):
        result = gpe.embed(X, recall=0.99, **options)
    poor = result.report
    text = f"hold {poor['missing_weight']:.1%} of the kernel's weight"
    assert 0.1 < poor["missing_weight"] < 0.5
    assert ("missing weight", f"{poor['missing_weight']:.2%}") in report_lines(poor, None)
    assert f"the others hold {poor['missing_weight']:.2%} of the weight" in str(tiles(result, None))
    assert [text in warning for warning in poor["warnings"]].count(True) == 1
    asked = gpe.embed(X, recall=0.1, **options).report  # no more than was asked for: no warning
    assert asked["missing_weight"] > 0.1 and not any("true neighbours" in warning for warning in asked["warnings"])
