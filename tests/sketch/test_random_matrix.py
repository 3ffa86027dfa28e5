"""The random matrix: known answers, the same numbers in any part, and the right distribution."""

import statistics
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import naive
from scalable_gpe import sketch_matrix
from scalable_gpe.loops import random as kernels

KINDS = ["gaussian", "bernoulli"]
ENTRY = {"gaussian": naive.gaussian_entry, "bernoulli": naive.bernoulli_entry}

# known answers of Random123 for philox4x32 with 10 rounds
KNOWN = [
    ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xA4093822, 0x299F31D0],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]

# (random_state, row, column) -> the number, to the last bit
GOLDEN = [
    (0, 0, 0, "0x1.2d769e93cb521p+0"),
    (0, 0, 1, "0x1.11fbd69d8e303p-2"),
    (1, 0, 0, "0x1.407827c9b8c2bp+0"),
    (7, 8589934597, 3, "-0x1.0adc55b36f93dp-4"),
    (18446744073709551615, 12, 40, "0x1.0b31106482c39p+0"),
]


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN)
def test_philox_known_answers(counter, key, answer):
    assert naive.philox(counter, key) == answer
    words = kernels.philox(*(np.uint64(word) for word in counter), np.uint64(key[0] | key[1] << 32))
    assert [int(word) for word in words] == [answer[0] | answer[1] << 32, answer[2] | answer[3] << 32]


@pytest.mark.parametrize(("seed", "row", "column", "value"), GOLDEN)
def test_golden_normals(seed, row, column, value):
    got = sketch_matrix(2**40, 64, random_state=seed, rows=[row], columns=[column]).item()
    assert got.hex() == value


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [0, 123, 2**63 + 9])
def test_entries_equal_the_oracle_to_the_last_bit(kind, seed):
    """Equal bits: the compiled loops contain no fused multiply-add and no library function."""
    rows, columns = [0, 1, 999, 2**32, 2**40 + 3], [0, 1, 2, 63, 64, 127, 128, 301]
    got = sketch_matrix(2**41, 400, kind=kind, random_state=seed, rows=rows, columns=columns)
    assert got.tolist() == [[ENTRY[kind](seed, row, column) for column in columns] for row in rows]


def test_normals_equal_the_inverse_distribution_function():
    words = [0, 1 << 11, 2**20, 2**50, 2**60, 2**63 - 1, 2**63, 2**63 + 2**61, 2**64 - 1]
    rng = np.random.default_rng(0)
    words += [int(word) for word in rng.integers(0, 2**64, 2000, dtype=np.uint64)]
    q = np.array([kernels.centred_uniform(np.uint64(word)) for word in words])
    out = np.empty_like(q)
    kernels.normals(q, out)
    assert np.isfinite(out).all()
    lower = q < 0
    reference = [statistics.NormalDist().inv_cdf(0.5 + value) for value in q[lower]]
    np.testing.assert_allclose(out[lower], reference, rtol=1e-13)


def test_normals_are_symmetric():
    q = np.array([kernels.centred_uniform(np.uint64(word)) for word in (5 << 11, 2**64 - 1 - (5 << 11))])
    out = np.empty(2)
    kernels.normals(q, out)
    assert out[0] == -out[1] != 0


parts = st.one_of(
    st.none(),
    st.lists(st.integers(0, 39), max_size=6),
    st.builds(slice, st.integers(-50, 50), st.integers(-50, 50), st.sampled_from([None, 1, 3, -2])),
)


@settings(max_examples=60, deadline=None)
@given(rows=parts, columns=parts, kind=st.sampled_from(KINDS), seed=st.integers(0, 2**64 - 1))
def test_a_part_has_the_numbers_of_the_whole(rows, columns, kind, seed):
    whole = sketch_matrix(40, 40, kind=kind, random_state=seed)
    part = sketch_matrix(40, 40, kind=kind, random_state=seed, rows=rows, columns=columns)
    keep = [
        slice(None) if one is None else np.array(one, int) if isinstance(one, list) else one for one in (rows, columns)
    ]
    assert (part == whole[keep[0]][:, keep[1]]).all()
    assert part.shape == whole[keep[0]][:, keep[1]].shape


def test_normal_distribution():
    n = 200_000
    values = sketch_matrix(n // 20, 20, random_state=21).ravel()
    assert stats.kstest(values, "norm").pvalue > 0.01
    assert abs(values.mean()) < 4 / np.sqrt(n)
    assert abs(values.var() - 1) < 4 * np.sqrt(2 / n)
    assert abs((values**4).mean() - 3) < 4 * np.sqrt(96 / n)


def test_signs_are_fair():
    n = 200_000
    values = sketch_matrix(n // 20, 20, kind="bernoulli", random_state=21)
    assert set(np.unique(values)) == {-1.0, 1.0}
    assert abs(values.mean()) < 4 / np.sqrt(n)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_columns_and_seeds_are_uncorrelated(kind):
    n, k = 20_000, 24
    G = sketch_matrix(n, k, kind=kind, random_state=22)
    bound = 5 / np.sqrt(n)
    correlation = G.T @ G / n
    assert np.abs(correlation - np.diag(np.diag(correlation))).max() < bound
    assert np.abs((G[1:] * G[:-1]).mean(axis=0)).max() < bound
    other = sketch_matrix(n, k, kind=kind, random_state=23)
    assert np.abs((G * other).mean(axis=0)).max() < bound


def test_squares_of_neighbouring_columns_are_independent():
    """Two columns share a call of the generator; a mistake as in Box-Muller pairs would show here."""
    n = 50_000
    G = sketch_matrix(n, 2, random_state=24) ** 2 - 1
    assert abs((G[:, 0] * G[:, 1]).mean()) < 5 * 2 / np.sqrt(n)


def test_threads_fill_the_same_numbers():
    out = np.empty((4000, 16))
    rows, columns = np.arange(4000), np.arange(16)
    threads = [
        threading.Thread(target=kernels.fill_gaussian, args=(out[i::4], rows[i::4], columns, np.uint64(5)))
        for i in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (out == sketch_matrix(4000, 16, random_state=5)).all()


def test_random_state_may_be_a_generator_or_none():
    a, b = (sketch_matrix(5, 3, random_state=np.random.default_rng(1)) for _ in range(2))
    assert (a == b).all()
    rng = np.random.default_rng(1)
    assert (sketch_matrix(5, 3, random_state=rng) != sketch_matrix(5, 3, random_state=rng)).any()
    assert (sketch_matrix(5, 3, random_state=None) != sketch_matrix(5, 3, random_state=None)).any()


@pytest.mark.parametrize(
    ("arguments", "keywords", "error", "words"),
    [
        ((0, 3), {}, ValueError, "n_rows must be at least 1"),
        ((3, 0), {}, ValueError, "n_components must be at least 1"),
        ((3.0, 3), {}, TypeError, "n_rows must be a whole number"),
        ((3, True), {}, TypeError, "n_components must be a whole number"),
        ((3, 2**33), {}, ValueError, "n_components must be at most"),
        ((3, 3), {"kind": "uniform"}, ValueError, "kind must be one of 'gaussian', 'bernoulli'; got 'uniform'"),
        ((3, 3), {"kind": None}, TypeError, "kind must be one of"),
        ((3, 3), {"random_state": -1}, ValueError, "random_state must be at least 0"),
        ((3, 3), {"random_state": 2**64}, ValueError, "random_state must be at most"),
        ((3, 3), {"random_state": "zero"}, TypeError, "random_state must be a whole number"),
        ((3, 3), {"rows": [0, 3]}, ValueError, "rows must lie between 0 and 2; got 3"),
        ((3, 3), {"columns": [-1]}, ValueError, "columns must lie between 0 and 2; got -1"),
        ((3, 3), {"rows": [True, False, True]}, TypeError, "rows must be a slice.*flatnonzero"),
        ((3, 3), {"rows": [[0]]}, TypeError, "rows must be a slice"),
        ((3, 3), {"rows": [0.5]}, TypeError, "rows must be a slice"),
    ],
)
def test_bad_input(arguments, keywords, error, words):
    with pytest.raises(error, match=words):
        sketch_matrix(*arguments, **keywords)
