"""Notebooks show each result with its figures, at once, and never fail."""

import re
from dataclasses import replace

import pytest

import scalable_gpe as gpe

TIME = re.compile(r">time</th><td[^>]*>([0-9.]+ s)<")
NASTY = '</td><script>alert(1)</script><img src=x onerror="alert(1)">'


@pytest.fixture(scope="module")
def result():
    return gpe.embed(gpe.datasets.torus(900), n_components=8, power=[4, "all"], progress=False)


def test_an_embedding_shows_its_figures(result):
    page = result._repr_html_()
    for expected in ("900 rows in 8 dimensions", "4, all (horizon", "recall", "lost mass", "bistochastic", "sketch"):
        assert expected in page


def test_each_stage_shows_its_figures(result):
    graph, kernel, heat = result.graph, result.kernel, result.heat
    for one, expected in (
        (graph, ("900", f"16 each ({graph.method})", f"{graph.recall:.4f}", "connected components")),
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
