"""Tables and pictures of what `run.py` has measured."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from peers.methods import METHODS, OURS
from peers.records import Record, Results

TABLES, TIME_PICTURE, QUALITY_PICTURE = "peers-results.md", "figures/peers-time.png", "figures/peers-quality.png"
FIGURES = ("labels", "NMI", "few", "rho", "diffusion 16", "diffusion 64", "diffusion all")
PANELS = (("branching", "rho"), ("Fashion-MNIST", "NMI"), ("Fashion-MNIST", "few"), ("swiss roll", "rho"))
_EQUAL, _POWER = "all", "64"
_FLOOR = "neighbours alone"
_HEADINGS = {
    "labels": "labels",
    "NMI": "NMI",
    "few": "few labels",
    "rho": "order of true distances",
    "diffusion 16": "exact, power 16",
    "diffusion 64": "exact, power 64",
    "diffusion all": "exact, pseudotime",
}


@dataclass(frozen=True)
class Value:
    """Mean over seeds, and its standard error (None for one seed)."""

    mean: float
    error: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> "Value":
        error = float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None
        return cls(float(np.mean(values)), error)

    def text(self, form: Callable[[float], str]) -> str:
        return form(self.mean) + ("" if self.error is None else f" ± {form(self.error)}")


@dataclass(frozen=True)
class Runs:
    """The runs of one method on one data set of one size: one per seed."""

    records: tuple[Record, ...]

    @property
    def done(self) -> list[Record]:
        return [one for one in self.records if one.status == "done"]

    @property
    def stop(self) -> Record | None:
        """The run that did not end well, if any."""
        return next((one for one in self.records if one.status != "done"), None)

    def value(self, of: Callable[[Record], float]) -> Value | None:
        return Value.of([of(one) for one in self.done]) if self.done else None

    def figure(self, figure: str, time: str | None = None) -> Value | None:
        """One figure, at one time of the diffusion (None: the best one)."""
        found = [
            [at[figure] for t, at in one.figures.items() if figure in at and time in (t, None)] for one in self.done
        ]
        values = [max(one) for one in found if one]
        return Value.of(values) if values else None

    @property
    def times(self) -> list[str]:
        return [time for time in self.done[0].figures if time != "pseudotime"] if self.done else []

    @property
    def stability(self) -> Value | None:
        """Spearman's correlation of the distances of the same pairs between seeds."""
        from scipy.stats import spearmanr

        lists = [one.distances for one in self.done if one.distances]
        if len(lists) < 2:
            return None
        pairs = [(a, b) for number, a in enumerate(lists) for b in lists[:number]]
        return Value(float(np.mean([spearmanr(a, b)[0] for a, b in pairs])), None)


Table = dict[tuple[str, int, str], Runs]


def write_report(results: Results, folder: Path) -> None:
    """Write all tables as Markdown, and two pictures."""
    grouped = defaultdict(list)
    for key, record in sorted(results.records.items()):
        if key.method in METHODS:
            grouped[key.data, key.n_rows, key.method].append(record)
    table = {key: Runs(tuple(records)) for key, records in grouped.items()}
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    (folder / TABLES).write_text(markdown(table), encoding="utf-8")
    _draw_cost(table, folder / TIME_PICTURE)
    _draw_quality(table, folder / QUALITY_PICTURE)
    print(f"{len(results.records)} runs: {folder / TABLES}, {folder / TIME_PICTURE}, {folder / QUALITY_PICTURE}")


# --- tables ---------------------------------------------------------------------------------------


def markdown(table: Table) -> str:
    """Write all tables as Markdown."""
    main = _main_data(table)
    sections = [
        _measured_on(table),
        f"### Seconds, {main}\n\nCompiled, and in brackets the first call of a process.\n\n{_cost(table, _seconds)}",
        f"### Gigabytes, {main}\n\nPeak of the process, the rows included.\n\n{_cost(table, _gigabytes)}",
    ]
    for name in _names(table, 0):
        size = _quality_size(table, name)
        if size:
            sections.append(f"### Quality, {name}, {size:,} rows\n\n" + _quality(table, name, size))
    exact = sorted({(data, n) for data, n, _ in table if _has_exact(table, data, n)})
    for name, size in exact:
        if size != _quality_size(table, name):
            sections.append(f"### Exact diffusion distances, {name}, {size:,} rows\n\n" + _quality(table, name, size))
    sections.append("### Recall of 15 neighbours\n\n" + _recalls(table))
    failed = _failures(table)
    return "\n\n".join([*sections, *([f"### Failures\n\n{failed}"] if failed else [])]) + "\n"


def _measured_on(table: Table) -> str:
    records = [record for runs in table.values() for record in runs.records]
    machines = {
        f"{one['cpu']}, {one['cores']} cores, {one['memory'] / 1e9:.0f} GB, {one['system']}"
        for one in (record.machine for record in records)
    }
    versions = sorted({f"{name} {number}" for record in records for name, number in record.versions.items()})
    limits = {f"{one['time']:.0f} s and {one['memory'] / 1e9:.0f} GB" for one in (record.limits for record in records)}
    return (
        f"Measured on {'; '.join(sorted(machines))}. Limits of one run: {'; '.join(sorted(limits))}. "
        f"Versions: {', '.join(versions)}."
    )


def _main_data(table: Table) -> str:
    """The data set with the most sizes: that of the time."""
    sizes = defaultdict(set)
    for data, n_rows, _ in table:
        sizes[data].add(n_rows)
    return max(sizes, key=lambda data: (len(sizes[data]), max(sizes[data])))


def _names(table: Table, column: int) -> list[Any]:
    return list(dict.fromkeys(key[column] for key in table))


def _methods(keys: Iterable[tuple[str, int, str]]) -> list[str]:
    known = {key[2] for key in keys}
    return [name for name in METHODS if name in known]


def _cost(table: Table, cell: Callable[[Runs], str]) -> str:
    main = _main_data(table)
    ours = [key for key in table if key[0] == main]
    sizes = sorted({key[1] for key in ours})
    rows = [
        [name, *(cell(table[main, n, name]) if (main, n, name) in table else "" for n in sizes)]
        for name in _methods(ours)
        if name != "input"
    ]
    return _lines(["method", *(f"{n:,}" for n in sizes)], rows)


def _seconds(runs: Runs) -> str:
    time, first = runs.value(lambda one: one.compiled), runs.value(lambda one: one.first)
    if time is None or first is None:
        return _stopped(runs)
    return f"{time.text(_short)} ({_short(first.mean)})"


def _gigabytes(runs: Runs) -> str:
    peak = runs.value(lambda one: one.peak / 1e9)
    return _stopped(runs) if peak is None else f"{peak.mean:.2f}"


def _stopped(runs: Runs) -> str:
    stop = runs.stop
    if stop is None:
        return ""
    if stop.status == "time":
        return f"> {stop.limits['time']:.0f} s"
    return f"> {stop.limits['memory'] / 1e9:.0f} GB" if stop.status == "memory" else "failed"


def _quality_size(table: Table, name: str) -> int | None:
    """The largest size with several seeds, or the largest with most methods."""
    sizes = {n for data, n, _ in table if data == name}
    repeated = {n for n in sizes if any(len(table[key].done) > 1 for key in table if key[:2] == (name, n))}
    return max(repeated or sizes, default=None)


def _has_exact(table: Table, data: str, n_rows: int) -> bool:
    runs = [table[key] for key in table if key[:2] == (data, n_rows)]
    return any(one.figure("diffusion all") is not None for one in runs)


def _quality(table: Table, name: str, size: int) -> str:
    runs = {method: table[name, size, method] for method in _methods(key for key in table if key[:2] == (name, size))}
    runs = {method: one for method, one in runs.items() if one.figure("labels") is not None}
    shown = [figure for figure in FIGURES if any(one.figure(figure) is not None for one in runs.values())]
    rows = []
    for method, one in runs.items():
        for label, time in _variants(method, one):
            cells = [one.figure(figure, time) for figure in shown]
            stable = one.stability if time in ("", _EQUAL) and method != "input" else None
            rows.append([label, *("" if cell is None else cell.text(_share) for cell in cells), _maybe(stable)])
        pseudotime = one.figure("rho", "pseudotime")
        if pseudotime is not None:
            own = {"rho": pseudotime}
            label = f"{method}, its pseudotime"
            rows.append([label, *(own[figure].text(_share) if figure in own else "" for figure in shown), ""])
    return _lines(["method", *(_HEADINGS[figure] for figure in shown), "same with another seed"], rows)


def _variants(method: str, runs: Runs) -> list[tuple[str, str | None]]:
    """The rows of a method in the table of quality: eigenvectors at equal powers, and each figure at its best time."""
    if "" in runs.times:
        return [(method, "")]
    return [(f"{method}, all scales", _EQUAL), (f"{method}, power 64", _POWER), (f"{method}, best power", None)]


def _recalls(table: Table) -> str:
    main = _main_data(table)
    keys = [key for key in table if key[0] == main and METHODS[key[2]].group == _FLOOR]
    sizes = sorted({key[1] for key in keys})
    rows = [
        [name, *(_maybe(table[main, n, name].figure("recall")) if (main, n, name) in table else "" for n in sizes)]
        for name in _methods(keys)
    ]
    return _lines(["method", *(f"{n:,}" for n in sizes)], rows)


def _failures(table: Table) -> str:
    found = {
        f"- {method}, {data}, {n_rows:,} rows: {one.reason}"
        for (data, n_rows, method), runs in table.items()
        for one in runs.records
        if one.status == "failed"
    }
    return "\n".join(sorted(found))


def _lines(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _maybe(value: Value | None) -> str:
    return "" if value is None else _share(value.mean)


def _share(value: float) -> str:
    return f"{value:.3f}".replace("0.", ".", 1)


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


# --- pictures -------------------------------------------------------------------------------------

_COLORS = {
    OURS: ("#0b4f9e", "#2f7fd1", "#6aa9e6", "#083061", "#00a6c7"),
    "neighbours alone": ("#555555", "#888888", "#aaaaaa"),
    "eigenvectors": ("#b3261e", "#d95f02", "#e6ab02", "#a6611a", "#8c564b", "#e78ac3", "#c51b7d"),
    "pictures": ("#1b7837", "#5aae61", "#6a3d9a", "#9e86c8", "#33a02c", "#01665e"),
    "other": ("#333333",),
    "input": ("#000000",),
}
_MARKERS = "osD^vP<>"


@dataclass(frozen=True)
class Style:
    """How a method is drawn."""

    color: str
    marker: str
    line: str
    width: float


def _styles() -> dict[str, Style]:
    """Colours by group, so that families are seen at once; ours are thick, neighbours alone dashed."""
    found, count = {}, defaultdict(int)
    for name, method in METHODS.items():
        number = count[method.group]
        count[method.group] += 1
        colors = _COLORS[method.group]
        line = "--" if method.group == _FLOOR else "-"
        width = 3.0 if name == OURS else 1.6
        found[name] = Style(colors[number % len(colors)], _MARKERS[number % len(_MARKERS)], line, width)
    return found


def _draw_cost(table: Table, path: Path) -> None:
    """Time and memory against the number of rows; a cross where a method was stopped, with the reason."""
    import matplotlib.pyplot as plt

    main = _main_data(table)
    methods = [name for name in _methods(key for key in table if key[0] == main) if name != "input"]
    figure, axes = plt.subplots(1, 2, figsize=(15, 7.5), layout="constrained")
    panels = (
        (axes[0], "seconds (compiled)", lambda one: one.compiled, "time"),
        (axes[1], "gigabytes (peak)", lambda one: one.peak / 1e9, "memory"),
    )
    for ax, label, of, _ in panels:
        for name in methods:
            _draw_line(ax, table, main, name, of)
        ax.set(xscale="log", yscale="log", xlabel="rows", ylabel=label)
        _clean(ax)
    limits = next(iter(table.values())).records[-1].limits
    for ax, limit, text in (
        (axes[0], limits["time"], "time limit"),
        (axes[1], limits["memory"] / 1e9, "memory limit"),
    ):
        ax.axhline(limit, color="#bbbbbb", linewidth=1, zorder=0)
        ax.annotate(text, (0, limit), xycoords=("axes fraction", "data"), color="#777777", va="bottom", fontsize=12)
    _legend(figure, axes[0], methods)
    _save(figure, path)


def _draw_line(ax: Any, table: Table, data: str, name: str, of: Callable[[Record], float]) -> None:
    style = _styles()[name]
    keys = sorted(key for key in table if key[0] == data and key[2] == name)
    known = [(key[1], table[key].value(of)) for key in keys]
    points = [(n, value) for n, value in known if value is not None]
    ax.errorbar(
        [n for n, _ in points],
        [value.mean for _, value in points],
        yerr=[value.error or 0 for _, value in points],
        color=style.color,
        marker=style.marker,
        linestyle=style.line,
        linewidth=style.width,
        markersize=7,
        label=name,
        zorder=3 if name == OURS else 2,
    )
    stops = [(key[1], table[key].stop) for key in keys if not table[key].done]
    for n_rows, stop in stops:
        if stop is None:
            continue
        at = _where_stopped(stop, of)
        last = points[-1] if points else None
        if last:
            ax.plot([last[0], n_rows], [last[1].mean, at], color=style.color, linestyle=":", linewidth=1)
        ax.plot(n_rows, at, "x", color=style.color, markersize=11, markeredgewidth=2.5)
        ax.annotate(stop.status, (n_rows, at), (5, 5), textcoords="offset points", color=style.color, fontsize=11)


def _where_stopped(stop: Record, of: Callable[[Record], float]) -> float:
    """The height of the cross: what the run had used when it ended."""
    used = Record(stop.key, "done", stop.peak, stop.process, stop.machine, stop.limits, seconds={"call": stop.process})
    return of(used)


def _draw_quality(table: Table, path: Path) -> None:
    """Quality against time, one panel for each figure that has been measured."""
    import matplotlib.pyplot as plt

    panels = [(name, figure) for name, figure in PANELS if _quality_size(table, name)]
    figure, axes = plt.subplots(
        1, len(panels), figsize=(5.2 * len(panels) + 3, 6.2), layout="constrained", squeeze=False
    )
    seen = dict[str, None]()
    for ax, (name, what) in zip(axes[0], panels, strict=True):
        size = _quality_size(table, name)
        for key in [key for key in table if key[:2] == (name, size)]:
            value, seconds = (
                table[key].figure(what, _shown_time(table[key])),
                table[key].value(lambda one: one.compiled),
            )
            if value is None or seconds is None or key[2] == "input":
                continue
            seen[key[2]] = None
            style = _styles()[key[2]]
            ax.errorbar(
                seconds.mean,
                value.mean,
                yerr=value.error,
                color=style.color,
                marker=style.marker,
                markersize=14 if key[2] == OURS else 9,
                linestyle="none",
                label=key[2],
            )
        raw = table.get((name, size or 0, "input"))
        if raw and (value := raw.figure(what)):
            ax.axhline(value.mean, color="#999999", linewidth=1, linestyle="--", zorder=0)
            ax.annotate(
                "input rows", (0.01, value.mean), xycoords=("axes fraction", "data"), va="bottom", color="#777777"
            )
        ax.set(xscale="log", xlabel="seconds (compiled)", title=f"{name}, {size:,} rows: {_HEADINGS[what]}")
        _clean(ax)
    _legend(figure, axes[0][0], [name for name in METHODS if name in seen])
    _save(figure, path)


def _shown_time(runs: Runs) -> str | None:
    """As it is, or eigenvectors at their best time."""
    return "" if "" in runs.times else None


def _clean(ax: Any) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(color="#e5e5e5", linewidth=0.7)
    ax.set_axisbelow(True)


def _legend(figure: Any, ax: Any, methods: list[str]) -> None:
    from matplotlib.lines import Line2D

    styles = _styles()
    handles = [
        Line2D(
            [],
            [],
            color=styles[name].color,
            marker=styles[name].marker,
            linestyle=styles[name].line,
            linewidth=styles[name].width,
            markersize=8,
            label=name,
        )
        for name in methods
    ]
    figure.legend(handles=handles, loc="outside right center", frameon=False)


def _save(figure: Any, path: Path) -> None:
    import matplotlib.pyplot as plt

    figure.savefig(path, dpi=100, facecolor="white")
    plt.close(figure)
