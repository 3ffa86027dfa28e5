"""Pictures label what they show, at any size, and a few far rows do not spoil them."""

import sys

import numpy as np
import pytest

import scalable_gpe as gpe

pytest.importorskip("matplotlib")

from scalable_gpe import plot, projection
from scalable_gpe.colors import color_column, label_colors
from scalable_gpe.plot import embeddings
from scalable_gpe.plot.figures import new_figure, picture_of


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


@pytest.fixture
def dense(monkeypatch):
    """Draw densities from 5,000 points on: a real one needs more than 100,000."""
    monkeypatch.setattr(embeddings, "_FEW", 5_000)


def rgb(colors):
    return np.array([[int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)] for color in colors])


def test_density_is_not_ruined_by_far_points(cloud, dense):
    ax = plot.scatter(cloud[0], components=(0, 1))
    assert ax.get_xlabel() == "component 0" and ax.get_ylabel() == "component 1"
    assert ax.get_title() == "20,000 points"
    assert np.abs([ax.get_xlim(), ax.get_ylim()]).max() < 1.5
    assert [text.get_text() for text in ax.texts] == ["10 points outside"]
    (image,) = ax.get_images()
    assert image.get_array().sum() == 20_000 - 10
    assert drawn(ax.figure).std() > 5


@pytest.mark.parametrize("kind", ["numbers", "labels", "texts", "missing"])
@pytest.mark.parametrize("n_rows", [2_000, 20_000])
def test_colours(cloud, kind, n_rows, dense):
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


def test_pixels_show_the_most_frequent_label(dense):
    points = np.repeat(np.float32([[0, 0], [1, 1]]), [6000, 6000], axis=0)
    labels = np.r_[np.repeat([0, 1], [4000, 2000]), np.repeat([1, 0], [4000, 2000])]
    ax = plot.scatter(points, color=labels)
    image = np.asarray(ax.get_images()[0].get_array())
    shown = image[image[..., 3] > 0][:, :3]
    np.testing.assert_allclose(shown, rgb(label_colors(2)))


def test_the_principal_plane_on_white_without_a_frame(cloud, embedding):
    ax = plot.scatter(embedding)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("principal axis 1", "principal axis 2")
    assert ax.get_facecolor() == ax.figure.get_facecolor() == (1, 1, 1, 1)
    assert [side for side, spine in ax.spines.items() if spine.get_visible()] == ["left", "bottom"]
    assert not len(ax.get_xticks()) and np.ptp(ax.get_xlim()) == pytest.approx(np.ptp(ax.get_ylim()))
    dark = plot.scatter(embedding, theme="dark")
    assert sum(dark.get_facecolor()[:3]) < 0.5 and sum(dark.figure.get_facecolor()[:3]) < 0.5
    assert drawn(dark.figure)[..., :3].mean() < 60 < 200 < drawn(ax.figure)[..., :3].mean()
    style = pytest.importorskip("matplotlib.style")
    with style.context("dark_background"):
        assert plot.scatter(embedding).figure.get_facecolor() == (1, 1, 1, 1)  # whatever the style of the user
    plane = plot.scatter(cloud[0][:, :2])  # drawn as it is
    assert plane.get_xlabel() == "component 0"


def test_no_label_hides_another():
    """Two labels at the same places: the last one drawn is each of them in about half of the places."""
    points = np.tile(np.random.default_rng(0).random((1000, 2), np.float32), (2, 1))
    column = np.repeat(["a", "b"], 1000)
    drawing = plot.scatter(points, coverage=1, color=column).collections[0]
    places, colors = np.asarray(drawing.get_offsets()), drawing.get_facecolors()[:, :3]
    _, last = np.unique(places[::-1], axis=0, return_index=True)
    is_first = np.isclose(colors[::-1][last], rgb(label_colors(1))).all(axis=1)
    assert 0.4 < is_first.mean() < 0.6
    again = plot.scatter(points, coverage=1, color=column).collections[0]
    assert (np.asarray(again.get_offsets()) == places).all()


def test_what_is_a_label():
    pandas = pytest.importorskip("pandas")
    assert color_column(np.arange(300) % 35, 300).labels[:3] == ("0", "1", "2")  # numbered as clusters are
    assert color_column(3 * (np.arange(300) % 35), 300).labels == ()  # counts, ages, years
    assert color_column([True, False], 2).labels == ("False", "True")
    assert color_column(["10", "2", "1"], 3).labels == ("1", "2", "10")
    assert color_column(np.array([b"x", b"y"]), 2).labels == ("x", "y")
    categorical = pandas.Categorical(["low", "high", None], categories=["low", "unused", "high"])
    for given in (categorical, pandas.Series(categorical)):
        found = color_column(given, 3)
        assert found.labels == ("low", "high", "missing") and found.values.tolist() == [0, 1, 2]
        assert found.n_grey == 1
    assert color_column(pandas.Series([1, None, 3], dtype="Int64"), 3).values.tolist()[::2] == [1, 3]
    assert color_column(np.array(["a", None, float("nan")], object), 3).labels == ("a", "missing")


@pytest.mark.parametrize(("n_labels", "n_rows"), [(21, 8_000), (60, 4_000), (3000, 8_000)])
def test_any_number_of_labels(cloud, n_labels, n_rows, dense):
    labels = np.char.add("group ", (np.arange(n_rows) % n_labels).astype(str))
    ax = plot.scatter(cloud[0][10 : n_rows + 10], color=labels)
    drawn(ax.figure)
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert len(texts) == min(n_labels, 61)
    assert (texts[-1] == "and 2,940 more") == (n_labels == 3000)
    assert len(set(label_colors(60))) == 60
    names = [text.get_text() for text in ax.texts if text.get_text().startswith("group")]
    assert len(names) == (n_labels if n_labels <= 60 else 0)  # where colours repeat, names are on the points


def test_rare_labels_are_joined(cloud):
    labels = np.repeat(["a", "b", "c", "d"], [500, 20, 400, 80])
    ax = plot.scatter(cloud[0][10:1010], color=labels, max_labels=2)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["a", "c", "other (2 labels)"]
    red, green, blue = ax.collections[0].get_facecolors()[0, :3]
    assert red == green == blue  # grey is drawn first
    with pytest.raises(ValueError, match="max_labels"):
        plot.scatter(cloud[0], color=labels, max_labels=0)


# Machado, Oliveira and Fernandes (2009), severity 1, for linear red, green and blue
PROTANOPIA = [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
DEUTERANOPIA = [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]


def in_cielab(colors, seen_through):
    linear = np.where(colors <= 0.04045, colors / 12.92, ((colors + 0.055) / 1.055) ** 2.4)
    linear = np.clip(linear @ np.transpose(seen_through), 0, 1)
    to_xyz = [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
    share = linear @ np.transpose(to_xyz) / [0.95047, 1.0, 1.08883]
    x, y, z = np.where(share > 0.008856, np.cbrt(share), 7.787 * share + 16 / 116).T
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], axis=1)


@pytest.mark.parametrize("eyes", [np.eye(3), PROTANOPIA, DEUTERANOPIA], ids=["all", "protanopia", "deuteranopia"])
@pytest.mark.parametrize(("theme", "background", "of_8", "of_20"), [("light", 100, 25, 12), ("dark", 0, 18, 4.5)])
def test_colour_blind_readers_tell_labels_apart(eyes, theme, background, of_8, of_20):
    seen = in_cielab(rgb(label_colors(20, theme)), eyes)
    apart = np.linalg.norm(seen[:, None] - seen[None], axis=2) + 1e3 * np.eye(20)
    assert apart[:8, :8].min() > of_8
    assert apart.min() > of_20
    assert np.linalg.norm(seen - [background, 0, 0], axis=1).min() > 20


def test_principal_axes_turn_the_points(cloud):
    points = cloud[0][10:]
    plane, names = projection.project(points, "principal")
    assert names == ("principal axis 1", "principal axis 2")
    centred = points - points.mean(axis=0)
    best = np.linalg.svd(centred, compute_uv=False)[:2]
    np.testing.assert_allclose(np.linalg.norm(plane - plane.mean(axis=0), axis=0), best, rtol=1e-2)


def test_embeddings_of_several_powers(embedding):
    assert plot.scatter(embedding).get_title() == "800 points, power 16"
    assert plot.scatter(embedding, power=4).get_title() == "800 points, power 4"
    axes = plot.powers(embedding)
    assert [ax.get_title() for ax in axes] == ["power 4", "power 16"]
    drawn(axes[0].figure)


def test_the_log_says_which_power_was_taken(embedding, caplog):
    with caplog.at_level("WARNING", logger="scalable_gpe"):
        plot.scatter(embedding, title="mine")
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert (
        record.getMessage() == "the embedding has the powers 4, 16: took power 16, the largest. Pass power to choose."
    )
    caplog.clear()
    plot.scatter(embedding)  # the title says it
    plot.scatter(embedding, title="mine", power=4)
    assert not caplog.records


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


def test_many_powers_go_in_rows():
    result = gpe.embed(gpe.datasets.circle(200), n_components=2, power=[1, 2, 3, 4, 5, 6], progress=False)
    figure = plot.powers(result, components=(0, 1), color=np.array(["a", None] * 100, object))[0].figure
    drawn(figure)
    assert [ax.get_title() for ax in figure.axes] == [f"power {power}" for power in range(1, 7)]
    assert len({round(ax.get_position().y0, 3) for ax in figure.axes}) == 2


def test_audit(embedding):
    found = gpe.audit(embedding, n_probes=50, n_exact=6)
    left, right = plot.audit(found)
    drawn(left.figure)
    assert [text.get_text() for text in left.get_yticklabels()] == ["power 4", "power 16"]
    assert [text.get_text() for text in right.get_yticklabels()][:2] == ["recall", "mass kept"]
    values = [line.get_xdata()[0] for line in left.get_lines() if line.get_marker() == "D" and len(line.get_xdata())]
    assert values[0] == found["powers"][4]["sketch"]["median_error"]
    alone = gpe.embed(neighbors=(embedding.graph.indices, embedding.graph.distances), n_components=4, power=4)
    _, right = plot.audit(gpe.audit(alone, n_exact=4))
    assert "not measured" in right.texts[0].get_text()


def test_mistakes(embedding, cloud):
    with pytest.raises(ValueError, match="power must be one of"):
        plot.scatter(embedding, power=5)
    with pytest.raises(ValueError, match="components must be two different columns below 3"):
        plot.scatter(cloud[0], components=(0, 3))
    with pytest.raises(ValueError, match="one value for each of the 20000 rows"):
        plot.scatter(cloud[0], color=[1, 2])
    with pytest.raises(ValueError, match="components must be"):
        plot.scatter(cloud[0][:, :2], components="primary")
    with pytest.raises(ValueError, match="two or more columns"):
        plot.scatter(cloud[0][:, :1])
    with pytest.raises(ValueError, match="theme must be"):
        plot.scatter(cloud[0], theme="blue")


def test_a_picture_of_a_page_is_small():
    figure = new_figure(3, 3)
    figure.subplots().imshow(np.random.default_rng(0).random((300, 300, 3)))
    large, small = picture_of(figure, 10**6), picture_of(figure, 20_000)
    assert large.startswith("data:image/webp;base64,") and 5_000 < len(small) <= 20_000 < len(large)


def test_without_matplotlib(monkeypatch, cloud):
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match="pip install"):
        plot.scatter(cloud[0])
