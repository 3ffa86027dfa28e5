"""Pictures by datashader: the same points in the same places, and labels mixed where they overlap."""

import sys

import numpy as np
import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("datashader")

from scalable_gpe import plot
from scalable_gpe.colors import label_colors
from scalable_gpe.plot import embeddings


def picture(ax):
    ax.figure.canvas.draw()
    (image,) = ax.get_images()
    return np.asarray(image.get_array())


def corners():
    """Half of the points at the lower left, the others at the upper right."""
    draw = np.random.default_rng(0)
    upper = np.arange(4000) % 2
    return (draw.normal(0, 0.1, (4000, 2)) + 3 * upper[:, None]).astype(np.float32), upper


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("kind", ["none", "labels", "numbers"])
def test_points_are_where_they_belong(kind, theme):
    points, upper = corners()
    color = {"none": None, "labels": upper, "numbers": np.linspace(0, 1, 4000)}[kind]
    ax = plot.scatter(points, color=color, engine="datashader", theme=theme)
    image = picture(ax)
    half = len(image) // 2
    opaque = image[..., 3] > 0
    assert opaque[:half, :half].any() and opaque[half:, half:].any()
    assert not opaque[:half, half:].any() and not opaque[half:, :half].any()
    if kind == "labels":
        first, second = (np.array([int(one[i : i + 2], 16) for i in (1, 3, 5)]) for one in label_colors(2, theme))
        assert np.abs(np.median(image[:half][opaque[:half]][:, :3], axis=0) - first).max() <= 2
        assert np.abs(np.median(image[half:][opaque[half:]][:, :3], axis=0) - second).max() <= 2


def test_labels_that_share_a_pixel_are_mixed():
    points = np.repeat(np.float32([[0, 0], [1, 1]]), 3000, axis=0)
    labels = np.r_[np.arange(3000) % 2, np.ones(3000, int)]
    image = picture(plot.scatter(points, color=labels, engine="datashader"))
    shown = np.unique(image[image[..., 3] > 0][:, :3], axis=0).astype(int)
    first, second = (np.array([int(one[i : i + 2], 16) for i in (1, 3, 5)]) for one in label_colors(2))
    mixed = (first + second) / 2
    assert np.abs(shown - second).max(axis=1).min() <= 2
    assert np.abs(shown - mixed).max(axis=1).min() <= 3


def test_it_draws_very_many_points_by_itself(monkeypatch):
    monkeypatch.setattr(embeddings, "_MANY", 4000)
    points, upper = corners()
    assert picture(plot.scatter(points, color=upper)).ndim == 3
    assert not plot.scatter(points, color=upper, engine="matplotlib").get_images()
    monkeypatch.setattr(embeddings, "has_datashader", lambda: False)
    assert not plot.scatter(points, color=upper).get_images()


def test_a_density_in_colours_of_its_own_has_no_scale():
    points, _ = corners()
    assert len(plot.scatter(points, engine="datashader").figure.axes) == 1


def test_mistakes(monkeypatch):
    points, _ = corners()
    with pytest.raises(ValueError, match="engine must be"):
        plot.scatter(points, engine="paint")
    monkeypatch.setitem(sys.modules, "datashader", None)
    with pytest.raises(ImportError, match=r"scalable-gpe\[datashader\]"):
        plot.scatter(points, engine="datashader")
