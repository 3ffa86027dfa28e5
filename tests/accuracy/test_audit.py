"""The audit: its figures against dense algebra and scikit-learn, its intervals against the truth, its warnings."""

import dataclasses
import json

import numpy as np
import pytest
from scipy.spatial.distance import pdist
from scipy.stats import chi2, kstest

import scalable_gpe as gpe
from scalable_gpe import accuracy
from scalable_gpe.accuracy.samples import ExactRows
from scalable_gpe.accuracy.statistics import chi_square_test, distance_errors, distances
from scalable_gpe.execution.memory_plan import MemoryPlan
from scalable_gpe.spectral.filters import Filter

SLOW = pytest.mark.slow


def with_points(result, points):
    return dataclasses.replace(result, points=points)


def plain(found):
    """The figures of an audit without the time it took."""
    return {name: value for name, value in found.items() if name != "seconds"}


def dense_errors(result, power):
    """Relative errors of all pairs, from A^p as a dense matrix."""
    A = result.heat.to_scipy().astype(np.float64).toarray()
    return np.abs(pdist(result.points.astype(np.float64)) / pdist(np.linalg.matrix_power(A, power)) - 1)


@pytest.fixture(scope="module")
def rows():
    """Points of a torus, some of them repeated."""
    X = gpe.datasets.torus(400, random_state=4).astype(np.float32)
    rng = np.random.default_rng(0)
    return np.concatenate([X, X[rng.integers(0, 30, 60)]])[rng.permutation(460)]


@pytest.fixture(scope="module")
def result(rows):
    return gpe.embed(rows, n_components=8, power=12, n_neighbors=16, epsilon="global")


@pytest.mark.parametrize("normalization", ["bistochastic", "symmetric"])
@pytest.mark.parametrize("power", [1, 12, 200])
def test_covariance_is_an_entry_of_the_power(rows, normalization, power):
    result = gpe.embed(rows, n_components=2, power=1, n_neighbors=16, normalization=normalization)
    exact = ExactRows(result.heat, 20, 0)
    got = exact.covariances([Filter(power)])[power]
    A = result.heat.to_scipy().astype(np.float64).toarray()
    expected = np.linalg.matrix_power(A, 2 * power)[np.ix_(exact.rows, exact.rows)]
    if normalization == "bistochastic":
        expected = expected - 1 / len(rows)
    assert np.abs(got - expected).max() <= 3e-8 * np.abs(expected).max()
    truth = np.linalg.norm(np.diff(np.linalg.matrix_power(A, power)[exact.rows], axis=0), axis=1)
    assert np.allclose(np.diag(distances(got), 1), truth, rtol=1e-6)


@pytest.mark.some(3)
@pytest.mark.parametrize("normalization", ["bistochastic", "symmetric"])
@pytest.mark.parametrize(("horizon", "first"), [(1, 1), (64, 1), (1000, 1), (64, 4)])
def test_covariance_of_all_scales(rows, normalization, horizon, first):
    """f(A)^2 for the sum f of all powers, without the eigenvector with eigenvalue 1."""
    result = gpe.embed(rows, n_components=2, power=1, n_neighbors=16, normalization=normalization)
    exact, wanted = ExactRows(result.heat, 20, 0), Filter(horizon, cumulative=True, first=first)
    values, vectors = np.linalg.eigh(result.heat.to_scipy().astype(np.float64).toarray())
    image = (vectors[exact.rows] * wanted(values))[:, :-1]
    expected = image @ image.T
    got = exact.covariances([wanted])["all"]
    assert np.abs(got - expected).max() <= 1e-4 * np.abs(expected).max()


def test_powers_share_their_products(result):
    exact = ExactRows(result.heat, 20, 0)
    filters = [Filter(2), Filter(60), Filter(400)]
    together, sweeps = exact.covariances(filters), dict(result.graph.context.sweeps)
    for one in filters:
        alone = exact.covariances([one])[one.power]
        np.testing.assert_allclose(together[one.power], alone, rtol=1e-9, atol=1e-15)
    alone = result.graph.context.sweeps["audit"] - sweeps["audit"]
    exact.covariances(filters)
    assert result.graph.context.sweeps["audit"] - sweeps["audit"] - alone < alone


def test_narrow_panels_give_the_same(result, monkeypatch):
    exact = ExactRows(result.heat, 20, 0)
    wide = exact.covariances([Filter(12)])[12]
    monkeypatch.setattr(MemoryPlan, "workspace", 0)  # one row at a time
    np.testing.assert_allclose(exact.covariances([Filter(12)])[12], wide, rtol=1e-7, atol=1e-10)  # leaks 1e-8


def test_figures_against_dense_algebra(rows, result):
    found = gpe.audit(result, n_probes=10_000, n_exact=460)
    one = found["powers"][12]
    A = result.heat.to_scipy().astype(np.float64).toarray()
    distances = pdist(np.linalg.matrix_power(A, 12))
    different = pdist(rows) > 0
    errors = np.abs(pdist(result.points.astype(np.float64))[different] / distances[different] - 1)
    assert one["n_pairs"] == different.sum()
    assert one["median_error"]["value"] == pytest.approx(np.median(errors), rel=1e-3)
    assert one["bound_95"]["value"] == pytest.approx(np.quantile(errors, 0.95), rel=1e-3)
    assert found["recall"] == {"value": 1.0, "low": 1.0, "high": 1.0}
    distinct = np.unique(rows, axis=0).astype(np.float64)
    K = np.exp(-((distinct[:, None] - distinct[None]) ** 2).sum(axis=2) / result.kernel.epsilon)
    lost = 1 - (result.kernel.edges.block(0)[3].sum(dtype=float) - 400) / (K.sum() - 400)
    assert found["lost_mass"]["value"] == pytest.approx(lost, rel=1e-3)


def test_trustworthiness_is_that_of_scikit_learn():
    from sklearn.manifold import trustworthiness

    X = gpe.datasets.torus(300, random_state=4)
    result = gpe.embed(X, n_components=3, power=4)
    all_rows = gpe.audit(result, n_probes=300)["powers"][4]["trustworthiness"]
    assert all_rows["value"] == pytest.approx(trustworthiness(X, result.points, n_neighbors=10), abs=3e-6)
    some = gpe.audit(result, n_probes=60)["powers"][4]["trustworthiness"]
    assert some["low"] <= all_rows["value"] <= some["high"]


@pytest.mark.slow
def test_stated_intervals_cover_the_truth(monkeypatch):
    """100 cases: data, sketch and sample all new; both figures of the headline.

    Intervals that cover in 95 % of cases cover fewer than 90 of 100 with probability 0.012 for each figure.
    """
    monkeypatch.setattr(accuracy, "_DENSE_ROWS", 0)
    covered, bounded = ({"median_error": 0, "bound_95": 0} for _ in range(2))
    for seed in range(100):
        X = (
            np.random.default_rng(seed).normal(size=(150, 3))
            if seed % 2
            else gpe.datasets.torus(150, random_state=seed)
        )
        result = gpe.embed(X, n_components=16, power=8, n_neighbors=16, random_state=seed)
        one = gpe.audit(result, n_probes=10, random_state=seed)["powers"][8]
        errors = dense_errors(result, 8)
        for name, truth in (("median_error", np.median(errors)), ("bound_95", np.quantile(errors, 0.95))):
            high = one[name]["high"]
            covered[name] += one[name]["low"] <= truth and (high is None or truth <= high)
            bounded[name] += high is not None
    assert min(covered.values()) >= 90, covered
    assert bounded["median_error"] == 100 and bounded["bound_95"] >= 50, bounded


def test_the_distribution_is_chi_square_and_a_deviation_is_detected(result):
    """P-values of a correct embedding are not extreme; an embedding of wrong size or shape is detected."""
    sound = gpe.audit(result, n_probes=5)
    law = sound["powers"][12]["law"]
    assert "errors match random-projection noise" in str(sound)
    assert law["n_independent"] > 100
    assert min(law["size_pvalue"], law["ks_pvalue"]) > 1e-3
    assert abs(law["ratio_mean"] - 1) < 0.5
    wrong = gpe.audit(with_points(result, result.points * np.float32(1.2)), n_probes=5)
    larger = wrong["powers"][12]
    assert "larger errors than a random projection makes" in str(wrong)
    assert larger["law"]["size_pvalue"] < 1e-4


def test_the_shape_of_a_bernoulli_sketch_is_not_tested(rows):
    """Its entries are not normal: where a few rows of A^p hold most of the mass they are nearly signs."""
    result = gpe.embed(rows, n_components=32, power=1, n_neighbors=16, sketch="bernoulli", epsilon=0.05, axes="sketch")
    found = gpe.audit(result, n_probes=5)
    law = found["powers"][1]["law"]
    assert law["ks_pvalue"] is None and "Gaussian" in found["reasons"]["ks_pvalue"]
    assert law["size_pvalue"] > 1e-3
    assert "shape not tested" in str(found)
    larger = gpe.audit(with_points(result, result.points * np.float32(1.2)), n_probes=5)["powers"][1]
    assert larger["law"]["size_pvalue"] < 1e-4
    exact = ExactRows(result.heat, 32, 0)
    as_gaussian = chi_square_test(exact.covariances([Filter(1)])[1], result.points[exact.rows], 32)
    assert as_gaussian["ks_pvalue"] < 1e-6


def test_few_rows_bound_no_quantile(result, tmp_path):
    """The largest of few errors is no upper end: all of them may be below the quantile."""
    found = gpe.audit(result, n_probes=5, n_exact=4)
    for name in ("median_error", "bound_95"):
        assert found["powers"][12][name]["high"] is None
        assert found["powers"][12][name]["low"] >= 0
        assert "4 rows are too few for an upper end: raise n_exact" in found["reasons"][name]
    assert "too few exact rows for an upper end" in found["headline"]
    found.save(tmp_path / "audit.json")
    assert json.loads((tmp_path / "audit.json").read_text())["powers"]["12"]["bound_95"]["high"] is None
    many = gpe.audit(result, n_probes=5, n_exact=150)
    assert many["powers"][12]["bound_95"]["high"] < 3 and not {"median_error", "bound_95"} & set(many["reasons"])


def upper_end_misses(n_exact, n_trials, share):
    """How often the upper end for `share` of the pairs is below the truth; rows and sketch are new each time."""
    rng, misses = np.random.default_rng(n_exact), 0
    for _ in range(n_trials):
        X = rng.standard_normal((100, 20))
        Y = X @ rng.standard_normal((20, 16)) / 4
        truth = np.quantile(np.abs(pdist(Y) / pdist(X) - 1), share)
        found = distance_errors(X[:n_exact] @ X[:n_exact].T, Y[:n_exact], np.arange(n_exact))
        high = (found.median_error if share == 0.5 else found.bound_95).high
        misses += high is not None and high < truth
    return misses


@pytest.mark.parametrize("share", [0.5, 0.95])
@pytest.mark.parametrize("n_exact", [3, 8, pytest.param(16, marks=SLOW), pytest.param(32, marks=SLOW)])
def test_upper_ends_are_above_the_truth(n_exact, share):
    """100 trials, each a miss with probability 0.025 at most: 10 or more misses have probability 2e-4."""
    assert upper_end_misses(n_exact, 100, share) < 10


def test_p_values_are_uniform():
    """The test on whitened rows: small p-values are as rare as they should be, or rarer (Bernoulli, size).

    Of 100 p-values more than 12 are below 0.05 with probability 0.0015, for each of the three figures.
    """
    X = gpe.datasets.torus(150, random_state=1)
    heat = gpe.heat_kernel(gpe.gaussian_kernel(gpe.neighbor_graph(X, 16)))
    exact = ExactRows(heat, 32, 0)
    for kind, power, names in (("gaussian", 8, ("size_pvalue", "ks_pvalue")), ("bernoulli", 1, ("size_pvalue",))):
        covariance = exact.covariances([Filter(power)])[power]
        laws = [
            chi_square_test(
                covariance, gpe.gp_embedding(heat, 16, power, sketch=kind, random_state=s)[exact.rows], 16, kind
            )
            for s in range(100)
        ]
        for name in names:
            assert sum(law[name] < 0.05 for law in laws) <= 12


@pytest.mark.parametrize("normalization", ["bistochastic", "symmetric"])
def test_squared_distances_of_the_sparse_kernel_follow_chi_square(normalization):
    """500 embeddings in 4 dimensions, from the columns of one; for 3 pairs the p-value is below 1e-4 by chance in
    3 of 10,000 cases. Another number of dimensions, or distances that are 14 % off, would show.
    """
    X = gpe.datasets.torus(200, random_state=1)
    heat = gpe.heat_kernel(gpe.gaussian_kernel(gpe.neighbor_graph(X, 16)), normalization)
    columns = gpe.gp_embedding(heat, 2000, 8).astype(np.float64) * np.sqrt(2000)
    P = np.linalg.matrix_power(heat.to_scipy().toarray().astype(np.float64), 8)
    for i, j in ((0, 1), (3, 150), (70, 199)):
        squares = ((columns[i] - columns[j]).reshape(500, 4) ** 2).sum(axis=1) / ((P[i] - P[j]) ** 2).sum()
        assert kstest(squares, chi2(4).cdf).pvalue > 1e-4
        assert kstest(squares, chi2(5).cdf).pvalue < 1e-4
        assert kstest(squares * 1.3, chi2(4).cdf).pvalue < 1e-4


def test_poor_lists_show_in_the_recall(rows):
    X = np.unique(rows, axis=0)
    whole = gpe.neighbor_graph(X, 16)
    keep = np.r_[0:8, 12:16]  # a quarter of the neighbours replaced by further ones
    wider = gpe.neighbor_graph(X, 20)
    indices = np.concatenate([whole.indices[:, keep], wider.indices[:, 16:]], axis=1)
    distances = np.concatenate([whole.distances[:, keep], wider.distances[:, 16:]], axis=1)
    result = gpe.embed(X, neighbors=(indices, distances), n_components=4, power=4)
    recall = gpe.audit(result, n_probes=100)["recall"]
    assert recall["low"] <= 0.75 <= recall["high"]


def test_without_points(rows):
    X = np.unique(rows, axis=0)
    graph = gpe.neighbor_graph(X, 16)
    result = gpe.embed(neighbors=(graph.indices, graph.distances), n_components=4, power=4)
    found = gpe.audit(result)
    assert found["recall"] is None
    assert found["lost_mass"] is None
    assert found["powers"][4]["trustworthiness"] is None
    assert found["reasons"]["recall"] == "neighbors were given without X"
    assert "without X" in str(found)
    given = gpe.audit(result, X, n_probes=50)
    assert given["recall"]["value"] == 1
    with pytest.raises(ValueError, match="400 rows of the embedding; got 399"):
        gpe.audit(result, X[1:])


def test_the_same_figures_from_a_store_and_with_other_threads(rows, tmp_path):
    options = {"n_components": 4, "power": (4, 30), "n_neighbors": 16}
    found = gpe.audit(gpe.embed(rows, n_jobs=1, **options), n_probes=200)
    gpe.embed(rows, store=tmp_path / "run.zarr", **options)
    stored = gpe.audit(gpe.open(tmp_path / "run.zarr"), n_probes=200)
    assert plain(stored) == plain(found)
    assert list(found["powers"]) == [4, 30]


def test_it_prints_and_saves(result, tmp_path):
    found = gpe.audit(result, n_probes=20)
    assert "median error" in str(found)
    assert "relative error of distances: median" in found["headline"]
    assert "from the sketch alone: standard deviation 25 %" in found["headline"]
    found.save(tmp_path / "audit.json")
    again = json.loads((tmp_path / "audit.json").read_text())
    assert again["powers"]["12"]["median_error"] == found["powers"][12]["median_error"]
    assert isinstance(found, dict)


def test_dense_comparison(result):
    """Truncation, at a small and a large epsilon."""
    assert gpe.audit(result, n_probes=5)["powers"][12]["dense"]["median"] < 0.1
    X = gpe.datasets.torus(300, random_state=1)
    rough = gpe.embed(X, n_neighbors=5, epsilon=1.0, n_components=2, power=4)
    assert gpe.audit(rough, n_probes=5)["powers"][4]["dense"]["median"] > 0.3


def test_wrong_arguments(result):
    with pytest.raises(TypeError, match="embedding must be an Embedding"):
        gpe.audit(result.points)
    with pytest.raises(ValueError, match="n_exact must be at least 3"):
        gpe.audit(result, n_exact=2)


def test_too_few_rows_for_an_audit(tmp_path):
    small = gpe.embed(gpe.datasets.torus(9), n_components=2, power=2)
    with pytest.raises(ValueError, match="needs 10 different rows or more; this embedding has 9"):
        gpe.audit(small)
    page = gpe.write_report(small, tmp_path / "page.html").read_text(encoding="utf-8")
    assert "No audit was made" in page
