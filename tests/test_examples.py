"""The examples run at a small size, and print and draw what they promise."""

import re
import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"

pytestmark = pytest.mark.slow  # .ci/full runs the examples


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run an example in an empty folder; return what it printed."""
    pytest.importorskip("matplotlib")
    if not EXAMPLES.exists():
        pytest.skip("examples/ is not beside the tests")
    monkeypatch.chdir(tmp_path)

    def one(name, *arguments):
        runpy.run_path(str(EXAMPLES / name))["main"]([str(argument) for argument in arguments])
        return capsys.readouterr().out

    return one


def shares(text):
    return [float(number) for number in re.findall(r"0\.\d+", text)]


def test_new_points(run, tmp_path):
    embedded, raw = shares(run("new_points.py", "--out", "new.png"))
    assert embedded > 0.93 and raw > 0.93
    assert (tmp_path / "new.png").stat().st_size > 10_000


def test_multiscale(run, tmp_path):
    text = run("multiscale.py", "--points", 1500, "--out", "scales.png")
    left = [float(number) for number in re.findall(r"([\d.]+) directions", text)]
    assert len(left) == 4 and left == sorted(left, reverse=True)
    assert left[0] > 30 and left[-1] < 10
    assert (tmp_path / "scales.png").stat().st_size > 10_000


def test_all_scales(run, tmp_path):
    text = run("all_scales.py", "--points", 800, "--out", "all.png")
    figures = {scale: (float(kind), float(order)) for scale, kind, order in re.findall(_SCALE, text)}
    assert len(figures) == 4
    kinds, orders = zip(*figures.values())
    assert figures["all"][0] > max(kinds) - 0.05 and figures["all"][1] > max(orders) - 0.05
    assert (tmp_path / "all.png").stat().st_size > 10_000


_SCALE = r"(\w+): same kind ([\d.]+), order of distances ([-\d.]+)"


def test_the_tree_of_all_scales():
    if not EXAMPLES.exists():
        pytest.skip("examples/ is not beside the tests")
    tree = runpy.run_path(str(EXAMPLES / "all_scales.py"))["make_tree"](500)
    assert tree.X.shape == (500, 6) and tree.distance.min() < 0.1 < 2.8 < tree.distance.max() < 3
    assert abs((tree.X[tree.kind == 1, 2].mean() - tree.X[tree.kind == 0, 2].mean()) - 0.3) < 0.02


def test_million_torus(run, tmp_path):
    command = ["million_torus.py", "--points", 3000, "--powers", 16, 256, "--memory-limit", "1GB", "--out", "torus"]
    first = run(*command)
    assert "3,000 points, recall 1.000" in first
    assert run(*command) == first  # opened, not made again
    assert (tmp_path / "torus" / "torus.png").stat().st_size > 10_000


def test_fashion_mnist(run, tmp_path):
    if not Path("/usr/share/datasets/fashion-mnist").exists():
        pytest.skip("Fashion-MNIST is not installed (Debian: dataset-fashion-mnist)")
    text = run("fashion_mnist.py", "--rows", 3000, "--sample", 500, "--out", "fashion.png")
    recall, raw, embedded = shares(text)[-3:] if "recall 0" in text else (1.0, *shares(text))
    assert recall > 0.9 and raw > 0.6
    assert embedded > raw - 0.1
    assert (tmp_path / "fashion.png").stat().st_size > 10_000


def test_umap_poster(run, tmp_path, monkeypatch):
    pytest.importorskip("umap")
    if not Path("/usr/share/datasets/fashion-mnist").exists():
        pytest.skip("Fashion-MNIST is not installed (Debian: dataset-fashion-mnist)")
    monkeypatch.syspath_prepend(EXAMPLES)
    text = run("umap_poster.py", "--rows", 5000, "--sample", 1000, "--out", "umap.png")
    trust = {name: float(value) for name, value in re.findall(r"(.*): [\d.]+ s, trustworthiness ([\d.]+)", text)}
    assert trust["UMAP from our graph"] > trust["UMAP alone"] - 0.01 > 0.9
    assert 10_000 < (tmp_path / "umap.png").stat().st_size < 300_000


def test_compare(run, tmp_path, monkeypatch):
    """Without UMAP, which is not a dependency and takes long to compile."""
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "umap" else find(name))
    lines = run("compare.py", "--rows", 500, "--out", "compare.png").splitlines()
    assert len(lines) == 9
    assert all(re.search("2 dimensions: labels 0.*32 dimensions: labels 0", line) for line in lines)
    assert (tmp_path / "compare.png").stat().st_size > 10_000


def pictures(folder):
    return sorted(path.stem for path in folder.glob("*.png") if path.stat().st_size > 10_000)


def test_one_picture_of_the_gallery(run, tmp_path):
    run("gallery.py", "--points", 300, "--only", "sketch", "--out", "pictures")
    assert pictures(tmp_path / "pictures") == ["sketch"]


def test_gallery(run, tmp_path):
    run("gallery.py", "--points", 800, "--out", "pictures")
    shown = re.findall(r"figures/gallery/(\w+)\.png", (EXAMPLES.parent / "docs/gallery.md").read_text(encoding="utf-8"))
    assert pictures(tmp_path / "pictures") == sorted(shown) == pictures(EXAMPLES.parent / "docs/figures/gallery")
