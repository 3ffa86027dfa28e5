"""Quantiles by counting, against numpy's."""

import numpy as np
import pytest

from scalable_gpe.storage.mapped import MappedBytes, mapped
from scalable_gpe.storage.quantiles import quantiles

SHARES = (0.0, 0.01, 0.3, 0.5, 0.99, 1.0)


def cases():
    rng = np.random.default_rng(0)
    yield "spread", rng.lognormal(0, 20, 5001)
    yield "near each other", 1 + 1e-6 * rng.random(1000)
    yield "equal", np.full(77, 3.5)
    yield "one", np.array([2.0])
    yield "many zeros", np.where(rng.random(4000) < 0.7, 0, rng.random(4000))
    yield "tiny", rng.random(500) * 1e-42
    yield "more than one step", rng.random(2**18 + 1000)


@pytest.mark.parametrize(("name", "values"), [pytest.param(*case, id=case[0]) for case in cases()])
def test_those_of_numpy(name, values):
    values = values.astype(np.float32)
    np.testing.assert_allclose(quantiles(values, SHARES), np.quantile(values.astype(np.float64), SHARES), rtol=1e-12)
    expected = np.quantile(values[values > 0].astype(np.float64), SHARES)
    np.testing.assert_allclose(quantiles(values, SHARES, positive=True), expected, rtol=1e-12)


def test_no_copy_of_a_mapped_array(tmp_path, monkeypatch):
    """Nothing that numpy makes is as long as the array."""
    values = mapped.empty(str(tmp_path), (2**21,), np.float32, MappedBytes(2**20, 2**40))
    values[:] = np.arange(2**21)
    longest, counted = [], np.bincount

    def bincount(part, **given):
        longest.append(len(part))
        return counted(part, **given)

    monkeypatch.setattr(np, "bincount", bincount)
    np.testing.assert_array_equal(quantiles(values, (0.0, 0.5, 1.0)), [0, (2**21 - 1) / 2, 2**21 - 1])
    assert max(longest) <= 2**18
