"""power="auto": the curve against dense eigenvalues, the rule, stores, and the quality of its choice."""

import numpy as np
import pytest

import scalable_gpe as gpe
from scalable_gpe.spectral.power_choice import PowerCurve, PowerRow


def curve(rows):
    return PowerCurve(tuple(PowerRow(*row) for row in rows))


def test_the_smallest_power_that_is_smooth_enough():
    table = curve([(1, 500, 0.3), (2, 200, 0.1), (4, 90, 0.04), (8, 40, 0.02), (16, 20, 0.01), (32, 3, 0.001)])
    assert table.choose(8) == 8  # needs 0.0201
    assert table.choose(4) == 16  # needs 0.0105
    assert table.choose(64) == 4  # needs 0.042
    assert table.choose(2) == 16  # needs 0.0030, but not fewer than four directions


def test_the_curve_is_that_of_the_eigenvalues():
    X = gpe.datasets.torus(600, random_state=1)
    result = gpe.embed(X, power="auto", n_components=16)
    values = np.linalg.eigvalsh(result.heat.to_scipy().astype(np.float64).toarray())
    values = np.sort(values)[:-1]  # without the constant
    assert [row["power"] for row in result.report["power_curve"]] == [2**j for j in range(11)]
    for row in result.report["power_curve"]:
        p = row["power"]
        rank = (values ** (2 * p)).sum() ** 2 / (values ** (4 * p)).sum()
        rho = 1 - (values ** (2 * p + 1)).sum() / (values ** (2 * p)).sum()
        # a few random vectors: their error grows as fewer eigenvalues matter
        spread = 4 * np.sqrt(2 / (4 * rank)) + 0.02
        assert row["effective_rank"] == pytest.approx(rank, rel=spread)
        assert row["roughness"] == pytest.approx(rho, rel=spread)


def test_it_is_the_embedding_of_the_power_it_names():
    X = gpe.datasets.torus(600, random_state=1)
    chosen = gpe.embed(X, power="auto", n_components=8)
    assert isinstance(chosen.report["power"], int)
    assert chosen.parameters["power"] == "auto"
    assert chosen.points.tobytes() == gpe.embed(X, power=chosen.report["power"], n_components=8).points.tobytes()
    assert gpe.embed(X, power=4).report["power_curve"] is None
    assert gpe.embed(X, power=4).report["reasons"]["power_curve"] == "the power was given"


def test_stores_and_new_points(tmp_path):
    X = gpe.datasets.torus(700, random_state=1)
    memory = gpe.embed(X[:600], power="auto", n_components=8)
    stored = gpe.embed(X[:600], power="auto", n_components=8, store=tmp_path / "run.zarr")
    again = gpe.open(tmp_path / "run.zarr")
    resumed = gpe.embed(X[:600], power="auto", n_components=8, store=tmp_path / "run.zarr")
    for other in (stored, again, resumed):
        assert other.points[:].tobytes() == memory.points.tobytes()
        assert other.report["power"] == memory.report["power"]
        assert other.report["power_curve"] == memory.report["power_curve"]
        assert other.transform(X[600:]).tobytes() == memory.transform(X[600:]).tobytes()
    assert gpe.audit(again, n_probes=20)["powers"].keys() == {memory.report["power"]}


def test_rows_without_neighbors_do_not_count():
    """Isolated rows have eigenvalue 1: they do not affect the choice of the power."""
    X = gpe.datasets.torus(600, random_state=1).astype(np.float64)
    far = np.random.default_rng(0).normal(size=(40, 4)) * 1e6
    with pytest.warns(gpe_warning()):
        spoiled = gpe.embed(np.concatenate([X, far]), power="auto", n_components=16, n_neighbors=16, epsilon=0.2)
    clean = gpe.embed(X, power="auto", n_components=16, n_neighbors=16, epsilon=0.2)
    assert spoiled.report["n_isolated"] == 40
    for row, expected in list(zip(spoiled.report["power_curve"], clean.report["power_curve"]))[:6]:
        assert row["roughness"] == pytest.approx(expected["roughness"], rel=0.05)
        assert row["effective_rank"] == pytest.approx(expected["effective_rank"], rel=0.05)


def gpe_warning():
    from scalable_gpe.errors import ConnectivityWarning

    return ConnectivityWarning


def test_digits_are_best_near_the_chosen_power():
    """Agreement of labels among the 10 nearest: within a point of the best power, for several dimensions."""
    from sklearn.datasets import load_digits
    from sklearn.neighbors import NearestNeighbors

    digits = load_digits()
    X, labels = digits.data.astype(np.float32), digits.target
    powers = [2**j for j in range(9)]
    for k in (8, 32):
        every = gpe.embed(X, power=powers, n_components=k).points
        chosen = gpe.embed(X, power="auto", n_components=k).report["power"]
        agreement = {}
        for power in powers:
            near = NearestNeighbors(n_neighbors=10).fit(every[power]).kneighbors(return_distance=False)
            agreement[power] = (labels[near] == labels[:, None]).mean()
        assert agreement[chosen] > max(agreement.values()) - 0.015, (k, chosen, agreement)


def test_wrong_words():
    with pytest.raises(ValueError, match="power must be a whole number, 'all', several of them, or 'auto'"):
        gpe.embed(gpe.datasets.circle(50), power="best")
    assert gpe.estimate(10_000, 3, power="auto")["sweeps"] == gpe.estimate(10_000, 3, power=16)["sweeps"]
