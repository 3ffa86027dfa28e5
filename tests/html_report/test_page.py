"""The page of a run: one small file, valid, safe with any text, and working in a browser."""

import base64
import hashlib
import json
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

import scalable_gpe as gpe
from scalable_gpe import html_report

LIMIT = 2_000_000  # bytes of a page
VOID = {"meta", "link", "br", "img", "input", "hr"}
NASTY = '</script><script>alert(1)</script></td><img src="http://x.y/z.png" onerror="alert(1)"><!--&"\''


class Checker(HTMLParser):
    """Every tag is closed in its order, ids are unique, nothing points out of the file, no code or style in tags."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.ids, self.texts, self.addresses = [], [], [], [], []
        self.labels, self.scripts, self.styles, self.data, self.pictures = [], [], [], [], []
        self._kind = None

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.tags.append((tag, tuple(given)))
        self.ids += [given["id"]] if "id" in given else []
        self.labels += [given["for"]] if "for" in given else []
        self.addresses += [given[name] for name in ("src", "href", "action", "data", "poster") if name in given]
        assert not any(name.startswith("on") or name == "style" for name in given), f"{tag} has {list(given)}"
        if tag == "img":
            self.pictures.append(given["alt"])
        if tag not in VOID:
            self.open.append(tag)
        if tag in ("script", "style"):
            data = given.get("type") == "application/json"
            self._kind = self.data if data else self.scripts if tag == "script" else self.styles

    def handle_startendtag(self, tag, attributes):
        raise AssertionError(f"<{tag}/> is not closed")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"</{tag}> closes another tag"

    def handle_data(self, text):
        inside = self.open and self.open[-1] in ("script", "style")
        (self._kind if inside else self.texts).append(text)

    def handle_comment(self, text):
        raise AssertionError(f"a comment: {text}")


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
    assert all(checker.pictures)
    ((script,), (style,), _) = checker.scripts, checker.styles, checker.data
    assert "#canvas" in style and '"use strict"' in script
    assert not re.search(r"://|fetch\(|XMLHttp|WebSocket|import\b|eval\(|Function\(|innerHTML|sendBeacon", script)
    assert len(text.encode()) < LIMIT
    return checker


def data_of(checker):
    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    (data,) = checker.data
    return json.loads(data, parse_constant=refuse)


def changed(embedding, **parts):
    """Replace parts of an embedding; a new report and new parameters are added to the old ones."""
    for name in {"report", "parameters"} & set(parts):
        parts[name] = {**getattr(embedding, name), **parts[name]}
    return replace(embedding, **parts)


def written(embedding, path, *, charts=False, **options):
    """Write a page and check it; charts are left out, as without matplotlib, where they do not matter."""
    with pytest.MonkeyPatch.context() as patch:
        if not charts:
            patch.setattr(html_report, "has_matplotlib", lambda: False)
        return check(gpe.write_report(embedding, path, **{"audit": False, **options}).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def result():
    return gpe.embed(gpe.datasets.torus(6000, noise=0.05), n_components=5, power=[4, 64], progress=False)


@pytest.fixture(scope="module")
def audit(result):
    return gpe.audit(result, n_probes=50, n_exact=6)


@pytest.fixture(scope="module")
def whole(result, audit, tmp_path_factory):
    return gpe.write_report(result, tmp_path_factory.mktemp("page") / "page.html", audit=audit)


def test_the_page_is_whole_and_valid(whole):
    checker = check(whole.read_text(encoding="utf-8"))
    words = " ".join(checker.texts)
    for expected in ("6,000 rows in 5 dimensions", "recall", "n_neighbors", "bistochastic", "time, heat",
                     "all 6,000 rows", "numpy", "power 64", "the sketch alone"):  # fmt: skip
        assert expected in words, expected
    assert len(checker.pictures) == 4 and "Effective dimension at each diffusion time" in checker.pictures
    assert any("error of distances" in title for title in checker.pictures)
    assert [path.name for path in whole.parent.iterdir()] == ["page.html"]


def digest(text):
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def test_the_policy_allows_one_script_and_one_style(whole):
    text = whole.read_text(encoding="utf-8")
    checker = check(text)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1]
    assert policy.split("; ") == [
        "default-src 'none'",
        f"script-src {digest(checker.scripts[0])}",
        f"style-src {digest(checker.styles[0])}",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    ]


def test_the_page_carries_the_coordinates(whole, result):
    data = data_of(check(whole.read_text(encoding="utf-8")))
    rows = np.frombuffer(base64.b64decode(data["rows"]), "<i4")
    assert sorted(rows) == list(range(6000)) and (np.diff(rows) < 0).any()  # in random order
    assert data["axes"][:3] == ["principal axis 1", "principal axis 2", "principal axis 3"]
    assert [one["title"] for one in data["views"]] == ["power 4", "power 64"]
    for one, points in zip(data["views"], result.points.values(), strict=True):
        shown = np.frombuffer(base64.b64decode(one["columns"][3 + 2]), "<u2")
        low, high = one["low"][5], one["high"][5]
        expected = np.clip(np.asarray(points)[rows, 2], low, high)
        np.testing.assert_allclose(low + shown / 65535 * (high - low), expected, atol=(high - low) / 1e5)
        assert ((shown == 0) | (shown == 65535)).mean() < 0.01


def test_without_matplotlib_the_page_says_what_brings_the_charts(result, tmp_path):
    checker = written(result, tmp_path / "p.html")
    assert checker.pictures == []
    assert sum('pip install "scalable-gpe[plot]"' in text for text in checker.texts) == 2


def test_a_notebook_does_not_show_the_charts_again(result, tmp_path):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    mine = pyplot.figure()
    written(result, tmp_path / "p.html", charts=True)
    assert pyplot.get_fignums() == [mine.number]
    pyplot.close(mine)


def test_rows_that_are_all_equal(result, tmp_path):
    points = {4: np.zeros((6000, 5), np.float32), 64: np.ones((6000, 5), np.float32)}
    for one in data_of(written(changed(result, points=points), tmp_path / "p.html"))["views"]:
        assert np.all(np.less(one["low"], one["high"])) and one["outside"] == 0


@pytest.mark.parametrize("kind", ["labels", "numbers", "missing"])
def test_colours_and_any_text(result, tmp_path, kind):
    values = np.asarray(result.points[4])[:, 0].astype(float)
    color = {
        "labels": np.where(values > 0, NASTY, "plain"),
        "numbers": values,
        "missing": np.where(values > 0, np.nan, values),
    }[kind]
    checker = written(result, tmp_path / "p.html", color=color, color_label=NASTY, title=NASTY)
    assert checker.texts.count(NASTY) == 3  # title, heading, legend
    data = data_of(checker)
    rows = np.frombuffer(base64.b64decode(data["rows"]), "<i4")
    raw = base64.b64decode(data["color"]["values"])
    if kind == "labels":
        assert data["color"]["labels"] == [NASTY[:59] + "…", "plain"]  # "<" sorts before letters
        assert (np.frombuffer(raw, "<i4") == (color == "plain")[rows]).all()
    else:
        np.testing.assert_array_equal(np.frombuffer(raw, "<f4"), color[rows].astype(np.float32))


def test_hostile_keys_and_values(result, audit, tmp_path):
    """Texts of a report may come from a store that someone else made."""
    report = {
        "method": NASTY,
        "power": [4, NASTY],
        "recall": None,
        "reasons": {"recall": NASTY, NASTY: NASTY},
        "polynomial_error": {NASTY: NASTY},
        "sweeps": {NASTY: NASTY, "heat": 3},
        "stage_seconds": {NASTY: 1.5, "graph": 2.0},
        "versions": {NASTY: NASTY, "scalable_gpe": NASTY},
        "warnings": [NASTY],
        NASTY: NASTY,
    }
    parameters = {NASTY: NASTY, "metric": NASTY, "store": {NASTY: [NASTY]}}
    figures = audit["powers"][4]
    hostile = gpe.Audit({**audit, "powers": {NASTY: figures}, "warnings": [NASTY], "reasons": {"dense": NASTY},
                         "n_exact": NASTY, "n_probes": NASTY})  # fmt: skip
    plain = gpe.Audit({**hostile, "powers": {"4": figures}})
    embedding = changed(result, report=report, parameters=parameters, names=np.array([NASTY] * 6000))
    path = tmp_path / "hostile.html"
    checker = written(embedding, path, audit=hostile, color=[NASTY, "b"] * 3000, color_label=NASTY, title=NASTY)
    text = path.read_text(encoding="utf-8")
    assert NASTY not in text and "<script>alert" not in text and '<img src="http' not in text
    assert sum(NASTY in one for one in checker.texts) >= 20
    harmless = json.loads(
        json.dumps({"report": report, "parameters": parameters}).replace(json.dumps(NASTY)[1:-1], "x")
    )
    other = written(changed(result, **harmless), tmp_path / "plain.html", audit=plain,
                    color=["a", "b"] * 3000, color_label="x", title="x")  # fmt: skip
    assert checker.tags == other.tags  # the texts added no element and no attribute


@pytest.mark.some(1)
@pytest.mark.parametrize(("n_rows", "k", "n_powers"), [(70_000, 2, 1), (61_000, 16, 3), (5_000, 80, 40)])
def test_a_page_is_small_for_any_input(result, audit, tmp_path, monkeypatch, n_rows, k, n_powers):
    monkeypatch.setattr(gpe.Embedding, "ordinary", np.ones(n_rows, bool))  # the points are not those of the graph
    noise = np.random.default_rng(0).random((n_rows, k), np.float32)  # pictures that do not compress
    powers = range(1, n_powers + 1)
    embedding = changed(result, points=dict.fromkeys(powers, noise), report={"power": list(powers)})
    color = np.array([f"label {number}" for number in range(20)], object)[np.arange(n_rows) % 20]
    whole = gpe.Audit({**audit, "powers": dict.fromkeys(powers, audit["powers"][4])})
    checker = written(embedding, tmp_path / "p.html", charts=n_powers > 12, audit=whole, color=color)
    views, n_drawn = data_of(checker)["views"], len(base64.b64decode(data_of(checker)["rows"])) // 4
    assert len(views) == min(n_powers, 12) and views[-1]["title"] == f"power {n_powers}"
    assert n_drawn >= 3000
    if n_powers == 1:
        assert n_drawn == 50_000


def test_one_component_and_neighbours_alone(tmp_path):
    graph = gpe.neighbor_graph(gpe.datasets.circle(80), 6)
    result = gpe.embed(neighbors=(graph.indices, graph.distances), n_components=1, power=3)
    checker = written(result, tmp_path / "p.html", charts=True, audit=True)
    assert "not measured" in checker.texts and data_of(checker)["axes"] == ["principal axis 1", "component 0"]


def test_mistakes(result, tmp_path):
    with pytest.raises(TypeError, match="must be an Embedding"):
        gpe.write_report(result.points, tmp_path / "p.html")
    with pytest.raises(TypeError, match="audit must be"):
        gpe.write_report(result, tmp_path / "p.html", audit="yes")
    with pytest.raises(ValueError, match="one value for each of the 6000 rows"):
        gpe.write_report(result, tmp_path / "p.html", color=[1, 2])
    with pytest.raises(ValueError, match="no finite number"):
        gpe.write_report(result, tmp_path / "p.html", color=np.full(6000, np.nan))
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        gpe.write_report(result, tmp_path / "nowhere" / "p.html")
    assert not list(tmp_path.iterdir())


# --- in a browser ---------------------------------------------------------------------------------

DRIVER = """
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
    ["start", () => {}], ["key", () => press("+")],
    ["arrow", () => press("ArrowRight")],
    ["wheel", () => {
      canvas.focus();
      const edge = canvas.getBoundingClientRect();
      const [clientX, clientY] = [edge.left + edge.width / 2, edge.top + edge.height / 2];
      canvas.dispatchEvent(new WheelEvent("wheel", { deltaY: -600, clientX, clientY }));
    }],
    ["reset", () => document.getElementById("reset").click()], ["component", () => pick("x", "component 3")],
    ["power", () => pick("view", "power 4")],
    ["address", () => { location.hash = "#view=power 4&x=component 0&y=component 1&zoom=8"; }],
  ];
  (async () => {
    for (const [what, act] of steps) { act(); await wait(); note(what); }
    document.body.dataset.seen = JSON.stringify(seen);
  })();
});
"""


def browse(path, folder):
    """Open a page in a browser; return what it printed, its document last."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no browser here")
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}",
               "--window-size=1200,1600", "--virtual-time-budget=20000", f"--log-net-log={folder / 'net.json'}",
               "--disable-background-networking", "--disable-component-update", "--no-first-run", "--disable-quic",
               "--disable-sync", "--enable-logging=stderr", "--dump-dom", path.as_uri()]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


@pytest.mark.slow
def test_the_page_in_a_browser(whole, tmp_path):
    """Zoom, choice of components and powers in a real browser; no error, no request."""
    path = tmp_path / "driven.html"
    text = whole.read_text(encoding="utf-8").replace("script-src", f"script-src {digest(DRIVER)}", 1)
    path.write_text(text.replace("</head>", f"<script>{DRIVER}</script></head>", 1), encoding="utf-8")
    done = browse(path, tmp_path)
    # the only message is about this test's own reading of the picture
    assert not re.findall(r"CONSOLE(?!.*willReadFrequently).*", done.stderr)
    title = re.search(r"<title>(.*?)</title>", done.stdout)[1]
    assert not title.startswith(("ERROR", "POLICY"))
    events = [event.get("params", {}) for event in json.loads((tmp_path / "net.json").read_text())["events"]]
    # requests that the browser makes by itself have no origin
    assert not [one for one in events if one.get("initiator", "not an origin") != "not an origin"]
    found = re.search(r'data-seen="(.*?)"', done.stdout)
    assert found, done.stdout[-2000:]
    seen = {one["what"]: one for one in json.loads(found[1].replace("&quot;", '"'))}
    assert "power 64: principal axis 1 (across) and principal axis 2 (up), " in seen["start"]["status"]
    expected = {
        "key": "zoom 2.00",
        "wheel": "zoom 14.8",
        "reset": "zoom 1.00",
        "component": "component 3 (across) and principal axis 2 (up)",
        "power": "power 4: component 3",
        "address": "power 4: component 0 (across) and",
    }
    for what, words in expected.items():
        assert words in seen[what]["status"], (what, seen[what])
    assert "zoom 8.00" in seen["address"]["status"]
    pictures = [tuple(one["ink"]) for one in seen.values()]
    assert all(bright > 50 for bright, _ in pictures)
    assert len({mark for _, mark in pictures}) >= 7  # start and reset show the same
    assert seen["start"]["ink"] == seen["reset"]["ink"]


@pytest.mark.slow
def test_a_browser_refuses_other_scripts_and_styles(whole, tmp_path):
    path = tmp_path / "foreign.html"
    foreign = '<script>document.title = "RAN"</script><style>h1 { display: none; }</style>'
    path.write_text(whole.read_text(encoding="utf-8").replace("</head>", foreign + "</head>", 1), encoding="utf-8")
    done = browse(path, tmp_path)
    assert re.search(r"<title>(.*?)</title>", done.stdout)[1].startswith("Embedding of")
    refused = re.findall(r"(?:Executing|Applying) inline (script|style) violates", done.stderr)
    assert sorted(refused) == ["script", "style"]


def test_numbers_that_are_not_numbers(result, tmp_path):
    """Infinite figures give a page that can be read; rows that are not numbers are refused."""
    report = {"lost_mass": np.inf, "total_seconds": np.inf, "stage_seconds": {"graph": np.inf, "heat": 1.0}}
    data_of(written(changed(result, report=report), tmp_path / "p.html"))
    points = np.array(result.points[4])
    points[50:60, 1] = np.nan
    with pytest.raises(ValueError, match="points must be finite"):
        written(changed(result, points={4: points}, report={"power": 4}), tmp_path / "p.html")
