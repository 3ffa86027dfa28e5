"""Notebooks show each result with its figures, at once, and never fail."""

import base64
import re
from dataclasses import replace
from io import BytesIO

import numpy as np
import pytest

import scalable_gpe as gpe
from scalable_gpe import notebook
from scalable_gpe.png import png

TIME = re.compile(r">time</th><td[^>]*>([0-9.]+ s)<")
NASTY = '</td><script>alert(1)</script><img src=x onerror="alert(1)">'


@pytest.fixture(scope="module")
def result():
    return gpe.embed(gpe.datasets.torus(900), n_components=8, power=[4, "all"], progress=False)


def test_an_embedding_shows_its_figures_and_a_picture(result):
    page = result._repr_html_()
    for expected in ("900 rows in 8 dimensions", "4, all (horizon", "recall", "lost mass", "bistochastic", "sketch"):
        assert expected in page
    assert ">principal plane, all scales<" in page
    picture = base64.b64decode(re.search(r'src="data:image/png;base64,([^"]+)"', page)[1])
    assert picture.startswith(b"\x89PNG") and len(picture) > 1000


def test_each_stage_shows_its_figures(result):
    graph, kernel, heat = result.graph, result.kernel, result.heat
    for one, expected in (
        (graph, ("900", f"32 each ({graph.method})", f"{graph.recall:.4f}", "connected components")),
        (kernel, ("900 x 900", f"{kernel.epsilon:.6g}", f"{kernel.lost_mass:.2%}", f"{kernel.nnz:,}")),
        (heat, ("bistochastic", f"converged in {heat.n_iter} sweeps", "900 x 900")),
    ):
        page = one._repr_html_()
        assert type(one).__name__ in page
        for words in expected:
            assert words in page and words in repr(one)
        assert len(repr(one)) < 400 and TIME.search(page)
    alone = gpe.heat_kernel(kernel.to_scipy(), "symmetric")
    assert "of the given matrix" in alone._repr_html_() and "explicit" in repr(alone)
    lists = gpe.embed(neighbors=(graph.indices, graph.distances), n_components=8, progress=False)
    assert "not measured" in lists.graph._repr_html_()


def test_a_store_keeps_the_time_of_each_stage(tmp_path):
    path = str(tmp_path / "out.zarr")
    made = gpe.embed(gpe.datasets.circle(300), store=path, n_components=8, power=4, progress=False)
    opened = gpe.open(path)
    for stage in ("graph", "kernel", "heat"):
        shown = TIME.search(getattr(opened, stage)._repr_html_())
        assert shown and shown[0] == TIME.search(getattr(made, stage)._repr_html_())[0]


def test_texts_are_escaped_and_nothing_fails(result):
    report = {**result.report, "method": NASTY, "warnings": [NASTY]}
    page = replace(result, report=report, parameters={**result.parameters, "metric": NASTY})._repr_html_()
    assert "<script" not in page and "<img src=x" not in page and page.count("alert(1)") == 6
    assert replace(result, report={})._repr_html_() == "<pre>Embedding</pre>"
    broken = {power: np.full((900, 8), np.nan, np.float32) for power in result.points}
    page = replace(result, points=broken)._repr_html_()
    assert "lost mass" in page and "<img" not in page


def test_a_large_embedding_is_sampled(result, tmp_path):
    points = np.random.default_rng(0).standard_normal((400_000, 16), dtype=np.float32)
    points[:10] *= 1e6
    assert notebook.sampled_rows(points).shape == (50_000, 16)
    zarr = pytest.importorskip("zarr")
    stored = zarr.create_array(tmp_path / "p.zarr", data=points, chunks=(20_000, 16))
    sample = notebook.sampled_rows(stored)
    assert 3_000 <= len(sample) <= 50_000 and sample.dtype == np.float32
    assert (np.isin(sample[:, 0], points[:, 0])).all()


def test_the_picture_is_a_png_with_a_palette():
    Image = pytest.importorskip("PIL.Image")
    shades = np.arange(12, dtype=np.uint8).reshape(3, 4)
    palette = np.stack([np.arange(256)] * 3, axis=1).astype(np.uint8)[::-1].copy()
    assert (np.asarray(Image.open(BytesIO(png(shades, palette))).convert("L")) == 255 - shades).all()


def test_one_component_has_no_picture():
    page = gpe.embed(gpe.datasets.circle(200), n_components=1, power=4, progress=False)._repr_html_()
    assert "200 rows in 1 dimensions" in page and "<img" not in page
