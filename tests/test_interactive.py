"""The interactive picture: whole, safe with any text, sampled where rows are many, and working in a browser."""

import base64
import hashlib
import json
import re
import shutil
import subprocess
import sys
from html import unescape

import numpy as np
import pytest

import scalable_gpe as gpe

NASTY = '</script><script>alert(1)</script><img src="http://x.y/z.png" onerror="alert(1)">&"\'\ud800'


@pytest.fixture(scope="module")
def result():
    return gpe.embed(gpe.datasets.torus(900), n_components=8, power=[4, 16], progress=False)


def data_of(picture):
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', picture.html, re.S)
    return json.loads(text)


def numbers(text, kind):
    return np.frombuffer(base64.b64decode(text), kind)


def test_it_carries_the_plane_the_names_and_the_colours(result):
    labels = np.where(np.arange(900) % 3 == 0, "fizz", "plain")
    names = [f"cell {i}" for i in range(900)]
    picture = gpe.plot.interactive(result, color=labels, color_label="kind", names=names)
    assert (picture.n_rows, picture.n_shown) == (900, 900) and "all 900 rows" in repr(picture)
    assert "900 points, power 16" in picture.html and data_of(picture)["axes"] == [
        "principal axis 1",
        "principal axis 2",
    ]
    data = data_of(picture)
    rows = numbers(data["rows"], "<i4")
    assert sorted(rows) == list(range(900)) and (np.diff(rows) < 0).any()  # in random order
    (view,) = data["views"]
    shares = np.stack([numbers(column, "<u2") for column in view["columns"]], axis=1) / 65535
    plane = view["low"] + shares * np.subtract(view["high"], view["low"])
    width = np.subtract(view["high"], view["low"]).max()
    np.testing.assert_allclose(plane, result.principal(2, power=16)[0][rows], rtol=1e-4, atol=1e-5 * width)
    assert data["names"] == [names[row] for row in rows]
    assert data["color"]["labels"] == ["fizz", "plain"]
    assert (numbers(data["color"]["values"], "<i4") == (rows % 3 != 0)).all()


def test_a_far_row_can_be_found_at_the_edge():
    points = np.random.default_rng(0).standard_normal((1000, 2)).astype(np.float32)
    points[7] = 1e6
    data = data_of(gpe.plot.interactive(points))
    (view,) = data["views"]
    at = list(numbers(data["rows"], "<i4")).index(7)
    assert view["outside"] == 1 and [numbers(column, "<u2")[at] for column in view["columns"]] == [65535, 65535]
    assert max(view["high"]) < 20


def test_a_theme_of_its_own(result):
    assert '<html lang="en" class="dark">' in gpe.plot.interactive(result, theme="dark").html
    with pytest.raises(ValueError, match="theme must be"):
        gpe.plot.interactive(result, theme="blue")


def test_any_text_is_safe(result, tmp_path):
    picture = gpe.plot.interactive(
        result, color=np.where(np.arange(900) > 4, NASTY, "a"), color_label=NASTY, names=[NASTY] * 900, title=NASTY
    )
    assert "<script>alert" not in picture.html and "<img" not in picture.html
    assert picture.html.count("<script") == picture.html.count("</script>") == 2
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', picture.html)[1]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    frame = picture._repr_html_()
    assert frame.count("<") == 2 and 'sandbox="allow-scripts"' in frame  # the page is one attribute
    assert unescape(re.search(r'srcdoc="([^"]*)"', frame)[1]) == picture.html
    assert picture.save(tmp_path / "p.html").read_text(encoding="utf-8") == picture.html


def test_many_rows_are_sampled_without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    points = np.random.default_rng(0).standard_normal((60_000, 2)).astype(np.float32)
    picture = gpe.plot.interactive(points, color=np.arange(60_000) % 2000 // 1000)
    assert picture.n_shown == 50_000 and "a random sample of 50,000 of 60,000 rows" in picture.html
    assert len(picture.html) < 1_000_000
    rows = numbers(data_of(picture)["rows"], "<i4")
    assert len(set(rows)) == 50_000 and abs(rows.mean() - 30_000) < 500


def test_mistakes(result, tmp_path):
    with pytest.raises(ValueError, match="names must have one value for each of the 900 rows"):
        gpe.plot.interactive(result, names=["a"])
    with pytest.raises(ValueError, match="components must be two different columns"):
        gpe.plot.interactive(result, components=(0, 1, 2))
    with pytest.raises(ValueError, match=r"ends in \.html"):
        gpe.plot.interactive(result).save(tmp_path / "p.png")


DRIVER = """
addEventListener("error", (event) => { document.title = "ERROR " + event.message; });
addEventListener("load", () => setTimeout(() => {
  const canvas = document.getElementById("canvas"), edge = canvas.getBoundingClientRect(), seen = [];
  const point = (kind, x, y) => canvas.dispatchEvent(
    new PointerEvent(kind, { clientX: edge.left + x * edge.width, clientY: edge.top + y * edge.height }));
  const box = document.getElementById("hover"), look = () => seen.push(box.hidden ? "" : box.innerText);
  point("pointermove", 0.5, 0.5); look();
  document.querySelector("#legend button").click();
  point("pointermove", 0.5, 0.5); look();
  document.querySelector("#legend button").click();
  canvas.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight" }));
  point("pointermove", 0.5, 0.5); look();
  point("pointermove", 0.4, 0.5); look();
  document.body.dataset.seen = JSON.stringify(seen);
}, 200));
"""


@pytest.mark.slow
def test_hover_and_legend_in_a_browser(tmp_path):
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no browser here")
    points = np.array([[0, 0], [-1, -1], [1, 1], [-1, 1], [1, -1]], np.float32)
    picture = gpe.plot.interactive(points, color=list("abbbb"), color_label="kind", names=["middle", *"wxyz"])
    digest = base64.b64encode(hashlib.sha256(DRIVER.encode()).digest()).decode()
    page = picture.html.replace("script-src", f"script-src 'sha256-{digest}'", 1)
    path = tmp_path / "driven.html"
    path.write_text(page.replace("</head>", f"<script>{DRIVER}</script></head>", 1), encoding="utf-8")
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}",
               "--virtual-time-budget=5000", "--dump-dom", path.as_uri()]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert "<title>ERROR" not in done.stdout
    seen = json.loads(unescape(re.search(r'data-seen="([^"]*)"', done.stdout)[1]))
    assert [text.split("\n") for text in seen] == [
        ["middle", "row 0", "kind: a"],
        [""],
        [""],
        ["middle", "row 0", "kind: a"],
    ]
