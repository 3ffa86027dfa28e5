"""Two pictures: time and memory against the number of rows, and quality against time."""

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peers.methods import METHODS, OURS
from peers.records import Record
from peers.summary import FLOOR, HEADINGS, Runs, Table, main_data, methods_of, quality_size

PANELS = (("branching", "NMI"), ("Fashion-MNIST", "NMI"), ("Fashion-MNIST", "few"), ("swiss roll", "rho"))
_COLORS = {
    OURS: ("#0b4f9e", "#2f7fd1", "#6aa9e6", "#083061", "#00a6c7"),
    "neighbours alone": ("#555555", "#888888", "#aaaaaa"),
    "eigenvectors": ("#b3261e", "#d95f02", "#e6ab02", "#a6611a", "#8c564b", "#e78ac3", "#c51b7d"),
    "pictures": ("#1b7837", "#5aae61", "#6a3d9a", "#9e86c8", "#33a02c", "#01665e"),
    "other": ("#333333",),
    "input": ("#000000",),
}
_MARKERS = "osD^vP<>"
_ASIDE = 1.06  # between the crosses of methods that ended at one size


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
        line = "--" if method.group == FLOOR else "-"
        width = 3.0 if name == OURS else 1.6
        found[name] = Style(colors[number % len(colors)], _MARKERS[number % len(_MARKERS)], line, width)
    return found


def draw_cost(table: Table, path: Path) -> None:
    """Time and memory against the number of rows; a cross where a method was stopped, with the reason."""
    import matplotlib.pyplot as plt

    main = main_data(table)
    methods = [name for name in methods_of(key for key in table if key[0] == main) if name != "input"]
    figure, axes = plt.subplots(1, 2, figsize=(15, 7.5), layout="constrained")
    panels = (
        (axes[0], "seconds (compiled)", lambda one: one.compiled, "time"),
        (axes[1], "gigabytes (peak)", lambda one: one.peak / 1e9, "memory"),
    )
    sizes = sorted({key[1] for key in table if key[0] == main})
    for ax, label, of, limit in panels:
        stopped = Counter[int]()
        for name in methods:
            _draw_line(ax, table, main, name, of)
            _draw_stops(ax, table, main, name, of, limit, stopped)
        ax.set(xscale="log", yscale="log", xlabel="rows", ylabel=label)
        ax.set_xticks(sizes, [f"{n:,}" for n in sizes])
        ax.minorticks_off()
        _clean(ax)
    limits = [record.limits for runs in table.values() for record in runs.records if record.key.data == main]
    for ax, limit, text in (
        (axes[0], max(one["time"] for one in limits), "time limit"),
        (axes[1], max(one["memory"] for one in limits) / 1e9, "memory limit"),
    ):
        ax.axhline(limit, color="#bbbbbb", linewidth=1, zorder=0)
        ax.annotate(text, (0, limit), xycoords=("axes fraction", "data"), color="#777777", va="bottom", fontsize=12)
    _legend(figure, axes[0], methods)
    _save(figure, path)


def _draw_line(ax: Any, table: Table, data: str, name: str, of: Callable[[Record], float]) -> None:
    style = _styles()[name]
    keys = sorted(key for key in table if key[0] == data and key[2] == name)
    known = [(key[1], table[key].least(of)) for key in keys]
    points = [(n, value) for n, value in known if value is not None]
    ax.plot(
        [n for n, _ in points],
        [value for _, value in points],
        color=style.color,
        marker=style.marker,
        linestyle=style.line,
        linewidth=style.width,
        markersize=7,
        label=name,
        zorder=3 if name == OURS else 2,
    )


def _draw_stops(
    ax: Any, table: Table, data: str, name: str, of: Callable[[Record], float], limit: str, stopped: Counter[int]
) -> None:
    """Draw a cross where a method ended, beside those of others; name the reason if it is not this panel's limit."""
    style = _styles()[name]
    keys = sorted(key for key in table if key[0] == data and key[2] == name)
    last = None
    for key in keys:
        runs, stop = table[key], table[key].stop
        value = runs.value(of)
        if value is not None:
            last = (key[1], value.mean)
        elif stop is not None:
            x, y = key[1] * _ASIDE ** stopped[key[1]], _where_stopped(stop, of)
            stopped[key[1]] += 1
            if last:
                ax.plot([last[0], x], [last[1], y], color=style.color, linestyle=":", linewidth=1)
            ax.plot(x, y, "x", color=style.color, markersize=11, markeredgewidth=2.5)
            if stop.status != limit:
                ax.annotate(stop.status, (x, y), (5, 5), textcoords="offset points", color=style.color, fontsize=11)


def _where_stopped(stop: Record, of: Callable[[Record], float]) -> float:
    """The height of the cross: what the run had used when it ended."""
    used = Record(stop.key, "done", stop.peak, stop.process, stop.machine, stop.limits, seconds={"call": stop.process})
    return of(used)


def draw_quality(table: Table, path: Path) -> None:
    """Quality against time, one panel for each figure that has been measured."""
    import matplotlib.pyplot as plt

    panels = [(name, figure) for name, figure in PANELS if quality_size(table, name)]
    figure, axes = plt.subplots(
        1, len(panels), figsize=(5.2 * len(panels) + 3, 6.2), layout="constrained", squeeze=False
    )
    seen = dict[str, None]()
    for ax, (name, what) in zip(axes[0], panels, strict=True):
        size = quality_size(table, name)
        for key in [key for key in table if key[:2] == (name, size)]:
            value = table[key].figure(what, _shown_time(table[key]))
            seconds = table[key].least(lambda one: one.compiled)
            if value is None or seconds is None or key[2] == "input":
                continue
            seen[key[2]] = None
            style = _styles()[key[2]]
            ax.errorbar(
                seconds,
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
                "input",
                (0.99, value.mean),
                xycoords=("axes fraction", "data"),
                va="bottom",
                ha="right",
                color="#777777",
            )
        ax.set(xscale="log", xlabel="seconds (compiled)", title=f"{name}, {size:,} rows: {HEADINGS[what]}")
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
