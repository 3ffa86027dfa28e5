"""Wide rows in bytes: exact sums of whole numbers, used only where they rank neighbours well."""

import numba
import numpy as np
import pytest

import scalable_gpe as gpe
from scalable_gpe.execution.workers import Workers
from scalable_gpe.graph import parts
from scalable_gpe.graph.trees import in_bytes
from scalable_gpe.loops.vectors import BYTES_AT_ONCE, four_squares

ALONE = Workers(1)

N_FEATURES = 200


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def curved(rng, n_rows):
    latent = rng.standard_normal((n_rows, 8)) @ rng.standard_normal((8, N_FEATURES))
    return (np.tanh(latent) + 0.02 * rng.standard_normal(latent.shape)).astype(np.float32)


@numba.njit
def squares_of(Q, row, others):
    return four_squares(Q, row, others[0], others[1], others[2], others[3])


@pytest.mark.parametrize("n_features", [BYTES_AT_ONCE, 5 * BYTES_AT_ONCE])
def test_sums_of_squares_are_exact(rng, n_features):
    Q = rng.integers(-127, 128, (20, n_features)).astype(np.int8)
    Q[0], Q[1] = 127, -127
    expected = ((Q[[1, 2, 3, 0]].astype(np.int64) - Q[0]) ** 2).sum(axis=1)
    assert squares_of(Q, 0, np.array([1, 2, 3, 0])) == tuple(expected.astype(np.float32))


def test_bytes_keep_distances(rng):
    X = curved(rng, 500)
    rough = in_bytes(X, ALONE).astype(np.float64)
    pairs = rng.integers(0, 500, (1000, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    exact, found = (((Y[pairs[:, 0]] - Y[pairs[:, 1]]) ** 2).sum(axis=1) for Y in (X.astype(np.float64), rough))
    ratio = found / exact
    assert np.abs(ratio / np.median(ratio) - 1).max() < 0.02
    assert rough.shape[1] % BYTES_AT_ONCE == 0 and not rough[:, N_FEATURES:].any()


def test_the_same_bytes_for_any_number_of_threads(rng):
    X = curved(rng, 500)
    with Workers(3) as team:
        np.testing.assert_array_equal(in_bytes(X, team), in_bytes(X, ALONE))


def test_rows_that_need_more_than_a_byte(rng):
    X = curved(rng, 500)
    groups = 1e-4 * X + np.repeat(np.arange(5), 100)[:, None].astype(np.float32)
    assert in_bytes(groups, ALONE) is None  # tight and far apart
    assert in_bytes(np.ones_like(X), ALONE) is None
    assert in_bytes(np.zeros((3, 2**15 + 1), np.float32), ALONE) is None
    X[::10, 0] = 1e6
    assert in_bytes(X, ALONE) is None


def test_lists_are_as_good_as_with_floats(rng, monkeypatch):
    X = curved(rng, 3000)
    exact = gpe.neighbor_graph(X, 10, method="brute")
    asked = []
    monkeypatch.setattr(parts, "in_bytes", lambda *given: asked.append(in_bytes(*given)) or asked[-1])
    in_whole_numbers = gpe.neighbor_graph(X, 10, method="cells", recall=0.99)
    assert asked and all(one is not None for one in asked)
    monkeypatch.setattr(parts, "in_bytes", lambda *given: None)
    in_floats = gpe.neighbor_graph(X, 10, method="cells", recall=0.99)
    recalls = [
        np.mean(np.asarray(one.distances) <= np.asarray(exact.distances)[:, -1:] * (1 + 1e-6))
        for one in (in_whole_numbers, in_floats)
    ]
    assert min(recalls) > 0.98 and recalls[0] > recalls[1] - 0.005
