"""Few components warn once, with the error of a distance and the ways out."""

import warnings

import numpy as np
import pytest

import scalable_gpe as gpe
from scalable_gpe.sketch.gaussian_process import warn_of_few

FEW = "distances in"


def messages(make):
    """Warnings of three calls about few components, in a process that has seen none."""
    warn_of_few.cache_clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            make()
    return [one for one in caught if str(one.message).startswith(FEW)]


@pytest.fixture(scope="module")
def heat():
    return gpe.embed(gpe.datasets.torus(300), n_components=8, power=4, progress=False).heat


def test_few_components_warn_once(heat):
    X = gpe.datasets.torus(300)
    for make in (
        lambda: gpe.embed(X, n_components=4, power=4, progress=False),
        lambda: gpe.gp_embedding(heat, 4, power=4),
        lambda: gpe.GaussianProcessEmbedding(n_components=4, power=4, progress=False).fit(X),
    ):
        (one,) = messages(make)
        assert one.category is gpe.errors.GPEWarning and one.filename == __file__
        text = str(one.message)
        assert "in 4 dimensions have a relative error of 35%" in text  # sqrt(2/4) / 2
        assert "n_sketch=128" in text and "first two columns" in text


def test_the_error_in_the_warning_is_the_measured_one(heat):
    """Distances of 4 columns scatter by about 35 % around those of very many."""
    points = np.asarray(gpe.gp_embedding(heat, 2000, power=4), np.float64)
    first, second = np.random.default_rng(0).integers(0, 300, (2, 400))
    apart = first != second
    wide = np.linalg.norm(points[first] - points[second], axis=1)[apart]
    few = [points[:, 4 * i : 4 * i + 4] * np.sqrt(2000 / 4) for i in range(100)]
    ratios = np.stack([np.linalg.norm(one[first] - one[second], axis=1)[apart] / wide for one in few])
    assert ratios.std() == pytest.approx(np.sqrt(2 / 4) / 2, rel=0.1)


def test_enough_components_do_not_warn(heat):
    X = gpe.datasets.torus(300)
    assert not messages(lambda: gpe.gp_embedding(heat, 8, power=4))
    assert not messages(lambda: gpe.gp_embedding(heat, 2, power=4, n_sketch=32))
    assert not messages(lambda: gpe.DiffusionMap(n_components=2, progress=False).fit(X))
