"""Pictures label what they show, at any size, and a few far rows do not spoil them."""

import ast
import sys
from pathlib import Path

import numpy as np
import pytest

import scalable_gpe as gpe

pytest.importorskip("matplotlib")

from scalable_gpe import plot, projection
from scalable_gpe.plot.figures import new_figure
from scalable_gpe.plot.shades import palette


@pytest.fixture(scope="module")
def cloud():
    """Many points on a ring, ten of them very far away, and a column to colour them by."""
    angle = np.random.default_rng(0).uniform(0, 2 * np.pi, 20_000)
    points = np.stack([np.cos(angle), np.sin(angle), 0.1 * angle], axis=1).astype(np.float32)
    points[:10] *= 1000
    return points, angle


@pytest.fixture(scope="module")
def embedding():
    return gpe.embed(gpe.datasets.torus(800), n_components=4, power=[4, 16], progress=False)


def drawn(figure):
    """Draw for real: mistakes in the layout show up here."""
    figure.canvas.draw()
    return np.asarray(figure.canvas.buffer_rgba())


def test_density_is_not_ruined_by_far_points(cloud):
    ax = plot.scatter(cloud[0])
    assert ax.get_xlabel() == "component 0" and ax.get_ylabel() == "component 1"
    assert ax.get_title() == "20,000 points"
    assert np.abs([ax.get_xlim(), ax.get_ylim()]).max() < 1.5
    assert [text.get_text() for text in ax.texts] == ["10 points outside"]
    (image,) = ax.get_images()
    assert image.get_array().sum() == 20_000 - 10
    assert drawn(ax.figure).std() > 5


@pytest.mark.parametrize("kind", ["numbers", "labels", "texts", "missing"])
@pytest.mark.parametrize("n_rows", [2_000, 20_000])
def test_colours(cloud, kind, n_rows):
    points, angle = cloud[0][:n_rows], cloud[1][:n_rows]
    column = {
        "numbers": angle,
        "labels": (angle // 1).astype(int),
        "texts": np.where(angle > 3, "left", "right"),
        "missing": np.where(angle > 3, np.nan, angle),
    }[kind]
    ax = plot.scatter(points, color=column, color_label="angle")
    drawn(ax.figure)
    if kind in ("labels", "texts"):
        legend = ax.get_legend()
        assert legend.get_title().get_text() == "angle"
        assert [text.get_text() for text in legend.get_texts()] == [str(one) for one in np.unique(column)]
    else:
        assert ax.figure.axes[1].get_ylabel() == "angle"


def test_pixels_show_the_most_frequent_label():
    points = np.repeat(np.float32([[0, 0], [1, 1]]), [6000, 6000], axis=0)
    labels = np.r_[np.repeat([0, 1], [4000, 2000]), np.repeat([1, 0], [4000, 2000])]
    ax = plot.scatter(points, color=labels)
    image = np.asarray(ax.get_images()[0].get_array())
    shown = image[image[..., 3] > 0][:, :3]
    np.testing.assert_allclose(shown, palette(2))


def test_principal_axes_turn_the_points(cloud):
    points = cloud[0][10:]
    found = projection.project(points, "principal")
    assert found.names == ("principal axis 1", "principal axis 2")
    centred = points - points.mean(axis=0)
    best = np.linalg.svd(centred, compute_uv=False)[:2]
    np.testing.assert_allclose(np.linalg.norm(found.points - found.points.mean(axis=0), axis=0), best, rtol=1e-2)


def test_embeddings_of_several_powers(embedding):
    assert plot.scatter(embedding).get_title() == "800 points, power 16"
    assert plot.scatter(embedding, power=4).get_title() == "800 points, power 4"
    figure = plot.powers(embedding)
    assert [ax.get_title() for ax in figure.axes] == ["power 4", "power 16"]
    drawn(figure)


def test_stored_points(tmp_path):
    result = gpe.embed(gpe.datasets.torus(300), n_components=3, power=4, store=tmp_path / "s.zarr", progress=False)
    assert plot.scatter(result, components=(2, 0)).get_xlabel() == "component 2"


def test_epsilon_sweep(embedding):
    table = gpe.epsilon_sweep(embedding.graph)
    ax = plot.epsilon_sweep(table, epsilon=embedding.kernel.epsilon)
    drawn(ax.figure)
    assert "epsilon" in ax.get_xlabel()
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert len(texts) == 5 and any("lost mass" in text for text in texts)


def test_spectrum(embedding):
    ax = plot.spectrum(gpe.spectrum(embedding.heat, n_steps=16), n_components=4)
    drawn(ax.figure)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("power p", "effective rank")
    assert ax.get_xscale() == ax.get_yscale() == "log"


@pytest.mark.parametrize("n_rows", [12, 100, 3000, 20_000])
def test_a_few_isolated_rows_among_any_number(cloud, n_rows):
    points = cloud[0][10 : n_rows + 10].copy()
    n_far = 1 if n_rows < 200 else 8
    points[:n_far] *= np.linspace(50, 1000, n_far)[:, None]
    ax = plot.scatter(points)
    assert np.abs([ax.get_xlim(), ax.get_ylim()]).max() < 2
    assert [text.get_text() for text in ax.texts] == [f"{n_far} points outside".replace("1 points", "1 point")]


def test_three_components(cloud):
    points = np.concatenate([cloud[0], cloud[0] + 1])
    ax = plot.scatter(points, components=(0, 2, 1), color=np.tile(cloud[1], 2), color_label="angle")
    drawn(ax.figure)
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_zlabel()) == ("component 0", "component 2", "component 1")
    assert len(ax.collections[0].get_offsets()) == 20_000
    assert [text.get_text() for text in ax.texts] == ["20,000 of 40,000 points drawn, 20 points outside"]
    assert np.abs([ax.get_xlim(), ax.get_ylim(), ax.get_zlim()]).max() < 4
    with pytest.raises(ValueError, match="projection='3d'"):
        plot.scatter(points, components=(0, 1, 2), ax=new_figure(2, 2).add_subplot())


def test_many_powers_go_in_rows():
    result = gpe.embed(gpe.datasets.circle(200), n_components=2, power=[1, 2, 3, 4, 5, 6], progress=False)
    figure = plot.powers(result, components=(0, 1), color=np.array(["a", None] * 100, object))
    drawn(figure)
    assert [ax.get_title() for ax in figure.axes] == [f"power {power}" for power in range(1, 7)]
    assert len({round(ax.get_position().y0, 3) for ax in figure.axes}) == 2


def test_powers_in_three_dimensions(embedding):
    figure = plot.powers(embedding, components=(0, 1, 2), color=np.arange(800) % 3)
    drawn(figure)
    assert [ax.get_zlabel() for ax in figure.axes] == ["component 2", "component 2"]
    assert len(figure.legends) == 1


def test_audit(embedding):
    found = gpe.audit(embedding, n_probes=50, n_exact=6)
    figure = plot.audit(found)
    drawn(figure)
    left, right = figure.axes
    assert [text.get_text() for text in left.get_yticklabels()] == ["power 4", "power 16"]
    assert [text.get_text() for text in right.get_yticklabels()][:2] == ["recall", "mass kept"]
    values = [line.get_xdata()[0] for line in left.get_lines() if line.get_marker() == "D" and len(line.get_xdata())]
    assert values[0] == found["powers"][4]["sketch"]["median_error"]
    alone = gpe.embed(neighbors=(embedding.graph.indices, embedding.graph.distances), n_components=4, power=4)
    figure = plot.audit(gpe.audit(alone, n_exact=4))
    assert "not measured" in figure.axes[1].texts[0].get_text()


def test_mistakes(embedding, cloud):
    with pytest.raises(ValueError, match="power must be one of"):
        plot.scatter(embedding, power=5)
    with pytest.raises(ValueError, match="components must be below 3"):
        plot.scatter(cloud[0], components=(0, 3))
    with pytest.raises(ValueError, match="one value for each of the 20000 rows"):
        plot.scatter(cloud[0], color=[1, 2])
    with pytest.raises(ValueError, match="two or more columns"):
        plot.scatter(cloud[0][:, :1])
    with pytest.raises(ValueError, match="at most 20"):
        plot.scatter(cloud[0], color=np.arange(20_000).astype(str))


def test_without_matplotlib(monkeypatch, cloud):
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match="pip install"):
        plot.scatter(cloud[0])


def test_only_plot_imports_matplotlib():
    for path in Path(gpe.__file__).parent.rglob("*.py"):
        names = {
            (node.module if isinstance(node, ast.ImportFrom) else node.names[0].name) or ""
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.Import | ast.ImportFrom)
        }
        assert path.parent.name == "plot" or not any(name.startswith("matplotlib") for name in names)
