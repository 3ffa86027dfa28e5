"""The descent: distances with the same bits everywhere, lists that do not depend on threads, what is not compared."""

from functools import partial

import numpy as np
import pytest
from numba import njit

from scalable_gpe.execution.workers import Workers
from scalable_gpe.graph import descent
from scalable_gpe.graph.descent import Labels, SortedLists, descend, listed_rows, start_lists
from scalable_gpe.graph.parts import seed_of
from scalable_gpe.loops import descent as loops
from scalable_gpe.loops.vectors import exact_square, four_squares

ALONE = Workers(1)


@njit
def all_squares(X, order):
    out = np.empty((len(X), len(X)), np.float32)
    for row in range(len(X)):
        for t in range(0, len(X), 4):
            a, b, c, d = order[t], order[t + 1], order[t + 2], order[t + 3]
            out[row, a], out[row, b], out[row, c], out[row, d] = four_squares(X, row, a, b, c, d)
    return out


@pytest.fixture
def rng():
    return np.random.default_rng(2)


@pytest.mark.parametrize("n_features", [1, 2, 3, 4, 5, 15, 16, 17, 19, 20, 50, 64, 100, 301])
def test_squared_distances_have_the_same_bits_in_any_order(n_features, rng):
    X = rng.standard_normal((24, n_features)).astype(np.float32)
    squares = all_squares(X, np.arange(24))
    np.testing.assert_array_equal(squares, squares.T)
    np.testing.assert_array_equal(squares, all_squares(X, rng.permutation(24)))
    exact = ((X[:, None].astype(float) - X) ** 2).sum(axis=2)
    np.testing.assert_allclose(squares, exact, rtol=2e-6)


@njit
def all_exact_squares(X):
    out = np.empty((len(X), len(X)))
    for row in range(len(X)):
        for other in range(len(X)):
            out[row, other] = exact_square(X, row, other)
    return out


@pytest.mark.parametrize("n_features", [1, 3, 17, 50, 301])
def test_exact_squared_distances(n_features, rng):
    X = (rng.standard_normal((24, n_features)) + 100).astype(np.float32)
    squares = all_exact_squares(X)
    np.testing.assert_array_equal(squares, squares.T)
    np.testing.assert_allclose(squares, ((X[:, None].astype(float) - X) ** 2).sum(axis=2), rtol=1e-14)


def random_lists(X, length, rng):
    others = rng.integers(len(X), size=(len(X), length)).astype(np.int32)
    others[others == np.arange(len(X))[:, None]] = -1
    return start_lists(X, np.empty((len(X), 0), np.int32), others, length, ALONE)


def copied(lists):
    return SortedLists(lists.entries.copy(), lists.reach.copy())


def neighbors(X, k):
    squares = ((X[:, None].astype(float) - X) ** 2).sum(axis=2)
    np.fill_diagonal(squares, np.inf)
    return np.argsort(squares, axis=1)[:, :k]


def test_lists_begin_sorted_without_repeats(rng):
    X = rng.standard_normal((300, 7)).astype(np.float32)
    known = np.full((300, 6), -1, np.int32)
    known[:, 1] = (np.arange(300) + 1) % 300
    found = np.stack([(np.arange(300) + step) % 300 for step in (2, 1, 2, 5)], axis=1).astype(np.int32)
    lists = start_lists(X, known, found, 9, ALONE)
    rows = listed_rows(lists.entries, ALONE)
    assert (np.diff(lists.entries.astype(float), axis=1) >= 0).all()
    assert (np.sort(rows, axis=1)[:, -3:] == np.sort((np.arange(300)[:, None] + [1, 2, 5]) % 300, axis=1)).all()
    assert (rows[:, 3:] == -1).all() and (rows[:, :3] >= 0).all()
    is_new = (lists.entries[:, :3] & np.uint64(1)).astype(bool)
    np.testing.assert_array_equal(is_new, rows[:, :3] != known[:, 1:2])


def test_finds_the_neighbours_from_random_lists(rng):
    X = rng.standard_normal((1500, 4)).astype(np.float32)
    lists = random_lists(X, 16, rng)
    descend(X, Labels(1500), lists, 16, 0.002, partial(seed_of, 0), ALONE)
    np.testing.assert_array_equal(lists.reach, lists.entries[:, -1] >> np.uint64(32))
    rows = listed_rows(lists.entries, ALONE)
    assert (rows != np.arange(1500)[:, None]).all()
    assert all(len(set(row)) == 16 for row in rows.tolist())
    found = np.mean([len(np.intersect1d(a, b)) for a, b in zip(rows[:, :10], neighbors(X, 10), strict=True)]) / 10
    assert found > 0.97


@pytest.mark.parametrize("n_sent", [0, 2**19])
def test_lists_do_not_depend_on_threads(n_sent, rng, monkeypatch):
    monkeypatch.setattr(descent, "_SENT", n_sent)  # 0: every range waits several times for its entries to arrive
    X = rng.standard_normal((3000, 12)).astype(np.float32)
    begin = random_lists(X, 20, rng)
    results = []
    for n_threads in (1, 2, 5):
        lists = copied(begin)
        with Workers(n_threads) as team:
            descend(X, Labels(3000), lists, 12, 0.002, partial(seed_of, 3), team)
        results.append(lists.entries)
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])
    assert not np.array_equal(results[0], begin.entries)


def test_rows_with_a_label_in_common_are_not_compared(rng):
    X = rng.standard_normal((400, 3)).astype(np.float32)
    begin = random_lists(X, 12, rng)
    for fill in range(4):  # the label that all rows share is in any of the four fields
        labels, lists = Labels(400), copied(begin)
        for _ in range(fill):
            labels.add(np.arange(400))
        labels.add(np.full(400, 7))
        descend(X, labels, lists, 12, 0.002, partial(seed_of, 0), ALONE)
        np.testing.assert_array_equal(listed_rows(lists.entries, ALONE), listed_rows(begin.entries, ALONE))
    labels, lists = Labels(400), copied(begin)
    labels.add(np.arange(400) // 200)
    descend(X, labels, lists, 12, 0.002, partial(seed_of, 0), ALONE)
    fresh = [
        set(new) - set(old)
        for new, old in zip(*(listed_rows(x.entries, ALONE).tolist() for x in (lists, begin)), strict=True)
    ]
    assert any(fresh)
    assert all(other // 200 != row // 200 for row, others in enumerate(fresh) for other in others)


def test_samples_hold_candidates_once_and_all_of_them_if_they_are_few(rng):
    X = rng.standard_normal((500, 5)).astype(np.float32)
    known = rng.integers(500, size=(500, 4)).astype(np.int32)
    found = rng.integers(500, size=(500, 6)).astype(np.int32)
    for others in (known, found):
        others[others == np.arange(500)[:, None]] = -1
    entries = start_lists(X, known, found, 10, ALONE).entries
    rows, is_new = listed_rows(entries, ALONE), entries & np.uint64(1) == 1
    n_sampled = 8
    samples, n_samples = np.empty((1000, n_sampled), np.uint32), np.empty(1000, np.uint8)
    highest = np.empty((500, 2), np.uint32)
    for first, last in ((0, 200), (200, 500)):
        loops.choose_tickets(entries, first, last, 2 * n_sampled, highest)
    for first, last in ((0, 350), (350, 500)):
        loops.sample_entries(entries, first, last, np.uint64(5), highest, samples, n_samples)
    n_full = 0
    for row in range(500):
        for new in range(2):
            wanted = (rows >= 0) & (is_new == bool(new))
            candidates = set(rows[row, wanted[row]]) | set(np.flatnonzero((wanted & (rows == row)).any(axis=1)))
            sample = samples[2 * row + new, : n_samples[2 * row + new]].tolist()
            assert len(set(sample)) == len(sample) and set(sample) <= candidates
            n_full += len(sample) == n_sampled
            if new and len(candidates) <= n_sampled:
                assert set(sample) == candidates
    assert n_full > 100
