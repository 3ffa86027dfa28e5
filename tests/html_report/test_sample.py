"""The rows of a page: a random sample that fits, whose colours belong to it."""

import base64

import numpy as np
import pytest

import scalable_gpe as gpe
from scalable_gpe.html_report import MAX_POWERS, sampled_explorer, spread


@pytest.fixture(scope="module")
def result():
    return gpe.embed(gpe.datasets.torus(2000, noise=0.05), n_components=4, power=[4, 64], progress=False)


def test_a_sample_is_random_and_its_colours_belong_to_it(result, monkeypatch):
    monkeypatch.setattr("scalable_gpe.html_report._MAX_BYTES", 30_000)
    explorer = sampled_explorer(result, color=np.arange(2000.0))
    rows = explorer.rows
    assert 100 < len(rows) < 2000 and len(set(rows)) == len(rows)
    assert (explorer.color.values == rows).all() and abs(rows.mean() - 1000) < 200
    for one, points in zip(explorer.views, result.points.values(), strict=True):
        low, high = one["low"][3], one["high"][3]
        steps = np.frombuffer(base64.b64decode(one["columns"][3]), "<u2")
        component = low + steps / 65535 * (high - low)
        expected = np.clip(np.asarray(points)[rows, 0], low, high)
        np.testing.assert_allclose(component, expected, atol=np.ptp(expected) / 1e3)


def test_many_powers_are_spread():
    assert spread(range(5)) == [0, 1, 2, 3, 4]
    chosen = spread(range(100))
    assert len(chosen) == MAX_POWERS and chosen[0] == 0 and chosen[-1] == 99


def test_grey_labels_are_drawn_first(result):
    explorer = sampled_explorer(result, color=np.arange(2000).astype(str))
    assert explorer.color.labels[-1] == "other (1,900 labels)" and len(explorer.color.labels) == 101
    assert (explorer.color.values[:1900] == 100).all() and (np.diff(explorer.rows[:1900]) < 0).any()
