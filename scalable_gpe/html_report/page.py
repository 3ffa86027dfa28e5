"""One page about a run: parameters, figures, audit, charts, and pictures to zoom into; needs no network."""

import base64
import json
import re
import struct
import time
import zlib
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from scalable_gpe import __version__
from scalable_gpe.accuracy import LEAST_POINTS, Audit
from scalable_gpe.accuracy import audit as make_audit
from scalable_gpe.embedding import Embedding
from scalable_gpe.formatting import in_bytes, in_time, plain, report_lines
from scalable_gpe.heat.bandwidth import epsilon_sweep
from scalable_gpe.html_report import charts
from scalable_gpe.html_report.charts import Axis, Series, span
from scalable_gpe.io.files import check_target
from scalable_gpe.projection import blocks, edges_of, powers_of, principal_axes
from scalable_gpe.spectral.density import spectrum
from scalable_gpe.spectral.power_choice import FEW_DIRECTIONS

_MOST_ROWS = 60_000  # that a page carries
_MOST_BYTES = 4_500_000  # of their coordinates
_MOST_COMPONENTS = 32
_STEPS = 65_534  # of a coordinate; one more number says that a row is too far out
_COVERAGE = 0.999  # part of the rows within the first view, along each axis
_PIXELS = 256
_NIGHT = (15, 15, 23)
_RAMP = re.findall(".{7}", "#414487#375a8c#2e6f8e#26828e#1f958b#22a884#3bbb75#63cb5f#95d840#cae11f#fde725")
_LABELS = re.findall(
    ".{7}",
    "#4e9bd1#ff9a3c#5fc35f#f0605f#b18ad6#b07d6c#f19ad2#a5a5a5#d3d347#3fd0df"
    "#a6cee8#ffc78f#a9e0a0#ffadaa#d0bbe8#d3b3a8#fbc7e5#d0d0d0#e6e69c#a9e6ee",
)


def write_report(
    embedding: Embedding,
    path: Any,
    *,
    audit: Any = True,
    color: Any = None,
    color_label: str = "",
    title: str = "",
) -> Path:
    """Write one page (HTML) about a run, in a file that needs nothing else and no network.

    It shows the parameters, the report, the seconds of each stage, the audit, what other epsilons would mean, the
    effective rank of A^p, the density of all rows at each power, and a picture to zoom into with a choice of
    components. That one is drawn from a random sample of at most 60,000 rows; the page says how many.

    Parameters
    ----------
    embedding : Embedding
        Of `embed` or `open`.
    path : path
        The page, such as ``"page.html"``; an existing one is replaced.
    audit : bool or Audit
        Measure the accuracy (True), leave it out (False), or show an audit that was made before.
    color : array (N,), optional
        A column of numbers, or up to 20 labels, to colour the rows by.
    color_label : str
        What the colours mean.
    title : str
        Title of the page.

    Returns
    -------
    Path
        The page.

    Examples
    --------
    >>> import scalable_gpe as gpe
    >>> result = gpe.embed(gpe.datasets.torus(500), power=[4, 16], progress=False)
    >>> gpe.write_report(result, "torus.html", audit=False).name
    'torus.html'
    """
    if not isinstance(embedding, Embedding):
        raise TypeError(f"embedding must be an Embedding, as embed or open gives it; got {type(embedding).__name__}.")
    if not isinstance(audit, bool | Audit):
        raise TypeError(f"audit must be True, False or an Audit; got {type(audit).__name__}.")
    target = check_path(path)
    view = _View(embedding, color, color_label)
    enough = embedding.graph.storage_order.n_points >= LEAST_POINTS
    found = (make_audit(embedding) if enough else None) if audit is True else audit or None
    text = _page(embedding, found, view, title)
    unfinished = target.with_name(f".unfinished-{target.name}")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(target)
    return target


def check_path(path: Any) -> Path:
    """Check that a page can be written to a path."""
    target = check_target(path)
    if target.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"a page ends in .html; got {str(target)!r}.")
    return target


# --- the picture to zoom into ---------------------------------------------------------------------


class _View:
    """A sample of the rows in small whole numbers, and the density of all rows at each power."""

    def __init__(self, embedding: Embedding, color: Any, color_label: str) -> None:
        powers = powers_of(embedding)
        self.n_rows, self.n_components = next(iter(powers.values())).shape
        shown = min(self.n_components, _MOST_COMPONENTS)
        n_axes = min(3, self.n_components)
        self.axes = [f"principal axis {i + 1}" for i in range(n_axes)] + [f"component {i}" for i in range(shown)]
        most = min(_MOST_ROWS, max(5_000, _MOST_BYTES // (2 * len(self.axes) * len(powers))))
        chosen = np.random.default_rng(0).choice(self.n_rows, min(self.n_rows, most), replace=False)
        self._rows = np.sort(chosen)
        self.color = None if color is None else self._color(color, color_label)
        self.powers, self.pictures = [], []
        for power, points in powers.items():
            picture, facts = self._power(points, shown, n_axes)
            self.powers.append({"power": int(power), **facts})
            self.pictures.append((power, picture))

    @property
    def n_sampled(self) -> int:
        """Rows that the page carries."""
        return len(self._rows)

    def _power(self, points: Any, shown: int, n_axes: int) -> tuple[str, dict[str, Any]]:
        """The density of all rows along the principal axes, and the sample of one power."""
        mean, axes = principal_axes(points, n_axes)

        def turn(block: np.ndarray) -> np.ndarray:
            return np.hstack([(block - mean) @ axes, block[:, :shown]])

        sample = self._sample(points, turn)
        home = np.array([edges_of(values, _COVERAGE) for values in sample.T])
        home[:, 1] = np.maximum(home[:, 1], home[:, 0] + 1e-30)
        wide = home[:, 1] - home[:, 0]
        low, high = home[:, 0] - wide, home[:, 1] + wide
        counts, outside = self._density(points, turn, home, low, high)
        columns = [self._steps(values, *ends) for values, *ends in zip(sample.T, low, high, strict=True)]
        facts = {"columns": columns, "low": low.tolist(), "high": high.tolist(), "home": home.tolist()}
        return _png(counts), {**facts, "outside": outside}

    def _sample(self, points: Any, turn: Any) -> np.ndarray:
        parts, start = [], 0
        for block in blocks(points):
            inside = self._rows[(self._rows >= start) & (self._rows < start + len(block))]
            parts.append(turn(block[inside - start]))
            start += len(block)
        return np.concatenate(parts).astype(np.float64)

    def _density(
        self, points: Any, turn: Any, home: np.ndarray, low: np.ndarray, high: np.ndarray
    ) -> tuple[np.ndarray, int]:
        """Rows per pixel of the first two axes, and the rows that lie outside of what the page can show."""
        second = min(1, len(home) - 1)
        half = 0.55 * max(home[0, 1] - home[0, 0], home[second, 1] - home[second, 0])
        corner = home[[0, second]].mean(axis=1) - half
        side = int(np.clip(3 * np.sqrt(self.n_rows), 48, _PIXELS))  # few rows would be lost among many pixels
        counts, outside = np.zeros(side**2, np.int64), 0
        for block in blocks(points):
            turned = turn(block).astype(np.float64)
            outside += int(((turned < low) | (turned > high)).any(axis=1).sum())
            at = np.floor((turned[:, [0, second]] - corner) / (2 * half) * side)
            seen = ((at >= 0) & (at < side)).all(axis=1)
            place = at[seen].astype(np.int64)
            counts += np.bincount((side - 1 - place[:, 1]) * side + place[:, 0], minlength=side**2)
        return counts.reshape(side, side), outside

    def _steps(self, values: np.ndarray, low: float, high: float) -> str:
        steps = np.round((values - low) / (high - low) * _STEPS)
        return _base64(np.where((steps >= 0) & (steps <= _STEPS), steps, _STEPS + 1).astype("<u2"))

    def _color(self, color: Any, label: str) -> dict[str, Any]:
        """Labels as numbers with their colours, or a column of numbers in steps."""
        column = np.asarray(color)
        if column.shape != (self.n_rows,):
            raise ValueError(f"color must have one value for each of the {self.n_rows} rows; got shape {column.shape}.")
        if column.dtype.kind == "O":
            column = np.array([str(value) for value in column])
        labels = np.unique(column) if column.dtype.kind in "iubUS" else np.empty(0)
        if len(labels) > len(_LABELS) and column.dtype.kind in "US":
            raise ValueError(f"color has {len(labels)} labels; at most {len(_LABELS)} can be told apart. Merge some.")
        if 0 < len(labels) <= len(_LABELS):
            values = np.searchsorted(labels, column[self._rows]).astype(np.uint8)
            names = [str(one) for one in labels]
            return {"label": label, "labels": names, "shades": _LABELS[: len(names)], "values": _base64(values)}
        wide = column.astype(np.float64)
        known = wide[np.isfinite(wide)]
        if not known.size:
            raise ValueError("color has no finite number. Pass other values.")
        low, high = (float(end) for end in np.quantile(known, [0.01, 0.99]))
        high = high if high > low else low + 1
        steps = np.round(np.clip((wide[self._rows] - low) / (high - low), 0, 1) * _STEPS)
        values = np.where(np.isfinite(steps), steps, _STEPS + 1).astype("<u2")
        return {"label": label, "labels": None, "low": low, "high": high, "values": _base64(values)}

    def data(self) -> str:
        """What the page's script reads; no text in it can end the script."""
        facts = {
            "rows": self.n_rows,
            "sampled": self.n_sampled,
            "axes": self.axes,
            "first": [0, 1 if len(self.axes) > 1 else 0],
            "powers": self.powers,
            "color": self.color,
            "ramp": _RAMP,
        }
        return json.dumps(facts).replace("<", "\\u003c").replace("&", "\\u0026")


def _base64(values: np.ndarray) -> str:
    return base64.b64encode(values.tobytes()).decode("ascii")


def _png(counts: np.ndarray) -> str:
    """Shades of the logarithm of counts as the address of a picture."""
    shades = np.zeros(counts.shape, np.uint8)
    top = np.log(max(int(counts.max()), 2))
    shades[counts > 0] = 1 + np.round((0.1 + 0.9 * np.log(counts[counts > 0]) / top) * 254).astype(np.uint8)
    stops = np.array([[int(one[i : i + 2], 16) for i in (1, 3, 5)] for one in _RAMP], float)
    at = np.linspace(0, len(stops) - 1, 255)
    ramp = np.stack([np.interp(at, np.arange(len(stops)), stops[:, i]) for i in range(3)], axis=1)
    palette = np.vstack([_NIGHT, np.round(ramp)]).astype(np.uint8).tobytes()
    lines = b"".join(b"\0" + row.tobytes() for row in shades)
    size = struct.pack(">IIBBBBB", counts.shape[1], counts.shape[0], 8, 3, 0, 0, 0)
    parts = ((b"IHDR", size), (b"PLTE", palette), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    chunks = (
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in parts
    )
    picture = b"\x89PNG\r\n\x1a\n" + b"".join(chunks)
    return "data:image/png;base64," + base64.b64encode(picture).decode("ascii")


# --- the page -------------------------------------------------------------------------------------


def _page(embedding: Embedding, found: Audit | None, view: _View, title: str) -> str:
    assets = files("scalable_gpe.html_report").joinpath("assets")
    style, script = (assets.joinpath(name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    heading = title or f"Embedding of {view.n_rows:,} rows in {view.n_components} dimensions"
    sections = [
        ("embedding", "Embedding", _explorer(view)),
        ("accuracy", "Accuracy", _accuracy(found)),
        ("choices", "Epsilon and power", _choices(embedding)),
        ("stages", "What it took", _stages(embedding)),
        ("details", "Parameters and report", _details(embedding)),
    ]
    links = "".join(f'<li><a href="#{name}">{words}</a></li>' for name, words, _ in sections)
    body = "".join(f'<section id="{name}"><h2>{words}</h2>{text}</section>' for name, words, text in sections)
    finished = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(embedding.report.get("finished_at", time.time())))
    policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<link rel="icon" href="data:,">
<title>{escape(heading)}</title>
<style>
{style}</style>
</head>
<body>
<main>
<header>
<h1>{escape(heading)}</h1>
<p class="soft">Gaussian process embedding, power {escape(plain(embedding.report["power"]))}; finished {finished},
scalable_gpe {escape(embedding.report.get("versions", {}).get("scalable_gpe", __version__))}.</p>
<nav aria-label="Sections"><ul>{links}</ul></nav>
{_tiles(embedding, found)}
{_warnings(embedding)}
</header>
{body}
<footer>This page holds all that it shows: it loads nothing from elsewhere.</footer>
</main>
<script type="application/json" id="data">{view.data()}</script>
<script>
{script}</script>
</body>
</html>
"""


def _tiles(embedding: Embedding, found: Audit | None) -> str:
    """The figures to see first."""
    report = embedding.report
    unknown = "not measured"
    recall, lost = report["recall"], report["lost_mass"]
    tiles = [
        ("rows", f"{report['n_rows']:,}", f"{report['n_duplicates']:,} duplicates" if report["n_duplicates"] else ""),
        ("neighbours found", unknown if recall is None else f"{recall:.1%}", "recall, on sampled rows"),
        ("kernel mass lost", unknown if lost is None else f"{lost:.2%}", "by keeping neighbours only"),
    ]
    if found:
        power, one = max(found["powers"].items())
        words = f"median, power {power}; the sketch alone {one['sketch']['median_error']:.1%}"
        tiles.append(("error of distances", f"{one['median_error']['value']:.1%}", words))
    limit = embedding.parameters.get("memory_limit")
    tiles += [
        ("time", in_time(report["total_seconds"]), "all stages, resumed runs included"),
        ("peak memory", in_bytes(report["peak_memory"]), f"of {in_bytes(limit)} allowed" if limit else ""),
    ]
    cells = (f"<div><dt>{a}</dt><dd>{escape(b)}<small>{escape(c)}</small></dd></div>" for a, b, c in tiles)
    return f'<dl class="tiles">{"".join(cells)}</dl>'


def _warnings(embedding: Embedding) -> str:
    """What a reader must know before trusting the rest."""
    report = embedding.report
    lines = [text[0].upper() + text[1:] for text in report.get("warnings", [])]
    if report["n_connected_components"] > 1:
        lines.append(
            f"The neighbour graph falls into {report['n_connected_components']:,} pieces; distances between pieces "
            "mean only that."
        )
    if report["n_isolated"] and not any("no effective neighbours" in line for line in lines):
        lines.append(f"{report['n_isolated']:,} rows have no effective neighbours and lie where chance put them.")
    return f'<ul class="warnings">{"".join(f"<li>{escape(line)}</li>" for line in lines)}</ul>' if lines else ""


def _explorer(view: _View) -> str:
    sampled = f"a random sample of {view.n_sampled:,} of the {view.n_rows:,} rows"
    drawn = sampled if view.n_sampled < view.n_rows else f"all {view.n_rows:,} rows"
    hidden = view.n_components - _MOST_COMPONENTS
    first = f" The first {_MOST_COMPONENTS} of {view.n_components} components can be chosen." if hidden > 0 else ""
    pictures = "".join(
        f'<button type="button" data-power="{number}"><img src="{picture}" alt="Density of all rows at power {power}, '
        f'first two principal axes"><span>power {power}</span></button>'
        for number, (power, picture) in enumerate(view.pictures)
    )
    return f"""<p class="note">Drawn from {drawn}. Principal axes are a rotation of the embedding, so distances
are the same. Click the picture, then scroll to zoom and drag to move; or use the buttons, or + - 0 and the arrow
keys.{first} The address of the page keeps the view.</p>
<div id="explorer"><canvas id="canvas" tabindex="0" role="img" aria-label="The embedding"></canvas>
<div id="controls">
<label for="power">power<select id="power"></select></label>
<label for="x">across<select id="x"></select></label>
<label for="y">up<select id="y"></select></label>
<p><button type="button" id="closer" aria-label="Zoom in">+</button>
<button type="button" id="farther" aria-label="Zoom out">−</button>
<button type="button" id="reset">whole picture</button></p>
{_color_legend(view.color)}
<p id="status" aria-live="polite"></p>
<noscript><p>This picture needs JavaScript; the ones below do not.</p></noscript>
</div></div>
<h3>All {view.n_rows:,} rows at each power</h3>
<p class="note">Density along the first two principal axes of each power, in shades of the logarithm.</p>
<div class="overview">{pictures}</div>"""


def _color_legend(color: dict[str, Any] | None) -> str:
    if color is None:
        return '<div id="ramp"></div><div id="ends"><span>1 per cell</span><span id="most"></span></div>'
    title = f"<p class='note'>{escape(color['label'])}</p>" if color["label"] else ""
    if color["labels"] is None:
        ends = f"<span>{charts.number(color['low'])}</span><span>{charts.number(color['high'])}</span>"
        return f'{title}<div id="ramp"></div><div id="ends">{ends}</div>'
    keys = "".join(
        f'<li><span class="key" style="background:{shade}"></span>{escape(name)}</li>'
        for name, shade in zip(color["labels"], color["shades"], strict=True)
    )
    return f'{title}<ul class="legend">{keys}</ul>'


def _accuracy(found: Audit | None) -> str:
    if found is None:
        return f"<p>No audit was made for this page (it needs {LEAST_POINTS} different rows or more).</p>"
    rows: list[tuple[str, dict[str, float], int, float | None]] = []
    for power, one in found["powers"].items():
        rows.append((f"power {power}, median", one["median_error"], 0, one["sketch"]["median_error"]))
        rows.append((f"power {power}, 95 %", one["bound_95"], 1, one["sketch"]["bound_95"]))
    most = max(max(figure["high"], beside or 0) for _, figure, _, beside in rows)
    names = [("s0", "half of the pairs within"), ("s1", "95 % of the pairs within"), ("sbeside", "the sketch alone")]
    parts = [charts.intervals("Relative error of distances", Axis("relative error", 0, 1.08 * most), rows, names)]
    shares = _shares(found)
    if shares:
        least = min(figure["low"] for _, figure, _, _ in shares)
        axis = Axis("share (1 is best)", least - 0.1 * (1 - least) - 1e-4, 1 + 0.02 * (1 - least) + 1e-5)
        parts.append(charts.intervals("Neighbours and mass", axis, shares, []))
    return (
        "<p>Straight-line distances of the embedding against exact diffusion distances. Where a dot lies at its "
        "diamond, the sketch is all the error there is, and only more components make it smaller.</p>"
        f"<div class='charts'>{''.join(parts)}</div>"
        f"<p class='note'>Bars are 95 % intervals, from {found['n_exact']} rows with exact diffusion distances and "
        f"{found['n_probes']:,} rows with exact neighbours; the audit took {in_time(found['seconds'])}.</p>"
        f"<details><summary>All figures of the audit</summary>{_table(found.lines())}</details>"
    )


def _shares(found: Audit) -> list[tuple[str, dict[str, float], int, float | None]]:
    """Figures of an audit that should be 1."""
    rows: list[tuple[str, dict[str, float], int, float | None]] = []
    if found["recall"]:
        rows.append(("recall", found["recall"], 2, None))
    if lost := found["lost_mass"]:
        kept = {"value": 1 - lost["value"], "low": 1 - lost["high"], "high": 1 - lost["low"]}
        rows.append(("mass kept", kept, 2, None))
    for power, one in found["powers"].items():
        if one["trustworthiness"]:
            rows.append((f"trust, power {power}", one["trustworthiness"], 2, None))
    return rows


def _choices(embedding: Embedding) -> str:
    return f"<div class='charts'>{_epsilon_charts(embedding)}{_rank_chart(embedding)}</div>"


def _epsilon_charts(embedding: Embedding) -> str:
    epsilon = embedding.kernel.epsilon
    table = epsilon_sweep(embedding.graph)
    x = Axis("epsilon (squared units of X)", *span(table["epsilon"], log=True), log=True)
    own: dict[str, Any] = {"marks": [epsilon], "marks_name": f"this run: {epsilon:.3g}"} if epsilon else {}
    counts = [
        Series("effective neighbours (median row)", table["epsilon"], table["effective_neighbors"], 0),
        Series("connected components", table["epsilon"], table["n_connected_components"], 1),
    ]
    y = Axis("number", *span([one.y for one in counts], log=True, floor=0.5), log=True)
    shares = [
        Series("mass lost", table["epsilon"], np.maximum(table["lost_mass"], 1e-8), 2),
        Series("weight of the last neighbour", table["epsilon"], np.maximum(table["last_weight"], 1e-8), 3),
    ]
    z = Axis("share", 1e-6, 1.5, log=True)
    return charts.lines("What each epsilon would mean: numbers", x, y, counts, **own) + charts.lines(
        "What each epsilon would mean: shares", x, z, shares, **own
    )


def _rank_chart(embedding: Embedding) -> str:
    density = spectrum(embedding.heat)
    powers = np.unique(np.geomspace(1, max(2, density.n_sweeps**2 // 4), 30).astype(int))
    ranks = density.effective_rank(powers)
    k = embedding.parameters["n_components"]
    x = Axis("power p", *span(powers, log=True), log=True)
    y = Axis("directions left", *span([*ranks, k, 1.0], log=True, floor=0.5), log=True)
    curves = [
        Series("effective rank of Aᵖ", powers, ranks, 0),
        Series(f"k = {k} dimensions", powers[[0, -1]], [k, k], 1),
    ]
    own: dict[str, Any] = {"marks": list(powers_of(embedding)), "marks_name": "powers of this run"}
    few = (0.5, FEW_DIRECTIONS, f"fewer than {FEW_DIRECTIONS:g} directions left")
    return charts.lines("What a power leaves", x, y, curves, band=few, **own)


def _stages(embedding: Embedding) -> str:
    report = embedding.report
    rows = [(stage, seconds, in_time(seconds)) for stage, seconds in report["stage_seconds"].items()]
    top = max([seconds for _, seconds, _ in rows] + [1e-3])
    sweeps = "".join(f"<tr><th scope='row'>sweeps, {a}</th><td>{b:,}</td></tr>" for a, b in report["sweeps"].items())
    return (
        f"<div class='charts'>{charts.bars('Seconds of each stage', Axis('seconds', 0, top), rows)}"
        f"<div><p class='note'>A sweep is one pass over all blocks of K.</p><table>{sweeps}</table></div></div>"
    )


def _details(embedding: Embedding) -> str:
    parameters = [(name, plain(value)) for name, value in embedding.parameters.items()]
    report = report_lines(embedding.report, embedding.parameters.get("memory_limit"))
    versions = list(embedding.report.get("versions", {}).items())
    return (
        f"<div class='columns'><div><h3>Parameters</h3>{_table(parameters)}</div>"
        f"<div><h3>Report</h3>{_table(report)}</div><div><h3>Versions</h3>{_table(versions)}</div></div>"
    )


def _table(rows: list[tuple[str, str]]) -> str:
    cells = (f'<tr><th scope="row">{escape(a)}</th><td>{escape(b)}</td></tr>' for a, b in rows)
    return f"<table>{''.join(cells)}</table>"
