"""Quality of the defaults: labels of the nearest rows agree, on digits, on uneven data and on Fashion-MNIST."""

import runpy
from pathlib import Path

import numpy as np
import pytest

import scalable_gpe as gpe

FASHION = Path("/usr/share/datasets/fashion-mnist")
EXAMPLE = Path(__file__).parents[1] / "examples" / "fashion_mnist.py"


def agreement(points, labels, rows):
    from sklearn.neighbors import NearestNeighbors

    near = NearestNeighbors(n_neighbors=11).fit(points).kneighbors(points[rows], return_distance=False)
    return (labels[near[:, 1:]] == labels[rows][:, None]).mean()


def test_digits_and_clusters_of_uneven_width():
    from sklearn.datasets import load_digits

    X, labels = load_digits(return_X_y=True)
    every = np.arange(len(X))
    assert agreement(gpe.embed(X).points, labels, every) > agreement(X, labels, every)

    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, 2000)
    widths, centres = np.geomspace(0.01, 3, 10), 4 * rng.standard_normal((10, 10))
    X = centres[labels] + widths[labels][:, None] * rng.standard_normal((2000, 10))
    assert agreement(gpe.embed(X).points, labels, np.arange(2000)) > 0.99


@pytest.mark.slow
@pytest.mark.skipif(not FASHION.exists() or not EXAMPLE.exists(), reason="Fashion-MNIST or the example is not there")
def test_fashion_mnist_with_defaults():
    """At least as good as diffusion maps of the same kernel, and within four points of the images at k = 32."""
    X, labels = runpy.run_path(str(EXAMPLE))["load"](FASHION)
    rows = np.random.default_rng(0).choice(len(X), 5000, replace=False)
    result = gpe.embed(X, n_components=32, progress=False)
    coordinates, _ = gpe.diffusion_map(result.heat, 32)
    for k in (8, 16, 32):
        ours = agreement(result.points[:, :k], labels, rows)
        assert ours > agreement(coordinates[:, :k], labels, rows) + 0.01
    assert ours > agreement(X, labels, rows) - 0.04
