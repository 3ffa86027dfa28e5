"""The page of the documentation: text, tables and two pictures of what `run.py` has measured."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from peers.methods import METHODS
from peers.pictures import draw_cost, draw_quality
from peers.records import Results
from peers.summary import FLOOR, HEADINGS, Runs, Table, Value, main_data, methods_of, quality_size, tabulate

PAGE, TIME_PICTURE, QUALITY_PICTURE = "peers.md", "figures/peers-time.png", "figures/peers-quality.png"
FIGURES = tuple(HEADINGS)
_EQUAL, _POWER = "all", "64"
_TEXT = Path(__file__).with_name("page.md")


def write_report(results: Results, folder: Path) -> None:
    """Write the page and its pictures."""
    table = tabulate(results)
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    text = _TEXT.read_text(encoding="utf-8").replace("<!-- tables -->\n", markdown(table))
    (folder / PAGE).write_text(text, encoding="utf-8")
    draw_cost(table, folder / TIME_PICTURE)
    draw_quality(table, folder / QUALITY_PICTURE)
    print(f"{len(results.records)} runs: {folder / PAGE}, {folder / TIME_PICTURE}, {folder / QUALITY_PICTURE}")


def markdown(table: Table) -> str:
    """Write all tables as Markdown."""
    main = main_data(table)
    sections = [
        _measured_on(table),
        f"### Seconds, {main}\n\nCompiled, and in brackets the first call of a process.\n\n{_cost(table, _seconds)}",
        f"### Gigabytes, {main}\n\nPeak of the process, the rows included.\n\n{_cost(table, _gigabytes)}",
    ]
    for name in dict.fromkeys(key[0] for key in table):
        sizes = {quality_size(table, name)}
        if name == main:  # quality may change with the number of rows
            sizes.add(max(n for data, n, _ in table if data == main))
        for size in sorted(filter(None, sizes)):
            sections.append(f"### Quality, {name}, {size:,} rows\n\n" + _quality(table, name, size))
    exact = sorted({(data, n) for data, n, _ in table if _has_exact(table, data, n)})
    for name, size in exact:
        if size != quality_size(table, name):
            sections.append(f"### Exact diffusion distances, {name}, {size:,} rows\n\n" + _quality(table, name, size))
    more = _more_rows(table)
    if more:
        sections.append(f"### More rows of other data\n\n{more}")
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
    limits = sorted({(record.limits["time"], record.limits["memory"]) for record in records})
    limit_texts = [f"{seconds:.0f} s and {memory / 1e9:.0f} GB" for seconds, memory in limits]
    return (
        f"Measured on {'; '.join(sorted(machines))}. Limits of one run: {'; '.join(limit_texts)}. "
        f"Versions: {', '.join(versions)}."
    )


def _cost(table: Table, cell: Callable[[Runs], str]) -> str:
    main = main_data(table)
    ours = [key for key in table if key[0] == main]
    sizes = sorted({key[1] for key in ours})
    rows = [
        [name, *(cell(table[main, n, name]) if (main, n, name) in table else "" for n in sizes)]
        for name in methods_of(ours)
        if name != "input"
    ]
    return _lines(["method", *(f"{n:,}" for n in sizes)], rows)


def _seconds(runs: Runs) -> str:
    time, first = runs.least(lambda one: one.compiled), runs.least(lambda one: one.first)
    if time is None or first is None:
        return _stopped(runs)
    return f"{_short(time)} ({_short(first)})"


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


def _more_rows(table: Table) -> str:
    """Cost and quality of runs on data other than the main set, with more rows than the tables of quality have."""
    rows = []
    for (data, n_rows, method), runs in table.items():
        usual = quality_size(table, data)
        if data == main_data(table) or usual is None or n_rows <= usual:
            continue
        order = runs.figure("rho")
        rows.append([method, data, f"{n_rows:,}", _seconds(runs), _gigabytes(runs), _maybe(order)])
    return _lines(["method", "data", "rows", "seconds", "gigabytes", HEADINGS["rho"]], rows) if rows else ""


def _has_exact(table: Table, data: str, n_rows: int) -> bool:
    runs = [table[key] for key in table if key[:2] == (data, n_rows)]
    return any(one.figure("diffusion all") is not None for one in runs)


def _quality(table: Table, name: str, size: int) -> str:
    runs = {method: table[name, size, method] for method in methods_of(key for key in table if key[:2] == (name, size))}
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
    head = ["method", *(HEADINGS[figure] for figure in shown), "same with another seed"]
    if not any(row[-1] for row in rows):  # one seed
        head, rows = head[:-1], [row[:-1] for row in rows]
    return _lines(head, rows)


def _variants(method: str, runs: Runs) -> list[tuple[str, str | None]]:
    """The rows of a method in the table of quality: eigenvectors at equal powers, and each figure at its best time."""
    if "" in runs.times:
        return [(method, "")]
    return [(f"{method}, all scales", _EQUAL), (f"{method}, power 64", _POWER), (f"{method}, best power", None)]


def _recalls(table: Table) -> str:
    main = main_data(table)
    keys = [key for key in table if key[0] == main and METHODS[key[2]].group == FLOOR]
    sizes = sorted({key[1] for key in keys})
    rows = [
        [name, *(_maybe(table[main, n, name].figure("recall")) if (main, n, name) in table else "" for n in sizes)]
        for name in methods_of(keys)
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
