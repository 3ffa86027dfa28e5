"""Tiles of four rows and 32 samples have the bits of a plain loop."""

import numpy as np
import pytest

from scalable_gpe.loops import points


@pytest.mark.parametrize("n_rows", [1, 4, 103])
def test_tiles_have_the_bits_of_a_plain_loop(n_rows):
    rng = np.random.default_rng(0)
    block = rng.standard_normal((n_rows, 37)).astype(np.float32)
    samples = rng.standard_normal((37, 64)).astype(np.float32)
    best, ids = np.full((50, 5), np.inf, np.float32), np.full((50, 5), -1, np.int64)
    points.nearest_rows(
        samples, np.full(50, -1), block, np.arange(n_rows), best, ids, np.zeros(points.N_BINS, np.int64)
    )
    squares = np.zeros((n_rows, 50), np.float32)
    for feature in range(37):
        squares += (block[:, feature, None] - samples[feature, :50]) ** 2
    n_found = min(5, n_rows)
    np.testing.assert_array_equal(best[:, :n_found], np.sort(squares, axis=0)[:n_found].T)
    np.testing.assert_array_equal(ids[:, :n_found], np.argsort(squares, axis=0, kind="stable")[:n_found].T)
