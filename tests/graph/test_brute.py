"""The exact search: the k best by (squared distance, row number), however many rows are searched together."""

import itertools

import numpy as np
import pytest

from scalable_gpe.graph.exact import AllPairs


def _grid(n_features):
    return np.array(list(itertools.product(range(7), repeat=n_features)), np.float32)


def _clusters(rng):
    centres = rng.choice([-1000, 1000], (40, 12))
    return (centres[rng.integers(0, 40, 2500)] + 1e-3 * rng.standard_normal((2500, 12))).astype(np.float32)


def _best(X, row, n_neighbors):
    squares = ((X.astype(np.float64) - X[row].astype(np.float64)) ** 2).sum(axis=1).astype(np.float32)
    squares[row] = np.inf
    return np.lexsort((np.arange(len(X)), squares))[:n_neighbors]


@pytest.mark.parametrize("kind", ["gaussian", "grid", "clusters", "shifted"])
@pytest.mark.parametrize("n_neighbors", [1, 12, 100])
def test_the_best_by_distance_and_row_number(kind, n_neighbors):
    rng = np.random.default_rng(0)
    gaussian = rng.standard_normal((2300, 10)).astype(np.float32)
    X = {"gaussian": gaussian, "grid": _grid(4), "clusters": _clusters(rng), "shifted": gaussian + 100}[kind]
    rows = rng.choice(len(X), 50, replace=False)
    found = AllPairs(X, n_neighbors).neighbors(rows)
    # sums of squares in another order may round otherwise: such pairs may change places
    for row, neighbors in zip(rows, found):
        squares = [
            ((X[row].astype(np.float64) - X[one].astype(np.float64)) ** 2).sum(axis=1)
            for one in (neighbors, _best(X, row, n_neighbors))
        ]
        np.testing.assert_allclose(*squares, rtol=3e-7)
        assert len(set(neighbors)) == n_neighbors and row not in neighbors
    if kind == "grid":  # sums of small integers are exact
        np.testing.assert_array_equal(found, [_best(X, row, n_neighbors) for row in rows])


@pytest.mark.parametrize("X", [_grid(4), np.random.default_rng(1).random((3000, 5), np.float32)], ids=["grid", "cube"])
def test_the_same_lists_alone_and_together(X):
    search = AllPairs(X, 9)
    rows = np.arange(0, len(X), 7)
    together = search.neighbors(rows)
    np.testing.assert_array_equal(
        together, np.concatenate([search.neighbors(rows[i : i + 1]) for i in range(len(rows))])
    )
    np.testing.assert_array_equal(together[::-1], search.neighbors(rows[::-1]))
