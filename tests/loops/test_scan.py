"""Tiles of four rows and 32 samples have the bits of the plain loop."""

import numpy as np
import pytest

from scalable_gpe.loops import scan


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def nearest(samples, block, n_keep=5):
    n_samples = samples.shape[1]
    squares = np.full((n_samples, n_keep), np.inf, np.float32)
    ids = np.full((n_samples, n_keep), -1, np.int64)
    histogram = np.zeros(scan.N_BINS, np.int64)
    nobody = np.full(n_samples, -1)
    scan.nearest_rows(samples, nobody, block, np.arange(len(block)), squares, ids, histogram)
    return squares, ids, histogram


@pytest.mark.parametrize("n_rows", [1, 4, 103])
def test_tiles_have_the_bits_of_the_plain_loop(rng, n_rows):
    block = rng.standard_normal((n_rows, 37)).astype(np.float32)
    samples = rng.standard_normal((37, 64)).astype(np.float32)
    tiled = nearest(samples, block)
    plain = [nearest(np.ascontiguousarray(part), block) for part in (samples[:, :31], samples[:, 31:])]
    np.testing.assert_array_equal(tiled[0], np.concatenate([part[0] for part in plain]))
    np.testing.assert_array_equal(tiled[1], np.concatenate([part[1] for part in plain]))
    np.testing.assert_array_equal(tiled[2], plain[0][2] + plain[1][2])
