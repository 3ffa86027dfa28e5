"""The page of a run: whole in one file, valid, safe with any text, and alive in a browser."""

import base64
import json
import re
import shutil
import struct
import subprocess
import zlib
from html.parser import HTMLParser

import numpy as np
import pytest

import scalable_gpe as gpe
from scalable_gpe import charts, page

VOID = {"meta", "link", "br", "img", "input", "hr"}
SHAPES = {"line", "circle", "rect", "polyline", "polygon"}  # of SVG, where a tag may close itself
NASTY = '</script><img src="http://x.y/z.png" onerror="alert(1)">&'


class Checker(HTMLParser):
    """Every tag is closed in its order, ids are unique, nothing points out of the file."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.ids, self.texts, self.addresses, self.scripts = [], [], [], [], []
        self.labels = []

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.ids += [given["id"]] if "id" in given else []
        self.labels += [given["for"]] if "for" in given else []
        self.addresses += [given[name] for name in ("src", "href", "action", "data", "poster") if name in given]
        assert not any(name.startswith("on") for name in given), f"code in an attribute of {tag}"
        if tag == "img":
            assert given.get("alt")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        assert tag in SHAPES, f"<{tag}/> is not closed"
        self.handle_starttag(tag, attributes)
        self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"</{tag}> closes another tag"

    def handle_data(self, text):
        (self.scripts if self.open and self.open[-1] in ("script", "style") else self.texts).append(text)


def check(text):
    checker = Checker()
    assert text.startswith("<!DOCTYPE html>\n")
    checker.feed(text)
    checker.close()
    assert checker.open == []
    assert len(set(checker.ids)) == len(checker.ids)
    assert set(checker.labels) <= set(checker.ids)
    for address in checker.addresses:
        assert address.startswith(("data:", "#")), address
        assert not address.startswith("#") or address[1:] in checker.ids
    assert "@import" not in text and "url(" not in text
    code = "".join(part for part in checker.scripts if not part.startswith("{"))  # without the data
    assert "#canvas" in code and '"use strict"' in code
    assert not re.search(r"://|fetch\(|XMLHttp|WebSocket|import\b|eval\(|innerHTML|sendBeacon", code)
    return checker


def data_of(text):
    return json.loads(re.search(r'id="data">(.*?)</script>', text, re.S)[1])


@pytest.fixture(scope="module")
def result():
    return gpe.embed(gpe.datasets.torus(6000, noise=0.05), n_components=5, power=[4, 64], progress=False)


@pytest.fixture(scope="module")
def whole(result, tmp_path_factory):
    found = gpe.audit(result, n_probes=50, n_exact=6)
    path = tmp_path_factory.mktemp("page") / "page.html"
    return gpe.write_report(result, path, audit=found)


def test_the_page_is_whole_and_valid(whole):
    checker = check(whole.read_text(encoding="utf-8"))
    words = " ".join(checker.texts)
    for expected in ("6,000 rows in 5 dimensions", "recall", "n_neighbors", "bistochastic", "Seconds of each stage",
                     "What a power leaves", "Relative error of distances", "all 6,000 rows", "numpy"):  # fmt: skip
        assert expected in words, expected
    assert "power 64" in words and words.count("the sketch alone") >= 2
    assert [path.name for path in whole.parent.iterdir()] == ["page.html"]


def test_the_policy_lets_nothing_in(whole):
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', whole.read_text(encoding="utf-8"))[1]
    assert policy.startswith("default-src 'none';") and "http" not in policy and "*" not in policy


def test_the_page_carries_the_coordinates(whole, result):
    data = data_of(whole.read_text(encoding="utf-8"))
    assert data["rows"] == data["sampled"] == 6000
    assert data["axes"][:3] == ["principal axis 1", "principal axis 2", "principal axis 3"]
    for one in data["powers"]:
        points = np.asarray(result.points[one["power"]])
        shown = np.frombuffer(base64.b64decode(one["columns"][3 + 2]), "<u2")
        low, high = one["low"][5], one["high"][5]
        inside = shown <= 65534
        assert inside.mean() > 0.99
        np.testing.assert_allclose(
            low + shown[inside] / 65534 * (high - low), points[inside, 2], atol=(high - low) / 1e5
        )


def test_the_overview_counts_every_row(result):
    view = page._View(result, None, "")
    for _, picture in view.pictures:
        raw = base64.b64decode(picture.partition(",")[2])
        assert raw.startswith(b"\x89PNG")
        chunks, at = {}, 8
        while at < len(raw):
            size, kind = struct.unpack(">I4s", raw[at : at + 8])
            body = raw[at + 8 : at + 8 + size]
            assert struct.unpack(">I", raw[at + 8 + size : at + 12 + size])[0] == zlib.crc32(kind + body)
            chunks[kind], at = body, at + 12 + size
        side = struct.unpack(">I", chunks[b"IHDR"][:4])[0]
        shades = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(side, side + 1)[:, 1:]
        assert 1000 < (shades > 0).sum() <= 6000


def test_a_large_embedding_is_sampled_and_far_rows_do_not_ruin_it(result, tmp_path, monkeypatch):
    monkeypatch.setattr(page, "_MOST_ROWS", 500)
    far = np.array(result.points[64])
    far[:3] *= 1e6
    changed = gpe.Embedding(**{**{name: getattr(result, name) for name in ("graph", "kernel", "heat", "names")},
                               "points": {64: far}, "parameters": result.parameters,
                               "report": {**result.report, "power": [64]}})  # fmt: skip
    text = gpe.write_report(changed, tmp_path / "p.html", audit=False).read_text(encoding="utf-8")
    check(text)
    assert "a random sample of 500 of the 6,000 rows" in text
    (one,) = data_of(text)["powers"]
    assert one["outside"] >= 3
    assert max(np.abs(one["high"])) < 10 * np.abs(result.points[64]).max()
    assert "No audit was made" in text


@pytest.mark.parametrize("kind", ["labels", "numbers", "missing"])
def test_colours_and_any_text(result, tmp_path, kind):
    values = np.asarray(result.points[4])[:, 0].astype(float)
    color = {
        "labels": np.where(values > 0, NASTY, "plain"),
        "numbers": values,
        "missing": np.where(values > 0, np.nan, values),
    }[kind]
    path = gpe.write_report(result, tmp_path / "p.html", audit=False, color=color, color_label=NASTY, title=NASTY)
    text = path.read_text(encoding="utf-8")
    checker = check(text)
    assert NASTY in " ".join(checker.texts)
    shown = data_of(text)["color"]
    assert shown["label"] == NASTY
    raw = base64.b64decode(shown["values"])
    if kind == "labels":
        assert np.array(shown["labels"])[np.frombuffer(raw, np.uint8)].tolist() == color.tolist()
    else:
        assert (np.frombuffer(raw, "<u2") == 65535).tolist() == np.isnan(color).tolist()


def test_one_component_and_neighbours_alone(tmp_path):
    graph = gpe.neighbor_graph(gpe.datasets.circle(80), 6)
    result = gpe.embed(neighbors=(graph.indices, graph.distances), n_components=1, power=3)
    text = gpe.write_report(result, tmp_path / "p.html").read_text(encoding="utf-8")
    check(text)
    assert "not measured" in text and data_of(text)["axes"] == ["principal axis 1", "component 0"]


def test_mistakes(result, tmp_path):
    with pytest.raises(TypeError, match="must be an Embedding"):
        gpe.write_report(result.points, tmp_path / "p.html")
    with pytest.raises(TypeError, match="audit must be"):
        gpe.write_report(result, tmp_path / "p.html", audit="yes")
    with pytest.raises(ValueError, match="one value for each of the 6000 rows"):
        gpe.write_report(result, tmp_path / "p.html", color=[1, 2])
    with pytest.raises(ValueError, match="at most 20"):
        gpe.write_report(result, tmp_path / "p.html", color=np.arange(6000).astype(str))
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        gpe.write_report(result, tmp_path / "nowhere" / "p.html")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("axis", "expected"),
    [
        (charts.Axis("", 0, 7), [0, 2, 4, 6]),
        (charts.Axis("", 0.9, 1.0), [0.9, 0.92, 0.94, 0.96, 0.98, 1.0]),
        (charts.Axis("", 1, 1000, log=True), [1, 10, 100, 1000]),
        (charts.Axis("", 2, 9, log=True), [2, 5]),
    ],
)
def test_ticks(axis, expected):
    np.testing.assert_allclose(axis.ticks(), expected)
    assert charts.number(-0.0) == "0" and charts.number(1e-6) == "10⁻⁶" and charts.number(20000) == "20,000"


# --- in a browser ---------------------------------------------------------------------------------

SCRIPT = """
<script>
window.requestAnimationFrame = (draw) => setTimeout(draw, 5);  // frames do not come when nobody looks
addEventListener("unhandledrejection", (event) => { document.title = "ERROR " + event.reason; });
addEventListener("error", (event) => { document.title = "ERROR " + event.message; });
addEventListener("securitypolicyviolation", (event) => { document.title = "POLICY " + event.blockedURI; });
addEventListener("load", () => {
  const wait = () => new Promise((done) => setTimeout(done, 50));
  const seen = [], canvas = document.getElementById("canvas");
  const ink = () => {
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    let bright = 0, sum = 0;
    for (let i = 0; i < data.length; i += 4) { bright += data[i + 1] > 60; sum = (sum * 31 + data[i + 1]) >>> 0; }
    return [bright, sum];
  };
  const note = (what) => seen.push({ what, status: document.getElementById("status").textContent, ink: ink() });
  const press = (key) => canvas.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
  const pick = (id, value) => {
    const list = document.getElementById(id);
    list.value = [...list.options].find((option) => option.textContent === value).value;
    list.dispatchEvent(new Event("change"));
  };
  const steps = [
    ["start", () => {}], ["closer", () => document.getElementById("closer").click()], ["key", () => press("+")],
    ["arrow", () => press("ArrowRight")],
    ["wheel", () => {
      canvas.focus();
      canvas.dispatchEvent(new WheelEvent("wheel", { deltaY: -600, clientX: 300, clientY: 500 }));
    }],
    ["reset", () => document.getElementById("reset").click()], ["component", () => pick("x", "component 3")],
    ["power", () => pick("power", "4")], ["overview", () => document.querySelectorAll("[data-power]")[1].click()],
    ["address", () => { location.hash = "#power=4&x=component 0&y=component 1&zoom=8"; }],
  ];
  (async () => {
    for (const [what, act] of steps) { act(); await wait(); note(what); }
    document.body.dataset.seen = JSON.stringify(seen);
  })();
});
</script>
"""


@pytest.mark.slow
def test_the_page_in_a_browser(whole, tmp_path):
    """Zoom, choice of components and powers by the real thing; no error, no request."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no browser here")
    path = tmp_path / "driven.html"
    path.write_text(whole.read_text(encoding="utf-8").replace("</head>", SCRIPT + "</head>"), encoding="utf-8")
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}",
               "--window-size=1200,1600", "--virtual-time-budget=20000", f"--log-net-log={tmp_path / 'net.json'}",
               "--disable-background-networking", "--disable-component-update", "--no-first-run",
               "--enable-logging=stderr", "--dump-dom", path.as_uri()]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    # the one thing that is said is about this test's own reading of the picture
    assert not re.findall(r"CONSOLE(?!.*willReadFrequently).*", done.stderr)
    title = re.search(r"<title>(.*?)</title>", done.stdout)[1]
    assert not title.startswith(("ERROR", "POLICY"))
    events = [event.get("params", {}) for event in json.loads((tmp_path / "net.json").read_text())["events"]]
    # what a browser asks for on its own account has no origin
    assert not [one for one in events if one.get("initiator", "not an origin") != "not an origin"]
    found = re.search(r'data-seen="(.*?)"', done.stdout)
    assert found, done.stdout[-2000:]
    seen = {one["what"]: one for one in json.loads(found[1].replace("&quot;", '"'))}
    assert "Power 64, principal axis 1 against principal axis 2: " in seen["start"]["status"]
    expected = {
        "closer": "zoom 2.00",
        "key": "zoom 4.00",
        "wheel": "zoom 29.6",
        "reset": "zoom 1.00",
        "component": "component 3 against principal axis 2",
        "power": "Power 4, component 3",
        "overview": "Power 64, principal axis 1",
        "address": "Power 4, component 0 against",
    }
    for what, words in expected.items():
        assert words in seen[what]["status"], (what, seen[what])
    assert "zoom 8.00" in seen["address"]["status"]
    pictures = [tuple(one["ink"]) for one in seen.values()]
    assert all(bright > 50 for bright, _ in pictures)
    assert len({mark for _, mark in pictures}) >= 8  # start, reset and overview show the same
    assert seen["start"]["ink"] == seen["reset"]["ink"] == seen["overview"]["ink"]
